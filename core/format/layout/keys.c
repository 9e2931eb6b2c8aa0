/* SPDX-License-Identifier: Apache-2.0 */
/*
 * keys.c - what a file of each kind says it holds, and of which tensor that is
 *
 * Boxes that name a file and a key come first, then the first member of
 * "tensors" that matches.
 */
#include "core/format/layout/load.h"

#include "core/base/auto.h"
#include "core/base/check.h"
#include "core/base/number.h"
#include "core/container/container.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

/* ---- pieces of tensors ---- */

/* What a file says of one of its keys. */
struct found {
	const struct ck_layout_file *file;
	struct ck_layout_slice key;
	struct ck_extent x;
	bool whole;
};

/* The tensor of that name, made where it is new. */
static int tensor_of(struct ck_layout_load *ld, struct ck_layout_rule *rule,
		     const char *name, size_t len,
		     struct ck_layout_tensor **out, struct ck_err *err)
{
	ck_auto_str struct ck_str id = { 0 };
	uint32_t number;

	ck_str_add(&id, name, len);
	if (rule->tree) {
		ck_str_add(&id, "", 1);
		ck_str_puts(&id, rule->tree);
	}
	if (id.failed || !ck_vec_reserve(&ld->tensors, 1))
		return ck_no_memory(err);
	number = ck_strmap_keep(&ld->names, &ld->mem, id.v, id.len);
	if (number == CK_STRMAP_NONE)
		return ck_no_memory(err);
	*out = &ld->tensors.v[number];
	if (number < ld->tensors.nr)
		return 0;
	ld->tensors.nr++;
	**out = (struct ck_layout_tensor){
		.name = { ld->names.v[number].s, len }, .rule = rule
	};
	return 0;
}

static const void *copy(struct ck_layout_load *ld, const void *v, unsigned nr)
{
	return v ? ck_arena_copy(&ld->mem, v, nr * sizeof(uint64_t)) : NULL;
}

static int add_piece(struct ck_layout_load *ld, const struct found *f,
		     struct ck_layout_tensor *t, const uint64_t *at,
		     const struct ck_layout_box *box, struct ck_err *err)
{
	struct ck_layout_piece *p = ck_arena_alloc(&ld->mem, sizeof(*p));
	size_t bytes = ld->doc.mesh.nr * sizeof(*at);

	if (!p)
		return ck_no_memory(err);
	*p = (struct ck_layout_piece){ .file = f->file,
				       .box = box,
				       .key = t->name.s,
				       .at = f->file->at,
				       .x = f->x,
				       .whole = f->whole };
	p->x.shape = copy(ld, f->x.shape, f->x.rank);
	p->x.stride = copy(ld, f->x.stride, f->x.rank);
	if (at && bytes && memcmp(at, p->at, bytes) != 0)
		p->at = ck_arena_copy(&ld->mem, at, bytes);
	if (f->key.len != t->name.len ||
	    memcmp(f->key.s, t->name.s, f->key.len) != 0)
		p->key = ck_arena_copy(&ld->mem, f->key.s, f->key.len);
	if (ld->mem.failed)
		return ck_no_memory(err);
	if (t->last)
		t->last->next = p;
	else
		t->first = p;
	t->last = p;
	return 0;
}

static int add_by_name(struct ck_layout_load *ld, const struct found *f,
		       uint32_t rule, const uint64_t *at, const char *name,
		       size_t len, struct ck_err *err)
{
	struct ck_layout_rule *r = &ld->doc.rules[rule];
	struct ck_layout_tensor *t;
	int ret = tensor_of(ld, r, name, len, &t, err);

	if (ret)
		return ret;
	if (t->rule != r)
		return ck_layout_refuse(
			ld, t, f->file, err,
			"tensors[%u] and tensors[%u] both give it",
			(unsigned)(t->rule - ld->doc.rules), rule);
	return add_piece(ld, f, t, at, NULL, err);
}

static int add_by_box(struct ck_layout_load *ld, const struct found *f,
		      struct ck_layout_box *box, struct ck_err *err)
{
	const char *name = box->rule->pattern;
	struct ck_layout_tensor *t;
	int ret = tensor_of(ld, box->rule, name, strlen(name), &t, err);

	box->seen = true;
	box->rule->hits++;
	return ret ? ret : add_piece(ld, f, t, NULL, box, err);
}

/* ---- the member of "tensors" that a key falls under ---- */

/* Coordinates that the key tells; returns 1 where it cannot be. */
static int find_coords(struct ck_layout_load *ld, const struct found *f,
		       uint32_t rule, const struct ck_layout_vars *v,
		       uint64_t *at, struct ck_err *err)
{
	const struct ck_layout_rule *r = &ld->doc.rules[rule];

	for (size_t i = 0; i < r->nr_coords; i++) {
		unsigned axis = r->coord[i].axis;
		ck_auto_str struct ck_str text = { 0 };
		struct ck_err why = { .msg = "it is out of range" };
		uint64_t n;
		int ret = ck_layout_coord(&r->coord[i], v, &text, &n, &why);

		if (ret == -ENOMEM)
			return ck_no_memory(err);
		if (ret || n >= ld->doc.mesh.axis[axis].size ||
		    (at[axis] != CK_LAYOUT_FREE && at[axis] != n))
			return ck_builder_report_file(ld->b, CK_ERROR, f->file->path, err,
				       "%.*s: tensors[%u].at.%s: %s",
				       (int)CK_MIN(f->key.len, 300), f->key.s,
				       rule, ld->doc.mesh.axis[axis].name,
				       text.v && *text.v ? text.v : why.msg) ?:
				       1;
		at[axis] = n;
	}
	return 0;
}

static int add_by_rule(struct ck_layout_load *ld, const struct found *f,
		       uint32_t rule, const struct ck_layout_vars *v,
		       const uint64_t *at, struct ck_err *err)
{
	const struct ck_layout_rule *r = &ld->doc.rules[rule];
	ck_auto_str struct ck_str name = { 0 };
	struct ck_err why;
	int ret;

	if (r->match == CK_LAYOUT_EXACT)
		return add_by_name(ld, f, rule, at, r->pattern,
				   strlen(r->pattern), err);
	if (!r->name)
		return add_by_name(ld, f, rule, at, f->key.s, f->key.len, err);
	ret = ck_layout_expand(r->name, v, &name, NULL, &why);
	if (ret == -ENOMEM)
		return ck_no_memory(err);
	if (ret)
		return ck_builder_report_file(ld->b, CK_ERROR, f->file->path,
					      err, "%.*s: tensors[%u].name: %s",
					      (int)CK_MIN(f->key.len, 300),
					      f->key.s, rule, why.msg);
	return add_by_name(ld, f, rule, at, name.v, name.len, err);
}

static int by_rules(struct ck_layout_load *ld, const struct found *f,
		    struct ck_err *err)
{
	uint64_t at[CK_LAYOUT_AXES];
	struct ck_layout_vars v = { .mesh = &ld->doc.mesh,
				    .at = at,
				    .rank = f->file->rank,
				    .key = f->key };
	uint32_t rule;
	int ret;

	memcpy(at, f->file->at, ld->doc.mesh.nr * sizeof(*at));
	if (ck_layout_index_find(&ld->index, f->key, &v, at, &rule))
		return ck_no_memory(err);
	if (rule == CK_NONE)
		return ck_builder_report_file(
			ld->b, CK_WARNING, f->file->path, err,
			"%.*s: no member of \"tensors\" matches it "
			"({\"name\": ..., \"ignore\": true} leaves it out)",
			(int)CK_MIN(f->key.len, 300), f->key.s);
	ld->doc.rules[rule].hits++;
	if (ld->doc.rules[rule].ignore)
		return 0;
	ret = find_coords(ld, f, rule, &v, at, err);
	if (ret)
		return CK_MIN(ret, 0);
	return add_by_rule(ld, f, rule, &v, at, err);
}

/* The number of a key of a file among those that boxes name. */
static int claim_of(struct ck_layout_load *ld,
		    const struct ck_layout_file *file,
		    struct ck_layout_slice key, bool keep, uint32_t *number)
{
	ck_auto_str struct ck_str id = { 0 };

	ck_str_fmt(&id, "%zu:", (size_t)(file - ld->files.v));
	ck_str_add(&id, key.s, key.len);
	if (id.failed)
		return -ENOMEM;
	*number = keep ? ck_strmap_keep(&ld->claims, &ld->mem, id.v, id.len) :
			 ck_strmap_get(&ld->claims, id.v, id.len);
	return keep && *number == CK_STRMAP_NONE ? -ENOMEM : 0;
}

static int add_key(struct ck_layout_load *ld, const struct found *f,
		   struct ck_err *err)
{
	uint32_t number = CK_STRMAP_NONE;
	struct ck_layout_box *box;
	int ret = 0;

	if (ld->claims.nr && claim_of(ld, f->file, f->key, false, &number))
		return ck_no_memory(err);
	if (number == CK_STRMAP_NONE)
		return f->file->entry == CK_NONE ? 0 : by_rules(ld, f, err);
	for (box = ld->claim.v[number]; box && !ret; box = box->next)
		ret = add_by_box(ld, f, box, err);
	return ret;
}

/* ---- before: what is looked for ---- */

static bool names_files(const struct ck_layout_rule *r)
{
	return r->boxed && (!r->nr_boxes || r->box[0].file);
}

static int index_rule(struct ck_layout_load *ld, uint32_t rule,
		      struct ck_err *err)
{
	const struct ck_layout_rule *r = &ld->doc.rules[rule];
	const struct ck_layout_vars v = { .mesh = &ld->doc.mesh };
	bool exact = r->match == CK_LAYOUT_EXACT && !r->key_uses;
	ck_auto_str struct ck_str key = { 0 };
	struct ck_err why;

	/* "{{" is a brace in "key", while a name is taken as it is */
	if (exact && r->key && ck_layout_expand(r->key, &v, &key, NULL, &why))
		return ck_fail(err, why.code, "%s: tensors[%u].key: %s",
			       ld->doc.name, rule, why.msg);
	if (exact && !r->key)
		ck_str_puts(&key, r->pattern);
	if (key.failed ||
	    !ck_layout_index_add(&ld->index, rule, key.v, key.len))
		return ck_no_memory(err);
	return 0;
}

static struct ck_layout_file *file_of(const struct ck_layout_load *ld,
				      const struct ck_layout_box *b)
{
	return &ld->files
			.v[ck_strmap_get(&ld->paths, b->file, strlen(b->file))];
}

static struct ck_layout_slice key_of(const struct ck_layout_box *b)
{
	const char *key = b->key ? b->key : b->rule->pattern;

	return (struct ck_layout_slice){ key, strlen(key) };
}

static int index_box(struct ck_layout_load *ld, struct ck_layout_box *b,
		     struct ck_err *err)
{
	uint32_t number;

	if (!b->file || b->kind == CK_LAYOUT_RAW)
		return 0;
	if (!ck_vec_reserve(&ld->claim, 1) ||
	    claim_of(ld, file_of(ld, b), key_of(b), true, &number))
		return ck_no_memory(err);
	if (number == ld->claim.nr)
		ld->claim.v[ld->claim.nr++] = NULL;
	b->next = ld->claim.v[number];
	ld->claim.v[number] = b;
	return 0;
}

/* ---- safetensors, torch.save ---- */

struct walk {
	struct ck_layout_load *ld;
	struct ck_layout_file *file;
};

static int add_found(void *ctx, const struct ck_found *k, struct ck_err *err)
{
	const struct walk *w = ctx;
	const struct found f = { .file = w->file,
				 .key = { k->name, k->len },
				 .x = k->x };
	int shown = (int)CK_MIN(k->len, 200);

	if (!k->is_tensor)
		return 0; /* a number, a text */
	if (k->x.fault)
		return ck_builder_report_file(w->ld->b, CK_ERROR, w->file->path,
					      err, "%.*s: %s", shown, k->name,
					      k->x.fault);
	return add_key(w->ld, &f, err);
}

static int read_container(struct ck_layout_load *ld, struct ck_layout_file *f,
			  struct ck_err *err)
{
	ck_auto_container struct ck_container c = { 0 };
	struct walk w = { .ld = ld, .file = f };
	struct ck_err why;
	bool ok;
	int ret = ck_container_open_as(&c, ld->dir, ld->b, f->path,
				       f->kind == CK_LAYOUT_SAFETENSORS, &ok,
				       &why, err);

	if (ret)
		return ret;
	f->src = c.t.src;
	f->missing = !c.t.s;
	f->size = c.t.s ? (uint64_t)c.t.s->st.st_size : 0;
	f->bad = !ok && !f->missing;
	if (f->bad)
		return ck_builder_report_file(ld->b, CK_ERROR, f->path, err,
					      "%s", why.msg);
	return ok ? ck_container_each(&c, ld->b, add_found, &w, err) : 0;
}

/* ---- raw ---- */

static int offset_of(const struct ck_layout_load *ld,
		     const struct ck_layout_file *f,
		     const struct ck_layout_item *it, uint64_t *out,
		     struct ck_err *err)
{
	ck_auto_str struct ck_str text = { 0 };
	const struct ck_layout_vars v = {
		.mesh = &ld->doc.mesh,
		.at = f->at,
		.rank = f->rank,
	};
	struct ck_err why;
	int ret;

	*out = it->offset;
	if (!it->offset_text)
		return 0;
	ret = ck_layout_expand(it->offset_text, &v, &text, NULL, &why);
	if (ret)
		return ck_fail(err, -ret, "%s: %s: offset of %s: %s",
			       ld->doc.name, f->path,
			       it->key ? it->key : "the file", why.msg);
	if (!ck_decimal(text.v, text.len, CK_SIZE_MAX, out))
		return ck_fail(err, EINVAL,
			       "%s: %s: offset of %s: expected a number, found "
			       "\"%.80s\"",
			       ld->doc.name, f->path,
			       it->key ? it->key : "the file", text.v);
	return 0;
}

static int read_raw(struct ck_layout_load *ld, struct ck_layout_file *file,
		    struct ck_err *err)
{
	ck_auto_source struct ck_source *s = NULL;
	const struct ck_layout_files *from = NULL;
	int ret =
		ck_dir_source(ld->dir, ld->b, file->path, &file->src, &s, err);

	if (ret)
		return ret;
	file->missing = !s;
	file->size = s ? (uint64_t)s->st.st_size : 0;
	if (file->entry != CK_NONE)
		from = &ld->doc.files[file->entry];
	for (size_t i = 0; from && i < from->nr_items && !ret; i++) {
		const struct ck_layout_item *it = &from->item[i];
		struct found f = {
			.file = file,
			.key = file->key,
			.x = { .shape = it->shape.v,
			       .dtype = it->dtype,
			       .rank = (uint8_t)it->shape.rank },
			.whole = !it->key,
		};

		if (it->key)
			f.key = (struct ck_layout_slice){ it->key,
							  strlen(it->key) };
		ret = offset_of(ld, file, it, &f.x.off, err);
		if (!ret)
			ret = add_key(ld, &f, err);
	}
	return ret;
}

/* ---- boxes that name files ---- */

/* Of a raw file, or of one that is missing, nobody can be asked. */
static int add_unseen_box(struct ck_layout_load *ld, struct ck_layout_box *b,
			  struct ck_err *err)
{
	const struct ck_layout_file *file;
	const char *name = b->rule->pattern;
	struct found f;

	if (!b->file || b->seen)
		return 0;
	file = file_of(ld, b);
	f = (struct found){
		.file = file,
		.key = { name, strlen(name) },
		.x = { .off = b->off,
		       .dtype = b->rule->dtype,
		       .xform = b->xform },
	};
	if (b->kind == CK_LAYOUT_RAW || file->missing)
		return add_by_box(ld, &f, b, err);
	b->rule->hits++; /* said here, or of the file as a whole */
	if (file->bad)
		return 0;
	return ck_builder_report_file(ld->b, CK_ERROR, b->file, err,
				      "%s: expected in it, not found",
				      b->key ? b->key : name);
}

int ck_layout_read_keys(struct ck_layout_load *ld, struct ck_err *err)
{
	const struct ck_layout_doc *d = &ld->doc;
	int ret = 0;

	for (size_t i = 0; i < d->nr_rules; i++)
		for (size_t k = 0; k < d->rules[i].nr_boxes && !ret; k++)
			ret = index_box(ld, &d->rules[i].box[k], err);
	for (uint32_t i = 0; i < d->nr_rules && !ret; i++)
		if (!names_files(&d->rules[i]))
			ret = index_rule(ld, i, err);
	for (size_t i = 0; i < ld->files.nr && !ret; i++) {
		struct ck_layout_file *f = &ld->files.v[i];

		if (!f->pattern)
			ret = f->kind == CK_LAYOUT_RAW ?
				      read_raw(ld, f, err) :
				      read_container(ld, f, err);
	}
	for (size_t i = 0; i < d->nr_rules; i++)
		for (size_t k = 0; k < d->rules[i].nr_boxes && !ret; k++)
			ret = add_unseen_box(ld, &d->rules[i].box[k], err);
	return ret;
}
