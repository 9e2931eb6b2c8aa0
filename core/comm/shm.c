/* SPDX-License-Identifier: Apache-2.0 */
/*
 * shm.c - processes of one user on a node
 *
 * They meet at names without a file.  Each has its slots in a memfd, allocated
 * and sealed at its size, so that no other one is killed by looking there, and
 * hands it to all.
 */
#include "core/comm/comm_priv.h"

#include "core/base/auto.h"
#include "core/base/clock.h"
#include "core/base/fds.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/un.h>

#define SEALS (F_SEAL_SHRINK | F_SEAL_GROW)
#define NAME "unshard-"

static bool parse(const char *text, size_t len, struct ck_comm_place *out)
{
	struct sockaddr_un un = { .sun_family = AF_UNIX };

	if (!len || len > sizeof(un.sun_path) - sizeof(NAME))
		return false;
	memcpy(un.sun_path + 1, NAME, strlen(NAME));
	memcpy(un.sun_path + sizeof(NAME), text, len);
	memcpy(&out->addr, &un, sizeof(un));
	out->len = (socklen_t)(offsetof(struct sockaddr_un, sun_path) +
			       sizeof(NAME) + len);
	return true;
}

static int listen_at(struct ck_comm *c, const char *host, struct ck_err *err)
{
	struct ck_comm_place me;
	uint64_t name;

	(void)host;
	if (getrandom(&name, sizeof(name), 0) != sizeof(name))
		return ck_fail(err, EIO, "getrandom: %s", strerror(errno));
	snprintf(c->address, sizeof(c->address), "shm:%016llx",
		 (unsigned long long)name);
	if (!parse(c->address + 4, strlen(c->address + 4), &me))
		return ck_fail(err, EINVAL, "%s", c->address);
	c->listener =
		socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (c->listener < 0 ||
	    bind(c->listener, (const void *)&me.addr, me.len) ||
	    listen(c->listener, 1024))
		return ck_fail(err, errno, "a socket of the node: %s",
			       strerror(errno));
	return 0;
}

static int greet(int fd)
{
	struct ucred who;
	socklen_t len = sizeof(who);

	if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &who, &len))
		return -errno;
	return who.uid == geteuid() ? 0 : -EACCES;
}

/* ---- slots ---- */

static int make(struct ck_comm *c, int *out, struct ck_err *err)
{
	off_t size = (off_t)(c->block * CK_COMM_SLOTS);
	ck_auto_fd int fd =
		memfd_create("unshard-comm", MFD_CLOEXEC | MFD_ALLOW_SEALING);

	if (fd < 0 || ftruncate(fd, size) || fallocate(fd, 0, 0, size) ||
	    fcntl(fd, F_ADD_SEALS, SEALS))
		return ck_fail(err, errno, "%lld bytes of shared memory: %s",
			       (long long)size, strerror(errno));
	c->peer[c->rank].slots =
		ck_comm_room(c, fd, PROT_READ | PROT_WRITE, err);
	if (!c->peer[c->rank].slots)
		return -ENOMEM;
	*out = ck_steal_fd(fd);
	return 0;
}

static int give(int to, int fd)
{
	ssize_t n = ck_fds_send(to, "", 1, &fd, 1, 0);

	return n == 1 ? 0 : (int)n;
}

/* -1 with errno, which is 0 where its end was there. */
static int take(int from)
{
	unsigned nr = 1;
	int fd = -1;
	char byte;
	ssize_t n = ck_fds_receive(from, &byte, 1, &fd, &nr, 0);

	errno = n < 0 ? (int)-n : 0;
	return fd;
}

static int map(struct ck_comm *c, unsigned rank, int fd, struct ck_err *err)
{
	struct stat st;
	int seals = fcntl(fd, F_GET_SEALS);

	if (seals < 0 || (seals & SEALS) != SEALS || fstat(fd, &st) ||
	    (uint64_t)st.st_size != c->block * CK_COMM_SLOTS)
		return ck_fail(err, EPROTO,
			       "rank %u of %u: its memory is not as agreed",
			       rank, c->ranks);
	c->peer[rank].slots = ck_comm_room(c, fd, PROT_READ, err);
	return c->peer[rank].slots ? 0 : -ENOMEM;
}

static int take_from(struct ck_comm *c, unsigned rank, int64_t until,
		     struct ck_err *err)
{
	ck_auto_fd int fd = -1;
	struct pollfd fds[2] = { { c->peer[rank].fd, POLLIN, 0 },
				 { c->event, POLLIN, 0 } };

	for (;;) {
		int64_t left = until - ck_now_ms();

		fd = take(fds[0].fd);
		if (fd >= 0)
			return map(c, rank, fd, err);
		if (errno != EAGAIN && errno != EINTR)
			return ck_fail(err, ECONNRESET,
				       "rank %u of %u is gone: %s", rank,
				       c->ranks,
				       errno ? strerror(errno) :
					       "its connection was closed");
		if (left <= 0)
			return ck_fail(err, ETIMEDOUT,
				       "rank %u of %u did not answer", rank,
				       c->ranks);
		if (c->aborted)
			return ck_fail(err, ECANCELED,
				       "the communicator was ended");
		poll(fds, 2, (int)left);
	}
}

static int slots(struct ck_comm *c, struct ck_err *err)
{
	int64_t until = ck_now_ms() + c->timeout_ms;
	ck_auto_fd int mine = -1;
	int ret = make(c, &mine, err);

	for (unsigned i = 0; i < c->ranks && !ret; i++) {
		int code = i == c->rank ? 0 : give(c->peer[i].fd, mine);

		if (code)
			ret = ck_fail(err, ECONNRESET,
				      "rank %u of %u is gone: %s", i, c->ranks,
				      strerror(-code));
	}
	for (unsigned i = 0; i < c->ranks && !ret; i++)
		if (i != c->rank)
			ret = take_from(c, i, until, err);
	return ret;
}

const struct ck_comm_ops ck_comm_shm = {
	.kind = "shm",
	.shared = true,
	.listen = listen_at,
	.parse = parse,
	.greet = greet,
	.slots = slots,
};
