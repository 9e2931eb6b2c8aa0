/* SPDX-License-Identifier: Apache-2.0 */
/* The table of slots: who keeps what alive, what sleeps, what is gone. */
#include "fs/tree/slot.h"
#include "fs/tree/tree.h"
#include "tests/lib/stepkit.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

static struct stepkit kit;
static struct fs_kernel kernel;
static struct ck_opts opts;
static struct ck_root root;
static struct fs_slots *s;
static struct ck_err err;

static void setup(void)
{
	const struct fs_slots_in in = { .kernel = &kernel, .opts = &opts };

	stepkit_init(&kit);
	ck_opts_add(&opts, "sandbox", "off");
	ck_opts_add(&opts, "engine", "plain");
	fs_kernel_setup(&kernel, &opts);
	cr_assert(!ck_root_open(&root, kit.dir, &opts, &err), "%s", err.msg);
	cr_assert(!fs_slots_steps(&s, &in, &root, &err), "%s", err.msg);
}

static void teardown(void)
{
	fs_slots_free(s);
	ck_root_close(&root);
	ck_opts_free(&opts);
	stepkit_free(&kit);
}
TestSuite(slots, .init = setup, .fini = teardown);

static struct fs_slot *entry(unsigned nr)
{
	struct fs_slot *slot = NULL;
	char name[32];

	snprintf(name, sizeof(name), "step-%u", nr);
	return fs_slots_entry(s, name, &slot) ? NULL : slot;
}

/* What a look-up and a look into it leave: the kernel's count alone. */
static uint32_t visit(unsigned nr)
{
	struct fs_slot *slot = entry(nr);
	uint32_t number = slot->nr;

	cr_assert_eq(fs_slot_need(s, slot), FS_SLOT_READY, "%s", slot->why.msg);
	fs_slot_know(s, slot);
	fs_slot_unpin(s, slot);
	return number;
}

static void forget(uint32_t number, uint64_t nr)
{
	struct fs_slot *slot = fs_slots_pin(s, number);

	cr_assert(slot);
	fs_slot_forget(s, slot, nr);
	fs_slot_unpin(s, slot);
}

/* The bytes of its tensor, or "" where there are none to be had. */
static const char *bytes_of(struct fs_slot *slot)
{
	static char bytes[5];
	const struct ck_view *v = NULL;

	memset(bytes, 0, sizeof(bytes));
	if (fs_slot_need(s, slot) != FS_SLOT_READY)
		return bytes;
	for (unsigned i = 0; i < FS_MAX_VIEWS && !v; i++)
		if (slot->view[i] &&
		    !strcmp(slot->view[i]->ops->name, "tensors"))
			v = slot->view[i];
	cr_assert(v && !ck_view_read(v, 0, bytes, 4, 0, &err), "%s", err.msg);
	return bytes;
}

Test(slots, what_nobody_knows_goes_with_its_last_pin)
{
	struct fs_slot *slot;
	uint32_t number;

	stepkit_put(&kit, 1, "abcd");
	slot = entry(1);
	number = slot->nr;
	cr_expect_eq(fs_slots_nr(s), 1);
	fs_slot_pin(s, slot);
	fs_slot_unpin(s, slot);
	cr_expect_eq(fs_slots_nr(s), 1);
	fs_slot_unpin(s, slot);
	cr_expect_eq(fs_slots_nr(s), 0);
	cr_expect_null(fs_slots_pin(s, number));
	cr_expect_null(fs_slots_pin(s, FS_MAX_SLOTS));
	cr_expect_null(entry(2));
}

Test(slots, each_inode_that_the_kernel_knows_keeps_the_number)
{
	struct fs_slot *slot;
	uint32_t number;

	stepkit_put(&kit, 1, "abcd");
	number = visit(1);
	cr_expect_eq(visit(1), number, "a second look-up is of the same slot");
	stepkit_drop(&kit, 1);
	cr_expect_null(entry(1));
	/* the folder is forgotten before a file in it */
	forget(number, 1);
	slot = fs_slots_pin(s, number);
	cr_assert(slot && slot->gone);
	fs_slot_forget(s, slot, 1);
	cr_expect_eq(slot->nr, number, "the pin keeps it");
	fs_slot_unpin(s, slot);
	cr_expect_null(fs_slots_pin(s, number));
	cr_expect_eq(fs_slots_made(s), 0);
	stepkit_put(&kit, 1, "efgh");
	cr_expect_neq(visit(1), number, "numbers go round");
}

Test(slots, few_are_kept_and_the_others_wake)
{
	enum { NR = FS_IDLE_SLOTS + 5 };
	uint32_t number[NR];
	uint64_t files;
	char bytes[8];

	for (unsigned i = 0; i < NR; i++) {
		snprintf(bytes, sizeof(bytes), "%04u", i);
		stepkit_put(&kit, i, bytes);
		number[i] = visit(i);
	}
	cr_expect_eq(fs_slots_made(s), FS_IDLE_SLOTS);
	cr_expect_eq(fs_slots_nr(s), NR);
	cr_expect_eq(fs_slots_total(s, &files), 4 * NR);
	cr_expect_eq(files, NR);
	for (unsigned i = 0; i < NR; i++) {
		struct fs_slot *slot = fs_slots_pin(s, number[i]);

		snprintf(bytes, sizeof(bytes), "%04u", i);
		cr_expect_str_eq(bytes_of(slot), bytes);
		fs_slot_unpin(s, slot);
	}
	cr_expect_eq(fs_slots_made(s), FS_IDLE_SLOTS);
	for (unsigned i = 0; i < NR; i++)
		forget(number[i], 1);
	cr_expect_eq(fs_slots_nr(s), FS_IDLE_SLOTS, "who comes next");
}

Test(slots, who_is_in_use_does_not_sleep)
{
	enum { NR = FS_IDLE_SLOTS + 5 };
	struct fs_slot *slot[NR];

	for (unsigned i = 0; i < NR; i++) {
		stepkit_put(&kit, i, "abcd");
		slot[i] = entry(i);
		cr_assert_eq(fs_slot_need(s, slot[i]), FS_SLOT_READY);
	}
	cr_expect_eq(fs_slots_made(s), NR);
	for (unsigned i = 0; i < NR; i++)
		cr_expect_eq(atomic_load(&slot[i]->state), FS_SLOT_READY);
	for (unsigned i = 0; i < NR; i++)
		fs_slot_unpin(s, slot[i]);
	cr_expect_eq(fs_slots_made(s), FS_IDLE_SLOTS);
	cr_expect_eq(fs_slots_nr(s), FS_IDLE_SLOTS);
}

static void make_many(unsigned first)
{
	for (unsigned i = 0; i < FS_IDLE_SLOTS; i++) {
		stepkit_put(&kit, first + i, "many");
		visit(first + i);
	}
}

Test(slots, a_replaced_entry_is_read_on_until_it_sleeps)
{
	struct fs_slot *old, *now;
	uint32_t number;

	stepkit_put(&kit, 1, "abcd");
	number = visit(1);
	old = fs_slots_pin(s, number);
	stepkit_drop(&kit, 1);
	stepkit_put(&kit, 1, "efgh");
	now = entry(1);
	cr_assert(now && now != old && old->gone && !now->gone);
	cr_expect_str_eq(bytes_of(now), "efgh");
	cr_expect_eq(fs_slot_need(s, old), FS_SLOT_READY);
	cr_expect(fs_slot_is_past(s, old) && !fs_slot_is_past(s, now));
	fs_slot_unpin(s, old);
	fs_slot_unpin(s, now);
	make_many(100);
	old = fs_slots_pin(s, number);
	cr_assert(old);
	cr_expect_eq(fs_slot_need(s, old), FS_SLOT_ASLEEP);
	cr_expect_str_eq(bytes_of(old), "");
	fs_slot_unpin(s, old);
}

Test(slots, what_changed_asleep_does_not_wake)
{
	struct fs_slot *slot;
	uint32_t number;

	stepkit_put(&kit, 1, "abcd");
	number = visit(1);
	make_many(100);
	stepkit_write(&kit, 1, "more", "text");
	slot = fs_slots_pin(s, number);
	cr_expect_eq(fs_slot_need(s, slot), FS_SLOT_ASLEEP);
	cr_expect(slot->gone);
	fs_slot_unpin(s, slot);
	cr_expect_neq(visit(1), number);
}

Test(slots, one_that_cannot_be_read_says_so_asleep_too)
{
	struct ck_str out = { 0 };
	struct fs_slot *slot;
	uint32_t number;

	stepkit_put(&kit, 1, "abcd");
	stepkit_write(&kit, 1, "model.safetensors", "not one");
	slot = entry(1);
	number = slot->nr;
	cr_expect_eq(fs_slot_need(s, slot), FS_SLOT_FAILED);
	fs_slot_know(s, slot);
	fs_slot_unpin(s, slot);
	make_many(100);
	slot = fs_slots_pin(s, number);
	cr_expect_eq(atomic_load(&slot->state), FS_SLOT_ASLEEP);
	cr_expect(slot->failed && slot->why.msg[0]);
	cr_expect_eq(fs_slot_need(s, slot), FS_SLOT_FAILED);
	cr_expect(slot->virt && slot->shards);
	fs_slot_unpin(s, slot);
	ck_str_free(&out);
}

Test(slots, the_newest_is_known_without_waking_it)
{
	struct fs_slot *slot;
	uint32_t number;
	char *latest;

	stepkit_put(&kit, 900, "abcd");
	number = visit(900);
	make_many(100);
	latest = fs_slots_latest(s);
	cr_expect_str_eq(latest, "step-900");
	free(latest);
	slot = fs_slots_pin(s, number);
	cr_expect_eq(atomic_load(&slot->state), FS_SLOT_ASLEEP);
	fs_slot_unpin(s, slot);
	stepkit_drop(&kit, 900);
	latest = fs_slots_latest(s);
	cr_expect_str_eq(latest, "step-131");
	free(latest);
}

Test(slots, the_kernel_is_asked_to_forget_what_is_too_much)
{
	char name[256];

	for (unsigned i = 0; i < FS_KNOWN_SLOTS + 2; i++) {
		struct fs_slot *slot;

		stepkit_put(&kit, i, "abcd");
		slot = entry(i);
		cr_assert(slot);
		fs_slot_know(s, slot);
		fs_slot_unpin(s, slot);
	}
	cr_expect(fs_slots_wait(s));
	cr_expect(fs_slots_crowded(s, name));
	cr_expect_str_eq(name, "step-0");
	cr_expect(fs_slots_crowded(s, name));
	cr_expect_str_eq(name, "step-1");
	cr_expect_not(fs_slots_crowded(s, name), "each is named once");
	fs_slot_unpin(s, entry(0));
	cr_expect(fs_slots_crowded(s, name), "it was looked up again");
	cr_expect_str_eq(name, "step-2");
	fs_slots_end_wait(s);
	cr_expect_not(fs_slots_wait(s));
}
