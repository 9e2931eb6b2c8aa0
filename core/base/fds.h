/* SPDX-License-Identifier: Apache-2.0 */
/* fds.h - which descriptors a new process keeps */
#ifndef CK_FDS_H
#define CK_FDS_H

/*
 * Closes every descriptor but those in @keep (any order; negative ones are
 * ignored; sorted in place).  Takes no lock and no memory: it may be called
 * after fork() in a program with threads.
 */
void ck_fds_close_others(int *keep, unsigned nr);

#endif
