/* SPDX-License-Identifier: Apache-2.0 */
/*
 * run_dir_pair.c - by what their tensors are called, and by their shapes
 */
#include "core/run/run_dir_pair.h"

#include "core/base/auto.h"
#include "core/base/check.h"
#include "core/base/number.h"
#include "core/base/search.h"
#include "core/format/format.h"
#include "core/run/run_dir.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define GROUPS "param_groups"
#define MAX_DIGITS 18

const char *const ck_pair_names[CK_PAIR_NR] = { "model", "optimizer" };

int ck_pair_of(const char *name)
{
	for (int i = 0; i < CK_PAIR_NR; i++)
		if (!strcmp(ck_pair_names[i], name))
			return i;
	return -1;
}

/* A tensor of the model, or what states tell of a parameter. */
struct one {
	uint64_t id; /* of the parameter */
	unsigned order; /* of states: the first that has its shape is used */
	uint32_t rank; /* CK_NONE: none of its states has its shape */
	const uint64_t *dim;
};

struct all {
	struct one *v;
	size_t nr;
	bool failed;
};

/* By a format that saves a model and its optimizer as checkpoints each. */
static bool is_of_parts(const struct ck_catalog *img)
{
	const struct ck_format *f = ck_format_of(img);

	return f && f->parts;
}

static bool is_groups(const struct ck_catalog *img, uint32_t ref)
{
	const char *name = ck_catalog_str(img, ref, NULL);
	size_t len = strlen(GROUPS);

	return !strncmp(name, GROUPS, len) && (!name[len] || name[len] == '.');
}

/*
 * Every optimizer's state_dict() has them, and a model's has not.  Pickled into
 * safetensors they look like a tensor.
 */
static bool has_groups(const struct ck_catalog *img)
{
	for (uint32_t i = 0; i < img->nr_objects; i++)
		if (is_groups(img, img->objects[i].name))
			return true;
	for (uint32_t i = 0; i < img->nr_tensors; i++)
		if (is_groups(img, img->tensors[i].name))
			return true;
	return false;
}

/* Which of an optimizer's states have the shape of the parameter, best first. */
static unsigned order_of(const char *key)
{
	static const char *const keys[] = { "exp_avg", "momentum_buffer",
					    "exp_avg_sq", "square_avg", "sum" };
	unsigned i = 0;

	while (i < CK_ARRAY_LEN(keys) && strcmp(keys[i], key) != 0)
		i++;
	return i;
}

/* "7.exp_avg" -> 7, and the key. */
static const char *key_of(const char *name, uint64_t *id)
{
	size_t digits = ck_digits(name, SIZE_MAX, id);

	if (!digits || digits > MAX_DIGITS || name[digits] != '.')
		return NULL;
	return name + digits + 1;
}

static int by_id(const void *pa, const void *pb)
{
	const struct one *a = pa, *b = pb;

	return ck_order2(a->id, b->id, a->order, b->order);
}

static int by_shape(const void *pa, const void *pb)
{
	const struct one *a = pa, *b = pb;

	if (a->rank != b->rank)
		return a->rank < b->rank ? -1 : 1;
	for (uint32_t d = 0; a->rank != CK_NONE && d < a->rank; d++)
		if (a->dim[d] != b->dim[d])
			return a->dim[d] < b->dim[d] ? -1 : 1;
	return 0;
}

static void take(struct all *all, const struct ck_catalog *img, bool states)
{
	all->v = calloc((size_t)img->nr_tensors + 1, sizeof(*all->v));
	all->failed = !all->v;
	for (uint32_t i = 0; all->v && i < img->nr_tensors; i++) {
		const struct ck_tensor *t = &img->tensors[i];
		struct one *one = &all->v[all->nr];
		const char *key;

		*one = (struct one){ .rank = t->rank,
				     .dim = img->dims + t->shape };
		if (states) {
			key = key_of(ck_catalog_str(img, t->name, NULL),
				     &one->id);
			if (!key)
				continue;
			one->order = order_of(key);
			if (one->order == order_of(""))
				one->rank = CK_NONE;
		}
		all->nr++;
	}
}

/* One of each parameter is left. */
static void take_states(struct all *all, const struct ck_catalog *img)
{
	size_t kept = 0;

	take(all, img, true);
	if (all->nr)
		qsort(all->v, all->nr, sizeof(*all->v), by_id);
	for (size_t i = 0; i < all->nr; i++)
		if (!i || all->v[i].id != all->v[kept - 1].id)
			all->v[kept++] = all->v[i];
	all->nr = kept;
}

static size_t nr_alike(const struct all *all, size_t from)
{
	size_t nr = 1;

	while (from + nr < all->nr &&
	       !by_shape(&all->v[from], &all->v[from + nr]))
		nr++;
	return nr;
}

/* Of the shape of @one, which lies at *@at or after it. */
static size_t nr_in(const struct all *all, const struct one *one, size_t *at)
{
	while (*at < all->nr && by_shape(&all->v[*at], one) < 0)
		++*at;
	return *at < all->nr && !by_shape(&all->v[*at], one) ?
		       nr_alike(all, *at) :
		       0;
}

static void report_shape(struct ck_str *out, const struct one *one, size_t has,
			 size_t states)
{
	if (has)
		ck_str_fmt(out, "it has %zu tensor%s of shape [", has,
			   has == 1 ? "" : "s");
	else
		ck_str_puts(out, "it has no tensor of shape [");
	for (uint32_t d = 0; d < one->rank; d++)
		ck_str_fmt(out, "%s%" PRIu64, d ? ", " : "", one->dim[d]);
	ck_str_fmt(out, "], and the optimizer states of %zu", states);
}

/* Each shape is that of at least as many tensors of the model. */
static void compare_shapes(struct all *model, struct all *states,
			   struct ck_str *out)
{
	size_t at = 0, nr, has, more = 0;

	qsort(model->v, model->nr, sizeof(*model->v), by_shape);
	qsort(states->v, states->nr, sizeof(*states->v), by_shape);
	for (size_t i = 0; i < states->nr && states->v[i].rank != CK_NONE;
	     i += nr) {
		nr = nr_alike(states, i);
		has = nr_in(model, &states->v[i], &at);
		if (has >= nr)
			continue;
		if (!out->len)
			report_shape(out, &states->v[i], has, nr);
		else
			more++;
	}
	if (more)
		ck_str_fmt(out, ", and so it is with %zu more shape%s", more,
			   more == 1 ? "" : "s");
}

static void compare(const struct ck_catalog *model,
		    const struct ck_catalog *states, struct ck_str *out)
{
	struct all m = { 0 }, s = { 0 };

	take(&m, model, false);
	take_states(&s, states);
	if (m.failed || s.failed)
		out->failed = true;
	else if (s.nr > m.nr)
		ck_str_fmt(out,
			   "it has %zu tensors, and the optimizer states of "
			   "%zu parameters",
			   m.nr, s.nr);
	else
		compare_shapes(&m, &s, out);
	if (out->len)
		ck_str_puts(out, ": a stage of the model is missing, or the "
				 "optimizer is that of another one");
	free(m.v);
	free(s.v);
}

static bool has_errors(const struct ck_catalog *img)
{
	for (uint32_t i = 0; i < img->nr_problems; i++)
		if (img->problems[i].severity == CK_ERROR)
			return true;
	return false;
}

void ck_pair_check(const struct ck_catalog *const img[CK_PAIR_NR],
		   struct ck_str out[CK_PAIR_NR])
{
	const struct ck_catalog *model = img[CK_PAIR_MODEL];
	const struct ck_catalog *optim = img[CK_PAIR_OPTIMIZER];
	bool swapped = model && has_groups(model);
	bool states = optim && has_groups(optim);

	if (swapped)
		ck_str_puts(&out[CK_PAIR_MODEL],
			    "it holds the states of an optimizer: it is in the "
			    "place of another");
	/* others call an optimizer what has nothing of the kind */
	if (optim && !states && !has_errors(optim) &&
	    (swapped || (is_of_parts(optim) && optim->nr_tensors)))
		ck_str_puts(&out[CK_PAIR_OPTIMIZER],
			    "it holds no states of an optimizer: it is in the "
			    "place of another");
	if (model && states && !swapped && is_of_parts(optim) &&
	    !has_errors(model))
		compare(model, optim, &out[CK_PAIR_MODEL]);
}
