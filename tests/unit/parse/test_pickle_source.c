/* SPDX-License-Identifier: Apache-2.0 */
/* Pickles of which the bytes objects are left where they are. */
#include "core/parse/pickle.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

static struct ck_err err;

struct file {
	const char *bytes;
	uint64_t read; /* bytes so far */
};

static int read_file(void *ctx, void *buf, size_t len, uint64_t off,
		     struct ck_err *e)
{
	struct file *f = ctx;

	(void)e;
	memcpy(buf, f->bytes + off, len);
	f->read += len;
	return 0;
}

static int parse(struct ck_pickle **p, struct file *f, size_t len,
		 uint64_t *used)
{
	const struct ck_pickle_source in = { read_file, f, len, "made" };

	return ck_pickle_parse_source(p, &in, used, &err);
}

Test(pickle_source, bytes_stay_in_the_file)
{
	enum { BIG = 200000 };
	static unsigned char file[BIG + 64] = "\x80\x05\x95\1\0\0\0\0\0\0\0"
					      "(\x8c\5hello\x8e";
	size_t at = 20;
	uint64_t n = BIG, used, off, len;
	struct file f = { (const char *)file, 0 };
	struct ck_pickle *p;
	ck_pv v;

	memcpy(file + at, &n, 8);
	memset(file + at + 8, '.', BIG); /* as if it ended there */
	memcpy(file + at + 8 + BIG,
	       "\x94"
	       "C\2hit.",
	       7);
	cr_assert_eq(parse(&p, &f, sizeof(file), &used), 0, "%s", err.msg);
	cr_expect_eq(used, at + 8 + BIG + 7);
	cr_expect_lt(f.read, BIG);
	v = ck_pickle_root(p);
	cr_assert_eq(ck_pv_len(p, v), 3);
	cr_expect(ck_pv_at(p, v, 0, &v) && ck_pv_is_str(p, v, "hello"));
	cr_expect_not(ck_pv_extent(p, v, &off, &len));
	cr_expect(ck_pv_at(p, ck_pickle_root(p), 1, &v));
	cr_assert(ck_pv_extent(p, v, &off, &len));
	cr_expect(off == at + 8 && len == BIG);
	cr_expect(ck_pv_at(p, ck_pickle_root(p), 2, &v));
	cr_assert(ck_pv_extent(p, v, &off, &len));
	cr_expect(off == used - 4 && len == 2);
	ck_pickle_free(p);
}

Test(pickle_source, what_is_refused)
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
		struct file f = { bad[i].bytes, 0 };
		struct ck_pickle *p;
		uint64_t used;

		cr_expect_eq(parse(&p, &f, bad[i].len, &used), -EINVAL, "%zu",
			     i);
	}
}
