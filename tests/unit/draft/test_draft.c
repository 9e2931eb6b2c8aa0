/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Drafts: making, sharing, locking; publishing at every step of which the
 * process dies or the disk fails; and what recover and gc make of the rest.
 */
#include "core/ckpt/ckpt.h"
#include "core/draft/dir_tree.h"
#include "core/publish/commit.h"
#include "core/publish/sparse_check.h"
#include "core/manifest/manifest.h"
#include "core/publish/recover.h"
#include "core/draft/draft.h"
#include "tests/lib/faults.h"
#include "tests/lib/openckpt.h"
#include "tests/lib/unconfined.h"

#include <criterion/criterion.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static char top[] = "/tmp/ck-staging-XXXXXX";
static struct ck_root root;
static struct ck_opts opts;

static int gone(const char *path, const struct stat *st, int type,
		struct FTW *ftw)
{
	(void)st, (void)type, (void)ftw;
	return remove(path);
}

static void setup(void)
{
	struct ck_err err = { 0 };

	cr_assert(mkdtemp(top));
	cr_assert_eq(ck_root_open(&root, top, NULL, &err), 0, "%s", err.msg);
	unconfined(&opts);
}

static void teardown(void)
{
	ck_root_close(&root);
	ck_opts_free(&opts);
	nftw(top, gone, 16, FTW_DEPTH | FTW_PHYS);
}

TestSuite(draft, .init = setup, .fini = teardown);

static bool there(const char *rel)
{
	struct stat st;

	return !fstatat(root.fd, rel, &st, AT_SYMLINK_NOFOLLOW);
}

static void put(int dir, const char *name, const void *bytes, size_t len)
{
	int fd = openat(dir, name, O_WRONLY | O_CREAT | O_TRUNC, 0644);

	cr_assert(fd >= 0, "%s: %s", name, strerror(errno));
	cr_assert_eq(write(fd, bytes, len), (ssize_t)len);
	close(fd);
}

/* A checkpoint of one tensor "a" of 16 bytes in two files. */
static void put_shards(int dir, const char *bytes)
{
	static const char head[] = "{\"%s\":{\"dtype\":\"U8\",\"shape\":[16],"
				   "\"data_offsets\":[0,16]}}";
	static const char *const name[] = { "a", "b" };
	char file[64], text[256];

	for (int i = 0; i < 2; i++) {
		int n = snprintf(text + 8, sizeof(text) - 8, head, name[i]);
		uint64_t len = (uint64_t)n;

		memcpy(text, &len, 8);
		memcpy(text + 8 + n, bytes, 16);
		snprintf(file, sizeof(file),
			 "model-0000%d-of-00002.safetensors", i + 1);
		put(dir, file, text, 8 + (size_t)n + 16);
	}
}

static struct ck_draft *make(const char *name)
{
	struct ck_err err = { 0 };
	struct ck_draft *s = NULL;

	cr_assert_eq(ck_draft_make(&s, &root, name, &err), 0, "%s", err.msg);
	return s;
}

static void tree(const char *name, const char *bytes)
{
	struct ck_draft *s = make(name);

	put_shards(s->files_fd, bytes);
	ck_draft_close(s);
}

static int publish(const char *name, const char *as, bool replace,
		   struct ck_err *err)
{
	const struct ck_commit_in in = { .opts = &opts,
					 .as = as,
					 .replace = replace };
	struct ck_draft *s;
	int ret = ck_draft_open(&s, &root, name, err);

	if (ret)
		return ret;
	ret = ck_commit(s, &in, err);
	ck_draft_close(s);
	return ret;
}

static bool any_draft(void)
{
	DIR *d = opendir(top);
	const struct dirent *e;
	bool any = false;

	while ((e = readdir(d)))
		any |= !strncmp(e->d_name, ".staging-", 9);
	closedir(d);
	return any;
}

/* Tensor @name of SRC/@step is @bytes. */
static bool holds(const char *step, const char *bytes)
{
	char path[256], got[2][16];
	struct ck_err err = { 0 };
	struct ck_ckpt *ck;
	bool ok;

	snprintf(path, sizeof(path), "%s/%s", top, step);
	if (open_ckpt(&ck, path, &opts, &err))
		return false;
	ok = ck_ckpt_catalog(ck)->nr_tensors == 2;
	for (uint32_t i = 0; ok && i < 2; i++)
		ok = !ck_ckpt_read(ck, i, got[i], 16, 0, &err) &&
		     !memcmp(got[i], bytes, 16);
	ck_ckpt_close(ck);
	return ok;
}

static bool is_sealed(const char *step)
{
	struct ck_manifest m;
	struct ck_root r;
	char path[256];
	bool ok;

	snprintf(path, sizeof(path), "%s/%s", top, step);
	cr_assert_eq(ck_root_open(&r, path, NULL, NULL), 0);
	ok = !ck_manifest_load(&m, &r, NULL) && m.nr_files == 2;
	if (ok)
		ck_manifest_free(&m);
	ck_root_close(&r);
	return ok;
}

Test(draft, names)
{
	cr_expect(ck_draft_name_ok("step-1"));
	cr_expect(!ck_draft_name_ok(""));
	cr_expect(!ck_draft_name_ok(".step"));
	cr_expect(!ck_draft_name_ok("a/b"));
	cr_expect(!ck_draft_name_ok(".."));
	cr_expect(!ck_draft_name_ok("latest"));
}

Test(draft, is_made_once_and_joined)
{
	struct ck_draft *a = make("step-1"), *b;
	struct ck_err err;

	cr_expect_eq(ck_draft_make(&b, &root, "step-1", &err), -EEXIST);
	cr_expect_eq(ck_draft_open(&b, &root, "step-2", &err), -ENOENT);
	cr_assert_eq(ck_draft_open(&b, &root, "step-1", &err), 0);
	cr_expect_eq(b->files_st.st_ino, a->files_st.st_ino);
	ck_draft_close(a);
	ck_draft_close(b);
	mkdirat(root.fd, "step-3", 0755);
	cr_expect_eq(ck_draft_make(&b, &root, "step-3", &err), -EEXIST);
}

/* Two open drafts stand for two nodes: locks are of descriptions. */
Test(draft, nobody_publishes_while_another_writes)
{
	struct ck_draft *a = make("step-1"), *b;
	const struct ck_commit_in in = { .opts = &opts };
	struct ck_err err = { 0 };

	cr_assert_eq(ck_draft_open(&b, &root, "step-1", &err), 0);
	put_shards(a->files_fd, "0123456789abcdef");
	cr_assert_eq(ck_draft_begin(b, &err), 0);
	cr_expect_eq(ck_commit(a, &in, &err), -EBUSY);
	cr_expect_eq(ck_commit(b, &in, &err), -EBUSY);
	cr_expect(!there("step-1"));
	ck_draft_end(b);
	cr_assert_eq(ck_draft_lock(a, &err), 0);
	cr_expect_eq(ck_draft_begin(a, &err), -EBUSY);
	cr_expect_eq(ck_draft_begin(b, &err), -EBUSY);
	cr_expect_eq(ck_commit(b, &in, &err), -EBUSY);
	ck_draft_unlock(a);
	cr_expect_eq(ck_commit(a, &in, &err), 0, "%s", err.msg);
	cr_expect_eq(ck_commit(b, &in, &err), -ESTALE);
	cr_expect_eq(ck_draft_begin(b, &err), -ESTALE);
	cr_expect_eq(ck_draft_begin(a, &err), -ESTALE);
	cr_expect(holds("step-1", "0123456789abcdef"));
	cr_expect(is_sealed("step-1"));
	cr_expect(!there(".staging-step-1"));
	ck_draft_close(a);
	ck_draft_close(b);
}

Test(draft, what_lacks_a_file_stays)
{
	struct ck_draft *s = make("step-1");
	struct ck_err err = { 0 };

	cr_expect_eq(publish("step-1", NULL, false, &err), -ENODATA);
	cr_expect(strstr(err.msg, "nothing"), "%s", err.msg);
	put_shards(s->files_fd, "0123456789abcdef");
	unlinkat(s->files_fd, "model-00002-of-00002.safetensors", 0);
	cr_expect_eq(publish("step-1", NULL, false, &err), -ENODATA);
	cr_expect(strstr(err.msg, "step-1: not complete: "), "%s", err.msg);
	put_shards(s->files_fd, "0123456789abcdef");
	put(s->files_fd, "model-00002-of-00002.safetensors", "short", 5);
	cr_expect_eq(publish("step-1", NULL, false, &err), -ENODATA);
	put_shards(s->files_fd, "0123456789abcdef");
	mkfifoat(s->files_fd, "pipe", 0600);
	cr_expect_eq(publish("step-1", NULL, false, &err), -ENODATA);
	cr_expect(strstr(err.msg, "pipe: expected"), "%s", err.msg);
	unlinkat(s->files_fd, "pipe", 0);
	cr_expect(!there("step-1"));
	cr_expect_eq(publish("step-1", NULL, false, &err), 0, "%s", err.msg);
	ck_draft_close(s);
}

Test(draft, a_name_that_is_taken)
{
	struct ck_err err = { 0 };

	tree("step-1", "0123456789abcdef");
	cr_assert_eq(publish("step-1", NULL, false, &err), 0, "%s", err.msg);
	tree("new", "fedcba9876543210");
	cr_expect_eq(publish("new", "step-1", false, &err), -EEXIST);
	cr_expect(holds("step-1", "0123456789abcdef"));
	cr_expect_eq(publish("new", "../x", true, &err), -EINVAL);
	cr_expect_eq(publish("new", "step-1", true, &err), 0, "%s", err.msg);
	cr_expect(holds("step-1", "fedcba9876543210"));
	cr_expect(!there(".staging-new"));
}

/* Ends by itself where @nth is past the last step: true. */
static bool dies_at(long nth, const char *name, const char *as, bool replace)
{
	struct ck_err err = { 0 };
	pid_t pid = fork();
	int status;

	if (!pid) {
		fault_point_set(nth, 0);
		_exit(publish(name, as, replace, &err) ? 2 : 0);
	}
	cr_assert_eq(waitpid(pid, &status, 0), pid);
	cr_assert(WIFSIGNALED(status) || WEXITSTATUS(status) == 0,
		  "step %ld: exit %d", nth, WEXITSTATUS(status));
	return !WIFSIGNALED(status);
}

/* Whoever comes next does the rest, whichever way he takes. */
static void do_the_rest(const char *name, const char *as, bool replace,
			bool by_recover, long nth)
{
	struct ck_err err = { 0 };
	int ret;

	if (by_recover) {
		ret = ck_recover(&root, name, &opts, &err);
		cr_expect(ret == 0 || ret == 1 || ret == -ENOENT,
			  "recover after %ld: %s", nth, err.msg);
		if (ret == 1)
			return;
	}
	ret = publish(name, as, replace, &err);
	cr_expect(!ret || ret == -ENOENT, "publish after %ld: %s", nth,
		  err.msg);
}

static long kill_everywhere(bool replace, bool by_recover)
{
	static const char old[] = "0123456789abcdef",
			  new[] = "fedcba9876543210";
	long nth = 1;
	bool ended;

	do {
		struct ck_err err = { 0 };

		if (replace) {
			tree("step-1", old);
			cr_assert_eq(publish("step-1", NULL, false, &err), 0,
				     "%s", err.msg);
		}
		tree("new", new);
		ended = dies_at(nth, "new", "step-1", replace);
		if (there("step-1"))
			cr_expect(holds("step-1", new) ||
					  (replace && holds("step-1", old)),
				  "torn at step %ld", nth);
		else
			cr_expect(!replace, "lost at step %ld", nth);
		do_the_rest("new", "step-1", replace, by_recover, nth);
		cr_expect(holds("step-1", new), "not published after %ld", nth);
		cr_expect(is_sealed("step-1"), "no manifest after %ld", nth);
		ck_commit_finish(&root, "new", NULL);
		ck_recover_sweep(&root);
		cr_expect(!any_draft(), "left over after %ld", nth);
		cr_assert_eq(ck_dir_tree_remove(root.fd, "step-1", &err), 0);
		nth++;
	} while (!ended && nth < 200);
	return nth - 2;
}

Test(draft, killed_at_every_step_of_a_publish)
{
	long points = kill_everywhere(false, false);

	points += kill_everywhere(false, true);
	points += kill_everywhere(true, false);
	points += kill_everywhere(true, true);
	cr_expect_geq(points, 60, "%ld", points);
}

/* A tensor of 64 KiB that nobody wrote, in a file of full size. */
static void draft_hole(const char *name)
{
	static const char head[] = "{\"a\":{\"dtype\":\"U8\",\"shape\":"
				   "[65536],\"data_offsets\":[0,65536]}}";
	const uint64_t len = sizeof(head) - 1;
	struct ck_draft *s = make(name);
	int fd = openat(s->files_fd, "model.safetensors", O_RDWR | O_CREAT,
			0644);

	cr_assert(fd >= 0);
	cr_assert_eq(pwrite(fd, &len, 8, 0), 8);
	cr_assert_eq(pwrite(fd, head, len, 8), (ssize_t)len);
	cr_assert_eq(ftruncate(fd, (off_t)(8 + len + 65536)), 0);
	close(fd);
	ck_draft_close(s);
}

static int publish_hole(const char *name, bool holes, struct ck_err *err)
{
	const struct ck_commit_in in = { .opts = &opts, .holes = holes };
	struct ck_draft *s;
	int ret = ck_draft_open(&s, &root, name, err);

	cr_assert_eq(ret, 0, "%s", err->msg);
	ret = ck_commit(s, &in, err);
	ck_draft_close(s);
	return ret;
}

Test(draft, what_nobody_wrote_is_not_published)
{
	struct ck_err err = { 0 };

	draft_hole("step-1");
	cr_expect_eq(publish_hole("step-1", false, &err), -ENODATA);
	cr_expect(strstr(err.msg, "model.safetensors: bytes "), "%s", err.msg);
	cr_expect(strstr(err.msg, ", of a, are a hole"), "%s", err.msg);
	cr_expect(!there("step-1"));
	cr_expect_eq(publish_hole("step-1", true, &err), 0, "%s", err.msg);
	cr_expect(!ck_sparse_from_zeros(root.fd), "zeros become holes here");
}

/* Who ends it need not be told again. */
Test(draft, zeros_that_are_meant_are_so_after_a_crash)
{
	struct ck_err err = { 0 };
	int begun = 0, status;

	for (long nth = 1; nth < 200; nth++) {
		pid_t pid;
		int ret;

		draft_hole("step-1");
		pid = fork();
		if (!pid) {
			fault_point_set(nth, 0);
			_exit(publish_hole("step-1", true, &err) ? 2 : 0);
		}
		cr_assert_eq(waitpid(pid, &status, 0), pid);
		ret = ck_recover(&root, "step-1", &opts, &err);
		cr_expect(ret >= 0 || ret == -ENOENT, "%ld: %s", nth, err.msg);
		begun += ret == 1;
		if (!there("step-1"))
			cr_expect_eq(publish_hole("step-1", true, &err), 0);
		ck_recover_sweep(&root);
		cr_assert_eq(ck_dir_tree_remove(root.fd, "step-1", &err), 0);
		if (!WIFSIGNALED(status))
			break;
	}
	cr_expect_geq(begun, 2, "%d", begun);
}

Test(draft, the_disk_fails_at_every_step)
{
	static const char new[] = "fedcba9876543210";
	long nth = 0, passed;
	int ret;

	do {
		struct ck_err err = { 0 };
		bool seen;

		tree("step-1", new);
		fault_point_set(++nth, EIO);
		ret = publish("step-1", NULL, false, &err);
		passed = ck_fault_steps.passed;
		fault_point_set(0, 0);
		seen = there("step-1");
		/* -EIO after the rename: seen, and it says so */
		cr_expect(!ret || strstr(err.msg, "step-1") ||
				  strstr(err.msg, "manifest") ||
				  strstr(err.msg, "record") ||
				  strstr(err.msg, "rename"),
			  "%s", err.msg);
		if (seen)
			cr_expect(holds("step-1", new), "torn at %ld", nth);
		else
			cr_expect(ret, "step %ld: 0 and not there", nth);
		ret = publish("step-1", NULL, false, &err);
		cr_expect(!ret || ret == -EIO || ret == -ENOENT, "%s", err.msg);
		ck_commit_finish(&root, "step-1", NULL);
		if (there("step-1"))
			cr_expect(holds("step-1", new), "torn at %ld", nth);
		ck_dir_tree_remove(root.fd, "step-1", NULL);
		ck_dir_tree_remove(root.fd, ".staging-step-1", NULL);
	} while (passed >= nth && nth < 200);
	cr_expect_gt(nth, 10);
}

Test(draft, a_failed_fsync_dooms_it)
{
	struct ck_draft_list l;
	struct ck_err err = { 0 };

	tree("step-1", "0123456789abcdef");
	fault_point_set(1, EIO);
	cr_expect_eq(publish("step-1", NULL, false, &err), -EIO);
	cr_expect(strstr(err.msg, "fsync"), "%s", err.msg);
	fault_point_set(0, 0);
	cr_expect_eq(publish("step-1", NULL, false, &err), -EIO);
	cr_expect(!there("step-1"));
	cr_assert_eq(ck_draft_list(&l, &root, &opts, true, &err), 0);
	cr_expect_eq(l.nr, 1);
	cr_expect_eq(l.v[0].state, CK_DRAFT_POISONED);
	cr_expect(strstr(l.v[0].why, "fsync"), "%s", l.v[0].why);
	ck_draft_list_free(&l);
	cr_expect_eq(ck_recover_gc(&root, "step-1", 0, &err), 0, "%s", err.msg);
	cr_expect(!there(".staging-step-1"));
}

Test(draft, is_listed_with_what_it_lacks)
{
	struct ck_draft *s = make("step-2");
	struct ck_draft_list l;
	struct ck_err err = { 0 };

	tree("step-1", "0123456789abcdef");
	put(s->files_fd, "model-00001-of-00002.safetensors", "short", 5);
	cr_assert_eq(ck_draft_begin(s, &err), 0);
	cr_assert_eq(ck_draft_list(&l, &root, &opts, true, &err), 0);
	cr_assert_eq(l.nr, 2);
	cr_expect_str_eq(l.v[0].name, "step-1");
	cr_expect_eq(l.v[0].state, CK_DRAFT_LEFT);
	cr_expect(l.v[0].complete, "%s", l.v[0].why);
	cr_expect_eq(l.v[0].files, 2);
	cr_expect_eq(l.v[1].state, CK_DRAFT_WRITING);
	cr_expect(!l.v[1].complete);
	cr_expect(*l.v[1].why);
	ck_draft_list_free(&l);
	cr_expect_eq(ck_recover_gc(&root, "step-2", 0, &err), -EBUSY);
	cr_expect_eq(ck_recover_gc(&root, "step-1", 3600, &err), -EAGAIN);
	cr_expect_eq(ck_recover_gc(&root, "step-1", 0, &err), 0, "%s", err.msg);
	cr_expect(!there(".staging-step-1"));
	ck_draft_end(s);
	ck_draft_close(s);
	cr_expect_eq(ck_recover_gc(&root, "step-2", 0, &err), 0, "%s", err.msg);
}

Test(draft, another_name)
{
	struct ck_draft *s = make("tmp");
	char path[PATH_MAX], was[NAME_MAX + 1];
	struct ck_err err = { 0 };

	put_shards(s->files_fd, "0123456789abcdef");
	mkdirat(root.fd, "step-1", 0755);
	cr_assert_eq(ck_draft_lock(s, &err), 0);
	cr_expect_str_eq(ck_draft_name(s, was), "tmp");
	cr_expect_eq(ck_draft_rename(s, "step-1", &err), -EEXIST);
	cr_expect_eq(ck_draft_rename(s, "step-2", &err), 0, "%s", err.msg);
	ck_draft_unlock(s);
	cr_expect(ck_draft_is_current(s));
	cr_expect_str_eq(CK_DRAFT_NAME(s), "step-2");
	cr_expect_str_eq(was, "tmp");
	cr_assert_eq(ck_draft_path(s, path), 0);
	cr_expect(strstr(path, "/.staging-step-2/files"), "%s", path);
	ck_draft_close(s);
	cr_expect(there(".staging-step-2") && !there(".staging-tmp"));
	cr_expect_eq(publish("step-2", NULL, false, &err), 0, "%s", err.msg);
}

static void put_ranks(struct ck_draft *s, int from, int to)
{
	for (int i = from; i < to; i++) {
		static const char head[] =
			"{\"w%d\":{\"dtype\":\"U8\",\"shape\":[4],"
			"\"data_offsets\":[0,4]}}";
		char text[128], file[64];
		int n = snprintf(text + 8, sizeof(text) - 8, head, i);
		uint64_t len = (uint64_t)n;

		memcpy(text, &len, 8);
		memcpy(text + 8 + n, "wxyz", 4);
		snprintf(file, sizeof(file), "model_rank%d.safetensors", i);
		put(s->files_fd, file, text, 8 + (size_t)n + 4);
	}
}

/* Nothing in these files says that there are four. */
Test(draft, the_number_of_ranks_must_be_said)
{
	struct ck_commit_in in = { .opts = &opts };
	struct ck_draft *s = make("step-1");
	struct ck_err err = { 0 };

	put_ranks(s, 0, 3);
	cr_expect_eq(ck_commit(s, &in, &err), -ENODATA);
	cr_expect(strstr(err.msg, "--ranks"), "%s", err.msg);
	in.ranks = 4;
	cr_expect_eq(ck_commit(s, &in, &err), -ENODATA);
	cr_expect(strstr(err.msg, "missing rank 3"), "%s", err.msg);
	in.ranks = 2;
	cr_expect_eq(ck_commit(s, &in, &err), -ENODATA);
	cr_expect(strstr(err.msg, "found rank 2"), "%s", err.msg);
	put_ranks(s, 3, 4);
	in.ranks = 4;
	cr_expect_eq(ck_commit(s, &in, &err), 0, "%s", err.msg);
	ck_draft_close(s);
}
