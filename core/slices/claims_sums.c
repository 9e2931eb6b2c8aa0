/* SPDX-License-Identifier: Apache-2.0 */
/*
 * claims_sums.c - digests of a file, behind the claims of all of its bytes
 *
 * Blocks, digests of pieces, and one record that says which file it was.  What is
 * claimed of the file later, or by another journal, takes that back.
 */
#include "core/slices/claims_priv.h"

#include "core/base/auto.h"
#include "core/base/check.h"

#include <errno.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

#define BLOCKS 500u /* in a record */
#define DIGESTS 160u
#define SEVERAL UINT32_MAX
#define TRIES 64 /* of a millisecond: several ticks of any clock */

struct blocks {
	uint32_t file, nr;
	uint64_t first, v[BLOCKS];
};

struct digests {
	uint32_t file, nr;
	struct ck_claims_digest v[DIGESTS];
};

struct all {
	uint32_t file, zero;
	struct ck_id id;
};

/* ---- said ---- */

static int put_blocks(struct ck_journal *j, uint32_t file, uint64_t nr,
		      const uint64_t *block, struct ck_err *err)
{
	struct blocks b = { .file = file };
	int ret = 0;

	for (; b.first < nr && !ret; b.first += b.nr) {
		b.nr = (uint32_t)CK_MIN(nr - b.first, BLOCKS);
		memcpy(b.v, block + b.first, b.nr * sizeof(*b.v));
		ret = ck_journal_append(j, CK_CLAIMS_BLOCKS, &b,
					(uint32_t)(offsetof(struct blocks, v) +
						   b.nr * sizeof(*b.v)),
					err);
	}
	return ret;
}

static int put_digests(struct ck_journal *j, uint32_t file,
		       const struct ck_claims_sums *s, struct ck_err *err)
{
	struct digests d = { .file = file };
	int ret = 0;

	for (size_t i = 0; i < s->digest.nr && !ret; i += d.nr) {
		d.nr = (uint32_t)CK_MIN(s->digest.nr - i, DIGESTS);
		memcpy(d.v, s->digest.v + i, d.nr * sizeof(*d.v));
		ret = ck_journal_append(j, CK_CLAIMS_DIGESTS, &d,
					(uint32_t)(offsetof(struct digests, v) +
						   d.nr * sizeof(*d.v)),
					err);
	}
	return ret;
}

/*
 * Whether the file system's own clock, which may be another machine's, is past
 * the last change of @fd: what is written from now on gets another time.
 */
static bool is_past(int fd, int journal, struct ck_id *id)
{
	static const struct timespec now[2] = { { .tv_nsec = UTIME_NOW },
						{ .tv_nsec = UTIME_NOW } };
	struct timespec pause = { .tv_nsec = 1000000 };
	struct stat st, clock;
	struct ck_id again;

	for (unsigned i = 0; i < TRIES; i++) {
		if (fstat(fd, &st) || futimens(journal, now) ||
		    fstat(journal, &clock))
			return false;
		*id = ck_id_of(&st);
		if (ck_ns(clock.st_mtim) > id->ctime_ns) {
			if (fstat(fd, &st))
				return false;
			again = ck_id_of(&st);
			return ck_id_compare(id, &again) == CK_ID_SAME;
		}
		nanosleep(&pause, NULL);
	}
	return false;
}

static int put_all(struct ck_claims *c, uint32_t file,
		   const struct ck_claims_sums *s, const struct ck_id *id,
		   struct ck_err *err)
{
	const struct all all = { .file = file, .id = *id };
	int ret = put_blocks(&c->log, file,
			     ck_claims_blocks(&c->plan->files[file]), s->block,
			     err);

	if (!ret)
		ret = put_digests(&c->log, file, s, err);
	return ret ? ret :
		     ck_journal_append(&c->log, CK_CLAIMS_ALL, &all,
				       sizeof(all), err);
}

int ck_claims_tell(struct ck_claims *c, uint32_t file, int fd,
		   struct ck_claims_sums *s, struct ck_err *err)
{
	struct ck_id id;
	int ret;

	ck_auto_lock(&c->lock);
	if (c->log.fd < 0 || !is_past(fd, c->log.fd, &id))
		return 0;
	ret = put_all(c, file, s, &id, err);
	/* who publishes on another node is to see it */
	return ret ? ret : ck_journal_sync(&c->log, err);
}

int ck_claims_tell_again(struct ck_claims *c, const struct ck_claims_sums *told,
			 struct ck_err *err)
{
	bool any = false;
	int ret = 0;

	for (uint32_t i = 0; told && i < c->plan->nr_files && !ret; i++)
		if (told[i].good && c->own.written[i].total &&
		    !c->others[i].total) {
			ret = put_all(c, i, &told[i], &told[i].id, err);
			any = true;
		}
	return any && !ret ? ck_journal_sync(&c->log, err) : ret;
}

/* ---- read ---- */

struct reading {
	const struct ck_slice_plan *plan;
	struct ck_claims_sums *to;
	uint32_t journal;
};

/* What is claimed of it now, by this journal. */
static void claim(struct ck_claims_sums *s, uint32_t journal)
{
	s->good = false;
	s->nr = s->digest.nr = 0;
	s->by = !s->by || s->by == journal ? journal : SEVERAL;
}

static int take_blocks(const struct reading *in,
		       const struct ck_journal_record *r, struct ck_err *err)
{
	const struct blocks *b = r->body;
	struct ck_claims_sums *s;
	uint64_t nr;

	if (r->len < offsetof(struct blocks, v) || b->nr > BLOCKS ||
	    r->len != offsetof(struct blocks, v) + b->nr * sizeof(*b->v) ||
	    b->file >= in->plan->nr_files)
		return ck_claims_bad_record(r, err);
	s = &in->to[b->file];
	nr = ck_claims_blocks(&in->plan->files[b->file]);
	if (!b->first)
		claim(s, s->by == in->journal ? in->journal : SEVERAL);
	if (b->first != s->nr || b->nr > nr - s->nr)
		return ck_claims_bad_record(r, err);
	if (!s->block)
		s->block = calloc(nr, sizeof(*s->block));
	if (!s->block)
		return ck_no_memory(err);
	memcpy(s->block + s->nr, b->v, b->nr * sizeof(*b->v));
	s->nr += b->nr;
	return 0;
}

static int take_digests(const struct reading *in,
			const struct ck_journal_record *r, struct ck_err *err)
{
	const struct digests *d = r->body;
	const struct ck_slice_plan_file *f;
	struct ck_claims_sums *s;

	if (r->len < offsetof(struct digests, v) || d->nr > DIGESTS ||
	    r->len != offsetof(struct digests, v) + d->nr * sizeof(*d->v) ||
	    d->file >= in->plan->nr_files)
		return ck_claims_bad_record(r, err);
	f = &in->plan->files[d->file];
	s = &in->to[d->file];
	for (uint32_t i = 0; i < d->nr; i++) {
		uint32_t last = s->digest.nr ?
					s->digest.v[s->digest.nr - 1].piece :
					f->first;
		int ret;

		if (d->v[i].piece < last + !!s->digest.nr ||
		    d->v[i].piece - f->first >= f->nr)
			return ck_claims_bad_record(r, err);
		ret = ck_vec_put(&s->digest, err, d->v[i]);
		if (ret)
			return ret;
	}
	return 0;
}

static int take_all(const struct reading *in, const struct ck_journal_record *r,
		    struct ck_err *err)
{
	const struct all *a = r->body;
	struct ck_claims_sums *s;

	if (r->len != sizeof(*a) || a->file >= in->plan->nr_files)
		return ck_claims_bad_record(r, err);
	s = &in->to[a->file];
	s->id = a->id;
	s->good = s->by == in->journal &&
		  a->id.size == in->plan->files[a->file].size &&
		  s->nr == ck_claims_blocks(&in->plan->files[a->file]);
	return 0;
}

static int take(void *ctx, const struct ck_journal_record *r,
		struct ck_err *err)
{
	const struct reading *in = ctx;
	struct ck_claims_over over;
	int ret;

	switch (r->type) {
	case CK_CLAIMS_BLOCKS:
		return take_blocks(in, r, err);
	case CK_CLAIMS_DIGESTS:
		return take_digests(in, r, err);
	case CK_CLAIMS_ALL:
		return take_all(in, r, err);
	}
	ret = ck_claims_take(in->plan, r, &over, err);
	if (!ret)
		claim(&in->to[over.b.file], in->journal);
	return ret;
}

static int read_one(struct ck_claims *c, const char *name, void *ctx,
		    struct ck_err *err)
{
	ck_auto_journal struct ck_journal j = { .fd = -1 };
	struct reading *in = ctx;
	int ret = ck_claims_open_log(c, name, false, &j, err);

	if (ret)
		return ret == -ENOENT ? 0 : ret;
	in->journal++;
	return ck_journal_replay(&j, take, in, err);
}

int ck_claims_read_told(struct ck_claims *c, struct ck_claims_sums **out,
			struct ck_err *err)
{
	struct reading in = { .plan = c->plan };
	int ret;

	in.to = calloc(c->plan->nr_files + 1u, sizeof(*in.to));
	if (!in.to)
		return ck_no_memory(err);
	ret = ck_claims_each_log(c, read_one, &in, err);
	if (ret)
		ck_claims_told_free(c->plan, in.to);
	else
		*out = in.to;
	return ret;
}

int ck_claims_told(struct ck_claims *c, struct ck_claims_sums **out,
		   struct ck_err *err)
{
	ck_auto_lock(&c->lock);
	return ck_claims_read_told(c, out, err);
}

void ck_claims_told_free(const struct ck_slice_plan *plan,
			 struct ck_claims_sums *told)
{
	for (uint32_t i = 0; told && i < plan->nr_files; i++) {
		free(told[i].block);
		free(told[i].digest.v);
	}
	free(told);
}
