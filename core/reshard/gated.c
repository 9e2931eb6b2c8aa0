/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gated.c - whether Megatron's layers are gated, by their shapes
 *
 * A gated linear_fc1 has twice the rows that linear_fc2 has columns, another
 * one as many.  Rules ask for the argument's name, of which any will do.
 */
#include "core/reshard/rules.h"

#include "core/base/auto.h"
#include "core/base/check.h"
#include "core/base/strmap.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define TRUTH "swiglu"

static const struct {
	const char *first, *second;
} pairs[] = {
	{ ".linear_fc1.weight", ".linear_fc2.weight" },
	{ ".dense_h_to_4h.weight", ".dense_4h_to_h.weight" },
};

static bool ends(const char *s, size_t len, const char *end)
{
	size_t n = strlen(end);

	return len > n && !memcmp(s + len - n, end, n);
}

/* What is behind "linear_fc2" is of no matter: ".weight" ends both. */
struct seen {
	struct ck_strmap names; /* before the second's */
	CK_VEC(uint64_t) columns;
};

static int take_second(struct seen *s, const char *name, size_t len,
		       uint64_t columns, struct ck_err *err)
{
	uint32_t at;

	for (size_t i = 0; i < CK_ARRAY_LEN(pairs); i++) {
		if (!ends(name, len, pairs[i].second))
			continue;
		at = ck_strmap_put(&s->names, name,
				   len - strlen(pairs[i].second));
		if (at == CK_STRMAP_NONE || !ck_vec_reserve(&s->columns, 1))
			return ck_fail(err, ENOMEM, "no memory for rules");
		if (at == s->columns.nr)
			s->columns.v[s->columns.nr++] = columns;
	}
	return 0;
}

enum gate { UNSEEN, GATED, PLAIN, UNCLEAR };

static void take_first(const struct seen *s, const char *name, size_t len,
		       uint64_t rows, enum gate *gate)
{
	for (size_t i = 0; i < CK_ARRAY_LEN(pairs); i++) {
		enum gate one = UNCLEAR;
		uint32_t at;

		if (!ends(name, len, pairs[i].first))
			continue;
		at = s->names.nr ? ck_strmap_get(&s->names, name,
						 len - strlen(pairs[i].first)) :
				   CK_STRMAP_NONE;
		if (at != CK_STRMAP_NONE && rows == s->columns.v[at])
			one = PLAIN;
		else if (at != CK_STRMAP_NONE && !(rows & 1) &&
			 rows / 2 == s->columns.v[at])
			one = GATED;
		*gate = *gate == UNSEEN || *gate == one ? one : UNCLEAR;
	}
}

static int look(const struct ck_reshard_in *in, struct seen *s, enum gate *gate,
		struct ck_err *err)
{
	int ret = 0;

	for (unsigned second = 2; second-- > 0;)
		for (uint32_t i = 0; i < in->nr && !ret; i++) {
			const struct ck_tensor *t =
				&in->img->tensors[in->first + i];
			const uint64_t *shape = in->img->dims + t->shape;
			size_t len;
			const char *name =
				ck_catalog_str(in->img, t->name, &len);

			if (t->rank < 2)
				continue;
			if (second)
				ret = take_second(s, name, len,
						  shape[t->rank - 1], err);
			else
				take_first(s, name, len, shape[t->rank - 2],
					   gate);
		}
	return ret;
}

int ck_reshard_rules_infer(struct ck_reshard_rules *r,
			   const struct ck_reshard_in *in, struct ck_err *err)
{
	struct seen s = { 0 };
	enum gate gate = UNSEEN;
	int ret = look(in, &s, &gate, err);

	ck_strmap_free(&s.names);
	free(s.columns.v);
	if (ret || (gate != GATED && gate != PLAIN))
		return ret;
	if (gate == GATED)
		r->truths = strdup(TRUTH);
	if (gate == GATED && !r->truths)
		return ck_fail(err, ENOMEM, "no memory for rules");
	r->asked = true;
	return 0;
}
