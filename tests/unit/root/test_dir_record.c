/* SPDX-License-Identifier: Apache-2.0 */
#include "core/root/dir_record.h"

#include "tests/lib/memdir.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

static char index_bytes[] = "an index of some length";
static char shard[] = "head, and then bytes that nobody reads";
static struct memdir mem;

static void fill(void)
{
	memdir_init(&mem);
	cr_assert(memdir_put(&mem, "index", index_bytes, sizeof(index_bytes)));
	cr_assert(memdir_put(&mem, "sub/shard", shard, sizeof(shard)));
}

/* What a reader does: lists, opens, reads in pieces and out of order. */
static void reader(const struct ck_dir *d)
{
	struct ck_dir_list l;
	struct ck_source *a, *b, *none;
	char buf[64];

	cr_assert(!ck_dir_list(d, "", &l, NULL));
	ck_dir_list_free(&l);
	cr_assert(!ck_dir_list(d, "sub", &l, NULL));
	ck_dir_list_free(&l);
	cr_assert(!ck_dir_open(d, "index", &a, NULL));
	cr_assert(!ck_dir_open(d, "sub/shard", &b, NULL));
	cr_assert_eq(ck_dir_open(d, "config", &none, NULL), -ENOENT);
	cr_assert(!ck_source_read(a, buf, 5, 0, NULL));
	cr_assert(!ck_source_read(b, buf, 2, 2, NULL));
	cr_assert(!ck_source_read(a, buf, 7, 5, NULL));
	cr_assert(!ck_source_read(b, buf, 2, 0, NULL));
	ck_source_close(a);
	ck_source_close(b);
	cr_assert(!ck_dir_siblings(d, "other"));
	cr_assert(!ck_dir_is_written(d, "sub/shard"));
}

static struct ck_dir_record *recorded(const char **text, size_t *len)
{
	struct ck_dir_record *r = ck_dir_record_new(&mem.dir);

	cr_assert(r);
	reader(ck_dir_record_dir(r));
	cr_assert(ck_dir_record_text(r, text, len));
	return r;
}

static bool holds(const char *text, size_t len)
{
	return ck_dir_record_holds(&mem.dir, text, len);
}

Test(dir_record, holds_while_nothing_that_was_read_changes)
{
	struct ck_dir_record *r;
	const char *text;
	size_t len;

	fill();
	r = recorded(&text, &len);
	cr_assert(holds(text, len));
	for (size_t i = 0; i < sizeof(index_bytes); i++) {
		index_bytes[i] ^= 1;
		cr_assert_eq(holds(text, len), i >= 12, "byte %zu", i);
		index_bytes[i] ^= 1;
	}
	for (size_t i = 0; i < sizeof(shard); i++) {
		shard[i] ^= 1;
		cr_assert_eq(holds(text, len), i >= 4, "byte %zu", i);
		shard[i] ^= 1;
	}
	cr_assert(holds(text, len));
	ck_dir_record_free(r);
	memdir_free(&mem);
}

Test(dir_record, does_not_hold_where_names_or_sizes_change)
{
	static const char *const names[] = { "config", "other", "sub/new" };
	struct ck_dir_record *r;
	const char *text;
	size_t len;

	fill();
	r = recorded(&text, &len);
	for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++) {
		cr_assert(memdir_put(&mem, names[i], "x", 1));
		cr_assert(!holds(text, len), "%s", names[i]);
		memdir_drop(&mem, names[i]);
		cr_assert(holds(text, len));
	}
	cr_assert(memdir_put(&mem, "sub/shard", shard, sizeof(shard) - 1));
	cr_assert(!holds(text, len));
	memdir_drop(&mem, "sub/shard");
	cr_assert(!holds(text, len));
	ck_dir_record_free(r);
	memdir_free(&mem);
}

Test(dir_record, other_bytes_hold_nothing)
{
	struct ck_dir_record *r;
	const char *text;
	char *copy;
	size_t len;

	fill();
	r = recorded(&text, &len);
	copy = malloc(len);
	cr_assert(copy);
	/* Of a fact 40 bytes are numbers; another name may be absent as well. */
	for (size_t n = 0, in = 0; n < len; n++, in++) {
		memcpy(copy, text, len);
		copy[n] ^= 0x55;
		cr_assert(!holds(copy, len) || in >= 40, "byte %zu", n);
		if (in >= 40 && !text[n])
			in = (size_t)-1;
	}
	cr_assert(!holds(text, 0));
	cr_assert(!holds(text, len - 1));
	free(copy);
	ck_dir_record_free(r);
	memdir_free(&mem);
}

Test(dir_record, a_read_that_failed_leaves_none)
{
	struct ck_dir_record *r;
	struct ck_source *s;
	const char *text;
	size_t len;
	char c;

	fill();
	r = ck_dir_record_new(&mem.dir);
	cr_assert(r);
	cr_assert(!ck_dir_open(ck_dir_record_dir(r), "index", &s, NULL));
	cr_assert(ck_source_read(s, &c, 1, sizeof(index_bytes), NULL));
	ck_source_close(s);
	cr_assert(!ck_dir_record_text(r, &text, &len));
	ck_dir_record_free(r);
	memdir_free(&mem);
}
