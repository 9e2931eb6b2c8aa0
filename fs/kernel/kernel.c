/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kernel.c - the INIT exchange, and the loop
 *
 * Direct files (FOPEN_DIRECT_IO) are read two to three times faster the first
 * time than cached ones, but can be mapped shared only where the 64-bit INIT
 * flag DIRECT_IO_ALLOW_MMAP (Linux 6.6) was agreed on.  libfuse passes it on
 * from 3.17.  From 3.13 to 3.16 it does not know the flag but lets its device
 * reads and writes be replaced, so the exchange is completed here:
 *
 *	request  [in_header 40][major minor max_readahead flags flags2 ...]
 *	reply    [out_header 16] [... flags +12 ... flags2 +32 ...]
 *
 * Before 3.13: cached.  The same of PASSTHROUGH (Linux 6.9), which libfuse has
 * from 3.17, too.
 */
#include "fs/kernel/kernel.h"

#include "core/base/check.h"
#include "core/base/cpus.h"
#include "core/base/number.h"
#include "fs/kernel/throttle.h"
#include "fs/kernel/receive.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

#define MIN_THREADS 8u
#define MAX_THREADS 64u

#define LIBFUSE_KNOWS_MMAP (FUSE_VERSION >= FUSE_MAKE_VERSION(3, 17))
#define INIT_HOOK \
	(FUSE_VERSION >= FUSE_MAKE_VERSION(3, 13) && !LIBFUSE_KNOWS_MMAP)

int fs_seconds_from_env(const char *name, double *out, struct ck_err *err)
{
	const char *text = getenv(name);
	char *end;

	if (!text)
		return 0;
	*out = strtod(text, &end);
	if (end == text || *end || !(*out >= 0))
		return ck_fail(err, EINVAL, "%s=%s: expected seconds", name,
			       text);
	return 0;
}

void fs_kernel_setup(struct fs_kernel *k, const struct ck_opts *opts)
{
	const char *direct = ck_opts_get(opts, "direct");
	uint64_t threads = ck_opts_size(opts, "threads", 0);
	unsigned cpus = ck_cpus();

	*k = (struct fs_kernel){ .want = FS_DIRECT_AUTO,
				 .read_ahead.fd = -1,
				 .cache.where = "off" };
	if (direct && !strcmp(direct, "on"))
		k->want = FS_DIRECT_ON;
	else if (direct && !strcmp(direct, "off"))
		k->want = FS_DIRECT_OFF;
	k->threads = cpus < MAX_THREADS ? 2 * cpus : MAX_THREADS;
	k->threads = CK_MIN(CK_MAX(k->threads, MIN_THREADS), MAX_THREADS);
	if (threads)
		k->threads = (unsigned)threads;
}

#if INIT_HOOK
#include <linux/fuse.h>

#define ALLOW_MMAP_FLAGS2 (UINT32_C(1) << (36 - 32))
#define PASSTHROUGH_FLAGS2 (UINT32_C(1) << (37 - 32))
#define STACK_DEPTH_AT (offsetof(struct fuse_init_out, flags2) + 4)

static ssize_t hook_read(int fd, void *buf, size_t len, void *userdata)
{
	struct fs_kernel *k = userdata;
	const struct fuse_in_header *in = buf;
	const struct fuse_init_in *arg = (const void *)(in + 1);
	ssize_t n = k->writes ? fs_receive(fd, buf, len) : read(fd, buf, len);

	if (n < (ssize_t)(sizeof(*in) + sizeof(*arg)) ||
	    in->opcode != FUSE_INIT)
		return n;
	k->offered = arg->flags & FUSE_INIT_EXT ? arg->flags2 : 0;
	k->unique = in->unique;
	atomic_store(&k->pending, true);
	return n;
}

/* The header may be older than the field; copies are of no stacked file system. */
static void pass_through(struct fuse_init_out *arg)
{
	const uint32_t depth = 1;

	arg->flags2 |= PASSTHROUGH_FLAGS2;
	memcpy((char *)arg + STACK_DEPTH_AT, &depth, sizeof(depth));
}

static void complete_init(struct fs_kernel *k, const struct iovec *iov,
			  int count)
{
	const struct fuse_out_header *out = iov[0].iov_base;
	struct fuse_init_out *arg;

	if (out->unique != k->unique)
		return;
	atomic_store(&k->pending, false);
	if (!k->direct_mmap && !k->passthrough)
		return;
	if (out->error || count < 2 || iov[1].iov_len < sizeof(*arg)) {
		k->direct_mmap = k->passthrough = false;
		k->direct = k->want == FS_DIRECT_ON;
		return;
	}
	arg = iov[1].iov_base;
	arg->flags |= FUSE_INIT_EXT;
	if (k->direct_mmap)
		arg->flags2 |= ALLOW_MMAP_FLAGS2;
	if (k->passthrough)
		pass_through(arg);
}

static ssize_t hook_writev(int fd, struct iovec *iov, int count, void *userdata)
{
	struct fs_kernel *k = userdata;

	if (atomic_load_explicit(&k->pending, memory_order_relaxed))
		complete_init(k, iov, count);
	fs_throttle_answer();
	return writev(fd, iov, count);
}
#endif

int fs_kernel_hook(struct fs_kernel *k, struct fuse_session *se,
		   struct ck_err *err)
{
#if INIT_HOOK
	static const struct fuse_custom_io io = { .read = hook_read,
						  .writev = hook_writev };
	int ret = fuse_session_custom_io(se, &io, fuse_session_fd(se));

	if (ret)
		return ck_fail(err, ret < 0 ? -ret : EINVAL,
			       "libfuse refuses its read and write hooks");
#else
	(void)se;
	(void)err;
#endif
	(void)k;
	return 0;
}

/* Whether the kernel has the flag, and then that it will be told so. */
static bool agree_on_mmap(struct fs_kernel *k, struct fuse_conn_info *conn)
{
#if LIBFUSE_KNOWS_MMAP
	(void)k;
	return fuse_set_feature_flag(conn, FUSE_CAP_DIRECT_IO_ALLOW_MMAP);
#else
	(void)conn;
	return k->offered & ALLOW_MMAP_FLAGS2;
#endif
}

static bool agree_on_passthrough(const struct fs_kernel *k,
				 struct fuse_conn_info *conn)
{
#if LIBFUSE_KNOWS_MMAP
	(void)k;
	conn->max_backing_stack_depth = 1;
	return fuse_set_feature_flag(conn, FUSE_CAP_PASSTHROUGH);
#else
	(void)conn;
	return k->offered & PASSTHROUGH_FLAGS2;
#endif
}

static void with(struct fuse_conn_info *conn, unsigned caps)
{
#if LIBFUSE_KNOWS_MMAP
	fuse_set_feature_flag(conn, caps);
#else
	conn->want |= conn->capable & caps;
#endif
}

static void without(struct fuse_conn_info *conn, unsigned caps)
{
#if LIBFUSE_KNOWS_MMAP
	fuse_unset_feature_flag(conn, caps);
#else
	conn->want &= ~caps;
#endif
}

/*
 * By itself libfuse asks for several reads at a time, of files and directories, for
 * READDIRPLUS and for AUTO_INVAL_DATA.
 *
 * No splice: it falls back to a fresh buffer a request where the pipe cannot
 * grow.  No ATOMIC_O_TRUNC: a truncating open would shorten the mapping of
 * every other process.  No ASYNC_DIO where files are written: such requests
 * are of the few (12) that the kernel sends in the background, as what maps
 * stored is, for which they may have to wait (fs/cache/inval.c).  Nor where bytes
 * are lost: of a request that it has cut into several the kernel answers an error
 * of any as the error of all then, and not the bytes before it.
 *
 * Nor AUTO_INVAL_DATA where they are written through the page cache: of a file
 * whose time has changed, as it does with each write, the kernel drops all pages
 * when it is read or looked at, also one that somebody is just writing through.
 * Who reads that page before the write has come here reads what was there
 * before, and the page has that from then on, and what a map stores into it is
 * written back with it.
 */
void fs_kernel_init(struct fs_kernel *k, struct fuse_conn_info *conn)
{
	without(conn, FUSE_CAP_SPLICE_READ | FUSE_CAP_SPLICE_WRITE |
			      FUSE_CAP_SPLICE_MOVE | FUSE_CAP_ATOMIC_O_TRUNC |
			      FUSE_CAP_WRITEBACK_CACHE);
	if (k->writes) /* a default access list counts instead of an umask */
		with(conn, FUSE_CAP_DONT_MASK);
	conn->max_read = FS_MAX_IO;
	conn->max_write = FS_MAX_IO;
	conn->max_readahead = UINT_MAX; /* would lower what read_ahead.h set */
	k->proto_minor = conn->proto_minor;
	k->direct_mmap = k->want != FS_DIRECT_OFF && agree_on_mmap(k, conn);
	k->direct = k->direct_mmap || k->want == FS_DIRECT_ON;
	k->passthrough = k->passthrough && agree_on_passthrough(k, conn);
	if (k->writes || k->lost)
		without(conn, FUSE_CAP_ASYNC_DIO);
	if (k->writes && !k->direct)
		without(conn, FUSE_CAP_AUTO_INVAL_DATA);
}

/* libfuse would say so at length; one descriptor for all does too. */
static int can_clone(void)
{
	int fd = open("/dev/fuse", O_RDWR | O_CLOEXEC);

	if (fd >= 0)
		close(fd);
	return fd >= 0;
}

/* Idle threads are kept: making them costs more than a request. */
int fs_kernel_loop(struct fs_kernel *k, struct fuse_session *se)
{
#if FUSE_VERSION >= FUSE_MAKE_VERSION(3, 12)
	struct fuse_loop_config *cfg = fuse_loop_cfg_create();
	int ret;

	if (!cfg)
		return -ENOMEM;
	fuse_loop_cfg_set_clone_fd(cfg, (unsigned)can_clone());
	fuse_loop_cfg_set_max_threads(cfg, k->threads);
	fuse_loop_cfg_set_idle_threads(cfg, k->threads);
	ret = fuse_session_loop_mt(se, cfg);
	fuse_loop_cfg_destroy(cfg);
	return ret;
#else
	struct fuse_loop_config cfg = { .clone_fd = can_clone(),
					.max_idle_threads = k->threads };

	return fuse_session_loop_mt(se, &cfg);
#endif
}
