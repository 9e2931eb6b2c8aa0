/* SPDX-License-Identifier: Apache-2.0 */
/* tensor_offsets.c - a table of a file's tensors, made from its spans */
#include "fs/cache/tensor_offsets.h"

#include "core/base/search.h"

#include <stdlib.h>

static int by_tensor(const void *a, const void *b)
{
	const struct fs_tensor_offset *x = a, *y = b;

	return (x->tensor > y->tensor) - (x->tensor < y->tensor);
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
	for (uint64_t off = 0; off < file.size; off += span.len) {
		struct fs_tensor_offset *at;

		v->ops->at(v, nr, off, &span);
		if (span.kind == CK_SPAN_MADE && span.len)
			continue;
		at = span.kind == CK_SPAN_TENSOR && span.len && !span.off ?
			     ck_vec_push(&p->v) :
			     NULL;
		if (!at) {
			p->unclear = true;
			return;
		}
		*at = (struct fs_tensor_offset){ span.ref, off };
	}
	if (p->v.nr)
		qsort(p->v.v, p->v.nr, sizeof(*p->v.v), by_tensor);
}

void fs_tensor_offsets_free(struct fs_tensor_offsets *p)
{
	free(p->v.v);
}

bool fs_tensor_offsets_find(const struct fs_tensor_offsets *p, uint32_t tensor,
			    uint64_t *off)
{
	size_t at = CK_FIRST(i, 0, p->v.nr, p->v.v[i].tensor >= tensor);

	if (at == p->v.nr || p->v.v[at].tensor != tensor)
		return false;
	*off = p->v.v[at].off;
	return true;
}
