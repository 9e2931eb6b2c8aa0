/* SPDX-License-Identifier: Apache-2.0 */
/* Journals of what was written: damaged, and of another version. */
#include "tests/lib/slicekit.h"

#include "core/slices/claims.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <fcntl.h>
#include <glob.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

TestSuite(claims, .init = slicekit_setup, .fini = slicekit_teardown,
	  .timeout = 60);

static const char plain[] =
	"{\"unshard_layout\":1,\"mesh\":{\"axes\":[{\"name\":\"tp\","
	"\"size\":2}]},\"tensors\":[{\"glob\":\"*\",\"dtype\":\"float32\","
	"\"shape\":[64,16],\"placement\":{\"tp\":{\"shard\":0}}}],"
	"\"write\":{\"tensors\":[{\"name\":\"w\"}]}}";

/* The journal of the mount that wrote one of two slices. */
static int write_one(void)
{
	char pattern[128];
	struct slicekit j;
	glob_t g = { 0 };
	int fd;

	slicekit_open(&j, "step", plain);
	slicekit_write_piece(j.sl, 0, 100);
	slicekit_close(&j);
	snprintf(pattern, sizeof(pattern), "%s/.staging-step/slices/w-*.log",
		 slicekit_top);
	cr_assert_eq(glob(pattern, 0, NULL, &g), 0);
	cr_assert_eq(g.gl_pathc, 1);
	fd = open(g.gl_pathv[0], O_RDWR);
	cr_assert(fd >= 0);
	globfree(&g);
	return fd;
}

Test(claims, damage_is_said)
{
	struct ck_err err = { 0 };
	int fd = write_one();
	char c;

	cr_assert_eq(pread(fd, &c, 1, 70), 1);
	c ^= 4;
	cr_assert_eq(pwrite(fd, &c, 1, 70), 1);
	close(fd);
	cr_expect_eq(slicekit_publish("step", &err), -EIO);
	cr_expect(strstr(err.msg, "slices/w-") &&
			  strstr(err.msg, ".log: byte 64: expected record 1"),
		  "%s", err.msg);
}

/* Logs of a version that had no journals. */
Test(claims, another_version_is_refused)
{
	struct ck_err err = { 0 };
	int fd = write_one();

	cr_assert_eq(pwrite(fd, "unshclm", 8, 0), 8);
	close(fd);
	cr_expect_eq(slicekit_publish("step", &err), -EINVAL);
	cr_expect(strstr(err.msg, "only the version that wrote it"), "%s",
		  err.msg);
}
