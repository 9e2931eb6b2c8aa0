/* SPDX-License-Identifier: Apache-2.0 */
/*
 * take.c - which tensor a key of a file is a piece of
 *
 * Boxes that name a file and a key come first, then the first member of
 * "tensors" that matches.  Exact names are looked up, patterns tried in turn.
 */
#include "core/format/layout/load.h"

#include "core/base/auto.h"
#include "core/base/check.h"

#include <errno.h>
#include <fnmatch.h>
#include <inttypes.h>
#include <string.h>

/* ---- before: tables ---- */

static bool names_files(const struct ck_lay_load *ld,
			const struct ck_lay_rule *r)
{
	return r->boxed && (!r->nr_boxes || ld->doc.boxes.v[r->first_box].file);
}

static int index_exact(struct ck_lay_load *ld, uint32_t rule,
		       struct ck_err *err)
{
	const struct ck_lay_rule *r = &ld->doc.rules.v[rule];
	const struct ck_lay_vars v = { .mesh = &ld->doc.mesh };
	ck_auto_str struct ck_str key = { 0 };
	uint32_t kept, number, *room;
	struct ck_err why;

	/* "{{" is a brace in "key", while a name is taken as it is */
	if (r->key && ck_lay_expand(r->key, &v, &key, NULL, &why))
		return ck_fail(err, why.code, "%s: tensors[%u].key: %s",
			       ld->doc.name, rule, why.msg);
	if (!r->key)
		ck_str_puts(&key, r->pattern);
	kept = key.failed ? CK_NONE : ck_lay_keep(ld, key.v, key.len);
	if (kept == CK_NONE)
		return ck_lay_no_mem(ld, err);
	number = ck_strmap_put(&ld->exact, ld->kept.v[kept], key.len);
	if (number == CK_STRMAP_NONE)
		return ck_lay_no_mem(ld, err);
	if (number < ld->exact_rule.nr)
		return 0; /* the first one counts */
	room = ck_vec_push(&ld->exact_rule);
	if (!room)
		return ck_lay_no_mem(ld, err);
	*room = rule;
	return 0;
}

static int index_box(struct ck_lay_load *ld, uint32_t box, struct ck_err *err)
{
	const struct ck_lay_box *b = &ld->doc.boxes.v[box];
	const struct ck_lay_rule *r = &ld->doc.rules.v[ld->box_rule[box]];
	ck_auto_str struct ck_str key = { 0 };
	uint32_t kept, number, *room;

	if (!b->file || b->kind == CK_LAY_RAW)
		return 0;
	ck_str_fmt(&key, "%u:%s",
		   ck_strmap_get(&ld->paths, b->file, strlen(b->file)),
		   b->key ? b->key : r->pattern);
	kept = key.failed ? CK_NONE : ck_lay_keep(ld, key.v, key.len);
	if (kept == CK_NONE)
		return ck_lay_no_mem(ld, err);
	number = ck_strmap_put(&ld->claims, ld->kept.v[kept], key.len);
	if (number == CK_STRMAP_NONE)
		return ck_lay_no_mem(ld, err);
	if (number < ld->claim_box.nr) {
		ld->box_next[box] = ld->claim_box.v[number];
		ld->claim_box.v[number] = box;
		return 0;
	}
	room = ck_vec_push(&ld->claim_box);
	if (!room)
		return ck_lay_no_mem(ld, err);
	*room = box;
	return 0;
}

static int index_boxes(struct ck_lay_load *ld, struct ck_err *err)
{
	size_t nr = ld->doc.boxes.nr;
	int ret = 0;

	ld->box_rule = calloc(nr + 1, sizeof(*ld->box_rule));
	ld->box_next = calloc(nr + 1, sizeof(*ld->box_next));
	ld->box_seen = calloc(nr + 1, sizeof(*ld->box_seen));
	if (!ld->box_rule || !ld->box_next || !ld->box_seen)
		return ck_lay_no_mem(ld, err);
	for (uint32_t i = 0; i < ld->doc.rules.nr; i++) {
		const struct ck_lay_rule *r = &ld->doc.rules.v[i];

		for (size_t k = 0; k < r->nr_boxes; k++)
			ld->box_rule[r->first_box + k] = i;
	}
	for (uint32_t i = 0; i < nr && !ret; i++) {
		ld->box_next[i] = CK_NONE;
		ret = index_box(ld, i, err);
	}
	return ret;
}

int ck_lay_index_rules(struct ck_lay_load *ld, struct ck_err *err)
{
	int ret = index_boxes(ld, err);

	for (uint32_t i = 0; i < ld->doc.rules.nr && !ret; i++) {
		const struct ck_lay_rule *r = &ld->doc.rules.v[i];
		uint32_t *room;

		if (names_files(ld, r))
			continue;
		if (r->match == CK_LAY_EXACT && !r->key_uses) {
			ret = index_exact(ld, i, err);
			continue;
		}
		room = ck_vec_push(&ld->patterns);
		if (!room)
			return ck_lay_no_mem(ld, err);
		*room = i;
	}
	return ret;
}

/* ---- one key ---- */

struct hit {
	uint32_t rule;
	uint64_t at[CK_LAY_AXES];
	struct ck_lay_vars v;
};

static int add_piece(struct ck_lay_load *ld, uint32_t inst,
		     const struct ck_lay_found *f, struct ck_lay_tensor *t,
		     const uint64_t *at, uint32_t box, struct ck_err *err)
{
	const struct ck_lay_inst *i = &ld->insts.v[inst];
	unsigned axes = ld->doc.mesh.nr;
	struct ck_lay_piece p = {
		.off = f->off,
		.at = i->at,
		.shape = SIZE_MAX,
		.stride = SIZE_MAX,
		.inst = inst,
		.next = CK_NONE,
		.box = box,
		.key = CK_NONE,
		.dtype = f->dtype,
		.rank = (uint8_t)f->rank,
		.xform = f->xform,
		.whole = f->whole,
	};
	uint32_t number = (uint32_t)ld->pieces.nr;
	bool failed = false;

	if (at && axes && memcmp(at, ld->dims.v + i->at, axes * sizeof(*at)))
		failed |= (p.at = ck_lay_put_dims(ld, at, axes)) == SIZE_MAX;
	if (f->shape)
		failed |= (p.shape = ck_lay_put_dims(ld, f->shape, f->rank)) ==
			  SIZE_MAX;
	if (f->stride)
		failed |= (p.stride = ck_lay_put_dims(
				   ld, (const uint64_t *)f->stride, f->rank)) ==
			  SIZE_MAX;
	if (f->key.len != t->name.len ||
	    memcmp(f->key.s, t->name.s, f->key.len) != 0)
		failed |= (p.key = ck_lay_keep(ld, f->key.s, f->key.len)) ==
			  CK_NONE;
	if (failed || number >= CK_MAX_CHUNKS ||
	    !ck_vec_reserve(&ld->pieces, 1))
		return ck_lay_no_mem(ld, err);
	ld->pieces.v[ld->pieces.nr++] = p;
	if (t->nr++)
		ld->pieces.v[t->last].next = number;
	else
		t->first = number;
	t->last = number;
	return 0;
}

/* The tensor of that name, made where it is new. */
static int tensor_of(struct ck_lay_load *ld, uint32_t rule, const char *name,
		     size_t len, struct ck_lay_tensor **out, struct ck_err *err)
{
	const char *tree = ld->doc.rules.v[rule].tree;
	ck_auto_str struct ck_str id = { 0 };
	struct ck_lay_tensor *room;
	uint32_t number, kept;

	ck_str_add(&id, name, len);
	if (tree) {
		ck_str_add(&id, "", 1);
		ck_str_puts(&id, tree);
	}
	number = ck_strmap_get(&ld->names, id.v, id.len);
	if (number != CK_STRMAP_NONE) {
		*out = &ld->tensors.v[number];
		return 0;
	}
	kept = id.failed ? CK_NONE : ck_lay_keep(ld, id.v, id.len);
	room = kept == CK_NONE ? NULL : ck_vec_push(&ld->tensors);
	if (!room || ck_strmap_put(&ld->names, ld->kept.v[kept], id.len) ==
			     CK_STRMAP_NONE)
		return ck_lay_no_mem(ld, err);
	*room = (struct ck_lay_tensor){ .name = { ld->kept.v[kept], len },
					.rule = rule,
					.first = CK_NONE,
					.last = CK_NONE };
	*out = room;
	return 0;
}

static int give(struct ck_lay_load *ld, uint32_t inst,
		const struct ck_lay_found *f, const struct hit *hit,
		const char *name, size_t len, struct ck_err *err)
{
	struct ck_lay_tensor *t;
	int ret = tensor_of(ld, hit->rule, name, len, &t, err);

	if (ret)
		return ret;
	if (t->rule != hit->rule)
		return ck_lay_wrong(ld, t, inst, err,
				    "tensors[%u] and tensors[%u] both give it",
				    t->rule, hit->rule);
	return add_piece(ld, inst, f, t, hit->at, CK_NONE, err);
}

static int claimed(struct ck_lay_load *ld, uint32_t inst,
		   const struct ck_lay_found *f, bool *any, struct ck_err *err)
{
	ck_auto_str struct ck_str id = { 0 };
	uint32_t number, box;
	int ret = 0;

	*any = false;
	if (!ld->claims.nr)
		return 0;
	ck_str_fmt(&id, "%u:", inst);
	ck_str_add(&id, f->key.s, f->key.len);
	if (id.failed)
		return ck_lay_no_mem(ld, err);
	number = ck_strmap_get(&ld->claims, id.v, id.len);
	if (number == CK_STRMAP_NONE)
		return 0;
	*any = true;
	for (box = ld->claim_box.v[number]; box != CK_NONE && !ret;
	     box = ld->box_next[box]) {
		uint32_t rule = ld->box_rule[box];
		const char *name = ld->doc.rules.v[rule].pattern;
		struct ck_lay_tensor *t;

		ld->box_seen[box] = true;
		ld->doc.rules.v[rule].hits++;
		ret = tensor_of(ld, rule, name, strlen(name), &t, err);
		if (!ret)
			ret = add_piece(ld, inst, f, t, NULL, box, err);
	}
	return ret;
}

/* A key template with axes that the file leaves open: each value is tried. */
static int try_template(struct ck_lay_load *ld, const struct ck_lay_rule *r,
			const struct ck_lay_found *f, struct hit *hit,
			bool *match, struct ck_err *err)
{
	const struct ck_lay_mesh *mesh = &ld->doc.mesh;
	ck_auto_str struct ck_str key = { 0 };
	unsigned open[CK_LAY_AXES], nr = 0, i;
	struct ck_err why;

	for (i = 0; i < mesh->nr; i++)
		if (r->key_uses & 1u << i && hit->at[i] == CK_LAY_FREE) {
			open[nr++] = i;
			hit->at[i] = 0;
		}
	do {
		int ret;

		key.len = 0;
		ret = ck_lay_expand(r->key, &hit->v, &key, NULL, &why);
		if (ret == -ENOMEM)
			return ck_lay_no_mem(ld, err);
		*match = !ret && key.len == f->key.len &&
			 !memcmp(key.v, f->key.s, key.len);
		for (i = 0; i < nr && !*match; i++) {
			if (++hit->at[open[i]] < mesh->axis[open[i]].size)
				break;
			hit->at[open[i]] = 0;
		}
	} while (!*match && i < nr);
	for (i = 0; i < nr && !*match; i++)
		hit->at[open[i]] = CK_LAY_FREE;
	return 0;
}

/* 1: it matches; -ENOMEM */
static int try_regex(const struct ck_lay_rule *r, const char *key, size_t len,
		     struct ck_lay_vars *v)
{
	regmatch_t m[CK_LAY_CAPTURES];
	int ret = regexec(&r->re, key, CK_LAY_CAPTURES, m, 0);

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

static int try_glob(const struct ck_lay_rule *r, const char *key)
{
	int ret = fnmatch(r->pattern, key, 0);

	if (ret && ret != FNM_NOMATCH)
		return -ENOMEM;
	return !ret;
}

int ck_lay_match(const struct ck_lay_rule *r, const char *key,
		 struct ck_lay_vars *v)
{
	switch (r->match) {
	case CK_LAY_EXACT:
		return !strcmp(r->pattern, key);
	case CK_LAY_GLOB:
		return try_glob(r, key);
	case CK_LAY_REGEX:
		return try_regex(r, key, strlen(key), v);
	}
	return 0;
}

static int try_rule(struct ck_lay_load *ld, const struct ck_lay_rule *r,
		    const struct ck_lay_found *f, struct hit *hit, bool *match,
		    struct ck_err *err)
{
	const char *key = ld->scratch.v;
	int ret;

	*match = false;
	if (r->match == CK_LAY_EXACT)
		return try_template(ld, r, f, hit, match, err);
	if (memchr(f->key.s, 0, f->key.len))
		return 0;
	ret = r->match == CK_LAY_GLOB ? try_glob(r, key) :
					try_regex(r, key, f->key.len, &hit->v);
	*match = ret > 0;
	return ret < 0 ? ck_lay_no_mem(ld, err) : 0;
}

static int find_rule(struct ck_lay_load *ld, const struct ck_lay_found *f,
		     struct hit *hit, struct ck_err *err)
{
	uint32_t number = ck_strmap_get(&ld->exact, f->key.s, f->key.len);
	uint32_t best =
		number == CK_STRMAP_NONE ? CK_NONE : ld->exact_rule.v[number];
	bool match = false;

	ld->scratch.len = 0;
	ck_str_add(&ld->scratch, f->key.s, f->key.len);
	if (ld->scratch.failed)
		return ck_lay_no_mem(ld, err);
	for (size_t i = 0; i < ld->patterns.nr && !match; i++) {
		uint32_t rule = ld->patterns.v[i];
		int ret;

		if (rule > best)
			break;
		ret = try_rule(ld, &ld->doc.rules.v[rule], f, hit, &match, err);
		if (ret)
			return ret;
		if (match)
			best = rule;
	}
	hit->rule = best;
	return 0;
}

static int unmatched(struct ck_lay_load *ld, uint32_t inst,
		     const struct ck_lay_found *f, struct ck_err *err)
{
	const struct ck_problem_in at = {
		.severity = CK_WARNING,
		.file = ld->insts.v[inst].path,
	};

	return ck_builder_problem(
		ld->b, &at, err,
		"%.*s: no member of \"tensors\" matches it "
		"({\"name\": ..., \"ignore\": true} leaves it "
		"out)",
		(int)CK_MIN(f->key.len, 300), f->key.s);
}

/* Coordinates that the key tells; returns 1 where it cannot be. */
static int take_coords(struct ck_lay_load *ld, uint32_t inst,
		       const struct ck_lay_found *f, struct hit *hit,
		       struct ck_err *err)
{
	const struct ck_lay_rule *r = &ld->doc.rules.v[hit->rule];

	for (size_t i = 0; i < r->nr_coords; i++) {
		const struct ck_lay_coord *c =
			&ld->doc.coords.v[r->first_coord + i];
		ck_auto_str struct ck_str text = { 0 };
		struct ck_err why = { .msg = "it is out of range" };
		uint64_t n = c->n;
		int ret = c->text ? ck_lay_expand(c->text, &hit->v, &text, NULL,
						  &why) :
				    0;
		bool bad = ret;

		if (ret == -ENOMEM)
			return ck_lay_no_mem(ld, err);
		if (c->text && !bad)
			n = strtoull(text.v, NULL, 10);
		bad |= n >= ld->doc.mesh.axis[c->axis].size;
		if (!bad && hit->at[c->axis] != CK_LAY_FREE)
			bad = hit->at[c->axis] != n;
		if (bad)
			return ck_lay_say(ld, ld->insts.v[inst].path, err,
					  "%.*s: tensors[%u].at.%s: %s",
					  (int)CK_MIN(f->key.len, 300),
					  f->key.s, hit->rule,
					  ld->doc.mesh.axis[c->axis].name,
					  text.v && *text.v ? text.v :
							      why.msg) ?:
				       1;
		hit->at[c->axis] = n;
	}
	return 0;
}

static int name_and_give(struct ck_lay_load *ld, uint32_t inst,
			 const struct ck_lay_found *f, struct hit *hit,
			 struct ck_err *err)
{
	const struct ck_lay_rule *r = &ld->doc.rules.v[hit->rule];
	ck_auto_str struct ck_str name = { 0 };
	struct ck_err why;
	int ret;

	if (r->match == CK_LAY_EXACT)
		return give(ld, inst, f, hit, r->pattern, strlen(r->pattern),
			    err);
	if (!r->name)
		return give(ld, inst, f, hit, f->key.s, f->key.len, err);
	ret = ck_lay_expand(r->name, &hit->v, &name, NULL, &why);
	if (ret == -ENOMEM)
		return ck_lay_no_mem(ld, err);
	if (ret)
		return ck_lay_say(ld, ld->insts.v[inst].path, err,
				  "%.*s: tensors[%u].name: %s",
				  (int)CK_MIN(f->key.len, 300), f->key.s,
				  hit->rule, why.msg);
	return give(ld, inst, f, hit, name.v, name.len, err);
}

int ck_lay_take(struct ck_lay_load *ld, uint32_t inst,
		const struct ck_lay_found *f, struct ck_err *err)
{
	const struct ck_lay_inst *i = &ld->insts.v[inst];
	struct hit hit = {
		.v = { .mesh = &ld->doc.mesh, .rank = i->rank, .key = f->key }
	};
	bool any;
	int ret = claimed(ld, inst, f, &any, err);

	if (ret || any || i->entry == CK_NONE)
		return ret;
	hit.v.at = hit.at;
	if (ld->doc.mesh.nr)
		memcpy(hit.at, ld->dims.v + i->at,
		       ld->doc.mesh.nr * sizeof(*hit.at));
	ret = find_rule(ld, f, &hit, err);
	if (ret)
		return ret;
	if (hit.rule == CK_NONE)
		return unmatched(ld, inst, f, err);
	ld->doc.rules.v[hit.rule].hits++;
	if (ld->doc.rules.v[hit.rule].ignore)
		return 0;
	ret = take_coords(ld, inst, f, &hit, err);
	if (ret)
		return ret < 0 ? ret : 0;
	return name_and_give(ld, inst, f, &hit, err);
}

/* A box of a raw file, or of one that is missing: nobody can be asked. */
static int take_box(struct ck_lay_load *ld, uint32_t box, uint32_t inst,
		    struct ck_err *err)
{
	const struct ck_lay_box *b = &ld->doc.boxes.v[box];
	struct ck_lay_rule *r = &ld->doc.rules.v[ld->box_rule[box]];
	const struct ck_lay_found f = {
		.key = { r->pattern, strlen(r->pattern) },
		.off = b->off,
		.dtype = r->dtype,
		.xform = b->xform,
	};
	struct ck_lay_tensor *t;
	int ret;

	ld->box_seen[box] = true;
	r->hits++;
	ret = tensor_of(ld, ld->box_rule[box], r->pattern, f.key.len, &t, err);
	return ret ? ret : add_piece(ld, inst, &f, t, NULL, box, err);
}

int ck_lay_take_boxes(struct ck_lay_load *ld, struct ck_err *err)
{
	int ret = 0;

	for (uint32_t i = 0; i < ld->doc.boxes.nr && !ret; i++) {
		const struct ck_lay_box *b = &ld->doc.boxes.v[i];
		struct ck_lay_rule *r = &ld->doc.rules.v[ld->box_rule[i]];
		uint32_t inst;

		if (!b->file || ld->box_seen[i])
			continue;
		inst = ck_strmap_get(&ld->paths, b->file, strlen(b->file));
		if (b->kind == CK_LAY_RAW || ld->insts.v[inst].missing) {
			ret = take_box(ld, i, inst, err);
			continue;
		}
		r->hits++; /* said here, or of the file as a whole */
		if (!ld->insts.v[inst].bad)
			ret = ck_lay_say(ld, b->file, err,
					 "%s: expected in it, not found",
					 b->key ? b->key : r->pattern);
	}
	return ret;
}
