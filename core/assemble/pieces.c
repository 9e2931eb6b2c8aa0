/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pieces.c - the tables of files, tensors and pieces, and what fills them
 */
#include "core/assemble/assemble.h"

#include "core/base/suffix.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void ck_asm_free(struct ck_asm *a)
{
	free(a->files.v);
	free(a->tensors.v);
	free(a->pieces.v);
	free(a->aliases.v);
	ck_strmap_free(&a->names);
	ck_strmap_free(&a->paths);
	ck_arena_free(&a->mem);
}

const char *ck_asm_who(const struct ck_asm *a, const struct ck_asm_piece *p)
{
	return a->files.v[p->file].who;
}

uint32_t ck_asm_file(struct ck_asm *a, const char *name, uint64_t rank)
{
	uint32_t at = ck_strmap_keep(&a->paths, &a->mem, name, strlen(name));
	struct ck_asm_file *f;

	if (at < a->files.nr || at == CK_STRMAP_NONE)
		return at;
	f = ck_vec_push(&a->files);
	if (!f)
		return CK_NONE;
	name = a->paths.v[at].s;
	*f = (struct ck_asm_file){ .name = name, .who = name, .rank = rank };
	return at;
}

/* A name of another tree than the first has the tree's number before it. */
static uint32_t number_of(struct ck_asm *a, uint32_t tree, const char *name,
			  size_t len)
{
	ck_auto_str struct ck_str full = { 0 };

	if (!tree)
		return ck_strmap_keep(&a->names, &a->mem, name, len);
	ck_str_add(&full, "", 1);
	ck_str_add(&full, &tree, sizeof(tree));
	ck_str_add(&full, name, len);
	return full.failed ?
		       CK_STRMAP_NONE :
		       ck_strmap_keep(&a->names, &a->mem, full.v, full.len);
}

struct ck_asm_tensor *ck_asm_tensor(struct ck_asm *a, uint32_t tree,
				    const char *name, size_t len)
{
	uint32_t at = number_of(a, tree, name, len);
	const struct ck_strmap_key *key;
	struct ck_asm_tensor *t;

	if (at == CK_STRMAP_NONE)
		return NULL;
	if (at < a->tensors.nr)
		return &a->tensors.v[at];
	t = ck_vec_push(&a->tensors);
	if (!t)
		return NULL;
	key = &a->names.v[at];
	*t = (struct ck_asm_tensor){ .name = key->s + (key->len - len),
				     .len = len,
				     .tree = tree,
				     .first = CK_NONE,
				     .last = CK_NONE,
				     .hint = CK_NONE,
				     .alias = CK_NONE };
	return t;
}

struct ck_asm_piece *ck_asm_piece(struct ck_asm *a, struct ck_asm_tensor *t,
				  uint32_t file)
{
	uint32_t at = (uint32_t)a->pieces.nr;
	struct ck_asm_piece *p;

	if (at >= CK_MAX_CHUNKS)
		return NULL;
	p = ck_vec_push(&a->pieces);
	if (!p)
		return NULL;
	*p = (struct ck_asm_piece){ .file = file, .next = CK_NONE };
	if (t->first == CK_NONE)
		t->first = at;
	else
		a->pieces.v[t->last].next = at;
	t->last = at;
	return p;
}

static const void *keep(struct ck_asm *a, const void *v, unsigned rank)
{
	return ck_arena_copy(&a->mem, v, rank * sizeof(uint64_t));
}

int ck_asm_declare(struct ck_asm *a, struct ck_asm_tensor *t, uint8_t dtype,
		   const uint64_t *shape, unsigned rank)
{
	if (t->shape)
		return 0;
	t->shape = keep(a, shape, rank);
	t->dtype = dtype;
	t->rank = (uint8_t)rank;
	return a->mem.failed ? -ENOMEM : 0;
}

int ck_asm_refuse(struct ck_asm *a, struct ck_asm_tensor *t, struct ck_err *err,
		  const char *fmt, ...)
{
	char why[CK_ERR_MAX];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(why, sizeof(why), fmt, ap);
	va_end(ap);
	if (!t->fault)
		t->fault = ck_arena_copy(&a->mem, why, strlen(why));
	return t->fault ? 0 : ck_no_memory(err);
}

int ck_asm_failed(struct ck_asm *a, struct ck_asm_tensor *t, int ret,
		  const struct ck_err *why, struct ck_err *err)
{
	return ret == -EINVAL ? ck_asm_refuse(a, t, err, "%s", why->msg) :
				ck_fail(err, -ret, "%s", why->msg);
}

const struct ck_asm_box *ck_asm_box(struct ck_asm *a, const uint64_t *start,
				    const uint64_t *len, const uint64_t *shape,
				    unsigned rank)
{
	static const uint64_t zeros[CK_MAX_RANK];
	struct ck_asm_box *box = ck_arena_alloc(&a->mem, sizeof(*box));

	if (!box)
		return NULL;
	*box = (struct ck_asm_box){ .start = keep(a, start ? start : zeros,
						  rank),
				    .len = keep(a, len, rank),
				    .shape = keep(a, shape, rank),
				    .rank = rank };
	return a->mem.failed ? NULL : box;
}

int ck_asm_set_box(struct ck_asm *a, struct ck_asm_piece *p,
		   const uint64_t *start, const uint64_t *len,
		   const uint64_t *shape, unsigned rank)
{
	p->box = ck_asm_box(a, start, len, shape, rank);
	return p->box ? 0 : -ENOMEM;
}

int ck_asm_set_extent(struct ck_asm *a, struct ck_asm_piece *p,
		      const struct ck_extent *x)
{
	p->x = *x;
	p->stored = true;
	if (x->shape)
		p->x.shape = keep(a, x->shape, x->rank);
	if (x->stride)
		p->x.stride = keep(a, x->stride, x->rank);
	if (x->fault)
		p->x.fault = ck_arena_copy(&a->mem, x->fault, strlen(x->fault));
	return a->mem.failed ? -ENOMEM : 0;
}

/*
 * The record of the tensor in that file that is not stored yet.  Files come in
 * about the order of their records, so it is often the one after the last.
 */
static struct ck_asm_piece *find_record(struct ck_asm *a,
					struct ck_asm_tensor *t, uint32_t file)
{
	uint32_t from =
		t->hint == CK_NONE ? t->first : a->pieces.v[t->hint].next;

	for (int pass = 0; pass < 2; pass++, from = t->first)
		for (uint32_t i = from; i != CK_NONE; i = a->pieces.v[i].next)
			if (a->pieces.v[i].file == file &&
			    !a->pieces.v[i].stored) {
				t->hint = i;
				return &a->pieces.v[i];
			}
	return NULL;
}

int ck_asm_give(struct ck_asm *a, struct ck_asm_tensor *t, uint32_t file,
		const struct ck_extent *x, struct ck_err *err)
{
	struct ck_asm_piece *p = NULL;

	/* records are read first: if the first piece has none, none has */
	if (t->first != CK_NONE && a->pieces.v[t->first].box)
		p = find_record(a, t, file);
	if (!p)
		p = ck_asm_piece(a, t, file);
	return p && !ck_asm_set_extent(a, p, x) ? 0 : ck_no_memory(err);
}

/* ---- their order ---- */

struct sorted {
	const struct ck_asm_piece *p;
	uint64_t rank;
};

static int by_numbers(const uint64_t *a, const uint64_t *b, unsigned nr)
{
	for (unsigned i = 0; i < nr; i++)
		if (a[i] != b[i])
			return a[i] < b[i] ? -1 : 1;
	return 0;
}

static int by_box(const struct ck_asm_box *a, const struct ck_asm_box *b)
{
	int way = (int)a->rank - (int)b->rank;

	way = way ? way : by_numbers(a->shape, b->shape, a->rank);
	way = way ? way : by_numbers(a->start, b->start, a->rank);
	return way ? way : by_numbers(a->len, b->len, a->rank);
}

static int by_place(const void *pa, const void *pb)
{
	const struct sorted *a = pa, *b = pb;
	int way = a->p->box && b->p->box ? by_box(a->p->box, b->p->box) : 0;

	way = way ? way : by_numbers(a->p->flat, b->p->flat, 1);
	way = way ? way : by_numbers(&a->rank, &b->rank, 1);
	return way ? way : (a->p > b->p) - (a->p < b->p);
}

/* @v has room for all pieces that there are. */
static void sort_tensor(struct ck_asm *a, struct ck_asm_tensor *t,
			struct sorted *v)
{
	uint32_t nr = 0, *last = &t->first;
	struct ck_asm_piece *p;

	ck_asm_each_piece(p, a, t)
	{
		v[nr++] = (struct sorted){ p, a->files.v[p->file].rank };
	}
	if (nr)
		qsort(v, nr, sizeof(*v), by_place);
	for (uint32_t i = 0; i < nr; i++) {
		*last = t->last = (uint32_t)(v[i].p - a->pieces.v);
		last = &a->pieces.v[t->last].next;
	}
	*last = CK_NONE;
	t->hint = CK_NONE;
}

int ck_asm_sort(struct ck_asm *a)
{
	struct sorted *v = calloc(a->pieces.nr + 1, sizeof(*v));

	for (size_t i = 0; v && i < a->tensors.nr; i++)
		sort_tensor(a, &a->tensors.v[i], v);
	free(v);
	return v ? 0 : -ENOMEM;
}

int ck_asm_add_alias(struct ck_asm *a, struct ck_asm_tensor *t,
		     const char *name, size_t len)
{
	uint32_t at = (uint32_t)a->aliases.nr, *last = &t->alias;
	struct ck_asm_alias *to = ck_vec_push(&a->aliases);

	if (!to)
		return -ENOMEM;
	*to = (struct ck_asm_alias){ ck_arena_copy(&a->mem, name, len), len,
				     CK_NONE };
	while (*last != CK_NONE)
		last = &a->aliases.v[*last].next;
	*last = at;
	return to->name ? 0 : -ENOMEM;
}

/* ---- files ---- */

struct reading {
	struct ck_asm *a;
	uint32_t file;
};

static int take(void *ctx, const struct ck_found *f, struct ck_err *err)
{
	const struct reading *r = ctx;
	struct ck_asm_tensor *t;

	if (r->a->how->key)
		return r->a->how->key(r->a, r->file, f, err);
	if (!f->is_tensor)
		return 0;
	t = ck_asm_tensor(r->a, 0, f->name, f->len);
	return t ? ck_asm_give(r->a, t, r->file, &f->x, err) :
		   ck_no_memory(err);
}

int ck_asm_read(struct ck_asm *a, uint32_t file, struct ck_err *err)
{
	struct reading r = { .a = a, .file = file };
	struct ck_asm_file *f = &a->files.v[file];
	ck_auto_container struct ck_container c;
	struct ck_err why;
	bool is_st = a->how->is_st || ck_has_suffix(f->name, ".safetensors");
	int ret = ck_container_open_as(&c, a->dir, a->b, f->name, is_st,
				       &f->usable, &why, err);

	f->present = c.t.s;
	f->src = c.t.src;
	if (ret || !f->present)
		return ret;
	if (f->usable && a->how->opened) {
		ret = a->how->opened(a, file, &c, &why, err);
		f = &a->files.v[file];
		f->usable = !ret;
	}
	if (!f->usable && why.code && (!ret || ret == -EINVAL))
		return ck_builder_report_file(a->b, CK_ERROR, f->name, err,
					      "%s", why.msg);
	return ret ? ret : ck_container_each(&c, a->b, take, &r, err);
}
