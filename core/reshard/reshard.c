/* SPDX-License-Identifier: Apache-2.0 */
/* reshard.c - a mesh and the tensors of a checkpoint, brought together */
#include "core/reshard/spec.h"

#include "core/base/check.h"
#include "core/base/str.h"
#include "core/base/suffix.h"
#include "core/base/vec.h"
#include "core/mesh/strategy.h"
#include "core/base/strmap.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* How some ranks hold a tensor; compared as bytes. */
struct cut {
	struct ck_placement p;
	uint32_t next; /* number of the cut of further ranks, from 1; 0: none */
};

struct ck_reshard {
	struct ck_reshard_spec *spec;
	const struct ck_catalog *img;
	uint32_t first, nr;
	uint32_t *cut_of; /* of each tensor: in @cuts */
	CK_VEC(struct cut *) cuts;
	struct ck_strmap known; /* the bytes of each */
};

void ck_reshard_cut_none(struct ck_placement *out, uint32_t nr)
{
	ck_mesh_add_axis(&out->mesh, nr, CK_RESHARD_MAX_RANKS);
}

#define MAX_SAID 4

void ck_reshard_note_unused(struct ck_str *out, size_t nr, const char *which,
			    const char *name, size_t len)
{
	if (nr < MAX_SAID)
		ck_str_fmt(out, "%s%s \"%.*s\"",
			   nr ? ", " : "fits no tensor: ", which,
			   (int)CK_MIN(len, 200u), name);
}

void ck_reshard_note_end(struct ck_str *out, size_t nr)
{
	if (nr > MAX_SAID)
		ck_str_fmt(out, " and %zu more", nr - MAX_SAID);
}

static int parse_json(struct ck_reshard_spec **out, const char *bytes,
		      size_t len, struct ck_err *err)
{
	ck_auto_json json_t *j = NULL;
	char found[CK_JSON_WHAT];
	int ret = ck_json_parse(&j, bytes, len, err);

	if (ret)
		return ret;
	if (!json_is_object(j))
		return ck_fail(
			err, EINVAL,
			"expected a JSON object, or MindSpore's protobuf, "
			"found %s",
			ck_json_what(j, found));
	if (json_object_get(j, "mesh"))
		return ck_reshard_placement(out, j, bytes, len, err);
	if (json_object_get(j, "rules"))
		return ck_reshard_sbp(out, j, err);
	return ck_fail(err, EINVAL,
		       "expected a placement file (\"mesh\"), a MindSpore "
		       "strategy or OneFlow's \"rules\"");
}

static int parse_file(struct ck_reshard_spec **out, const char *name,
		      const char *bytes, size_t len, struct ck_err *err)
{
	bool json = ck_json_is_text(bytes, len);
	int ret;

	if (!json || memmem(bytes, len, "\"parallel_layout_item\"", 22))
		ret = ck_reshard_strategy(out, name, bytes, len, err);
	else
		ret = ck_wrap(err, parse_json(out, bytes, len, err), "%s",
			      name);
	return ret;
}

int ck_reshard_check(const struct ck_opts *opts, struct ck_err *err)
{
	const char *path;

	for (size_t i = 0;
	     opts && (path = ck_opts_nth(opts, CK_RESHARD_OPTION, i)); i++) {
		struct ck_reshard_spec *spec = NULL;
		size_t len;
		const char *bytes =
			ck_opts_bytes(opts, CK_RESHARD_OPTION, i, &len);
		int ret;

		if (!bytes)
			return ck_fail(err, ENOENT,
				       "-o " CK_RESHARD_OPTION
				       "=%s: no such file",
				       path);
		ret = parse_file(&spec, path, bytes, len, err);
		if (ret)
			return ck_wrap(err, ret, "-o " CK_RESHARD_OPTION);
		spec->ops->free(spec);
	}
	return 0;
}

/* The number of @cut, which many tensors share. */
static int number_of(struct ck_reshard *r, const struct cut *cut, uint32_t *nr,
		     struct ck_err *err)
{
	struct cut *copy;

	*nr = r->known.nr ? ck_strmap_get(&r->known, (const char *)cut,
					  sizeof(*cut)) :
			    CK_STRMAP_NONE;
	if (*nr != CK_STRMAP_NONE)
		return 0;
	copy = malloc(sizeof(*copy));
	if (!copy || !ck_vec_reserve(&r->cuts, 1)) {
		free(copy);
		return ck_no_memory(err);
	}
	memcpy(copy, cut, sizeof(*copy));
	r->cuts.v[r->cuts.nr++] = copy;
	*nr = ck_strmap_put(&r->known, (const char *)copy, sizeof(*copy));
	return *nr == CK_STRMAP_NONE ? ck_no_memory(err) : 0;
}

static const uint64_t *shape_of(const struct ck_catalog *img, uint32_t tensor)
{
	return img->dims + img->tensors[tensor].shape;
}

/* The @i-th cut of tensor @t; -ENOENT: it has no more. */
static int cut_nr(const struct ck_reshard *r, uint32_t t, uint32_t i,
		  struct cut *cut, struct ck_err *err)
{
	const struct ck_reshard_spec_ops *ops = r->spec->ops;

	memset(cut, 0, sizeof(*cut)); /* compared as bytes */
	if (!i)
		return ops->cut(r->spec, r->img, t, &cut->p, err);
	return ops->further ?
		       ops->further(r->spec, r->img, t, i, &cut->p, err) :
		       -ENOENT;
}

/* Tries place @at; *near: not far from what limits the pieces of a part. */
static int try_at(const struct ck_reshard *r, uint32_t t, const struct cut *cut,
		  uint32_t at, bool *near, struct ck_err *err)
{
	struct ck_shard s;
	bool zeros;
	int ret = ck_placement_at(&cut->p, at, shape_of(r->img, t),
				  r->img->tensors[t].rank, &s, &zeros, err);

	if (ret)
		return ret;
	*near |= ck_shard_pieces(&s) >= CK_SHARD_PIECES / 4;
	for (unsigned k = 0; k < s.nr; k++)
		*near |= s.cut[k].nr >= CK_SHARD_RUNS / 4;
	return 0;
}

/*
 * Whether @t can be cut so: the first and the last have most, fewest rows; and
 * those between may have a piece more.
 */
static int try_cut(const struct ck_reshard *r, uint32_t t,
		   const struct cut *cut, struct ck_err *err)
{
	bool near = false;
	int ret = try_at(r, t, cut, 0, &near, err);

	if (!ret)
		ret = try_at(r, t, cut, cut->p.mesh.ranks - 1, &near, err);
	for (uint32_t i = 1; near && i + 1 < cut->p.mesh.ranks && !ret; i++)
		ret = try_at(r, t, cut, i, &near, err);
	return ret;
}

/* Last first, for each names the next. */
static int take_cuts(struct ck_reshard *r, uint32_t t, struct ck_err *err)
{
	struct cut cut;
	uint32_t nr = 1, next = 0;
	int ret;

	while (!(ret = cut_nr(r, t, nr, &cut, err)))
		nr++;
	if (ret != -ENOENT)
		return ret;
	do {
		ret = cut_nr(r, t, --nr, &cut, err);
		if (!ret)
			ret = try_cut(r, t, &cut, err);
		cut.next = next;
		if (!ret)
			ret = number_of(r, &cut, &next, err);
		next++;
	} while (!ret && nr);
	r->cut_of[t - r->first] = next - 1;
	return ret;
}

static int take_tensor(struct ck_reshard *r, uint32_t t, struct ck_err *err)
{
	int ret = take_cuts(r, t, err);

	return ret ? ck_wrap(err, ret, "%s",
			     ck_catalog_str(r->img, r->img->tensors[t].name,
					    NULL)) :
		     0;
}

static int fill(struct ck_reshard *r, const struct ck_reshard_in *in,
		struct ck_err *err)
{
	int ret = 0;

	r->img = in->img;
	r->first = in->first;
	r->nr = in->nr;
	r->cut_of = calloc((size_t)in->nr + 1, sizeof(*r->cut_of));
	if (!r->cut_of)
		return ck_no_memory(err);
	if (r->spec->ops->begin)
		ret = r->spec->ops->begin(r->spec, in, err);
	for (uint32_t i = 0; i < in->nr && !ret; i++)
		ret = take_tensor(r, in->first + i, err);
	return ret;
}

int ck_reshard_new(struct ck_reshard **out, const struct ck_reshard_in *in,
		   bool *of_spec, struct ck_err *err)
{
	struct ck_reshard *r = calloc(1, sizeof(*r));
	int ret;

	*of_spec = false;
	if (!r)
		return ck_no_memory(err);
	if (in->bytes)
		ret = parse_file(&r->spec, in->name, in->bytes, in->len, err);
	else
		ret = ck_reshard_words(&r->spec, in->name, in->opts, err);
	*of_spec = ret != 0;
	if (!ret)
		ret = fill(r, in, err);
	if (ret)
		ck_reshard_free(r);
	else
		*out = r;
	return ret;
}

void ck_reshard_free(struct ck_reshard *r)
{
	if (!r)
		return;
	for (size_t i = 0; i < r->cuts.nr; i++)
		free(r->cuts.v[i]);
	free(r->cuts.v);
	ck_strmap_free(&r->known);
	free(r->cut_of);
	if (r->spec)
		r->spec->ops->free(r->spec);
	free(r);
}

void ck_reshard_note(const struct ck_reshard *r, const char *name,
		     struct ck_str *out)
{
	ck_auto_str struct ck_str s = { 0 };

	if (r->spec->ops->note)
		r->spec->ops->note(r->spec, &s);
	if (s.len && !s.failed)
		ck_str_fmt(out, "%s: %s", name, s.v);
}

bool ck_reshard_unused_options(const struct ck_reshard *r)
{
	return r->spec->ops->unused_options &&
	       r->spec->ops->unused_options(r->spec);
}

uint32_t ck_reshard_ranks(const struct ck_reshard *r)
{
	return r->spec->ranks;
}

static const struct cut *cut_of(const struct ck_reshard *r, uint32_t tensor)
{
	return r->cuts.v[r->cut_of[tensor - r->first]];
}

static const struct cut *next_cut(const struct ck_reshard *r,
				  const struct cut *cut)
{
	return cut->next ? r->cuts.v[cut->next - 1] : NULL;
}

bool ck_reshard_part(const struct ck_reshard *r, uint32_t rank, uint32_t tensor,
		     struct ck_reshard_part *out)
{
	const struct cut *cut = cut_of(r, tensor);
	uint32_t at;

	while (cut && !ck_mesh_find(&cut->p.mesh, rank, &at))
		cut = next_cut(r, cut);
	/* that it can be cut was tried when @r was made */
	return cut && !ck_placement_at(&cut->p, at, shape_of(r->img, tensor),
				       r->img->tensors[tensor].rank,
				       &out->shard, &out->zeros, NULL);
}

bool ck_reshard_uncut(const struct ck_reshard *r, uint32_t tensor)
{
	const struct cut *cut = cut_of(r, tensor);

	while (cut && !cut->p.nr && !cut->p.partial)
		cut = next_cut(r, cut);
	return !cut;
}

uint32_t ck_reshard_first(const struct ck_reshard *r, uint32_t tensor)
{
	const struct ck_placement *p = &cut_of(r, tensor)->p;

	return p->mesh.place && !p->partial ? p->mesh.place[0].rank :
					      ck_mesh_rank_at(&p->mesh, 0);
}

const char *ck_reshard_stem(const char *path, size_t *len)
{
	const char *stem = ck_base_name(path);
	const char *dot = strrchr(stem, '.');

	*len = dot && dot > stem ? (size_t)(dot - stem) : strlen(stem);
	if (stem[0] == '.' || *len > 255)
		*len = 0;
	return stem;
}
