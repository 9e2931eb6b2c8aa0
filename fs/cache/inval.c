/* SPDX-License-Identifier: Apache-2.0 */
/*
 * inval.c - a queue of ranges to forget, and one thread that forgets them
 *
 * A writer W of file X that waits in the queue, while the thread waits for a
 * page of X that W's request keeps locked, would wait for ever.  It cannot be:
 * W waits only if no range of X was in the queue before it, so that all ranges
 * of X come after W has been answered; or if it went past the page cache, and
 * has no page locked.  Nor may a request that waits have one of the places
 * that the kernel has for what it sends in the background, for the pages that
 * the thread waits for are sent so (fs_kernel_init()).
 *
 * Lists are found by checkpoint and by the key of the bytes; files of many
 * tensors (a view's one file) are in a list of their own.
 */
#include "fs/cache/inval_priv.h"

#include "core/base/vec.h"

#include <stdlib.h>

struct range {
	struct fs_shown *file;
	int64_t off, len; /* len 0: to the end */
};

struct item {
	struct item *next;
	fuse_req_t req; /* to be answered afterwards, or NULL */
	size_t written;
	int code;
	bool is_write;
	void (*then)(void *ctx); /* to be called afterwards, or NULL */
	void *ctx;
	struct ck_wplan *plan; /* of the write; or NULL */
	size_t nr;
	struct range range[];
};

static void answer(const struct item *i)
{
	if (!i->req)
		return;
	if (i->is_write)
		fuse_reply_write(i->req, i->written);
	else
		fuse_reply_err(i->req, i->code);
}

static void run_item(struct fs_inval *iv, struct item *i)
{
	for (size_t k = 0; k < i->nr; k++)
		fuse_lowlevel_notify_inval_inode(iv->se, i->range[k].file->ino,
						 i->range[k].off,
						 i->range[k].len);
	ck_wplan_free(i->plan);
	answer(i);
	if (i->then)
		i->then(i->ctx);
	pthread_mutex_lock(&iv->thread.lock);
	for (size_t k = 0; k < i->nr; k++) {
		i->range[k].file->pending--;
		fs_shown_drop(i->range[k].file);
	}
	free(i);
}

static bool has_item(void *ctx)
{
	const struct fs_inval *iv = ctx;

	return iv->first;
}

static bool run_first(void *ctx)
{
	struct fs_inval *iv = ctx;
	struct item *i = iv->first;

	if (!i)
		return false;
	iv->first = i->next;
	if (!iv->first)
		iv->last = &iv->first;
	iv->busy = true;
	pthread_mutex_unlock(&iv->thread.lock);
	run_item(iv, i); /* takes the lock again */
	iv->busy = false;
	return true;
}

static const struct ck_helpers_in forgetting = {
	.work = run_first,
	.has_work = has_item,
};

struct fs_inval *fs_inval_new(struct fuse_session *se)
{
	struct fs_inval *iv = calloc(1, sizeof(*iv));

	if (!iv)
		return NULL;
	iv->se = se;
	iv->last = &iv->first;
	pthread_cond_init(&iv->closed, NULL);
	ck_helpers_init(&iv->thread, &forgetting, iv, false);
	if (ck_helpers_start(&iv->thread, 1))
		return iv;
	ck_helpers_free(&iv->thread);
	free(iv);
	return NULL;
}

static void free_list(struct fs_shown *s)
{
	while (s) {
		struct fs_shown *next = s->next;

		free(s->places.v.v);
		free(s);
		s = next;
	}
}

void fs_inval_free(struct fs_inval *iv)
{
	if (!iv)
		return;
	ck_helpers_stop(&iv->thread);
	for (unsigned i = 0; i < FS_SHOWN_BUCKETS; i++)
		free_list(iv->bucket[i]);
	free_list(iv->several);
	pthread_cond_destroy(&iv->closed);
	ck_helpers_free(&iv->thread);
	free(iv);
}

/* ---- what to forget ---- */

struct gather {
	struct fs_inval *iv;
	const struct fs_written *w;
	CK_VEC(struct range) range; /* one a file */
};

static void drop(struct gather *g)
{
	for (size_t i = 0; i < g->range.nr; i++)
		g->range.v[i].file->pending--;
}

static void add_range(struct gather *g, struct fs_shown *s, uint64_t off,
		      uint64_t len)
{
	struct range *r;

	for (size_t i = 0; i < g->range.nr; i++)
		if (g->range.v[i].file == s) {
			g->range.v[i].off = 0;
			g->range.v[i].len = 0;
			return;
		}
	r = ck_vec_push(&g->range);
	if (!r)
		return;
	*r = (struct range){ s, (int64_t)off, (int64_t)len };
	s->pending++;
}

/* Where a file shows bytes that the part changes. */
static void add_place(struct gather *g, struct fs_shown *s,
		      const struct fs_tensor_offset *at,
		      const struct ck_wpart *part)
{
	if (at->tensor == part->tensor)
		add_range(g, s, at->off + part->off, part->len);
	else if (at->tensor == part->copy)
		add_range(g, s, at->off + part->off / 2 * 4, 2 * part->len + 4);
	else
		add_range(g, s, 0, 0); /* it shares some, who knows which */
}

static void add_shown(struct gather *g, struct fs_shown *s,
		      const struct ck_wpart *part)
{
	const struct fs_written *w = g->w;
	const struct fs_tensor_offset *at;
	const struct fs_tensor_offsets *p;
	/* the kernel keeps pages right that a write went through */
	bool right = s == w->file && (!w->direct || w->writeback);

	if (s->ck != w->file->ck || !s->mappable || !atomic_load(&s->paged))
		return;
	p = fs_shown_places(s);
	if (p->unclear && !right)
		add_range(g, s, 0, 0);
	at = p->unclear ? NULL : fs_tensor_offsets_find(p, part->key);
	for (; at; at = fs_tensor_offsets_next(p, at))
		if (!right || at->tensor != part->tensor)
			add_place(g, s, at, part);
}

/* Under the lock. */
static void gather(struct gather *g, const struct ck_wplan *plan)
{
	for (size_t i = 0; i < plan->parts.nr; i++) {
		const struct ck_wpart *part = &plan->parts.v[i];
		struct fs_shown *s =
			*fs_shown_list(g->iv, g->w->file->ck, part->key);

		for (; s; s = s->next)
			if (s->key == part->key)
				add_shown(g, s, part);
		for (s = g->iv->several; s; s = s->next)
			add_shown(g, s, part);
	}
}

/* Under the lock. */
static bool queue(struct fs_inval *iv, const struct item *like,
		  const struct range *range, size_t nr)
{
	struct item *i = malloc(sizeof(*i) + nr * sizeof(*range));

	if (!i)
		return false;
	*i = *like;
	i->next = NULL;
	i->nr = nr;
	for (size_t k = 0; k < nr; k++)
		i->range[k] = range[k];
	*iv->last = i;
	iv->last = &i->next;
	pthread_cond_signal(&iv->thread.wake);
	return true;
}

void fs_inval_tell(struct fs_inval *iv, const struct fs_written *w,
		   const struct ck_wplan *plan)
{
	const struct item like = { .req = NULL };
	struct gather g = { .iv = iv, .w = w };

	pthread_mutex_lock(&iv->thread.lock);
	gather(&g, plan);
	if (g.range.nr && !queue(iv, &like, g.range.v, g.range.nr))
		drop(&g);
	pthread_mutex_unlock(&iv->thread.lock);
	free(g.range.v);
}

void fs_inval_reply(struct fs_inval *iv, fuse_req_t req,
		    const struct fs_written *w, struct ck_wplan *plan)
{
	struct item like = {
		.req = req, .written = w->len, .is_write = true, .plan = plan
	};
	struct item now = like;
	struct gather g = { .iv = iv, .w = w };
	bool waits;

	pthread_mutex_lock(&iv->thread.lock);
	waits = !w->writeback && (w->direct || !w->file->pending);
	gather(&g, plan);
	if (!waits || !g.range.nr)
		like.req = NULL;
	else
		now.req = NULL;
	if (!waits)
		like.plan = NULL; /* it may outlive the checkpoint */
	if (g.range.nr && queue(iv, &like, g.range.v, g.range.nr)) {
		now.plan = waits ? NULL : plan;
	} else if (g.range.nr) {
		drop(&g);
		now.req = req;
	}
	pthread_mutex_unlock(&iv->thread.lock);
	free(g.range.v);
	ck_wplan_free(now.plan);
	answer(&now);
}

void fs_inval_reply_after(struct fs_inval *iv, fuse_req_t req, int code)
{
	const struct item like = { .req = req, .code = code };
	bool queued;

	pthread_mutex_lock(&iv->thread.lock);
	queued = (iv->first || iv->busy) && queue(iv, &like, NULL, 0);
	pthread_mutex_unlock(&iv->thread.lock);
	if (!queued)
		answer(&like);
}

bool fs_inval_after(struct fs_inval *iv, const struct fs_shown *file,
		    void (*then)(void *ctx), void *ctx)
{
	const struct item like = { .then = then, .ctx = ctx };
	bool queued;

	pthread_mutex_lock(&iv->thread.lock);
	queued = file->pending && queue(iv, &like, NULL, 0);
	pthread_mutex_unlock(&iv->thread.lock);
	return queued;
}

/* Under the lock. */
static void queue_all(struct fs_inval *iv, struct fs_shown *file)
{
	const struct item like = { .req = NULL };
	const struct range all = { file, 0, 0 };

	if (queue(iv, &like, &all, 1))
		file->pending++;
}

static bool shows(const struct fs_shown *s, const struct ck_ckpt *ck)
{
	return s->opens && atomic_load(&s->paged) &&
	       (s->ck == ck || ck_ckpt_derived_from(s->ck) == ck);
}

void fs_inval_touched(struct fs_inval *iv, const struct ck_ckpt *ck)
{
	pthread_mutex_lock(&iv->thread.lock);
	for (unsigned i = 0; i <= FS_SHOWN_BUCKETS; i++) {
		struct fs_shown *s =
			i < FS_SHOWN_BUCKETS ? iv->bucket[i] : iv->several;

		for (; s; s = s->next)
			if (shows(s, ck))
				queue_all(iv, s);
	}
	pthread_mutex_unlock(&iv->thread.lock);
}

void fs_inval_all(struct fs_inval *iv, struct fs_shown *file)
{
	pthread_mutex_lock(&iv->thread.lock);
	queue_all(iv, file);
	pthread_mutex_unlock(&iv->thread.lock);
}
