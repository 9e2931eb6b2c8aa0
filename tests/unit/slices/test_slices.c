/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Checkpoints that are written as slices: what is known of them after deaths,
 * what is said of missing bytes, and what is refused.
 */
#include "tests/lib/slicekit.h"

#include "core/publish/recover.h"
#include "core/slices/claims.h"
#include "tests/lib/faults.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <fcntl.h>
#include <glob.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

TestSuite(slices, .init = slicekit_setup, .fini = slicekit_teardown,
	  .timeout = 120);

static const char plain[] =
	DOC(TWO,
	    TENSOR("r", "float32", "[8,600]",
		   PLACE("{\"a\":{\"shard\":0}}")) "," TENSOR("n", "float32",
							      "[900]", ""),
	    "");

Test(slices, tensors_are_aligned_and_copies_once)
{
	struct ck_err err = { 0 };
	uint64_t bytes = 0;
	struct slicekit j;

	slicekit_open(&j, "step", plain);
	for (uint32_t i = 0; i < ck_slices_plan(j.sl)->nr_pieces; i++) {
		cr_assert_eq(ck_slices_plan(j.sl)->pieces[i].off % 4096, 0);
		bytes += ck_slices_plan(j.sl)->pieces[i].len;
	}
	cr_assert_eq(bytes, 8 * 600 * 4 + 900 * 4);
	slicekit_write_ranks(j.sl);
	slicekit_close(&j);
	cr_assert_eq(slicekit_publish("step", &err), 0, "%s", err.msg);
}

/* ---- what is missing ---- */

Test(slices, a_missing_byte_is_named)
{
	struct ck_err err = { 0 };
	struct ck_slices_missing *v;
	char c = 1;
	size_t nr;
	struct slicekit j;
	const struct ck_slice_plan *p;
	uint32_t piece;

	slicekit_open(&j, "step", plain);
	p = ck_slices_plan(j.sl);
	slicekit_write_ranks(j.sl);
	/* rank 4 is the second half of the rows */
	piece = p->entries[ck_slice_plan_find_entry(
		p, 4, ck_slice_plan_find_tensor(p, "r"))];
	cr_assert_eq(
		ck_slice_empty(j.sl, (struct ck_slice){ .nr = piece }, &err),
		0);
	for (uint64_t i = 0; i < p->pieces[piece].len; i++)
		if (i != 77)
			cr_assert_eq(
				ck_slice_write(j.sl,
					       (struct ck_slice){ .nr = piece },
					       &c, 1, i, false, &err),
				0);
	cr_assert_eq(ck_slice_read(j.sl, (struct ck_slice){ .nr = piece }, &c,
				   1, 77, false, &err),
		     -EIO);
	cr_assert_eq(ck_slices_lacks(j.sl, &v, &nr, &err), 0);
	cr_assert_eq(nr, 3);
	cr_assert_eq(v[1].rank, 4);
	cr_assert_eq(v[1].bytes, 1);
	cr_assert_eq(v[1].whole, 1);
	cr_assert_str_eq(v[1].tensor, "r");
	cr_assert_eq(v[1].from, 77);
	free(v);
	slicekit_close(&j);
	cr_assert_eq(slicekit_publish("step", &err), -ENODATA);
	cr_assert_str_eq(err.msg, "step: not complete: r: bytes 77 to 78 of "
				  "9600 were not written (slice of ranks 3, 4, "
				  "5)");
}

Test(slices, a_write_that_fails_leaves_nothing_claimed)
{
	const struct ck_slice of = { .nr = 0 };
	struct ck_err err = { 0 };
	struct slicekit j;
	char c = 1;

	slicekit_open(&j, "step", plain);
	slicekit_write_ranks(j.sl);
	fault_set_kind(CK_FAULT_WRITE, 1, 1, ENOSPC);
	cr_assert_eq(ck_slice_write(j.sl, of, &c, 1, 9, false, &err), -ENOSPC);
	cr_assert_eq(ck_slice_read(j.sl, of, &c, 1, 8, false, &err), 0);
	cr_assert_eq(ck_slice_read(j.sl, of, &c, 1, 9, false, &err), -EIO);
	slicekit_close(&j);
	cr_assert_eq(slicekit_publish("step", &err), -ENODATA);
}

Test(slices, a_failed_fsync_dooms)
{
	const struct ck_slice of = { .nr = 0 };
	struct ck_err err = { 0 };
	struct slicekit j;

	slicekit_open(&j, "step", plain);
	slicekit_write_ranks(j.sl);
	fault_set_kind(CK_FAULT_SYNC, 1, 1, EIO);
	cr_assert_eq(ck_slice_sync(j.sl, of, &err), -EIO);
	slicekit_close(&j);
	cr_assert_eq(slicekit_publish("step", &err), -EIO, "%s", err.msg);
}

/* ---- several, and deaths ---- */

Test(slices, two_opened_at_once_are_combined)
{
	struct ck_err err = { 0 };
	const struct ck_slice_plan *p;
	struct slicekit a, b;
	char c;

	slicekit_open(&a, "step", plain);
	slicekit_open(&b, "step", plain);
	p = ck_slices_plan(a.sl);
	for (uint32_t i = 0; i < p->nr_pieces; i++)
		slicekit_write_piece(i % 2 ? a.sl : b.sl, i, 1000);
	/* what the other wrote is read, too */
	for (uint32_t i = 0; i < p->nr_pieces; i++)
		cr_assert_eq(ck_slice_read(i % 2 ? b.sl : a.sl,
					   (struct ck_slice){ .nr = i }, &c, 1,
					   0, false, &err),
			     0, "%s", err.msg);
	cr_assert_eq(slicekit_publish("step", &err), 0, "%s", err.msg);
	slicekit_close(&a);
	slicekit_close(&b);
	slicekit_read_back("step", 2);
}

Test(slices, another_layout_is_refused_the_same_is_not)
{
	static const char other[] =
		DOC(TWO, TENSOR("w", "float32", "[3,5]", ""), "");
	struct ck_err err = { 0 };
	struct slicekit j;

	slicekit_open(&j, "step", plain);
	cr_assert_eq(ck_slices_make(j.s, &slicekit_root, &slicekit_opts, plain,
				    strlen(plain), &err),
		     0);
	cr_assert_eq(ck_slices_make(j.s, &slicekit_root, &slicekit_opts, other,
				    strlen(other), &err),
		     -EEXIST);
	slicekit_close(&j);
}

/* Dies after @nr calls; the next writes only what is not there. */
static void write_some(const char *name, long nr)
{
	pid_t pid = fork();
	int status;

	if (!pid) {
		struct slicekit j;

		slicekit_open(&j, name, plain);
		for (uint32_t i = 0; i < ck_slices_plan(j.sl)->nr_pieces; i++) {
			const struct ck_slice of = { .nr = i };
			unsigned char *v =
				slicekit_expected(ck_slices_plan(j.sl), i);

			for (uint64_t at = 0; at < ck_slice_size(j.sl, of);
			     at += 100) {
				char c;

				if (!ck_slice_read(j.sl, of, &c, 1, at, false,
						   NULL))
					continue;
				if (!nr--)
					raise(SIGKILL);
				if (ck_slice_write(j.sl, of, v + at, 100, at,
						   false, NULL))
					_exit(1);
			}
			free(v);
		}
		_exit(0);
	}
	cr_assert_eq(waitpid(pid, &status, 0), pid);
	cr_assert(WIFSIGNALED(status) || !WEXITSTATUS(status));
}

static size_t logs(const char *name)
{
	char pattern[128];
	glob_t g = { 0 };
	size_t nr;

	snprintf(pattern, sizeof(pattern), "%s/.staging-%s/slices/w-*.log",
		 slicekit_top, name);
	glob(pattern, 0, NULL, &g);
	nr = g.gl_pathc;
	globfree(&g);
	return nr;
}

Test(slices, what_was_written_outlives_its_writer)
{
	struct ck_err err = { 0 };

	for (long n = 1; n < 30; n += 7)
		write_some("step", n);
	cr_assert_eq(slicekit_publish("step", &err), -ENODATA);
	write_some("step", 10000);
	/* whoever came took over what the one before had left */
	cr_assert_eq(logs("step"), 1);
	cr_assert_eq(slicekit_publish("step", &err), 0, "%s", err.msg);
	slicekit_read_back("step", 2);
}

/* As if the machine had lost its power: another boot reads the logs. */
static void forget_boot(const char *name)
{
	char pattern[128];
	glob_t g = { 0 };

	snprintf(pattern, sizeof(pattern), "%s/.staging-%s/slices/w-*",
		 slicekit_top, name);
	cr_assert_eq(glob(pattern, 0, NULL, &g), 0);
	for (size_t i = 0; i < g.gl_pathc; i++) {
		int fd = open(g.gl_pathv[i], O_WRONLY);

		cr_assert_eq(pwrite(fd, "another boot", 13, 24), 13);
		close(fd);
	}
	globfree(&g);
}

Test(slices, after_a_loss_of_power_only_what_was_synced_counts)
{
	struct ck_err err = { 0 };
	const struct ck_slice_plan *p;
	struct slicekit j;
	char c;

	slicekit_open(&j, "step", plain);
	p = ck_slices_plan(j.sl);
	cr_assert(p->nr_pieces >= 3);
	for (uint32_t i = 0; i < p->nr_pieces; i++)
		slicekit_write_piece(j.sl, i, 1000);
	cr_assert_eq(ck_slice_sync(j.sl, (struct ck_slice){ .nr = 0 }, &err),
		     0);
	slicekit_close(&j);
	forget_boot("step");
	cr_assert_eq(slicekit_publish("step", &err), -ENODATA, "%s", err.msg);

	slicekit_open(&j, "step", NULL);
	p = ck_slices_plan(j.sl);
	cr_assert_eq(ck_slice_read(j.sl, (struct ck_slice){ .nr = 0 }, &c, 1, 0,
				   false, &err),
		     0, "%s", err.msg);
	for (uint32_t i = 0; i < p->nr_pieces; i++)
		if (p->pieces[i].file != p->pieces[0].file)
			cr_assert_eq(ck_slice_read(j.sl,
						   (struct ck_slice){ .nr = i },
						   &c, 1, 0, false, &err),
				     -EIO);
	for (uint32_t i = 0; i < p->nr_pieces; i++)
		slicekit_write_piece(j.sl, i, 1000);
	/* and once more: what was taken over is as safe as before */
	cr_assert_eq(ck_slices_sync(j.sl, &err), 0, "%s", err.msg);
	slicekit_close(&j);
	forget_boot("step");
	cr_assert_eq(slicekit_publish("step", &err), 0, "%s", err.msg);
	slicekit_read_back("step", 2);
}

Test(slices, begun_anew_is_not_what_it_was_after_a_loss_of_power)
{
	const struct ck_slice of = { .nr = 0 };
	struct ck_err err = { 0 };
	struct slicekit j;
	char c;

	slicekit_open(&j, "step", plain);
	slicekit_write_piece(j.sl, 0, 1000);
	cr_assert_eq(ck_slice_sync(j.sl, of, &err), 0);
	cr_assert_eq(ck_slice_empty(j.sl, of, &err), 0);
	slicekit_close(&j);
	forget_boot("step");
	slicekit_open(&j, "step", NULL);
	cr_assert_eq(ck_slice_read(j.sl, of, &c, 1, 0, false, &err), -EIO);
	slicekit_close(&j);
}

static off_t log_size(const char *name)
{
	char pattern[128];
	glob_t g = { 0 };
	struct stat st = { 0 };

	snprintf(pattern, sizeof(pattern), "%s/.staging-%s/slices/w-*",
		 slicekit_top, name);
	cr_assert_eq(glob(pattern, 0, NULL, &g), 0);
	cr_assert_eq(g.gl_pathc, 1);
	cr_assert_eq(stat(g.gl_pathv[0], &st), 0);
	globfree(&g);
	return st.st_size;
}

/* Written anew again and again, of which the last time counts. */
Test(slices, a_journal_stays_short)
{
	const struct ck_slice of = { .nr = 0 }, other = { .nr = 1 };
	struct ck_err err = { 0 };
	struct slicekit j;
	uint64_t whole, other_size;
	char c;

	ck_claims_slack = 4096;
	slicekit_open(&j, "step", plain);
	slicekit_write_piece(j.sl, 0, 1000);
	cr_assert_eq(ck_slice_sync(j.sl, of, &err), 0);
	for (int i = 0; i < 3000; i++) {
		slicekit_write_piece(j.sl, 1, 1000);
		cr_assert_eq(ck_slice_empty(j.sl, other, &err), 0, "%s",
			     err.msg);
	}
	cr_expect_lt(log_size("step"), 20000);
	whole = ck_slice_size(j.sl, of);
	other_size = ck_slice_size(j.sl, other);
	slicekit_close(&j);
	slicekit_open(&j, "step", NULL);
	cr_expect_eq(ck_slice_written(j.sl, of), whole);
	cr_expect_eq(ck_slice_written(j.sl, other), 0);
	slicekit_write_piece(j.sl, 1, 1000);
	cr_expect_eq(ck_slice_written(j.sl, other), other_size);
	slicekit_close(&j);
	forget_boot("step");
	slicekit_open(&j, "step", NULL);
	cr_expect_eq(ck_slice_written(j.sl, of), whole);
	cr_expect_eq(ck_slice_read(j.sl, other, &c, 1, 0, false, &err), -EIO);
	slicekit_close(&j);
}

/* In a process of its own, for steps are counted by process. */
static int apart(int (*call)(const char *name), const char *name,
		 const char *nth)
{
	pid_t pid = fork();
	int status;

	if (!pid) {
		if (nth)
			setenv("UNSHARD_PUBLISH_FAULT", nth, 1);
		_exit(call(name));
	}
	cr_assert_eq(waitpid(pid, &status, 0), pid);
	return status;
}

static int publish_once(const char *name)
{
	struct ck_err err = { 0 };
	int ret = slicekit_publish(name, &err);

	if (ret)
		fprintf(stderr, "%s\n", err.msg);
	return ret != 0;
}

static int do_the_rest(const char *name)
{
	struct ck_err err = { 0 };
	int ret = ck_recover(&slicekit_root, name, &slicekit_opts, &err);

	/* the draft was out of the way already, and only to be removed */
	if (ret == -ENOENT)
		return 0;
	if (ret < 0)
		fprintf(stderr, "%s\n", err.msg);
	return ret < 0 || (!ret && publish_once(name));
}

/* A publish that dies at each of its steps, and is done again. */
Test(slices, killed_at_every_step_of_a_publish)
{
	int died = 0, status = SIGKILL;

	for (int point = 1; WIFSIGNALED(status) && point < 60; point++) {
		char name[32], nth[16];
		struct slicekit j;

		snprintf(name, sizeof(name), "step-%d", point);
		slicekit_open(&j, name, plain);
		slicekit_write_ranks(j.sl);
		slicekit_close(&j);
		snprintf(nth, sizeof(nth), "%d", point);
		status = apart(publish_once, name, nth);
		died += WIFSIGNALED(status);
		if (WIFSIGNALED(status))
			cr_assert_eq(apart(do_the_rest, name, NULL), 0,
				     "point %d", point);
		slicekit_read_back(name, 2);
	}
	cr_assert(died > 15, "%d", died);
}

/* ---- what only a publisher would find ---- */

static void put_shard(const char *name, const char *text)
{
	char path[300];
	FILE *f;

	snprintf(path, sizeof(path), "%s/.staging-step/files/%s", slicekit_top,
		 name);
	f = fopen(path, "w");
	cr_assert(f && fputs(text, f) >= 0 && !fclose(f));
}

/* Status and publish say the same. */
static void both_refuse(const char *why)
{
	struct ck_draft_list all;
	struct ck_err err = { 0 };

	cr_assert_eq(
		ck_draft_list(&all, &slicekit_root, &slicekit_opts, true, &err),
		0, "%s", err.msg);
	cr_assert_eq(all.nr, 1);
	cr_expect(!all.v[0].complete && strstr(all.v[0].why, why), "%d: %s",
		  all.v[0].complete, all.v[0].why);
	ck_draft_list_free(&all);
	cr_assert_lt(slicekit_publish("step", &err), 0);
	cr_expect(strstr(err.msg, why), "%s", err.msg);
}

static void all_written(void)
{
	struct slicekit j;

	slicekit_open(&j, "step", plain);
	slicekit_write_ranks(j.sl);
	slicekit_close(&j);
}

Test(slices, a_file_in_the_way_is_not_complete)
{
	all_written();
	put_shard("rank-00000.safetensors", "mine");
	both_refuse("rank-00000.safetensors is in the way");
	both_refuse("rank-00000.safetensors is in the way");
}

Test(slices, what_publish_refused_is_not_complete)
{
	all_written();
	put_shard("unshard-layout.json", "{\"unshard_layout\":7}");
	both_refuse("unshard_layout");
	both_refuse("unshard_layout");
}

/* ---- what is refused ---- */

static void refused(const char *layout, const char *why)
{
	struct ck_err err = { 0 };
	struct ck_draft *s;

	cr_assert_eq(ck_draft_make(&s, &slicekit_root, "bad", &err), 0, "%s",
		     err.msg);
	cr_assert_neq(ck_slices_make(s, &slicekit_root, &slicekit_opts, layout,
				     strlen(layout), &err),
		      0, "%s", layout);
	cr_assert(strstr(err.msg, why), "%s\nexpected %s", err.msg, why);
	cr_assert(!ck_slices_look(s));
	cr_assert_eq(ck_draft_lock(s, &err), 0);
	cr_assert_eq(ck_draft_remove(s, &err), 0);
	ck_draft_close(s);
}

Test(slices, layouts_that_do_not_make_sense)
{
	refused("{", "unshard-layout.json");
	refused("{\"unshard_layout\":1,\"tensors\":[]}", "\"write\"");
	refused(DOC(TWO, "", ""), "no tensor to write");
	refused(DOC(TWO,
		    TENSOR("w", "float32", "[5]",
			   PLACE("{\"a\":{\"shard\":0}}")),
		    ""),
		"do not make 2 even parts");
	refused(DOC(TWO, "{\"name\":\"w\",\"shape\":[5]}", ""),
		"lacks \"dtype\"");
	refused(DOC(TWO, "{\"name\":\"w\",\"dtype\":\"float32\"}", ""),
		"lacks \"shape\"");
	refused(DOC(TWO, TENSOR("w", "float32", "[5]", ""),
		    "\"path\":\"x.safetensors\""),
		"would both be x.safetensors");
	refused(DOC(TWO, TENSOR("w", "float32", "[5]", ""),
		    "\"path\":\"../{rank}.safetensors\""),
		"name of a file");
	refused(DOC(TWO, TENSOR("w", "float32", "[5]", ""), "\"align\":3"),
		"power of 2");
	refused(DOC(TWO, TENSOR("w", "float32", "[5]", ""), "\"what\":3"),
		"unknown member");
	refused(DOC(TWO, TENSOR("w", "float32", "[5]", ""),
		    "\"tensors\":[{\"name\":\"v\"}]"),
		"no member of \"tensors\" matches v");
	refused(DOC(TWO, TENSOR("w", "float32", "[5]", ""),
		    "\"tensors\":[{\"name\":\"w\"},{\"name\":\"w\"}]"),
		"occurs twice");
	refused(DOC(TWO,
		    TENSOR("w", "float32", "[6]", ",\"at\":{\"a\":\"{b+1}\"}"),
		    ""),
		"nothing says which b it is");
	refused(DOC(TWO,
		    TENSOR("w", "float32", "[6]", ",\"at\":{\"a\":\"{rank}\"}"),
		    ""),
		"nothing says which rank it is");
	refused(DOC(TWO,
		    TENSOR("w", "float32", "[6]",
			   PLACE("{\"b\":{\"flat\":true}}")),
		    "\"format\":\"dcp\""),
		"DCP has neither flat");
	refused(DOC(TWO, TENSOR("w", "float32", "[6]", ""),
		    "\"format\":\"zip\""),
		"found \"zip\"");
	refused(DOC(TWO, TENSOR("w", "complex128", "[5]", ""), ""),
		"w: complex128: safetensors has no name for its dtype");
	refused(DOC(TWO, TENSOR("w", "float4_e2m1fn_x2", "[]", ""), ""),
		"a scalar holds two");
	refused(DOC(TWO, TENSOR("__metadata__", "uint8", "[4]", ""), ""),
		"__metadata__: uint8: safetensors reserves the name");
	refused(DOC(TWO, TENSOR("w", "float32", "[4611686018427387903]", ""),
		    ""),
		"too large");
}

Test(slices, boxes_that_do_not_make_sense)
{
	refused(DOC(TWO,
		    TENSOR("w", "float32", "[4]",
			   ",\"boxes\":[{\"at\":{\"rank\":0},\"start\":[0],"
			   "\"size\":[3]}]"),
		    ""),
		"1 of 4 elements (4 bytes) are stored nowhere");
	refused(DOC(TWO,
		    TENSOR("w", "float32", "[4]",
			   ",\"boxes\":[{\"at\":{\"rank\":0},\"start\":[0],"
			   "\"size\":[3]},{\"at\":{\"rank\":1},\"start\":[2],"
			   "\"size\":[2]}]"),
		    ""),
		"w");
	refused(DOC(TWO,
		    TENSOR("w", "float32", "[4]",
			   ",\"boxes\":[{\"at\":{\"rank\":0},\"start\":[3],"
			   "\"size\":[9]}]"),
		    ""),
		"write: w: dimension 0: elements 3 to 12 of 4");
}

/* A plan comes from a directory that others write to. */
Test(slices, damaged_plans_and_logs)
{
	struct ck_err err = { 0 };
	struct ck_str bytes = { 0 };

	cr_assert_eq(ck_slice_plan_make(&bytes, "x", plain, strlen(plain), NULL,
					&err),
		     0, "%s", err.msg);
	for (size_t i = 0; i < bytes.len; i++) {
		char *copy = malloc(bytes.len);
		struct ck_slice_plan p;

		memcpy(copy, bytes.v, bytes.len);
		copy[i] ^= 0x41;
		cr_assert_neq(ck_slice_plan_take(&p, copy, bytes.len, &err), 0,
			      "byte %zu", i);
		copy = malloc(i + 1);
		memcpy(copy, bytes.v, i);
		cr_assert_neq(ck_slice_plan_take(&p, copy, i, &err), 0);
	}
	ck_str_free(&bytes);
}
