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
 * Lists are found by checkpoint and tensor; files of many tensors (a view's one
 * file) are in a list of their own, each with a table of where its tensors are,
 * made when it is needed first.
 */
#include "fs/cache/inval.h"

#include "core/base/check.h"
#include "core/base/vec.h"
#include "fs/cache/tensor_offsets.h"
#include "fs/kernel/reply.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

#define BUCKETS 1024u

struct fs_shown {
	struct fs_shown *next; /* in its bucket */
	uint64_t ino;
	const struct ck_view *v;
	uint32_t nr;
	uint32_t tensor; /* CK_NONE: of several */
	unsigned opens, mappable, dirties;
	unsigned pending; /* ranges of it in the queue */
	atomic_bool paged; /* the kernel may have pages of it */
	struct fs_tensor_offsets places; /* under the lock, as all of it */
};

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
	struct ck_pre_image *pre_image; /* of the write; or NULL */
	size_t nr;
	struct range range[];
};

struct fs_inval {
	struct fuse_session *se;
	pthread_rwlock_t gate; /* read: writes; write: opens; before @lock */
	pthread_mutex_t lock;
	pthread_cond_t work;
	pthread_t thread;
	unsigned dirties; /* of all files */
	bool end, busy; /* busy: an item was taken and is not done */
	struct item *first, **last;
	struct fs_shown *bucket[BUCKETS];
	struct fs_shown *several;
};

static void answer(const struct item *i)
{
	if (!i->req)
		return;
	if (i->is_write)
		fs_reply_written(i->req, i->written);
	else
		fs_reply_errno(i->req, i->code);
}

/* Under the lock. */
static void drop_if_unused(struct fs_inval *iv, struct fs_shown *s);

static void run_item(struct fs_inval *iv, struct item *i)
{
	for (size_t k = 0; k < i->nr; k++)
		fuse_lowlevel_notify_inval_inode(iv->se, i->range[k].file->ino,
						 i->range[k].off,
						 i->range[k].len);
	ck_ckpt_pre_image_end(i->pre_image);
	answer(i);
	if (i->then)
		i->then(i->ctx);
	pthread_mutex_lock(&iv->lock);
	for (size_t k = 0; k < i->nr; k++) {
		i->range[k].file->pending--;
		drop_if_unused(iv, i->range[k].file);
	}
	free(i);
}

static void *run(void *ctx)
{
	struct fs_inval *iv = ctx;

	pthread_mutex_lock(&iv->lock);
	while (!iv->end || iv->first) {
		struct item *i = iv->first;

		if (!i) {
			pthread_cond_wait(&iv->work, &iv->lock);
			continue;
		}
		iv->first = i->next;
		if (!iv->first)
			iv->last = &iv->first;
		iv->busy = true;
		pthread_mutex_unlock(&iv->lock);
		run_item(iv, i); /* takes the lock again */
		iv->busy = false;
	}
	pthread_mutex_unlock(&iv->lock);
	return NULL;
}

/* Opens need not wait for a time when nobody writes. */
static void init_gate(pthread_rwlock_t *gate)
{
	pthread_rwlockattr_t a;

	pthread_rwlockattr_init(&a);
	pthread_rwlockattr_setkind_np(
		&a, PTHREAD_RWLOCK_PREFER_WRITER_NONRECURSIVE_NP);
	pthread_rwlock_init(gate, &a);
	pthread_rwlockattr_destroy(&a);
}

struct fs_inval *fs_inval_new(struct fuse_session *se)
{
	struct fs_inval *iv = calloc(1, sizeof(*iv));

	if (!iv)
		return NULL;
	iv->se = se;
	iv->last = &iv->first;
	init_gate(&iv->gate);
	pthread_mutex_init(&iv->lock, NULL);
	pthread_cond_init(&iv->work, NULL);
	if (!pthread_create(&iv->thread, NULL, run, iv))
		return iv;
	free(iv);
	return NULL;
}

static void free_list(struct fs_shown *s)
{
	while (s) {
		struct fs_shown *next = s->next;

		fs_tensor_offsets_free(&s->places);
		free(s);
		s = next;
	}
}

void fs_inval_free(struct fs_inval *iv)
{
	if (!iv)
		return;
	pthread_mutex_lock(&iv->lock);
	iv->end = true;
	pthread_cond_signal(&iv->work);
	pthread_mutex_unlock(&iv->lock);
	pthread_join(iv->thread, NULL);
	for (unsigned i = 0; i < BUCKETS; i++)
		free_list(iv->bucket[i]);
	free_list(iv->several);
	pthread_rwlock_destroy(&iv->gate);
	pthread_mutex_destroy(&iv->lock);
	pthread_cond_destroy(&iv->work);
	free(iv);
}

/* ---- files that are open ---- */

static struct fs_shown **list_of(struct fs_inval *iv, const struct ck_ckpt *ck,
				 uint32_t tensor)
{
	uint64_t key = (uintptr_t)ck / 64 * 31 + tensor;

	return tensor == CK_NONE ? &iv->several : &iv->bucket[key % BUCKETS];
}

static void drop_if_unused(struct fs_inval *iv, struct fs_shown *s)
{
	struct fs_shown **at;

	if (s->opens || s->pending)
		return;
	for (at = list_of(iv, s->v->ck, s->tensor); *at != s;)
		at = &(*at)->next;
	*at = s->next;
	fs_tensor_offsets_free(&s->places);
	free(s);
}

struct fs_shown *fs_inval_open(struct fs_inval *iv, uint64_t ino,
			       const struct ck_view *v, uint32_t nr,
			       bool mappable, bool dirties)
{
	struct fs_shown **list, *s;
	struct ck_vfile file = { .tensor = CK_NONE };

	v->ops->file(v, nr, &file);
	if (dirties)
		pthread_rwlock_wrlock(&iv->gate);
	pthread_mutex_lock(&iv->lock);
	list = list_of(iv, v->ck, file.tensor);
	for (s = *list; s && s->ino != ino;)
		s = s->next;
	if (!s) {
		s = calloc(1, sizeof(*s));
		if (s) {
			s->ino = ino;
			s->v = v;
			s->nr = nr;
			s->tensor = file.tensor;
			s->next = *list;
			*list = s;
		}
	}
	if (s) {
		s->opens++;
		s->mappable += mappable;
		s->dirties += dirties;
		iv->dirties += dirties;
	}
	pthread_mutex_unlock(&iv->lock);
	if (dirties)
		pthread_rwlock_unlock(&iv->gate);
	return s;
}

void fs_inval_close(struct fs_inval *iv, struct fs_shown *s, bool mappable,
		    bool dirties)
{
	pthread_mutex_lock(&iv->lock);
	s->opens--;
	s->mappable -= mappable;
	s->dirties -= dirties;
	iv->dirties -= dirties;
	drop_if_unused(iv, s);
	pthread_mutex_unlock(&iv->lock);
}

/* A write in progress that saw no pages there has noted nothing of its own. */
void fs_inval_paged(struct fs_inval *iv, struct fs_shown *s)
{
	bool stored;

	if (atomic_load(&s->paged))
		return;
	pthread_mutex_lock(&iv->lock);
	stored = s->dirties; /* else an open for writing will wait */
	if (!stored)
		atomic_store(&s->paged, true);
	pthread_mutex_unlock(&iv->lock);
	if (!stored)
		return;
	pthread_rwlock_wrlock(&iv->gate);
	atomic_store(&s->paged, true);
	pthread_rwlock_unlock(&iv->gate);
}

/* ---- what to forget ---- */

struct gather {
	struct fs_inval *iv;
	const struct fs_written *w;
	bool before; /* only what maps may have written */
	bool older; /* whether maps may write what is older than the request */
	bool found; /* such */
	bool apart; /* other bytes than those of the request */
	bool own; /* some of the writer's own file, apart */
	CK_VEC(struct range) range; /* one a file */
};

static void drop(struct gather *g)
{
	for (size_t i = 0; i < g->range.nr; i++)
		g->range.v[i].file->pending--;
}

/* Whether the pages of the written file itself are not what was written. */
static bool own_are_older(struct gather *g)
{
	const struct fs_written *w = g->w;

	if (g->apart) {
		/* a cached writer has pages locked, and cannot wait for them */
		if (g->before && !w->direct)
			return false;
		g->own = true;
		return true;
	}
	/*
	 * The kernel keeps a cached writer's own pages right; those of others
	 * it has sent in before, and may have read since.
	 */
	return !g->before && w->direct && !w->writeback;
}

static void add_range(struct gather *g, struct fs_shown *s, uint64_t off,
		      uint64_t len)
{
	struct range *r;

	if (!s->mappable || !atomic_load(&s->paged) ||
	    ((g->before || g->older) && !s->dirties))
		return;
	if (s == g->w->file && !own_are_older(g))
		return;
	if (g->older) {
		g->found = true;
		return;
	}
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

static void add_file(struct gather *g, struct fs_shown *s, uint32_t tensor,
		     uint64_t off, uint64_t len)
{
	uint64_t at;

	fs_tensor_offsets_make(&s->places, s->v, s->nr);
	if (s->places.unclear)
		add_range(g, s, 0, 0);
	else if (fs_tensor_offsets_find(&s->places, tensor, &at))
		add_range(g, s, at + off, len);
}

/* Every file that shows [off, off+len) of @tensor. */
static void add_tensor(struct gather *g, const struct ck_ckpt *ck,
		       uint32_t tensor, uint64_t off, uint64_t len)
{
	struct fs_inval *iv = g->iv;

	for (struct fs_shown *s = *list_of(iv, ck, tensor); s; s = s->next)
		if (s->v->ck == ck && s->tensor == tensor)
			add_file(g, s, tensor, off, len);
	for (struct fs_shown *s = iv->several; s; s = s->next)
		if (s->v->ck == ck)
			add_file(g, s, tensor, off, len);
}

/* All of every file that shows a tensor which shares bytes with @tensor. */
static void add_aliases(struct gather *g, const struct ck_ckpt *ck,
			uint32_t tensor)
{
	uint32_t group = ck_ckpt_shared_storage(ck, tensor);

	if (group == CK_NONE)
		return;
	for (unsigned i = 0; i < BUCKETS; i++)
		for (struct fs_shown *s = g->iv->bucket[i]; s; s = s->next)
			if (s->v->ck == ck && s->tensor != tensor &&
			    ck_ckpt_shared_storage(ck, s->tensor) == group)
				add_range(g, s, 0, 0);
	for (struct fs_shown *s = g->iv->several; s; s = s->next)
		if (s->v->ck == ck)
			add_range(g, s, 0, 0);
}

/* And of the wider copy that was written with it. */
static void add_both(struct gather *g, const struct ck_ckpt *ck,
		     uint32_t tensor, uint64_t off, uint64_t len)
{
	uint32_t copy = ck_ckpt_written_too(ck, tensor);

	add_tensor(g, ck, tensor, off, len);
	g->apart = true;
	add_aliases(g, ck, tensor);
	if (copy != CK_NONE)
		add_tensor(g, ck, copy, off / 2 * 4, 2 * len + 4);
	g->apart = false;
}

/* Under the lock. */
static void gather(struct gather *g)
{
	const struct fs_shown *f = g->w->file;
	uint64_t off = g->w->off, left = g->w->len;

	while (left && !g->found) {
		struct ck_span span;
		uint64_t n;

		f->v->ops->at(f->v, f->nr, off, &span);
		n = CK_MIN(left, span.len);
		if (!n)
			return;
		if (span.kind == CK_SPAN_TENSOR)
			add_both(g, f->v->ck, span.ref, span.off, n);
		off += n;
		left -= n;
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
	pthread_cond_signal(&iv->work);
	return true;
}

bool fs_inval_may_wait(struct fs_inval *iv, const struct fs_written *w)
{
	bool others;

	if (w->writeback)
		return false;
	pthread_mutex_lock(&iv->lock);
	/* a file of several may have copies, or the same bytes twice */
	others = iv->dirties > w->file->dirties ||
		 (w->direct && w->file->tensor == CK_NONE && iv->dirties);
	pthread_mutex_unlock(&iv->lock);
	return others;
}

/*
 * A writer through the page cache keeps pages of its file locked: it may wait
 * for the thread under the same condition as in fs_inval_reply().
 */
bool fs_inval_before(struct fs_inval *iv, const struct fs_written *w,
		     void (*then)(void *ctx), void *ctx)
{
	const struct item like = { .then = then, .ctx = ctx };
	struct gather g = { .iv = iv, .w = w, .before = true };
	bool queued = false;

	if (w->writeback)
		return false;
	pthread_mutex_lock(&iv->lock);
	if (w->direct || !w->file->pending)
		gather(&g);
	if (g.range.nr)
		queued = queue(iv, &like, g.range.v, g.range.nr);
	if (!queued)
		drop(&g);
	pthread_mutex_unlock(&iv->lock);
	free(g.range.v);
	return queued;
}

bool fs_inval_begin(struct fs_inval *iv, const struct fs_written *w)
{
	struct gather g = { .iv = iv, .w = w, .older = true };

	pthread_rwlock_rdlock(&iv->gate);
	pthread_mutex_lock(&iv->lock);
	if (iv->dirties)
		gather(&g);
	pthread_mutex_unlock(&iv->lock);
	return g.found;
}

void fs_inval_end(struct fs_inval *iv)
{
	pthread_rwlock_unlock(&iv->gate);
}

/* A page that had bytes from before somebody else's write has them still. */
static void add_old_page(struct gather *g)
{
	const struct fs_written *w = g->w;

	if (!ck_ckpt_pre_image_merged(w->pre_image))
		return;
	g->apart = true;
	add_range(g, w->file, w->off, w->len);
	g->apart = false;
}

void fs_inval_reply(struct fs_inval *iv, fuse_req_t req,
		    const struct fs_written *w)
{
	struct item like = { .req = req,
			     .written = w->len,
			     .is_write = true,
			     .pre_image = w->pre_image };
	struct item now = like;
	struct gather g = { .iv = iv, .w = w };
	bool waits;

	pthread_mutex_lock(&iv->lock);
	waits = !w->writeback && (w->direct || !w->file->pending);
	gather(&g);
	add_old_page(&g);
	if (g.own && !w->direct)
		waits = false; /* for its own pages, which it has locked */
	if (!waits || !g.range.nr)
		like.req = NULL;
	else
		now.req = NULL;
	if (g.range.nr && queue(iv, &like, g.range.v, g.range.nr)) {
		now.pre_image = NULL;
	} else if (g.range.nr) {
		drop(&g);
		now.req = req;
	}
	pthread_mutex_unlock(&iv->lock);
	free(g.range.v);
	ck_ckpt_pre_image_end(now.pre_image);
	answer(&now);
}

void fs_inval_reply_after(struct fs_inval *iv, fuse_req_t req, int code)
{
	const struct item like = { .req = req, .code = code };
	bool queued;

	pthread_mutex_lock(&iv->lock);
	queued = (iv->first || iv->busy) && queue(iv, &like, NULL, 0);
	pthread_mutex_unlock(&iv->lock);
	if (!queued)
		answer(&like);
}

bool fs_inval_after(struct fs_inval *iv, const struct fs_shown *file,
		    void (*then)(void *ctx), void *ctx)
{
	const struct item like = { .then = then, .ctx = ctx };
	bool queued;

	pthread_mutex_lock(&iv->lock);
	queued = file->pending && queue(iv, &like, NULL, 0);
	pthread_mutex_unlock(&iv->lock);
	return queued;
}

void fs_inval_all(struct fs_inval *iv, struct fs_shown *file)
{
	const struct item like = { .req = NULL };
	const struct range all = { file, 0, 0 };

	pthread_mutex_lock(&iv->lock);
	if (queue(iv, &like, &all, 1))
		file->pending++;
	pthread_mutex_unlock(&iv->lock);
}
