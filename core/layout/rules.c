/* SPDX-License-Identifier: Apache-2.0 */
/*
 * rules.c - which member of "tensors" counts, and which part is at a place
 *
 * For reading and for writing alike: a key of a file is looked for, or the name
 * of what is to be written.
 */
#include "core/layout/doc.h"

#include "core/base/check.h"
#include "core/geom/catalog.h"

#include <errno.h>
#include <fnmatch.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* ---- patterns ---- */

/* A key template with axes that the file leaves open: each value is tried. */
static int try_template(const struct ck_layout_rule *r,
			struct ck_layout_slice key,
			const struct ck_layout_vars *v, uint64_t *at)
{
	ck_auto_str struct ck_str text = { 0 };
	unsigned open[CK_LAYOUT_AXES], nr = 0, i;
	bool match;

	for (i = 0; i < v->mesh->nr; i++)
		if (r->key_uses & 1u << i && at[i] == CK_LAYOUT_FREE) {
			open[nr++] = i;
			at[i] = 0;
		}
	do {
		struct ck_err why;
		int ret;

		text.len = 0;
		ret = ck_layout_expand(r->key, v, &text, NULL, &why);
		if (ret == -ENOMEM)
			return ret;
		match = !ret && text.len == key.len &&
			!memcmp(text.v, key.s, key.len);
		for (i = 0; i < nr && !match; i++) {
			if (++at[open[i]] < v->mesh->axis[open[i]].size)
				break;
			at[open[i]] = 0;
		}
	} while (!match && i < nr);
	for (i = 0; i < nr && !match; i++)
		at[open[i]] = CK_LAYOUT_FREE;
	return match;
}

static int try_regex(const struct ck_layout_rule *r, const char *key,
		     size_t len, struct ck_layout_vars *v)
{
	regmatch_t m[CK_LAYOUT_CAPTURES];
	int ret = regexec(&r->re, key, CK_LAYOUT_CAPTURES, m, 0);

	if (ret)
		return ret == REG_NOMATCH ? 0 : -ENOMEM;
	if (m[0].rm_so || (size_t)m[0].rm_eo != len)
		return 0;
	v->nr_cap = (unsigned)r->re.re_nsub + 1;
	for (unsigned i = 0; i < v->nr_cap; i++) {
		v->cap[i].s = m[i].rm_so < 0 ? "" : key + m[i].rm_so;
		v->cap[i].len = (size_t)(m[i].rm_eo - m[i].rm_so);
	}
	return 1;
}

static int try_glob(const struct ck_layout_rule *r, const char *key)
{
	int ret = fnmatch(r->pattern, key, 0);

	return ret && ret != FNM_NOMATCH ? -ENOMEM : !ret;
}

/* 1: it matches; @text is @key, and ends in NUL. */
static int try_rule(const struct ck_layout_rule *r, struct ck_layout_slice key,
		    const char *text, struct ck_layout_vars *v, uint64_t *at)
{
	if (r->match == CK_LAYOUT_EXACT)
		return try_template(r, key, v, at);
	if (memchr(key.s, 0, key.len))
		return 0;
	return r->match == CK_LAYOUT_GLOB ? try_glob(r, text) :
					    try_regex(r, text, key.len, v);
}

/* ---- all of them ---- */

bool ck_layout_index_add(struct ck_layout_index *x, uint32_t rule,
			 const char *name, size_t len)
{
	uint32_t *room, nr = 0;

	if (name)
		nr = ck_strmap_keep(&x->exact, &x->doc->mem, name, len);
	if (name && nr < x->exact_rule.nr)
		return true; /* the first one counts */
	room = name ? ck_vec_push(&x->exact_rule) : ck_vec_push(&x->others);
	if (nr == CK_STRMAP_NONE || !room)
		return false;
	*room = rule;
	return true;
}

int ck_layout_index_find(struct ck_layout_index *x, struct ck_layout_slice key,
			 struct ck_layout_vars *v, uint64_t *at, uint32_t *rule)
{
	uint32_t nr = ck_strmap_get(&x->exact, key.s, key.len);
	int ret = 0;

	*rule = nr == CK_STRMAP_NONE ? CK_NONE : x->exact_rule.v[nr];
	x->scratch.len = 0;
	ck_str_add(&x->scratch, key.s, key.len);
	if (x->scratch.failed)
		return -ENOMEM;
	for (size_t i = 0; i < x->others.nr && !ret; i++) {
		uint32_t other = x->others.v[i];

		if (other > *rule)
			break;
		ret = try_rule(&x->doc->rules[other], key, x->scratch.v, v, at);
		if (ret > 0)
			*rule = other;
	}
	return CK_MIN(ret, 0);
}

void ck_layout_index_free(struct ck_layout_index *x)
{
	free(x->exact_rule.v);
	free(x->others.v);
	ck_strmap_free(&x->exact);
	ck_str_free(&x->scratch);
}

int ck_layout_coord(const struct ck_layout_coord *c,
		    const struct ck_layout_vars *v, struct ck_str *text,
		    uint64_t *n, struct ck_err *why)
{
	int ret = c->text ? ck_layout_expand(c->text, v, text, NULL, why) : 0;

	*n = c->n;
	if (c->text && !ret)
		*n = strtoull(text->v, NULL, 10);
	return ret;
}

/* ---- where what belongs ---- */

struct ck_layout_dims ck_layout_grid(const struct ck_layout_rule *r,
				     struct ck_layout_dims shape)
{
	return r->view.v ? r->view : shape;
}

const struct ck_layout_box *ck_layout_box_at(const struct ck_layout_doc *d,
					     const struct ck_layout_rule *r,
					     uint64_t rank, const uint64_t *at)
{
	for (size_t i = 0; i < r->nr_boxes; i++) {
		const struct ck_layout_box *b = &r->box[i];
		bool same = b->rank == CK_LAYOUT_FREE || b->rank == rank;

		for (unsigned a = 0; a < d->mesh.nr && same; a++)
			same = b->at[a] == CK_LAYOUT_FREE || b->at[a] == at[a];
		if (same)
			return b;
	}
	return NULL;
}

void ck_layout_box_place(const struct ck_layout_box *b, struct ck_placed *out)
{
	const uint64_t *full = b->stored.v ? b->stored.v : b->size.v;
	size_t bytes = b->size.rank * sizeof(*full);

	memcpy(out->start, b->start.v, bytes);
	memcpy(out->len, b->size.v, bytes);
	memcpy(out->full, full, bytes);
	out->flat = b->flat.v;
	out->lo = out->flat ? b->flat.v[0] : 0;
	out->hi = out->flat ? b->flat.v[1] : 0;
	out->stored = out->hi - CK_MIN(out->lo, out->hi);
}

static bool is_of(const struct ck_mesh_step *s, int dim)
{
	return dim < 0 || s->flat || s->dim == dim;
}

uint64_t ck_layout_part(const struct ck_layout_rule *r, int dim,
			const uint64_t *at, uint64_t *nr)
{
	bool known = at;
	uint64_t part = 0;

	*nr = 1;
	for (unsigned i = 0; i < r->nr_steps; i++) {
		const struct ck_mesh_step *s = &r->step[i];

		if (!is_of(s, dim))
			continue;
		*nr *= s->split.nr; /* at most 2^20 in all */
		known = known && at[s->axis[0]] != CK_LAYOUT_FREE;
		if (known)
			part = part * s->split.nr + at[s->axis[0]];
	}
	return known ? part : CK_LAYOUT_FREE;
}

void ck_layout_part_at(const struct ck_layout_rule *r, int dim, uint64_t part,
		       uint64_t *at)
{
	for (unsigned i = r->nr_steps; i-- > 0;) {
		const struct ck_mesh_step *s = &r->step[i];

		if (!is_of(s, dim))
			continue;
		at[s->axis[0]] = part % s->split.nr;
		part /= s->split.nr;
	}
}

void ck_layout_part_text(const struct ck_layout_rule *r, int dim,
			 const uint64_t *at, bool back, char text[256])
{
	int most = back ? 40 : 60;
	size_t n = 0;

	*text = '\0';
	for (unsigned i = 0; i < r->nr_steps && n < (back ? 177 : 256); i++) {
		const struct ck_mesh_step *s =
			&r->step[back ? r->nr_steps - 1 - i : i];

		if (is_of(s, dim))
			n += (size_t)snprintf(text + n, 256 - n,
					      "%s%.*s=%" PRIu64, n ? ", " : "",
					      most, s->axis_name,
					      at[s->axis[0]]);
	}
}
