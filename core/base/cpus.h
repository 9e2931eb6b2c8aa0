/* SPDX-License-Identifier: Apache-2.0 */
/* cpus.h - processors: how many there are, and which one a thread keeps off */
#ifndef CK_CPUS_H
#define CK_CPUS_H

#include <pthread.h>

/*
 * Those that the calling thread may run on: what taskset, a cpuset or a batch
 * system leave of the machine's.  At least 1.
 */
unsigned ck_cpus(void);

/*
 * A thread that is to work beside the one that wakes it gains nothing where it
 * has to wait for that one's processor.  The kernel puts it there all the same
 * when it takes both for busy, and it does so for as long as they sleep and
 * wake in turns.
 *
 * Threads: a struct by one at a time.
 */
struct ck_cpu_avoid {
	int from; /* the processor, or one of the following */
};

enum { CK_CPU_AVOID_NOWHERE = -1, CK_CPU_AVOID_NEVER = -2 };

#define CK_CPU_AVOID_INIT ((struct ck_cpu_avoid){ CK_CPU_AVOID_NOWHERE })

/*
 * From now on @thread, always the same, runs where the caller may, other than
 * on the processor where the caller is now.  Nothing changes where that leaves
 * none.  Cheap while the caller stays where it is.
 */
void ck_cpu_avoid_keep(struct ck_cpu_avoid *a, pthread_t thread);

#endif
