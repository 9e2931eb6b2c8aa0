/* SPDX-License-Identifier: Apache-2.0 */
#include "core/lib/handed.h"

#include "core/base/auto.h"
#include "core/base/fds.h"
#include "core/ckpt/map_file.h"
#include "core/sandbox/exchange.h"

#include <fcntl.h>
#include <poll.h>
#include <stddef.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#define SECONDS 2 /* for one who is at work with others */

/* A name may be taken by another when the worker has ended. */
static bool is_trusted(int sock)
{
	struct ucred who;
	socklen_t len = sizeof(who);

	return !getsockopt(sock, SOL_SOCKET, SO_PEERCRED, &who, &len) &&
	       (!who.uid || who.uid == geteuid());
}

static int call(const struct ck_map_token *t)
{
	struct sockaddr_un at = { .sun_family = AF_UNIX };
	size_t len = strnlen(t->socket, sizeof(t->socket));
	ck_auto_fd int sock = socket(
		AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

	memcpy(at.sun_path + 1, t->socket, len);
	len += offsetof(struct sockaddr_un, sun_path) + 1;
	if (sock < 0 || connect(sock, (struct sockaddr *)&at, (socklen_t)len) ||
	    !is_trusted(sock) ||
	    send(sock, t->token, sizeof(t->token), MSG_NOSIGNAL) !=
		    sizeof(t->token))
		return -1;
	return ck_steal_fd(sock);
}

/* As the mount shows it, and to be read only. */
static bool is_same(int fd, int shown)
{
	struct stat is, like;
	int flags = fcntl(fd, F_GETFL);

	return flags >= 0 && (flags & O_ACCMODE) == O_RDONLY &&
	       !fstat(fd, &is) && !fstat(shown, &like) && S_ISREG(is.st_mode) &&
	       is.st_size == like.st_size &&
	       is.st_mtim.tv_sec == like.st_mtim.tv_sec &&
	       is.st_mtim.tv_nsec == like.st_mtim.tv_nsec;
}

int ck_handed(int fd)
{
	const struct ck_patience p = ck_patience(SECONDS);
	ck_auto_fd int sock = -1;
	ck_auto_fd int own = -1;
	struct ck_map_token t;
	unsigned nr = 1;
	char byte;

	if (ioctl(fd, CK_MAP_ASK_TOKEN, &t))
		return fd;
	sock = call(&t);
	if (sock < 0 || ck_exchange_wait(sock, POLLIN, &p) ||
	    ck_fds_receive(sock, &byte, 1, &own, &nr, MSG_DONTWAIT) != 1 ||
	    !nr || !is_same(own, fd))
		return fd;
	close(fd);
	return ck_steal_fd(own);
}
