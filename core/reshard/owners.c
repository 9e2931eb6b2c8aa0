/* SPDX-License-Identifier: Apache-2.0 */
/*
 * owners.c - the parameter that a tensor of an optimizer's is of
 *
 * Frameworks spread optimizers otherwise than weights, often in flat pieces,
 * and put words before and behind the parameter's name: exp_avg.fc.weight of
 * module.fc.weight, optimizer.fc.weight.exp_avg of model.fc.weight.  So what is
 * looked for is a parameter whose name, but for its first two words at most,
 * is in the state's, and whose shape is the same.
 */
#include "core/reshard/spec.h"

#include "core/base/check.h"
#include "core/base/vec.h"
#include "core/mesh/names.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define MOST_BEFORE 2 /* words of a parameter's name that a state may lack */
#define NOBODY UINT32_MAX /* several have that end of a name */

bool ck_reshard_is_state(const char *name, size_t len)
{
	return ck_name_has_word(name, len, ck_names_state);
}

struct ends {
	struct ck_strmap names;
	CK_VEC(uint32_t) of; /* the tensor that each is of, or NOBODY */
};

/* Behind the next dot or slash; NULL: there is none. */
static const char *next_word(const char *s, const char *end)
{
	while (s < end && *s != '.' && *s != '/')
		s++;
	return s < end ? s + 1 : NULL;
}

static int add_end(struct ends *e, const char *s, size_t len, uint32_t tensor,
		   struct ck_err *err)
{
	uint32_t at = ck_strmap_put(&e->names, s, len);

	if (at == CK_STRMAP_NONE || !ck_vec_reserve(&e->of, 1))
		return ck_no_memory(err);
	if (at < e->of.nr)
		e->of.v[at] = NOBODY;
	else
		e->of.v[e->of.nr++] = tensor;
	return 0;
}

static int add_ends(struct ends *e, const struct ck_catalog *img,
		    uint32_t tensor, struct ck_err *err)
{
	size_t len;
	const char *s = ck_catalog_str(img, img->tensors[tensor].name, &len);
	const char *end = s + len;
	int ret = 0;

	if (ck_reshard_is_state(s, len) || !img->tensors[tensor].rank)
		return 0;
	for (int i = 0; s && i <= MOST_BEFORE && !ret; i++) {
		ret = add_end(e, s, (size_t)(end - s), tensor, err);
		s = next_word(s, end);
	}
	return ret;
}

static bool same_shape(const struct ck_catalog *img, uint32_t a, uint32_t b)
{
	const struct ck_tensor *x = &img->tensors[a], *y = &img->tensors[b];

	return x->rank == y->rank &&
	       !memcmp(img->dims + x->shape, img->dims + y->shape,
		       x->rank * sizeof(*img->dims));
}

static uint32_t owner_of(const struct ends *e, const struct ck_catalog *img,
			 uint32_t tensor)
{
	size_t len, cut;
	const char *s = ck_catalog_str(img, img->tensors[tensor].name, &len);
	const char *end = s + len;

	if (!e->of.nr || !ck_reshard_is_state(s, len))
		return tensor;
	for (cut = len; cut > 0 && s[cut - 1] != '.' && s[cut - 1] != '/';)
		cut--;
	for (; s; s = next_word(s, end)) {
		const char *ends[2] = { end, end - len + (cut ? cut - 1 : 0) };

		for (unsigned i = 0; i < 2 && ends[i] > s; i++) {
			uint32_t at = ck_strmap_get(&e->names, s,
						    (size_t)(ends[i] - s));

			if (at != CK_STRMAP_NONE && e->of.v[at] != NOBODY &&
			    same_shape(img, e->of.v[at], tensor))
				return e->of.v[at];
		}
	}
	return tensor;
}

int ck_reshard_owners_find(struct ck_reshard_owners *out,
			   const struct ck_reshard_in *in, struct ck_err *err)
{
	struct ends e = { 0 };
	int ret = 0;

	out->first = in->first;
	out->of = calloc((size_t)in->nr + 1, sizeof(*out->of));
	if (!out->of)
		return ck_no_memory(err);
	for (uint32_t i = 0; i < in->nr && !ret; i++)
		ret = add_ends(&e, in->img, in->first + i, err);
	for (uint32_t i = 0; i < in->nr && !ret; i++)
		out->of[i] = owner_of(&e, in->img, in->first + i);
	ck_strmap_free(&e.names);
	free(e.of.v);
	return ret;
}

void ck_reshard_owners_free(struct ck_reshard_owners *o)
{
	free(o->of);
	o->of = NULL;
}
