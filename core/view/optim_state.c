/* SPDX-License-Identifier: Apache-2.0 */
/*
 * optim_state.c - finds state dicts of optimizers by names that tensors share
 *
 * Works on whole names, whose last part is what an optimizer calls its state,
 * and what is before it the owner, a parameter.  All texts lie in the catalog.
 */
#include "core/view/optim_state.h"

#include "core/base/auto.h"
#include "core/base/check.h"
#include "core/base/match.h"
#include "core/view/nest.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* As optimizers call them, and hardly a model. */
static const char *const strong[] = {
	"exp_avg",	   "exp_avg_sq",    "max_exp_avg_sq",  "exp_inf",
	"exp_avg_diff",	   "neg_pre_grad",  "exp_avg_sq_row",  "exp_avg_sq_col",
	"momentum_buffer", "square_avg",    "grad_avg",	       "acc_delta",
	"master_param",	   "master_weight", "previous_update",
};

/* Of some optimizer, but of some model as well. */
static const char *const weak[] = {
	"step",	 "sum",	       "prev",	 "step_size",  "ax",	   "mu",
	"eta",	 "mu_product", "state1", "state2",     "absmax1",  "absmax2",
	"qmap1", "qmap2",      "param",	 "fp32_param", "momentum", "variance",
};

/* Parts of a state dict beside its param_groups. */
static const char *const beside[] = {
	"state",	  "param_groups",	   "master_params",
	"fp32_from_fp16", "fp32_from_fp16_params",
};

struct text {
	const char *s;
	size_t len;
};

/* A dict with param_groups: its name with a dot at the end, or "". */
struct group {
	struct text name;
	bool known; /* has the state of an optimizer, too */
};

struct seen {
	struct text owner;
	uint32_t at; /* in held[] */
	bool strong, below_state;
};

struct find {
	const struct ck_catalog *img;
	struct group *group;
	size_t nr_group;
	struct seen *seen; /* of names that an optimizer may use */
	size_t nr_seen;
	bool *is;
};

static int cmp_text(const struct text *a, const struct text *b)
{
	return ck_text_order(a->s, a->len, b->s, b->len);
}

static int by_group(const void *a, const void *b)
{
	return cmp_text(&((const struct group *)a)->name,
			&((const struct group *)b)->name);
}

static int by_owner(const void *a, const void *b)
{
	return cmp_text(&((const struct seen *)a)->owner,
			&((const struct seen *)b)->owner);
}

static bool is_one_of(const char *const *list, size_t nr, struct text t)
{
	for (size_t i = 0; i < nr; i++)
		if (ck_text_is(t.s, t.len, list[i]))
			return true;
	return false;
}

static struct text text_of(const struct ck_catalog *img, uint32_t ref)
{
	struct text t;

	t.s = ck_catalog_str(img, ref, &t.len);
	return t;
}

/* The part at *at, which moves behind the dot after it; false: no more. */
static bool next_part(struct text name, size_t *at, struct text *part)
{
	const char *dot;

	if (*at > name.len)
		return false;
	part->s = name.s + *at;
	part->len = name.len - *at;
	dot = memchr(part->s, '.', part->len);
	if (dot)
		part->len = (size_t)(dot - part->s);
	*at += part->len + 1;
	return true;
}

static bool has_part(struct text name, const char *what)
{
	struct text part;
	size_t at = 0;

	while (next_part(name, &at, &part))
		if (is_one_of(&what, 1, part))
			return true;
	return false;
}

static void add_group(struct find *f, struct text name)
{
	struct text part;
	size_t at = 0, from = 0;

	for (; next_part(name, &at, &part); from = at) {
		if (is_one_of(&beside[1], 1, part)) {
			f->group[f->nr_group++].name =
				(struct text){ name.s, from };
			return;
		}
	}
}

/* Sorted, each once. */
static void find_groups(struct find *f, const uint32_t *held, uint32_t nr)
{
	size_t kept = 0;

	for (uint32_t i = 0; i < nr; i++)
		add_group(f, text_of(f->img, f->img->tensors[held[i]].name));
	for (uint32_t i = 0; i < f->img->nr_objects; i++)
		add_group(f, text_of(f->img, f->img->objects[i].name));
	qsort(f->group, f->nr_group, sizeof(*f->group), by_group);
	for (size_t i = 0; i < f->nr_group; i++)
		if (!kept || by_group(&f->group[kept - 1], &f->group[i]))
			f->group[kept++] = f->group[i];
	f->nr_group = kept;
}

/* The state dict that the name lies in, or NULL. */
static struct group *group_of(const struct find *f, struct text name)
{
	struct text part;
	size_t at = 0, from = 0;

	for (; f->nr_group && next_part(name, &at, &part); from = at) {
		struct group key = { .name = { name.s, from } }, *g;

		if (!is_one_of(beside, CK_ARRAY_LEN(beside), part))
			continue;
		g = bsearch(&key, f->group, f->nr_group, sizeof(key), by_group);
		if (g)
			return g;
	}
	return NULL;
}

/* state/PARAMETER/NAME, as keys of dicts that were saved. */
static bool is_nested(const struct ck_catalog *img, uint32_t t)
{
	unsigned depth = ck_nest_depth(img, t);
	struct ck_nest_part part;

	if (img->tensors[t].path == CK_NONE || depth < 3)
		return false;
	part = ck_nest_part(img, t, depth - 3);
	return part.key &&
	       is_one_of(beside, 1, (struct text){ part.key, part.len });
}

static void look(struct find *f, uint32_t t, uint32_t at)
{
	struct text name = text_of(f->img, f->img->tensors[t].name);
	const char *dot = memrchr(name.s, '.', name.len);
	struct text last = name;
	struct seen *s = &f->seen[f->nr_seen];
	struct group *g;

	if (!dot)
		return;
	last.s = dot + 1;
	last.len = (size_t)(name.s + name.len - last.s);
	s->strong = is_one_of(strong, CK_ARRAY_LEN(strong), last);
	if (!s->strong && !is_one_of(weak, CK_ARRAY_LEN(weak), last))
		return;
	s->at = at;
	s->owner = (struct text){ name.s, (size_t)(dot - name.s) };
	s->below_state = has_part(s->owner, "state");
	f->nr_seen++;
	f->is[at] = s->strong && is_nested(f->img, t);
	g = group_of(f, name);
	if (g)
		g->known = true;
}

/* Two names of one owner: both an optimizer's, or below "state". */
static void mark_owners(struct find *f)
{
	size_t end;

	qsort(f->seen, f->nr_seen, sizeof(*f->seen), by_owner);
	for (size_t i = 0; i < f->nr_seen; i = end) {
		size_t nr = 0;

		for (end = i;
		     end < f->nr_seen && !by_owner(&f->seen[i], &f->seen[end]);
		     end++)
			nr += f->seen[end].strong;
		if (nr < 2 && !(nr && end - i > 1 && f->seen[i].below_state))
			continue;
		for (size_t k = i; k < end; k++)
			f->is[f->seen[k].at] = true;
	}
}

static void mark_all(struct find *f, const uint32_t *held, uint32_t nr)
{
	find_groups(f, held, nr);
	for (uint32_t i = 0; i < nr; i++)
		look(f, held[i], i);
	mark_owners(f);
	for (uint32_t i = 0; i < nr; i++) {
		const struct group *g = group_of(
			f, text_of(f->img, f->img->tensors[held[i]].name));

		f->is[i] |= g && g->known;
	}
}

int ck_optim_state_find(const struct ck_catalog *img, const uint32_t *held,
			uint32_t nr, bool **is)
{
	ck_auto_free struct group *group =
		calloc((size_t)nr + img->nr_objects + 1, sizeof(*group));
	ck_auto_free struct seen *seen = calloc((size_t)nr + 1, sizeof(*seen));
	struct find f = { .img = img, .group = group, .seen = seen };

	*is = NULL;
	if (!group || !seen)
		return -ENOMEM;
	f.is = calloc((size_t)nr + 1, sizeof(*f.is));
	if (!f.is)
		return -ENOMEM;
	mark_all(&f, held, nr);
	*is = f.is;
	return 0;
}
