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
#include <string.h>

#define PIECE 4096

/* What goes into file @i of @v, from its byte @off on. */
struct into {
	const struct ck_view *v;
	uint32_t i;
	uint64_t off;
	struct ck_wplan *p;
};

static int given(const struct into *to, unsigned char *buf, uint64_t len,
		 uint64_t at, struct ck_err *err)
{
	if (!to->p->buf)
		return to->p->get(to->p->ctx, buf, len, to->off + at, err);
	memcpy(buf, to->p->buf + at, len);
	return 0;
}

static int made_differs(const struct into *to, uint64_t off, struct ck_err *err)
{
	char name[CK_VIEW_NAME];

	to->v->ops->label(to->v, to->i, name);
	return ck_fail(err, EPERM,
		       "%s/%s: byte %llu is not a tensor's; it is made from "
		       "the checkpoint and cannot be changed",
		       to->v->ops->name, name, (unsigned long long)off);
}

/* Whether @len bytes that the view makes are those that are to be written. */
static int check_made(const struct into *to, const struct ck_span *span,
		      uint64_t len, uint64_t at, struct ck_err *err)
{
	unsigned char made[PIECE], now[PIECE];

	for (uint64_t k = 0; k < len; k += PIECE) {
		uint64_t n = CK_MIN(PIECE, len - k);
		int ret = to->v->ops->made(to->v, to->i, made, n, span->off + k,
					   err);

		if (!ret)
			ret = given(to, now, n, at + k, err);
		if (ret)
			return ret;
		if (memcmp(made, now, n) != 0)
			return made_differs(to, to->off + at + k, err);
	}
	return 0;
}

static int nothing_there(const struct into *to, uint64_t off,
			 struct ck_err *err)
{
	char name[CK_VIEW_NAME];

	to->v->ops->label(to->v, to->i, name);
	return ck_fail(err, EIO, "%s/%s: nothing is at %llu", to->v->ops->name,
		       name, (unsigned long long)off);
}

/* -EROFS with the line that says so. */
static int not_written(const struct ck_view *v, uint32_t i, struct ck_err *err)
{
	char name[CK_VIEW_NAME];

	v->ops->label(v, i, name);
	return ck_fail(err, EROFS, "%s/%s is not written to", v->ops->name,
		       name);
}

static int past_the_end(const struct into *to, uint64_t size,
			struct ck_err *err)
{
	char name[CK_VIEW_NAME];

	to->v->ops->label(to->v, to->i, name);
	return ck_fail(err, EFBIG,
		       "%s/%s: has %llu bytes, and none is written past them",
		       to->v->ops->name, name, (unsigned long long)size);
}

/* THE walk over the spans of what is written. */
static int walk(const struct into *to, uint64_t len, struct ck_err *err)
{
	int ret = 0;

	ck_ckpt_count_span_walk(to->v->ck);
	for (uint64_t at = 0, n; !ret && at < len; at += n) {
		struct ck_span span;

		to->v->ops->at(to->v, to->i, to->off + at, &span);
		n = CK_MIN(len - at, span.len);
		if (!n)
			return nothing_there(to, to->off + at, err);
		if (span.kind == CK_SPAN_TENSOR)
			ret = ck_wplan_add(to->p, span.ref, span.off, n, at,
					   err);
		else if (span.kind == CK_SPAN_MADE)
			ret = check_made(to, &span, n, at, err);
		else
			ret = not_written(to->v, to->i, err);
	}
	return ret;
}

int ck_view_plan(const struct ck_view *v, uint32_t i, struct ck_wplan *p,
		 uint64_t len, uint64_t off, struct ck_err *err)
{
	const struct into to = { .v = v, .i = i, .off = off, .p = p };
	struct ck_vfile file;
	int ret;

	p->ck = v->ck;
	if (!v->ops->file(v, i, &file))
		return ck_fail(err, ESTALE, "a file that its view left out");
	p->several = file.tensor == CK_NONE;
	if (!ck_range_ok(off, len, file.size))
		return past_the_end(&to, file.size, err);
	ret = walk(&to, len, err);
	ck_wplan_made(p);
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

bool ck_view_untouched(const struct ck_view *v, uint32_t i)
{
	struct ck_vfile file;

	return v->ops->file(v, i, &file) &&
	       ck_ckpt_untouched(v->ck, file.tensor);
}
