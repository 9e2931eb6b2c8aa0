/* SPDX-License-Identifier: Apache-2.0 */
/* test_stale_log.c - pages that are old do not undo what was written */
#include "core/write/stale_log.h"

#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#define LEN 200000u
#define OFF 65000u /* of what is written, across blocks */
#define MINE 1u
#define OTHER 2u

static unsigned char was[LEN], now[LEN], page[LEN];

static struct ck_pre_image_at at(uint64_t off, uint64_t file)
{
	return (struct ck_pre_image_at){ .key = 7, .off = off, .file = file };
}

static void fill(void)
{
	for (unsigned i = 0; i < LEN; i++) {
		was[i] = (unsigned char)(i * 7);
		/* every third byte is as it was */
		now[i] = (unsigned char)(i % 3 ? was[i] + 1 : was[i]);
	}
}

static struct ck_pre_image *keep(struct ck_stale_log *all, uint64_t file)
{
	struct ck_pre_image *f = ck_pre_image_new(all);
	const struct ck_pre_image_at where = at(OFF, file);

	cr_assert(f && ck_pre_image_keep(f, &where, was, now, LEN));
	return f;
}

/* What is written of @page, which is of @file at @off. */
static void merged(struct ck_stale_log *all, uint64_t off, uint64_t file,
		   unsigned char *is, uint64_t len, unsigned char *want)
{
	const struct ck_pre_image_at where = at(off, file);
	unsigned char *out = NULL;

	cr_assert_eq(ck_stale_log_merge(all, &where, page, is, len, &out), 0);
	cr_expect_eq(memcmp(out ? out : page, want, len), 0);
	free(out);
}

Test(stale_log, an_old_page_keeps_what_came_later)
{
	struct ck_stale_log *all = ck_stale_log_new(1 << 20);
	struct ck_pre_image *f;
	unsigned char want[5000];

	fill();
	f = keep(all, MINE);
	memcpy(page, was + 1000, sizeof(want));
	memcpy(want, now + 1000, sizeof(want));
	page[10] = want[10] = 'x'; /* stored into it */
	merged(all, OFF + 1000, OTHER, now + 1000, sizeof(want), want);
	/* nobody's, and another key */
	merged(all, OFF + 1000, 0, now + 1000, sizeof(want), want);
	ck_pre_image_end(f);
	cr_expect_eq(ck_stale_log_bytes(all), 0);
	/* nothing is old any more */
	merged(all, OFF + 1000, OTHER, now + 1000, sizeof(want), page);
	ck_stale_log_free(all);
}

Test(stale_log, ones_own_pages_are_new)
{
	struct ck_stale_log *all = ck_stale_log_new(1 << 20);
	struct ck_pre_image *f;
	struct ck_pre_image_at where = at(OFF, MINE);
	unsigned char *out;

	fill();
	f = keep(all, MINE);
	memcpy(page, was, LEN);
	merged(all, OFF, MINE, now, LEN, page); /* stored what was there */
	where.as = 8; /* but the same file may show the bytes twice */
	cr_assert_eq(ck_stale_log_merge(all, &where, page, now, LEN, &out), 0);
	cr_assert_not_null(out);
	cr_expect_eq(memcmp(out, now, LEN), 0);
	free(out);
	where = at(OFF, OTHER);
	where.key = 8;
	cr_assert_eq(ck_stale_log_merge(all, &where, page, now, LEN, &out), 0);
	cr_expect_null(out, "another key");
	ck_pre_image_end(f);
	ck_stale_log_free(all);
}

/* A byte that a write left as it was can be stored into by others. */
Test(stale_log, what_did_not_change_is_not_old)
{
	struct ck_stale_log *all = ck_stale_log_new(1 << 20);
	struct ck_pre_image *f;
	unsigned char is[30], want[30];

	fill();
	f = keep(all, MINE);
	memcpy(is, now, sizeof(is));
	is[3] = 'i'; /* by somebody else, afterwards */
	memcpy(page, now, sizeof(is));
	page[3] = was[3];
	memcpy(want, page, sizeof(want));
	merged(all, OFF, OTHER, is, sizeof(is), want);
	ck_pre_image_end(f);
	ck_stale_log_free(all);
}

/* Of two writes of a byte, each one's old value is known. */
Test(stale_log, several_writes)
{
	struct ck_stale_log *all = ck_stale_log_new(1 << 20);
	struct ck_pre_image *a = ck_pre_image_new(all),
			    *b = ck_pre_image_new(all);
	const struct ck_pre_image_at one = at(5, MINE), two = at(6, OTHER);
	unsigned char is[] = "012345", want[6];

	cr_assert(ck_pre_image_keep(a, &one, "abc", "ABC", 3));
	cr_assert(ck_pre_image_keep(b, &two, "BCd", "xyz", 3));
	memcpy(is, "_Axyz_", 6);
	memcpy(page, "_abcd_", 6);
	memcpy(want, "_Axyz_", 6);
	merged(all, 4, 3, is, 6, want);
	memcpy(page, "_ABCd_", 6);
	merged(all, 4, MINE, is, 6, want);
	ck_pre_image_end(a);
	memcpy(page, "_AbC__", 6); /* b, where B was: stored */
	memcpy(want, "_Aby__", 6);
	merged(all, 4, 3, is, 6, want);
	ck_pre_image_end(b);
	ck_stale_log_free(all);
}

Test(stale_log, there_is_an_end_to_it)
{
	struct ck_stale_log *all = ck_stale_log_new(300000);
	struct ck_pre_image *f = ck_pre_image_new(all), *g;
	struct ck_pre_image_at where = at(OFF, MINE);

	fill();
	cr_assert(f);
	cr_expect_not(ck_pre_image_keep(f, &where, was, now, LEN));
	cr_expect_leq(ck_stale_log_bytes(all), 300000);
	cr_expect_gt(ck_stale_log_bytes(all), 100000);
	ck_pre_image_end(f);
	cr_expect_eq(ck_stale_log_bytes(all), 0);
	g = ck_pre_image_new(all);
	cr_assert(ck_pre_image_keep(g, &where, was, now, 1000));
	ck_stale_log_free(all); /* its checkpoint is closed before it */
	ck_pre_image_end(g);
}
