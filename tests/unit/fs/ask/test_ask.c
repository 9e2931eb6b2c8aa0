/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What an asker answers of files, for processes of several users.  Who cannot
 * make other users asks for himself alone.
 */
#include "fs/ask/ask_priv.h"

#include "core/base/fds.h"
#include "tests/lib/unconfined.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <linux/capability.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define OTHER 65534

static char dir[] = "/tmp/ask.XXXXXX";
static struct fs_asker *asker;
static pid_t starter;
static struct stat file;
static double keep;
static bool no_sandbox;

/* Does as a supervisor, until the worker is gone. */
static void start_askers(struct fs_askers *s)
{
	struct pollfd p = { .fd = s->fd, .events = POLLIN };
	int status;
	pid_t pid;

	while (poll(&p, 1, -1) > 0 && fs_askers_serve(s))
		while (fs_askers_reap(s, &pid, &status))
			;
	fs_askers_end(s);
	_exit(0);
}

/* The asker that was started last. */
static pid_t last_asker(void)
{
	char path[64], line[256] = "";
	char *last;
	FILE *f;

	snprintf(path, sizeof(path), "/proc/%d/task/%d/children", (int)starter,
		 (int)starter);
	f = fopen(path, "re");
	cr_assert(f && fgets(line, sizeof(line), f), "no asker");
	fclose(f);
	while (*line && line[strlen(line) - 1] == ' ')
		line[strlen(line) - 1] = '\0';
	last = strrchr(line, ' ');
	return (pid_t)atoi(last ? last : line);
}

static void make(const char *name, mode_t mode)
{
	char path[64];
	int fd;

	snprintf(path, sizeof(path), "%s/%s", dir, name);
	fd = open(path, O_CREAT | O_WRONLY, mode);
	cr_assert(fd >= 0 && !fchmod(fd, mode));
	cr_assert(!fstat(fd, &file));
	close(fd);
}

static void setup(void)
{
	struct ck_err err = { 0 };
	bool sandbox = !no_sandbox;
	struct fs_askers s;
	int fd;

	if (under_valgrind())
		cr_skip_test("valgrind needs what the sandbox forbids");
	cr_assert(mkdtemp(dir) && !chmod(dir, 0755));
	make("open", 0644);
	make("closed", 0600);
	make("file", 0640);
#ifdef __SANITIZE_ADDRESS__
	sandbox = false;
#endif
	cr_assert_eq(fs_askers_open(&s, &fd, dir, sandbox, &err), 0, "%s",
		     err.msg);
	starter = fork();
	if (!starter) {
		close(fd);
		start_askers(&s);
	}
	fs_askers_end(&s); /* ours: the starter has its own */
	setenv("UNSHARD_ASK", "1", 1);
	cr_assert_eq(fs_asker_new(&asker, fd, keep, &err), 0, "%s", err.msg);
}

static void teardown(void)
{
	static const char *const names[] = { "open", "closed", "file" };
	char path[64];
	int status;

	fs_asker_free(asker);
	cr_expect_eq(waitpid(starter, &status, 0), starter);
	for (size_t i = 0; i < 3; i++) {
		snprintf(path, sizeof(path), "%s/%s", dir, names[i]);
		unlink(path);
	}
	rmdir(dir);
}

TestSuite(ask, .init = setup, .fini = teardown);

/* A process that waits, as @uid, with @group beside its own. */
static pid_t somebody(uid_t uid, gid_t group)
{
	int ready[2];
	char c = 0;
	pid_t pid;

	cr_assert(!pipe(ready));
	pid = fork();
	if (!pid) {
		if (setgroups(group ? 1 : 0, &group) || setgid(uid) ||
		    setuid(uid) || write(ready[1], &c, 1) != 1)
			_exit(1);
		pause();
		_exit(0);
	}
	close(ready[1]);
	cr_assert(read(ready[0], &c, 1) == 1);
	close(ready[0]);
	return pid;
}

static void end(pid_t pid)
{
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
}

static int ask_of(const char *name, int mask, pid_t pid, uid_t uid, ino_t ino)
{
	const struct fs_caller who = { .pid = pid, .uid = uid, .gid = uid };
	struct fs_question q = { 0 };
	int ret;

	fs_question_dir(&q, "/no/such/place", NULL);
	fs_question_dir(&q, dir, NULL);
	fs_question_file(&q, name, mask, file.st_dev, ino);
	ret = fs_asker_ask(asker, &who, &q);
	ck_str_free(&q.text);
	return ret;
}

Test(ask, itself)
{
	pid_t pid = getpid();
	uid_t uid = getuid();

	cr_expect_eq(ask_of("closed", R_OK | W_OK, pid, uid, 0), 0);
	cr_expect_eq(ask_of("absent", R_OK, getppid(), uid + 1, 0), -EACCES);
	cr_expect_eq(ask_of("open", R_OK, 0, uid, 0), -EACCES);
	cr_expect_eq(ask_of("open", R_OK, pid, uid + 1, 0), -EACCES);
	cr_expect_eq(ask_of("", R_OK | X_OK, pid, uid, 0), 0);
}

Test(ask, others)
{
	pid_t one, member;

	if (getuid())
		cr_skip_test("needs root");
	one = somebody(OTHER, 0);
	member = somebody(OTHER, 2000);
	cr_expect_eq(ask_of("open", R_OK, one, OTHER, 0), 0);
	cr_expect_eq(ask_of("open", W_OK, one, OTHER, 0), -EACCES);
	cr_expect_eq(ask_of("closed", R_OK, one, OTHER, 0), -EACCES);
	cr_expect_eq(ask_of("absent", R_OK, one, OTHER, 0), -EACCES);
	/* which file it is */
	cr_expect_eq(ask_of("file", R_OK, getpid(), 0, file.st_ino), 0);
	cr_expect_eq(ask_of("open", R_OK, one, OTHER, file.st_ino), -ESTALE);
	/* groups */
	cr_assert(!chown(dir, 0, 2000) && !chmod(dir, 0750));
	cr_expect_eq(ask_of("open", R_OK, one, OTHER, 0), -EACCES);
	cr_expect_eq(ask_of("open", R_OK, member, OTHER, 0), 0);
	/* none of the process before it stays */
	cr_expect_eq(ask_of("open", R_OK, one, OTHER, 0), -EACCES);
	cr_expect_eq(ask_of("closed", R_OK, getpid(), 0, 0), 0);
	end(one);
	end(member);
	cr_expect_eq(ask_of("open", R_OK, member, OTHER, 0), -EACCES);
}

static int link_of(const char *below, const char *to, pid_t pid, uid_t uid)
{
	const struct fs_caller who = { .pid = pid, .uid = uid, .gid = uid };
	struct fs_question q = { 0 };
	int ret;

	fs_question_dir(&q, below, NULL);
	fs_question_change(&q, FS_ASK_LINK, "link", to, 0);
	ret = fs_asker_ask(asker, &who, &q);
	ck_str_free(&q.text);
	return ret;
}

Test(ask, links_are_made_by_who_asks)
{
	static char elsewhere[] = "/tmp/ask-not.XXXXXX";
	char path[64], to[16] = "";
	struct stat st;
	pid_t one;

	if (getuid())
		cr_skip_test("needs root");
	cr_assert(mkdtemp(elsewhere) && !chmod(elsewhere, 0777));
	snprintf(path, sizeof(path), "%s/link", dir);
	one = somebody(OTHER, 0);
	cr_expect_eq(link_of(dir, "open", one, OTHER), -EACCES);
	cr_assert(!chmod(dir, 0777));
	cr_expect_eq(link_of(dir, "../a/b", one, OTHER), 0);
	cr_expect_eq(link_of(dir, "../a/b", one, OTHER), -EEXIST);
	cr_assert(!lstat(path, &st) && readlink(path, to, sizeof(to)) > 0);
	cr_expect_eq(st.st_uid, OTHER);
	cr_expect_str_eq(to, "../a/b");
	cr_assert(!unlink(path));
	cr_expect_eq(link_of("/no/such/place", "open", one, OTHER), -EACCES);
#ifndef __SANITIZE_ADDRESS__
	cr_expect_eq(link_of(elsewhere, "open", one, OTHER), -EACCES);
#endif
	end(one);
	rmdir(elsewhere);
}

static int owner_of(uid_t uid, gid_t gid, int rights, pid_t pid, uid_t as)
{
	const struct fs_caller who = { .pid = pid, .uid = as, .gid = as };
	struct fs_question q = { 0 };
	int ret;

	fs_question_owner(&q, uid, gid, rights);
	ret = fs_asker_ask(asker, &who, &q);
	ck_str_free(&q.text);
	return ret;
}

Test(ask, rights_of_owners)
{
	pid_t his;

	if (geteuid())
		cr_skip_test("needs root");
	his = somebody(OTHER, 4321);
	cr_expect_eq(owner_of(OTHER, 0, FS_OWNS, his, OTHER), 0);
	cr_expect_eq(owner_of(0, OTHER, FS_OWNS, his, OTHER), -EPERM);
	cr_expect_eq(owner_of(OTHER, 0, FS_GIVES, his, OTHER), -EPERM);
	cr_expect_eq(owner_of(0, OTHER, FS_IN_GROUP, his, OTHER), 0);
	cr_expect_eq(owner_of(0, 4321, FS_IN_GROUP, his, OTHER), 0);
	cr_expect_eq(owner_of(OTHER, 4322, FS_OWNS | FS_IN_GROUP, his, OTHER),
		     -EPERM);
	cr_expect_eq(owner_of(OTHER, OTHER, FS_OWNS | FS_GIVES | FS_IN_GROUP,
			      getpid(), 0),
		     0);
	end(his);
	cr_expect_eq(owner_of(OTHER, 0, FS_OWNS, his, OTHER), -EACCES);
}

/* One that acts as @uid and was started by @real. */
static pid_t set_user_id(uid_t real, uid_t uid)
{
	int ready[2];
	char c = 0;
	pid_t pid;

	cr_assert(!pipe(ready));
	pid = fork();
	if (!pid) {
		if (setgroups(0, NULL) || setresgid(real, uid, uid) ||
		    setresuid(real, uid, uid) || write(ready[1], &c, 1) != 1)
			_exit(1);
		pause();
		_exit(0);
	}
	close(ready[1]);
	cr_assert(read(ready[0], &c, 1) == 1);
	close(ready[0]);
	return pid;
}

/* What access(2) asks. */
Test(ask, as_the_real_user)
{
	pid_t as_root, as_other;

	if (getuid())
		cr_skip_test("needs root");
	as_root = set_user_id(OTHER, 0);
	cr_expect_eq(ask_of("open", R_OK, as_root, OTHER, 0), 0);
	cr_expect_eq(ask_of("closed", R_OK, as_root, OTHER, 0), -EACCES);
	cr_expect_eq(ask_of("closed", R_OK, as_root, 0, 0), 0);
	cr_expect_eq(ask_of("open", R_OK, as_root, OTHER - 1, 0), -EACCES);
	as_other = set_user_id(0, OTHER);
	cr_expect_eq(ask_of("closed", R_OK, as_other, OTHER, 0), -EACCES);
	cr_expect_eq(ask_of("closed", R_OK, as_other, 0, 0), 0);
	end(as_root);
	end(as_other);
}

Test(ask, long_questions)
{
	const struct fs_caller who = { .pid = getpid(),
				       .uid = getuid(),
				       .gid = getgid() };
	struct fs_question q = { 0 };

	fs_question_dir(&q, dir, NULL);
	for (unsigned i = 0; i < 20000; i++)
		fs_question_file(&q, "closed", W_OK, 0, 0);
	cr_expect_eq(fs_asker_ask(asker, &who, &q), 0);
	fs_question_anew(&q);
	fs_question_file(&q, "closed", W_OK, 0, 0);
	/* root is let pass without a look */
	cr_expect_eq(fs_asker_ask(asker, &who, &q), getuid() ? -EACCES : 0);
	ck_str_free(&q.text);
}

static int ask_many(mode_t mode, pid_t pid, uid_t uid)
{
	const struct fs_caller who = { .pid = pid, .uid = uid, .gid = uid };
	struct fs_question q = { 0 };
	char path[64];
	int ret;

	snprintf(path, sizeof(path), "%s/open", dir);
	cr_assert(!chmod(path, mode));
	fs_question_dir(&q, dir, NULL);
	for (unsigned i = 0; i < 100; i++)
		fs_question_file(&q, "open", R_OK, 0, 0);
	ret = fs_asker_ask(asker, &who, &q);
	ck_str_free(&q.text);
	return ret;
}

static void leave_sandbox(void)
{
	no_sandbox = true;
	setup();
}

TestSuite(ask_sandbox_off, .init = leave_sandbox, .fini = teardown);

/* What the asker itself may is no answer. */
Test(ask_sandbox_off, root_without_rights)
{
	struct __user_cap_header_struct head = {
		.version = _LINUX_CAPABILITY_VERSION_3,
	};
	struct __user_cap_data_struct none[_LINUX_CAPABILITY_U32S_3] = { 0 };
	char path[64];
	pid_t pid;
	int status;

	if (getuid())
		cr_skip_test("needs root");
	snprintf(path, sizeof(path), "%s/closed", dir);
	cr_assert(!chown(path, OTHER, OTHER));
	cr_expect_eq(ask_of("closed", R_OK, getpid(), 0, 0), 0);
	pid = fork();
	if (!pid)
		_exit(syscall(SYS_capset, &head, none) ||
		      ask_of("closed", R_OK, getpid(), 0, 0) != -EACCES);
	cr_assert_eq(waitpid(pid, &status, 0), pid);
	cr_expect_eq(status, 0);
}

static void keep_long(void)
{
	keep = 1000;
	setup();
}

TestSuite(ask_kept, .init = keep_long, .fini = teardown);

Test(ask_kept, answers_about_many_files)
{
	pid_t one, two, member;

	if (getuid())
		cr_skip_test("needs root");
	one = somebody(OTHER, 0);
	two = somebody(OTHER, 0);
	member = somebody(OTHER, 2000);
	cr_expect_eq(ask_many(0644, one, OTHER), 0);
	cr_expect_eq(ask_many(0600, one, OTHER), 0, "not kept");
	cr_expect_eq(ask_many(0600, two, OTHER), 0, "for who is the same");
	cr_expect_eq(ask_many(0600, member, OTHER), -EACCES, "other groups");
	cr_expect_eq(ask_of("open", R_OK, one, OTHER, 0), -EACCES, "one file");
	cr_expect_eq(ask_many(0600, getpid(), 0), 0);
	end(one);
	cr_expect_eq(ask_many(0600, one, OTHER), -EACCES, "nobody");
	end(two);
	end(member);
}

Test(ask, answers_are_not_kept_where_nothing_is)
{
	pid_t one;

	if (getuid())
		cr_skip_test("needs root");
	one = somebody(OTHER, 0);
	cr_expect_eq(ask_many(0644, one, OTHER), 0);
	cr_expect_eq(ask_many(0600, one, OTHER), -EACCES);
	end(one);
}

static int ask_itself(bool (*stopped)(void *ctx))
{
	const struct fs_caller who = { .pid = getpid(),
				       .uid = getuid(),
				       .gid = getgid(),
				       .stopped = stopped };
	struct fs_question q = { 0 };
	int ret;

	fs_question_dir(&q, dir, NULL);
	fs_question_file(&q, "open", R_OK, 0, 0);
	ret = fs_asker_ask(asker, &who, &q);
	ck_str_free(&q.text);
	return ret;
}

Test(ask, an_asker_that_is_gone_is_replaced)
{
	pid_t was = last_asker();

	kill(was, SIGKILL);
	cr_expect_eq(ask_itself(NULL), 0);
	cr_expect_eq(ask_itself(NULL), 0);
	cr_expect_neq(last_asker(), was);
}

static bool always(void *ctx)
{
	(void)ctx;
	return true;
}

Test(ask, one_that_does_not_answer_is_replaced)
{
	pid_t was = last_asker();

	kill(was, SIGSTOP);
	cr_expect_eq(ask_itself(always), -EINTR, "he waits no more");
	cr_expect_eq(ask_itself(NULL), 0, "another is started");
	kill(last_asker(), SIGSTOP);
	cr_expect_eq(ask_itself(NULL), -EIO, "the time is over");
	cr_expect_eq(ask_itself(always), 0,
		     "what comes at once is not stopped");
}

/* An asker that ends when it has read a question: it may have done it. */
static unsigned ask_and_end(int seat)
{
	struct ck_err fine = { 0 };
	char buf[4096];
	unsigned nr;

	cr_assert_eq(write(seat, &fine, sizeof(fine)), sizeof(fine));
	nr = read(seat, buf, sizeof(buf)) > 0;
	close(seat);
	return nr;
}

static void *start_such(void *ctx)
{
	int more = *(int *)ctx;
	struct fs_ask_order order;
	uintptr_t asked = 0;

	while (recv(more, &order, sizeof(order), 0) == sizeof(order)) {
		const struct fs_ask_started said = { INT32_MAX };
		int ends[2];

		if (!order.start)
			continue;
		cr_assert(!socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0,
				      ends));
		cr_assert(ck_fds_send(more, &said, sizeof(said), &ends[1], 1,
				      0) > 0);
		close(ends[1]);
		asked += ask_and_end(ends[0]);
	}
	return (void *)asked;
}

/* What it says, and *asked: how many heard of it. */
static int have_removed(uintptr_t *asked)
{
	const struct fs_caller who = { .pid = getpid() };
	struct fs_question q = { 0 };
	struct fs_asker *a;
	struct ck_err err;
	pthread_t starts;
	void *nr;
	int ends[2], ret;

	cr_assert(!socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends));
	cr_assert(!pthread_create(&starts, NULL, start_such, &ends[0]));
	cr_assert_eq(fs_asker_new(&a, ends[1], 0, &err), 0, "%s", err.msg);
	fs_question_dir(&q, dir, NULL);
	fs_question_change(&q, FS_ASK_REMOVE, "open", NULL, 0);
	ret = fs_asker_ask(a, &who, &q);
	ck_str_free(&q.text);
	fs_asker_free(a);
	shutdown(ends[0], SHUT_RDWR);
	pthread_join(starts, &nr);
	close(ends[0]);
	*asked = (uintptr_t)nr;
	return ret;
}

Test(ask, what_may_be_done_is_not_done_again)
{
	uintptr_t asked;

	cr_expect_eq(have_removed(&asked), -EIO);
	cr_expect_eq(asked, 1, "%zu", (size_t)asked);
}

static void *ask_in_thread(void *ctx)
{
	*(int *)ctx = ask_itself(NULL);
	return NULL;
}

Test(ask, others_have_answers_meanwhile)
{
	pthread_t stuck;
	int answer = 1;

	kill(last_asker(), SIGSTOP);
	cr_assert(!pthread_create(&stuck, NULL, ask_in_thread, &answer));
	for (int i = 0; i < 3; i++)
		ask_itself(NULL);
	cr_expect_eq(ask_itself(NULL), 0);
	pthread_join(stuck, NULL);
	cr_expect(answer == 0 || answer == -EIO);
}

Test(ask, nobody_who_starts_askers)
{
	kill(starter, SIGKILL);
	waitpid(starter, NULL, 0);
	starter = fork();
	if (!starter)
		_exit(0);
	cr_expect_eq(ask_itself(NULL), 0, "the asker is there still");
}
