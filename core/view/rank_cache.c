/* SPDX-License-Identifier: Apache-2.0 */
/* rank_cache.c - least recently used out, but none that is in use */
#include "core/view/rank_cache.h"

#include <errno.h>
#include <stdlib.h>

void ck_rank_cache_init(struct ck_rank_cache *c, const struct ck_merged_in *in,
			enum ck_rank_form form)
{
	*c = (struct ck_rank_cache){ .in = in, .form = form };
	pthread_mutex_init(&c->lock, NULL);
}

static void free_entry(struct ck_rank_entry *e)
{
	ck_rank_file_free(&e->file);
	ck_str_free(&e->own);
	free(e);
}

void ck_rank_cache_free(struct ck_rank_cache *c)
{
	for (size_t i = 0; i < c->entry.nr; i++)
		free_entry(c->entry.v[i]);
	free(c->entry.v);
	pthread_mutex_destroy(&c->lock);
}

static uint64_t weight(const struct ck_rank_entry *e)
{
	return sizeof(*e) + e->own.room +
	       e->file.pieces.room * sizeof(*e->file.pieces.v);
}

/* Under the lock. */
static struct ck_rank_entry *find(const struct ck_rank_cache *c,
				  const struct ck_reshard *rs, uint32_t rank)
{
	for (size_t i = 0; i < c->entry.nr; i++)
		if (c->entry.v[i]->file.rank == rank &&
		    c->entry.v[i]->file.rs == rs)
			return c->entry.v[i];
	return NULL;
}

/* Under the lock. */
static void drop_oldest(struct ck_rank_cache *c)
{
	struct ck_rank_entry **oldest = NULL;

	for (size_t i = 0; i < c->entry.nr; i++) {
		struct ck_rank_entry **e = &c->entry.v[i];

		if (!(*e)->refs && (!oldest || (*e)->used < (*oldest)->used))
			oldest = e;
	}
	if (!oldest)
		return;
	c->bytes -= weight(*oldest);
	free_entry(*oldest);
	*oldest = c->entry.v[--c->entry.nr];
}

static bool full(const struct ck_rank_cache *c, uint64_t more)
{
	return c->entry.nr >= CK_RANK_CACHE_FILES ||
	       c->bytes + more > CK_RANK_CACHE_BYTES;
}

static struct ck_rank_entry *take(struct ck_rank_cache *c,
				  struct ck_rank_entry *e)
{
	e->refs++;
	e->used = ++c->clock;
	return e;
}

/* Under the lock: @made, or the same that another made meanwhile. */
static struct ck_rank_entry *add(struct ck_rank_cache *c,
				 struct ck_rank_entry *made)
{
	struct ck_rank_entry *e = find(c, made->file.rs, made->file.rank);

	if (e) {
		free_entry(made);
		return take(c, e);
	}
	for (size_t nr = c->entry.nr + 1; nr-- && full(c, weight(made));)
		drop_oldest(c);
	if (!ck_vec_reserve(&c->entry, 1)) {
		free_entry(made);
		return NULL;
	}
	c->entry.v[c->entry.nr++] = made;
	c->bytes += weight(made);
	return take(c, made);
}

static struct ck_rank_entry *make(struct ck_rank_cache *c,
				  const struct ck_reshard *rs, uint32_t rank,
				  struct ck_err *err)
{
	struct ck_rank_entry *e = calloc(1, sizeof(*e));
	int ret;

	if (!e) {
		ck_fail(err, ENOMEM, "no memory for a rank's file");
		return NULL;
	}
	ret = ck_rank_file_make(&e->file, &e->own, c->form, rs, rank, c->in,
				err);
	if (!ret)
		return e;
	free_entry(e);
	return NULL;
}

const struct ck_rank_entry *ck_rank_cache_get(struct ck_rank_cache *c,
					      const struct ck_reshard *rs,
					      uint32_t rank, struct ck_err *err)
{
	struct ck_rank_entry *e;

	pthread_mutex_lock(&c->lock);
	e = find(c, rs, rank);
	if (e)
		take(c, e);
	pthread_mutex_unlock(&c->lock);
	if (e)
		return e;
	e = make(c, rs, rank, err);
	if (!e)
		return NULL;
	pthread_mutex_lock(&c->lock);
	e = add(c, e);
	pthread_mutex_unlock(&c->lock);
	if (!e)
		ck_fail(err, ENOMEM, "no memory for a rank's file");
	return e;
}

void ck_rank_cache_put(struct ck_rank_cache *c, const struct ck_rank_entry *e)
{
	pthread_mutex_lock(&c->lock);
	((struct ck_rank_entry *)e)->refs--;
	pthread_mutex_unlock(&c->lock);
}
