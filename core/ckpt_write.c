/* SPDX-License-Identifier: Apache-2.0 */
/* ckpt_write.c - the part of the facade that writes */
#include "core/ckpt_priv.h"

#include "core/base/auto.h"
#include "core/base/check.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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
	if (!ret && ck->writer)
		ck_writer_tell(ck->writer, ck_ckpt_said, ck);
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
	const struct ck_tensor *t = &ck->img.tensors[tensor];
	int ret = may(ck, tensor, err);

	if (!ret)
		ret = ck_writer_may(ck->writer, tensor, err);
	if (!ret)
		ret = ck_ckpt_hold(ck, err);
	if (!ret && t->nr_all)
		ret = ck_writer_try(ck->writer, ck->img.chunks[t->first].src,
				    err);
	return ret;
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

/* The 16-bit elements that bytes [off, off+len) are of. */
static int elements(struct ck_ckpt *ck, uint32_t tensor, uint64_t len,
		    uint64_t off, unsigned char **out, struct ck_err *err)
{
	uint64_t first = off / 2 * 2;
	uint64_t nbytes = CK_DIV_UP(off + len, 2) * 2 - first;

	*out = malloc(nbytes);
	if (!*out)
		return ck_fail(err, ENOMEM, "out of memory");
	return ck_reader_read(ck->reader, tensor, *out, nbytes, first, err);
}

/* The bytes and the optimizer's copy of them, as no other writer's. */
static int write_all(struct ck_ckpt *ck, struct ck_edit *e, uint32_t tensor,
		     const void *buf, uint64_t len, uint64_t off, bool page,
		     struct ck_err *err)
{
	ck_auto_free unsigned char *was = NULL;
	uint32_t copy = ck_ckpt_written_too(ck, tensor);
	struct ck_stint stint = {
		.part = { { tensor, off, off + len }, { copy, 0, UINT64_MAX } },
		.nr = copy == CK_NONE ? 1 : 2,
	};
	bool begun;
	int ret = 0;

	ck_writer_begin(ck->writer, &stint);
	if (page && copy != CK_NONE)
		ret = elements(ck, tensor, len, off, &was, err);
	begun = !ret;
	if (!ret)
		ret = ck_writer_write(ck->writer, e, tensor, buf, len, off,
				      err);
	if (!ret)
		ret = ck_master_follow(ck, e, tensor, was, len, off, err);
	ck_writer_end(ck->writer, &stint);
	if (begun && (ret == -EIO || ret == -ENOSPC || ret == -EDQUOT) &&
	    copy != CK_NONE)
		say_undone(ck, tensor, copy, -ret);
	return ret;
}

int ck_ckpt_write(struct ck_ckpt *ck, struct ck_edit *e, uint32_t tensor,
		  const void *buf, uint64_t len, uint64_t off, bool page,
		  struct ck_err *err)
{
	int ret = may(ck, tensor, err);

	if (!ret)
		ret = ck_ckpt_whole(ck, err);
	if (!ret)
		ret = ck_ckpt_hold(ck, err);
	return ret ? ret : write_all(ck, e, tensor, buf, len, off, page, err);
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
