/* SPDX-License-Identifier: Apache-2.0 */
/*
 * spec_words.c - a mesh in words
 *
 * Ranks count pipeline stages first, then the dimN= in the order given, tensor
 * parallelism last: rank = (stage x dims + place) x tp + t, whatever the order
 * of the words.  A tensor is cut over tp first, and what that leaves over the
 * dimN=, as FSDP over tensor-parallel layers does.
 */
#include "core/reshard/spec.h"

#include "core/base/auto.h"
#include "core/base/check.h"
#include "core/base/match.h"
#include "core/base/number.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define MAX_DIMS 8
#define MAX_STAGES 4096

struct words {
	struct ck_reshard_spec base;
	uint32_t tp; /* 0: not said, as layers.pp */
	unsigned nr_dims;
	struct {
		unsigned dim;
		uint32_t size;
	} dim[MAX_DIMS];
	uint64_t *given; /* layers of each stage */
	unsigned nr_given;
	struct ck_reshard_layers layers;
	struct ck_reshard_owners owners;
	char *rules_name; /* NULL: not said */
	struct ck_reshard_rules rules;
	bool ruled; /* @rules say how to cut, not the source */
	struct ck_reshard_heads heads;
	unsigned max_rank; /* dimensions that some tensor has */
	/* the source was cut by rows alone, as FSDP does: the rules instead */
	const char *by_rows;
};

/* ---- reading ---- */

static bool number(const char *s, size_t len, uint64_t max, uint64_t *out)
{
	*out = 0;
	if (len > 1 && s[0] == '0') /* two names of one folder */
		return false;
	return ck_decimal(s, len, max, out);
}

static int take_layers(struct words *w, const char *s, size_t len,
		       struct ck_err *err)
{
	size_t from = 0;

	if (w->given)
		return ck_fail(err, EINVAL, "layers= is given twice");
	w->given = calloc(len / 2 + 1, sizeof(*w->given));
	if (!w->given)
		return ck_no_memory(err);
	for (size_t i = 0; i <= len; i++) {
		if (i < len && s[i] != '+')
			continue;
		if (!number(s + from, i - from, UINT32_MAX,
			    &w->given[w->nr_given++]))
			return ck_fail(err, EINVAL,
				       "layers=: expected N+N+..., one a "
				       "stage");
		from = i + 1;
	}
	return 0;
}

static int take_dim(struct words *w, uint64_t dim, uint64_t size,
		    struct ck_err *err)
{
	for (unsigned i = 0; i < w->nr_dims; i++)
		if (w->dim[i].dim == dim)
			return ck_fail(err, EINVAL,
				       "dim%" PRIu64 "= is given twice", dim);
	if (w->nr_dims == MAX_DIMS)
		return ck_fail(err, EINVAL, "over %d dimensions", MAX_DIMS);
	w->dim[w->nr_dims].dim = (unsigned)dim;
	w->dim[w->nr_dims++].size = (uint32_t)size;
	return 0;
}

static int take_text(char **to, const char *name, const char *s, size_t len,
		     struct ck_err *err)
{
	if (*to || !len)
		return ck_fail(err, EINVAL,
			       *to ? "%s= is given twice" :
				     "%s=: expected a word",
			       name);
	*to = strndup(s, len);
	return *to ? 0 : ck_no_memory(err);
}

static int take_size(uint32_t *to, const char *name, uint64_t n,
		     struct ck_err *err)
{
	if (*to)
		return ck_fail(err, EINVAL, "%s= is given twice", name);
	*to = (uint32_t)n;
	return 0;
}

static int take_word(struct words *w, const char *s, size_t len,
		     struct ck_err *err)
{
	const char *eq = memchr(s, '=', len);
	size_t key = eq ? (size_t)(eq - s) : 0;
	const char *value = s + key + 1;
	uint64_t n, dim;

	if (!key)
		return ck_fail(err, EINVAL,
			       "expected dimN=K, tp=K, pp=K, layers=N+N, "
			       "rules=NAME, if=A+B or groups=N");
	if (ck_text_is(s, key, "layers"))
		return take_layers(w, value, len - key - 1, err);
	if (ck_text_is(s, key, "rules"))
		return take_text(&w->rules_name, "rules", value, len - key - 1,
				 err);
	if (ck_text_is(s, key, "if")) {
		w->rules.asked = true;
		return take_text(&w->rules.truths, "if", value, len - key - 1,
				 err);
	}
	if (!number(value, len - key - 1, CK_RESHARD_MAX_RANKS, &n) || !n)
		return ck_fail(err, EINVAL,
			       "expected numbers from 1 to %d, without zeros "
			       "before them",
			       CK_RESHARD_MAX_RANKS);
	if (ck_text_is(s, key, "tp"))
		return take_size(&w->tp, "tp", n, err);
	if (ck_text_is(s, key, "pp"))
		return take_size(&w->layers.pp, "pp", n, err);
	if (ck_text_is(s, key, "groups"))
		return take_size(&w->rules.groups, "groups", n, err);
	if (key > 3 && !memcmp(s, "dim", 3) &&
	    number(s + 3, key - 3, CK_MAX_RANK - 1, &dim))
		return take_dim(w, dim, n, err);
	return ck_fail(err, EINVAL,
		       "expected dimN=K, tp=K, pp=K, layers=N+N, rules=NAME, "
		       "if=A+B or groups=N");
}

/* ---- cutting ---- */

static uint32_t owner_of(const struct words *w, uint32_t tensor)
{
	return w->owners.of[tensor - w->owners.first];
}

/* How many dimensions of @tensor are layers, and none of one layer's. */
static unsigned stacked(const struct words *w, const struct ck_catalog *img,
			uint32_t tensor)
{
	size_t len;
	const char *name = ck_catalog_str(img, img->tensors[tensor].name, &len);

	return ck_reshard_is_stacked(&w->layers, name, len);
}

/*
 * Whether any is split; and whether all are by rows, matrices and what has but
 * one dimension: no tensor parallelism cuts norms.
 */
static bool is_split(struct words *w, const struct ck_reshard_in *in,
		     const char *rules)
{
	bool split = false, other = false, vectors = false, matrices = false;

	for (uint32_t i = 0; i < in->nr && !(split && other); i++) {
		struct ck_reshard_split how;
		uint32_t t = owner_of(w, in->first + i);
		unsigned rank = in->img->tensors[t].rank;

		ck_reshard_split_of(in->img, t, stacked(w, in->img, t), &how);
		split |= how.how != CK_RESHARD_WHOLE;
		other |= rank && (how.how != CK_RESHARD_SPLIT || how.dim ||
				  how.nr_blocks);
		vectors |= rank == 1;
		matrices |= rank > 1;
	}
	if (!other && vectors && matrices)
		w->by_rows = rules;
	return split;
}

/* Where nothing is split, the built-in rules have to know every name. */
static int fall_back(struct words *w, const struct ck_reshard_in *in,
		     struct ck_err *err)
{
	struct ck_reshard_in anybodys = *in;
	const char *rules;
	bool split;
	int ret = ck_reshard_rules_for(in, &rules, err);

	if (ret)
		return ret;
	split = is_split(w, in, rules);
	anybodys.nr = 0;
	if (split)
		ret = ck_reshard_rules_for(&anybodys, &rules, err);
	if (!ret)
		ret = ck_reshard_rules_get(&w->rules, rules, NULL, &w->ruled,
					   err);
	w->ruled = w->ruled && !split; /* else they only count heads */
	return ret;
}

static int begin(struct ck_reshard_spec *base, const struct ck_reshard_in *in,
		 struct ck_err *err)
{
	struct words *w = (struct words *)base;
	int ret;

	ret = ck_reshard_owners_find(&w->owners, in, err);
	if (!ret)
		ret = ck_reshard_layers_find(&w->layers, in, w->given, err);
	for (uint32_t i = 0; i < in->nr; i++)
		w->max_rank = CK_MAX(w->max_rank,
				     in->img->tensors[in->first + i].rank);
	w->rules.config = in->config;
	w->rules.heads = &w->heads;
	if (!ret && w->tp > 1 && !w->ruled)
		ret = fall_back(w, in, err);
	if (!ret && w->ruled && w->rules.built_in && !w->rules.asked)
		ret = ck_reshard_rules_infer(&w->rules, in, err);
	return ret;
}

/* By rules, which know one layer. */
static int cut_by_rules(const struct words *w, const struct ck_catalog *img,
			uint32_t tensor, unsigned axis,
			struct ck_placement *out, struct ck_err *err)
{
	const struct ck_tensor *t = &img->tensors[tensor];
	unsigned skip = stacked(w, img, tensor), from = out->nr;
	size_t len;
	const char *name = ck_catalog_str(img, t->name, &len);
	int ret;

	if (skip && t->rank > skip + 2)
		return ck_fail(err, EINVAL,
			       "tp=: it has %u dimensions in each of its "
			       "stacked layers, of which no rule knows",
			       t->rank - skip);
	ret = ck_reshard_rules_cut(&w->rules, name, len,
				   img->dims + t->shape + skip, t->rank - skip,
				   axis, out, err);
	for (; from < out->nr; from++)
		out->step[from].dim = (uint8_t)(out->step[from].dim + skip);
	return ret;
}

static int fail_unknown(const struct words *w, const struct ck_catalog *img,
			uint32_t tensor, struct ck_err *err)
{
	const struct ck_reshard_in one = { .img = img,
					   .first = tensor,
					   .nr = 1 };
	const char *rules;
	int ret = ck_reshard_rules_for(&one, &rules, err);

	return ret ? ret :
		     ck_fail(err, EINVAL,
			     "tp=: it is stored split, but not along one "
			     "dimension: say by which rules to cut, as in "
			     "tp=%" PRIu32 ",rules=%s",
			     w->tp, rules);
}

static int cut_tp(const struct words *w, const struct ck_catalog *img,
		  uint32_t tensor, unsigned axis, struct ck_placement *out,
		  struct ck_err *err)
{
	const struct ck_tensor *t = &img->tensors[tensor];
	struct ck_reshard_split split;
	struct ck_mesh_step *s;
	size_t len;
	const char *name = ck_catalog_str(img, t->name, &len);

	if (w->ruled)
		return cut_by_rules(w, img, tensor, axis, out, err);
	ck_reshard_split_of(img, tensor, stacked(w, img, tensor), &split);
	if (split.how == CK_RESHARD_UNKNOWN)
		return fail_unknown(w, img, tensor, err);
	if (split.how == CK_RESHARD_WHOLE)
		return 0;
	s = ck_placement_shard(out, split.dim, axis, CK_SIZES_EVEN);
	if (!s)
		return -EINVAL;
	s->blocks = split.nr_blocks;
	memcpy(s->weight, split.block, sizeof(s->weight));
	if (split.nr_blocks || !w->rules.config)
		return 0;
	return ck_reshard_rules_heads(&w->rules, name, len,
				      img->dims + t->shape, s, out, err);
}

static unsigned add_axis(struct ck_placement *p, uint32_t size)
{
	return ck_mesh_add_axis(&p->mesh, size, CK_RESHARD_MAX_RANKS);
}

/* The first axis of the grid; where one stage has it, that one alone. */
static void take_stage(const struct words *w, const struct ck_catalog *img,
		       uint32_t tensor, struct ck_placement *out)
{
	size_t len;
	const char *name = ck_catalog_str(img, img->tensors[tensor].name, &len);
	uint32_t pp = w->layers.pp;
	int64_t stage = ck_reshard_stage_of(&w->layers, name, len);

	if (w->layers.each && stacked(w, img, tensor)) {
		struct ck_mesh_step *s = ck_placement_shard(
			out, 0, add_axis(out, pp), CK_SIZES_GIVEN);

		if (s)
			s->split.given = w->layers.each;
	} else if (stage == CK_RESHARD_PP_STAGE_ALL) {
		add_axis(out, pp ? pp : 1);
	} else {
		out->mesh.base = (uint32_t)stage * (w->base.ranks / pp);
		add_axis(out, 1);
	}
}

static int cut(const struct ck_reshard_spec *base, const struct ck_catalog *img,
	       uint32_t tensor, struct ck_placement *out, struct ck_err *err)
{
	const struct words *w = (const struct words *)base;
	unsigned rank = img->tensors[tensor].rank, tp;
	int ret = 0;

	/* what an optimizer keeps goes where its parameter does */
	tensor = owner_of(w, tensor);
	take_stage(w, img, tensor, out);
	for (unsigned i = 0; i < w->nr_dims; i++)
		add_axis(out, w->dim[i].size);
	tp = add_axis(out, w->tp ? w->tp : 1);
	if (w->tp > 1)
		ret = cut_tp(w, img, tensor, tp, out, err);
	for (unsigned i = 0; i < w->nr_dims && !ret; i++)
		if (w->dim[i].size > 1 && w->dim[i].dim < rank)
			ck_placement_shard(out, w->dim[i].dim, 1 + i,
					   CK_SIZES_CEIL);
	return ret;
}

/* The same on the last stage. */
static int further(const struct ck_reshard_spec *base,
		   const struct ck_catalog *img, uint32_t tensor, uint32_t i,
		   struct ck_placement *out, struct ck_err *err)
{
	const struct words *w = (const struct words *)base;
	size_t len;
	const char *name = ck_catalog_str(
		img, img->tensors[owner_of(w, tensor)].name, &len);
	int ret;

	if (i > 1 || !ck_reshard_is_tied(&w->layers, name, len))
		return -ENOENT;
	ret = cut(base, img, tensor, out, err);
	out->mesh.base = (w->layers.pp - 1) * (w->base.ranks / w->layers.pp);
	return ret;
}

static void free_words(struct ck_reshard_spec *base)
{
	struct words *w = (struct words *)base;

	ck_reshard_rules_free(&w->rules);
	free(w->rules_name);
	free(w->given);
	ck_reshard_layers_free(&w->layers);
	ck_reshard_owners_free(&w->owners);
	free(w);
}

static void say(const struct ck_reshard_spec *base, struct ck_str *out)
{
	const struct words *w = (const struct words *)base;

	ck_reshard_heads_report(&w->heads, out);
	if (w->by_rows)
		ck_str_fmt(out,
			   "%stp= cuts rows alone, norms too, as the source "
			   "was for data parallelism: tp=%" PRIu32
			   ",rules=%s cuts as tensor parallelism does",
			   out->len ? "; " : "", w->tp, w->by_rows);
	for (unsigned i = 0; i < w->nr_dims; i++)
		if (w->dim[i].dim >= w->max_rank)
			ck_str_fmt(out,
				   "%sdim%u= cuts nothing: no tensor has "
				   "a dimension %u",
				   out->len ? "; " : "", w->dim[i].dim,
				   w->dim[i].dim);
}

static const struct ck_reshard_spec_ops ops = {
	.begin = begin,
	.cut = cut,
	.further = further,
	.note = say,
	.free = free_words,
};

static int settle(struct words *w, struct ck_err *err)
{
	uint32_t pp = w->layers.pp;
	uint64_t ranks = (uint64_t)(pp ? pp : 1) * (w->tp ? w->tp : 1);

	for (unsigned i = 0; i < w->nr_dims && ranks <= CK_RESHARD_MAX_RANKS;
	     i++)
		ranks *= w->dim[i].size;
	if (ranks > CK_RESHARD_MAX_RANKS || pp > MAX_STAGES)
		return ck_fail(err, EINVAL, "over %d ranks or %d stages",
			       CK_RESHARD_MAX_RANKS, MAX_STAGES);
	if (w->given && !pp)
		return ck_fail(err, EINVAL,
			       "layers= is of stages: expected pp=K "
			       "too");
	if (!pp && !w->tp && !w->nr_dims)
		return ck_fail(err, EINVAL, "expected dimN=K, tp=K or pp=K");
	if (w->given && w->nr_given != pp)
		return ck_fail(err, EINVAL,
			       "layers=: expected %" PRIu32
			       " numbers, one a stage",
			       pp);
	w->base.ranks = (uint32_t)ranks;
	return 0;
}

int ck_reshard_words(struct ck_reshard_spec **out, const char *text,
		     const struct ck_opts *opts, struct ck_err *err)
{
	struct words *w = calloc(1, sizeof(*w));
	const char *at = text;
	int ret = 0;

	if (!w)
		return ck_no_memory(err);
	w->base.ops = &ops;
	while (!ret) {
		size_t len = strcspn(at, ",");

		ret = take_word(w, at, len, err);
		if (!at[len])
			break;
		at += len + 1;
	}
	if (!ret)
		ret = settle(w, err);
	if (!ret && w->tp)
		ret = ck_reshard_rules_get(&w->rules, w->rules_name, opts,
					   &w->ruled, err);
	if (ret) {
		free_words(&w->base);
		return ck_wrap(err, ret, "%.200s", text);
	}
	*out = &w->base;
	return 0;
}
