/* SPDX-License-Identifier: Apache-2.0 */
/* cpus.h - how many processors there are for this process */
#ifndef CK_CPUS_H
#define CK_CPUS_H

/*
 * Those that the calling thread may run on: what taskset, a cpuset or a batch
 * system leave of the machine's.  At least 1.
 */
unsigned ck_cpus(void);

#endif
