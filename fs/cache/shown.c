/* SPDX-License-Identifier: Apache-2.0 */
/*
 * shown.c - files that are open, and which may be open beside which
 *
 * The kernel writes pages of maps back whole, with bytes in them that nobody
 * stored.  Where two files that are mapped for writing show the same bytes, what
 * comes from one cannot be told from what was stored in it; so one file at a time
 * may be open for reading and writing, which is what a map takes.  Writes past
 * the page cache say which bytes they are of: those of the same tensor go on
 * beside it (core/ckpt/write_plan.h); those of one that shares bytes with it in
 * some other way do not.
 */
#include "fs/cache/inval_priv.h"

#include "core/base/clock.h"
#include "core/base/search.h"

#include <stdlib.h>

#define CLOSING INT64_C(5000000000) /* ns that an open waits for closed files */

struct fs_shown **fs_shown_list(struct fs_inval *iv, const struct ck_ckpt *ck,
				uint32_t key)
{
	uint64_t hash = (uintptr_t)ck / 64 * 31 + key;

	return key == CK_NONE ? &iv->several :
				&iv->bucket[hash % FS_SHOWN_BUCKETS];
}

void fs_shown_drop(struct fs_shown *s)
{
	struct fs_shown **at;

	if (s->opens || s->pending)
		return;
	for (at = s->list; *at != s;)
		at = &(*at)->next;
	*at = s->next;
	free(s->places.v.v);
	free(s);
}

/* Under the lock: found, or made. */
static struct fs_shown *shown_of(struct fs_inval *iv, uint64_t ino,
				 const struct ck_view *v, uint32_t nr)
{
	struct ck_vfile file = { .tensor = CK_NONE };
	struct fs_shown **list, *s;
	uint32_t key;

	v->ops->file(v, nr, &file);
	key = file.tensor == CK_NONE ? CK_NONE :
				       ck_ckpt_bytes_key(v->ck, file.tensor);
	list = fs_shown_list(iv, v->ck, key);
	for (s = *list; s && s->ino != ino;)
		s = s->next;
	if (s)
		return s;
	s = calloc(1, sizeof(*s));
	if (!s)
		return NULL;
	s->ino = ino;
	s->v = v;
	s->ck = v->ck;
	s->nr = nr;
	s->tensor = file.tensor;
	s->key = key;
	s->list = list;
	s->next = *list;
	*list = s;
	return s;
}

/* ---- where its tensors are ---- */

static int by_key(const void *a, const void *b)
{
	const struct fs_tensor_offset *x = a, *y = b;

	return ck_order2(x->key, y->key, x->tensor, y->tensor);
}

static void add_place(struct fs_tensor_offsets *p, const struct ck_view *v,
		      const struct ck_span *span, uint64_t off)
{
	struct fs_tensor_offset *at = ck_vec_push(&p->v);

	p->unclear |= !at || span->off;
	if (at)
		*at = (struct fs_tensor_offset){
			ck_ckpt_bytes_key(v->ck, span->ref), span->ref, off
		};
}

static void make_places(struct fs_tensor_offsets *p, const struct ck_view *v,
			uint32_t nr)
{
	struct ck_vfile file = { .size = 0 };
	struct ck_span span;

	if (p->made)
		return;
	p->made = true;
	v->ops->file(v, nr, &file);
	ck_ckpt_count_span_walk(v->ck);
	for (uint64_t off = 0; off < file.size; off += span.len) {
		v->ops->at(v, nr, off, &span);
		if (!span.len) {
			p->unclear = true;
			break;
		}
		if (span.kind == CK_SPAN_TENSOR)
			add_place(p, v, &span, off);
		else
			p->unclear |= span.kind != CK_SPAN_MADE;
	}
	if (p->v.nr)
		qsort(p->v.v, p->v.nr, sizeof(*p->v.v), by_key);
}

const struct fs_tensor_offsets *fs_shown_places(struct fs_shown *s)
{
	make_places(&s->places, s->v, s->nr);
	return &s->places;
}

const struct fs_tensor_offset *fs_tensor_offsets_find(
	const struct fs_tensor_offsets *p, uint32_t key)
{
	size_t at = CK_FIRST(i, 0, p->v.nr, p->v.v[i].key >= key);

	return at < p->v.nr && p->v.v[at].key == key ? &p->v.v[at] : NULL;
}

const struct fs_tensor_offset *fs_tensor_offsets_next(
	const struct fs_tensor_offsets *p, const struct fs_tensor_offset *at)
{
	const struct fs_tensor_offset *next = at + 1;

	return next < p->v.v + p->v.nr && next->key == at->key ? next : NULL;
}

/* ---- who may write, while others can ---- */

/* Why a file is not opened. */
struct clash {
	const struct fs_shown *with; /* itself: tensors @a and @b of it */
	uint32_t a, b;
	bool dirties; /* by those alone that are open for reading and writing */
};

static bool meets(const struct fs_shown *g, uint32_t b, uint32_t a, bool dirty,
		  struct clash *out)
{
	/* a write tells which bytes it is of, and is heeded where it is known */
	bool dirties = a == b || !dirty;
	bool any = a == b ? dirty && g->dirties :
			    g->dirties || (dirty && g->edits);

	if (any)
		*out = (struct clash){ g, a, b, dirties };
	return any;
}

/* Whether any of the tensors of @key in @g is in the way of tensor @a. */
static bool any_of_key(struct fs_shown *g, uint32_t key, uint32_t a, bool dirty,
		       struct clash *out)
{
	const struct fs_tensor_offsets *p = fs_shown_places(g);
	const struct fs_tensor_offset *at = fs_tensor_offsets_find(p, key);

	for (; at; at = fs_tensor_offsets_next(p, at))
		if (meets(g, at->tensor, a, dirty, out))
			return true;
	return false;
}

static bool any_shown(struct fs_inval *iv, const struct fs_shown *s,
		      uint32_t key, uint32_t tensor, bool dirty,
		      struct clash *out)
{
	for (struct fs_shown *g = *fs_shown_list(iv, s->ck, key); g;
	     g = g->next)
		if (g != s && g->edits && g->ck == s->ck &&
		    any_of_key(g, key, tensor, dirty, out))
			return true;
	for (struct fs_shown *g = iv->several; g; g = g->next)
		if (g != s && g->edits && g->ck == s->ck &&
		    any_of_key(g, key, tensor, dirty, out))
			return true;
	return false;
}

/*
 * Under the lock: the file that is in the way of opening @s for writing, @dirty:
 * and for reading.
 */
static bool find_clash(struct fs_inval *iv, struct fs_shown *s, bool dirty,
		       struct clash *out)
{
	const struct fs_tensor_offsets *p = fs_shown_places(s);

	for (size_t i = 1; dirty && i < p->v.nr; i++)
		if (p->v.v[i].key == p->v.v[i - 1].key) {
			*out = (struct clash){ .with = s,
					       .a = p->v.v[i - 1].tensor,
					       .b = p->v.v[i].tensor };
			return true;
		}
	for (size_t i = 0; iv->edits > s->edits && i < p->v.nr; i++)
		if (any_shown(iv, s, p->v.v[i].key, p->v.v[i].tensor, dirty,
			      out))
			return true;
	return false;
}

/* A file that was closed is known to be a moment later. */
static bool may_be_closed(const struct fs_shown *s, const struct clash *c)
{
	const struct fs_shown *g = c->with;

	return g != s && (c->dirties ? g->flushed_dirties == g->dirties :
				       g->flushed == g->edits);
}

static int refuse(const struct fs_shown *s, const struct clash *c,
		  struct ck_err *err)
{
	const struct ck_view *v = s->v, *of = c->with->v;
	char name[CK_VIEW_NAME], other[CK_VIEW_NAME];

	v->ops->label(v, s->nr, name);
	of->ops->label(of, c->with->nr, other);
	if (c->with == s)
		return ck_fail(
			err, EBUSY,
			"%s/%s: a write to its tensor %s changes %s, which one "
			"map cannot show at once; open it for writing alone",
			v->ops->name, name,
			ck_catalog_str(v->img, v->img->tensors[c->a].name,
				       NULL),
			ck_catalog_str(v->img, v->img->tensors[c->b].name,
				       NULL));
	return ck_fail(err, EBUSY,
		       "%s/%s: %s/%s is open for %swriting and has the same "
		       "bytes, which are mapped for writing in one file at a "
		       "time%s",
		       v->ops->name, name, of->ops->name, other,
		       c->with->dirties ? "reading and " : "",
		       c->a == c->b ? "; open it for writing alone" : "");
}

/* Under the lock; it may be given up meanwhile. */
static int wait_for_others(struct fs_inval *iv, struct fs_shown *s, bool dirty,
			   struct ck_err *err)
{
	struct timespec until = ck_deadline(CLOCK_REALTIME, CLOSING);
	struct clash c;
	bool late = false;

	while (find_clash(iv, s, dirty, &c)) {
		if (late || !may_be_closed(s, &c))
			return refuse(s, &c, err);
		late = pthread_cond_timedwait(&iv->closed, &iv->thread.lock,
					      &until);
	}
	return 0;
}

int fs_inval_open(struct fs_inval *iv, struct fs_shown **out, uint64_t ino,
		  const struct ck_view *v, uint32_t nr, bool mappable,
		  bool edit, struct ck_err *err)
{
	struct fs_shown *s;
	int ret = 0;

	pthread_mutex_lock(&iv->thread.lock);
	s = shown_of(iv, ino, v, nr);
	if (!s) {
		pthread_mutex_unlock(&iv->thread.lock);
		return ck_no_memory(err);
	}
	s->opens++;
	if (edit)
		ret = wait_for_others(iv, s, mappable, err);
	if (!ret) {
		s->mappable += mappable;
		s->edits += edit;
		iv->edits += edit;
		s->dirties += mappable && edit;
		*out = s;
	} else {
		s->opens--;
		fs_shown_drop(s);
	}
	pthread_mutex_unlock(&iv->thread.lock);
	return ret;
}

void fs_inval_flushed(struct fs_inval *iv, struct fs_shown *s, bool mappable,
		      bool *flushed)
{
	pthread_mutex_lock(&iv->thread.lock);
	s->flushed += !*flushed;
	s->flushed_dirties += mappable && !*flushed;
	*flushed = true;
	pthread_mutex_unlock(&iv->thread.lock);
}

void fs_inval_close(struct fs_inval *iv, struct fs_shown *s, bool mappable,
		    bool edit, bool flushed)
{
	pthread_mutex_lock(&iv->thread.lock);
	s->opens--;
	s->mappable -= mappable;
	s->edits -= edit;
	iv->edits -= edit;
	s->dirties -= mappable && edit;
	s->flushed -= flushed;
	s->flushed_dirties -= mappable && flushed;
	fs_shown_drop(s);
	if (edit)
		pthread_cond_broadcast(&iv->closed);
	pthread_mutex_unlock(&iv->thread.lock);
}

void fs_inval_paged(struct fs_shown *s)
{
	atomic_store(&s->paged, true);
}
