/* SPDX-License-Identifier: Apache-2.0 */
/* The table of slots: who keeps what alive, what sleeps, what is gone. */
#include "fs/tree/mounted.h"
#include "fs/tree/tree.h"
#include "tests/lib/mounteds.h"
#include "tests/lib/stepkit.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

static struct stepkit kit;
static struct fs_kernel kernel;
static struct ck_opts opts;
static struct ck_root root;
static struct fs_mounted_table *s;
static struct ck_err err;

static void setup(void)
{
	const struct fs_mounted_table_in in = { .steps = &root,
						.kernel = &kernel,
						.opts = &opts };

	stepkit_init(&kit);
	ck_opts_add(&opts, "sandbox", "off");
	ck_opts_add(&opts, "engine", "plain");
	fs_kernel_setup(&kernel, &opts);
	cr_assert(!ck_root_open(&root, kit.dir, &opts, &err), "%s", err.msg);
	cr_assert(!fs_mounted_table_new(&s, &in, &err), "%s", err.msg);
}

static void teardown(void)
{
	fs_mounted_table_free(s);
	ck_root_close(&root);
	ck_opts_free(&opts);
	stepkit_free(&kit);
}
TestSuite(mounted_table, .init = setup, .fini = teardown);

static struct fs_mounted *entry(unsigned nr)
{
	struct fs_mounted *slot = NULL;
	char name[32];

	snprintf(name, sizeof(name), "step-%u", nr);
	return fs_mounted_table_entry(s, name, &slot) ? NULL : slot;
}

/* What a look-up and a look into it leave: the kernel's count alone. */
static uint32_t visit(unsigned nr)
{
	struct fs_mounted *slot = entry(nr);
	uint32_t number = slot->nr;

	cr_assert_eq(fs_mounted_need(s, slot), FS_MOUNTED_READY, "%s",
		     slot->why.msg);
	fs_mounted_know(s, slot);
	fs_mounted_unpin(s, slot);
	return number;
}

static void forget(uint32_t number, uint64_t nr)
{
	struct fs_mounted *slot = fs_mounted_table_pin(s, number);

	cr_assert(slot);
	fs_mounted_forget(s, slot, nr);
	fs_mounted_unpin(s, slot);
}

/* The bytes of its tensor, or "" where there are none to be had. */
static const char *bytes_of(struct fs_mounted *slot)
{
	static char bytes[5];
	const struct ck_view *v = NULL;

	memset(bytes, 0, sizeof(bytes));
	if (fs_mounted_need(s, slot) != FS_MOUNTED_READY)
		return bytes;
	for (unsigned i = 0; i < FS_MAX_VIEWS && !v; i++)
		if (slot->view[i] &&
		    !strcmp(slot->view[i]->ops->name, "tensors"))
			v = slot->view[i];
	cr_assert(v && !ck_view_read(v, 0, bytes, 4, 0, &err), "%s", err.msg);
	return bytes;
}

Test(mounted_table, what_nobody_knows_goes_with_its_last_pin)
{
	struct fs_mounted *slot;
	uint32_t number;

	stepkit_put(&kit, 1, "abcd");
	slot = entry(1);
	number = slot->nr;
	cr_expect_eq(mounteds_nr(s), 1);
	fs_mounted_pin(s, slot);
	fs_mounted_unpin(s, slot);
	cr_expect_eq(mounteds_nr(s), 1);
	fs_mounted_unpin(s, slot);
	cr_expect_eq(mounteds_nr(s), 0);
	cr_expect_null(fs_mounted_table_pin(s, number));
	cr_expect_null(fs_mounted_table_pin(s, FS_MAX_MOUNTED));
	cr_expect_null(entry(2));
}

Test(mounted_table, each_inode_that_the_kernel_knows_keeps_the_number)
{
	struct fs_mounted *slot;
	uint32_t number;

	stepkit_put(&kit, 1, "abcd");
	number = visit(1);
	cr_expect_eq(visit(1), number, "a second look-up is of the same slot");
	stepkit_drop(&kit, 1);
	cr_expect_null(entry(1));
	/* the folder is forgotten before a file in it */
	forget(number, 1);
	slot = fs_mounted_table_pin(s, number);
	cr_assert(slot && slot->gone);
	fs_mounted_forget(s, slot, 1);
	cr_expect_eq(slot->nr, number, "the pin keeps it");
	fs_mounted_unpin(s, slot);
	cr_expect_null(fs_mounted_table_pin(s, number));
	cr_expect_eq(fs_mounted_table_made(s), 0);
	stepkit_put(&kit, 1, "efgh");
	cr_expect_neq(visit(1), number, "numbers go round");
}

Test(mounted_table, few_are_kept_and_the_others_wake)
{
	enum { NR = FS_IDLE_MOUNTED + 5 };
	uint32_t number[NR];
	uint64_t files;
	char bytes[8];

	for (unsigned i = 0; i < NR; i++) {
		snprintf(bytes, sizeof(bytes), "%04u", i);
		stepkit_put(&kit, i, bytes);
		number[i] = visit(i);
	}
	cr_expect_eq(fs_mounted_table_made(s), FS_IDLE_MOUNTED);
	cr_expect_eq(mounteds_nr(s), NR);
	cr_expect_eq(fs_mounted_table_total(s, &files), 4 * NR);
	cr_expect_eq(files, NR);
	for (unsigned i = 0; i < NR; i++) {
		struct fs_mounted *slot = fs_mounted_table_pin(s, number[i]);

		snprintf(bytes, sizeof(bytes), "%04u", i);
		cr_expect_str_eq(bytes_of(slot), bytes);
		fs_mounted_unpin(s, slot);
	}
	cr_expect_eq(fs_mounted_table_made(s), FS_IDLE_MOUNTED);
	for (unsigned i = 0; i < NR; i++)
		forget(number[i], 1);
	cr_expect_eq(mounteds_nr(s), FS_IDLE_MOUNTED, "who comes next");
}

Test(mounted_table, who_is_in_use_does_not_sleep)
{
	enum { NR = FS_IDLE_MOUNTED + 5 };
	struct fs_mounted *slot[NR];

	for (unsigned i = 0; i < NR; i++) {
		stepkit_put(&kit, i, "abcd");
		slot[i] = entry(i);
		cr_assert_eq(fs_mounted_need(s, slot[i]), FS_MOUNTED_READY);
	}
	cr_expect_eq(fs_mounted_table_made(s), NR);
	for (unsigned i = 0; i < NR; i++)
		cr_expect_eq(atomic_load(&slot[i]->state), FS_MOUNTED_READY);
	for (unsigned i = 0; i < NR; i++)
		fs_mounted_unpin(s, slot[i]);
	cr_expect_eq(fs_mounted_table_made(s), FS_IDLE_MOUNTED);
	cr_expect_eq(mounteds_nr(s), FS_IDLE_MOUNTED);
}

static void make_many(unsigned first)
{
	for (unsigned i = 0; i < FS_IDLE_MOUNTED; i++) {
		stepkit_put(&kit, first + i, "many");
		visit(first + i);
	}
}

Test(mounted_table, a_replaced_entry_is_read_on_until_it_sleeps)
{
	struct fs_mounted *old, *now;
	uint32_t number;

	stepkit_put(&kit, 1, "abcd");
	number = visit(1);
	old = fs_mounted_table_pin(s, number);
	stepkit_drop(&kit, 1);
	stepkit_put(&kit, 1, "efgh");
	now = entry(1);
	cr_assert(now && now != old && old->gone && !now->gone);
	cr_expect_str_eq(bytes_of(now), "efgh");
	cr_expect_eq(fs_mounted_need(s, old), FS_MOUNTED_READY);
	cr_expect(fs_mounted_is_past(s, old) && !fs_mounted_is_past(s, now));
	fs_mounted_unpin(s, old);
	fs_mounted_unpin(s, now);
	make_many(100);
	old = fs_mounted_table_pin(s, number);
	cr_assert(old);
	cr_expect_eq(fs_mounted_need(s, old), FS_MOUNTED_ASLEEP);
	cr_expect_str_eq(bytes_of(old), "");
	fs_mounted_unpin(s, old);
}

Test(mounted_table, what_changed_asleep_does_not_wake)
{
	struct fs_mounted *slot;
	uint32_t number;

	stepkit_put(&kit, 1, "abcd");
	number = visit(1);
	make_many(100);
	stepkit_write(&kit, 1, "more", "text");
	slot = fs_mounted_table_pin(s, number);
	cr_expect_eq(fs_mounted_need(s, slot), FS_MOUNTED_ASLEEP);
	cr_expect(slot->gone);
	fs_mounted_unpin(s, slot);
	cr_expect_neq(visit(1), number);
}

/* What becomes of one that sleeps when it is needed. */
static enum fs_mounted_state state_after(uint32_t number)
{
	struct fs_mounted *slot = fs_mounted_table_pin(s, number);
	enum fs_mounted_state state;

	cr_assert(slot);
	cr_expect_eq(atomic_load(&slot->state), FS_MOUNTED_ASLEEP);
	state = fs_mounted_need(s, slot);
	cr_expect_eq(slot->gone, state == FS_MOUNTED_ASLEEP);
	fs_mounted_unpin(s, slot);
	return state;
}

Test(mounted_table, what_changed_below_asleep_does_not_wake)
{
	enum { SAME, RENAMED, REPLACED, WRITTEN, NR };
	uint32_t number[NR];

	for (unsigned i = 0; i < NR; i++) {
		stepkit_put_below(&kit, i, 'a', "abcd", false);
		number[i] = visit(i);
	}
	make_many(100);
	stepkit_put_below(&kit, RENAMED, 'b', "abcd", false);
	stepkit_put_below(&kit, REPLACED, 'a', "abcd", false);
	stepkit_put_below(&kit, WRITTEN, 'a', "efgh", true);
	cr_expect_eq(state_after(number[SAME]), FS_MOUNTED_READY);
	for (unsigned i = RENAMED; i < NR; i++) {
		cr_expect_eq(state_after(number[i]), FS_MOUNTED_ASLEEP, "%u",
			     i);
		cr_expect_neq(visit(i), number[i], "%u", i);
	}
}

/* Its size is the same, and somebody set its time back. */
Test(mounted_table, the_time_of_a_file_does_not_hide_what_changed_asleep)
{
	struct timespec times[2];
	char path[192];
	uint32_t number;
	struct stat st;
	FILE *f;

	snprintf(path, sizeof(path), "%s/step-1/model.safetensors", kit.dir);
	stepkit_put(&kit, 1, "abcd");
	number = visit(1);
	make_many(100);
	cr_assert(!stat(path, &st));
	times[0] = st.st_atim;
	times[1] = st.st_mtim;
	f = fopen(path, "r+");
	cr_assert(f && !fseek(f, -4, SEEK_END) && fputs("efgh", f) >= 0 &&
		  !fclose(f));
	cr_assert(!utimensat(AT_FDCWD, path, times, 0));
	cr_expect_eq(state_after(number), FS_MOUNTED_ASLEEP);
	cr_expect_neq(visit(1), number);
}

Test(mounted_table, one_that_cannot_be_read_says_so_asleep_too)
{
	struct ck_str out = { 0 };
	struct fs_mounted *slot;
	uint32_t number;

	stepkit_put(&kit, 1, "abcd");
	stepkit_write(&kit, 1, "model.safetensors", "not one");
	slot = entry(1);
	number = slot->nr;
	cr_expect_eq(fs_mounted_need(s, slot), FS_MOUNTED_FAILED);
	fs_mounted_know(s, slot);
	fs_mounted_unpin(s, slot);
	make_many(100);
	slot = fs_mounted_table_pin(s, number);
	cr_expect_eq(atomic_load(&slot->state), FS_MOUNTED_ASLEEP);
	cr_expect(slot->failed && slot->why.msg[0]);
	cr_expect_eq(fs_mounted_need(s, slot), FS_MOUNTED_FAILED);
	cr_expect(slot->virt && slot->shards);
	fs_mounted_unpin(s, slot);
	ck_str_free(&out);
}

Test(mounted_table, the_newest_is_known_without_waking_it)
{
	struct fs_mounted *slot;
	uint32_t number;
	char *latest;

	stepkit_put(&kit, 900, "abcd");
	number = visit(900);
	make_many(100);
	latest = fs_mounted_table_latest(s);
	cr_expect_str_eq(latest, "step-900");
	free(latest);
	slot = fs_mounted_table_pin(s, number);
	cr_expect_eq(atomic_load(&slot->state), FS_MOUNTED_ASLEEP);
	fs_mounted_unpin(s, slot);
	stepkit_drop(&kit, 900);
	latest = fs_mounted_table_latest(s);
	cr_expect_str_eq(latest, "step-131");
	free(latest);
}

Test(mounted_table, the_kernel_is_asked_to_forget_what_is_too_much)
{
	char name[256];

	for (unsigned i = 0; i < FS_KNOWN_MOUNTED + 2; i++) {
		struct fs_mounted *slot;

		stepkit_put(&kit, i, "abcd");
		slot = entry(i);
		cr_assert(slot);
		fs_mounted_know(s, slot);
		fs_mounted_unpin(s, slot);
	}
	cr_expect(fs_mounted_table_wait(s));
	cr_expect(fs_mounted_table_crowded(s, name));
	cr_expect_str_eq(name, "step-0");
	cr_expect(fs_mounted_table_crowded(s, name));
	cr_expect_str_eq(name, "step-1");
	cr_expect_not(fs_mounted_table_crowded(s, name), "each is named once");
	fs_mounted_unpin(s, entry(0));
	cr_expect(fs_mounted_table_crowded(s, name), "it was looked up again");
	cr_expect_str_eq(name, "step-2");
	fs_mounted_table_end_wait(s);
	cr_expect_not(fs_mounted_table_wait(s));
}
