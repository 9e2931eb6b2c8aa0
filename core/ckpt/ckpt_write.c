/* SPDX-License-Identifier: Apache-2.0 */
/* ckpt_write.c - the part of the facade that writes */
#include "core/ckpt/ckpt_priv.h"

#include "core/base/auto.h"
#include "core/base/check.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FORMER_MAX (UINT64_C(64) << 20) /* what maps may show, a checkpoint */

/*
 * A problem of a file is one of its first chunk, which tells the file; one of
 * CK_NONE is the whole checkpoint's.
 */
void ck_ckpt_said(void *ctx, uint32_t src, const char *line)
{
	struct ck_ckpt *ck = ctx;
	const struct ck_image *img = &ck->img;
	struct ck_late_problem p = { .tensor = CK_NONE,
				     .chunk = CK_NONE,
				     .reason = (char *)line };

	if (src == CK_NONE)
		ck_late_add(&ck->late, &p);
	for (uint32_t c = 0; c < img->nr_chunks; c++) {
		if (img->chunks[c].src != src)
			continue;
		p.chunk = c;
		ck_late_add(&ck->late, &p);
		return;
	}
}

int ck_ckpt_start_writer(struct ck_ckpt *ck, const struct ck_opts *opts,
			 struct ck_err *err)
{
	const struct ck_sums_found found = { .said = ck_ckpt_said, .ctx = ck };

	int ret = 0;

	ck_lost_init(&ck->lost, &ck->img);
	ck_master_init(&ck->master, &ck->img, ck_opts_get(opts, "master"));
	if (ck_opts_get(opts, "rw"))
		ret = ck_writer_new(&ck->writer, ck->reader, err);
	else
		ck_sums_warn(&ck->img, &ck->root, &found);
	if (!ret && ck->writer) {
		ck_writer_tell(ck->writer, ck_ckpt_said, ck);
		ck->formers = ck_formers_new(FORMER_MAX);
		if (!ck->formers)
			ret = ck_fail(err, ENOMEM, "out of memory");
	}
	if (!ret)
		ret = ck_ckpt_hold_left(ck, err);
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
		ret = ck_lost_may(&ck->lost, &ck->img, tensor, err);
	return ret ? ret : ck_master_may(ck, tensor, err);
}

int ck_ckpt_may_write(struct ck_ckpt *ck, uint32_t tensor, struct ck_err *err)
{
	int ret = may(ck, tensor, err);

	if (!ret)
		ret = ck_writer_may(ck->writer, tensor, err);
	if (!ret)
		ret = ck_ckpt_hold(ck, err);
	return ret ? ret : ck_writer_try_tensor(ck->writer, tensor, err);
}

static void say_undone(struct ck_ckpt *ck, uint32_t tensor, uint32_t copy,
		       int code)
{
	const struct ck_image *img = &ck->img;
	ck_auto_free char *line = NULL;

	if (asprintf(&line,
		     "a write to tensor %s failed (%s), and training goes on "
		     "from other values in its float32 copy %s until the same "
		     "bytes are written again",
		     ck_image_str(img, img->tensors[tensor].name, NULL),
		     strerror(code),
		     ck_image_str(img, img->tensors[copy].name, NULL)) < 0)
		line = NULL;
	else
		ck_ckpt_said(ck, CK_NONE, line);
}

/* ---- what was there ---- */

struct ck_former *ck_ckpt_former(struct ck_ckpt *ck)
{
	return ck_former_new(ck->formers);
}

void ck_ckpt_former_end(struct ck_former *f)
{
	ck_former_end(f);
}

bool ck_ckpt_former_merged(const struct ck_former *f)
{
	return ck_former_merged(f);
}

static struct ck_former_at at(const struct ck_ckpt *ck, uint32_t tensor,
			      uint64_t off, uint64_t file)
{
	return (struct ck_former_at){ .key = ck_master_same(ck, tensor),
				      .off = off,
				      .file = file,
				      .as = tensor };
}

void ck_ckpt_former_keep(struct ck_ckpt *ck, struct ck_former *f,
			 uint32_t tensor, uint64_t file, const void *was,
			 const void *now, uint64_t len, uint64_t off)
{
	const struct ck_former_at where = at(ck, tensor, off, file);

	if (!ck_former_keep(f, &where, was, now, len))
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
		return ck_fail(err, ENOMEM, "out of memory");
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
	return t->as->page && ck_formers_bytes(t->ck->formers);
}

/* *buf: what is to be written of it. */
static int look_before(struct turn *t, const void **buf, struct ck_err *err)
{
	struct ck_former_at where;
	int ret = 0;

	if (by_elements(t) || t->as->former || is_old_page(t))
		ret = read_was(t, err);
	if (ret || !t->was || !is_old_page(t))
		return ret;
	where = at(t->ck, t->tensor, t->off, t->as->file);
	if (ck_formers_merge(t->ck->formers, &where, *buf, t->was + t->lead,
			     t->len, &t->merged))
		return ck_fail(err, ENOMEM, "out of memory");
	if (t->merged) {
		*buf = t->merged;
		if (t->as->former)
			ck_former_set_merged(t->as->former);
	}
	return 0;
}

/* Others' pages of it are old from now on, also where it failed half-way. */
static void note_before(struct turn *t, const void *buf)
{
	if (!t->was)
		return;
	if (t->as->former)
		ck_ckpt_former_keep(t->ck, t->as->former, t->tensor,
				    t->as->file, t->was + t->lead, buf, t->len,
				    t->off);
	if (by_elements(t) && t->ck->undone.nr)
		ck_undone_spoil(&t->ck->undone,
				ck_master_same(t->ck, t->tensor), t->off,
				t->off + t->len, buf, t->was + t->lead);
}

static void note_after(struct turn *t, int ret)
{
	struct ck_undone *u = &t->ck->undone;
	bool half = ret == -EIO || ret == -ENOSPC || ret == -EDQUOT;

	if (!ret && u->nr) {
		ck_undone_drop(u, ck_master_same(t->ck, t->tensor), t->off,
			       t->off + t->len);
	} else if (half) {
		ck_undone_add(u, ck_master_same(t->ck, t->tensor), t->off,
			      t->off + t->len);
		if (t->copy != CK_NONE)
			say_undone(t->ck, t->tensor, t->copy, -ret);
	}
}

/* The bytes and the optimizer's copy of them, as no other writer's. */
static int write_all(struct turn *t, struct ck_edit *e, const void *buf,
		     struct ck_err *err)
{
	struct ck_ckpt *ck = t->ck;
	struct ck_stint stint = {
		.part = { { t->tensor, t->off, t->off + t->len },
			  { t->copy, 0, UINT64_MAX } },
		.nr = t->copy == CK_NONE ? 1 : 2,
	};
	int ret;

	ck_writer_begin(ck->writer, &stint);
	ret = look_before(t, &buf, err);
	if (!ret) {
		note_before(t, buf);
		ret = ck_writer_write(ck->writer, e, t->tensor, buf, t->len,
				      t->off, err);
		if (!ret)
			ret = ck_master_follow(ck, e, t->tensor,
					       by_elements(t) ? t->was : NULL,
					       t->as->former, t->len, t->off,
					       err);
		note_after(t, ret);
	}
	ck_writer_end(ck->writer, &stint);
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
		ret = ck_ckpt_hold(ck, err);
	return ret ? ret : write_all(&t, e, buf, err);
}

bool ck_ckpt_is_undone(struct ck_ckpt *ck, uint32_t tensor, uint64_t len,
		       uint64_t off)
{
	return ck->undone.nr &&
	       ck_undone_any(&ck->undone, ck_master_same(ck, tensor), off,
			     off + len);
}

uint32_t ck_ckpt_alias(const struct ck_ckpt *ck, uint32_t tensor)
{
	return ck_writer_alias(ck->writer, tensor);
}

uint32_t ck_ckpt_written_too(const struct ck_ckpt *ck, uint32_t tensor)
{
	return ck->master.how == CK_MASTER_ALSO ? ck_master_of(ck, tensor) :
						  CK_NONE;
}

int ck_ckpt_spool(struct ck_ckpt *ck, int *fd, struct ck_err *err)
{
	return ck_reader_spool(ck->reader, fd, err);
}

int ck_ckpt_settle(struct ck_ckpt *ck, struct ck_edit *e, struct ck_err *err)
{
	int ret = ck_edit_settle(e, err);

	if (!ret)
		ck_ckpt_seal_settle(ck, false);
	return ret;
}

int ck_ckpt_sync(struct ck_ckpt *ck, struct ck_edit *e, struct ck_err *err)
{
	int ret = ck_edit_sync(e, err);

	if (!ret)
		ck_ckpt_seal_settle(ck, true);
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
