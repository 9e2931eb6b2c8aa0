/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sandbox.c - the order in which a process gives up its rights
 *
 * Each layer holds where another does not: seccomp does not see what an
 * io_uring does, Landlock does, but it knows nothing of most system calls.
 * The user stays the same; of root's rights only that to read any file stays,
 * for a checkpoint need not be root's own, and that to write it where the
 * mount is for writing.
 */
#include "core/sandbox/sandbox_priv.h"

#include <errno.h>
#include <execinfo.h>
#include <linux/capability.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#define READ_CAPS (1u << CAP_DAC_READ_SEARCH)
/* Root's right to write a file need not be that of its owner. */
#define WRITE_CAPS                                              \
	(READ_CAPS | 1u << CAP_DAC_OVERRIDE | 1u << CAP_CHOWN | \
	 1u << CAP_FOWNER | 1u << CAP_FSETID)

#define ASK_CAPS (1u << CAP_SETUID | 1u << CAP_SETGID)

static uint32_t kept(const struct ck_sandbox_in *in)
{
	if (in->role == CK_SANDBOX_ASKER)
		return ASK_CAPS;
	return in->writes || in->write_dir ? WRITE_CAPS : READ_CAPS;
}

int ck_sandbox_drop_caps(const struct ck_sandbox_in *in, struct ck_err *err)
{
	uint32_t keep = kept(in);
	struct __user_cap_header_struct head = {
		.version = _LINUX_CAPABILITY_VERSION_3,
	};
	struct __user_cap_data_struct data[_LINUX_CAPABILITY_U32S_3];

	/* Fails for ordinary users, who have nothing that it would bound. */
	for (unsigned long cap = 0; cap < 64; cap++)
		prctl(PR_CAPBSET_DROP, cap, 0, 0, 0);
	prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0);
	if (syscall(SYS_capget, &head, data))
		return ck_fail(err, errno, "sandbox: capget: %s",
			       strerror(errno));
	data[0].permitted &= keep;
	data[0].effective = data[0].permitted;
	data[1].permitted = data[1].effective = 0;
	data[0].inheritable = data[1].inheritable = 0;
	if (syscall(SYS_capset, &head, data))
		return ck_fail(err, errno, "sandbox: capset: %s",
			       strerror(errno));
	return 0;
}

static int limit(__rlimit_resource_t what, rlim_t soft, rlim_t hard,
		 const char *name, struct ck_err *err)
{
	struct rlimit was, now = { .rlim_cur = soft, .rlim_max = hard };

	if (!getrlimit(what, &was) && was.rlim_max < hard) {
		now.rlim_max = was.rlim_max;
		if (now.rlim_cur > now.rlim_max)
			now.rlim_cur = now.rlim_max;
	}
	if (setrlimit(what, &now))
		return ck_fail(err, errno, "sandbox: %s: %s", name,
			       strerror(errno));
	return 0;
}

static int set_limits(const struct ck_sandbox_in *in, struct ck_err *err)
{
	int ret = limit(RLIMIT_CORE, 0, 0, "RLIMIT_CORE", err);

	if (!ret && in->mem_max)
		ret = limit(RLIMIT_AS, in->mem_max, in->mem_max, "RLIMIT_AS",
			    err);
	/* SIGXCPU, which tells a limit from a crash, comes a second before. */
	if (!ret && in->cpu_seconds)
		ret = limit(RLIMIT_CPU, in->cpu_seconds, in->cpu_seconds + 1,
			    "RLIMIT_CPU", err);
	return ret;
}

/*
 * pthread_cancel(), with which libfuse ends its threads, loads libgcc_s when it
 * is first called, and aborts if it cannot.  So does backtrace(), which has
 * nothing to load in a program that is linked statically, as cancelling there.
 */
static void load_early(void)
{
	void *here;

	backtrace(&here, 1);
}

int ck_sandbox_enter(const struct ck_sandbox_in *in, unsigned *got,
		     struct ck_err *err)
{
	unsigned have = CK_SANDBOX_CAPS;
	int ret;

	if (in->role == CK_SANDBOX_WORKER)
		load_early();
	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))
		return ck_fail(err, errno, "sandbox: no_new_privs: %s",
			       strerror(errno));
	ret = ck_sandbox_drop_caps(in, err);
	if (ret)
		return ret;
	ret = ck_sandbox_landlock(in, err);
	if (ret < 0)
		return ret;
	have |= ret ? CK_SANDBOX_LANDLOCK : 0;
	ret = set_limits(in, err);
	if (ret)
		return ret;
	ret = ck_sandbox_seccomp(in, err);
	if (ret < 0)
		return ret;
	have |= ret ? CK_SANDBOX_SECCOMP : 0;
	if (got)
		*got = have;
	return 0;
}
