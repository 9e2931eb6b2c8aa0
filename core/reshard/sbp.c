/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sbp.c - OneFlow's placements: the file of -o sbp=, for a mesh to come
 *
 * A tensor that no rule names is whole on every rank.
 */
#include "core/reshard/spec.h"

#include "core/format/oneflow/sbp.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

struct sbp {
	struct ck_reshard_spec base;
	struct ck_of_sbp of;
	struct ck_reshard_place **place; /* of each rule */
	bool *used; /* of each rule: it says how some tensor is cut */
};

static int cut(const struct ck_reshard_spec *base, const struct ck_catalog *img,
	       uint32_t tensor, struct ck_reshard_cut *out, struct ck_err *err)
{
	const struct sbp *s = (const struct sbp *)base;
	size_t len;
	const char *name = ck_catalog_str(img, img->tensors[tensor].name, &len);
	const struct ck_of_rule *r = ck_of_sbp_rule(&s->of, name, len);

	if (!r) {
		ck_reshard_cut_none(out, s->base.ranks);
		return 0;
	}
	s->used[r - s->of.rules] = true;
	out->place = s->place[r - s->of.rules];
	for (unsigned a = 0; a < r->nd.axes; a++) {
		unsigned axis = ck_reshard_add_axis(out, r->nd.size[a]);
		struct ck_reshard_step *step;

		if (axis == CK_RESHARD_AXES)
			return ck_fail(err, EINVAL, "over %d ranks",
				       CK_RESHARD_MAX_RANKS);
		if (r->nd.sbp[a] == CK_OF_PARTIAL)
			out->partial |= 1u << axis;
		if (r->nd.sbp[a] < 0)
			continue;
		step = ck_reshard_add_step(out, (unsigned)r->nd.sbp[a], axis,
					   CK_LAY_BALANCED);
		if (!step)
			return ck_fail(err, EINVAL, "it has too many axes");
		step->full = true; /* as OneFlow demands */
	}
	return 0;
}

/* One that stands behind a pattern which fits all that it fits is such, too. */
static void report_unused(const struct ck_reshard_spec *base,
			  struct ck_str *out)
{
	const struct sbp *s = (const struct sbp *)base;
	size_t nr = 0;

	for (size_t i = 0; i < s->of.nr; i++)
		if (!s->used[i])
			ck_reshard_note_unused(out, nr++, "key",
					       s->of.rules[i].key,
					       s->of.rules[i].key_len);
	ck_reshard_note_end(out, nr);
}

static bool unused_options(const struct ck_reshard_spec *base)
{
	const struct sbp *s = (const struct sbp *)base;

	return s->of.nr && !memchr(s->used, true, s->of.nr);
}

static void free_sbp(struct ck_reshard_spec *base)
{
	struct sbp *s = (struct sbp *)base;

	for (size_t i = 0; s->place && i < s->of.nr; i++)
		free(s->place[i]);
	free(s->place);
	free(s->used);
	ck_of_sbp_free(&s->of);
	free(s);
}

static const struct ck_reshard_spec_ops ops = {
	.cut = cut,
	.note = report_unused,
	.unused_options = unused_options,
	.free = free_sbp,
};

/* OneFlow sorts ranks, so that places are in their order. */
static int take_places(struct sbp *s, struct ck_err *err)
{
	s->place = calloc(s->of.nr, sizeof(*s->place));
	s->used = calloc(s->of.nr, sizeof(*s->used));
	for (size_t i = 0; s->place && s->used && i < s->of.nr; i++) {
		const struct ck_of_rule *r = &s->of.rules[i];

		s->place[i] = calloc(r->nr, sizeof(*s->place[i]));
		if (!s->place[i])
			break;
		for (uint32_t k = 0; k < r->nr; k++)
			s->place[i][k] =
				(struct ck_reshard_place){ r->ranks[k], k };
		if (i + 1 == s->of.nr)
			return 0;
	}
	return ck_fail(err, ENOMEM, "no memory for placements");
}

int ck_reshard_sbp(struct ck_reshard_spec **out, json_t *j, struct ck_err *err)
{
	struct sbp *s = calloc(1, sizeof(*s));
	int ret;

	if (!s)
		return ck_fail(err, ENOMEM, "no memory for placements");
	s->base.ops = &ops;
	ret = ck_of_sbp_parse_cut(&s->of, j, err);
	if (!ret)
		ret = take_places(s, err);
	if (!ret && s->of.world > CK_RESHARD_MAX_RANKS)
		ret = ck_fail(err, EINVAL, "over %d ranks",
			      CK_RESHARD_MAX_RANKS);
	s->base.ranks = s->of.world;
	if (ret)
		free_sbp(&s->base);
	else
		*out = &s->base;
	return ret;
}
