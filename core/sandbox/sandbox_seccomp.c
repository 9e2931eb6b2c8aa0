/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sandbox_seccomp.c - which system calls a process may still make
 *
 * An allow list; anything else is EPERM, so that what is missing from it fails
 * where it is called and does not end the process.
 */
#include "core/sandbox/sandbox_priv.h"

#include "core/base/check.h"

#include <errno.h>
#include <sched.h>
#include <seccomp.h>
#include <stddef.h>
#include <string.h>
#include <linux/fs.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <unistd.h>

#define FUSE_DEV_IOC_CLONE_ 0x8004e500u /* _IOR(229, 0, uint32_t) */

#define S(name) SCMP_SYS(name)

static const int everyone[] = {
	/* files; Landlock says which */
	S(read),
	S(pread64),
	S(readv),
	S(preadv),
	S(preadv2),
	S(write),
	S(pwrite64),
	S(writev),
	S(pwritev),
	S(lseek),
	S(_llseek),
	S(openat),
	S(openat2),
	S(open),
	S(close),
	S(fstat),
	S(fstat64),
	S(fstatat64),
	S(newfstatat),
	S(statx),
	S(stat),
	S(lstat),
	S(fstatfs),
	S(fstatfs64),
	S(statfs),
	S(statfs64),
	S(access),
	S(faccessat),
	S(faccessat2),
	S(getdents64),
	S(fgetxattr), /* whether it was being written */
	S(readlink),
	S(readlinkat),
	S(fcntl),
	S(fcntl64),
	S(fadvise64),
	S(fadvise64_64),
	S(ftruncate),
	S(ftruncate64),
	S(fallocate),
	S(dup),
	S(dup3),
	S(memfd_create),
	/* memory */
	S(brk),
	S(munmap),
	S(mremap),
	S(madvise),
	/* this process and the time */
	S(exit),
	S(exit_group),
	S(futex),
	S(futex_time64),
	S(getpid),
	S(gettid),
	S(getppid),
	S(getuid),
	S(geteuid),
	S(getgid),
	S(getegid),
	S(getrusage),
	S(getrandom),
	S(sysinfo),
	S(uname),
	S(sched_yield),
	S(sched_getaffinity),
	S(getcpu),
	S(clock_gettime),
	S(clock_gettime64),
	S(clock_getres),
	S(clock_nanosleep),
	S(clock_nanosleep_time64),
	S(nanosleep),
	S(gettimeofday),
	S(time),
	S(rt_sigaction),
	S(rt_sigprocmask),
	S(rt_sigreturn),
	S(sigaltstack),
	S(restart_syscall),
	S(getrlimit),
	S(ugetrlimit),
};

static const int worker[] = {
	/* the fuse device; pipes are its way of splicing */
	S(poll),
	S(ppoll),
	S(ppoll_time64),
	S(pipe2),
	S(splice),
	S(vmsplice),
	S(tee),
	S(eventfd2),
	/* io_uring: Landlock holds for what it opens */
	S(io_uring_setup),
	S(io_uring_enter),
	S(io_uring_register),
	/* threads */
	S(set_robust_list),
	S(rseq),
	S(set_tid_address),
	S(sched_getparam),
	S(sched_getscheduler),
	S(sched_setaffinity), /* a thread that helps another */
	S(membarrier),
	S(flock), /* whether somebody is at a file */
	/* spool files where O_TMPFILE is not to be had */
	S(unlink),
	S(unlinkat),
};

/* Waits for questions, and decompresses into a spool file. */
static const int finder[] = {
	S(poll), S(ppoll), S(ppoll_time64), S(flock), S(unlink), S(unlinkat),
};

/* To change files; those for names are for what lies in shards/. */
static const int writes[] = {
	S(pwritev2),
	S(fsync),
	S(fdatasync),
	S(sync_file_range),
	S(syncfs),
	S(fsetxattr),
	S(fremovexattr),
	S(rename),
	S(renameat),
	S(renameat2),
	S(mkdir),
	S(mkdirat),
	S(rmdir),
	S(symlinkat),
	/* by descriptor: Landlock says of which files one can be had */
	S(fchmod),
	S(fchown),
	S(utimensat),
	S(utimensat_time64),
};

/*
 * To fork a parser that then confines itself further; it still executes
 * nothing, and Landlock keeps signals inside.
 */
static const int parses[] = {
	S(clone),
	S(fork),
	S(wait4),
	S(waitid),
	S(kill),
	S(close_range),
	S(prctl),
	S(prlimit64),
	S(setrlimit),
	S(capget),
	S(capset),
	S(landlock_create_ruleset),
	S(landlock_add_rule),
	S(landlock_restrict_self),
	S(seccomp),
};

/* By a socket that was there before: none can be made. */
static const int takes[] = {
	S(sendto),
	S(send),
	S(recvmsg),
};

/* By one that was there before, too. */
static const int hands_over[] = {
	S(accept4),
	S(recvfrom),
	S(recv),
	S(sendmsg),
};

/* To judge files as another user; what it opens, Landlock holds to /proc. */
static const int asks[] = {
	S(setfsuid),  S(setfsuid32),   S(setfsgid), S(setfsgid32),
	S(setgroups), S(setgroups32),  S(getxattr), S(poll),
	S(ppoll),     S(ppoll_time64),
};

static const int changes_names[] = { S(symlinkat), S(unlinkat), S(renameat2) };

/*
 * What is kept has to be on storage before it is trusted, and is sent to who
 * started the worker.
 */
static const int caches[] = {
	S(fdatasync),
	S(sendmsg),
	S(recvfrom),
	S(recv),
};

static int allow_all(scmp_filter_ctx f, const int *calls, size_t nr)
{
	int ret = 0;

	for (size_t i = 0; !ret && i < nr; i++)
		ret = seccomp_rule_add(f, SCMP_ACT_ALLOW, calls[i], 0);
	return ret;
}

#define ALLOW_IF(f, call, ...) \
	seccomp_rule_add(f, SCMP_ACT_ALLOW, S(call), 1, __VA_ARGS__)

/* Memory is data: nothing that was read can become code. */
static int allow_maps(scmp_filter_ctx f)
{
	const struct scmp_arg_cmp no_exec =
		SCMP_A2(SCMP_CMP_MASKED_EQ, PROT_EXEC, 0);
	int ret = ALLOW_IF(f, mmap, no_exec);

	if (!ret)
		ret = ALLOW_IF(f, mmap2, no_exec);
	return ret ? ret : ALLOW_IF(f, mprotect, no_exec);
}

/* Only signals to itself (abort), and limits read, not changed. */
static int allow_self(scmp_filter_ctx f)
{
	int ret = ALLOW_IF(f, tgkill,
			   SCMP_A0(SCMP_CMP_EQ, (scmp_datum_t)getpid(), 0));

	return ret ? ret :
		     seccomp_rule_add(f, SCMP_ACT_ALLOW, S(prlimit64), 2,
				      SCMP_A0(SCMP_CMP_EQ, 0, 0),
				      SCMP_A2(SCMP_CMP_EQ, 0, 0));
}

/* Of its own processor time alone; glibc sets limits by prlimit64(). */
static int allow_finder(scmp_filter_ctx f)
{
	int ret = allow_all(f, finder, CK_ARRAY_LEN(finder));

	return ret ? ret :
		     seccomp_rule_add(f, SCMP_ACT_ALLOW, S(prlimit64), 2,
				      SCMP_A0(SCMP_CMP_EQ, 0, 0),
				      SCMP_A1(SCMP_CMP_EQ, RLIMIT_CPU, 0));
}

/* clone3() hides its flags from the filter: glibc then takes clone(). */
static int allow_threads(scmp_filter_ctx f)
{
	int ret = ALLOW_IF(
		f, clone,
		SCMP_A0(SCMP_CMP_MASKED_EQ, CLONE_THREAD, CLONE_THREAD));

	if (!ret)
		ret = seccomp_rule_add(f, SCMP_ACT_ERRNO(ENOSYS), S(clone3), 0);
	return ret ? ret :
		     ALLOW_IF(f, prctl, SCMP_A0(SCMP_CMP_EQ, PR_SET_NAME, 0));
}

/*
 * Of the fuse device, and what isatty() and columns need; who writes may have
 * blocks shared.
 */
static int allow_ioctls(scmp_filter_ctx f, bool shares)
{
	static const unsigned requests[] = { FUSE_DEV_IOC_CLONE_, TCGETS,
					     TIOCGWINSZ, FICLONERANGE };
	size_t nr = CK_ARRAY_LEN(requests) - !shares;
	int ret = 0;

	for (size_t i = 0; !ret && i < nr; i++)
		ret = ALLOW_IF(
			f, ioctl,
			SCMP_A1(SCMP_CMP_MASKED_EQ, UINT32_MAX, requests[i]));
	return ret;
}

static int fill(scmp_filter_ctx f, const struct ck_sandbox_in *in)
{
	int ret = allow_all(f, everyone, CK_ARRAY_LEN(everyone));

	if (!ret)
		ret = allow_maps(f);
	if (!ret)
		ret = allow_self(f);
	if (!ret && in->role == CK_SANDBOX_ASKER)
		ret = allow_all(f, asks, CK_ARRAY_LEN(asks));
	if (!ret && in->role == CK_SANDBOX_ASKER && in->write_dir)
		ret = allow_all(f, changes_names, CK_ARRAY_LEN(changes_names));
	if (!ret && in->role == CK_SANDBOX_FINDER)
		ret = allow_finder(f);
	if (ret || in->role != CK_SANDBOX_WORKER)
		return ret;
	if (in->parses)
		ret = allow_all(f, parses, CK_ARRAY_LEN(parses));
	if (!ret && in->caches)
		ret = allow_all(f, caches, CK_ARRAY_LEN(caches));
	if (!ret && in->asks)
		ret = allow_all(f, takes, CK_ARRAY_LEN(takes));
	if (!ret && in->hands_over)
		ret = allow_all(f, hands_over, CK_ARRAY_LEN(hands_over));
	if (!ret && (in->writes || in->write_dir))
		ret = allow_all(f, writes, CK_ARRAY_LEN(writes));
	if (ret)
		return ret;
	ret = allow_all(f, worker, CK_ARRAY_LEN(worker));
	if (!ret)
		ret = allow_threads(f);
	return ret ? ret : allow_ioctls(f, in->writes || in->write_dir);
}

int ck_sandbox_seccomp(const struct ck_sandbox_in *in, struct ck_err *err)
{
	scmp_filter_ctx f = seccomp_init(SCMP_ACT_ERRNO(EPERM));
	int ret;

	if (!f)
		return ck_no_memory(err);
	/* A tree instead of a list, and no brake on speculation: both cost. */
	seccomp_attr_set(f, SCMP_FLTATR_CTL_OPTIMIZE, 2);
	seccomp_attr_set(f, SCMP_FLTATR_CTL_SSB, 1);
	seccomp_attr_set(f, SCMP_FLTATR_CTL_NNP, 0);
	ret = fill(f, in);
	if (ret) {
		seccomp_release(f);
		return ck_fail(err, -ret, "sandbox: seccomp: %s",
			       strerror(-ret));
	}
	ret = seccomp_load(f);
	seccomp_release(f);
	return !ret; /* 0: a kernel without it, or a container that forbids */
}
