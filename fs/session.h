/* SPDX-License-Identifier: Apache-2.0 */
/*
 * session.h - one mount: made and ended by the supervisor, served by a worker
 *
 * The supervisor opens the session (mounts), forks, and the child serves it.
 * The supervisor then keeps only the right to unmount.
 */
#ifndef FS_SESSION_H
#define FS_SESSION_H

#include "core/base/err.h"
#include "core/base/opts.h"
#include "core/ckpt.h"

struct fs_session;

/*
 * Mounts at @mnt, as root or through fusermount3.  @src is what df shows.
 * Options: allow-other direct threads ... (fs/opts.c).
 */
int fs_session_open(struct fs_session **out, const char *src, const char *mnt,
		    const struct ck_opts *opts, struct ck_err *err);
/*
 * Worker: answers requests until the mount is gone; borrows @ck.  Called in
 * the sandbox; everything that needs a path was opened before.
 */
int fs_session_serve(struct fs_session *s, struct ck_ckpt *ck,
		     struct ck_err *err);
/* Supervisor: forget the descriptor, so that the worker's end ends all. */
void fs_session_detach(struct fs_session *s);
/* Supervisor: unmount; lazily where it is busy.  Then free. */
void fs_session_close(struct fs_session *s);
/* For `unshard umount`: 0, or -EBUSY, -EINVAL (not a mount of ours) ... */
int fs_unmount(const char *mnt, bool lazy, struct ck_err *err);

#endif
