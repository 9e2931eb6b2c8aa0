/* SPDX-License-Identifier: Apache-2.0 */
/* Numbers that are written are read back by the machine of core/parse. */
#include "core/emit/pickle_out.h"
#include "core/parse/pickle.h"

#include <criterion/criterion.h>
#include <math.h>
#include <string.h>

static struct ck_pickle *read_back(const struct ck_str *s)
{
	struct ck_pickle *p = NULL;
	struct ck_err err;

	cr_assert_eq(ck_pickle_parse(&p, s->v, s->len, NULL, NULL, &err), 0,
		     "%s", err.msg);
	return p;
}

Test(pickle_out, integers)
{
	static const int64_t values[] = {
		0,
		255,
		256,
		65535,
		65536,
		INT32_MAX,
		1LL << 31,
		(1LL << 62) - 1,
		1LL << 62,
		INT64_MAX,
		-1,
		-256,
		-(1LL << 31),
		INT64_MIN,
	};

	for (size_t i = 0; i < sizeof(values) / sizeof(values[0]); i++) {
		struct ck_str s = { 0 };
		struct ck_pickle *p;
		int64_t got = ~values[i];

		ck_po_begin(&s);
		ck_po_signed(&s, values[i]);
		ck_po_end(&s);
		p = read_back(&s);
		cr_expect(ck_pv_int(p, ck_pickle_root(p), &got));
		cr_expect_eq(got, values[i], "%lld", (long long)values[i]);
		ck_pickle_free(p);
		ck_str_free(&s);
	}
}

Test(pickle_out, floats)
{
	static const double values[] = {
		0.0, -0.0, 1.5, -3.25e-310, 1e308, INFINITY, -INFINITY, NAN,
	};

	for (size_t i = 0; i < sizeof(values) / sizeof(values[0]); i++) {
		struct ck_str s = { 0 };
		struct ck_pickle *p;
		double got = 42;

		ck_po_begin(&s);
		ck_po_float(&s, values[i]);
		ck_po_end(&s);
		p = read_back(&s);
		cr_expect(ck_pv_float(p, ck_pickle_root(p), &got));
		cr_expect_eq(memcmp(&got, &values[i], 8), 0, "%g", values[i]);
		ck_pickle_free(p);
		ck_str_free(&s);
	}
}
