/* SPDX-License-Identifier: Apache-2.0 */
/*
 * rest.c - what is in the rank files beside the weights
 *
 * Optimizer states are known by number only, or lie in flat vectors, and
 * Megatron-LM itself never joins them: they are shown as each rank stores
 * them, as KEY.RANK.REST.
 */
#include "core/base/auto.h"
#include "core/base/check.h"
#include "core/format/megatron/megatron.h"
#include "core/container/torch_lost.h"
#include "core/container/torch_walk.h"

#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <string.h>

struct rest {
	struct megatron_file *f;
	struct ck_torch_open *of;
	const char *top; /* put before the path; NULL: nothing */
	bool apart; /* the file is no rank's with weights */
	struct ck_str name;
	struct ck_path_part path[CK_TORCH_MAX_DEPTH + 3];
	unsigned nr;
};

static void add_part(struct rest *r, const char *key, size_t len, int64_t index)
{
	if (r->nr)
		ck_str_puts(&r->name, ".");
	if (index >= 0)
		ck_str_fmt(&r->name, "%" PRId64, index);
	else
		ck_str_add(&r->name, key, len);
	r->path[r->nr++] = (struct ck_path_part){ key, len, index };
}

/* KEY.RANK.REST, so that what belongs to the trainer has its own first key. */
static void make_name(struct rest *r, const struct ck_torch_leaf *leaf)
{
	const char *dir = r->f->rank->dir;
	unsigned i = 0;

	r->name.len = 0;
	r->nr = 0;
	if (r->top)
		add_part(r, r->top, strlen(r->top), -1);
	else if (leaf->depth)
		add_part(r, leaf->path[0].key, leaf->path[0].key_len,
			 leaf->path[i++].index);
	if (r->f->ld->ranks.nr > 1 || r->apart)
		add_part(r, dir, strlen(dir), -1);
	if (r->top)
		add_part(r, MEGATRON_OPTIM, sizeof(MEGATRON_OPTIM) - 4, -1);
	for (; i < leaf->depth; i++)
		add_part(r, leaf->path[i].key, leaf->path[i].key_len,
			 leaf->path[i].index);
}

static int note_optim(struct rest *r, struct ck_err *err)
{
	struct megatron_load *ld = r->f->ld;

	if (ld->raw_optim)
		return 0;
	ld->raw_optim = true;
	return ck_builder_report_file(
		ld->b, CK_NOTE, r->of->s->name, err,
		"optimizer states do not say which weights they are of: they are shown as each rank stores them, under optimizer");
}

static int add_leaf(struct rest *r, const struct ck_torch_leaf *leaf,
		    struct ck_err *err)
{
	bool tensor = ck_torch_is_rebuild(r->of->ts.pickle, leaf->value);
	int ret = 0;

	make_name(r, leaf);
	if (tensor && r->name.len > 10 && !memcmp(r->name.v, "optimizer.", 10))
		ret = note_optim(r, err);
	return ret ? ret :
		     ck_torch_leaf_add(r->of, r->f->ld->b, leaf->value,
				       &r->name, r->path, tensor ? r->nr : 0,
				       err);
}

/* What leads to a leaf in the file of the distributed optimizer. */
struct below {
	struct rest *r;
	struct ck_path_part at[2];
	unsigned nr;
};

static int add_below(void *ctx, const struct ck_torch_leaf *leaf,
		     struct ck_err *err)
{
	struct below *w = ctx;
	struct ck_torch_leaf full = *leaf;

	if (!ck_torch_is_rebuild(w->r->of->ts.pickle, leaf->value))
		return 0;
	if (leaf->depth + w->nr > CK_TORCH_MAX_DEPTH)
		return ck_fail(err, E2BIG, "%s: nested more than %d deep",
			       w->r->of->s->name, CK_TORCH_MAX_DEPTH);
	memcpy(full.path, w->at, w->nr * sizeof(*w->at));
	memcpy(full.path + w->nr, leaf->path,
	       leaf->depth * sizeof(*leaf->path));
	full.depth += w->nr;
	return add_leaf(w->r, &full, err);
}

static int walk_below(struct below *w, ck_pv v, struct ck_err *err)
{
	const struct ck_torch_lost_in lost = { .p = w->r->of->ts.pickle,
					       .from = v,
					       .b = w->r->f->ld->b,
					       .file = w->r->of->s->name,
					       .any = true };
	int ret = ck_torch_walk(lost.p, v, add_below, w, err);

	return ret ? ret : ck_torch_lost_report(&lost, err);
}

/* {0: {(dtype, dtype): {param: vector, ...}}}: pairs of dtypes are numbered. */
static int add_buffers(struct rest *r, ck_pv buffer, int64_t nr,
		       struct ck_err *err)
{
	struct below w = { .r = r, .at = { { .index = nr } }, .nr = 2 };
	struct ck_piter kinds;
	ck_pv key, state;
	int ret = 0;

	ck_piter_init_pairs(&kinds, r->of->ts.pickle, buffer);
	for (; !ret && ck_piter_next2(&kinds, &key, &state); w.at[1].index++)
		ret = walk_below(&w, state, err);
	return ret;
}

/* Sizes of buffers and the like, under texts; no tensors that are known of. */
static int add_other(struct rest *r, ck_pv key, ck_pv v, struct ck_err *err)
{
	struct below w = { .r = r, .at = { { .index = -1 } }, .nr = 1 };

	if (ck_pv_str(r->of->ts.pickle, key, &w.at->key, &w.at->key_len))
		return walk_below(&w, v, err);
	return 0;
}

static bool has_buffers(const struct ck_pickle *p, ck_pv root)
{
	struct ck_piter it;
	ck_pv key, v;
	int64_t n;

	ck_piter_init_pairs(&it, p, root);
	while (ck_piter_next2(&it, &key, &v))
		if (ck_pv_int(p, key, &n) && n >= 0)
			return true;
	return false;
}

/* The distributed optimizer's file, which lies beside the first. */
static int add_optim(struct megatron_file *f, struct ck_err *err)
{
	ck_auto_torch_open struct ck_torch_open of = { 0 };
	struct rest r = { .f = f, .of = &of, .top = "optimizer" };
	const char *file = f->rank->optim;
	struct ck_piter it;
	ck_pv root, key, v;
	int64_t n;
	bool ok;
	int ret;

	if (!file)
		return 0;
	f->ld->any_optim = true;
	ret = ck_torch_open(&of, f->ld->dir, f->ld->b, file, &ok, err);
	if (ret || !ok)
		return ret;
	root = ck_pickle_root(of.ts.pickle);
	if (!has_buffers(of.ts.pickle, root))
		return ck_builder_report_file(
			f->ld->b, CK_ERROR, file, err,
			"it has no buffers of a distributed "
			"optimizer: it is not read");
	ck_piter_init_pairs(&it, of.ts.pickle, root);
	while (!ret && ck_piter_next2(&it, &key, &v))
		ret = ck_pv_int(of.ts.pickle, key, &n) && n >= 0 ?
			      add_buffers(&r, v, n, err) :
			      add_other(&r, key, v, err);
	ck_str_free(&r.name);
	return ret;
}

/*
 * Whether a leaf is of the weights, and which chunk's; CK_NONE: of none that
 * counts.
 */
static bool is_weights(const struct megatron_file *f,
		       const struct ck_torch_leaf *leaf, unsigned *chunk)
{
	static const char model[] = "model";
	const struct ck_path_part *key = &leaf->path[0];
	size_t at = sizeof(model) - 1;
	ck_pv v;

	if (!leaf->depth || key->index >= 0 || key->key_len < at ||
	    memcmp(key->key, model, at) != 0)
		return false;
	*chunk = 0;
	for (; at < key->key_len; at++) {
		if (!isdigit((unsigned char)key->key[at]))
			return false;
		if (*chunk < MEGATRON_MAX_CHUNKS)
			*chunk = 10 * *chunk + (unsigned)(key->key[at] - '0');
	}
	at = sizeof(model);
	if (*chunk >= f->rank->nr_chunks ||
	    (key->key_len > at && key->key[at - 1] == '0') ||
	    (key->key_len == at && !*chunk &&
	     ck_pv_key(f->f.ts.pickle, ck_pickle_root(f->f.ts.pickle), model,
		       &v)))
		*chunk = CK_NONE;
	return true;
}

static int add_any(void *ctx, const struct ck_torch_leaf *leaf,
		   struct ck_err *err)
{
	struct rest *r = ctx;
	unsigned chunk;

	if (r->apart || !is_weights(r->f, leaf, &chunk))
		return add_leaf(r, leaf, err);
	return chunk == CK_NONE ? 0 :
				  ck_megatron_weight(r->f, chunk, leaf, err);
}

int ck_megatron_file_read(struct megatron_load *ld, struct megatron_rank *rank,
			  bool apart, struct ck_err *err)
{
	struct megatron_file f = { .ld = ld, .rank = rank };
	struct rest r = { .f = &f, .of = &f.f, .apart = apart };
	int ret = ck_torch_open(&f.f, ld->dir, ld->b, rank->file, &rank->usable,
				err);

	if (!ret && rank->usable) {
		const struct ck_torch_lost_in lost = {
			.p = f.f.ts.pickle,
			.from = ck_pickle_root(f.f.ts.pickle),
			.b = ld->b,
			.file = rank->file,
			.any = true,
		};

		ret = apart ? 0 : ck_megatron_file_begin(&f, err);
		if (!ret)
			ret = ck_torch_walk(lost.p, lost.from, add_any, &r,
					    err);
		if (!ret && !apart)
			ret = ck_asm_join(&f.a, err);
		if (!ret)
			ret = ck_torch_lost_report(&lost, err);
		if (!ret && !apart)
			ret = add_optim(&f, err);
	}
	ck_str_free(&r.name);
	ck_str_free(&f.name.full);
	ck_asm_free(&f.a);
	ck_torch_open_close(&f.f);
	return ret;
}
