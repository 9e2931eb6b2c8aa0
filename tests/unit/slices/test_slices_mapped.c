/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/lib/slicekit.h"

#include "core/geom/dtype.h"
#include "core/slices/slices.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

TestSuite(slices_mapped, .init = slicekit_setup, .fini = slicekit_teardown);

#define NR 96 /* elements; 3 are stored */

static const struct ck_slice whole = { .whole = true, .nr = 0 };

static void open_of(struct slicekit *j, const char *dtype)
{
	char layout[512];

	snprintf(layout, sizeof(layout),
		 "{\"unshard_layout\": 1,"
		 " \"mesh\": {\"axes\": [{\"name\": \"tp\", \"size\": 2}]},"
		 " \"tensors\": [{\"name\": \"t\", \"dtype\": \"%s\","
		 " \"shape\": [%d], \"placement\": {\"tp\": {\"shard\": 0}}}],"
		 " \"write\": {}}",
		 dtype, NR);
	slicekit_open(j, dtype, layout);
}

/* A page is read, three elements are stored into it, and it comes back. */
static void store(const char *dtype, unsigned size)
{
	unsigned char page[NR * 16], back[NR * 16], three[3 * 16];
	uint64_t at = (NR / 2 - 1) * (uint64_t)size, len = NR * size;
	struct ck_err err = { 0 };
	struct slicekit j;

	open_of(&j, dtype);
	memset(three, 0, sizeof(three));
	cr_assert_eq(ck_slice_read(j.sl, whole, page, len, 0, true, &err), 0,
		     "%s: %s", dtype, err.msg);
	memcpy(page + at, three, 3 * size);
	/* another view's write, while the page is dirty */
	memset(back, 1, size);
	cr_assert_eq(ck_slice_write(j.sl, whole, back, size, 0, false, &err),
		     0);
	cr_assert_eq(ck_slice_write(j.sl, whole, page, len, 0, true, &err), 0);
	cr_assert_eq(ck_slice_written(j.sl, whole), 4 * size, "%s", dtype);
	cr_assert_eq(
		ck_slice_read(j.sl, whole, back, 3 * size, at, false, &err), 0,
		"%s: %s", dtype, err.msg);
	cr_assert_arr_eq(back, three, 3 * size);
	cr_assert_eq(ck_slice_read(j.sl, whole, back, 1, 0, false, &err), 0);
	cr_assert_eq(back[0], 1, "%s: lost what another wrote", dtype);
	cr_assert_eq(ck_slice_read(j.sl, whole, back, 1, at - 1, false, &err),
		     -EIO);
	/* read again, it shows what was written among what was not */
	cr_assert_eq(ck_slice_read(j.sl, whole, back, len, 0, true, &err), 0);
	cr_assert_arr_eq(back + size, page + size, len - size);
	slicekit_close(&j);
}

Test(slices_mapped, only_what_was_stored_is_written)
{
	static const char *const names[] = { "float64", "float32",  "bfloat16",
					     "float16", "int64",    "int32",
					     "bool",	"complex64" };

	for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++)
		store(names[i],
		      ck_dtype_info(
			      ck_dtype_by_name(names[i], strlen(names[i])))
			      ->size);
}

Test(slices_mapped, types_without_a_value_to_spare_are_refused)
{
	static const char *const names[] = { "uint8", "int8", "int16" };
	struct ck_err err = { 0 };
	unsigned char page[NR * 2];

	for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++) {
		struct slicekit j;

		open_of(&j, names[i]);
		cr_assert_eq(
			ck_slice_read(j.sl, whole, page, NR, 0, true, &err),
			-EIO);
		cr_assert(strstr(err.msg, "cannot be through a map"), "%s",
			  err.msg);
		memset(page, 7, sizeof(page));
		cr_assert_eq(
			ck_slice_write(j.sl, whole, page, NR, 0, false, &err),
			0);
		cr_assert_eq(
			ck_slice_read(j.sl, whole, page, NR, 0, true, &err), 0);
		slicekit_close(&j);
	}
}

Test(slices_mapped, a_part_of_an_element_is_not_shown)
{
	unsigned char page[NR * 4] = { 0 };
	struct ck_err err = { 0 };
	struct slicekit j;

	open_of(&j, "float32");
	cr_assert_eq(ck_slice_write(j.sl, whole, page, 3, 40, false, &err), 0);
	cr_assert_eq(
		ck_slice_read(j.sl, whole, page, sizeof(page), 0, true, &err),
		-EIO);
	cr_assert_eq(ck_slice_write(j.sl, whole, page, 1, 43, false, &err), 0);
	cr_assert_eq(
		ck_slice_read(j.sl, whole, page, sizeof(page), 0, true, &err),
		0);
	slicekit_close(&j);
}
