/* SPDX-License-Identifier: Apache-2.0 */
/* OneFlow's meta files. */
#include "core/format/oneflow/oneflow.h"
#include "core/geom/dtype.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

static struct ck_err err;
static struct oneflow_meta meta;

static int parse(const char *text)
{
	return ck_oneflow_meta_parse(&meta, text, strlen(text), &err);
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
		cr_expect_eq(ck_oneflow_dtype(meta.type), CK_DT_F32);
	}
	cr_assert_eq(parse("shape {\n}\ndata_type: kBFloat16\n"), 0);
	cr_expect(meta.rank == 0 && meta.type == ONEFLOW_BFLOAT16);
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
