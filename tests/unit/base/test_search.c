/* SPDX-License-Identifier: Apache-2.0 */
#include "core/base/search.h"

#include <criterion/criterion.h>
#include <stdint.h>

/* Against looking at each in turn, for all lengths and places up to 9. */
Test(search, first_that_holds)
{
	for (unsigned nr = 0; nr < 10; nr++)
		for (unsigned from = 0; from <= nr; from++)
			for (unsigned at = from; at <= nr; at++)
				cr_expect_eq(CK_FIRST(i, from, nr, i >= at), at,
					     "[%u, %u)", from, nr);
}

Test(search, nothing_to_look_at)
{
	cr_expect_eq(CK_FIRST(i, 1, 0u, i > 5), 1);
	cr_expect_eq(CK_FIRST(i, 3, 3u, i > 5), 3);
}

Test(search, last_that_begins_there_or_before)
{
	static const uint64_t off[] = { 0, 10, 10, 30 };
	static const struct {
		uint64_t at;
		size_t want;
	} t[] = {
		{ 0, 0 }, { 9, 0 }, { 10, 2 }, { 29, 2 }, { 30, 3 }, { 99, 3 }
	};
	const size_t nr = sizeof(off) / sizeof(*off);

	for (size_t k = 0; k < sizeof(t) / sizeof(*t); k++)
		cr_expect_eq(CK_LAST(i, 0, nr, off[i] <= t[k].at), t[k].want,
			     "%zu", k);
}

/* The ends do not overflow where they are far apart. */
Test(search, whole_range)
{
	const uint64_t far = UINT64_MAX - 7;

	cr_expect_eq(CK_FIRST(i, 1, UINT64_MAX, i >= far), far);
}
