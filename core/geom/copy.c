/* SPDX-License-Identifier: Apache-2.0 */
/*
 * copy.c - an n-dimensional copy in memory, in squares that fit the cache
 *
 * Of all axes, the two along which a square has its neighbours, there and here,
 * are the inner ones.
 */
#include "core/geom/cursor.h"

#include "core/base/check.h"

#include <string.h>

#define SQUARE 32
#define COPY(size)                                                            \
	static void copy_##size(unsigned char *dst, const unsigned char *src, \
				const struct ck_seg_axis *a,                  \
				const struct ck_seg_axis *b)                  \
	{                                                                     \
		for (uint64_t i = 0; i < a->n; i++)                           \
			for (uint64_t j = 0; j < b->n; j++)                   \
				memcpy(dst + (int64_t)i * a->dst +            \
					       (int64_t)j * b->dst,           \
				       src + (int64_t)i * a->src +            \
					       (int64_t)j * b->src,           \
				       size);                                 \
	}
COPY(1)
COPY(2)
COPY(4)
COPY(8)
COPY(16)

static void copy_any(unsigned char *dst, const unsigned char *src,
		     const struct ck_seg_axis *a, const struct ck_seg_axis *b,
		     uint64_t run)
{
	switch (run) {
	case 1:
		copy_1(dst, src, a, b);
		return;
	case 2:
		copy_2(dst, src, a, b);
		return;
	case 4:
		copy_4(dst, src, a, b);
		return;
	case 8:
		copy_8(dst, src, a, b);
		return;
	case 16:
		copy_16(dst, src, a, b);
		return;
	}
	for (uint64_t i = 0; i < a->n; i++)
		for (uint64_t j = 0; j < b->n; j++)
			memcpy(dst + (int64_t)i * a->dst + (int64_t)j * b->dst,
			       src + (int64_t)i * a->src + (int64_t)j * b->src,
			       run);
}

static void copy_squares(unsigned char *dst, const unsigned char *src,
			 const struct ck_seg_axis *a,
			 const struct ck_seg_axis *b, uint64_t run)
{
	for (uint64_t i = 0; i < a->n; i += SQUARE) {
		struct ck_seg_axis sa = *a;

		sa.n = CK_MIN(SQUARE, a->n - i);
		for (uint64_t j = 0; j < b->n; j += SQUARE) {
			struct ck_seg_axis sb = *b;

			sb.n = CK_MIN(SQUARE, b->n - j);
			copy_any(
				dst + (int64_t)i * a->dst + (int64_t)j * b->dst,
				src + (int64_t)i * a->src + (int64_t)j * b->src,
				&sa, &sb, run);
		}
	}
}

/* Moves to the end of @ax the axis with the shortest step. */
static void short_step_last(struct ck_seg_axis *ax, unsigned nr, bool in_dst)
{
	unsigned low = 0;
	struct ck_seg_axis last;

	for (unsigned i = 1; i < nr; i++)
		if (in_dst ? ck_stride_size(ax[i].dst) <
				     ck_stride_size(ax[low].dst) :
			     ck_stride_size(ax[i].src) <
				     ck_stride_size(ax[low].src))
			low = i;
	if (!nr)
		return;
	last = ax[nr - 1];
	ax[nr - 1] = ax[low];
	ax[low] = last;
}

/* Moves on along @ax, innermost last; false: it was the last place. */
static bool step(const struct ck_seg_axis *ax, unsigned nr, uint64_t *at,
		 uint64_t *src, uint64_t *dst)
{
	for (unsigned i = nr; i-- > 0;) {
		*src += (uint64_t)ax[i].src;
		*dst += (uint64_t)ax[i].dst;
		if (++at[i] < ax[i].n)
			return true;
		at[i] = 0;
		*src -= ax[i].n * (uint64_t)ax[i].src;
		*dst -= ax[i].n * (uint64_t)ax[i].dst;
	}
	return false;
}

void ck_copy_axes(const struct ck_seg_axis *axes, unsigned nr, uint64_t run,
		  unsigned char *dst, const unsigned char *src)
{
	struct ck_seg_axis ax[CK_COPY_AXES + 2];
	uint64_t at[CK_COPY_AXES] = { 0 }, s = 0, d = 0;

	memcpy(ax, axes, nr * sizeof(ax[0]));
	while (nr < 2)
		ax[nr++] = (struct ck_seg_axis){ 1, 0, 0 };
	short_step_last(ax, nr, true);
	short_step_last(ax, nr - 1, false);
	do
		copy_squares(dst + (int64_t)d, src + (int64_t)s, &ax[nr - 2],
			     &ax[nr - 1], run);
	while (step(ax, nr - 2, at, &s, &d));
}
