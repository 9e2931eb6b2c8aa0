/* SPDX-License-Identifier: Apache-2.0 */
/*
 * model.c - weights and buffers of all ranks as pieces of full tensors
 */
#include "core/format/nnscaler/rank_priv.h"

#include "core/base/auto.h"
#include "core/base/check.h"

#include <errno.h>
#include <string.h>

int ck_nn_piece_add(struct ck_nn_set *s, const struct ck_nn_piece *p,
		    struct ck_err *err)
{
	struct ck_nn_piece *to = ck_vec_push(&s->pieces);

	if (!to)
		return ck_fail(err, ENOMEM, "no memory for pieces");
	*to = *p;
	return 0;
}

size_t ck_nn_whole(struct ck_nn_set *s, const struct ck_nn_tensor *t)
{
	size_t at = s->dims.nr;

	if (!ck_vec_reserve(&s->dims, 3 * t->rank + 1u))
		return SIZE_MAX;
	memcpy(s->dims.v + at, s->dims.v + t->dims,
	       t->rank * sizeof(*s->dims.v));
	memset(s->dims.v + at + t->rank, 0, t->rank * sizeof(*s->dims.v));
	memcpy(s->dims.v + at + 2 * (size_t)t->rank, s->dims.v + t->dims,
	       t->rank * sizeof(*s->dims.v));
	s->dims.nr += 3 * (size_t)t->rank;
	return at;
}

/* The name without "model.". */
static uint32_t bare(struct ck_nn_set *s, uint32_t name)
{
	const struct ck_strmap_key *key = &s->names.map.v[name];

	return ck_nn_name(&s->names, key->s + 6, key->len - 6);
}

static int attr_say(struct ck_nn_set *s, uint32_t rank,
		    const struct ck_nn_attr *a, struct ck_err *err)
{
	const struct ck_nn_piece p = {
		.name = a->name,
		.param = bare(s, a->name),
		.state = CK_STRMAP_NONE,
		.rank = rank,
		.dims = a->dims,
		.dims_rank = a->rank,
		.flat = a->flat,
		.weight = a->is_param,
		.lo = a->lo,
		.hi = a->hi,
		.t = a->t,
	};

	if (p.param == CK_STRMAP_NONE)
		return ck_fail(err, ENOMEM, "no memory for names");
	return ck_nn_piece_add(s, &p, err);
}

static int plain_say(struct ck_nn_set *s, uint32_t rank,
		     const struct ck_nn_plain *t, struct ck_err *err)
{
	const struct ck_nn_piece p = {
		.name = t->name,
		.param = t->key,
		.state = CK_STRMAP_NONE,
		.rank = rank,
		.dims = ck_nn_whole(s, &t->t),
		.dims_rank = t->t.rank,
		.weight = true,
		.t = t->t,
	};

	if (p.dims == SIZE_MAX)
		return ck_fail(err, ENOMEM, "no memory for shapes");
	return ck_nn_piece_add(s, &p, err);
}

int ck_nn_model_say(struct ck_nn_set *s, struct ck_err *err)
{
	int ret = 0;

	for (uint32_t i = 0; i < s->ranks.nr; i++) {
		const struct ck_nn_rank *r = &s->ranks.v[i];

		for (size_t k = 0; k < r->attrs.nr && !ret; k++)
			if (r->attrs.v[k].saved)
				ret = attr_say(s, i, &r->attrs.v[k], err);
		for (size_t k = 0; k < r->plain.nr && !ret; k++)
			if (!r->plain.v[k].is_module)
				ret = plain_say(s, i, &r->plain.v[k], err);
	}
	return ret;
}

/* Marks the names that pieces have, and those that are tied with them. */
static int mark_held(struct ck_nn_set *s, struct ck_err *err)
{
	for (size_t i = 0; i < s->pieces.nr; i++)
		if (ck_nn_mark(s, s->pieces.v[i].name, CK_NN_HELD))
			return ck_fail(err, ENOMEM, "no memory for names");
	for (size_t i = 0; i < s->ties.nr; i++)
		if (ck_nn_mark(s, s->ties.v[i].name, 0) ||
		    ck_nn_mark(s, s->ties.v[i].with, 0))
			return ck_fail(err, ENOMEM, "no memory for names");
	/* a list's first name may be held by any of the others, and lend it */
	for (int round = 0; round < 2; round++)
		for (size_t i = 0; i < s->ties.nr; i++) {
			uint8_t *a = &s->marks.v[s->ties.v[i].name];
			uint8_t *b = &s->marks.v[s->ties.v[i].with];

			if ((*a | *b) & CK_NN_HELD) {
				*a |= CK_NN_HELD;
				*b |= CK_NN_HELD;
			}
		}
	return 0;
}

/* The shape that a map gives; NULL: none does. */
static const struct ck_nn_attr *find_attr(const struct ck_nn_set *s,
					  uint32_t name)
{
	for (size_t i = 0; i < s->ranks.nr; i++)
		for (size_t k = 0; k < s->ranks.v[i].attrs.nr; k++)
			if (s->ranks.v[i].attrs.v[k].name == name)
				return &s->ranks.v[i].attrs.v[k];
	return NULL;
}

static int say_lost(struct ck_nn_set *s, uint32_t name, struct ck_err *err)
{
	const struct ck_strmap_key *key = &s->names.map.v[name];
	const struct ck_problem_in lost = { .severity = CK_ERROR,
					    .tensor = key->s,
					    .tensor_len = key->len };
	const struct ck_problem_in unused = { .severity = CK_NOTE,
					      .tensor = key->s,
					      .tensor_len = key->len };

	if (s->marks.v[name] & CK_NN_MAPPED || s->nr_missing)
		return ck_builder_problem(
			s->b, &lost, err,
			"it is listed in " CK_NN_EXTRA
			", and no file that is there holds it");
	return ck_builder_problem(
		s->b, &unused, err,
		"no file holds it: the model does not use it");
}

static int say_by_design(struct ck_nn_set *s, uint32_t name, struct ck_err *err)
{
	const struct ck_strmap_key *key = &s->names.map.v[name];
	const struct ck_problem_in note = { .severity = CK_NOTE,
					    .tensor = key->s,
					    .tensor_len = key->len };
	const struct ck_nn_attr *a = find_attr(s, name);

	if (a && a->is_param)
		return say_lost(s, name, err);
	return ck_builder_problem(
		s->b, &note, err,
		"not saved by design: a buffer that is not persistent");
}

int ck_nn_absent_say(struct ck_nn_set *s, struct ck_err *err)
{
	int ret = mark_held(s, err);

	for (uint32_t i = 0; i < s->marks.nr && !ret; i++) {
		if (s->marks.v[i] & CK_NN_HELD)
			continue;
		if (s->marks.v[i] & CK_NN_LISTED)
			ret = say_lost(s, i, err);
		else if (s->marks.v[i] & CK_NN_MAPPED)
			ret = say_by_design(s, i, err);
	}
	return ret;
}
