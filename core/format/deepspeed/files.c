/* SPDX-License-Identifier: Apache-2.0 */
/*
 * files.c - the files of a DeepSpeed checkpoint, by their names
 *
 * The archive in a file keeps the name that the file was saved under.  But
 * torch.save() to a buffer, and the older container, leave no name inside; so
 * a copy of one rank's file in the place of another's fits in every way.  How
 * the tensors shown are cut does not give it away: in stages 1 and 2 two ranks
 * have hardly a parameter in common, and in stage 3 the last has less of each.
 * What is compared is what the files themselves hold, vector by vector.
 */
#include "core/format/deepspeed/deepspeed.h"

#include "core/assemble/pattern.h"
#include "core/base/check.h"
#include "core/container/torch_lost.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define MOST 32 /* tensors of a file that are compared */

/* ---- names ---- */

bool ck_deepspeed_is_name(const char *name, struct deepspeed_file *out)
{
	static const struct ck_pattern t[] = {
		{ "mp_rank_#_model_states.pt", DEEPSPEED_MODEL },
		{ "zero_pp_rank_#_mp_rank_#_model_states.pt",
		  DEEPSPEED_MODEL3 },
		{ "zero_pp_rank_#_mp_rank_#_optim_states.pt", DEEPSPEED_OPTIM },
		{ "bf16_zero_pp_rank_#_mp_rank_#_optim_states.pt",
		  DEEPSPEED_OPTIM },
		{ "fp16_zero_pp_rank_#_mp_rank_#_optim_states.pt",
		  DEEPSPEED_OPTIM },
		{ "layer_#-model_states.pt", DEEPSPEED_LAYER },
		{ "layer_#-model_#-model_states.pt", DEEPSPEED_LAYER },
		{ "layer_#_expert_#_mp_rank_#_model_states.pt",
		  DEEPSPEED_EXPERT },
		{ "expert_#_mp_rank_#_model_states.pt", DEEPSPEED_EXPERT },
		{ "expp_rank_#_mp_rank_#_optim_states.pt",
		  DEEPSPEED_EXPERT_OPTIM },
	};
	struct ck_pattern_found f;

	if (!ck_pattern_find(t, CK_ARRAY_LEN(t), name, &f))
		return false;
	for (unsigned i = 0; i < f.nr; i++)
		if (f.n[i] >= DEEPSPEED_MAX_RANKS || f.to[i] - f.from[i] > 9)
			return false;
	/* the last is mp, and the one before it dp or the layer or expert */
	*out = (struct deepspeed_file){
		.kind = (enum deepspeed_kind)f.kind,
		.mp = (unsigned)f.n[f.nr - 1],
		.dp = f.nr > 1 ? (unsigned)f.n[f.nr - 2] : 0,
		.layer = f.nr > 2 ? (unsigned)f.n[0] : 0,
		.nr = f.nr,
	};
	if (f.kind == DEEPSPEED_LAYER && f.nr == 1) {
		out->dp = out->mp;
		out->mp = 0;
	}
	return true;
}

static int by_rank(const void *pa, const void *pb)
{
	const struct deepspeed_file *a = pa, *b = pb;

	if (a->kind != b->kind)
		return a->kind < b->kind ? -1 : 1;
	if (a->mp != b->mp)
		return a->mp < b->mp ? -1 : 1;
	if (a->dp != b->dp)
		return a->dp < b->dp ? -1 : 1;
	return strcmp(a->name, b->name);
}

int ck_deepspeed_files_list(struct deepspeed_load *ld, struct ck_err *err)
{
	ck_auto_dir_list struct ck_dir_list l = { 0 };
	int ret = ck_dir_list(ld->dir, "", &l, err);

	for (size_t i = 0; i < l.nr && !ret; i++) {
		struct deepspeed_file f = { 0 };

		if (l.v[i].is_dir || !ck_deepspeed_is_name(l.v[i].name, &f))
			continue;
		f.name = ck_arena_fmt(&ld->mem, "%s", l.v[i].name);
		ret = f.name ? ck_vec_put(&ld->files, err, f) :
			       ck_no_memory(err);
	}
	if (!ret && ld->files.nr)
		qsort(ld->files.v, ld->files.nr, sizeof(*ld->files.v), by_rank);
	return ret;
}

const struct deepspeed_file *ck_deepspeed_files_of(
	const struct deepspeed_load *ld, enum deepspeed_kind kind, unsigned mp,
	size_t *nr)
{
	const struct deepspeed_file *first = NULL;

	*nr = 0;
	for (size_t i = 0; i < ld->files.nr; i++) {
		const struct deepspeed_file *f = &ld->files.v[i];

		if (f->kind != kind || f->mp != mp)
			continue;
		if (!first)
			first = f;
		++*nr;
	}
	return first;
}

/* ---- whose it is ---- */

/* The name that it was saved under, if one that DeepSpeed gives: into @text. */
static bool saved_as(const struct ck_torch_open *f, char *text, size_t room,
		     struct deepspeed_file *out)
{
	return ck_torch_save_called(&f->ts, ".pt", text, room) &&
	       ck_deepspeed_is_name(text, out);
}

int ck_deepspeed_open(struct deepspeed_load *ld, struct ck_torch_open *f,
		      const char *name, bool *ok, struct ck_err *err)
{
	struct deepspeed_file is, was;
	char text[128];
	int ret = ck_torch_open(f, ld->dir, ld->b, name, ok, err);

	if (ret || !*ok || !ck_deepspeed_is_name(name, &is) ||
	    !saved_as(f, text, sizeof(text), &was) ||
	    (was.kind == is.kind && was.mp == is.mp && was.dp == is.dp))
		return ret;
	*ok = false;
	return deepspeed_problem(
		ld, CK_ERROR, name, err,
		"it says that it was saved as %s: it is not read", text);
}

int ck_deepspeed_peek(const struct ck_dir *dir, const char *name,
		      struct ck_torch_open *f)
{
	int ret = ck_dir_open(dir, name, &f->s, NULL);

	return ret ? ret : ck_torch_save_open(&f->ts, f->s, NULL);
}

int ck_deepspeed_lost(struct deepspeed_load *ld, const struct ck_torch_open *f,
		      struct ck_err *err)
{
	const struct ck_torch_lost_in lost = { .p = f->ts.pickle,
					       .from = ck_pickle_root(
						       f->ts.pickle),
					       .b = ld->b,
					       .file = f->s->name,
					       .any = true };

	return ck_torch_lost_report(&lost, err);
}

int ck_deepspeed_compare_one(struct deepspeed_load *ld, const char *unit,
			     uint32_t nr, const struct ck_extent *x,
			     struct ck_err *err)
{
	struct ck_stretch s = { .unit = unit,
				.src = x->src,
				.nr = nr,
				.off = x->off,
				.elem = ck_dtype_info(x->dtype)->size };

	return ck_extent_is_dense(x) && ck_extent_bytes(x, &s.len) ?
		       ck_builder_stretch(ld->b, &s, err) :
		       0;
}

struct comparing {
	struct deepspeed_load *ld;
	struct ck_torch_open *f;
	uint32_t nr;
};

/* 1: enough of them were seen. */
static int compare_leaf(void *ctx, const struct ck_torch_leaf *leaf,
			struct ck_err *err)
{
	struct comparing *c = ctx;
	struct ck_torch_place at;
	int ret;

	if (!ck_torch_is_rebuild(c->f->ts.pickle, leaf->value))
		return 0;
	ret = ck_torch_place(c->f, leaf->value, &at, NULL);
	if (ret)
		return ret == -ENOMEM ? ck_no_memory(err) : 0;
	ret = ck_deepspeed_compare_one(c->ld, c->f->s->name, c->nr++, &at.x,
				       err);
	return ret ? ret : c->nr >= MOST;
}

int ck_deepspeed_compare(struct deepspeed_load *ld, struct ck_torch_open *f,
			 ck_pv from, struct ck_err *err)
{
	struct comparing c = { .ld = ld, .f = f };
	struct deepspeed_file was;
	char text[128];
	int ret;

	if (saved_as(f, text, sizeof(text), &was))
		return 0;
	ret = ck_torch_walk(f->ts.pickle, from, compare_leaf, &c, err);
	return ret < 0 ? ret : 0;
}

int ck_deepspeed_open_all(struct deepspeed_load *ld, struct ck_torch_open *f,
			  const char *name, bool *ok, struct ck_err *err)
{
	int ret = ck_deepspeed_open(ld, f, name, ok, err);

	if (ret || !*ok)
		return ret;
	ret = ck_deepspeed_compare(ld, f, ck_pickle_root(f->ts.pickle), err);
	return ret ? ret : ck_deepspeed_lost(ld, f, err);
}

/* ---- what is in it ---- */

void ck_deepspeed_tensors(struct deepspeed_tensors *t,
			  const struct ck_pickle *p, ck_pv dict)
{
	ck_piter_init_pairs(&t->it, p, dict);
}

bool ck_deepspeed_next(struct deepspeed_tensors *t)
{
	const struct ck_pickle *p = t->it.p;
	ck_pv key;

	while (ck_piter_next2(&t->it, &key, &t->v))
		if (ck_pv_key_text(p, key, t->number, &t->name, &t->len) &&
		    ck_torch_is_rebuild(p, t->v))
			return true;
	return false;
}
