/* SPDX-License-Identifier: Apache-2.0 */
/* suplog.c - lines with time and mount point, to a file or to syslog */
#include "mount-helpers/mount/supervisor_priv.h"

#include "core/base/auto.h"
#include "core/base/str.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <syslog.h>
#include <time.h>
#include <unistd.h>

static void add_text(const struct suplog *l, const char *stamp,
		     const char *line, struct ck_str *out)
{
	if (l->fd >= 0)
		ck_str_fmt(out, "%s unshard[%d] ", stamp, (int)getpid());
	ck_str_fmt(out, "%s: %s", l->mnt, line);
}

static void add_json(const struct suplog *l, const char *stamp,
		     const char *line, struct ck_str *out)
{
	ck_str_fmt(out, "{\"time\": \"%s\", \"pid\": %d, \"mount\": ", stamp,
		   (int)getpid());
	ck_str_json(out, l->mnt, strlen(l->mnt));
	ck_str_puts(out, ", \"message\": ");
	ck_str_json(out, line, strlen(line));
	ck_str_puts(out, "}");
}

static void write_line(const struct suplog *l, const char *line)
{
	ck_auto_str struct ck_str text = { 0 };
	time_t now = time(NULL);
	char stamp[32] = "";
	struct tm tm;

	if (gmtime_r(&now, &tm))
		strftime(stamp, sizeof(stamp), "%FT%TZ", &tm);
	(l->json ? add_json : add_text)(l, stamp, line, &text);
	if (l->fd >= 0)
		ck_str_puts(&text, "\n");
	if (text.failed)
		return;
	if (l->fd < 0)
		syslog(LOG_WARNING, "%s", text.v);
	/* One write: lines of several mounts may share the file. */
	while (l->fd >= 0 && write(l->fd, text.v, text.len) < 0 &&
	       errno == EINTR)
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
