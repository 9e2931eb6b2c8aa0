/* SPDX-License-Identifier: Apache-2.0 */
#include "fs/kernel/reply.h"

#include "core/base/check.h"

#include <errno.h>
#include <linux/fuse.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <time.h>
#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/lsan_interface.h>
#endif

#ifndef FOPEN_PARALLEL_DIRECT_WRITES
#define FOPEN_PARALLEL_DIRECT_WRITES (1 << 6) /* Linux 6.2 */
#endif

#ifndef FOPEN_NOFLUSH
#define FOPEN_NOFLUSH (1 << 5) /* Linux 5.16 */
#endif

#ifndef FOPEN_PASSTHROUGH
#define FOPEN_PASSTHROUGH (1 << 7) /* Linux 6.9 */
#endif

#define LOG_BURST 20

static struct {
	pthread_mutex_t lock;
	time_t last;
	long left, dropped;
} logs = { .lock = PTHREAD_MUTEX_INITIALIZER, .left = LOG_BURST };

/* Takes one line's right; says how many were dropped before it. */
static bool may_log(long *dropped)
{
	struct timespec now;
	bool ok;

	clock_gettime(CLOCK_MONOTONIC, &now);
	pthread_mutex_lock(&logs.lock);
	logs.left = CK_MIN(logs.left + (now.tv_sec - logs.last), LOG_BURST);
	logs.last = now.tv_sec;
	ok = logs.left > 0;
	*dropped = ok ? logs.dropped : 0;
	logs.dropped = ok ? 0 : logs.dropped + 1;
	logs.left -= ok;
	pthread_mutex_unlock(&logs.lock);
	return ok;
}

void fs_log(const char *fmt, ...)
{
	char line[CK_ERR_MAX];
	long dropped;
	va_list ap;

	if (!may_log(&dropped))
		return;
	va_start(ap, fmt);
	vsnprintf(line, sizeof(line), fmt, ap);
	va_end(ap);
	if (dropped)
		fprintf(stderr, "unshard: %ld lines left out\n", dropped);
	fprintf(stderr, "unshard: %s\n", line);
}

bool fs_req_stopped(void *req)
{
	return fuse_req_interrupted(req);
}

void fs_reply_fail(fuse_req_t req, int ret, const struct ck_err *err)
{
	int code = ret < 0 ? -ret : err->code;

	/* The kernel drops an answer with any other, and its asker waits. */
	if (code < 1 || code > 511)
		code = EIO;
	fs_log("%s", err->msg[0] ? err->msg : "request failed");
	fuse_reply_err(req, code);
}

void fs_reply_end(fuse_req_t req, int ret, const struct ck_err *err)
{
	if (ret && *err->msg)
		fs_reply_fail(req, ret, err);
	else
		fuse_reply_err(req, -ret);
}

void fs_reply_found(fuse_req_t req, int ret, const struct ck_err *err)
{
	if (ret == -ENOENT || ret == -EACCES)
		fuse_reply_err(req, -ret);
	else
		fs_reply_end(req, ret, err);
}

/*
 * What the kernel holds it gives back by a release, but for that of a file which
 * is closed as its mount ends: to LeakSanitizer that is no leak.
 */
static void give(const struct fuse_file_info *fi)
{
#ifdef __SANITIZE_ADDRESS__
	__lsan_ignore_object((const void *)(uintptr_t)fi->fh);
#else
	(void)fi;
#endif
}

int fs_reply_create(fuse_req_t req, const struct fuse_entry_param *e,
		    const struct fuse_file_info *fi)
{
	give(fi);
	return fuse_reply_create(req, e, fi);
}

/* libfuse passes the flag on from 3.14.1; the reply is a plain struct. */
int fs_reply_open(fuse_req_t req, const struct fuse_file_info *fi,
		  bool parallel)
{
	struct fuse_open_out out = { .fh = fi->fh };

	give(fi);
	if (!parallel)
		return fuse_reply_open(req, fi);
	out.open_flags = FOPEN_DIRECT_IO | FOPEN_PARALLEL_DIRECT_WRITES;
	return fuse_reply_buf(req, (const char *)&out, sizeof(out));
}

int fs_reply_open_passed(fuse_req_t req, const struct fuse_file_info *fi,
			 int id)
{
	struct {
		uint64_t fh;
		uint32_t open_flags;
		int32_t backing_id; /* padding, before 6.9 */
	} out = { fi->fh, FOPEN_PASSTHROUGH | FOPEN_NOFLUSH, id };

	_Static_assert(sizeof(out) == sizeof(struct fuse_open_out),
		       "as the kernel has it");
	give(fi);
	return fuse_reply_buf(req, (const char *)&out, sizeof(out));
}

void fs_reply_xattr(fuse_req_t req, const void *value, size_t len, size_t size)
{
	if (!size)
		fuse_reply_xattr(req, len);
	else if (size < len)
		fuse_reply_err(req, ERANGE);
	else
		fuse_reply_buf(req, value, len);
}
