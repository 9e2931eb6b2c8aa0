/* SPDX-License-Identifier: Apache-2.0 */
/* fds.h - which descriptors a new process has */
#ifndef CK_FDS_H
#define CK_FDS_H

/*
 * Closes every descriptor but those in @keep (any order; negative ones are
 * ignored; sorted in place).  Takes no lock and no memory: it may be called
 * after fork() in a program with threads.
 */
void ck_fds_close_others(int *keep, unsigned nr);

/*
 * /dev/null, opened to read and write; in a root without one, an empty file that
 * no write changes (they fail).  -1 with errno.
 */
int ck_fds_null(void);

#endif
