/* SPDX-License-Identifier: Apache-2.0 */
/* tensor_offsets.c - a table of a file's tensors, made from its spans */
#include "fs/cache/tensor_offsets.h"

#include "core/base/search.h"

#include <stdlib.h>

static int by_key(const void *a, const void *b)
{
	const struct fs_tensor_offset *x = a, *y = b;

	if (x->key != y->key)
		return x->key < y->key ? -1 : 1;
	return (x->tensor > y->tensor) - (x->tensor < y->tensor);
}

static void add(struct fs_tensor_offsets *p, const struct ck_view *v,
		const struct ck_span *span, uint64_t off)
{
	struct fs_tensor_offset *at = ck_vec_push(&p->v);

	p->unclear |= !at || span->off;
	if (at)
		*at = (struct fs_tensor_offset){
			ck_ckpt_bytes_key(v->ck, span->ref), span->ref, off
		};
}

void fs_tensor_offsets_make(struct fs_tensor_offsets *p,
			    const struct ck_view *v, uint32_t nr)
{
	struct ck_vfile file = { .size = 0 };
	struct ck_span span;

	if (p->made)
		return;
	p->made = true;
	v->ops->file(v, nr, &file);
	ck_ckpt_count_span_walk(v->ck);
	for (uint64_t off = 0; off < file.size; off += span.len) {
		v->ops->at(v, nr, off, &span);
		if (!span.len) {
			p->unclear = true;
			break;
		}
		if (span.kind == CK_SPAN_TENSOR)
			add(p, v, &span, off);
		else
			p->unclear |= span.kind != CK_SPAN_MADE;
	}
	if (p->v.nr)
		qsort(p->v.v, p->v.nr, sizeof(*p->v.v), by_key);
}

void fs_tensor_offsets_free(struct fs_tensor_offsets *p)
{
	free(p->v.v);
}

const struct fs_tensor_offset *fs_tensor_offsets_find(
	const struct fs_tensor_offsets *p, uint32_t key)
{
	size_t at = CK_FIRST(i, 0, p->v.nr, p->v.v[i].key >= key);

	return at < p->v.nr && p->v.v[at].key == key ? &p->v.v[at] : NULL;
}

const struct fs_tensor_offset *fs_tensor_offsets_next(
	const struct fs_tensor_offsets *p, const struct fs_tensor_offset *at)
{
	const struct fs_tensor_offset *next = at + 1;

	return next < p->v.v + p->v.nr && next->key == at->key ? next : NULL;
}
