/* SPDX-License-Identifier: Apache-2.0 */
/* OneFlow's meta files, and pickles without what they hold. */
#include "core/format/oneflow/meta.h"
#include "core/format/oneflow/thin.h"
#include "core/geom/dtype.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

static struct ck_err err;
static struct ck_of_meta meta;

static int parse(const char *text)
{
	return ck_of_meta_parse(&meta, text, strlen(text), &err);
}

Test(of_meta, as_oneflow_writes_it_and_as_protobuf_allows)
{
	static const char *const same[] = {
		"shape {\n  dim: 3\n  dim: 4\n}\ndata_type: kFloat\n",
		"data_type: 2, shape: { dim: [3, 4] };",
		"# hand-made\nshape{dim:3 dim:4}data_type:kFloat",
	};

	for (size_t i = 0; i < sizeof(same) / sizeof(*same); i++) {
		cr_assert_eq(parse(same[i]), 0, "%s: %s", same[i], err.msg);
		cr_expect(meta.rank == 2 && meta.shape[0] == 3 &&
			  meta.shape[1] == 4);
		cr_expect_eq(ck_of_dtype(meta.type), CK_DT_F32);
	}
	cr_assert_eq(parse("shape {\n}\ndata_type: kBFloat16\n"), 0);
	cr_expect(meta.rank == 0 && meta.type == CK_OF_BFLOAT16);
}

Test(of_meta, what_is_refused)
{
	static const char *const bad[] = {
		"",
		"shape {",
		"shape { dim: 3 ",
		"shape { dim: }data_type: kFloat",
		"shape { dim: -3 } data_type: kFloat",
		"shape { dim: 99999999999999999999 } data_type: kFloat",
		"shape { dim: 3 }",
		"data_type: kFloat",
		"shape { dim: 3 } data_type: kQuarter",
		"shape { dim: 3 } data_type: 22",
		"shape { dim: 3 } shape { dim: 3 } data_type: kFloat",
		"shape { dim: 3 } data_type: kFloat name: x",
	};

	for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++)
		cr_expect_eq(parse(bad[i]), -EINVAL, "%s", bad[i]);
}

static int thin(const void *bytes, size_t len, struct ck_str *out,
		uint64_t *used)
{
	struct ck_source *s = ck_source_mem(bytes, len, "made");
	int ret;

	cr_assert_not_null(s);
	s->st.st_size = (off_t)len;
	ret = ck_of_thin(s, out, used, &err);
	ck_source_close(s);
	return ret;
}

Test(of_thin, bytes_stay_in_the_file)
{
	enum { BIG = 200000 };
	static unsigned char file[BIG + 64] = "\x80\x05\x95\1\0\0\0\0\0\0\0"
					      "(\x8c\5hello\x8e";
	size_t at = 20;
	uint64_t n = BIG, used, off, len;
	struct ck_str out = { 0 };
	struct ck_pickle *p;
	ck_pv v;

	memcpy(file + at, &n, 8);
	memset(file + at + 8, '.', BIG); /* as if it ended there */
	memcpy(file + at + 8 + BIG,
	       "\x94"
	       "C\2hit.",
	       7);
	cr_assert_eq(thin(file, sizeof(file), &out, &used), 0, "%s", err.msg);
	cr_expect_eq(used, at + 8 + BIG + 7);
	cr_expect_lt(out.len, 100);
	cr_assert_eq(ck_pickle_parse(&p, out.v, out.len, NULL, NULL, &err), 0,
		     "%s", err.msg);
	v = ck_pickle_root(p);
	cr_assert_eq(ck_pv_len(p, v), 3);
	cr_expect(ck_pv_at(p, v, 0, &v) && ck_pv_is_str(p, v, "hello"));
	cr_expect_not(ck_of_thin_bytes(p, v, &off, &len));
	cr_expect(ck_pv_at(p, ck_pickle_root(p), 1, &v));
	cr_assert(ck_of_thin_bytes(p, v, &off, &len));
	cr_expect(off == at + 8 && len == BIG);
	cr_expect(ck_pv_at(p, ck_pickle_root(p), 2, &v));
	cr_assert(ck_of_thin_bytes(p, v, &off, &len));
	cr_expect(off == used - 4 && len == 2);
	ck_pickle_free(p);
	ck_str_free(&out);
}

Test(of_thin, what_is_refused)
{
	static const struct {
		const char *bytes;
		size_t len;
	} bad[] = {
		{ "", 0 },
		{ "N", 1 },
		{ "\x80", 1 },
		{ "B\5\0\0\0ab.", 8 },
		{ "\x8e\xff\xff\xff\xff\xff\xff\xff\xff.", 10 },
		{ "X\xff\xff\xff\x7f.", 6 },
		{ "cos\nsystem", 10 },
		{ "\xff.", 2 },
	};

	for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++) {
		struct ck_str out = { 0 };
		uint64_t used;

		cr_expect_eq(thin(bad[i].bytes, bad[i].len, &out, &used),
			     -EINVAL, "%zu", i);
		ck_str_free(&out);
	}
}
