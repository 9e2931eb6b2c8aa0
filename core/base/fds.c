/* SPDX-License-Identifier: Apache-2.0 */
#include "core/base/fds.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#ifndef SYS_close_range
#define SYS_close_range 436 /* Linux 5.9; one number on all machines */
#endif

static void sort(int *v, unsigned nr)
{
	for (unsigned i = 1; i < nr; i++)
		for (unsigned j = i; j > 0 && v[j - 1] > v[j]; j--) {
			int swap = v[j];

			v[j] = v[j - 1];
			v[j - 1] = swap;
		}
}

static void close_from_to(unsigned first, unsigned last)
{
	long max;

	if (first > last || !syscall(SYS_close_range, first, last, 0))
		return;
	max = sysconf(_SC_OPEN_MAX);
	for (unsigned fd = first; fd <= last && (long)fd < max; fd++)
		close((int)fd);
}

void ck_fds_close_others(int *keep, unsigned nr)
{
	unsigned next = 0;

	sort(keep, nr);
	for (unsigned i = 0; i < nr; i++) {
		if (keep[i] < 0)
			continue;
		if ((unsigned)keep[i] > next)
			close_from_to(next, (unsigned)keep[i] - 1);
		next = (unsigned)keep[i] + 1;
	}
	close_from_to(next, UINT_MAX);
}

int ck_fds_null(void)
{
	int fd = open("/dev/null", O_RDWR | O_CLOEXEC);

	if (fd >= 0 || errno != ENOENT)
		return fd;
	fd = memfd_create("null", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	if (fd >= 0)
		fcntl(fd, F_ADD_SEALS,
		      F_SEAL_WRITE | F_SEAL_GROW | F_SEAL_SEAL);
	return fd;
}
