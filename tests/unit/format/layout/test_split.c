/* SPDX-License-Identifier: Apache-2.0 */
/* Placements against a reference that hands out indices one by one. */
#include "core/base/check.h"
#include "core/format/layout/split.h"
#include "core/format/layout/text.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Sizes by dealing: who gets each of @extent elements. */
static void deal(const struct ck_lay_split *s, uint64_t extent, uint64_t *sizes)
{
	uint64_t each = 0;

	memset(sizes, 0, s->nr * sizeof(*sizes));
	while (each * s->nr < extent)
		each++; /* the smallest that is enough for all */
	for (uint64_t i = 0; i < extent; i++) {
		uint64_t who = i % s->nr; /* balanced, even: in turn */

		if (s->how == CK_LAY_CEIL)
			who = i / each;
		sizes[who]++;
	}
	if (s->how == CK_LAY_GIVEN)
		memcpy(sizes, s->given, s->nr * sizeof(*sizes));
}

Test(layout_split, parts_are_as_dealt)
{
	for (int how = CK_LAY_EVEN; how <= CK_LAY_BALANCED; how++)
		for (uint64_t nr = 1; nr < 9; nr++)
			for (uint64_t extent = 0; extent < 40; extent++) {
				const struct ck_lay_split s = {
					.how = (enum ck_lay_sizes)how, .nr = nr
				};
				uint64_t sizes[9], at = 0, start, len;
				struct ck_err err;

				deal(&s, extent, sizes);
				for (uint64_t i = 0; i < nr; i++) {
					int ret =
						ck_lay_part(&s, extent, i,
							    &start, &len, &err);

					if (how == CK_LAY_EVEN && extent % nr) {
						cr_expect_eq(ret, -EINVAL);
						continue;
					}
					cr_assert_eq(ret, 0);
					cr_expect_eq(start, at);
					cr_expect_eq(len, sizes[i]);
					at += sizes[i];
				}
			}
}

Test(layout_split, given_sizes_must_add_up)
{
	const uint64_t given[] = { 3, 0, 4 }, huge[] = { CK_SIZE_MAX, 9 };
	struct ck_lay_split s = { CK_LAY_GIVEN, 3, given };
	uint64_t start, len;
	struct ck_err err;

	cr_assert_eq(ck_lay_part(&s, 7, 2, &start, &len, &err), 0);
	cr_expect(start == 3 && len == 4);
	cr_expect_eq(ck_lay_part(&s, 8, 0, &start, &len, &err), -EINVAL);
	cr_expect(strstr(err.msg, "make 7"), "%s", err.msg);
	s = (struct ck_lay_split){ CK_LAY_GIVEN, 2, huge };
	cr_expect_eq(ck_lay_part(&s, 8, 0, &start, &len, &err), -EINVAL);
}

/* Every element of [a, b] lies in the box of exactly one mesh position. */
static void check_tiling(const struct ck_lay_step *steps, unsigned nr,
			 const uint64_t dims[2], uint64_t n0, uint64_t n1)
{
	unsigned char seen[24 * 24] = { 0 };
	struct ck_err err = { 0 };

	for (uint64_t pos = 0; pos < n0 * n1; pos++) {
		const uint64_t at[2] = { pos / n1, pos % n1 };
		struct ck_lay_place p;
		uint64_t order = 0;

		cr_assert_eq(ck_lay_place(steps, nr, dims, 2, at, &p, &err), 0,
			     "%s", err.msg);
		for (uint64_t i = 0; i < p.len[0]; i++)
			for (uint64_t k = 0; k < p.len[1]; k++, order++)
				if (!p.flat || (order >= p.lo && order < p.hi))
					seen[(p.start[0] + i) * dims[1] +
					     p.start[1] + k]++;
	}
	for (uint64_t i = 0; i < dims[0] * dims[1]; i++)
		cr_assert_eq(seen[i], 1, "element %lu: %u times",
			     (unsigned long)i, seen[i]);
}

Test(layout_split, two_axes_tile_a_matrix)
{
	srand(7);
	for (int n = 0; n < 3000; n++) {
		uint64_t dims[2] = { 1 + (uint64_t)rand() % 24,
				     1 + (uint64_t)rand() % 24 };
		uint64_t size[2] = { 1 + (uint64_t)rand() % 5,
				     1 + (uint64_t)rand() % 5 };
		struct ck_lay_step s[2];

		for (unsigned i = 0; i < 2; i++) {
			s[i] = (struct ck_lay_step){
				.axis = i,
				.axis_name = "ab",
				.dim = (unsigned)rand() % 2,
				.split = { rand() % 2 ? CK_LAY_CEIL :
							CK_LAY_BALANCED,
					   size[i], NULL },
			};
		}
		s[1].flat = rand() % 3 == 0;
		s[0].flat = s[1].flat && rand() % 2;
		if (rand() % 3 == 0 && !s[0].flat)
			s[0].padded = dims[s[0].dim] + (uint64_t)rand() % 9;
		if (rand() % 2) { /* the other axis cuts first */
			s[0].axis = 1;
			s[0].split.nr = size[1];
			s[1].axis = 0;
			s[1].split.nr = size[0];
		}
		check_tiling(s, 2, dims, size[0], size[1]);
	}
}

static const char *expand(const char *text, int want)
{
	static char result[128];
	const struct ck_lay_mesh mesh = { .axis = { { "pp", 4 }, { "tp", 8 } },
					  .nr = 2,
					  .nr_ranks = 32 };
	const uint64_t at[] = { 3, CK_LAY_FREE };
	const struct ck_lay_vars v = {
		.mesh = &mesh,
		.at = at,
		.rank = 29,
		.key = { "k.w", 3 },
		.cap = { { "12.up", 5 }, { "12", 2 }, { "up", 2 } },
		.nr_cap = 3
	};
	struct ck_str s = { 0 };
	struct ck_err err = { 0 };
	int ret = ck_lay_expand(text, &v, &s, NULL, &err);

	cr_expect_eq(ret, want, "%s: %s", text, err.msg);
	snprintf(result, sizeof(result), "%s", s.v ? s.v : "");
	ck_str_free(&s);
	return result;
}

Test(layout_text, sums_widths_and_captures)
{
	cr_expect_str_eq(expand("r{rank:05}.{pp}", 0), "r00029.3");
	cr_expect_str_eq(expand("l.{$1+16*pp}.{$2}", 0), "l.60.up");
	cr_expect_str_eq(expand("{rank/8}-{rank%8}-{7-2*3}", 0), "3-5-1");
	cr_expect_str_eq(expand("{{{key}}}", 0), "{k.w}");
	cr_expect_str_eq(expand("", 0), "");
	expand("{tp}", -EINVAL); /* nothing says it */
	expand("{2-pp}", -EINVAL);
	expand("{1/0}", -EINVAL);
	expand("{$2+1}", -EINVAL);
	expand("{$3}", -EINVAL);
	expand("{", -EINVAL);
	expand("}", -EINVAL);
	expand("{}", -EINVAL);
	expand("{rank:5}", -EINVAL);
	expand("{9223372036854775807+1}", -EINVAL);
	expand("{pp pp}", -EINVAL);
}
