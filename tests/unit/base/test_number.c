/* SPDX-License-Identifier: Apache-2.0 */
#include "core/base/number.h"

#include <criterion/criterion.h>
#include <string.h>

Test(number, as_many_as_are_digits)
{
	static const struct {
		const char *text;
		size_t digits;
		uint64_t number;
	} cases[] = {
		{ "", 0, 0 },
		{ "x7", 0, 0 },
		{ "-1", 0, 0 },
		{ "007x", 3, 7 },
		{ "18446744073709551615", 20, UINT64_MAX },
		{ "18446744073709551616.", 20, UINT64_MAX },
		{ "99999999999999999999999x", 23, UINT64_MAX },
	};
	uint64_t n;

	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		cr_expect_eq(ck_digits(cases[i].text, SIZE_MAX, &n),
			     cases[i].digits, "%s", cases[i].text);
		cr_expect_eq(n, cases[i].number, "%s", cases[i].text);
	}
	cr_expect(ck_digits("1234", 2, &n) == 2 && n == 12);
}

Test(number, all_of_a_text)
{
	uint64_t n;

	cr_expect(ck_decimal("12", 2, 12, &n) && n == 12);
	cr_expect(!ck_decimal("13", 2, 12, &n));
	cr_expect(!ck_decimal("1x", 2, 12, &n));
	cr_expect(!ck_decimal("", 0, 12, &n));
}

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
