/* SPDX-License-Identifier: Apache-2.0 */
/* What -o sbp=FILE says of files. */
#include "core/format/oneflow/oneflow.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define FILE_OF(world, path)                                         \
	"{\"world_size\": " world ", \"path\": \"" path "\", "       \
	"\"rules\": [{\"key\": \"*\", \"placement\": [0], \"sbp\": " \
	"\"B\"}]}"

static int parse(struct oneflow_sbp *s, const char *text)
{
	struct ck_opts opts = { 0 };
	const struct ck_dir dir = { .opts = &opts };
	bool given;
	int ret;

	cr_assert_eq(ck_opts_add(&opts, "sbp", "file"), 0);
	ck_opts_keep(&opts, strdup(text), strlen(text));
	ret = ck_oneflow_sbp_get(s, &dir, &given, NULL);
	cr_expect(given);
	ck_opts_free(&opts);
	return ret;
}

Test(of_sbp, paths_of_ranks)
{
	struct oneflow_sbp s;
	char *path;

	cr_assert_eq(parse(&s, FILE_OF("4", "m/{rank}/x")), 0);
	path = ck_oneflow_sbp_path(&s, 3);
	cr_expect_str_eq(path, "m/3/x");
	free(path);
	ck_oneflow_sbp_free(&s);
	cr_assert_eq(parse(&s, FILE_OF("1", "one")), 0);
	path = ck_oneflow_sbp_path(&s, 0);
	cr_expect_str_eq(path, "one");
	free(path);
	ck_oneflow_sbp_free(&s);
}

Test(of_sbp, what_is_refused)
{
	static const char *const bad[] = {
		"[]",
		"{\"world_size\": 4}",
		FILE_OF("2", "same"),
		FILE_OF("2", "../{rank}"),
		FILE_OF("0", "{rank}"),
	};
	struct oneflow_sbp s;

	for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++)
		cr_expect_eq(parse(&s, bad[i]), -EINVAL, "%s", bad[i]);
}
