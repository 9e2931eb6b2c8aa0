/* SPDX-License-Identifier: Apache-2.0 */
/*
 * write.c - bytes into a view's file: its tensors take them, its own are fixed
 *
 * Headers are made from the image, so a program that writes a whole file anew
 * writes them as they are: that is allowed, and anything else is not.
 */
#include "core/view/view.h"

#include "core/base/check.h"

#include <errno.h>
#include <string.h>

#define PIECE 4096

static int made_differs(const struct ck_view *v, const struct ck_vfile *file,
			uint64_t off, struct ck_err *err)
{
	return ck_fail(err, EPERM,
		       "%s/%s: byte %llu is not a tensor's; it is made from "
		       "the checkpoint and cannot be changed",
		       v->ops->name, file->name, (unsigned long long)off);
}

/* Whether @len bytes that the view makes are those in @buf. */
static int check_made(const struct ck_view *v, uint32_t i,
		      const struct ck_vfile *file, const struct ck_span *span,
		      const unsigned char *buf, uint64_t len, uint64_t off,
		      struct ck_err *err)
{
	unsigned char made[PIECE];

	for (uint64_t at = 0; at < len; at += PIECE) {
		uint64_t n = CK_MIN(PIECE, len - at);
		int ret = v->ops->made(v, i, made, n, span->off + at, err);

		if (ret)
			return ret;
		if (memcmp(made, buf + at, n) != 0)
			return made_differs(v, file, off + at, err);
	}
	return 0;
}

/* One pass over the spans: checks those that are made, or writes the others. */
static int pass(const struct ck_view *v, uint32_t i,
		const struct ck_vfile *file, struct ck_edit *e,
		const unsigned char *buf, uint64_t len, uint64_t off,
		struct ck_err *err)
{
	while (len) {
		struct ck_span span;
		uint64_t n;
		int ret = 0;

		v->ops->at(v, i, off, &span);
		n = CK_MIN(len, span.len);
		if (!n)
			return ck_fail(err, EIO, "%s/%s: nothing is at %llu",
				       v->ops->name, file->name,
				       (unsigned long long)off);
		if (span.kind == CK_SPAN_MADE && !e)
			ret = check_made(v, i, file, &span, buf, n, off, err);
		else if (span.kind == CK_SPAN_TENSOR)
			ret = e ? ck_ckpt_write(v->ck, e, span.ref, buf, n,
						span.off, err) :
				  ck_ckpt_may_write(v->ck, span.ref, err);
		else if (span.kind != CK_SPAN_MADE)
			ret = ck_fail(err, EROFS, "%s/%s is not written to",
				      v->ops->name, file->name);
		if (ret)
			return ret;
		buf += n;
		off += n;
		len -= n;
	}
	return 0;
}

int ck_view_check(const struct ck_view *v, uint32_t i, const void *buf,
		  uint64_t len, uint64_t off, struct ck_err *err)
{
	struct ck_vfile file;

	if (!v->ops->file(v, i, &file))
		return ck_fail(err, ESTALE, "a file that its view left out");
	return pass(v, i, &file, NULL, buf, len, off, err);
}

int ck_view_write(const struct ck_view *v, uint32_t i, struct ck_edit *e,
		  const void *buf, uint64_t len, uint64_t off,
		  struct ck_err *err)
{
	struct ck_vfile file;
	int ret;

	if (!v->ops->file(v, i, &file))
		return ck_fail(err, ESTALE, "a file that its view left out");
	if (!ck_range_ok(off, len, file.size))
		return ck_fail(err, EFBIG,
			       "%s/%s: has %llu bytes, and none is written "
			       "past them",
			       v->ops->name, file.name,
			       (unsigned long long)file.size);
	ret = pass(v, i, &file, NULL, buf, len, off, err);
	return ret ? ret : pass(v, i, &file, e, buf, len, off, err);
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
		return ck_ckpt_hold(v->ck, err);
	return ck_ckpt_may_write(v->ck, file.tensor, err);
}
