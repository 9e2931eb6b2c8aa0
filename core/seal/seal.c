/* SPDX-License-Identifier: Apache-2.0 */
/*
 * seal.c - digests of files and of tensors as they are shown, in one go
 *
 * Stretches of all files and whole tensors are put in the order in which a pass
 * over all files at the same pace would meet their ends, and threads take them
 * in that order.
 */
#include "core/seal/seal.h"

#include "core/base/auto.h"
#include "core/base/check.h"
#include "core/base/search.h"
#include "core/seal/crcs.h"
#include "core/manifest/hash.h"
#include "core/base/pool.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#define STRETCH (UINT64_C(4) << 20) /* of a file */

struct item {
	double end; /* which part of its file has been read by then, 0 to 1 */
	size_t nr; /* of the file, or the tensor */
	uint64_t first, last; /* blocks [first, last); none: a tensor */
};

struct job {
	struct ck_hash_all all; /* first: what the calls are given */
	struct ck_seal_in *in;
	struct ck_crcs crcs;
	struct item *item;
	size_t nr_items;
	struct ck_digest *digest; /* of each tensor */
	unsigned char *known;
	uint64_t total;
	_Atomic size_t next;
	_Atomic uint64_t bytes;
	_Atomic int stop; /* -errno */
};

/* ---- in which order ---- */

static int by_end(const void *a, const void *b)
{
	const struct item *x = a, *y = b;

	if (x->end != y->end)
		return x->end < y->end ? -1 : 1;
	if (!x->last != !y->last)
		return x->last ? -1 : 1; /* files before tensors */
	return (x->nr > y->nr) - (x->nr < y->nr);
}

/* About where its last piece ends; only the order depends on it. */
static double end_of(const struct ck_catalog *img, const struct ck_tensor *t)
{
	double end = 0;

	for (uint32_t i = 0; i < t->nr_all; i++) {
		const struct ck_chunk *c = &img->chunks[t->first + i];
		const struct ck_src *src = &img->srcs[c->src];
		double at = (double)c->off + (double)t->size / t->nr_all;

		if (src->kind != CK_SRC_FILE || !src->id.size)
			return 1;
		end = CK_MAX(end, at / (double)src->id.size);
	}
	return CK_MIN(end, 1.0);
}

static size_t add_file(struct item *item, const struct ck_hash_in *in, size_t i)
{
	uint64_t nr = CK_DIV_UP(in->file[i].size, UINT64_C(1) << in->shift);
	uint64_t most = CK_MAX(STRETCH >> in->shift, 1);
	size_t n = 0;

	if (in->file[i].known)
		return 0;
	for (uint64_t k = 0; k < nr; k += most, n++) {
		uint64_t last = CK_MIN(nr, k + most);

		if (!item)
			continue;
		item[n] = (struct item){ .end = (double)last / (double)nr,
					 .nr = i,
					 .first = k,
					 .last = last };
	}
	return n;
}

static int make_items(struct job *j, struct ck_err *err)
{
	const struct ck_catalog *img = ck_ckpt_catalog(j->in->ck);
	const struct ck_hash_in *in = &j->all.in;
	size_t n = img->nr_tensors;

	for (size_t i = 0; i < in->nr; i++)
		n += add_file(NULL, in, i);
	j->item = calloc(n + 1, sizeof(*j->item));
	if (!j->item)
		return ck_no_memory(err);
	for (size_t i = 0; i < in->nr; i++)
		j->nr_items += add_file(j->item + j->nr_items, in, i);
	for (uint32_t i = 0; i < img->nr_tensors; i++)
		if (!j->known[i])
			j->item[j->nr_items++] = (struct item){
				.end = end_of(img, &img->tensors[i]), .nr = i
			};
	if (j->nr_items)
		qsort(j->item, j->nr_items, sizeof(*j->item), by_end);
	return 0;
}

/* ---- of what need not be read ---- */

static int by_name(const void *name, const void *tensor)
{
	return strcmp(name,
		      ((const struct ck_hash_known_tensor *)tensor)->name);
}

static bool is_known_file(const struct job *j, const char *name)
{
	size_t at = CK_FIRST(i, 0, j->all.list.nr,
			     strcmp(j->all.list.v[i].name, name) >= 0);

	return at < j->all.list.nr && j->all.list.v[at].known &&
	       !strcmp(j->all.list.v[at].name, name);
}

/* Where all of it is one chunk of a file that is as it was. */
static bool know(struct job *j, uint32_t i)
{
	const struct ck_catalog *img = ck_ckpt_catalog(j->in->ck);
	const struct ck_hash_known *known = j->in->known;
	const struct ck_tensor *t = &img->tensors[i];
	const struct ck_hash_known_tensor *k = NULL;
	size_t len;

	ck_catalog_str(img, img->trees[t->tree], &len);
	if (known && known->nr_tensors && !len && t->nr_all == 1)
		k = bsearch(ck_catalog_str(img, t->name, NULL), known->tensor,
			    known->nr_tensors, sizeof(*k), by_name);
	if (!k || k->size != t->size || !is_known_file(j, k->file) ||
	    strcmp(k->file,
		   ck_catalog_str(img,
				  img->srcs[img->chunks[t->first].src].name,
				  NULL)) != 0)
		return false;
	j->digest[i] = k->digest;
	return true;
}

/* ---- in threads ---- */

static void work(void *ctx)
{
	struct job *j = ctx;
	struct ck_hasher *h = ck_hasher_new(&j->all.in, &j->bytes);
	size_t i;

	if (!h)
		j->stop = -ENOMEM;
	while (!j->stop && (i = j->next++) < j->nr_items) {
		const struct item *it = &j->item[i];
		struct ck_err err;
		int stop = 0;

		if (it->last)
			stop = ck_hasher_run(h, it->nr, it->first, it->last);
		else
			j->known[it->nr] = !ck_ckpt_hash(
				j->in->ck, (uint32_t)it->nr, &j->digest[it->nr],
				&j->bytes, &err);
		if (stop)
			j->stop = stop;
	}
	ck_hasher_free(h);
}

static void tick(void *ctx)
{
	struct job *j = ctx;

	if (j->in->tick)
		j->in->tick(j->in->ctx, j->bytes, j->total);
}

static int put_all(struct job *j, struct ck_manifest_new *n, struct ck_err *err)
{
	const struct ck_catalog *img = ck_ckpt_catalog(j->in->ck);
	int ret = 0;

	for (uint32_t i = 0; !ret && i < img->nr_tensors; i++) {
		const struct ck_tensor *t = &img->tensors[i];
		size_t tree_len, len;
		const char *tree =
			ck_catalog_str(img, img->trees[t->tree], &tree_len);
		const char *name = ck_catalog_str(img, t->name, &len);

		j->in->unknown += !j->known[i];
		ret = ck_manifest_put_tensor(
			n, tree, tree_len, name, len, t->size,
			j->known[i] ? &j->digest[i] : NULL, err);
	}
	return ret;
}

static void pass(void *ctx, size_t i, uint64_t at, const void *bytes,
		 size_t len)
{
	struct job *j = ctx;

	ck_crcs_pass(&j->crcs, i, at, bytes, len);
}

static int find_crcs(struct job *j, struct ck_err *err)
{
	if (!j->in->crcs)
		return 0;
	j->all.in.pass = pass;
	return ck_crcs_find(&j->crcs, j->in->ck, &j->all.list, j->all.in.shift,
			    err);
}

static int prepare(struct job *j, struct ck_err *err)
{
	const struct ck_catalog *img = ck_ckpt_catalog(j->in->ck);

	j->total = j->all.total;
	j->digest = calloc(img->nr_tensors + 1, sizeof(*j->digest));
	j->known = calloc(img->nr_tensors + 1, 1);
	if (!j->digest || !j->known)
		return ck_no_memory(err);
	for (uint32_t i = 0; i < img->nr_tensors; i++) {
		j->known[i] = know(j, i);
		j->total += j->known[i] ? 0 : img->tensors[i].size;
	}
	return make_items(j, err);
}

int ck_seal(struct ck_seal_in *in, struct ck_manifest_new *n,
	    struct ck_err *err)
{
	struct job j = { .in = in };
	const struct ck_pool_in pool = {
		.jobs = in->jobs, .ctx = &j, .work = work, .tick = tick
	};
	int ret = ck_hash_all_begin(&j.all, ck_ckpt_root(in->ck),
				    ck_manifest_new_shift(n), in->known, err);

	in->unknown = 0;
	if (!ret)
		ret = find_crcs(&j, err);
	if (!ret)
		ret = prepare(&j, err);
	if (!ret)
		ck_pool_run(&pool);
	if (!ret && j.stop)
		ret = ck_fail(err, -j.stop, "%s", strerror(-j.stop));
	if (!ret || j.stop)
		ret = ck_hash_all_end(&j.all, ret, n, err);
	if (!ret)
		ret = ck_crcs_check(&j.crcs, err);
	if (!ret)
		ret = put_all(&j, n, err);
	ck_hash_all_free(&j.all);
	ck_crcs_free(&j.crcs);
	free(j.item);
	free(j.digest);
	free(j.known);
	return ret;
}
