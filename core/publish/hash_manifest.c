/* SPDX-License-Identifier: Apache-2.0 */
/* hash_manifest.c - all files of a directory into a manifest being made */
#include "core/base/auto.h"
#include "core/publish/hash.h"
#include "core/publish/manifest_priv.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>

struct job {
	const struct ck_hash_list *list;
	uint64_t *block; /* of all files */
	uint64_t *first; /* of each file, into block */
	uint64_t total;
	void (*tick)(void *ctx, uint64_t bytes, uint64_t total);
	void *ctx;
	pthread_mutex_t lock;
	struct ck_err why; /* the first failure */
};

static int keep(void *ctx, size_t i, uint64_t k, uint64_t digest,
		const struct ck_err *err)
{
	struct job *j = ctx;

	if (!err) {
		j->block[j->first[i] + k] = digest;
		return 0;
	}
	pthread_mutex_lock(&j->lock);
	if (!j->why.code)
		j->why = *err;
	pthread_mutex_unlock(&j->lock);
	return -err->code;
}

static void tick(void *ctx, uint64_t bytes)
{
	struct job *j = ctx;

	j->tick(j->ctx, bytes, j->total);
}

static int prepare(struct job *j, const struct ck_hash_list *l, unsigned shift,
		   struct ck_err *err)
{
	uint64_t nr = 0;

	j->list = l;
	j->first = calloc(l->nr + 1, sizeof(*j->first));
	if (!j->first)
		return ck_fail(err, ENOMEM, "no memory");
	for (size_t i = 0; i < l->nr; i++) {
		j->first[i] = nr;
		nr += ck_mf_nr_blocks(l->v[i].size, shift);
		j->total += l->v[i].size;
	}
	j->block = calloc(nr + 1, sizeof(*j->block));
	return j->block ? 0 : ck_fail(err, ENOMEM, "no memory");
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
		    a->mtime_ns != b->mtime_ns || a->ino != b->ino)
			return ck_fail(err, EBUSY,
				       "%s: changed while it was read",
				       a->name);
	}
	if (!ret && now.nr > was->nr)
		return ck_fail(err, EBUSY, "files were added meanwhile");
	return ret;
}

static int hash_all(struct job *j, const struct ck_root *root, unsigned jobs,
		    unsigned shift, struct ck_err *err)
{
	struct ck_hash_in in = {
		.root = root,
		.file = j->list->v,
		.nr = j->list->nr,
		.shift = shift,
		.jobs = jobs,
		.ctx = j,
		.block = keep,
		.tick = j->tick ? tick : NULL,
	};
	int ret;

	pthread_mutex_init(&j->lock, NULL);
	ret = ck_hash_run(&in, err);
	pthread_mutex_destroy(&j->lock);
	if (ret && j->why.code && err)
		*err = j->why;
	return ret;
}

static int put_all(const struct job *j, struct ck_manifest_new *n,
		   struct ck_err *err)
{
	int ret = 0;

	for (size_t i = 0; !ret && i < j->list->nr; i++)
		ret = ck_manifest_put_file(n, j->list->v[i].name,
					   j->list->v[i].size,
					   j->block + j->first[i], err);
	return ret;
}

int ck_hash_manifest(struct ck_manifest_new *n, const struct ck_root *root,
		     unsigned jobs,
		     void (*tick_)(void *ctx, uint64_t bytes, uint64_t total),
		     void *ctx, struct ck_err *err)
{
	ck_auto_hash_list struct ck_hash_list list = { 0 };
	struct job j = { .tick = tick_, .ctx = ctx };
	unsigned shift = ck_manifest_new_shift(n);
	int ret = ck_hash_list(&list, root, err);

	if (!ret)
		ret = prepare(&j, &list, shift, err);
	if (!ret)
		ret = hash_all(&j, root, jobs, shift, err);
	if (!ret)
		ret = unchanged(&list, root, err);
	if (!ret)
		ret = put_all(&j, n, err);
	free(j.first);
	free(j.block);
	return ret;
}
