/* SPDX-License-Identifier: Apache-2.0 */
#include "fs/kernel/passthrough.h"

#include "core/base/fds.h"

#include <errno.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/time.h>
#include <unistd.h>

#define ANSWER_SECONDS 5
#define DEVICE makedev(10, 229)

/* As linux/fuse.h has them from 6.9. */
struct backing_map {
	int32_t fd;
	uint32_t flags;
	uint64_t padding;
};
#define BACKING_OPEN _IOW(229, 1, struct backing_map)
#define BACKING_CLOSE _IOW(229, 2, uint32_t)

/* With the device and, where @drop is 0, the file. */
struct order {
	uint32_t drop;
};

#define MOST_FDS 2

/* ---- in the process that started the worker ---- */

int fs_passthrough_pair(int *own, int *worker, struct ck_err *err)
{
	struct timeval most = { .tv_sec = ANSWER_SECONDS };
	int ends[2];

	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends))
		return ck_fail(err, errno, "-o cache: socketpair: %s",
			       strerror(errno));
	setsockopt(ends[1], SOL_SOCKET, SO_RCVTIMEO, &most, sizeof(most));
	setsockopt(ends[1], SOL_SOCKET, SO_SNDTIMEO, &most, sizeof(most));
	*own = ends[0];
	*worker = ends[1];
	return 0;
}

static bool is_device(int fd)
{
	struct stat st;

	return !fstat(fd, &st) && S_ISCHR(st.st_mode) && st.st_rdev == DEVICE;
}

static bool is_plain(int fd)
{
	struct stat st;

	return !fstat(fd, &st) && S_ISREG(st.st_mode);
}

static int32_t obey(const struct order *o, const int fd[MOST_FDS])
{
	struct backing_map map = { .fd = fd[1] };
	uint32_t id = o->drop;
	int ret;

	if (!is_device(fd[0]) || (!id && !is_plain(fd[1])))
		return -EINVAL;
	ret = id ? ioctl(fd[0], BACKING_CLOSE, &id) :
		   ioctl(fd[0], BACKING_OPEN, &map);
	return ret < 0 ? -errno : ret;
}

bool fs_passthrough_serve(int own)
{
	struct order o;
	int fd[MOST_FDS] = { -1, -1 };
	unsigned nr = MOST_FDS;
	ssize_t n = ck_fds_receive(own, &o, sizeof(o), fd, &nr, MSG_DONTWAIT);
	int32_t said;

	if (n < 0)
		return n == -EAGAIN;
	if (n == sizeof(o)) {
		said = obey(&o, fd);
		send(own, &said, sizeof(said), MSG_NOSIGNAL | MSG_DONTWAIT);
	}
	for (unsigned i = 0; i < MOST_FDS; i++)
		if (fd[i] >= 0)
			close(fd[i]);
	return n == sizeof(o);
}

/* ---- in the worker ---- */

static int order(int worker, uint32_t drop, const int *fd, unsigned nr)
{
	struct order o = { drop };
	int32_t said;
	ssize_t n;

	if (ck_fds_send(worker, &o, sizeof(o), fd, nr, 0) != sizeof(o))
		return -EPIPE;
	do
		n = recv(worker, &said, sizeof(said), 0);
	while (n < 0 && errno == EINTR);
	return n == sizeof(said) ? said : -EPIPE;
}

int fs_passthrough_add(int worker, int dev, int file)
{
	const int fd[] = { dev, file };

	return order(worker, 0, fd, 2);
}

int fs_passthrough_drop(int worker, int dev, int id)
{
	return order(worker, (uint32_t)id, &dev, 1);
}
