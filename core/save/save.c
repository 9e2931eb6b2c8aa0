/* SPDX-License-Identifier: Apache-2.0 */
/*
 * save.c - a save: its draft, and the ranks that meet in it
 *
 * Rank 0 makes the plan once all have declared; the others see that it is there.
 */
#include "core/save/save_priv.h"

#include "core/base/auto.h"
#include "core/base/check.h"
#include "core/base/fds.h"
#include "core/base/strmap.h"
#include "core/base/whole.h"
#include "core/geom/catalog.h"
#include "core/geom/dtype.h"
#include "core/geom/range.h"
#include "core/root/openat_beneath.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

#define DECLARED "declared"
#define MAX_BYTES (UINT64_C(1) << 30)
#define MAX_RANKS (UINT32_C(1) << 20)

/* ---- the draft ---- */

static int open_draft(struct ck_draft **out, const struct ck_save_in *in,
		      struct ck_err *err)
{
	struct ck_err made = { 0 };
	int ret = ck_draft_make(out, in->root, in->name, &made);

	if (ret == -EEXIST)
		ret = ck_draft_open(out, in->root, in->name, err);
	/* what is there is no draft: the line of who wanted to make one */
	return ret == -ENOENT || (ret && !err->code) ? ck_fail_as(err, &made) :
						       ret;
}

int ck_save_open(struct ck_save **out, const struct ck_save_in *in,
		 struct ck_err *err)
{
	struct ck_save *s;
	int ret;

	if (!in->ranks || in->ranks > MAX_RANKS || in->rank >= in->ranks)
		return ck_fail(err, EINVAL, "rank %" PRIu32 " of %" PRIu32,
			       in->rank, in->ranks);
	s = calloc(1, sizeof(*s));
	if (!s)
		return ck_no_memory(err);
	s->format = strdup(in->format);
	s->ranks = in->ranks;
	s->rank = in->rank;
	s->seconds = in->seconds;
	s->threads = in->threads;
	pthread_mutex_init(&s->lock, NULL);
	ret = s->format ? open_draft(&s->draft, in, err) : ck_no_memory(err);
	if (ret)
		ck_save_close(s);
	else
		*out = s;
	return ret;
}

void ck_save_close(struct ck_save *s)
{
	if (s->slices)
		ck_slices_close(s->slices);
	if (s->draft)
		ck_draft_close(s->draft);
	pthread_mutex_destroy(&s->lock);
	ck_arena_free(&s->mem);
	free(s->declared.v);
	free(s->format);
	free(s);
}

/* ---- declarations of all ranks ---- */

static void name_of(uint32_t rank, char out[40])
{
	snprintf(out, 40, DECLARED "/%" PRIu32, rank);
}

/* -ENOENT: that rank has not yet. */
static int read_one(const struct ck_save *s, uint32_t rank,
		    struct ck_save_text *out, struct ck_err *err)
{
	char name[40];
	ck_auto_fd int fd = -1;
	int ret;

	name_of(rank, name);
	fd = ck_beneath_file(s->draft->fd, name, O_RDONLY);
	ret = fd < 0 ? fd : ck_read_file(fd, MAX_BYTES, &out->v, &out->len);
	if (!ret || ret == -ENOENT)
		return ret;
	return ret == -ENOMEM ? ck_no_memory(err) :
				ck_fail(err, EIO, "%s: %s: cannot be read",
					s->draft->name, name);
}

static int write_one(const struct ck_save *s, const struct ck_str *text)
{
	char name[40], temp[60];

	name_of(s->rank, name);
	snprintf(temp, sizeof(temp), "%s.%d", name, (int)getpid());
	if (mkdirat(s->draft->fd, DECLARED, 0777) && errno != EEXIST)
		return -errno;
	return ck_fds_put_file(s->draft->fd, name, temp, 0666, text->v,
			       text->len);
}

/* What an earlier try declared counts, where it was the same. */
static int tell(const struct ck_save *s, struct ck_err *err)
{
	ck_auto_str struct ck_str text = { 0 };
	struct ck_save_text old = { 0 };
	int ret;

	ck_save_declared_text(s, &text);
	if (text.failed)
		return ck_no_memory(err);
	ret = read_one(s, s->rank, &old, err);
	if (!ret && (old.len != text.len || memcmp(old.v, text.v, old.len)))
		ret = ck_fail(err, EEXIST,
			      "%s: an earlier try declared other slices of "
			      "rank %" PRIu32 "; begin it anew",
			      s->draft->name, s->rank);
	free(old.v);
	if (ret != -ENOENT)
		return ret;
	ret = ck_draft_begin(s->draft, err);
	if (ret)
		return ret;
	ret = write_one(s, &text);
	ck_draft_end(s->draft);
	return ret ? ck_fail(err, -ret, "%s: " DECLARED ": %s", s->draft->name,
			     strerror(-ret)) :
		     0;
}

static int make(struct ck_save *s, const struct ck_save_text *text,
		struct ck_err *err)
{
	ck_auto_str struct ck_str layout = { 0 }, extras = { 0 };
	int ret =
		ck_save_merge(text, s->ranks, s->format, &layout, &extras, err);

	if (ret == -EINVAL) /* the others wait for it */
		ck_draft_reject_layout(s->draft, err->msg);
	if (!ret)
		ret = ck_slices_make_here(s->draft, layout.v, layout.len,
					  extras.v, extras.len, err);
	return ck_wrap(err, ret, "%s", s->draft->name);
}

static int is_refused(const struct ck_save *s, struct ck_err *err)
{
	struct ck_draft_said said;

	ck_draft_look(s->draft, &said);
	return *said.refused ? ck_fail(err, EINVAL, "%s: %s", s->draft->name,
				       said.refused) :
			       0;
}

/* -ENOENT: *absent has not declared. */
static int make_of_all(struct ck_save *s, uint32_t *absent, struct ck_err *err)
{
	struct ck_save_text *text = calloc(s->ranks, sizeof(*text));
	int ret = text ? 0 : ck_no_memory(err);

	for (uint32_t r = *absent; r < s->ranks && !ret; r++) {
		ret = read_one(s, r, &text[r], err);
		*absent = r;
	}
	for (uint32_t r = 0; r < s->ranks && !ret; r++)
		if (!text[r].v)
			ret = read_one(s, r, &text[r], err);
	if (!ret)
		ret = make(s, text, err);
	for (uint32_t r = 0; text && r < s->ranks; r++)
		free(text[r].v);
	free(text);
	return ret;
}

static bool is_declared(const struct ck_save *s, uint32_t rank)
{
	char name[40];

	name_of(rank, name);
	return ck_fds_has(s->draft->fd, name);
}

static int late(const struct ck_save *s, struct ck_err *err)
{
	uint32_t r = 0;

	while (r < s->ranks && is_declared(s, r))
		r++;
	if (r < s->ranks)
		return ck_fail(err, ETIMEDOUT,
			       "%s: rank %" PRIu32 " of %" PRIu32
			       " has not declared its slices within %u s",
			       s->draft->name, r, s->ranks, s->seconds);
	return ck_fail(err, ETIMEDOUT,
		       "%s: rank 0 has not begun to write within %u s, though "
		       "all %" PRIu32 " ranks have declared their slices",
		       s->draft->name, s->seconds, s->ranks);
}

static int wait_for_all(struct ck_save *s, struct ck_err *err)
{
	struct timespec pause = { .tv_nsec = 1000000 };
	time_t end;
	struct timespec now;
	uint32_t absent = 0;
	int ret = 0;

	clock_gettime(CLOCK_MONOTONIC, &now);
	end = now.tv_sec + (time_t)s->seconds;
	while (!ret && !ck_slices_look(s->draft)) {
		ret = s->rank ? -ENOENT : make_of_all(s, &absent, err);
		if (ret != -ENOENT)
			return ret;
		if (!ck_draft_is_current(s->draft))
			return ck_fail(err, ESTALE,
				       "%s: it was published, or thrown away",
				       s->draft->name);
		clock_gettime(CLOCK_MONOTONIC, &now);
		ret = s->rank ? is_refused(s, err) : 0;
		if (!ret && now.tv_sec >= end)
			ret = late(s, err);
		nanosleep(&pause, NULL);
		pause.tv_nsec = CK_MIN(2 * pause.tv_nsec, 50000000);
	}
	return ret;
}

/* ---- slices of the plan ---- */

static uint32_t catalog_tensor(const struct ck_slices *sl, uint32_t t)
{
	const struct ck_catalog *img = ck_slices_catalog(sl);

	for (uint32_t i = 0; i < img->nr_tensors; i++)
		if (ck_slices_tensor(sl, i) == t)
			return i;
	return CK_NONE;
}

static bool same_box(const struct ck_slice_plan *p, uint32_t piece,
		     const struct ck_save_slice *is)
{
	const struct ck_slice_plan_piece *x = &p->pieces[piece];
	const struct ck_slice_plan_tensor *t = &p->tensors[x->tensor];
	const uint64_t *start = p->dims + x->dims;
	size_t bytes = is->rank * sizeof(*start);

	return t->dtype == is->dtype && t->rank == is->rank &&
	       t->grid_rank == is->rank && !x->flat &&
	       !memcmp(p->dims + t->shape, is->shape, bytes) &&
	       !memcmp(start, is->start, bytes) &&
	       !memcmp(start + is->rank, is->len, bytes) &&
	       /* not padded: its bytes are those of the memory, and no more */
	       !memcmp(start + 2 * (size_t)is->rank, is->len, bytes);
}

static int find_piece(struct ck_save *s, struct ck_save_declared *d,
		      uint32_t *seen, struct ck_err *err)
{
	const struct ck_slice_plan *p = ck_slices_plan(s->slices);
	uint32_t t = ck_slice_plan_find_tensor(p, d->is.name), at = CK_NONE, r;
	uint64_t nr = 1;

	d->piece = CK_NONE;
	ck_dims_volume(d->is.len, d->is.rank, &nr);
	if (!nr)
		return 0;
	if (t != CK_NONE) {
		d->part = seen[t]++;
		r = ck_slice_plan_find_rank(p, s->rank + (uint64_t)d->part *
								 s->ranks);
		at = r == CK_NONE ? CK_NONE : ck_slice_plan_find_entry(p, r, t);
	}
	if (at != CK_NONE)
		d->piece = p->entries[at];
	if (at == CK_NONE || !same_box(p, d->piece, &d->is))
		return ck_fail(err, EEXIST,
			       "%s: %.300s: the plan has no such slice of rank "
			       "%" PRIu32,
			       s->draft->name, d->is.name, s->rank);
	d->tensor = catalog_tensor(s->slices, t);
	d->ours = p->files[p->pieces[d->piece].file].rank % s->ranks == s->rank;
	return 0;
}

static int find_pieces(struct ck_save *s, struct ck_err *err)
{
	const struct ck_slice_plan *p = ck_slices_plan(s->slices);
	ck_auto_free uint32_t *seen =
		calloc((size_t)p->nr_tensors + 1, sizeof(*seen));
	int ret = seen ? 0 : ck_no_memory(err);

	for (size_t i = 0; i < s->declared.nr && !ret; i++)
		if (s->declared.v[i].is.dtype)
			ret = find_piece(s, &s->declared.v[i], seen, err);
	return ret;
}

/* Under the lock. */
static int begin(struct ck_save *s, struct ck_err *err)
{
	int ret = tell(s, err);

	if (!ret)
		ret = wait_for_all(s, err);
	if (!ret)
		ret = ck_slices_open(&s->slices, s->draft, err);
	if (ret)
		return ret == -ENOENT ?
			       ck_fail(err, ESTALE, "%s: it was thrown away",
				       s->draft->name) :
			       ret;
	ret = find_pieces(s, err);
	if (ret) {
		ck_slices_close(s->slices);
		s->slices = NULL;
	}
	return ret;
}

int ck_save_begin(struct ck_save *s, struct ck_err *err)
{
	int ret = 0;

	pthread_mutex_lock(&s->lock);
	if (!s->slices)
		ret = begin(s, err);
	pthread_mutex_unlock(&s->lock);
	return ret;
}

/* ---- beside tensors ---- */

int ck_save_object(struct ck_save *s, const char *name, const void *bytes,
		   size_t len, struct ck_err *err)
{
	int ret = ck_save_begin(s, err);

	if (!ret)
		ret = ck_draft_begin(s->draft, err);
	if (ret)
		return ret;
	ret = ck_slices_put_object(s->slices, name, bytes, len, err);
	ck_draft_end(s->draft);
	return ck_wrap(err, ret, "%s", s->draft->name);
}

int ck_save_sync(struct ck_save *s, struct ck_err *err)
{
	int ret = ck_save_begin(s, err);

	if (!ret)
		ret = ck_draft_begin(s->draft, err);
	if (ret)
		return ret;
	/* what a write hashes at the same time is not to be said before */
	pthread_mutex_lock(&s->lock);
	ret = ck_slices_finish(s->slices, s->threads, err);
	pthread_mutex_unlock(&s->lock);
	ck_draft_end(s->draft);
	return ret;
}

int ck_save_publishable(struct ck_save *s, struct ck_err *err)
{
	bool wrote = s->declared.nr || s->slices;

	return wrote && ck_draft_is_current(s->draft) ? ck_save_sync(s, err) :
							0;
}

const char *ck_save_name(const struct ck_save *s, uint32_t slice)
{
	return slice < s->declared.nr ? s->declared.v[slice].is.name : NULL;
}

bool ck_save_is_dtype(const struct ck_save *s, uint32_t slice, uint8_t dtype)
{
	return slice < s->declared.nr && s->declared.v[slice].is.dtype == dtype;
}
