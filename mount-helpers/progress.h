/* SPDX-License-Identifier: Apache-2.0 */
/*
 * progress.h - how far a long command is, in one line on a terminal
 *
 * Nothing is written where standard error is no terminal.
 */
#ifndef PROGRESS_H
#define PROGRESS_H

#include <stdbool.h>
#include <stdint.h>
#include <time.h>

struct progress {
	const char *what; /* "reading files" */
	bool shown, drawn;
	struct timespec began;
};

void progress_begin(struct progress *p, const char *what);
/* Bytes done, of @total. */
void progress_at(struct progress *p, uint64_t bytes, uint64_t total);
/* Takes the line away.  Returns the seconds since it began. */
double progress_end(struct progress *p);

#endif
