/* SPDX-License-Identifier: Apache-2.0 */
/* verify.c - the files there are against the files that were sealed */
#include "core/seal/verify_priv.h"

#include "core/base/check.h"
#include "core/manifest/manifest_priv.h"
#include "core/manifest/sealed.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>

struct work {
	struct ck_verify *v;
	struct ck_hash_file *file; /* to be read: sealed, and there */
	uint64_t *sealed; /* of each: its number in the manifest */
	size_t nr;
	uint64_t total;
	pthread_mutex_t lock; /* of v->damage */
};

static int add(struct ck_verify *v, const struct ck_damage *d)
{
	if (v->nr_damage == v->room) {
		size_t room = v->room ? 2 * v->room : 16;
		struct ck_damage *grown =
			reallocarray(v->damage, room, sizeof(*grown));

		if (!grown)
			return -ENOMEM;
		v->damage = grown;
		v->room = room;
	}
	v->damage[v->nr_damage++] = *d;
	return 0;
}

static int add_tail(struct ck_verify *v, const struct ck_manifest_file *f,
		    enum ck_damage_kind kind, uint64_t from, uint64_t to)
{
	struct ck_damage d = {
		.file = f->name,
		.kind = kind,
		.off = from,
		.len = to - from,
		.block = from >> v->m->shift,
		.nr_blocks = ck_mf_nr_blocks(to, v->m->shift) -
			     (from >> v->m->shift),
	};

	return add(v, &d);
}

/* Of a file whose size is another, the blocks that both have whole. */
static int take_file(struct work *w, uint64_t i,
		     const struct ck_manifest_file *f,
		     const struct ck_hash_file *now)
{
	struct ck_hash_file *out = &w->file[w->nr];
	uint64_t mask = (UINT64_C(1) << w->v->m->shift) - 1;
	int ret = 0;

	*out = *now;
	out->size = f->size;
	if (now->size < f->size) {
		out->size = now->size & ~mask;
		ret = add_tail(w->v, f, CK_DAMAGE_CUT, out->size, f->size);
	} else if (now->size > f->size) {
		ret = add_tail(w->v, f, CK_DAMAGE_GROWN, f->size, now->size);
	}
	w->sealed[w->nr++] = i;
	w->total += out->size;
	return ret;
}

/* Both lists are sorted by name. */
static int match(struct work *w)
{
	struct ck_verify *v = w->v;
	size_t k = 0;
	int ret = 0;

	for (uint64_t i = 0; i < v->m->nr_files && !ret; i++) {
		struct ck_manifest_file f;

		ck_manifest_file(v->m, i, &f);
		while (k < v->now.nr && strcmp(v->now.v[k].name, f.name) < 0)
			v->extra[k++] = 1;
		if (k < v->now.nr && !strcmp(v->now.v[k].name, f.name))
			ret = take_file(w, i, &f, &v->now.v[k++]);
		else
			ret = add_tail(v, &f, CK_DAMAGE_MISSING, 0, f.size);
	}
	while (k < v->now.nr)
		v->extra[k++] = 1;
	return ret;
}

static int check(void *ctx, size_t i, uint64_t k, uint64_t digest,
		 const struct ck_err *err)
{
	struct work *w = ctx;
	unsigned shift = w->v->m->shift;
	struct ck_manifest_file f;
	struct ck_damage d;
	int ret;

	ck_manifest_file(w->v->m, w->sealed[i], &f);
	if (!err && digest == ck_manifest_block(w->v->m, f.first + k))
		return 0;
	d = (struct ck_damage){
		.file = f.name,
		.kind = err ? CK_DAMAGE_UNREADABLE : CK_DAMAGE_CHANGED,
		.code = err ? err->code : 0,
		.block = k,
		.nr_blocks = 1,
		.off = k << shift,
		.len = CK_MIN(UINT64_C(1) << shift, f.size - (k << shift)),
	};
	pthread_mutex_lock(&w->lock);
	ret = add(w->v, &d);
	pthread_mutex_unlock(&w->lock);
	return ret;
}

static void tick(void *ctx, uint64_t bytes)
{
	struct work *w = ctx;

	w->v->bytes = bytes;
	if (w->v->tick)
		w->v->tick(w->v->ctx, bytes, w->total);
}

static int by_place(const void *a, const void *b)
{
	const struct ck_damage *x = a, *y = b;
	int c = strcmp(x->file, y->file);

	return c ? c : (x->off > y->off) - (x->off < y->off);
}

static void join(struct ck_verify *v)
{
	size_t kept = 0;

	for (size_t i = 0; i < v->nr_damage; i++) {
		struct ck_damage *last = kept ? &v->damage[kept - 1] : NULL;
		const struct ck_damage *d = &v->damage[i];

		if (last && !strcmp(last->file, d->file) &&
		    last->kind == d->kind && last->code == d->code &&
		    last->off + last->len == d->off) {
			last->nr_blocks += d->nr_blocks;
			last->len += d->len;
		} else {
			v->damage[kept++] = *d;
		}
	}
	v->nr_damage = kept;
}

static int run(struct work *w, struct ck_err *err)
{
	struct ck_hash_in in = {
		.root = w->v->root,
		.file = w->file,
		.nr = w->nr,
		.shift = w->v->m->shift,
		.jobs = w->v->jobs,
		.ctx = w,
		.block = check,
		.tick = tick,
	};
	int ret;

	pthread_mutex_init(&w->lock, NULL);
	ret = ck_hash_run(&in, err);
	pthread_mutex_destroy(&w->lock);
	return ret;
}

/* What a dead mount was editing may hold what nobody sealed. */
static void find_edited(struct ck_verify *v)
{
	const char *file = "";
	bool edited = false;

	for (size_t i = 0; i < v->nr_damage; i++) {
		struct ck_damage *d = &v->damage[i];

		if (strcmp(d->file, file))
			edited = ck_sealed_was_edited(v->root, d->file);
		file = d->file;
		if (edited && d->kind == CK_DAMAGE_CHANGED)
			d->kind = CK_DAMAGE_EDITED;
	}
}

int ck_verify_files(struct ck_verify *v, struct ck_err *err)
{
	struct work w = { .v = v };
	int ret = ck_hash_list(&v->now, v->root, err);

	if (ret)
		return ret;
	v->extra = calloc(v->now.nr + 1, 1);
	w.file = calloc(v->now.nr + 1, sizeof(*w.file));
	w.sealed = calloc(v->now.nr + 1, sizeof(*w.sealed));
	if (!v->extra || !w.file || !w.sealed || match(&w))
		ret = ck_no_memory(err);
	if (!ret)
		ret = run(&w, err);
	if (v->nr_damage)
		qsort(v->damage, v->nr_damage, sizeof(*v->damage), by_place);
	find_edited(v);
	ck_verify_again(v);
	join(v);
	free(w.file);
	free(w.sealed);
	return ret;
}

void ck_verify_free(struct ck_verify *v)
{
	free(v->damage);
	free(v->extra);
	ck_hash_list_free(&v->now);
}
