/* SPDX-License-Identifier: Apache-2.0 */
/* suplog.c - lines with time and mount point, to a file or to syslog */
#include "mount-helpers/mount/supervisor_priv.h"

#include "core/base/check.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <syslog.h>
#include <time.h>
#include <unistd.h>

static void write_line(const struct suplog *l, const char *line)
{
	char stamp[32] = "", text[2048];
	time_t now = time(NULL);
	struct tm tm;
	int n;

	if (l->fd < 0) {
		syslog(LOG_WARNING, "%s: %s", l->mnt, line);
		return;
	}
	if (gmtime_r(&now, &tm))
		strftime(stamp, sizeof(stamp), "%FT%TZ", &tm);
	n = snprintf(text, sizeof(text), "%s unshard[%d] %s: %s\n", stamp,
		     (int)getpid(), l->mnt, line);
	if (n >= (int)sizeof(text)) {
		n = sizeof(text) - 1;
		text[n - 1] = '\n';
	}
	/* One write: lines of several mounts may share the file. */
	while (write(l->fd, text, (size_t)n) < 0 && errno == EINTR)
		;
}

void suplog_line(struct suplog *l, const char *fmt, ...)
{
	char raw[CK_ERR_MAX];
	struct ck_err line;
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(raw, sizeof(raw), fmt, ap);
	va_end(ap);
	ck_fail(&line, EINVAL, "%s", raw); /* escapes control bytes */
	write_line(l, line.msg);
}

static void end_line(struct suplog *l)
{
	l->part[l->len] = '\0';
	if (l->len)
		suplog_line(l, "%s", l->part);
	l->len = 0;
}

bool suplog_take(struct suplog *l, int fd)
{
	char buf[4096];
	ssize_t n = read(fd, buf, sizeof(buf));

	if (n < 0 && (errno == EINTR || errno == EAGAIN))
		return true;
	for (ssize_t i = 0; i < n; i++) {
		if (buf[i] == '\n' || l->len == sizeof(l->part) - 1)
			end_line(l);
		if (buf[i] != '\n')
			l->part[l->len++] = buf[i];
	}
	if (n <= 0)
		end_line(l);
	return n > 0;
}
