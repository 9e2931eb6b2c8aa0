/* SPDX-License-Identifier: Apache-2.0 */
/*
 * dist.c - which keys of the weight files are which tensor, and where they
 * belong by the records
 */
#include "core/format/colossalai/colossalai.h"

#include "core/assemble/pattern.h"
#include "core/base/check.h"
#include "core/mesh/names.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

struct dist {
	struct ck_asm a;
	struct colossalai_fused fused;
	/* of the tensor at hand: the last piece with rows of padding; or NULL */
	const struct ck_asm_piece *padded;
};

static const struct ck_pattern metas[] = {
	{ "pytorch_model-meta-dist-#*.json", 0 },
};

/* The stem may have -dist- in it, too. */
static const struct ck_pattern weights[] = {
	{ "*-dist-#.bin", 0 },
	{ "*-dist-#-shard-*.bin", 0 },
	{ "*-dist-#.*.bin", 0 },
	{ "*-dist-#.safetensors", 0 },
	{ "*-dist-#-shard-*.safetensors", 0 },
	{ "*-dist-#.*.safetensors", 0 },
};

bool ck_colossalai_is_meta(const char *name, uint64_t *dist)
{
	struct ck_pattern_found f;

	if (!ck_pattern_find(metas, CK_ARRAY_LEN(metas), name, &f))
		return false;
	*dist = f.n[0];
	return true;
}

static bool is_weights(const char *name, struct ck_pattern_found *f)
{
	return ck_pattern_find(weights, CK_ARRAY_LEN(weights), name, f);
}

bool ck_colossalai_is_weights(const char *name, uint64_t *dist)
{
	struct ck_pattern_found f;

	if (!is_weights(name, &f))
		return false;
	*dist = f.n[0];
	return true;
}

uint32_t ck_colossalai_file(struct ck_asm *a, const char *name)
{
	uint64_t dist = CK_ASM_ANY;

	ck_colossalai_is_weights(name, &dist);
	return ck_asm_file(a, name, dist);
}

/* ---- files ---- */

/*
 * A file of another rank under this one's name: torch.save keeps inside what
 * the file was called.  The stem may have been changed since.  *told: it is
 * this one's.
 */
static int check_name(const struct ck_container *c, bool *told,
		      struct ck_err *why)
{
	struct ck_pattern_found is, was;
	char name[256];
	size_t len;
	const char *top = ck_torch_save_top(&c->t.ts, &len);

	if (!top || len + sizeof(".bin") > sizeof(name) ||
	    !is_weights(c->name, &is))
		return 0;
	memcpy(name, top, len);
	memcpy(name + len, ".bin", sizeof(".bin"));
	if (memchr(name, 0, len) || !is_weights(name, &was))
		return 0;
	*told = !strcmp(c->name + is.from[0], name + was.from[0]);
	if (*told)
		return 0;
	return ck_fail(why, EINVAL,
		       "it was saved as %.*s: a file of another rank or "
		       "shard",
		       (int)len, top);
}

static int opened(struct ck_asm *a, uint32_t file, const struct ck_container *c,
		  struct ck_err *why, struct ck_err *err)
{
	const struct ck_asm_file *f = &a->files.v[file];
	bool told = f->rank == CK_ASM_ANY;
	int ret = c->is_st ? 0 : check_name(c, &told, why);

	return ret || told ?
		       ret :
		       ck_builder_unlabelled_rank(a->b, f->src, f->name, err);
}

static bool has_records(const struct ck_dir_list *l, uint64_t dist)
{
	uint64_t of;

	for (size_t i = 0; i < l->nr; i++)
		if (!l->v[i].is_dir &&
		    ck_colossalai_is_meta(l->v[i].name, &of) && of == dist)
			return true;
	return false;
}

/* Of a file whose records are lost none can say where its pieces belong. */
static int take_key(struct ck_asm *a, uint32_t file, const struct ck_found *f,
		    struct ck_err *err)
{
	struct ck_extent x = f->x;
	struct ck_asm_tensor *t;

	if (!f->is_tensor)
		return 0;
	if (a->files.v[file].user && !x.fault)
		x.fault = ck_arena_fmt(
			&a->mem,
			"the pytorch_model-meta-dist- file of rank %" PRIu64
			", which says where its pieces belong, is not there",
			a->files.v[file].rank);
	t = ck_asm_tensor(a, 0, f->name, f->len);
	return t && !a->mem.failed ? ck_asm_give(a, t, file, &x, err) :
				     ck_no_memory(err);
}

static int read_files(struct ck_asm *a, const struct ck_dir_list *l,
		      struct ck_err *err)
{
	uint64_t dist;
	int ret = 0;

	for (size_t i = 0; i < l->nr; i++)
		if (!l->v[i].is_dir &&
		    ck_colossalai_is_weights(l->v[i].name, &dist) &&
		    ck_colossalai_file(a, l->v[i].name) == CK_NONE)
			return ck_no_memory(err);
	for (uint32_t i = 0; !ret && i < a->files.nr; i++) {
		struct ck_asm_file *f = &a->files.v[i];

		f->user = f->rank != CK_ASM_ANY && !has_records(l, f->rank);
		ret = ck_asm_read(a, i, err);
	}
	return ret;
}

/* ---- tied names ---- */

/* Which bytes of which file a piece is, as a text to look up. */
static int put_bytes(struct ck_asm *a, struct ck_strmap *seen,
		     const struct ck_asm_piece *p, uint32_t *at,
		     struct ck_err *err)
{
	ck_auto_str struct ck_str key = { 0 };

	ck_str_fmt(&key, "%u %" PRIu64 " %u %u", p->file, p->x.off, p->x.dtype,
		   p->x.rank);
	for (unsigned d = 0; d < p->x.rank; d++)
		ck_str_fmt(&key, " %" PRIu64 "/%" PRId64, p->x.shape[d],
			   p->x.stride ? p->x.stride[d] : 0);
	*at = key.failed ? CK_STRMAP_NONE :
	      p->box	 ? ck_strmap_keep(seen, &a->mem, key.v, key.len) :
			   ck_strmap_get(seen, key.v, key.len);
	return key.failed || (p->box && *at == CK_STRMAP_NONE) ?
		       ck_no_memory(err) :
		       0;
}

/*
 * A tied name without a record, that shares the bytes of one with a record,
 * is that record's box too.
 */
static int adopt_boxes(struct ck_asm *a, struct ck_err *err)
{
	ck_auto_strmap struct ck_strmap seen = { 0 };
	CK_VEC(const struct ck_asm_box *) boxes = { 0 };
	uint32_t at;
	int ret = 0;

	for (int pass = 0; pass < 2; pass++)
		for (size_t i = 0; i < a->pieces.nr && !ret; i++) {
			struct ck_asm_piece *p = &a->pieces.v[i];

			if (!p->stored || !p->x.storage || p->x.fault ||
			    (p->box ? 0 : 1) != pass)
				continue;
			ret = put_bytes(a, &seen, p, &at, err);
			if (!ret && pass && at != CK_STRMAP_NONE)
				p->box = boxes.v[at];
			if (ret || pass || at < boxes.nr)
				continue;
			ret = ck_vec_reserve(&boxes, 1) ? 0 : ck_no_memory(err);
			if (!ret)
				boxes.v[boxes.nr++] = p->box;
		}
	free(boxes.v);
	return ret;
}

/* ---- places ---- */

static bool is_split(const struct ck_asm_join *j)
{
	const struct ck_asm_piece *p;

	ck_asm_each_piece(p, j->a, j->t)
	{
		if (p->box && j->rank &&
		    memcmp(p->box->len, j->shape, j->rank * sizeof(*j->shape)))
			return true;
	}
	return false;
}

/* Only rows are padded, and never all of them. */
static int find_padding(struct ck_asm_join *j,
			const struct ck_asm_piece **padded, struct ck_err *why)
{
	const struct ck_asm_piece *p;

	*padded = NULL;
	ck_asm_each_piece(p, j->a, j->t)
	{
		for (unsigned d = 0; p->box && d < j->rank; d++) {
			uint64_t n = j->shape[d], end;

			if (!p->box->len[d] ||
			    (ck_add_ok(p->box->start[d], p->box->len[d],
				       &end) &&
			     end <= n))
				continue;
			if (d || !n)
				return ck_fail(
					why, EINVAL,
					"its record in %s ends past its global shape along dimension %u",
					ck_asm_who(j->a, p), d);
			*padded = p;
		}
	}
	return 0;
}

static int find_shape(struct ck_asm_join *j, struct ck_err *why)
{
	struct dist *s = j->a->ctx;
	int ret = find_padding(j, &s->padded, why);

	if (ret || !ck_colossalai_is_fused(j->t->name, j->t->len) ||
	    !is_split(j))
		return ret;
	if (!s->fused.given)
		return ck_fail(why, EINVAL,
			       "it seems fused, query, key and value "
			       "in one: the boxes of its records are "
			       "not where its rows are; -o fused= says "
			       "how many rows each has");
	ck_opts_use(j->a->dir->opts, "fused");
	j->user = s->fused.nr;
	return 0;
}

/* The padding of a vocabulary lies past the end of the tensor: it is cut. */
static int place(struct ck_asm_join *j, const struct ck_asm_piece *p,
		 unsigned n, struct ck_part *part, struct ck_err *why)
{
	const struct dist *s = j->a->ctx;
	struct ck_box in = { .rank = j->rank };
	struct ck_shard shares;
	unsigned cut = 0;
	int ret;

	if (!p->box)
		return 0;
	memcpy(in.start, p->box->start, j->rank * sizeof(*in.start));
	memcpy(in.len, p->box->len, j->rank * sizeof(*in.len));
	ck_box_clip(&in, j->shape);
	memcpy(j->len, in.len, j->rank * sizeof(*in.len));
	part->len = j->len;
	while (cut < j->rank && p->box->len[cut] == j->shape[cut])
		cut++;
	if (!j->user || cut == j->rank || !p->stored)
		return 0;
	/* each rank has its share of every projection, one after the other */
	ret = ck_colossalai_fused_shard(&s->fused, j->shape, j->rank, cut,
					p->box->start[cut], p->box->len[cut],
					&shares, why);
	return ret ? ret : ck_asm_place_shard(j, &shares, &p->x, n, part);
}

/* ---- notes ---- */

static int note(struct ck_asm_join *j, struct ck_err *err)
{
	const struct dist *s = j->a->ctx;
	const struct ck_asm_tensor *t = j->t;
	bool pads;

	if (!j->placed)
		return ck_builder_report_tensor(
			j->a->b, CK_NOTE, t->name, t->len, NULL, err,
			"it has no record of its place: taken as "
			"whole, and the same in each file that has "
			"it");
	if (!s->padded)
		return 0;
	/* it pads the embedding, and the layer that it is tied to */
	pads = ck_name_has(t->name, t->len, ck_names_vocabulary);
	return ck_builder_report_tensor(
		j->a->b, pads ? CK_NOTE : CK_WARNING, t->name, t->len, NULL,
		err,
		"rows past the %" PRIu64
		" of its global shape, as %s has them, are padding and left out",
		j->shape[0], ck_asm_who(j->a, s->padded));
}

static const struct ck_asm_reader reader = {
	.words = {
		[CK_ASM_BOXLESS] = "{file} has it without a record of its "
				   "place, {other} with one",
		[CK_ASM_LENGTHS] = "its shape in {file} is not the lengths of "
				   "its record",
		[CK_ASM_NOT_IN] = "{file} does not have it, as its record "
				  "says",
		[CK_ASM_RANK] = "its global shape differs between the "
				"records of {file} and {other}",
		[CK_ASM_SHAPE] = "its global shape differs between the "
				 "records of {file} and {other}",
		[CK_ASM_DTYPE] = "its dtype in {other} is not that of the "
				 "files before",
		[CK_ASM_COPIES] = "its copies in {file} and {other} differ "
				  "(unshard heal)",
		[CK_ASM_UNPLACED] = "its copies in {file} and {other} differ, or "
				  "are parts, of which no record tells: "
				  "-o layout=FILE does",
		[CK_ASM_UNREAD] = "no record says which part of it each file "
				  "has",
	},
	.opened = opened,
	.key = take_key,
	.shape = find_shape,
	.place = place,
	.note = note,
};

int ck_colossalai_dist_load(const struct ck_dir *dir,
			    const struct ck_dir_list *l, struct ck_builder *b,
			    struct ck_err *err)
{
	struct dist s = { .a = { .dir = dir, .b = b, .how = &reader } };
	int ret;

	s.a.ctx = &s;
	ret = ck_colossalai_read_meta(&s.a, l, err);
	if (!ret && !s.a.tensors.nr)
		ret = ck_fail(err, EINVAL,
			      "%s: no record in its "
			      "pytorch_model-meta-dist-*.json",
			      dir->path);
	if (!ret)
		ret = read_files(&s.a, l, err);
	if (!ret)
		ret = ck_colossalai_fused_get(&s.fused, dir->opts, err);
	if (!ret)
		ret = adopt_boxes(&s.a, err);
	if (!ret)
		ret = ck_colossalai_check_ranks(&s.a, err);
	if (!ret)
		ret = ck_asm_join(&s.a, err);
	ck_asm_free(&s.a);
	return ret;
}
