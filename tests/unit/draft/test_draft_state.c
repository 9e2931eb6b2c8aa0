/* SPDX-License-Identifier: Apache-2.0 */
/* What was said of a draft: by several, damaged, and by an older version. */
#include "core/draft/dir_tree.h"
#include "core/draft/draft.h"
#include "core/publish/commit.h"
#include "core/publish/recover.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static char top[] = "/tmp/ck-said-XXXXXX";
static struct ck_root root;
static struct ck_opts opts;

static void setup(void)
{
	struct ck_err err = { 0 };

	cr_assert(mkdtemp(top));
	cr_assert_eq(ck_root_open(&root, top, NULL, &err), 0, "%s", err.msg);
}

static void teardown(void)
{
	ck_dir_tree_remove(AT_FDCWD, top, NULL);
	ck_root_close(&root);
	ck_opts_free(&opts);
}

TestSuite(draft_state, .init = setup, .fini = teardown, .timeout = 120);

static struct ck_draft *make(const char *name)
{
	struct ck_err err = { 0 };
	struct ck_draft *s = NULL;

	cr_assert_eq(ck_draft_make(&s, &root, name, &err), 0, "%s", err.msg);
	return s;
}

static int publish(const char *name, struct ck_err *err)
{
	const struct ck_commit_in in = { .opts = &opts };
	struct ck_draft *s;
	int ret = ck_draft_open(&s, &root, name, err);

	if (ret)
		return ret;
	ret = ck_commit(s, &in, err);
	ck_draft_close(s);
	return ret;
}

/* Through two of them, as two mounts have it, in a journal of both. */
Test(draft_state, what_was_said_is_known_to_all)
{
	const struct ck_draft_commit c = {
		.as = "step-9", .ranks = 4, .replace = true, .ino = 77
	};
	struct ck_draft *a = make("step-1"), *b;
	struct ck_draft_said said;
	struct stat st, later;
	struct ck_err err = { 0 };

	cr_assert_eq(ck_draft_open(&b, &root, "step-1", &err), 0);
	ck_draft_look(b, &said);
	cr_expect(!said.when_complete && !said.when_quiet && !said.begun &&
		  !said.doomed && !*said.refused && !*said.bad);
	ck_draft_publish_when_complete(a);
	ck_draft_publish_when_quiet(b);
	ck_draft_reject_layout(a, "x is not possible");
	ck_draft_reject_layout(b, "y is not possible");
	ck_draft_bad(a, 12345, "a sum does not fit");
	cr_assert_eq(ck_draft_commit(b, &c, &err), 0, "%s", err.msg);
	ck_draft_look(a, &said);
	cr_expect(said.when_complete && said.when_quiet && said.begun);
	cr_expect(!said.doomed);
	cr_expect_str_eq(said.refused, "y is not possible");
	cr_expect_eq(said.bad_signature, 12345);
	cr_expect_str_eq(said.bad, "a sum does not fit");
	cr_expect_str_eq(said.commit.as, "step-9");
	cr_expect(said.commit.replace && !said.commit.holes);
	cr_expect_eq(said.commit.ranks, 4);
	cr_expect_eq(said.commit.ino, 77);
	/* what is known is not said again */
	cr_assert_eq(fstatat(a->fd, "journal", &st, 0), 0);
	ck_draft_publish_when_complete(b);
	ck_draft_bad(b, 12345, "a sum does not fit");
	cr_assert_eq(fstatat(a->fd, "journal", &later, 0), 0);
	cr_expect_eq(st.st_size, later.st_size);
	ck_draft_poison(a, "fsync: no");
	ck_draft_poison(b, "another reason");
	ck_draft_look(b, &said);
	cr_expect(said.doomed);
	cr_expect_str_eq(said.doomed_why, "fsync: no");
	ck_draft_close(a);
	ck_draft_close(b);
}

/* Records of several that append at the same time are all there. */
Test(draft_state, its_journal_is_of_all_processes)
{
	struct ck_draft *s = make("step-1");
	struct ck_draft_said said;
	struct ck_err err = { 0 };
	int status;

	for (int i = 0; i < 4; i++)
		if (!fork()) {
			struct ck_draft *mine;
			char text[32];

			if (ck_draft_open(&mine, &root, "step-1", NULL))
				_exit(1);
			for (int n = 0; n < 100; n++) {
				snprintf(text, sizeof(text), "%d %d", i, n);
				ck_draft_reject_layout(mine, text);
			}
			_exit(0);
		}
	while (wait(&status) > 0)
		cr_expect_eq(status, 0);
	cr_expect_eq(ck_draft_read(s, &said, &err), 0, "%s", err.msg);
	cr_expect_str_eq(said.refused + 1, " 99");
	ck_draft_close(s);
}

/* It may have said that bytes are lost. */
Test(draft_state, a_damaged_journal_dooms_it)
{
	struct ck_draft *s = make("step-1");
	struct ck_draft_list l;
	struct ck_err err = { 0 };
	char c;
	int fd;

	ck_draft_publish_when_complete(s);
	ck_draft_publish_when_quiet(s);
	fd = openat(s->fd, "journal", O_RDWR);
	cr_assert_eq(pread(fd, &c, 1, 64), 1);
	c ^= 1;
	cr_assert_eq(pwrite(fd, &c, 1, 64), 1);
	close(fd);
	cr_expect_eq(publish("step-1", &err), -EIO);
	cr_expect(strstr(err.msg, "journal: byte 64: expected record 1"), "%s",
		  err.msg);
	ck_draft_close(s);
	cr_assert_eq(ck_draft_list(&l, &root, &opts, true, &err), 0);
	cr_expect_eq(l.v[0].state, CK_DRAFT_POISONED);
	ck_draft_list_free(&l);
	cr_expect_eq(ck_recover_gc(&root, "step-1", 0, &err), 0, "%s", err.msg);
}

/* What an older version said in files of their own is not guessed at. */
Test(draft_state, of_an_older_version_is_refused)
{
	static const char *const marks[] = { "armed", "commit" };
	struct ck_err err = { 0 };

	for (int i = 0; i < 2; i++) {
		struct ck_draft *s = make("step-1");

		close(openat(s->fd, marks[i], O_WRONLY | O_CREAT, 0644));
		ck_draft_close(s);
		cr_expect_eq(publish("step-1", &err), -EIO);
		cr_expect(strstr(err.msg, "older version of unshard"), "%s",
			  err.msg);
		cr_expect_eq(ck_recover_gc(&root, "step-1", 0, &err), 0, "%s",
			     err.msg);
	}
}
