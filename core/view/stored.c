/* SPDX-License-Identifier: Apache-2.0 */
/*
 * stored.c - files that are nothing but a stored one
 *
 * As hf/ of a model that was saved as it shows it, and tensors/ where each has a
 * file.  Tensors lie where the file has them, as they are; what the view makes
 * is what the stored file has there.
 */
#include "core/view/view.h"

#include "core/base/auto.h"
#include "core/base/check.h"
#include "core/base/whole.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define AT_ONCE (UINT64_C(64) << 10)

/* Where bytes of the view's own are, and what they are compared with. */
struct made {
	const struct ck_view *v;
	uint32_t nr;
	uint64_t size; /* of the file */
};

/* How far the piece at @off goes; 0: it does not lie there in @src, or the first. */
static uint64_t place(const struct made *m, uint64_t off, struct ck_span *span,
		      uint32_t *src)
{
	const struct ck_view *v = m->v;
	struct ck_raw_extent at;
	uint64_t n;

	*span = (struct ck_span){ 0 };
	v->ops->at(v, m->nr, off, span);
	n = CK_MIN(span->len, m->size - off);
	if (span->kind == CK_SPAN_MADE)
		return n;
	if (!n || span->kind != CK_SPAN_TENSOR ||
	    !ck_ckpt_raw_extent(v->ck, span->ref, span->off, n, &at) ||
	    at.off != off || v->img->srcs[at.src].id.size != m->size ||
	    (*src != CK_NONE && *src != at.src))
		return 0;
	*src = at.src;
	return CK_MIN(n, at.len);
}

static bool is_alike(const struct made *m, const struct ck_span *span,
		     uint64_t off, uint64_t len, int fd)
{
	ck_auto_free char *own = malloc(AT_ONCE), *theirs = malloc(AT_ONCE);

	for (uint64_t n, i = 0; i < len; i += n) {
		n = CK_MIN(AT_ONCE, len - i);
		if (!own || !theirs ||
		    m->v->ops->made(m->v, m->nr, own, n, span->off + i, NULL) ||
		    ck_pread_whole(fd, theirs, n, off + i) ||
		    memcmp(own, theirs, n))
			return false;
	}
	return true;
}

static bool are_alike(const struct made *m, uint32_t src, int fd)
{
	struct ck_span span;
	uint64_t n;

	for (uint64_t off = 0; off < m->size; off += n) {
		n = place(m, off, &span, &src);
		if (!n || (span.kind == CK_SPAN_MADE &&
			   !is_alike(m, &span, off, n, fd)))
			return false;
	}
	return true;
}

uint32_t ck_view_stored(const struct ck_view *v, uint32_t i)
{
	struct made m = { .v = v, .nr = i };
	ck_auto_fd int fd = -1, again = -1;
	uint32_t src = CK_NONE;
	struct ck_vfile file;
	struct ck_span span;
	uint64_t n;

	if (!v->ops->file(v, i, &file) || file.like)
		return CK_NONE;
	m.size = file.size;
	for (uint64_t off = 0; off < m.size; off += n) {
		n = place(&m, off, &span, &src);
		if (!n)
			return CK_NONE;
	}
	if (src == CK_NONE || ck_ckpt_open_src(v->ck, src, &fd) ||
	    !are_alike(&m, src, fd) || ck_ckpt_open_src(v->ck, src, &again))
		return CK_NONE;
	return src;
}
