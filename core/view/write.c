/* SPDX-License-Identifier: Apache-2.0 */
/*
 * write.c - bytes into a view's file: its tensors take them, its own are fixed
 *
 * Headers are made from the catalog, so a program that writes a whole file anew
 * writes them as they are: that is allowed, and anything else is not.
 */
#include "core/view/view.h"

#include "core/base/check.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define PIECE 4096

static int made_differs(const struct ck_view *v, uint32_t i, uint64_t off,
			struct ck_err *err)
{
	char name[CK_VIEW_NAME];

	v->ops->label(v, i, name);
	return ck_fail(err, EPERM,
		       "%s/%s: byte %llu is not a tensor's; it is made from "
		       "the checkpoint and cannot be changed",
		       v->ops->name, name, (unsigned long long)off);
}

/* Whether @len bytes that the view makes are those in @buf. */
static int check_made(const struct ck_view *v, uint32_t i,
		      const struct ck_span *span, const unsigned char *buf,
		      uint64_t len, uint64_t off, struct ck_err *err)
{
	unsigned char made[PIECE];

	for (uint64_t at = 0; at < len; at += PIECE) {
		uint64_t n = CK_MIN(PIECE, len - at);
		int ret = v->ops->made(v, i, made, n, span->off + at, err);

		if (ret)
			return ret;
		if (memcmp(made, buf + at, n) != 0)
			return made_differs(v, i, off + at, err);
	}
	return 0;
}

/* What is to be written. */
struct put {
	const struct ck_view *v;
	const struct ck_vfile *file;
	struct ck_edit *e;
	const unsigned char *buf;
	uint32_t i;
	const struct ck_written_as *as; /* or NULL */
	unsigned char *was; /* what heeded tensors have now, or NULL */
};

enum turn { CHECK, WRITE_PLAIN, WRITE_COPIED };

/* Tensors of which a page may hold bytes that only seem to be written. */
static bool heeded(const struct put *p, uint32_t t, int may)
{
	return p->as && p->as->page &&
	       (may || p->file->tensor == CK_NONE ||
		ck_ckpt_written_too(p->v->ck, t) != CK_NONE);
}

/* Where nothing else is put into it, all differs. */
static int make_was(struct put *p, uint64_t len, struct ck_err *err)
{
	p->was = malloc(len);
	if (!p->was)
		return ck_no_memory(err);
	for (uint64_t k = 0; k < len; k++)
		p->was[k] = (unsigned char)~p->buf[k];
	return 0;
}

/* @at, here and below: where in the buffer the @n bytes of the span begin */
static int check_tensor(struct put *p, const struct ck_span *span, uint64_t at,
			uint64_t n, uint64_t len, struct ck_err *err)
{
	struct ck_ckpt *ck = p->v->ck;
	int ret = 0, may = ck_ckpt_may_write(ck, span->ref, err);

	if (!heeded(p, span->ref, may))
		return may;
	if (!p->was)
		ret = make_was(p, len, err);
	if (ret)
		return ret;
	ret = ck_ckpt_read(ck, span->ref, p->was + at, n, span->off,
			   may ? NULL : err);
	if (may && !ret && !memcmp(p->was + at, p->buf + at, n))
		return 0;
	return may ? may : ret;
}

/*
 * Of what is heeded all from the first byte that differs to the last.  Tied
 * tensors in one page would else undo each other's.  But where a write failed,
 * what is there may be one of several.
 */
static int write_tensor(struct put *p, const struct ck_span *span, uint64_t at,
			uint64_t n, struct ck_err *err)
{
	uint64_t from = at, to = at + n;

	if (p->was &&
	    !ck_ckpt_is_partly_written(p->v->ck, span->ref, n, span->off)) {
		while (from < to && p->was[from] == p->buf[from])
			from++;
		while (to > from && p->was[to - 1] == p->buf[to - 1])
			to--;
	}
	return to == from ? 0 :
			    ck_ckpt_write(p->v->ck, p->e, span->ref,
					  p->buf + from, to - from,
					  span->off + (from - at), p->as, err);
}

/* Copies that are in it too come before what they are copies of. */
static bool has_turn(const struct put *p, const struct ck_span *span,
		     enum turn turn)
{
	bool copied = ck_ckpt_written_too(p->v->ck, span->ref) != CK_NONE;

	return turn == (copied ? WRITE_COPIED : WRITE_PLAIN);
}

static int nothing_there(const struct put *p, uint64_t off, struct ck_err *err)
{
	char name[CK_VIEW_NAME];

	p->v->ops->label(p->v, p->i, name);
	return ck_fail(err, EIO, "%s/%s: nothing is at %llu", p->v->ops->name,
		       name, (unsigned long long)off);
}

/* One pass over the spans: looks at all, or writes some. */
static int pass(struct put *p, enum turn turn, uint64_t len, uint64_t off,
		struct ck_err *err)
{
	int ret = 0;

	for (uint64_t at = 0, n; !ret && at < len; at += n) {
		struct ck_span span;

		p->v->ops->at(p->v, p->i, off + at, &span);
		n = CK_MIN(len - at, span.len);
		if (!n)
			return nothing_there(p, off + at, err);
		if (span.kind == CK_SPAN_TENSOR && turn == CHECK)
			ret = check_tensor(p, &span, at, n, len, err);
		else if (span.kind == CK_SPAN_TENSOR)
			ret = has_turn(p, &span, turn) ?
				      write_tensor(p, &span, at, n, err) :
				      0;
		else if (span.kind == CK_SPAN_MADE && turn == CHECK)
			ret = check_made(p->v, p->i, &span, p->buf + at, n,
					 off + at, err);
		else if (span.kind != CK_SPAN_MADE)
			ret = ck_view_not_written(p->v, p->i, err);
	}
	return ret;
}

int ck_view_not_written(const struct ck_view *v, uint32_t i, struct ck_err *err)
{
	char name[CK_VIEW_NAME];

	v->ops->label(v, i, name);
	return ck_fail(err, EROFS, "%s/%s is not written to", v->ops->name,
		       name);
}

int ck_view_check(const struct ck_view *v, uint32_t i, const void *buf,
		  uint64_t len, uint64_t off, struct ck_err *err)
{
	struct ck_vfile file;
	struct put p = { .v = v, .i = i, .file = &file, .buf = buf };

	if (!v->ops->file(v, i, &file))
		return ck_fail(err, ESTALE, "a file that its view left out");
	return pass(&p, CHECK, len, off, err);
}

static int past_the_end(const struct put *p, struct ck_err *err)
{
	char name[CK_VIEW_NAME];

	p->v->ops->label(p->v, p->i, name);
	return ck_fail(err, EFBIG,
		       "%s/%s: has %llu bytes, and none is written past them",
		       p->v->ops->name, name,
		       (unsigned long long)p->file->size);
}

int ck_view_write(const struct ck_view *v, uint32_t i, struct ck_edit *e,
		  const void *buf, uint64_t len, uint64_t off,
		  const struct ck_written_as *as, struct ck_err *err)
{
	struct ck_vfile file;
	struct put p = {
		.v = v, .i = i, .file = &file, .e = e, .buf = buf, .as = as
	};
	int ret;

	if (!v->ops->file(v, i, &file))
		return ck_fail(err, ESTALE, "a file that its view left out");
	if (!ck_range_ok(off, len, file.size))
		return past_the_end(&p, err);
	ret = pass(&p, CHECK, len, off, err);
	if (!ret)
		ret = pass(&p, WRITE_PLAIN, len, off, err);
	if (!ret)
		ret = pass(&p, WRITE_COPIED, len, off, err);
	free(p.was);
	return ret;
}

int ck_view_may_write(const struct ck_view *v, uint32_t i, struct ck_err *err)
{
	struct ck_vfile file;

	if (!v->ops->file(v, i, &file))
		return ck_fail(err, ESTALE, "a file that its view left out");
	if (v->ops->folders)
		return ck_fail(err, EROFS,
			       "%s/ is not written to: tensors/ and "
			       "model.safetensors are",
			       v->ops->name);
	if (file.tensor == CK_NONE) /* some of its tensors may be */
		return ck_ckpt_lock_writer(v->ck, err);
	return ck_ckpt_may_write(v->ck, file.tensor, err);
}
