/* SPDX-License-Identifier: Apache-2.0 */
#include "core/base/fds.h"

#include "core/base/auto.h"
#include "core/base/whole.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#ifndef SYS_close_range
#define SYS_close_range 436 /* Linux 5.9; one number on all machines */
#endif

static void sort(int *v, unsigned nr)
{
	for (unsigned i = 1; i < nr; i++)
		for (unsigned j = i; j > 0 && v[j - 1] > v[j]; j--) {
			int swap = v[j];

			v[j] = v[j - 1];
			v[j - 1] = swap;
		}
}

static void close_from_to(unsigned first, unsigned last)
{
	long max;

	if (first > last || !syscall(SYS_close_range, first, last, 0))
		return;
	max = sysconf(_SC_OPEN_MAX);
	for (unsigned fd = first; fd <= last && (long)fd < max; fd++)
		close((int)fd);
}

void ck_fds_close_others(int *keep, unsigned nr)
{
	unsigned next = 0;

	sort(keep, nr);
	for (unsigned i = 0; i < nr; i++) {
		if (keep[i] < 0)
			continue;
		if ((unsigned)keep[i] > next)
			close_from_to(next, (unsigned)keep[i] - 1);
		next = (unsigned)keep[i] + 1;
	}
	close_from_to(next, UINT_MAX);
}

int ck_fds_null(void)
{
	int fd = open("/dev/null", O_RDWR | O_CLOEXEC);

	if (fd >= 0 || errno != ENOENT)
		return fd;
	fd = memfd_create("null", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	if (fd >= 0)
		fcntl(fd, F_ADD_SEALS,
		      F_SEAL_WRITE | F_SEAL_GROW | F_SEAL_SEAL);
	return fd;
}

int ck_fds_nameless(int dir)
{
	char name[40];
	uint64_t lot;
	int fd = openat(dir, ".", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);

	if (fd >= 0 ||
	    (errno != EOPNOTSUPP && errno != EISDIR && errno != EINVAL))
		return fd;
	if (getrandom(&lot, sizeof(lot), 0) != (ssize_t)sizeof(lot))
		return -1;
	snprintf(name, sizeof(name), ".unshard-spool-%016llx",
		 (unsigned long long)lot);
	fd = openat(dir, name, O_CREAT | O_EXCL | O_RDWR | O_CLOEXEC, 0600);
	if (fd >= 0)
		unlinkat(dir, name, 0);
	return fd;
}

int ck_fds_lock(int fd, off_t at, short type)
{
	struct flock fl = { .l_type = type, .l_start = at, .l_len = 1 };

	if (!fcntl(fd, F_OFD_SETLK, &fl))
		return 0;
	return errno == EAGAIN || errno == EACCES ? -EBUSY : -EOPNOTSUPP;
}

bool ck_fds_is_locked(int fd, off_t at)
{
	struct flock fl = { .l_type = F_WRLCK, .l_start = at, .l_len = 1 };

	return !fcntl(fd, F_OFD_GETLK, &fl) && fl.l_type != F_UNLCK;
}

int ck_fds_put_file(int dir, const char *name, const char *temp, mode_t mode,
		    const void *bytes, uint64_t len)
{
	const char *first = temp ? temp : name;
	ck_auto_fd int fd = -1;
	int ret;

	if (temp) /* of a process that had our number */
		unlinkat(dir, temp, 0);
	fd = openat(dir, first, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, mode);
	ret = fd < 0 ? -errno : ck_pwrite_whole(fd, bytes, len, 0);
	if (!ret && fsync(fd))
		ret = -errno;
	if (!ret && temp && renameat(dir, temp, dir, name))
		ret = -errno;
	if (ret && fd >= 0)
		unlinkat(dir, first, 0);
	return ret;
}

int ck_fds_sync_dir(int dir)
{
	ck_auto_fd int fd =
		openat(dir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	return fd < 0 || fsync(fd) ? -errno : 0;
}

bool ck_fds_has(int dir, const char *name)
{
	struct stat st;

	return !fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW);
}

int ck_fds_rename(int dir, const char *name, int new_dir, const char *new_name,
		  unsigned flags)
{
	return syscall(SYS_renameat2, dir, name, new_dir, new_name, flags) ?
		       -errno :
		       0;
}

/* What goes beside the bytes of a message. */
union rights {
	struct cmsghdr head;
	char room[CMSG_SPACE(sizeof(int) * CK_FDS_MAX)];
};

ssize_t ck_fds_send(int sock, const void *buf, size_t len, const int *fds,
		    unsigned nr, int flags)
{
	union rights u = { 0 };
	struct iovec iov = { (void *)buf, len };
	struct msghdr msg = { .msg_iov = &iov, .msg_iovlen = 1 };
	ssize_t n;

	if (nr) {
		msg.msg_control = &u;
		msg.msg_controllen = CMSG_SPACE(sizeof(int) * nr);
		u.head.cmsg_level = SOL_SOCKET;
		u.head.cmsg_type = SCM_RIGHTS;
		u.head.cmsg_len = CMSG_LEN(sizeof(int) * nr);
		memcpy(CMSG_DATA(&u.head), fds, sizeof(int) * nr);
	}
	do
		n = sendmsg(sock, &msg, MSG_NOSIGNAL | flags);
	while (n < 0 && errno == EINTR);
	return n < 0 ? -errno : n;
}

ssize_t ck_fds_receive(int sock, void *buf, size_t len, int *fds, unsigned *nr,
		       int flags)
{
	union rights u;
	struct iovec iov = { buf, len };
	struct msghdr msg = { .msg_iov = &iov,
			      .msg_iovlen = 1,
			      .msg_control = &u,
			      .msg_controllen = CMSG_SPACE(sizeof(int) * *nr) };
	const struct cmsghdr *c;
	unsigned room = *nr, got = 0;
	ssize_t n;

	*nr = 0;
	do
		n = recvmsg(sock, &msg, MSG_CMSG_CLOEXEC | flags);
	while (n < 0 && errno == EINTR);
	if (n < 0)
		return -errno;
	c = CMSG_FIRSTHDR(&msg);
	if (c && c->cmsg_level == SOL_SOCKET && c->cmsg_type == SCM_RIGHTS)
		got = (unsigned)((c->cmsg_len - CMSG_LEN(0)) / sizeof(int));
	for (unsigned i = 0; i < got; i++) {
		int fd;

		memcpy(&fd, CMSG_DATA(c) + i * sizeof(fd), sizeof(fd));
		if (i < room)
			fds[(*nr)++] = fd;
		else
			close(fd); /* room is rounded up */
	}
	return n;
}
