/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ranks.c - which ranks of a distributed save are not there
 *
 * No file says how many there were.  Boxes say over how many each stage is
 * split; that there was one more stage shows in names at best.
 */
#include "core/format/colossalai/ranks.h"

#include "core/base/auto.h"
#include "core/base/check.h"
#include "core/base/str.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define MAX_NAMED 8

struct ranks {
	struct ck_ca_set *s;
	uint64_t *v; /* those there, in order, each once */
	size_t nr;
	uint64_t max, tp; /* @tp 0: boxes do not say */
};

static int by_value(const void *pa, const void *pb)
{
	const uint64_t *a = pa, *b = pb;

	return *a < *b ? -1 : *a > *b;
}

static int collect(struct ranks *r, struct ck_err *err)
{
	const struct ck_ca_set *s = r->s;
	size_t n = 0;

	r->v = calloc(s->files.nr + 1, sizeof(*r->v));
	if (!r->v)
		return ck_fail(err, ENOMEM, "no memory for numbers");
	for (size_t i = 0; i < s->files.nr; i++)
		if (s->files.v[i].dist != UINT64_MAX)
			r->v[n++] = s->files.v[i].dist;
	if (n)
		qsort(r->v, n, sizeof(*r->v), by_value);
	for (size_t i = 0; i < n; i++)
		if (!i || r->v[i] != r->v[i - 1])
			r->v[r->nr++] = r->v[i];
	if (r->nr)
		r->max = r->v[r->nr - 1];
	return 0;
}

/* Over how many ranks tensors are split; 0: not over the same number. */
static uint64_t find_tp(const struct ck_ca_set *s)
{
	uint64_t tp = 1;

	for (size_t i = 0; i < s->pieces.nr; i++) {
		const struct ck_ca_piece *p = &s->pieces.v[i];
		const uint64_t *len = p->box + p->rank;

		for (unsigned d = 0; p->box && d < p->rank; d++) {
			uint64_t all = len[p->rank + d], n;

			if (!len[d] || len[d] >= all)
				continue;
			n = all / len[d];
			if (all % len[d] || (tp != 1 && tp != n))
				return 0;
			tp = n;
		}
	}
	return tp;
}

/* The first numbers from @from up to @end that are not there, and how many. */
static uint64_t name_missing(const struct ranks *r, uint64_t from, uint64_t end,
			     struct ck_str *out)
{
	uint64_t missing = end - from;
	unsigned named = 0;
	size_t i = 0;

	for (; i < r->nr && r->v[i] < from; i++)
		;
	for (size_t k = i; k < r->nr && r->v[k] < end; k++)
		missing--;
	for (uint64_t n = from; n < end && named < MAX_NAMED; n++) {
		if (i < r->nr && r->v[i] == n) {
			i++;
			continue;
		}
		ck_str_fmt(out, "%sdist-%05" PRIu64, named++ ? ", " : "", n);
	}
	if (missing > named)
		ck_str_fmt(out, " and %" PRIu64 " more", missing - named);
	return missing;
}

static int check_gaps(const struct ranks *r, struct ck_err *err)
{
	const struct ck_problem_in gap = { .severity = CK_ERROR };
	ck_auto_str struct ck_str list = { 0 };
	uint64_t nr = name_missing(r, 0, r->max, &list);

	if (list.failed)
		return ck_fail(err, ENOMEM, "no memory for numbers");
	return nr ? ck_builder_problem(r->s->b, &gap, err,
				       "%s %s missing, though there is "
				       "dist-%05" PRIu64,
				       list.v, nr > 1 ? "are" : "is", r->max) :
		    0;
}

/* Each stage has as many ranks as its tensors are split over. */
static int check_last(const struct ranks *r, struct ck_err *err)
{
	const struct ck_problem_in gap = { .severity = CK_ERROR };
	ck_auto_str struct ck_str list = { 0 };
	uint64_t have = r->max + 1, end, nr;

	if (r->tp < 2 || have % r->tp == 0 ||
	    !ck_add_ok(have, r->tp - have % r->tp, &end))
		return 0;
	nr = name_missing(r, have, end, &list);
	if (list.failed)
		return ck_fail(err, ENOMEM, "no memory for numbers");
	return ck_builder_problem(r->s->b, &gap, err,
				  "%s %s missing: tensors are split over "
				  "%" PRIu64 " ranks",
				  list.v, nr > 1 ? "are" : "is", r->tp);
}

static bool has_word(const struct ck_ca_tensor *t, const char *word)
{
	return memmem(t->name, t->len, word, strlen(word));
}

/* "model.layers.7.mlp.weight"; a number in front is a plain sequence's. */
static bool is_of_layer(const struct ck_ca_tensor *t)
{
	const char *at = memchr(t->name, '.', t->len);

	for (; at; at = strchr(at, '.')) {
		size_t n = strspn(++at, "0123456789");

		if (n && at[n] == '.')
			return true;
	}
	return false;
}

static bool is_embedding(const struct ck_ca_tensor *t)
{
	return has_word(t, "embed") || has_word(t, "wte") ||
	       has_word(t, "wpe") || has_word(t, "word_") ||
	       has_word(t, "rotary");
}

/* A norm after each layer, as BERT has: then none need come after the last. */
static bool ends_in_norm(const struct ck_ca_tensor *t)
{
	return has_word(t, ".output.LayerNorm") ||
	       has_word(t, "output_layer_norm");
}

static bool in_last(const struct ranks *r, const struct ck_ca_tensor *t)
{
	uint64_t first = r->max - r->max % CK_MAX(r->tp, UINT64_C(1));

	for (uint32_t i = t->first; i != CK_STRMAP_NONE;
	     i = r->s->pieces.v[i].next) {
		uint64_t dist = r->s->files.v[r->s->pieces.v[i].file].dist;

		if (dist >= first && dist != UINT64_MAX)
			return true;
	}
	return false;
}

/*
 * Models that have an embedding and layers have a norm or a head after them,
 * in the last stage; in this one there is none.
 */
static bool ends_in_layers(const struct ranks *r)
{
	const struct ck_ca_set *s = r->s;
	bool layers = false, embeds = false;

	for (size_t i = 0; i < s->tensors.nr; i++) {
		const struct ck_ca_tensor *t = &s->tensors.v[i];

		if (is_of_layer(t)) {
			if (ends_in_norm(t))
				return false;
			layers = true;
		} else if (is_embedding(t)) {
			embeds = true;
		} else if (in_last(r, t)) {
			return false;
		}
	}
	return layers && embeds;
}

static int check_end(const struct ranks *r, struct ck_err *err)
{
	const struct ck_problem_in odd = { .severity = CK_WARNING };
	const struct ck_problem_in note = { .severity = CK_NOTE };

	if (ends_in_layers(r))
		return ck_builder_problem(
			r->s->b, &odd, err,
			"dist-%05" PRIu64
			" is the last, and holds layers with no norm "
			"or head after them: the files of later "
			"stages, whose tensors nothing else names, "
			"may be missing",
			r->max);
	return ck_builder_problem(r->s->b, &note, err,
				  "no file says how many stages there were: "
				  "files after dist-%05" PRIu64
				  " would not be missed",
				  r->max);
}

int ck_ca_check_ranks(struct ck_ca_set *s, struct ck_err *err)
{
	struct ranks r = { .s = s, .tp = find_tp(s) };
	int ret = collect(&r, err);

	if (!ret && r.nr)
		ret = check_gaps(&r, err);
	if (!ret && r.nr)
		ret = check_last(&r, err);
	if (!ret && r.nr)
		ret = check_end(&r, err);
	free(r.v);
	return ret;
}
