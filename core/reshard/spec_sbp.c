/* SPDX-License-Identifier: Apache-2.0 */
/*
 * spec_sbp.c - OneFlow's placements: the file of -o sbp=, for a mesh to come
 *
 * A tensor that no rule names is whole on every rank.
 */
#include "core/reshard/spec.h"

#include "core/mesh/sbp.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

struct sbp {
	struct ck_reshard_spec base;
	struct ck_sbp by;
	bool *used; /* of each rule: it says how some tensor is cut */
};

static int cut(const struct ck_reshard_spec *base, const struct ck_catalog *img,
	       uint32_t tensor, struct ck_placement *out, struct ck_err *err)
{
	const struct sbp *s = (const struct sbp *)base;
	size_t len;
	const char *name = ck_catalog_str(img, img->tensors[tensor].name, &len);
	const struct ck_sbp_rule *r = ck_sbp_rule(&s->by, name, len);

	(void)err;
	if (!r) {
		ck_reshard_cut_none(out, s->base.ranks);
		return 0;
	}
	s->used[r - s->by.rules] = true;
	ck_sbp_placement(r, out);
	for (unsigned i = 0; i < out->nr; i++)
		out->step[i].nonempty = true; /* as OneFlow demands */
	return 0;
}

/* One that stands behind a pattern which fits all that it fits is such, too. */
static void report_unused(const struct ck_reshard_spec *base,
			  struct ck_str *out)
{
	const struct sbp *s = (const struct sbp *)base;
	size_t nr = 0;

	for (size_t i = 0; i < s->by.nr; i++)
		if (!s->used[i])
			ck_reshard_note_unused(out, nr++, "key",
					       s->by.rules[i].key,
					       s->by.rules[i].key_len);
	ck_reshard_note_end(out, nr);
}

static bool unused_options(const struct ck_reshard_spec *base)
{
	const struct sbp *s = (const struct sbp *)base;

	return s->by.nr && !memchr(s->used, true, s->by.nr);
}

static void free_sbp(struct ck_reshard_spec *base)
{
	struct sbp *s = (struct sbp *)base;

	free(s->used);
	ck_sbp_free(&s->by);
	free(s);
}

static const struct ck_reshard_spec_ops ops = {
	.cut = cut,
	.note = report_unused,
	.unused_options = unused_options,
	.free = free_sbp,
};

int ck_reshard_sbp(struct ck_reshard_spec **out, json_t *j, struct ck_err *err)
{
	struct sbp *s = calloc(1, sizeof(*s));
	int ret;

	if (!s)
		return ck_no_memory(err);
	s->base.ops = &ops;
	ret = ck_sbp_head(&s->by, j, false, err);
	if (!ret)
		ret = ck_sbp_rules(&s->by, j, err);
	s->used = calloc(s->by.nr + 1, sizeof(*s->used));
	if (!ret && !s->used)
		ret = ck_no_memory(err);
	if (!ret && s->by.world > CK_RESHARD_MAX_RANKS)
		ret = ck_fail(err, EINVAL, "over %d ranks",
			      CK_RESHARD_MAX_RANKS);
	s->base.ranks = s->by.world;
	if (ret)
		free_sbp(&s->base);
	else
		*out = &s->base;
	return ret;
}
