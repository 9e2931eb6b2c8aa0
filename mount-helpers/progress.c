/* SPDX-License-Identifier: Apache-2.0 */
/* progress.c - a bar, the rate, and the time that is left */
#include "mount-helpers/progress.h"
#include "mount-helpers/text.h"

#include "core/base/check.h"

#include <stdio.h>
#include <unistd.h>

#define BAR 30

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

void progress_at(struct progress *p, uint64_t bytes, uint64_t total)
{
	ck_auto_str struct ck_str s = { 0 };
	double took = seconds(p);
	unsigned full;

	if (!p->shown || !total)
		return;
	bytes = CK_MIN(bytes, total);
	full = (unsigned)((double)bytes / (double)total * BAR);
	ck_str_fmt(&s, "\r\033[K%s [", p->what);
	for (unsigned i = 0; i < BAR; i++)
		ck_str_puts(&s, i < full ? "#" : ".");
	ck_str_puts(&s, "] ");
	text_size(&s, bytes);
	ck_str_puts(&s, " of ");
	text_size(&s, total);
	if (took > 0.5 && bytes) {
		ck_str_puts(&s, ", ");
		text_size(&s, (uint64_t)((double)bytes / took));
		ck_str_puts(&s, "/s");
		put_left(&s, took * (double)(total - bytes) / (double)bytes);
	}
	fputs(s.v ? s.v : "", stderr);
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
