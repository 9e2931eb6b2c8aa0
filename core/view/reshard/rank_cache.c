/* SPDX-License-Identifier: Apache-2.0 */
/* rank_cache.c - least recently used out, but none that is in use */
#include "core/view/reshard/rank_cache.h"

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
	struct ck_rank_entry *e;

	while ((e = c->oldest)) {
		c->oldest = e->newer;
		free_entry(e);
	}
	pthread_mutex_destroy(&c->lock);
}

static uint64_t weight(const struct ck_rank_entry *e)
{
	return sizeof(*e) + e->own.room +
	       e->file.pieces.room * sizeof(*e->file.pieces.v);
}

static struct ck_rank_entry **chain_of(struct ck_rank_cache *c,
				       const struct ck_reshard *rs,
				       uint32_t rank)
{
	/* neighbours are read together: one each, whatever the mesh */
	return &c->chain[(rank + (uintptr_t)rs / 64) % CK_RANK_CACHE_CHAINS];
}

/* Under the lock. */
static struct ck_rank_entry *find(struct ck_rank_cache *c,
				  const struct ck_reshard *rs, uint32_t rank)
{
	struct ck_rank_entry *e = *chain_of(c, rs, rank);

	while (e && (e->file.rank != rank || e->file.rs != rs))
		e = e->chain;
	return e;
}

static void unlink_use(struct ck_rank_cache *c, struct ck_rank_entry *e)
{
	*(e->newer ? &e->newer->older : &c->newest) = e->older;
	*(e->older ? &e->older->newer : &c->oldest) = e->newer;
}

static void link_use(struct ck_rank_cache *c, struct ck_rank_entry *e)
{
	e->newer = NULL;
	e->older = c->newest;
	*(e->older ? &e->older->newer : &c->oldest) = e;
	c->newest = e;
}

/* Under the lock.  False: all are in use. */
static bool drop_oldest(struct ck_rank_cache *c)
{
	struct ck_rank_entry *e = c->oldest, **at;

	while (e && e->refs)
		e = e->newer;
	if (!e)
		return false;
	at = chain_of(c, e->file.rs, e->file.rank);
	while (*at != e)
		at = &(*at)->chain;
	*at = e->chain;
	unlink_use(c, e);
	c->bytes -= weight(e);
	c->nr--;
	free_entry(e);
	return true;
}

static bool full(const struct ck_rank_cache *c, uint64_t more)
{
	return c->nr >= CK_RANK_CACHE_FILES ||
	       c->bytes + more > CK_RANK_CACHE_BYTES;
}

static struct ck_rank_entry *take(struct ck_rank_cache *c,
				  struct ck_rank_entry *e)
{
	e->refs++;
	if (c->newest != e) {
		unlink_use(c, e);
		link_use(c, e);
	}
	return e;
}

/* Under the lock: @made, or the same that another made meanwhile. */
static struct ck_rank_entry *add(struct ck_rank_cache *c,
				 struct ck_rank_entry *made)
{
	struct ck_rank_entry *e = find(c, made->file.rs, made->file.rank);
	struct ck_rank_entry **chain;

	if (e) {
		free_entry(made);
		return take(c, e);
	}
	while (full(c, weight(made)) && drop_oldest(c))
		;
	chain = chain_of(c, made->file.rs, made->file.rank);
	made->chain = *chain;
	*chain = made;
	link_use(c, made);
	c->bytes += weight(made);
	c->nr++;
	made->refs++;
	return made;
}

static struct ck_rank_entry *make(struct ck_rank_cache *c,
				  const struct ck_reshard *rs, uint32_t rank,
				  struct ck_err *err)
{
	struct ck_rank_entry *e = calloc(1, sizeof(*e));
	int ret;

	if (!e) {
		ck_no_memory(err);
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
	return e;
}

void ck_rank_cache_put(struct ck_rank_cache *c, const struct ck_rank_entry *e)
{
	pthread_mutex_lock(&c->lock);
	((struct ck_rank_entry *)e)->refs--;
	pthread_mutex_unlock(&c->lock);
}
