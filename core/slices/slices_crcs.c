/* SPDX-License-Identifier: Apache-2.0 */
/*
 * slices_crcs.c - what the archives of DCP say of their bytes
 *
 * Slices may be written in any order and anew, and by several; then no sum can
 * follow, and what was written is read once more, by several threads, a file each.
 */
#include "core/slices/slices_priv.h"

#include "core/base/auto.h"
#include "core/base/check.h"
#include "core/base/crc32.h"
#include "core/base/whole.h"
#include "core/base/pool.h"

#include <errno.h>
#include <stdatomic.h>
#include <string.h>

struct job {
	struct ck_slices *sl;
	uint32_t *crc;
	_Atomic uint32_t next;
	_Atomic int stop; /* -errno */
	pthread_mutex_t lock;
	struct ck_err why;
};

int ck_slices_crc(const struct ck_slice_plan_piece *p, int fd, void *buf,
		  uint32_t *crc)
{
	*crc = 0;
	for (uint64_t at = 0, len; at < p->len; at += len) {
		int ret;

		len = CK_MIN(CK_SLICES_BUFFER, p->len - at);
		ret = ck_pread_whole(fd, buf, len, p->off + at);
		if (ret)
			return ret;
		*crc = ck_crc32(*crc, buf, len);
	}
	return 0;
}

static int sum_file(struct job *j, uint32_t file, void *buf, struct ck_err *err)
{
	const struct ck_slice_plan *p = &j->sl->plan;
	const struct ck_slice_plan_file *f = &p->files[file];
	ck_auto_fd int fd = -1;
	int ret = 0;

	if (!f->nr || j->sl->told[file].good)
		return 0;
	fd = ck_slices_shard(j->sl, file, true, err);
	if (fd < 0)
		return fd;
	for (uint32_t i = f->first; i < f->first + f->nr && !ret; i++)
		ret = ck_slices_crc(&p->pieces[i], fd, buf, &j->crc[i]);
	return ret ? ck_fail(err, -ret, "%s: %s: %s",
			     CK_DRAFT_NAME(j->sl->draft),
			     ck_slice_plan_str(p, f->name), strerror(-ret)) :
		     0;
}

static void work(void *ctx)
{
	struct job *j = ctx;
	ck_auto_free void *buf = malloc(CK_SLICES_BUFFER);
	struct ck_err err = { 0 };
	uint32_t i;

	while (!j->stop && (i = j->next++) < j->sl->plan.nr_files) {
		int ret = buf ? sum_file(j, i, buf, &err) : ck_no_memory(&err);

		if (!ret)
			continue;
		pthread_mutex_lock(&j->lock);
		if (!j->stop)
			j->why = err;
		j->stop = ret;
		pthread_mutex_unlock(&j->lock);
	}
}

int ck_slices_crcs(struct ck_slices *sl, uint32_t **out, struct ck_err *err)
{
	struct job j = { .sl = sl };
	const struct ck_pool_in pool = { .ctx = &j, .work = work };

	j.crc = calloc(sl->plan.nr_pieces + 1u, sizeof(*j.crc));
	if (!j.crc)
		return ck_no_memory(err);
	pthread_mutex_init(&j.lock, NULL);
	ck_pool_run(&pool);
	pthread_mutex_destroy(&j.lock);
	if (j.stop) {
		free(j.crc);
		return ck_fail_as(err, &j.why);
	}
	*out = j.crc;
	return 0;
}
