/* SPDX-License-Identifier: Apache-2.0 */
/* hash_manifest.c - all files of a directory into a manifest being made */
#include "core/base/auto.h"
#include "core/manifest/hash.h"
#include "core/manifest/manifest_priv.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

static int keep(void *ctx, size_t i, uint64_t k, uint64_t digest,
		const struct ck_err *err)
{
	struct ck_hash_all *a = ctx;

	if (!err) {
		a->block[a->first[i] + k] = digest;
		return 0;
	}
	pthread_mutex_lock(&a->lock);
	if (!a->why.code)
		a->why = *err;
	pthread_mutex_unlock(&a->lock);
	return -err->code;
}

static int by_name(const void *name, const void *file)
{
	return strcmp(name, ((const struct ck_hash_known_file *)file)->name);
}

static void take_known(struct ck_hash_file *f, uint64_t *block, unsigned shift,
		       const struct ck_hash_known *known)
{
	const struct ck_hash_known_file *k =
		known && known->nr_files && shift == CK_MANIFEST_SHIFT ?
			bsearch(f->name, known->file, known->nr_files,
				sizeof(*k), by_name) :
			NULL;
	struct ck_id was;

	if (!k)
		return;
	was = k->id;
	was.dev = f->id.dev;
	f->known = ck_id_compare(&was, &f->id) == CK_ID_SAME;
	if (f->known)
		memcpy(block, k->block,
		       ck_mf_nr_blocks(f->size, shift) * sizeof(*block));
}

static int prepare(struct ck_hash_all *a, unsigned shift,
		   const struct ck_hash_known *known, struct ck_err *err)
{
	const struct ck_hash_list *l = &a->list;
	uint64_t nr = 0;

	a->first = calloc(l->nr + 1, sizeof(*a->first));
	if (!a->first)
		return ck_no_memory(err);
	for (size_t i = 0; i < l->nr; i++) {
		a->first[i] = nr;
		nr += ck_mf_nr_blocks(l->v[i].size, shift);
	}
	a->block = calloc(nr + 1, sizeof(*a->block));
	if (!a->block)
		return ck_no_memory(err);
	for (size_t i = 0; i < l->nr; i++) {
		take_known(&l->v[i], a->block + a->first[i], shift, known);
		a->total += l->v[i].known ? 0 : l->v[i].size;
	}
	return 0;
}

int ck_hash_all_begin(struct ck_hash_all *a, const struct ck_root *root,
		      unsigned shift, const struct ck_hash_known *known,
		      struct ck_err *err)
{
	int ret;

	*a = (struct ck_hash_all){ 0 };
	pthread_mutex_init(&a->lock, NULL);
	ret = ck_hash_list(&a->list, root, err);
	if (!ret)
		ret = prepare(a, shift, known, err);
	a->in = (struct ck_hash_in){
		.root = root,
		.file = a->list.v,
		.nr = a->list.nr,
		.shift = shift,
		.ctx = a,
		.block = keep,
	};
	return ret;
}

void ck_hash_all_free(struct ck_hash_all *a)
{
	ck_hash_list_free(&a->list);
	free(a->first);
	free(a->block);
	pthread_mutex_destroy(&a->lock);
}

/* What was hashed is only worth something if it stood still. */
static int unchanged(const struct ck_hash_list *was, const struct ck_root *root,
		     struct ck_err *err)
{
	ck_auto_hash_list struct ck_hash_list now = { 0 };
	int ret = ck_hash_list(&now, root, err);

	for (size_t i = 0; !ret && i < was->nr; i++) {
		const struct ck_hash_file *a = &was->v[i];
		const struct ck_hash_file *b = i < now.nr ? &now.v[i] : NULL;

		if (!b || strcmp(a->name, b->name) || a->size != b->size ||
		    ck_id_compare(&a->id, &b->id) != CK_ID_SAME)
			return ck_fail(err, EBUSY,
				       "%s: changed while it was read",
				       a->name);
	}
	if (!ret && now.nr > was->nr)
		return ck_fail(err, EBUSY, "files were added meanwhile");
	return ret;
}

static int put_all(const struct ck_hash_all *a, struct ck_manifest_new *n,
		   struct ck_err *err)
{
	int ret = 0;

	for (size_t i = 0; !ret && i < a->list.nr; i++)
		ret = ck_manifest_put_file(n, a->list.v[i].name,
					   a->list.v[i].size,
					   a->block + a->first[i], err);
	return ret;
}

int ck_hash_all_end(struct ck_hash_all *a, int ret, struct ck_manifest_new *n,
		    struct ck_err *err)
{
	if (ret && a->why.code)
		return ck_fail(err, a->why.code, "%s", a->why.msg);
	if (!ret)
		ret = unchanged(&a->list, a->in.root, err);
	return ret ? ret : put_all(a, n, err);
}

struct job {
	struct ck_hash_all all; /* first: what the calls are given */
	void (*tick)(void *ctx, uint64_t bytes, uint64_t total);
	void *ctx;
};

static void tick(void *ctx, uint64_t bytes)
{
	struct job *j = ctx;

	j->tick(j->ctx, bytes, j->all.total);
}

int ck_hash_manifest(struct ck_manifest_new *n, const struct ck_root *root,
		     const struct ck_hash_known *known, unsigned jobs,
		     void (*tick_)(void *ctx, uint64_t bytes, uint64_t total),
		     void *ctx, struct ck_err *err)
{
	struct job j = { .tick = tick_, .ctx = ctx };
	int ret = ck_hash_all_begin(&j.all, root, ck_manifest_new_shift(n),
				    known, err);
	struct ck_hash_in in = j.all.in;

	in.jobs = jobs;
	if (!ret) {
		if (tick_)
			in.tick = tick;
		ret = ck_hash_run(&in, err);
		ret = ck_hash_all_end(&j.all, ret, n, err);
	}
	ck_hash_all_free(&j.all);
	return ret;
}
