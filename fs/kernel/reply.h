/* SPDX-License-Identifier: Apache-2.0 */
/*
 * reply.h - the end of a request, where it is more than a call of fuse_reply_*
 *
 * Threads: any.
 */
#ifndef FS_REPLY_H
#define FS_REPLY_H

#include "core/base/err.h"
#include "fs/kernel/kernel.h"

/* For helpers.h: whether who made request @req was interrupted. */
bool fs_req_stopped(void *req);
/* A failure that someone should hear of: -ret or @err's code, and a line. */
void fs_reply_fail(fuse_req_t req, int ret, const struct ck_err *err);
/* 0 or -errno; a line where @err has one. */
void fs_reply_end(fuse_req_t req, int ret, const struct ck_err *err);
/* The same, but that nobody has to hear of -ENOENT and -EACCES. */
void fs_reply_found(fuse_req_t req, int ret, const struct ck_err *err);
/*
 * 0, or not 0 where nobody waits any more: there will be no release.
 * @parallel: several writers at a time, of a direct file.
 */
int fs_reply_open(fuse_req_t req, const struct fuse_file_info *fi,
		  bool parallel);
/* 0, or not 0: there will be no release. */
int fs_reply_create(fuse_req_t req, const struct fuse_entry_param *e,
		    const struct fuse_file_info *fi);
/* The same where the kernel reads from file @id: see passthrough.h. */
int fs_reply_open_passed(fuse_req_t req, const struct fuse_file_info *fi,
			 int id);
/* @size: what the caller has room for; 0 asks for the length only. */
void fs_reply_xattr(fuse_req_t req, const void *value, size_t len, size_t size);

/*
 * One line on stderr, which the supervisor leads to the log.  A fault that
 * repeats is not allowed to fill the disk: 20 lines, then one a second.
 */
void fs_log(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

#endif
