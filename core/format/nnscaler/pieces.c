/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pieces.c - from the pieces of all ranks to the parts of each tensor
 *
 * Pieces of one box are copies of each other, wholly or, where ranks share it
 * out, in stretches.  Small copies tell files that are of another save; what is
 * larger is left to "unshard verify --replicas".
 */
#include "core/format/nnscaler/nnscaler.h"

#include "core/audit/replicas.h"
#include "core/base/auto.h"
#include "core/base/check.h"
#include "core/geom/range.h"
#include "core/optim/groups.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* ---- names ---- */

struct ck_str *ck_nnscaler_text(struct nnscaler *n, const char *begin)
{
	n->text.len = 0;
	ck_str_puts(&n->text, begin);
	return &n->text;
}

struct ck_str *ck_nnscaler_below(struct nnscaler *n, const char *begin,
				 const char *prefix, size_t prefix_len,
				 const char *name, size_t len)
{
	struct ck_str *text = ck_nnscaler_text(n, begin);

	ck_str_add(text, prefix, prefix_len);
	ck_str_puts(text, prefix_len ? "." : "");
	ck_str_add(text, name, len);
	return text;
}

struct nnscaler_name *ck_nnscaler_name(struct nnscaler *n)
{
	struct nnscaler_name *name, **to;
	uint32_t at = CK_STRMAP_NONE;

	if (!n->text.failed)
		at = ck_strmap_keep(&n->map, &n->a.mem, n->text.v, n->text.len);
	if (at < n->names.nr)
		return n->names.v[at];
	name = ck_arena_alloc(&n->a.mem, sizeof(*name));
	to = at == CK_STRMAP_NONE || !name ? NULL : ck_vec_push(&n->names);
	if (!to) {
		n->a.mem.failed = true;
		n->none = (struct nnscaler_name){ .s = "model.", .len = 6 };
		return &n->none;
	}
	name->s = n->map.v[at].s;
	name->len = n->map.v[at].len;
	name->nr = at;
	return *to = name;
}

/* ---- pieces ---- */

static bool add_piece(struct nnscaler *n, const struct nnscaler_piece *p)
{
	struct ck_asm *a = &n->a;
	struct ck_asm_tensor *t = ck_asm_tensor(a, 0, p->name->s, p->name->len);
	uint64_t nr = p->hi - p->lo;
	struct ck_extent x = p->x;
	struct ck_asm_piece *to;

	if (!t)
		return false;
	if (t->first == CK_NONE) {
		t->user = n->shown.nr;
		if (!ck_vec_reserve(&n->shown, 1))
			return false;
		n->shown.v[n->shown.nr++] = p->shown;
	}
	p->name->tensor = (uint32_t)(t - a->tensors.v) + 1;
	to = ck_asm_piece(a, t, n->ranks.v[p->rank].at);
	if (!to)
		return false;
	to->box =
		p->box ? p->box : ck_asm_box(a, NULL, x.shape, x.shape, x.rank);
	to->is_flat = p->flat;
	to->flat[0] = p->lo;
	to->flat[1] = p->hi;
	if (p->flat) {
		x.shape = &nr;
		x.rank = 1;
	}
	return to->box && (p->absent || !ck_asm_set_extent(a, to, &x));
}

void ck_nnscaler_piece(struct nnscaler *n, const struct nnscaler_piece *p)
{
	if (!add_piece(n, p))
		n->a.mem.failed = true;
}

void ck_nnscaler_forget(struct nnscaler *n, uint32_t rank)
{
	for (size_t i = 0; i < n->a.pieces.nr; i++) {
		struct ck_asm_piece *p = &n->a.pieces.v[i];

		p->left_out |= n->a.files.v[p->file].rank == rank;
	}
}

bool ck_nnscaler_is_held(const struct nnscaler *n,
			 const struct nnscaler_name *name)
{
	const struct ck_asm_piece *p;

	if (!name->tensor)
		return false;
	ck_asm_each_piece(p, &n->a, &n->a.tensors.v[name->tensor - 1])
	{
		if (!p->left_out)
			return true;
	}
	return false;
}

/* ---- votes ---- */

/* Of weights that are more than a number. */
static int count_copies(struct ck_asm *a, const struct ck_asm_tensor *t,
			const uint32_t *piece, size_t nr, struct ck_err *err)
{
	const struct nnscaler *n = a->ctx;
	ck_auto_audit_pieces struct ck_audit_pieces rows = { 0 };
	uint64_t bytes;

	if (!n->shown.v[t->user].weight ||
	    !ck_extent_bytes(&a->pieces.v[piece[0]].x, &bytes) || bytes <= 8)
		return 0;
	for (size_t i = 0; i < nr; i++) {
		const struct ck_asm_piece *p = &a->pieces.v[piece[i]];
		const struct ck_audit_piece row = {
			.like = p->like,
			.file = (uint32_t)a->files.v[p->file].rank,
		};

		if (!ck_audit_pieces_add(&rows, &row))
			return ck_no_memory(err);
	}
	ck_audit_count_odd(&rows, n->odd);
	return 0;
}

/* A file of whose copies most differ cannot be of this save. */
static int drop_strangers(struct nnscaler *n, struct ck_err *err)
{
	int ret = 0;

	for (uint32_t i = 0; i < n->ranks.nr && !ret; i++) {
		const struct ck_audit_odd *v = &n->odd[i];
		const struct ck_problem_in p = { .severity = CK_ERROR,
						 .file = n->ranks.v[i].file };

		if (v->odd < 2 || 2 * v->odd < v->compared)
			continue;
		if (2 * v->lonely >= v->odd)
			return ck_fail(
				err, EINVAL,
				"%s: %u of the %u copies of weights in %s differ from those of other ranks: these files are not of one save",
				n->a.dir->path, v->odd, v->compared, p.file);
		ck_nnscaler_forget(n, i);
		ret = ck_builder_problem(
			n->a.b, &p, err,
			"%u of its %u copies of weights differ from those of other ranks: it is of another save, and left aside",
			v->odd, v->compared);
	}
	return ret;
}

/* With any copy they are not compared: all of them may be what broke off. */
static int compare(struct nnscaler *n, struct ck_err *err)
{
	int ret;

	if (ck_dir_any_copy(n->a.dir))
		return 0;
	n->odd = ck_arena_alloc(&n->a.mem, n->ranks.nr * sizeof(*n->odd));
	if (!n->odd)
		return ck_no_memory(err);
	ret = ck_asm_compare(&n->a, count_copies, err);
	return ret ? ret : drop_strangers(n, err);
}

/* ---- parts ---- */

static int place(struct ck_asm_join *j, const struct ck_asm_piece *p,
		 unsigned n, struct ck_part *part, struct ck_err *why)
{
	uint64_t volume = 0;

	(void)j;
	(void)n;
	(void)why;
	part->rank = p->box->rank;
	part->shape = p->box->shape;
	ck_dims_volume(p->box->len, p->box->rank, &volume);
	if (p->is_flat && !p->flat[0] && p->flat[1] == volume)
		part->flat = NULL;
	return 0;
}

/* The way in the saved structure: model/NAME, optimizer/NAME/STATE. */
static int add_path(struct ck_asm_join *j, struct ck_err *err)
{
	const struct nnscaler *n = j->a->ctx;
	const struct ck_asm_tensor *name = j->t;
	const struct nnscaler_shown *p = &n->shown.v[name->user];
	const struct ck_optim_groups g = { .b = n->a.b, .dict = "optimizer" };
	const struct nnscaler_name *state = p->state;
	size_t skip = !state ? 6 : p->raw ? 0 : 10;
	size_t len = name->len - skip - (state ? state->len + 1 : 0);
	const struct ck_path_part parts[] = {
		{ state ? "optimizer" : "model", state ? 9 : 5, -1 },
		{ name->name + skip, len, -1 },
		{ state ? state->s : NULL, state ? state->len : 0, -1 },
	};
	int64_t nr = -1;
	uint32_t at;

	if (state && n->numbered && n->merged) {
		nr = p->id;
	} else if (state && n->numbered) {
		at = ck_strmap_get(&n->numbers, name->name + skip, len);
		nr = at == CK_STRMAP_NONE ? -1 : (int64_t)at;
	}
	if (nr >= 0)
		return ck_optim_state_path(&g, name->name, name->len,
					   (uint64_t)nr, state->s, state->len,
					   err);
	return ck_builder_path(n->a.b, 0, name->name, name->len, parts,
			       state ? 3 : 2, err);
}

static const struct ck_asm_reader reader = {
	.words = { [CK_ASM_COPIES] = "its copies in {last} and {other} differ "
				     "(unshard heal)" },
	.likes = true,
	.cuts_stretches = true,
	.place = place,
	.note = add_path,
};

/* ---- tied names ---- */

/* Gives the pieces of @name to the names tied with it that have none. */
static int lend_to_ties(struct nnscaler *n, const struct nnscaler_name *name)
{
	const struct nnscaler_tie *tie = name->tie;
	const struct nnscaler_name *lender = name;
	int ret = 0;

	for (size_t i = 0; tie && i < tie->nr; i++)
		if (tie->names[i]->held && tie->names[i]->nr < lender->nr)
			lender = tie->names[i];
	for (size_t i = 0; tie && i < tie->nr && lender == name && !ret; i++)
		if (!tie->names[i]->held)
			ret = ck_asm_add_alias(
				&n->a, &n->a.tensors.v[name->tensor - 1],
				tie->names[i]->s, tie->names[i]->len);
	return ret;
}

int ck_nnscaler_add_pieces(struct nnscaler *n, struct ck_err *err)
{
	int ret;

	n->a.how = &reader;
	n->a.ctx = n;
	ret = ck_asm_sort(&n->a) ? ck_no_memory(err) : compare(n, err);
	for (size_t i = 0; i < n->names.nr; i++)
		n->names.v[i]->held = ck_nnscaler_is_held(n, n->names.v[i]);
	for (size_t i = 0; i < n->names.nr && !ret; i++)
		if (n->names.v[i]->held)
			ret = lend_to_ties(n, n->names.v[i]);
	if (ret == -ENOMEM)
		return ck_no_memory(err);
	return ret ? ret : ck_asm_join(&n->a, err);
}
