/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Each check runs in a child that enters the sandbox.  Sanitizers do what it
 * forbids, and so do containers without Landlock or seccomp: there the checks
 * of those layers are left out, and a line says so.
 */
#include "core/sandbox/sandbox.h"
#include "tests/lib/unconfined.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <fcntl.h>
#include <liburing.h>
#include <linux/capability.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#ifdef __SANITIZE_ADDRESS__
#define SANITIZED 1
#else
#define SANITIZED 0
#endif

static char inside[] = "/tmp/sandbox-in.XXXXXX";
static char outside[] = "/tmp/sandbox-out.XXXXXX";
static char spool[] = "/tmp/sandbox-spool.XXXXXX";
static struct ck_root root = { .fd = -1, .blobs_fd = -1, .path = inside };
static unsigned got;

static void make_file(const char *dir)
{
	char path[64];
	FILE *f;

	snprintf(path, sizeof(path), "%s/file", dir);
	f = fopen(path, "w");
	cr_assert(f);
	fputs("bytes", f);
	fclose(f);
}

static void setup(void)
{
	if (under_valgrind())
		cr_skip_test("valgrind needs what the sandbox forbids");
	cr_assert(mkdtemp(inside) && mkdtemp(outside) && mkdtemp(spool));
	make_file(inside);
	make_file(outside);
	root.fd = open(inside, O_PATH | O_DIRECTORY | O_CLOEXEC);
	cr_assert(root.fd >= 0);
}

static void clean(const char *dir)
{
	char path[64];

	snprintf(path, sizeof(path), "%s/file", dir);
	unlink(path);
	rmdir(dir);
}

static void teardown(void)
{
	clean(inside);
	clean(outside);
	clean(spool);
	close(root.fd);
}

TestSuite(sandbox, .init = setup, .fini = teardown, .disabled = SANITIZED);

static int enter(enum ck_sandbox_role role, const char *only)
{
	struct ck_sandbox_in in = {
		.role = role,
		.root = &root,
		.spool_dir = spool,
	};
	struct ck_err err;

	root.only = (char *)only;
	if (!ck_sandbox_enter(&in, &got, &err))
		return 0;
	fprintf(stderr, "%s\n", err.msg);
	return -1;
}

/* Runs @check in a child; its return value, or -1 for a death. */
static int run(int (*check)(void))
{
	int status;
	pid_t pid = fork();

	if (!pid)
		_exit(check());
	waitpid(pid, &status, 0);
	return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static bool has(unsigned layer, const char *name)
{
	if (got & layer)
		return true;
	fprintf(stderr, "sandbox: no %s here, not tested\n", name);
	return false;
}

/* The errno of a call that gave @ret; 0 where it worked. */
static int code(long ret)
{
	return ret < 0 ? errno : 0;
}

static int open_in(const char *dir, int flags)
{
	char path[64];

	snprintf(path, sizeof(path), "%s/file", dir);
	return code(open(path, flags, 0600));
}

/* Numbers the failures, so that a red test says which line it was. */
#define CHECK(what)                             \
	do {                                    \
		if (!(what))                    \
			return __LINE__ & 0x7f; \
	} while (0)

static int files(void)
{
	CHECK(!enter(CK_SANDBOX_WORKER, NULL));
	CHECK(open_in(inside, O_RDONLY) == 0);
	CHECK(openat(root.fd, "file", O_RDONLY) >= 0);
	if (!has(CK_SANDBOX_LANDLOCK, "Landlock"))
		return 0;
	CHECK(open_in(inside, O_RDWR) == EACCES);
	CHECK(open_in(outside, O_RDONLY) == EACCES);
	CHECK(code(open("/etc/passwd", O_RDONLY)) == EACCES);
	CHECK(code(openat(root.fd, "../..", O_RDONLY)) == EACCES);
	return 0;
}

Test(sandbox, only_the_root_can_be_opened)
{
	cr_expect_eq(run(files), 0);
}

static int asks(void)
{
	const struct ck_sandbox_in in = { .role = CK_SANDBOX_ASKER };

	CHECK(!ck_sandbox_enter(&in, &got, NULL));
	if (has(CK_SANDBOX_LANDLOCK, "Landlock")) {
		CHECK(open("/proc/self/status", O_RDONLY) >= 0);
		CHECK(open_in(inside, O_RDONLY) == EACCES);
		CHECK(open_in(inside, O_PATH) == 0);
	}
	if (!has(CK_SANDBOX_SECCOMP, "seccomp"))
		return 0;
	CHECK(code(socket(AF_UNIX, SOCK_STREAM, 0)) == EPERM);
	CHECK(code(unlink("/tmp/no-such-file")) == EPERM);
	CHECK(code(symlinkat("a", AT_FDCWD, "/tmp/no-such-link")) == EPERM);
	CHECK(code(syscall(SYS_setgroups, 0, NULL)) == (getuid() ? EPERM : 0));
	return 0;
}

Test(sandbox, who_asks_for_others_reads_proc_alone)
{
	cr_expect_eq(run(asks), 0);
}

static int asks_and_links(void)
{
	const struct ck_sandbox_in in = { .role = CK_SANDBOX_ASKER,
					  .write_dir = inside };
	char path[64];

	CHECK(!ck_sandbox_enter(&in, &got, NULL));
	if (!has(CK_SANDBOX_LANDLOCK, "Landlock"))
		return 0;
	snprintf(path, sizeof(path), "%s/link", inside);
	CHECK(code(symlinkat("file", AT_FDCWD, path)) == 0);
	CHECK(open_in(inside, O_RDONLY) == EACCES);
	snprintf(path, sizeof(path), "%s/link", outside);
	CHECK(code(symlinkat("file", AT_FDCWD, path)) == EACCES);
	if (!has(CK_SANDBOX_SECCOMP, "seccomp"))
		return 0;
	CHECK(code(unlink("/tmp/no-such-file")) == EPERM);
	CHECK(code(mkdir("/tmp/no-such-file", 0755)) == EPERM);
	return 0;
}

Test(sandbox, who_makes_links_for_others_makes_nothing_else)
{
	char path[64];

	cr_expect_eq(run(asks_and_links), 0);
	snprintf(path, sizeof(path), "%s/link", inside);
	unlink(path);
}

static int uring_open(struct io_uring *ring, const char *path)
{
	struct io_uring_sqe *sqe = io_uring_get_sqe(ring);
	struct io_uring_cqe *cqe;

	io_uring_prep_openat(sqe, AT_FDCWD, path, O_RDONLY, 0);
	if (io_uring_submit_and_wait(ring, 1) < 0 ||
	    io_uring_peek_cqe(ring, &cqe))
		return -1;
	return cqe->res;
}

static int uring(void)
{
	struct io_uring ring;
	char path[64];

	if (io_uring_queue_init(4, &ring, 0)) {
		fprintf(stderr, "sandbox: no io_uring here, not tested\n");
		return 0;
	}
	io_uring_queue_exit(&ring);
	CHECK(!enter(CK_SANDBOX_WORKER, NULL));
	CHECK(!io_uring_queue_init(4, &ring, 0));
	snprintf(path, sizeof(path), "%s/file", inside);
	CHECK(uring_open(&ring, path) >= 0);
	io_uring_queue_exit(&ring);
	if (!has(CK_SANDBOX_LANDLOCK, "Landlock"))
		return 0;
	CHECK(!io_uring_queue_init(4, &ring, 0));
	snprintf(path, sizeof(path), "%s/file", outside);
	CHECK(uring_open(&ring, path) == -EACCES);
	return 0;
}

Test(sandbox, a_ring_opens_no_more)
{
	cr_expect_eq(run(uring), 0);
}

static int calls(void)
{
	char *argv[] = { "true", NULL };

	CHECK(!enter(CK_SANDBOX_WORKER, NULL));
	if (!has(CK_SANDBOX_SECCOMP, "seccomp"))
		return 0;
	CHECK(code(execv("/bin/true", argv)) == EPERM);
	CHECK(code(socket(AF_INET, SOCK_STREAM, 0)) == EPERM);
	CHECK(code(socket(AF_UNIX, SOCK_STREAM, 0)) == EPERM);
	CHECK(code(syscall(SYS_mount, "x", "/", "tmpfs", 0, 0)) == EPERM);
	CHECK(code(syscall(SYS_umount2, "/", 0)) == EPERM);
	CHECK(code(ptrace(PTRACE_TRACEME, 0, 0, 0)) == EPERM);
	CHECK(code(syscall(SYS_bpf, 0, 0, 0)) == EPERM);
	CHECK(code(fork()) == EPERM);
	CHECK(code(syscall(SYS_kill, getppid(), 0)) == EPERM);
	CHECK(code(unshare(0x10000000)) == EPERM);
	CHECK(mmap(NULL, 4096, PROT_READ | PROT_EXEC,
		   MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) == MAP_FAILED);
	return 0;
}

Test(sandbox, dangerous_calls_are_refused)
{
	cr_expect_eq(run(calls), 0);
}

static void *sleeper(void *unused)
{
	sleep(100);
	return unused;
}

static void *writer(void *unused)
{
	volatile char stack[64 << 10];

	memset((char *)stack, 1, sizeof(stack));
	free(malloc(1 << 20));
	return unused;
}

/* What libfuse does: threads, some of them cancelled, a second device. */
static int threads(void)
{
	pthread_t a, b;
	cpu_set_t set;
	void *ret;

	CHECK(!enter(CK_SANDBOX_WORKER, NULL));
	CHECK(!pthread_create(&a, NULL, sleeper, NULL));
	CHECK(!pthread_create(&b, NULL, writer, NULL));
	CHECK(!pthread_join(b, NULL));
	CHECK(!sched_getaffinity(0, sizeof(set), &set));
	CHECK(!pthread_setaffinity_np(a, sizeof(set), &set));
	CHECK(!pthread_cancel(a));
	CHECK(!pthread_join(a, &ret) && ret == PTHREAD_CANCELED);
	return 0;
}

Test(sandbox, threads_work)
{
	cr_expect_eq(run(threads), 0);
}

static int spooling(void)
{
	char path[64], buf[4];
	int fd, dir;

	CHECK(!enter(CK_SANDBOX_WORKER, NULL));
	dir = open(spool, O_RDONLY | O_DIRECTORY);
	CHECK(dir >= 0);
	fd = openat(dir, ".", O_TMPFILE | O_RDWR, 0600);
	CHECK(fd >= 0);
	CHECK(!ftruncate(fd, 8192) && !posix_fallocate(fd, 0, 8192));
	CHECK(pwrite(fd, "abc", 4, 0) == 4 && pread(fd, buf, 4, 0) == 4);
	snprintf(path, sizeof(path), "%s/file", spool);
	fd = open(path, O_CREAT | O_EXCL | O_RDWR, 0600);
	CHECK(fd >= 0 && !unlink(path));
	return 0;
}

Test(sandbox, unnamed_files_in_the_spool)
{
	cr_expect_eq(run(spooling), 0);
}

static int parser(void)
{
	cpu_set_t set;

	CHECK(!sched_getaffinity(0, sizeof(set), &set));
	CHECK(!enter(CK_SANDBOX_PARSER, NULL));
	CHECK(open_in(inside, O_RDONLY) == 0);
	if (has(CK_SANDBOX_LANDLOCK, "Landlock")) {
		CHECK(open_in(spool, O_RDONLY | O_CREAT) == EACCES);
		CHECK(open_in(outside, O_RDONLY) == EACCES);
	}
	if (has(CK_SANDBOX_SECCOMP, "seccomp")) {
		CHECK(code(syscall(SYS_io_uring_setup, 4, 0)) == EPERM);
		CHECK(code(fork()) == EPERM);
		CHECK(code(sched_setaffinity(0, sizeof(set), &set)) == EPERM);
	}
	return 0;
}

Test(sandbox, the_parser_has_less)
{
	cr_expect_eq(run(parser), 0);
}

static int one_file(void)
{
	char path[64];

	snprintf(path, sizeof(path), "%s/other", inside);
	CHECK(!code(open(path, O_CREAT | O_RDWR, 0600)));
	CHECK(!enter(CK_SANDBOX_PARSER, "file"));
	CHECK(open_in(inside, O_RDONLY) == 0);
	if (has(CK_SANDBOX_LANDLOCK, "Landlock"))
		CHECK(code(open(path, O_RDONLY)) == EACCES);
	return 0;
}

Test(sandbox, one_file_is_one_file)
{
	char path[64];
	int ret = run(one_file);

	snprintf(path, sizeof(path), "%s/other", inside);
	unlink(path);
	cr_expect_eq(ret, 0);
}

static int rights(void)
{
	struct __user_cap_header_struct head = {
		.version = _LINUX_CAPABILITY_VERSION_3,
	};
	struct __user_cap_data_struct data[2];
	uid_t uid = geteuid();
	struct rlimit core;

	CHECK(!enter(CK_SANDBOX_PARSER, NULL));
	CHECK(got & CK_SANDBOX_CAPS);
	CHECK(geteuid() == uid);
	CHECK(!getrlimit(RLIMIT_CORE, &core) && !core.rlim_max);
	if (got & CK_SANDBOX_SECCOMP)
		CHECK(code(syscall(SYS_capget, &head, data)) == EPERM);
	return 0;
}

static uint64_t caps_of(pid_t pid)
{
	unsigned long long caps = 0;
	char path[64], line[128];
	FILE *f;

	snprintf(path, sizeof(path), "/proc/%d/status", (int)pid);
	f = fopen(path, "r");
	while (f && fgets(line, sizeof(line), f))
		if (!strncmp(line, "CapEff:", 7) ||
		    !strncmp(line, "CapPrm:", 7))
			caps |= strtoull(line + 7, NULL, 16);
	if (f)
		fclose(f);
	return caps;
}

Test(sandbox, only_the_right_to_read_stays)
{
	int in[2], out[2];
	char c;
	pid_t pid;

	cr_expect_eq(run(rights), 0);
	cr_assert(!pipe(in) && !pipe(out));
	pid = fork();
	if (!pid) {
		c = enter(CK_SANDBOX_PARSER, NULL) ? 'n' : 'y';
		if (write(out[1], &c, 1) != 1)
			_exit(1);
		_exit(read(in[0], &c, 1) != 1);
	}
	cr_assert(read(out[0], &c, 1) == 1 && c == 'y');
	cr_expect((caps_of(pid) & ~(UINT64_C(1) << CAP_DAC_READ_SEARCH)) == 0,
		  "%llx", (unsigned long long)caps_of(pid));
	cr_expect(write(in[1], &c, 1) == 1);
	waitpid(pid, NULL, 0);
}

static int memory(void)
{
	struct ck_sandbox_in in = {
		.role = CK_SANDBOX_PARSER,
		.root = &root,
		.mem_max = 256 << 20,
	};

	root.only = NULL;
	CHECK(!ck_sandbox_enter(&in, &got, NULL));
	CHECK(malloc(1 << 20));
	CHECK(!malloc((size_t)512 << 20));
	return 0;
}

Test(sandbox, memory_is_limited)
{
	cr_expect_eq(run(memory), 0);
}

static int spin(void)
{
	struct ck_sandbox_in in = {
		.role = CK_SANDBOX_PARSER,
		.root = &root,
		.cpu_seconds = 1,
	};

	root.only = NULL;
	if (ck_sandbox_enter(&in, &got, NULL))
		return 1;
	for (volatile int i = 0;; i++)
		;
	return 0;
}

Test(sandbox, time_is_limited, .timeout = 10)
{
	int status;
	pid_t pid = fork();

	if (!pid)
		_exit(spin());
	waitpid(pid, &status, 0);
	cr_expect(WIFSIGNALED(status) && WTERMSIG(status) == SIGXCPU);
}
