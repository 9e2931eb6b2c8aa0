/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sums.c - around the writes to files with checksums, and flushing them
 *
 * A block is DIRTY from before a write of some of it until after one that was
 * under way while it was summed, KNOWN when the CRC that is part of the file's
 * present sum is known of it, and NEW once it was written over as a whole.  A
 * dirty block that is known changes the sum by what it was and is; with one that
 * is not, and where all are new, the sum is that of all blocks.
 */
#include "core/write/sums_priv.h"

#include "core/base/auto.h"
#include "core/base/check.h"
#include "core/base/crc32.h"
#include "core/base/le.h"
#include "core/base/search.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct ck_sum_file *file_at(const struct ck_sums *s, uint32_t src)
{
	return atomic_load_explicit(&s->file[src], memory_order_acquire);
}

struct ck_sums *ck_sums_new(struct ck_reader *r)
{
	struct ck_sums *s = calloc(1, sizeof(*s));

	if (!s)
		return NULL;
	s->r = r;
	s->file = calloc(r->in.img->nr_srcs + 1u, sizeof(*s->file));
	if (!s->file) {
		free(s);
		return NULL;
	}
	pthread_mutex_init(&s->lock, NULL);
	return s;
}

void ck_sums_doubt(struct ck_sums *s)
{
	s->doubt = true;
}

static void free_unit(struct ck_sum_unit *u)
{
	for (size_t i = 0; i < u->sums.nr; i++) {
		free(u->sums.v[i].block);
		free(u->sums.v[i].state);
	}
	free(u->sums.v);
}

static void free_file(struct ck_sum_file *f)
{
	for (size_t i = 0; i < f->units.nr; i++)
		free_unit(&f->units.v[i]);
	free(f->units.v);
	pthread_mutex_destroy(&f->lock);
	free(f);
}

/* ---- which there are ---- */

/* The sums of @src, for the first time: an entry without units. */
struct ck_sum_file *ck_sum_file(struct ck_sums *s, uint32_t src)
{
	struct ck_sum_file *f;

	ck_auto_lock(&s->lock);
	f = file_at(s, src);
	if (f)
		return f;
	f = calloc(1, sizeof(*f));
	if (f) {
		f->src = src;
		pthread_mutex_init(&f->lock, NULL);
		atomic_store_explicit(&s->file[src], f, memory_order_release);
	}
	return f;
}

/* The first unit that ends after @off. */
static size_t unit_at(const struct ck_sum_file *f, uint64_t off)
{
	return CK_FIRST(i, 0, f->units.nr,
			f->units.v[i].off + f->units.v[i].len > off);
}

static int add_unit(struct ck_sums *s, struct ck_sum_file *f, uint64_t off,
		    uint64_t len, struct ck_err *err)
{
	struct ck_sum_unit u = { .off = off, .len = len };
	size_t at = unit_at(f, off);
	int ret;

	if (at < f->units.nr && f->units.v[at].off == off)
		return 0;
	ret = ck_sum_find(s->r, f->src, &u, err);
	if (!ret && !ck_vec_reserve(&f->units, 1))
		ret = ck_no_memory(err);
	if (ret) {
		free_unit(&u);
		return ret;
	}
	memmove(f->units.v + at + 1, f->units.v + at,
		(f->units.nr - at) * sizeof(u));
	f->units.v[at] = u;
	f->units.nr++;
	return 0;
}

int ck_sums_need(struct ck_sums *s, uint32_t src, uint64_t off, uint64_t len,
		 struct ck_err *err)
{
	struct ck_sum_file *f = ck_sum_file(s, src);

	if (!f)
		return ck_no_memory(err);
	if (!len)
		len = s->r->in.img->srcs[src].id.size;
	ck_auto_lock(&f->lock);
	return add_unit(s, f, off, len, err);
}

/* ---- blocks; all under the file's lock ---- */

static uint64_t block_len(const struct ck_sum *sum, uint64_t k)
{
	return CK_MIN(CK_SUM_BLOCK, sum->len - k * CK_SUM_BLOCK);
}

static uint64_t nr_blocks(const struct ck_sum *sum)
{
	return CK_DIV_UP(sum->len, CK_SUM_BLOCK);
}

static int sum_block(struct ck_sums *s, uint32_t src, const struct ck_sum *sum,
		     uint64_t k, uint32_t *crc, struct ck_err *err)
{
	unsigned char buf[32768];
	uint64_t off = sum->off + k * CK_SUM_BLOCK, left = block_len(sum, k);

	*crc = 0;
	while (left) {
		uint64_t n = CK_MIN(left, sizeof(buf));
		int ret = ck_reader_source(s->r, src, buf, n, off, err);

		if (ret)
			return ret;
		*crc = ck_crc32(*crc, buf, n);
		off += n;
		left -= n;
	}
	return 0;
}

/* All blocks; what they make together. */
int ck_sum_all(struct ck_sums *s, uint32_t src, struct ck_sum *sum,
	       uint32_t *out, struct ck_err *err)
{
	uint32_t crc = 0;

	for (uint64_t k = 0; k < nr_blocks(sum); k++) {
		uint8_t is_new = sum->state[k] & CK_SUM_NEW;

		if (sum->state[k] != (CK_SUM_KNOWN | is_new)) {
			int ret;

			sum->state[k] = is_new;
			ret = sum_block(s, src, sum, k, &sum->block[k], err);
			if (ret) {
				sum->state[k] = CK_SUM_DIRTY | is_new;
				return ret;
			}
			sum->state[k] = CK_SUM_KNOWN | is_new;
		}
		crc = ck_crc32_join(crc, sum->block[k], block_len(sum, k));
	}
	*out = crc;
	return 0;
}

int ck_sum_blocks(struct ck_sums *s, uint32_t src, const struct ck_sum_unit *u,
		  struct ck_sum *sum, struct ck_err *err)
{
	uint32_t crc;
	int ret = sum->found ? 0 : ck_sum_locate(s->r, src, u, sum, false, err);

	if (ret || sum->state)
		return ret;
	sum->block = calloc(nr_blocks(sum), sizeof(*sum->block));
	sum->state = calloc(nr_blocks(sum), sizeof(*sum->state));
	if (!sum->block || !sum->state)
		return ck_no_memory(err);
	if (!sum->place[0].big)
		return 0;
	ret = ck_sum_all(s, src, sum, &crc, err);
	sum->kept = !ret && crc == sum->crc;
	return ret;
}

/* Blocks that [off, off+len) of the file touches: [first, last). */
static bool blocks_of(const struct ck_sum *sum, uint64_t off, uint64_t len,
		      uint64_t *first, uint64_t *last)
{
	uint64_t lo = CK_MAX(off, sum->off);
	uint64_t hi = CK_MIN(off + len, sum->off + sum->len);

	if (lo >= hi)
		return false;
	*first = (lo - sum->off) / CK_SUM_BLOCK;
	*last = CK_DIV_UP(hi - sum->off, CK_SUM_BLOCK);
	return true;
}

static bool covers(const struct ck_sum *sum, uint64_t k, uint64_t off,
		   uint64_t len)
{
	uint64_t at = sum->off + k * CK_SUM_BLOCK;

	return off <= at && off + len >= at + block_len(sum, k);
}

/*
 * Block @k before its first change.  One that cannot be read, and is written as
 * a whole, is what somebody mends: then it stays unknown.
 */
static int know(struct ck_sums *s, uint32_t src, struct ck_sum *sum, uint64_t k,
		bool covered, struct ck_err *err)
{
	int ret;

	if (sum->state[k] & (CK_SUM_KNOWN | CK_SUM_DIRTY))
		return 0;
	ret = sum_block(s, src, sum, k, &sum->block[k], covered ? NULL : err);
	if (!ret)
		sum->state[k] |= CK_SUM_KNOWN;
	return covered ? 0 : ret;
}

static int before_sum(struct ck_sums *s, struct ck_sum_file *f,
		      const struct ck_sum_unit *u, struct ck_sum *sum,
		      uint64_t off, uint64_t len, struct ck_err *err)
{
	bool all; /* nothing of it will be left */
	uint64_t k, last;
	int ret = ck_sum_blocks(s, f->src, u, sum, err);

	all = !ret && off <= sum->off && off + len >= sum->off + sum->len;
	if (ret || !sum->kept || !blocks_of(sum, off, len, &k, &last))
		return ret;
	if (!f->marked)
		ret = ck_sum_mark(s, f, err);
	for (; !ret && k < last; k++) {
		if (!all)
			ret = know(s, f->src, sum, k, covers(sum, k, off, len),
				   err);
		if (!ret)
			sum->state[k] |= CK_SUM_DIRTY;
	}
	if (!ret && s->doubt)
		memset(sum->state, CK_SUM_DIRTY, nr_blocks(sum));
	if (!ret)
		sum->dirty = f->dirty = true;
	return ret;
}

static size_t sum_at(const struct ck_sum_unit *u, uint64_t off)
{
	return CK_FIRST(i, 0, u->sums.nr, u->sums.v[i].to > off);
}

int ck_sums_before(struct ck_sums *s, uint32_t src, uint64_t off, uint64_t len,
		   struct ck_err *err)
{
	struct ck_sum_file *f = file_at(s, src);
	int ret = 0;

	if (!f)
		return 0;
	ck_auto_lock(&f->lock);
	for (size_t i = unit_at(f, off);
	     !ret && i < f->units.nr && f->units.v[i].off < off + len; i++) {
		struct ck_sum_unit *u = &f->units.v[i];

		for (size_t k = sum_at(u, off);
		     !ret && k < u->sums.nr && u->sums.v[k].from < off + len;
		     k++)
			if (u->sums.v[k].kept)
				ret = before_sum(s, f, u, &u->sums.v[k], off,
						 len, err);
	}
	return ret;
}

void ck_sums_after(struct ck_sums *s, uint32_t src, uint64_t off, uint64_t len,
		   bool whole)
{
	struct ck_sum_file *f = file_at(s, src);

	if (!f)
		return;
	ck_auto_lock(&f->lock);
	for (size_t i = unit_at(f, off);
	     i < f->units.nr && f->units.v[i].off < off + len; i++) {
		struct ck_sum_unit *u = &f->units.v[i];

		for (size_t n = sum_at(u, off);
		     n < u->sums.nr && u->sums.v[n].from < off + len; n++) {
			struct ck_sum *sum = &u->sums.v[n];
			uint64_t k, last;

			if (!sum->kept || !sum->state ||
			    !blocks_of(sum, off, len, &k, &last))
				continue;
			for (; k < last; k++)
				sum->state[k] |=
					whole && covers(sum, k, off, len) ?
						CK_SUM_DIRTY | CK_SUM_NEW :
						CK_SUM_DIRTY;
			sum->dirty = f->dirty = true;
		}
	}
}

/* ---- flushing ---- */

static bool any_unknown(const struct ck_sum *sum)
{
	for (uint64_t k = 0; k < nr_blocks(sum); k++)
		if ((sum->state[k] & (CK_SUM_DIRTY | CK_SUM_KNOWN)) ==
		    CK_SUM_DIRTY)
			return true;
	return false;
}

static bool all_new(const struct ck_sum *sum)
{
	for (uint64_t k = 0; k < nr_blocks(sum); k++)
		if (!(sum->state[k] & CK_SUM_NEW))
			return false;
	return true;
}

static int resum(struct ck_sums *s, uint32_t src, struct ck_sum *sum,
		 uint32_t *out, struct ck_err *err)
{
	if (any_unknown(sum) || all_new(sum))
		return ck_sum_all(s, src, sum, out, err);
	*out = sum->crc;
	for (uint64_t k = 0; k < nr_blocks(sum); k++) {
		uint64_t after =
			sum->len - k * CK_SUM_BLOCK - block_len(sum, k);
		uint32_t crc;
		int ret;

		if (!(sum->state[k] & CK_SUM_DIRTY))
			continue;
		ret = sum_block(s, src, sum, k, &crc, err);
		if (ret)
			return ret;
		*out ^= ck_crc32_shift(crc ^ sum->block[k], after);
		sum->crc = *out; /* what the blocks now say, come what may */
		sum->block[k] = crc;
		sum->state[k] &= CK_SUM_NEW;
		sum->state[k] |= CK_SUM_KNOWN;
	}
	return 0;
}

int ck_sum_store(struct ck_sums *s, uint32_t src, const struct ck_sum *sum,
		 uint32_t crc, struct ck_err *err)
{
	unsigned char bytes[CK_SUM_PLACES][4];
	struct iovec iov[CK_SUM_PLACES];
	struct ck_io io[CK_SUM_PLACES];
	uint64_t since = ck_self_writes_clock(s->r->self_writes);
	int fd, ret = ck_files_get(s->r->wfiles, src, &fd, err);

	if (ret)
		return ret;
	for (unsigned i = 0; i < sum->nr_places; i++) {
		for (unsigned b = 0; b < 4; b++)
			bytes[i][b] =
				(unsigned char)(crc >> 8 * (sum->place[i].big ?
								    3 - b :
								    b));
		iov[i] = (struct iovec){ bytes[i], 4 };
		io[i] = (struct ck_io){ .op = CK_IO_WRITE,
					.fd = fd,
					.src = src,
					.off = sum->place[i].off,
					.len = 4,
					.iov = &iov[i],
					.nr_iov = 1 };
	}
	ret = ck_self_writes_begin(s->r->self_writes, src, fd, since, err);
	if (!ret) {
		ret = ck_put(s->r, io, sum->nr_places, err);
		ck_self_writes_end(s->r->self_writes, src, fd);
		for (unsigned i = 0; !ret && i < sum->nr_places; i++)
			if (io[i].res)
				ret = ck_fail(
					err, -io[i].res,
					"%s: its checksum at byte %llu: "
					"%s",
					ck_bytes_name(s->r, src),
					(unsigned long long)sum->place[i].off,
					strerror(-io[i].res));
	}
	ck_files_put(s->r->wfiles, src);
	return ret;
}

bool ck_sum_corrupt(struct ck_sums *s, uint32_t src, const struct ck_sum *sum,
		    bool look)
{
	return s->found.corrupt &&
	       s->found.corrupt(s->found.ctx, src, sum->off, sum->len, look);
}

void ck_sum_leave(struct ck_sum *sum)
{
	sum->corrupt = sum->kept = true;
	memset(sum->state, CK_SUM_DIRTY, nr_blocks(sum));
}

static int flush_sum(struct ck_sums *s, uint32_t src, struct ck_sum *sum,
		     struct ck_err *err)
{
	uint32_t crc;
	int ret;

	sum->dirty = false;
	sum->corrupt = sum->corrupt && ck_sum_corrupt(s, src, sum, false);
	if (sum->corrupt)
		return 0;
	ret = resum(s, src, sum, &crc, err);
	if (!ret)
		ret = ck_sum_store(s, src, sum, crc, err);
	if (ret)
		sum->dirty = true;
	else
		sum->crc = crc;
	return ret;
}

int ck_sums_flush(struct ck_sums *s, uint32_t src, struct ck_err *err)
{
	struct ck_sum_file *f = file_at(s, src);
	int ret = 0;

	if (!f)
		return 0;
	ck_auto_lock(&f->lock);
	if (!f->dirty)
		return 0;
	for (size_t i = 0; i < f->units.nr; i++) {
		struct ck_sum_unit *u = &f->units.v[i];

		for (size_t k = 0; !ret && k < u->sums.nr; k++)
			if (u->sums.v[k].dirty)
				ret = flush_sum(s, src, &u->sums.v[k], err);
	}
	f->dirty = ret;
	return ret;
}

/* The mark stays too: who opens it knows, and it is looked at again. */
static bool any_corrupt(const struct ck_sum_file *f)
{
	for (size_t i = 0; i < f->units.nr; i++)
		for (size_t k = 0; k < f->units.v[i].sums.nr; k++)
			if (f->units.v[i].sums.v[k].corrupt)
				return true;
	return false;
}

void ck_sums_synced(struct ck_sums *s, uint32_t src)
{
	struct ck_sum_file *f = file_at(s, src);

	if (!f)
		return;
	ck_auto_lock(&f->lock);
	if (f->marked && !f->dirty && !f->left && !any_corrupt(f))
		ck_sum_unmark(s, f);
}

void ck_sums_free(struct ck_sums *s)
{
	if (!s)
		return;
	if (s->repairing)
		pthread_join(s->thread, NULL);
	for (uint32_t i = 0; i < s->r->in.img->nr_srcs; i++) {
		struct ck_sum_file *f = file_at(s, i);

		if (!f)
			continue;
		if (f->marked && !ck_sums_flush(s, i, NULL) &&
		    !ck_sum_sync(s, i, NULL))
			ck_sums_synced(s, i);
		free_file(f);
	}
	pthread_mutex_destroy(&s->lock);
	free(s->marked.v);
	free((void *)s->file);
	free(s);
}
