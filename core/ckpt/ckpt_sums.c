/* SPDX-License-Identifier: Apache-2.0 */
/* ckpt_sums.c - the part of the facade that knows what containers say of bytes */
#include "core/ckpt/ckpt_priv.h"

#include "core/base/auto.h"
#include "core/base/search.h"
#include "core/base/vec.h"
#include "core/write/sums.h"

#include <errno.h>
#include <stdlib.h>

struct archive {
	uint64_t off, len;
	uint32_t src;
};

struct archives {
	CK_VEC(struct archive) v;
};

static int by_place(const void *a, const void *b)
{
	const struct archive *x = a, *y = b;

	return ck_order2(x->src, y->src, x->off, y->off);
}

static int add_all(struct archives *a, const struct ck_catalog *img,
		   const struct ck_tensor *t)
{
	for (uint32_t c = t->first; c < t->first + t->nr_all; c++) {
		struct archive one = { .src = img->chunks[c].src };
		struct archive *at;

		if (img->srcs[one.src].kind != CK_SRC_FILE)
			continue;
		ck_chunk_archive(img, t, c, &one.off, &one.len);
		if (a->v.nr && !by_place(&a->v.v[a->v.nr - 1], &one))
			continue;
		at = ck_vec_push(&a->v);
		if (!at)
			return -ENOMEM;
		*at = one;
	}
	return 0;
}

int ck_ckpt_sums(struct ck_ckpt *ck, ck_ckpt_sum_fn each, void *ctx,
		 struct ck_err *err)
{
	const struct ck_catalog *img = &ck->img;
	struct archives a = { 0 };
	int ret = 0;

	for (uint32_t i = 0; !ret && i < img->nr_tensors; i++)
		ret = add_all(&a, img, &img->tensors[i]);
	if (ret)
		ck_no_memory(err);
	if (a.v.nr)
		qsort(a.v.v, a.v.nr, sizeof(*a.v.v), by_place);
	for (size_t i = 0; !ret && i < a.v.nr; i++) {
		const struct archive *at = &a.v.v[i];
		struct ck_err why;

		if (i && !by_place(at - 1, at))
			continue;
		why = (struct ck_err){ 0 };
		ret = ck_sums_list(ck->reader, at->src, at->off, at->len, each,
				   ctx, &why);
		/* no sums, or none that make sense: the reader read it */
		if (ret == -ENOMEM)
			ck_no_memory(err);
		else
			ret = 0;
	}
	free(a.v.v);
	return ret;
}
