/* SPDX-License-Identifier: Apache-2.0 */
/* fds.h - which descriptors a new process has, passing them on, names in folders */
#ifndef CK_FDS_H
#define CK_FDS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define CK_FDS_MAX 253 /* in one message: the kernel's limit */

/*
 * Closes every descriptor but those in @keep (any order; negative ones are
 * ignored; sorted in place).  Takes no lock and no memory: it may be called
 * after fork() in a program with threads.
 */
void ck_fds_close_others(int *keep, unsigned nr);

/*
 * /dev/null, opened to read and write; in a root without one, an empty file that
 * no write changes (they fail).  -1 with errno.
 */
int ck_fds_null(void);

/*
 * A file without a name in the folder @dir, for reading and writing; where the
 * file system has none, its name is gone at once.  -1 with errno.
 */
int ck_fds_nameless(int dir);

/*
 * Byte @at of an open file, which may be far behind its end, for who has it open:
 * F_RDLCK, F_WRLCK or F_UNLCK.  Such locks end with the last descriptor, and NFS
 * and Lustre pass them on to the server.  0; -EBUSY: somebody else's is in the way;
 * -EOPNOTSUPP where there are none.
 */
int ck_fds_lock(int fd, off_t at, short type);
/* Whether somebody else has it, in whatever way. */
bool ck_fds_is_locked(int fd, off_t at);

/* The folder @dir, which may be O_PATH, is on storage: 0 or -errno. */
int ck_fds_sync_dir(int dir);
/*
 * A file @name in the folder @dir with these bytes, on storage but for its name:
 * 0 or -errno.  @temp, what it is called before, or NULL, is what it takes the
 * place of another by.
 */
int ck_fds_put_file(int dir, const char *name, const char *temp, mode_t mode,
		    const void *bytes, uint64_t len);
/* Whether the folder @dir has @name, a link that leads nowhere included. */
bool ck_fds_has(int dir, const char *name);
/* renameat2(), which not every C library has: 0 or -errno. */
int ck_fds_rename(int dir, const char *name, int new_dir, const char *new_name,
		  unsigned flags);

/*
 * One message over a socket: @len bytes, at least one, and @nr descriptors with
 * them, at most CK_FDS_MAX.  @flags: MSG_DONTWAIT or 0.  Bytes, or -errno.
 */
ssize_t ck_fds_send(int sock, const void *buf, size_t len, const int *fds,
		    unsigned nr, int flags);
/*
 * The same, received: *nr, the most that @fds has room for, becomes how many came.
 * They are the caller's, and closed on exec; what there is no room for is closed.
 */
ssize_t ck_fds_receive(int sock, void *buf, size_t len, int *fds, unsigned *nr,
		       int flags);

#endif
