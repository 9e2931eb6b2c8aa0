/* SPDX-License-Identifier: Apache-2.0 */
/* ckpt_write.c - the part of the facade that writes */
#include "core/ckpt/ckpt_priv.h"

#include "core/base/auto.h"
#include "core/base/check.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define STALE_LOG_MAX \
	(UINT64_C(64) << 20) /* what maps may show, a checkpoint */

/*
 * A problem of a file is one of its first chunk, which tells the file; one of
 * CK_NONE is the whole checkpoint's.
 */
void ck_ckpt_said(void *ctx, uint32_t src, const char *line)
{
	struct ck_ckpt *ck = ctx;
	const struct ck_catalog *img = &ck->img;
	struct ck_runtime_problem p = { .tensor = CK_NONE,
					.chunk = CK_NONE,
					.reason = (char *)line };

	if (src == CK_NONE)
		ck_runtime_problems_add(&ck->problems_found, &p);
	for (uint32_t c = 0; c < img->nr_chunks; c++) {
		if (img->chunks[c].src != src)
			continue;
		p.chunk = c;
		ck_runtime_problems_add(&ck->problems_found, &p);
		return;
	}
}

int ck_ckpt_start_writer(struct ck_ckpt *ck, const struct ck_opts *opts,
			 struct ck_err *err)
{
	const struct ck_sums_found found = { .said = ck_ckpt_said, .ctx = ck };

	int ret = 0;

	ck_unknown_copies_init(&ck->unknown_copies, &ck->img);
	ck_fp32_master_init(&ck->fp32_master, &ck->img,
			    ck_opts_get(opts, "master"));
	if (ck_opts_get(opts, "rw"))
		ret = ck_writer_new(&ck->writer, ck->reader, err);
	else
		ck_sums_warn(&ck->img, &ck->root, &found);
	if (!ret && ck->writer) {
		ck_writer_tell(ck->writer, ck_ckpt_said, ck);
		ck->stale_log = ck_stale_log_new(STALE_LOG_MAX);
		if (!ck->stale_log)
			ret = ck_no_memory(err);
	}
	if (!ret)
		ret = ck_ckpt_recover_killed(ck, err);
	if (!ret)
		ret = ck_ckpt_redo_left(ck, err);
	ck->serves = true;
	return ret;
}

bool ck_ckpt_is_rw(const struct ck_ckpt *ck)
{
	return ck->writer;
}

struct ck_edit *ck_ckpt_edit(struct ck_ckpt *ck)
{
	return ck_edit_new(ck->writer);
}

void ck_ckpt_edit_end(struct ck_edit *e)
{
	ck_edit_free(e);
}

/* Whether what is known of the checkpoint as a whole allows it. */
static int may(const struct ck_ckpt *ck, uint32_t tensor, struct ck_err *err)
{
	int ret = ck_ckpt_seal_may(ck, err);

	if (!ret)
		ret = ck_unknown_copies_may(&ck->unknown_copies, &ck->img,
					    tensor, err);
	return ret ? ret : ck_fp32_master_may(ck, tensor, err);
}

int ck_ckpt_may_write(struct ck_ckpt *ck, uint32_t tensor, struct ck_err *err)
{
	int ret = may(ck, tensor, err);

	if (!ret)
		ret = ck_writer_may(ck->writer, tensor, err);
	if (!ret)
		ret = ck_ckpt_lock_writer(ck, err);
	return ret ? ret : ck_writer_try_tensor(ck->writer, tensor, err);
}

static void say_partial_write(struct ck_ckpt *ck, uint32_t tensor,
			      uint32_t copy, int code)
{
	const struct ck_catalog *img = &ck->img;
	ck_auto_free char *line = NULL;

	if (asprintf(&line,
		     "a write to tensor %s failed (%s), and training goes on "
		     "from other values in its float32 copy %s until the same "
		     "bytes are written again",
		     ck_catalog_str(img, img->tensors[tensor].name, NULL),
		     strerror(code),
		     ck_catalog_str(img, img->tensors[copy].name, NULL)) < 0)
		line = NULL;
	else
		ck_ckpt_said(ck, CK_NONE, line);
}

/* ---- what was there ---- */

struct ck_pre_image *ck_ckpt_pre_image(struct ck_ckpt *ck)
{
	return ck_pre_image_new(ck->stale_log);
}

void ck_ckpt_pre_image_end(struct ck_pre_image *f)
{
	ck_pre_image_end(f);
}

bool ck_ckpt_pre_image_merged(const struct ck_pre_image *f)
{
	return ck_pre_image_merged(f);
}

static struct ck_pre_image_at at(const struct ck_ckpt *ck, uint32_t tensor,
				 uint64_t off, uint64_t file)
{
	return (struct ck_pre_image_at){ .key = ck_fp32_master_same(ck, tensor),
					 .off = off,
					 .file = file,
					 .as = tensor };
}

void ck_ckpt_pre_image_keep(struct ck_ckpt *ck, struct ck_pre_image *f,
			    uint32_t tensor, uint64_t file, const void *was,
			    const void *now, uint64_t len, uint64_t off)
{
	const struct ck_pre_image_at where = at(ck, tensor, off, file);

	if (!ck_pre_image_keep(f, &where, was, now, len))
		ck_ckpt_said(ck, CK_NONE,
			     "so much is written to what maps of other views "
			     "show that there is no room to tell who stored "
			     "what: where they meet in a page, some of it may "
			     "be lost");
}

/* One write, while nobody else has its bytes. */
struct turn {
	struct ck_ckpt *ck;
	uint32_t tensor, copy; /* copy: or CK_NONE */
	const struct ck_written_as *as;
	uint64_t len, off, lead; /* lead: bytes of @was before @off */
	unsigned char *was; /* NULL: not needed, or not to be read */
	unsigned char *merged; /* what is written instead; or NULL */
};

static bool by_elements(const struct turn *t)
{
	return t->as->page && t->copy != CK_NONE;
}

/* The bytes; where there is a copy, whole elements of 16 bits. */
static int read_was(struct turn *t, struct ck_err *err)
{
	uint64_t end = t->off + t->len;
	int ret;

	if (t->copy != CK_NONE) {
		t->lead = t->off % 2;
		end = CK_DIV_UP(end, 2) * 2;
	}
	t->was = malloc(end - (t->off - t->lead));
	if (!t->was)
		return ck_no_memory(err);
	ret = ck_reader_read(t->ck->reader, t->tensor, t->was,
			     end - (t->off - t->lead), t->off - t->lead,
			     by_elements(t) ? err : NULL);
	if (!ret || by_elements(t))
		return ret;
	free(t->was); /* what is damaged may be written all the same */
	t->was = NULL;
	return 0;
}

/* Whether somebody may have written since the page was read. */
static bool is_old_page(const struct turn *t)
{
	return t->as->page && ck_stale_log_bytes(t->ck->stale_log);
}

/* *buf: what is to be written of it. */
static int look_before(struct turn *t, const void **buf, struct ck_err *err)
{
	struct ck_pre_image_at where;
	int ret = 0;

	if (by_elements(t) || t->as->pre_image || is_old_page(t))
		ret = read_was(t, err);
	if (ret || !t->was || !is_old_page(t))
		return ret;
	where = at(t->ck, t->tensor, t->off, t->as->file);
	if (ck_stale_log_merge(t->ck->stale_log, &where, *buf, t->was + t->lead,
			       t->len, &t->merged))
		return ck_no_memory(err);
	if (t->merged) {
		*buf = t->merged;
		if (t->as->pre_image)
			ck_pre_image_set_merged(t->as->pre_image);
	}
	return 0;
}

/* Others' pages of it are old from now on, also where it failed half-way. */
static void note_before(struct turn *t, const void *buf)
{
	if (!t->was)
		return;
	if (t->as->pre_image)
		ck_ckpt_pre_image_keep(t->ck, t->as->pre_image, t->tensor,
				       t->as->file, t->was + t->lead, buf,
				       t->len, t->off);
	if (by_elements(t) && t->ck->partial_writes.nr)
		ck_partial_writes_spoil(&t->ck->partial_writes,
					ck_fp32_master_same(t->ck, t->tensor),
					t->off, t->off + t->len, buf,
					t->was + t->lead);
}

static void note_after(struct turn *t, int ret)
{
	struct ck_partial_writes *u = &t->ck->partial_writes;
	bool half = ret == -EIO || ret == -ENOSPC || ret == -EDQUOT;

	if (!ret && u->nr) {
		ck_partial_writes_drop(u, ck_fp32_master_same(t->ck, t->tensor),
				       t->off, t->off + t->len);
	} else if (half) {
		ck_partial_writes_add(u, ck_fp32_master_same(t->ck, t->tensor),
				      t->off, t->off + t->len);
		if (t->copy != CK_NONE)
			say_partial_write(t->ck, t->tensor, t->copy, -ret);
	}
}

/* The bytes and the optimizer's copy of them, as no other writer's. */
static int write_all(struct turn *t, struct ck_edit *e, const void *buf,
		     struct ck_err *err)
{
	struct ck_ckpt *ck = t->ck;
	struct ck_range_lock range_lock = {
		.part = { { t->tensor, t->off, t->off + t->len },
			  { t->copy, 0, UINT64_MAX } },
		.nr = t->copy == CK_NONE ? 1 : 2,
	};
	int ret;

	ck_writer_begin(ck->writer, &range_lock);
	ret = look_before(t, &buf, err);
	if (!ret) {
		note_before(t, buf);
		ret = ck_writer_write(ck->writer, e, t->tensor, buf, t->len,
				      t->off, err);
		if (!ret)
			ret = ck_fp32_master_follow(
				ck, e, t->tensor,
				by_elements(t) ? t->was : NULL,
				t->as->pre_image, t->len, t->off, err);
		note_after(t, ret);
	}
	ck_writer_end(ck->writer, &range_lock);
	free(t->was);
	free(t->merged);
	return ret;
}

int ck_ckpt_write(struct ck_ckpt *ck, struct ck_edit *e, uint32_t tensor,
		  const void *buf, uint64_t len, uint64_t off,
		  const struct ck_written_as *as, struct ck_err *err)
{
	static const struct ck_written_as plain;
	struct turn t = { .ck = ck,
			  .tensor = tensor,
			  .copy = ck_ckpt_written_too(ck, tensor),
			  .as = as ? as : &plain,
			  .len = len,
			  .off = off };
	int ret = may(ck, tensor, err);

	if (!ret)
		ret = ck_ckpt_whole(ck, err);
	if (!ret)
		ret = ck_ckpt_lock_writer(ck, err);
	return ret ? ret : write_all(&t, e, buf, err);
}

bool ck_ckpt_is_partly_written(struct ck_ckpt *ck, uint32_t tensor,
			       uint64_t len, uint64_t off)
{
	return ck->partial_writes.nr &&
	       ck_partial_writes_any(&ck->partial_writes,
				     ck_fp32_master_same(ck, tensor), off,
				     off + len);
}

uint32_t ck_ckpt_shared_storage(const struct ck_ckpt *ck, uint32_t tensor)
{
	return ck_writer_shared_storage(ck->writer, tensor);
}

uint32_t ck_ckpt_written_too(const struct ck_ckpt *ck, uint32_t tensor)
{
	return ck->fp32_master.how == CK_FP32_MASTER_ALSO ?
		       ck_fp32_master_of(ck, tensor) :
		       CK_NONE;
}

int ck_ckpt_nameless_file(struct ck_ckpt *ck, int *fd, struct ck_err *err)
{
	return ck_reader_nameless_file(ck->reader, fd, err);
}

int ck_ckpt_flush_checksums(struct ck_ckpt *ck, struct ck_edit *e,
			    struct ck_err *err)
{
	int ret = ck_edit_flush_checksums(e, err);

	if (!ret)
		ck_ckpt_update_manifest(ck, false);
	return ret;
}

int ck_ckpt_sync(struct ck_ckpt *ck, struct ck_edit *e, struct ck_err *err)
{
	int ret = ck_edit_sync(e, err);

	if (!ret)
		ck_ckpt_update_manifest(ck, true);
	return ret;
}

uint64_t ck_ckpt_write_seq(const struct ck_ckpt *ck)
{
	return ck && ck->writer ? ck_writer_seq(ck->writer) : 0;
}

int64_t ck_ckpt_last_wrote_ns(const struct ck_ckpt *ck)
{
	return ck->writer ? ck_writer_last_mtime(ck->writer) : 0;
}

bool ck_ckpt_wrote_file(const struct ck_ckpt *ck, const char *name,
			const struct stat *st, int64_t *was_ns)
{
	int64_t now =
		(int64_t)st->st_mtim.tv_sec * 1000000000 + st->st_mtim.tv_nsec;

	return ck && ck->writer &&
	       ck_writer_wrote(ck->writer, name, now, was_ns);
}

int64_t ck_ckpt_wrote_ns(const struct ck_ckpt *ck, uint32_t tensor)
{
	return ck->writer ? ck_writer_mtime(ck->writer, tensor) : 0;
}
