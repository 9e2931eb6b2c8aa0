/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Ranges of files back to bytes of tensors, against the table of addresses
 * that random_tensor.c keeps.
 */
#include "core/base/check.h"
#include "core/geom/reverse_map.h"
#include "tests/unit/geom/random_tensor.h"

#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

struct found {
	struct rt *r;
	uint32_t chunk;
	unsigned char *elem; /* marked: some byte of it */
	uint64_t nr;
};

static void each(void *ctx, uint32_t chunk, uint64_t off, uint64_t len)
{
	struct found *f = ctx;

	cr_assert_eq(chunk, f->chunk);
	cr_assert_gt(len, 0);
	cr_assert(ck_range_ok(off, len, f->r->volume * f->r->elem));
	for (uint64_t e = off / f->r->elem; e * f->r->elem < off + len; e++)
		f->elem[e] = 1;
	f->nr += len;
}

/* Whether element @e of chunk @c has a byte in [lo, hi). */
static bool wanted(const struct rt *r, uint32_t c, uint64_t e, uint64_t lo,
		   uint64_t hi)
{
	uint64_t at = r->c[c].addr[e];

	return at != RT_NOWHERE && at < hi && lo < at + r->elem;
}

static bool is_whole(const struct rt *r, const struct found *f)
{
	for (uint64_t e = 0; e < r->volume; e++)
		if (f->elem[e] != (r->c[f->chunk].addr[e] != RT_NOWHERE))
			return false;
	return true;
}

static bool is_placed(const struct rt *r, uint32_t c)
{
	struct ck_place at;

	return ck_resolved_get(r->resolved, c, &at) == CK_RESOLVED_PLACED;
}

/* random_tensor.c says that each item is the bytes [5, 105). */
static void compare(const struct rt *r, const struct found *f, uint64_t lo,
		    uint64_t hi)
{
	bool deferred = r->c[f->chunk].deferred, item = lo < 105 && hi > 5;

	if (deferred && item && is_whole(r, f))
		return; /* its frame was touched, or where it is, not known */
	cr_assert(!deferred || is_placed(r, f->chunk) || (!item && !f->nr));
	if (deferred && !is_placed(r, f->chunk))
		return;
	for (uint64_t e = 0; e < r->volume; e++)
		cr_assert_eq(f->elem[e], wanted(r, f->chunk, e, lo, hi),
			     "seed %u chunk %u [%lu, %lu) element %lu: %d",
			     r->seed, f->chunk, lo, hi, e, f->elem[e]);
}

static void ask(struct rt *r, uint32_t c)
{
	uint64_t span = r->c[c].span + 1;
	uint64_t lo = rt_rnd(r, span), hi = lo + 1 + rt_rnd(r, span);
	struct found f = { .r = r, .chunk = c };
	struct ck_reverse_map sp = { .img = &r->img,
				     .resolved = r->resolved,
				     .src = r->img.chunks[c].src,
				     .lo = lo,
				     .hi = hi,
				     .ctx = &f,
				     .each = each };

	f.elem = calloc(r->volume + 1, 1);
	ck_reverse_map_tensor(&sp, 0);
	compare(r, &f, lo, hi);
	free(f.elem);
}

/* The same where bytes of a frame are nobody's: exactly the elements. */
static void ask_elements(struct rt *r, uint32_t c)
{
	uint64_t span = r->c[c].span + 1;
	uint64_t lo = rt_rnd(r, span), hi = lo + 1 + rt_rnd(r, span);
	struct found f = { .r = r, .chunk = c };
	struct ck_reverse_map sp = { .img = &r->img,
				     .resolved = r->resolved,
				     .src = r->img.chunks[c].src,
				     .lo = lo,
				     .hi = hi,
				     .elements = true,
				     .ctx = &f,
				     .each = each };

	if (r->c[c].deferred && !is_placed(r, c))
		return;
	f.elem = calloc(r->volume + 1, 1);
	ck_reverse_map_tensor(&sp, 0);
	for (uint64_t e = 0; e < r->volume; e++)
		cr_assert_eq(f.elem[e], wanted(r, c, e, lo, hi),
			     "seed %u chunk %u [%lu, %lu) element %lu: %d",
			     r->seed, c, lo, hi, e, f.elem[e]);
	free(f.elem);
}

/* Every byte of the source: each element is found, and no byte twice. */
static void ask_all(struct rt *r, uint32_t c)
{
	struct found f = { .r = r, .chunk = c };
	struct ck_reverse_map sp = { .img = &r->img,
				     .resolved = r->resolved,
				     .src = r->img.chunks[c].src,
				     .hi = UINT64_C(1) << 40,
				     .ctx = &f,
				     .each = each };
	uint64_t want = 0;

	f.elem = calloc(r->volume + 1, 1);
	ck_reverse_map_tensor(&sp, 0);
	cr_assert(is_whole(r, &f), "seed %u chunk %u", r->seed, c);
	for (uint64_t e = 0; e < r->volume; e++)
		want += f.elem[e] * r->elem;
	cr_assert_eq(f.nr, want);
	free(f.elem);
}

Test(reverse_map, random_tensors, .timeout = 120)
{
	struct rt *r = malloc(sizeof(*r));
	unsigned asked = 0;

	for (unsigned seed = 1; seed <= 400; seed++) {
		rt_make(r, seed);
		for (uint32_t c = 0; c < r->nr_all && c < 12; c++) {
			if (r->img.chunks[c].state != CK_OK)
				continue;
			ask_all(r, c);
			for (unsigned i = 0; i < 4; i++, asked++) {
				ask(r, c);
				ask_elements(r, c);
			}
		}
		rt_free(r);
	}
	free(r);
	cr_assert_gt(asked, 1000);
}
