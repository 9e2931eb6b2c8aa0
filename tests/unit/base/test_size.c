/* SPDX-License-Identifier: Apache-2.0 */
#include "core/base/size.h"

#include <criterion/criterion.h>

Test(size, units_are_powers_of_1024)
{
	uint64_t n;

	cr_assert(ck_size_parse("0", &n) && n == 0);
	cr_assert(ck_size_parse("17", &n) && n == 17);
	cr_assert(ck_size_parse("3k", &n) && n == 3072);
	cr_assert(ck_size_parse("256M", &n) && n == UINT64_C(256) << 20);
	cr_assert(ck_size_parse("2G", &n) && n == UINT64_C(2) << 30);
	cr_assert(ck_size_parse("5t", &n) && n == UINT64_C(5) << 40);
}

Test(size, refuses_what_is_no_size)
{
	const char *const bad[] = {
		"",	   "M",	  "-1",	  "1MB", "1 M",
		" 1",	   "0x1", "1.5G", "1m ", "99999999999999999999",
		"9000000T"
	};
	uint64_t n = 7;

	for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++)
		cr_expect(!ck_size_parse(bad[i], &n) && n == 7, "\"%s\"",
			  bad[i]);
}
