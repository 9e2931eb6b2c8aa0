/* SPDX-License-Identifier: Apache-2.0 */
/*
 * session.h - one mount: made and ended by the supervisor, served by a worker
 *
 * The supervisor opens the session (mounts), forks, and the child serves it.
 * The supervisor then keeps only the right to unmount.
 *
 *	fs_session_open(&s, src, mnt, opts, &err);
 *	if (fork() == 0)
 *		return fs_session_serve(s, &in, &err);
 *	fs_session_detach(s);	(wait for the child)
 *	fs_session_close(s);
 */
#ifndef FS_SESSION_H
#define FS_SESSION_H

#include "core/base/err.h"
#include "core/base/opts.h"
#include "core/ckpt/ckpt.h"

#include <stdbool.h>

struct fs_session;

/*
 * Mounts at @mnt, a directory, as root or through fusermount3.  @src is what
 * df shows.  Options: allow-other direct threads (core/options/options.c); borrowed for
 * the call.  One thread, for libfuse's words on stderr are caught meanwhile.
 * Whoever touches the mount waits until it is served.
 */
int fs_session_open(struct fs_session **out, const char *src, const char *mnt,
		    const struct ck_opts *opts, struct ck_err *err);

/* What the worker must keep open; -1: none. */
#define FS_SESSION_FDS 3
void fs_session_fds(const struct fs_session *s, int fds[FS_SESSION_FDS]);
/* Whether the worker hands descriptors over (fs/handover.h). */
bool fs_session_hands_over(const struct fs_session *s);

struct fs_serve_in {
	/* One of the two, borrowed until the call returns. */
	struct ck_ckpt *ck;
	const struct ck_root *steps; /* a directory of checkpoints */
	const struct ck_opts *opts; /* of views, and of entries of @steps */
	unsigned sandbox; /* CK_SANDBOX_* in force, for .unshard/stats */
	int askers_fd; /* of fs_askers_open(), with allow-other; taken */
	int cache_fd; /* the folder of -o cache; -1; borrowed */
	int passthrough_fd; /* fs/kernel/passthrough.h; -1; taken */
	/* Called once, by any thread, when the mount answers; may be NULL. */
	void (*ready)(void *ctx);
	void *ctx;
};

/*
 * Worker: answers requests until the mount is gone, then 0.  Called in the
 * sandbox; needs no path but /dev/fuse, and does without where it is denied.
 */
int fs_session_serve(struct fs_session *s, const struct fs_serve_in *in,
		     struct ck_err *err);
/* Supervisor: forget the descriptor, so that the worker's end ends all. */
void fs_session_detach(struct fs_session *s);
/*
 * Supervisor: somebody else unmounted it; another mount, which must stay, may
 * lie there by now, even one with the same numbers.
 */
void fs_session_gone(struct fs_session *s);
/* Supervisor: unmount; lazily where it is busy.  Then free. */
void fs_session_close(struct fs_session *s);
/*
 * For `unshard umount`: 0, or -EBUSY, -EINVAL (not a mount of ours), -EPERM
 * ... with a line.  Works on a mount whose worker is dead.
 */
int fs_unmount(const char *mnt, bool lazy, struct ck_err *err);
/*
 * The same, not lazily, and then waits for the end of the processes that
 * served it; -ETIMEDOUT with a line: it is unmounted, and they go on.
 */
int fs_unmount_wait(const char *mnt, unsigned seconds, struct ck_err *err);

#endif
