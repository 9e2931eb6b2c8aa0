/* SPDX-License-Identifier: Apache-2.0 */
/*
 * notify.c - telling systemd, or whoever else listens, how the mount is
 *
 * sd_notify(3)'s protocol: one datagram of NAME=VALUE lines to the socket that
 * $NOTIFY_SOCKET names.  Nobody listens: nothing is done, and nothing waits.
 */
#include "mount-helpers/mount/supervisor_priv.h"

#include "core/base/auto.h"

#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

void notify_line(const char *fmt, ...)
{
	const char *path = getenv("NOTIFY_SOCKET");
	struct sockaddr_un to = { .sun_family = AF_UNIX };
	size_t len = path ? strlen(path) : 0;
	ck_auto_fd int fd = -1;
	char text[2048];
	va_list ap;

	if (!len || len >= sizeof(to.sun_path))
		return;
	memcpy(to.sun_path, path, len);
	if (*path == '@')
		to.sun_path[0] = '\0'; /* not in any folder */
	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	if (fd >= 0)
		sendto(fd, text, strlen(text), MSG_DONTWAIT | MSG_NOSIGNAL,
		       (const struct sockaddr *)&to,
		       (socklen_t)(offsetof(struct sockaddr_un, sun_path) +
				   len));
}
