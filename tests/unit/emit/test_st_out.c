/* SPDX-License-Identifier: Apache-2.0 */
/* What a header says of each dtype is what our own parser takes. */
#include "core/emit/st_out.h"

#include "core/geom/dtype.h"
#include "core/parse/safetensors.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

Test(st_out, every_dtype_is_read_as_it_was)
{
	const uint64_t shape[] = { 3, 4 };
	unsigned nr = 0;

	for (unsigned dt = 1; dt < CK_DT_NR; dt++) {
		uint64_t size = 12u * ck_dtype_info((enum ck_dtype)dt)->size;
		struct ck_str json = { 0 };
		struct ck_st_header h;
		struct ck_st_tensor t;
		struct ck_err err;

		if (ck_st_out_refuses((uint8_t)dt, 2, "w", 1))
			continue;
		nr++;
		ck_st_out_begin(&json, NULL, 0);
		ck_st_out_entry(&json, "w", 1, (uint8_t)dt, shape, 2, 0, size);
		ck_st_out_end(&json, CK_ST_OUT_ALL);
		cr_assert_eq(ck_st_header_parse(&h, json.v, json.len, &err), 0,
			     "%s", err.msg);
		cr_assert(ck_st_next(&h, &t));
		cr_expect(!t.why, "%s: %s", json.v, t.why);
		cr_expect(t.dtype == dt && t.rank == 2 && t.shape[0] == 3 &&
				  t.shape[1] == 4 && t.end - t.begin == size,
			  "%s", json.v);
		ck_st_header_free(&h);
		ck_str_free(&json);
	}
	cr_expect_eq(nr, 20, "%u dtypes", nr);
}

static void refused(uint8_t dtype, unsigned rank, const char *name,
		    const char *why)
{
	const char *got = ck_st_out_refuses(dtype, rank, name, strlen(name));

	cr_expect(got && strstr(got, why), "%s: %s", name, got ? got : "taken");
}

Test(st_out, what_it_cannot_hold)
{
	refused(CK_DT_C128, 1, "w", "no name for its dtype");
	refused(CK_DT_NONE, 1, "w", "no name for its dtype");
	refused(CK_DT_F6_E2M3, 1, "w", "no name for its dtype");
	refused(CK_DT_F4_E2M1FN_X2, 0, "w", "a scalar holds two");
	refused(CK_DT_F32, 1, "__metadata__", "reserves the name");
	refused(CK_DT_F32, 1, "w\xff", "not UTF-8");
	cr_expect(
		!ck_st_out_refuses(CK_DT_F4_E2M1FN_X2, 1, "__metadata__.", 13));
}
