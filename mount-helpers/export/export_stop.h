/* SPDX-License-Identifier: Apache-2.0 */
/*
 * export_stop.h - SIGINT, SIGTERM and SIGHUP of an export
 *
 * The process that waits passes them on to the one that writes, which ends when
 * what it has is on disk and on record.  Another one after a second or more ends
 * both at once; a sooner one does not, for timeout(1) sends two.
 */
#ifndef EXPORT_STOP_H
#define EXPORT_STOP_H

#include <stdbool.h>
#include <sys/types.h>

/* Of the one that writes: from here on they are asked for. */
void export_stop_begin(void);
bool export_stop_asked(void);

/* Of the one that waits; 0 with *status as of waitpid(), or -errno. */
int export_stop_wait(pid_t pid, int *status);
/* Ends by the signal there was, for whoever asks how it ended; or returns. */
void export_stop_end(void);

#endif
