/* SPDX-License-Identifier: Apache-2.0 */
/*
 * join.c - the saves of all ranks, joined as the SBP given says
 */
#include "core/format/oneflow/oneflow.h"

#include "core/base/auto.h"
#include "core/base/check.h"
#include "core/geom/dtype.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* The tensor at hand: how it lies on the mesh, and what is there of it. */
struct oneflow_place {
	struct ck_placement p;
	const struct ck_asm_piece **at; /* of each place, or NULL */
	uint32_t *first; /* by part: the first place that has it; or NONE */
	const struct ck_asm_piece *last; /* that was placed */
};

#define NONE UINT32_MAX

static bool several(const struct oneflow_load *ld)
{
	return ld->sbp || ld->nr_saves > 1;
}

/* ---- pieces ---- */

/* It is refused for that; the first reason counts. */
static int set_fault(struct oneflow_load *ld, struct ck_asm_tensor *t,
		     uint32_t file, const char *why, struct ck_err *err)
{
	if (t->fault)
		return 0;
	t->fault = several(ld) ? ck_arena_fmt(&ld->a.mem, "%s: %s",
					      ld->a.files.v[file].who, why) :
				 ck_arena_fmt(&ld->a.mem, "%s", why);
	return t->fault ? 0 : ck_no_memory(err);
}

static const char *fault_of(const struct oneflow_load *ld,
			    const struct ck_asm_tensor *t, uint32_t file,
			    const struct ck_extent *x)
{
	const struct ck_asm_piece *v = ld->a.pieces.v;

	if (x->fault || t->first == CK_NONE)
		return x->fault;
	if (v[t->last].file == file)
		return "two tensors have this name";
	return v[t->first].x.rank == x->rank ?
		       NULL :
		       "it has not as many dimensions as in the ranks before";
}

static int add_path(struct oneflow_load *ld, const struct oneflow_leaf *leaf,
		    struct ck_err *err)
{
	return leaf->path ?
		       ck_builder_path(ld->a.b, 0, leaf->name, leaf->name_len,
				       leaf->path, leaf->depth, err) :
		       0;
}

int ck_oneflow_tensor(struct oneflow_load *ld, uint32_t file,
		      const struct oneflow_leaf *leaf, struct ck_err *err)
{
	struct ck_asm *a = &ld->a;
	size_t before = a->tensors.nr;
	struct ck_asm_tensor *t =
		ck_asm_tensor(a, 0, leaf->name, leaf->name_len);
	const char *fault;
	int ret;

	if (!t)
		return ck_no_memory(err);
	ret = a->tensors.nr > before ? add_path(ld, leaf, err) : 0;
	if (ret)
		return ret;
	fault = fault_of(ld, t, file, &leaf->x);
	if (fault)
		return set_fault(ld, t, file, fault, err);
	ret = ck_asm_give(a, t, file, &leaf->x, err);
	if (ret)
		return ret;
	a->pieces.v[t->last].whole = leaf->whole;
	return several(ld) ?
		       ck_builder_unlabelled_rank(a->b, leaf->x.src,
						  a->files.v[file].name, err) :
		       0;
}

/* Ranks need not agree on what is no tensor: the first one's is shown. */
int ck_oneflow_object(struct oneflow_load *ld, const struct oneflow_leaf *leaf,
		      struct ck_err *err)
{
	const struct ck_object_in o = { .name = leaf->name,
					.name_len = leaf->name_len,
					.src = leaf->x.src,
					.enc = CK_ENC_PICKLE,
					.len = leaf->len };
	size_t before = ld->objects.nr;
	int ret = 0;

	if (leaf->foreign)
		ret = ck_builder_report_tensor(ld->a.b, CK_WARNING, leaf->name,
					       leaf->name_len, NULL, err,
					       "it calls %s, which is not run; "
					       "shown as stored",
					       leaf->foreign);
	if (ret)
		return ret;
	if (ck_strmap_keep(&ld->objects, &ld->a.mem, leaf->name,
			   leaf->name_len) == CK_STRMAP_NONE)
		return ck_no_memory(err);
	if (ld->objects.nr == before)
		return 0;
	ret = ck_builder_object(ld->a.b, &o, err);
	return ret ? ret : add_path(ld, leaf, err);
}

int ck_oneflow_read(struct oneflow_load *ld, uint32_t rank, const char *path,
		    struct ck_err *err)
{
	uint32_t file = ck_asm_file(&ld->a, path, rank);
	struct ck_err why = { 0 };
	const char *who = ck_arena_fmt(&ld->a.mem, "rank %" PRIu32, rank);
	int ret;

	if (file == CK_NONE || !who)
		return ck_no_memory(err);
	ld->a.files.v[file].who = who;
	ret = ck_oneflow_save_read(ld, file, path, &why);
	if (ret == -EINVAL && several(ld))
		return ck_builder_report_file(ld->a.b, CK_ERROR, path, err,
					      "%s: %s", who, why.msg);
	return ret ? ck_fail(err, -ret, "%s", why.msg) : 0;
}

/* ---- where they belong ---- */

static const char *who_at(const struct oneflow_place *o, const struct ck_asm *a,
			  uint32_t at)
{
	return ck_asm_who(a, o->at[at]);
}

static void end_place(struct oneflow_place *o)
{
	free(o->at);
	free(o->first);
	*o = (struct oneflow_place){ 0 };
}

static int begin_place(struct oneflow_load *ld, const struct ck_asm_tensor *t,
		       struct ck_err *why)
{
	struct oneflow_place *o = ld->place;
	const struct ck_sbp_rule *rule =
		ld->sbp ? ck_sbp_rule(&ld->sbp->by, t->name, t->len) : NULL;

	end_place(o);
	if (rule)
		ck_sbp_placement(rule, &o->p);
	else if (ld->sbp)
		return ck_fail(why, EINVAL, "no rule of -o sbp= fits its name");
	else
		ck_mesh_add_axis(&o->p.mesh, ld->nr_saves, UINT32_MAX);
	o->at = calloc(o->p.mesh.ranks, sizeof(*o->at));
	o->first = calloc(o->p.mesh.ranks, sizeof(*o->first));
	return o->at && o->first ? 0 : ck_no_memory(why);
}

/* A rank outside of the placement may have kept a stand-in: all zeros. */
static bool is_stand_in(const struct ck_asm_piece *p)
{
	for (unsigned d = 0; d < p->x.rank; d++)
		if (p->x.shape[d])
			return false;
	return p->x.rank > 0;
}

/* The step that cuts along @axis, or NULL. */
static const struct ck_mesh_step *step_of(const struct ck_placement *p,
					  unsigned axis)
{
	for (unsigned i = 0; i < p->nr; i++)
		if (p->step[i].axis[0] == axis)
			return &p->step[i];
	return NULL;
}

static int check_sbp(const struct ck_placement *p, unsigned rank,
		     struct ck_err *why)
{
	for (unsigned a = 0; a < p->mesh.nr; a++) {
		const struct ck_mesh_step *s = step_of(p, a);

		if (p->partial >> a & 1 && p->mesh.size[a] > 1)
			return ck_fail(why, EINVAL,
				       "it is partial_sum over %" PRIu32
				       " ranks: it is stored nowhere but as "
				       "terms of a sum",
				       p->mesh.size[a]);
		if (s && s->dim >= rank)
			return ck_fail(why, EINVAL,
				       "split(%d), where it has %u dimensions",
				       s->dim, rank);
	}
	return 0;
}

/* For each part of @dim, or of the tensor: the first place that is there. */
static uint32_t find_first(struct oneflow_place *o, int dim)
{
	uint32_t nr = 1;

	memset(o->first, 0xff, o->p.mesh.ranks * sizeof(*o->first));
	for (uint32_t at = o->p.mesh.ranks; at-- > 0;) {
		uint32_t part = ck_placement_part(&o->p, dim, at, &nr);

		if (o->at[at])
			o->first[part] = at;
	}
	return nr;
}

/* Whether every part is held by some rank. */
static int check_held(struct oneflow_place *o, unsigned rank,
		      struct ck_err *why)
{
	uint32_t nr;
	int ret = check_sbp(&o->p, rank, why);

	find_first(o, -1);
	for (uint32_t at = 0; !ret && at < o->p.mesh.ranks; at++)
		if (o->first[ck_placement_part(&o->p, -1, at, &nr)] == NONE)
			return ck_fail(why, EINVAL,
				       "rank %" PRIu32 ": it is missing",
				       ck_mesh_rank_at(&o->p.mesh, at));
	return ret;
}

static int take_piece(struct ck_asm_join *j, struct ck_asm_piece *p,
		      struct ck_err *why)
{
	struct oneflow_load *ld = j->a->ctx;
	struct oneflow_place *o = ld->place;
	uint32_t rank = (uint32_t)j->a->files.v[p->file].rank, at;
	int ret = 0;

	if (p == &j->a->pieces.v[j->t->first])
		ret = begin_place(ld, j->t, why);
	if (ret)
		return ret;
	p->left_out = !ck_mesh_find(&o->p.mesh, rank, &at);
	if (p->left_out && !is_stand_in(p))
		return ck_fail(why, EINVAL,
			       "rank %" PRIu32 " holds a part of it, and is "
			       "not in the placement given",
			       rank);
	if (p->left_out) /* of the last one they may all be */
		return p->next != CK_NONE || o->last ?
			       0 :
			       check_held(o, p->x.rank, why);
	if (o->last && o->last->x.dtype != p->x.dtype)
		return ck_fail(why, EINVAL, "%s has %s, %s %s",
			       ck_asm_who(j->a, o->last),
			       ck_dtype_info(o->last->x.dtype)->name,
			       ck_asm_who(j->a, p),
			       ck_dtype_info(p->x.dtype)->name);
	p->user = at;
	o->last = o->at[at] = p;
	return 0;
}

/* The extent of @dim: that of its parts, one after the other. */
static int find_extent(struct ck_asm_join *j, struct oneflow_place *o,
		       unsigned dim, struct ck_err *why)
{
	uint32_t nr = find_first(o, (int)dim);

	j->shape[dim] = 0;
	for (uint32_t i = 0; i < nr; i++)
		if (!ck_add_ok(j->shape[dim], o->at[o->first[i]]->x.shape[dim],
			       &j->shape[dim]))
			return ck_fail(why, EINVAL,
				       "%s: dimension %u overflows with it",
				       who_at(o, j->a, o->first[i]), dim);
	return 0;
}

static int check_share(struct ck_asm_join *j, const struct oneflow_place *o,
		       uint32_t at, struct ck_err *why)
{
	const uint64_t *have = o->at[at]->x.shape;
	struct ck_shard s;
	bool zeros;
	int ret =
		ck_placement_at(&o->p, at, j->shape, j->rank, &s, &zeros, why);

	for (unsigned d = 0; d < j->rank && !ret; d++)
		if (have[d] != s.box.len[d])
			return ck_fail(why, EINVAL,
				       "%s: it has %" PRIu64
				       " rows of dimension %u, where %" PRIu64
				       " of %" PRIu64 " are its share",
				       who_at(o, j->a, at), have[d], d,
				       s.box.len[d], j->shape[d]);
	return ret;
}

static int find_shape(struct ck_asm_join *j, struct ck_err *why)
{
	const struct oneflow_load *ld = j->a->ctx;
	struct oneflow_place *o = ld->place;
	int ret = check_held(o, j->rank, why);

	j->placed = ld->sbp;
	for (unsigned d = 0; !ret && d < j->rank; d++)
		ret = find_extent(j, o, d, why);
	for (uint32_t at = 0; !ret && at < o->p.mesh.ranks; at++)
		if (o->at[at])
			ret = check_share(j, o, at, why);
	return ret;
}

static int place_piece(struct ck_asm_join *j, const struct ck_asm_piece *p,
		       unsigned n, struct ck_part *part, struct ck_err *why)
{
	const struct oneflow_load *ld = j->a->ctx;
	struct ck_shard s;
	bool zeros;
	int ret = ck_placement_at(&ld->place->p, (uint32_t)p->user, j->shape,
				  j->rank, &s, &zeros, why);

	return ret ? ret : ck_asm_place_shard(j, &s, &p->x, n, part);
}

static const struct ck_asm_reader reader = {
	.words = {
		[CK_ASM_COPIES] = "its copies differ between {file} and "
				  "{other}, first at byte {byte} (unshard "
				  "heal)",
		[CK_ASM_UNPLACED] = "its copies differ between {file} and "
				    "{other}, first at byte {byte}, or are "
				    "parts: -o sbp= says which",
		[CK_ASM_UNREAD] = "each file has one, too large to compare: "
				  "give one file",
	},
	.piece = take_piece,
	.shape = find_shape,
	.place = place_piece,
};

void ck_oneflow_begin(struct oneflow_load *ld, const struct ck_dir *dir,
		      struct ck_builder *b)
{
	*ld = (struct oneflow_load){
		.a = { .dir = dir, .b = b, .how = &reader, .ctx = ld },
	};
}

void ck_oneflow_end(struct oneflow_load *ld)
{
	ck_strmap_free(&ld->objects);
	ck_asm_free(&ld->a);
}

int ck_oneflow_join(struct oneflow_load *ld, struct ck_err *err)
{
	struct oneflow_place place = { 0 };
	int ret;

	ld->place = &place;
	ret = ck_asm_join(&ld->a, err);
	end_place(&place);
	return ret;
}
