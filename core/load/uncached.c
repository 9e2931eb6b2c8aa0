/* SPDX-License-Identifier: Apache-2.0 */
/*
 * uncached.c - reads that leave the page cache as it was
 *
 * Direct ones go past it, in whole blocks by way of a buffer of the thread's.
 * Where a file system has none, where bytes are compared or replaced on their way
 * (verify, an overlay), or where a file cannot be opened once more, they are
 * plain ones, and the statistics say so.
 *
 * Dropped is what is read of a file of which nothing was cached when the load
 * came to it: what others use stays.
 */
#include "core/load/load_priv.h"

#include "core/base/auto.h"
#include "core/base/check.h"
#include "core/io/bytes.h"
#include "core/io/direct.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

#define SYS_CACHESTAT 451

/* ---- direct ---- */

int ck_load_direct_fd(struct ck_load *load, const struct ck_bytes *b)
{
	const struct ck_reader_in *in = ck_reader_settings(load->reader);
	int fd;

	if (b->fd < 0 || b->spooled || in->checked || in->over || in->made) {
		ck_load_note(load, "cache=direct: not with verify, an "
				   "overlay, a view or compressed items");
		return -1;
	}
	fd = ck_direct_open(b->fd);
	if (fd < 0)
		ck_load_note(load, "cache=direct: a file has none");
	return fd;
}

bool ck_load_direct(struct ck_load_job *job, const struct ck_bytes *b)
{
	ck_auto_fd int fd = ck_load_direct_fd(job->load, b);
	struct ck_plan *p = &job->plan;
	unsigned i = 0;

	if (fd >= 0 && !job->direct)
		job->direct = aligned_alloc(CK_DIRECT_BLOCK, CK_DIRECT_ROOM);
	if (fd >= 0 && !job->direct)
		ck_load_note(job->load, "cache=direct: no memory");
	if (fd < 0 || !job->direct)
		return false;
	for (; i < p->nr_io; i++) {
		p->io[i].res = ck_direct_read(fd, job->direct, &p->io[i]);
		if (p->io[i].res == -EINVAL && !i)
			break; /* so the file system says it, if not before */
	}
	if (i == p->nr_io)
		return true;
	ck_load_note(job->load, "cache=direct: a file has none");
	return false;
}

/* ---- dropped ---- */

enum { UNKNOWN, DROP, KEEP };

struct cachestat_range {
	uint64_t off, len;
};

struct cachestat {
	uint64_t cached, dirty, writeback, evicted, recently_evicted;
};

/* Whether a page of it is in memory; where that cannot be asked, one is. */
static bool is_cached(int fd)
{
	struct cachestat_range all = { 0, 0 };
	struct cachestat got = { 0 };

	return syscall(SYS_CACHESTAT, fd, &all, &got, 0) || got.cached;
}

bool ck_load_drops(struct ck_load *load, const struct ck_bytes *b)
{
	_Atomic uint8_t *is = load->drop ? &load->drop[b->src] : NULL;

	if (!is || b->fd < 0 || b->spooled)
		return false;
	if (*is == UNKNOWN) {
		uint8_t unknown = UNKNOWN;

		/* who was first has read of it since, perhaps */
		atomic_compare_exchange_strong(is, &unknown,
					       is_cached(b->fd) ? KEEP : DROP);
	}
	return *is == DROP;
}

void ck_load_drop(const struct ck_load_job *job, const struct ck_bytes *b)
{
	posix_fadvise(b->fd, (off_t)job->lo, (off_t)(job->hi - job->lo),
		      POSIX_FADV_DONTNEED);
}
