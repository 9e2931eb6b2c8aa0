/* SPDX-License-Identifier: Apache-2.0 */
/* progress.c - a bar, the rate, and the time that is left */
#include "mount-helpers/progress.h"
#include "mount-helpers/text.h"

#include "core/base/check.h"

#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#define BAR ((size_t)30)
#define MIN_BAR 4

void progress_begin(struct progress *p, const char *what)
{
	*p = (struct progress){ .what = what, .shown = isatty(STDERR_FILENO) };
	clock_gettime(CLOCK_MONOTONIC, &p->began);
}

static double seconds(const struct progress *p)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (double)(now.tv_sec - p->began.tv_sec) +
	       (double)(now.tv_nsec - p->began.tv_nsec) / 1e9;
}

static void put_left(struct ck_str *s, double left)
{
	uint64_t n = left < 1e9 ? (uint64_t)left : 1000000000;

	if (n >= 3600)
		ck_str_fmt(s, ", %llu h %02llu min left",
			   (unsigned long long)n / 3600,
			   (unsigned long long)n / 60 % 60);
	else
		ck_str_fmt(s, ", %llu:%02llu left", (unsigned long long)n / 60,
			   (unsigned long long)n % 60);
}

/* What "\r" takes away again: a line that wraps would stay. */
static size_t columns(void)
{
	struct winsize w = { 0 };

	if (ioctl(STDERR_FILENO, TIOCGWINSZ, &w) || !w.ws_col)
		return 80;
	return w.ws_col;
}

static void put_bar(struct ck_str *s, double done, size_t width)
{
	size_t full = (size_t)(done * (double)width);

	if (width < MIN_BAR)
		return;
	ck_str_puts(s, " [");
	for (size_t i = 0; i < width; i++)
		ck_str_puts(s, i < full ? "#" : ".");
	ck_str_puts(s, "]");
}

void progress_at(struct progress *p, uint64_t bytes, uint64_t total)
{
	ck_auto_str struct ck_str s = { 0 }, figures = { 0 };
	size_t room = columns() - 1, used;
	double took = seconds(p);

	if (!p->shown || !total)
		return;
	bytes = CK_MIN(bytes, total);
	ck_str_puts(&figures, " ");
	text_size(&figures, bytes);
	ck_str_puts(&figures, " of ");
	text_size(&figures, total);
	if (took > 0.5 && bytes) {
		ck_str_puts(&figures, ", ");
		text_size(&figures, (uint64_t)((double)bytes / took));
		ck_str_puts(&figures, "/s");
		put_left(&figures,
			 took * (double)(total - bytes) / (double)bytes);
	}
	used = strlen(p->what) + strlen(" []") + figures.len;
	ck_str_puts(&s, p->what);
	put_bar(&s, (double)bytes / (double)total,
		used < room ? CK_MIN(room - used, BAR) : 0);
	ck_str_add(&s, figures.v, figures.len);
	fprintf(stderr, "\r\033[K%.*s", (int)CK_MIN(room, s.len),
		s.v ? s.v : "");
	fflush(stderr);
	p->drawn = true;
}

double progress_end(struct progress *p)
{
	if (p->drawn) {
		fputs("\r\033[K", stderr);
		fflush(stderr);
	}
	p->drawn = false;
	return seconds(p);
}
