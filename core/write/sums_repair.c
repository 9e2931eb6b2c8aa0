/* SPDX-License-Identifier: Apache-2.0 */
/* sums_repair.c - sums that a crash left behind, in a thread of its own */
#include "core/write/sums_priv.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

struct tally {
	unsigned right, left;
};

/* Every sum of @f from its bytes. */
static int repair_unit(struct ck_sums *s, struct ck_sum_file *f,
		       struct ck_sum_unit *u, struct tally *nr,
		       struct ck_err *err)
{
	int ret = 0;

	for (size_t i = 0; !ret && i < u->sums.nr; i++) {
		struct ck_sum *sum = &u->sums.v[i];
		bool trailer = sum->place[0].big;
		uint32_t crc;

		if (!sum->kept && !trailer)
			continue;
		if (!trailer)
			ret = ck_sum_locate(s->r, f->src, u, sum, true, err);
		if (!ret)
			ret = ck_sum_blocks(s, f->src, u, sum, err);
		if (!ret)
			ret = ck_sum_all(s, f->src, sum, &crc, err);
		if (ret || (crc == sum->crc && !sum->torn))
			continue;
		if (ck_sum_corrupt(s, f->src, sum, true)) {
			ck_sum_leave(sum);
			nr->left++;
			continue;
		}
		ret = ck_sum_store(s, f->src, sum, crc, err);
		sum->crc = crc;
		sum->kept = true;
		nr->right++;
	}
	return ret;
}

/* All archives in the file, or the file as one. */
static int need_all(struct ck_sums *s, uint32_t src, struct ck_err *err)
{
	const struct ck_catalog *img = s->r->in.img;
	int ret = 0;

	for (uint32_t t = 0; !ret && t < img->nr_tensors; t++) {
		const struct ck_tensor *ten = &img->tensors[t];

		for (uint32_t i = 0; !ret && i < ten->nr_all; i++) {
			uint32_t c = ten->first + i;
			uint64_t off, len;

			if (img->chunks[c].src != src)
				continue;
			ck_chunk_archive(img, ten, c, &off, &len);
			ret = ck_sums_need(s, src, off, len, err);
		}
	}
	return ret;
}

int ck_sum_sync(struct ck_sums *s, uint32_t src, struct ck_err *err)
{
	struct ck_engine *e = ck_engine_mine(s->r->in.engine);
	struct ck_io io = { .op = CK_IO_SYNC };
	int ret = ck_files_get(s->r->wfiles, src, &io.fd, err);

	if (ret)
		return ret;
	e->ops->run(e, &io, 1);
	ck_files_put(s->r->wfiles, src);
	return io.res ? ck_fail(err, -io.res, "%s: %s",
				ck_bytes_name(s->r, src), strerror(-io.res)) :
			0;
}

static void report_repaired(const struct tally *nr, char line[CK_ERR_MAX])
{
	int n = snprintf(line, CK_ERR_MAX,
			 "was being written when its mount ended; its "
			 "checksums were looked at, and %u of them made right",
			 nr->right);

	if (nr->left)
		snprintf(line + n, (size_t)(CK_ERR_MAX - n),
			 "; %u stay wrong, for their bytes are not all what "
			 "was sealed or written since",
			 nr->left);
}

static void repair_file(struct ck_sums *s, struct ck_sum_file *f)
{
	const uint32_t src = f->src;
	struct ck_err err = { 0 };
	struct tally nr = { 0 };
	int ret = need_all(s, src, &err);
	char line[CK_ERR_MAX];

	pthread_mutex_lock(&f->lock);
	for (size_t i = 0; !ret && i < f->units.nr; i++)
		ret = repair_unit(s, f, &f->units.v[i], &nr, &err);
	pthread_mutex_unlock(&f->lock);
	if (!ret)
		ret = ck_sum_sync(s, src, &err);
	if (!ret) {
		pthread_mutex_lock(&f->lock);
		f->left = false;
		pthread_mutex_unlock(&f->lock);
		ck_sums_synced(s, src);
	}
	if (ret)
		snprintf(line, sizeof(line),
			 "was being written when its mount ended, and its "
			 "checksums cannot be repaired: %.300s",
			 err.msg);
	else
		report_repaired(&nr, line);
	s->found.said(s->found.ctx, src, line);
}

static void *repair_all(void *ctx)
{
	struct ck_sums *s = ctx;

	for (uint32_t i = 0; i < s->r->in.img->nr_srcs; i++) {
		struct ck_sum_file *f = atomic_load(&s->file[i]);

		if (f && f->left)
			repair_file(s, f);
	}
	return NULL;
}

void ck_sums_repair(struct ck_sums *s, const struct ck_sums_found *found)
{
	s->found = *found;
	if (!ck_sum_read_mark(s))
		return;
	s->repairing = !pthread_create(&s->thread, NULL, repair_all, s);
	if (!s->repairing)
		repair_all(s);
}
