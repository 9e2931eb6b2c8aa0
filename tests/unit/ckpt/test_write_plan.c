/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What of a write is written: all of it, or of a page of a map what a program may
 * have stored, and what is not newer.
 */
#include "core/ckpt/write_plan.h"

#include "core/ckpt/ckpt_priv.h"
#include "tests/lib/openckpt.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define A 5000
#define B 300

static char dir[] = "/tmp/ckpt-plan.XXXXXX";
static char path[64];
static struct ck_opts opts;
static struct ck_ckpt *ck;
static struct ck_edit *e;
static struct ck_err err;
static uint32_t a, b;

static uint32_t find(const char *name)
{
	const struct ck_catalog *img = ck_ckpt_catalog(ck);

	for (uint32_t i = 0; i < img->nr_tensors; i++)
		if (!strcmp(ck_catalog_str(img, img->tensors[i].name, NULL),
			    name))
			return i;
	cr_assert_fail("no %s", name);
	return CK_NONE;
}

static void enter(void)
{
	static const char head[] =
		"{\"a\":{\"dtype\":\"U8\",\"shape\":[5000],\"data_offsets\":"
		"[0,5000]},\"b\":{\"dtype\":\"U8\",\"shape\":[300],"
		"\"data_offsets\":[5000,5300]}}";
	unsigned char len[8] = { sizeof(head) - 1 }, zeros[A + B] = { 0 };
	FILE *f;

	cr_assert(mkdtemp(dir));
	snprintf(path, sizeof(path), "%s/model.safetensors", dir);
	f = fopen(path, "w");
	cr_assert(f && fwrite(len, 8, 1, f) == 1 &&
		  fwrite(head, sizeof(head) - 1, 1, f) == 1 &&
		  fwrite(zeros, sizeof(zeros), 1, f) == 1 && !fclose(f));
	ck_opts_add(&opts, "rw", "");
	ck_opts_add(&opts, "sandbox", "off");
	cr_assert_eq(open_ckpt(&ck, dir, &opts, &err), 0, "%s", err.msg);
	e = ck_ckpt_edit(ck);
	a = find("a");
	b = find("b");
}

static void leave(void)
{
	ck_ckpt_edit_end(e);
	ck_ckpt_close(ck);
	ck_opts_free(&opts);
	unlink(path);
	rmdir(dir);
}

TestSuite(write_plan, .init = enter, .fini = leave);

static struct ck_wplan *plan(const void *buf, bool page)
{
	struct ck_wplan *p = calloc(1, sizeof(*p));

	p->ck = ck;
	p->buf = buf;
	p->page = page;
	return p;
}

static void add(struct ck_wplan *p, uint32_t t, uint64_t off, uint64_t len,
		uint64_t at)
{
	cr_assert_eq(ck_wplan_add(p, t, off, len, at, &err), 0);
}

static void run(struct ck_wplan *p)
{
	cr_assert_eq(ck_wplan_run(p, e, &err), 0, "%s", err.msg);
}

/* Bytes [from, to) of tensor @t are all @v. */
static void are(uint32_t t, uint64_t from, uint64_t to, unsigned char v)
{
	unsigned char is[A];

	cr_assert_eq(ck_ckpt_read(ck, t, is, to - from, from, &err), 0);
	for (uint64_t i = 0; i < to - from; i++)
		cr_assert_eq(is[i], v, "byte %lu", (unsigned long)(from + i));
}

Test(write_plan, pages_leave_what_is_newer)
{
	unsigned char ones[A] = { 0 }, old[A] = { 0 };
	struct ck_wplan *one = plan(ones, false), *two = plan(ones, false);
	struct ck_wplan *page = plan(old, true);

	memset(ones, 1, A);
	memset(old, 7, A);
	add(one, a, 100, 50, 0);
	add(two, a, 140, 20, 0);
	add(two, a, 200, 10, 20);
	ck_wplan_newer(one);
	ck_wplan_newer(two);
	run(one);
	run(two);
	add(page, a, 0, 400, 0);
	run(page);
	are(a, 0, 100, 7);
	are(a, 100, 160, 1);
	are(a, 160, 200, 7);
	are(a, 200, 210, 1);
	are(a, 210, 400, 7);
	are(b, 0, B, 0);
	ck_wplan_free(one); /* its pages are forgotten */
	run(page);
	are(a, 100, 140, 7);
	are(a, 140, 160, 1);
	ck_wplan_free(two);
	run(page);
	are(a, 0, 400, 7);
	are(a, 400, A, 0);
	ck_wplan_free(page);
	cr_assert_null(ck->newer);
}

Test(write_plan, a_write_is_not_a_page)
{
	unsigned char ones[A] = { 0 };
	struct ck_wplan *one = plan(ones, false);

	memset(ones, 1, A);
	add(one, a, 0, A, 0);
	ck_wplan_newer(one);
	cr_assert_eq(ck_ckpt_write(ck, e, a, "xyz", 3, 10, &err), 0);
	are(a, 10, 11, 'x');
	ck_wplan_free(one);
}

/* Of a page of several tensors what differs, from the first byte to the last. */
Test(write_plan, several_tensors)
{
	unsigned char buf[A + B] = { 0 };
	struct ck_wplan *p = plan(buf, true);
	const struct ck_read_stats *s = ck_ckpt_stats(ck);
	uint64_t before = s->written;

	p->several = true;
	add(p, a, 0, A, 0);
	add(p, b, 0, B, A);
	run(p);
	cr_assert_eq(s->written, before, "nothing differs");
	buf[10] = buf[13] = 3;
	buf[A + B - 1] = 4;
	run(p);
	cr_assert_eq(s->written - before, 5);
	are(a, 10, 11, 3);
	are(b, B - 1, B, 4);
	ck_wplan_free(p);
}

/* More than are locked one by one, and more than are kept: all of it. */
Test(write_plan, many_parts)
{
	unsigned char ones[A] = { 0 };
	struct ck_wplan *p = plan(ones, false);

	memset(ones, 1, A);
	for (unsigned turn = 0; turn < 2; turn++)
		for (uint64_t i = 0; i < A; i++)
			add(p, a, i, 1, i);
	add(p, b, 5, 1, 0);
	run(p);
	are(a, 0, A, 1);
	are(b, 5, 6, 1);
	are(b, 6, 7, 0);
	ck_wplan_free(p);
}

/* What is refused is refused as a whole. */
Test(write_plan, nothing_of_what_is_refused)
{
	unsigned char ones[A] = { 0 };
	struct ck_wplan *p = plan(ones, false);

	memset(ones, 1, A);
	add(p, a, 0, 100, 0);
	add(p, b, B - 1, 2, 100);
	cr_assert_eq(ck_wplan_run(p, e, &err), -EFBIG);
	are(a, 0, 100, 0);
	ck_wplan_free(p);
}
