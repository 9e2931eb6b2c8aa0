/* SPDX-License-Identifier: Apache-2.0 */
/*
 * meta.c - metadata.pkl, of dicts, lists, strings and numbers alone
 *
 *	{"version": "2.0", "world_size": 2, "metadata": {ITEM: {
 *	    "nested_path_to_metadata": {'["fc.weight"]': [
 *	        {"ranks": (0, 1), "sharding_metadata": {
 *	            "type": "DTensorShardingMetadata", "data": {
 *	                "global_shape": [5, 6], "dtype": "torch.float32",
 *	                "mesh_spec": {"mesh_shape": (2,), "mesh_data": (0, 1), ...},
 *	                "placements": [{"type": "Shard", "dim": 0}]}}}, ...]},
 *	    "rank_to_layout_info": {0: None, 1: {"file_path": FILE, ...}}}}}
 *
 * A layout of None is ITEM_RANK.pt.  Tensors of a class of their own
 * ("default_tensor_v1") have lists of boxes instead of a mesh.
 */
#include "core/format/torch_checkpointing/tc.h"

#include "core/base/auto.h"
#include "core/base/check.h"
#include "core/container/torch_dist.h"
#include "core/geom/dtype.h"
#include "core/mesh/mesh.h"
#include "core/parse/json.h"
#include "core/parse/pickle_query.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define UNKNOWN 1 /* no -errno: a record that this cannot follow */

/* Where a rank keeps an item. */
struct rank_file {
	uint64_t rank;
	uint32_t file;
};

struct reading {
	struct tc *s;
	const struct ck_pickle *p;
	uint32_t item;
	CK_VEC(struct rank_file) files; /* of the item, by rank */
	struct ck_mesh mesh; /* the last one, */
	ck_pv mesh_of; /* and what it was read from */
	struct ck_mesh_place *place;
};

/* Data, and no calls. */
static bool allow_nothing(void *ctx, const char *module, size_t module_len,
			  const char *name, size_t name_len)
{
	(void)ctx;
	(void)module;
	(void)module_len;
	(void)name;
	(void)name_len;
	return false;
}

static int malformed(const struct reading *r, const char *what,
		     struct ck_err *err)
{
	return ck_fail(err, EINVAL, "%s: %.100s: expected %s", TC_METADATA,
		       r->s->items.v[r->item].s, what);
}

/* ---- files ---- */

static int by_rank(const void *a, const void *b)
{
	const struct rank_file *x = a, *y = b;

	return x->rank < y->rank ? -1 : x->rank > y->rank;
}

/* A rank, in the value of a key or of a list; false: there is none such. */
static bool read_rank(const struct reading *r, ck_pv v, uint64_t *rank)
{
	int64_t n;

	if (!ck_pv_int(r->p, v, &n) || n < 0 || (uint64_t)n >= r->s->world)
		return false;
	*rank = (uint64_t)n;
	return true;
}

static int add_file(struct reading *r, uint64_t rank, ck_pv layout,
		    struct ck_err *err)
{
	struct tc *s = r->s;
	struct rank_file f = { .rank = rank };
	const char *path;
	char *name;
	size_t len;

	if (ck_pv_kind(layout) == CK_P_NONE)
		name = ck_arena_fmt(&s->a.mem, "%s_%" PRIu64 ".pt",
				    s->items.v[r->item].s, rank);
	else if (ck_pq_str(r->p, layout, "file_path", &path, &len))
		name = ck_arena_copy(&s->a.mem, path, len);
	else
		return malformed(r, "a file_path", err);
	if (!name)
		return ck_no_memory(err);
	if (!ck_dir_name_ok(name, strlen(name)))
		return ck_fail(err, EINVAL,
			       "%s: file_path is %.200s, which leads out of "
			       "the checkpoint",
			       TC_METADATA, name);
	f.file = ck_asm_file(&s->a, name, rank);
	if (f.file == CK_NONE)
		return ck_no_memory(err);
	s->a.files.v[f.file].user = r->item;
	return ck_vec_put(&r->files, err, f);
}

static int read_files(struct reading *r, ck_pv layouts, struct ck_err *err)
{
	uint64_t rank;
	int ret = 0;

	r->files.nr = 0;
	for (struct ck_pq_each e = ck_pq_begin(r->p, layouts, "{}");
	     !ret && ck_pq_next(&e);)
		ret = read_rank(r, e.key[0], &rank) ?
			      add_file(r, rank, e.v, err) :
			      malformed(r, "ranks below world_size", err);
	if (r->files.nr)
		qsort(r->files.v, r->files.nr, sizeof(*r->files.v), by_rank);
	for (size_t i = 1; !ret && i < r->files.nr; i++)
		if (r->files.v[i].rank == r->files.v[i - 1].rank)
			return malformed(r, "a rank but once", err);
	return !ret && r->files.nr != r->s->world ?
		       malformed(r, "a file of each rank", err) :
		       ret;
}

/* ---- where a rank's part belongs ---- */

static int place_order(const void *a, const void *b)
{
	const struct ck_mesh_place *x = a, *y = b;

	return x->rank < y->rank ? -1 : x->rank > y->rank;
}

/* UNKNOWN: it is no mesh. */
static int read_places(struct reading *r, ck_pv spec, struct ck_err *err)
{
	uint32_t at = 0;
	uint64_t rank;
	ck_pv data;

	if (!ck_pq(r->p, spec, "mesh_data", &data) ||
	    ck_pv_len(r->p, data) != r->mesh.ranks)
		return UNKNOWN;
	free(r->place);
	r->place = calloc(r->mesh.ranks, sizeof(*r->place));
	if (!r->place)
		return ck_no_memory(err);
	for (struct ck_pq_each e = ck_pq_begin(r->p, data, "[]");
	     at < r->mesh.ranks && ck_pq_next(&e); at++) {
		if (!read_rank(r, e.v, &rank))
			return UNKNOWN;
		r->place[at] = (struct ck_mesh_place){ (uint32_t)rank, at };
	}
	if (at < r->mesh.ranks)
		return UNKNOWN;
	qsort(r->place, at, sizeof(*r->place), place_order);
	r->mesh.place = r->place;
	return 0;
}

/* Many tensors share one, which is read once if they follow each other. */
static int read_mesh(struct reading *r, ck_pv spec, struct ck_err *err)
{
	uint64_t size[CK_MAX_RANK];
	unsigned nr;
	int ret;

	if (spec == r->mesh_of)
		return 0;
	r->mesh_of = 0;
	r->mesh = (struct ck_mesh){ .ranks = 1 };
	if (!ck_pq_dims(r->p, spec, "mesh_shape", size, &nr) ||
	    nr > CK_TORCH_MESH)
		return UNKNOWN;
	for (unsigned i = 0; i < nr; i++)
		if (!size[i] || size[i] > r->s->world ||
		    ck_mesh_add_axis(&r->mesh, (uint32_t)size[i],
				     (uint32_t)r->s->world) == CK_MESH_AXES)
			return UNKNOWN;
	ret = read_places(r, spec, err);
	r->mesh_of = ret ? 0 : spec;
	return ret;
}

static bool read_placement(const struct reading *r, ck_pv v,
			   struct ck_torch_mesh *m, unsigned i)
{
	ck_pv type;
	int64_t dim;

	if (!ck_pv_key(r->p, v, "type", &type))
		return false;
	m->place[i].how = CK_TORCH_REPLICATE;
	if (ck_pv_is_str(r->p, type, "Replicate"))
		return true;
	if (!ck_pq_int(r->p, v, "dim", &dim) || dim < 0)
		return false;
	m->place[i].dim = (uint64_t)dim;
	m->place[i].how = CK_TORCH_SHARD;
	if (ck_pv_is_str(r->p, type, "Shard"))
		return true;
	m->place[i].how = CK_TORCH_STRIDED;
	return ck_pv_is_str(r->p, type, "StridedShard") &&
	       ck_pq_int(r->p, v, "split_factor", &m->place[i].factor);
}

static int read_placements(struct reading *r, ck_pv data,
			   struct ck_torch_mesh *m, struct ck_err *err)
{
	ck_pv spec, places;
	unsigned nr = 0;
	int ret;

	if (!ck_pv_key(r->p, data, "mesh_spec", &spec) ||
	    !ck_pv_key(r->p, data, "placements", &places))
		return UNKNOWN;
	ret = read_mesh(r, spec, err);
	if (ret)
		return ret;
	m->rank = r->mesh.nr;
	for (unsigned i = 0; i < m->rank; i++)
		m->size[i] = r->mesh.size[i];
	for (struct ck_pq_each e = ck_pq_begin(r->p, places, "[]");
	     ck_pq_next(&e);)
		if (nr == m->rank || !read_placement(r, e.v, m, nr++))
			return UNKNOWN;
	return nr == m->rank ? 0 : UNKNOWN;
}

/* ---- tensors ---- */

struct record {
	struct reading *r;
	struct ck_asm_tensor *t;
	ck_pv data, ranks;
	struct ck_torch_piece box; /* of the shape of the tensor */
};

/* A piece of the tensor, in the file of @rank; NULL: no memory. */
static struct ck_asm_piece *add_piece(struct record *x, uint64_t rank)
{
	struct ck_asm *a = &x->r->s->a;
	struct ck_asm_piece *p =
		ck_asm_piece(a, x->t, x->r->files.v[rank].file);

	return p && !ck_asm_set_box(a, p, x->box.start, x->box.len,
				    x->box.shape, x->box.rank) ?
		       p :
		       NULL;
}

/* Of each of the ranks; UNKNOWN where that is no record. */
static int each_rank(struct record *x,
		     int (*add)(struct record *x, uint64_t rank, void *ctx,
				struct ck_err *err),
		     void *ctx, struct ck_err *err)
{
	uint64_t rank;
	int ret = 0;

	for (struct ck_pq_each e = ck_pq_begin(x->r->p, x->ranks, "[]");
	     !ret && ck_pq_next(&e);)
		ret = read_rank(x->r, e.v, &rank) ? add(x, rank, ctx, err) :
						    UNKNOWN;
	return ret;
}

static int add_placed(struct record *x, uint64_t rank, void *ctx,
		      struct ck_err *err)
{
	struct ck_torch_mesh *m = ctx;
	const struct ck_mesh *mesh = &x->r->mesh;
	uint32_t at;

	if (!ck_mesh_find(mesh, (uint32_t)rank, &at))
		return UNKNOWN;
	ck_mesh_coords(mesh, at, m->at);
	if (!ck_torch_mesh_box(m, &x->box))
		return UNKNOWN;
	return add_piece(x, rank) ? 0 : ck_no_memory(err);
}

static int add_dtensor(struct record *x, struct ck_err *err)
{
	struct ck_torch_mesh m = { 0 };
	int ret = read_placements(x->r, x->data, &m, err);

	return ret ? ret : each_rank(x, add_placed, &m, err);
}

static int add_boxes(struct record *x, uint64_t rank, void *ctx,
		     struct ck_err *err)
{
	struct tc *s = x->r->s;
	const struct ck_pickle *p = x->r->p;
	uint64_t local[CK_MAX_RANK];
	ck_pv locals, sizes;
	int ret = 0;

	(void)ctx;
	if (!ck_pv_key(p, x->data, "local_offsets", &locals) ||
	    !ck_pv_key(p, x->data, "local_sizes", &sizes))
		return UNKNOWN;
	for (struct ck_pq_each e = ck_pq_begin(p, x->data, "global_offsets/[]");
	     !ret && ck_pq_next(&e);) {
		struct ck_asm_piece *piece;
		unsigned a, b, c;
		ck_pv at, size;

		if (!ck_pv_at(p, locals, e.at[0], &at) ||
		    !ck_pv_at(p, sizes, e.at[0], &size) ||
		    !ck_pq_dims(p, e.v, "", x->box.start, &a) ||
		    !ck_pq_dims(p, at, "", local, &b) ||
		    !ck_pq_dims(p, size, "", x->box.len, &c) ||
		    a != x->box.rank || b != a || c != a)
			return UNKNOWN;
		piece = add_piece(x, rank);
		ret = piece ? ck_vec_put(&s->locals, err,
					 ck_arena_copy(&s->a.mem, local,
						       a * sizeof(*local))) :
			      ck_no_memory(err);
		if (!ret)
			piece->user = s->locals.nr;
	}
	return s->a.mem.failed ? ck_no_memory(err) : ret;
}

/* One group of ranks that have the tensor alike. */
static int add_group(struct reading *r, struct ck_asm_tensor *t, ck_pv group,
		     struct ck_err *err)
{
	static const char torch[] = "torch.";
	struct record x = { .r = r, .t = t };
	const char *dtype;
	size_t len;
	ck_pv type;
	uint8_t dt;

	if (!ck_pq(r->p, group, "sharding_metadata/type", &type) ||
	    !ck_pq(r->p, group, "sharding_metadata/data", &x.data) ||
	    !ck_pv_key(r->p, group, "ranks", &x.ranks) ||
	    !ck_pq_dims(r->p, x.data, "global_shape", x.box.shape,
			&x.box.rank) ||
	    !ck_pq_str(r->p, x.data, "dtype", &dtype, &len) ||
	    len < sizeof(torch) || memcmp(dtype, torch, sizeof(torch) - 1))
		return UNKNOWN;
	dt = (uint8_t)ck_dtype_by_torch(dtype + sizeof(torch) - 1,
					len + 1 - sizeof(torch));
	if (dt == CK_DT_NONE)
		return UNKNOWN;
	if (ck_asm_declare(&r->s->a, t, dt, x.box.shape, x.box.rank))
		return ck_no_memory(err);
	if (ck_pv_is_str(r->p, type, "DTensorShardingMetadata"))
		return add_dtensor(&x, err);
	return ck_pv_is_str(r->p, type, "default_tensor_v1") ?
		       each_rank(&x, add_boxes, NULL, err) :
		       UNKNOWN;
}

/* A path is JSON: a list of keys and positions.  UNKNOWN: it is none. */
static int name_tensor(struct reading *r, const char *text, size_t len,
		       struct ck_asm_tensor **out, struct ck_err *err)
{
	struct ck_path_part part[CK_MAX_JSON_DEPTH];
	ck_auto_json json_t *list = NULL;
	ck_auto_str struct ck_str rest = { 0 };
	struct ck_err why = { 0 };
	unsigned nr = 0;
	json_t *j;
	size_t i;
	int ret = ck_json_parse(&list, text, len, &why);

	if (ret)
		return ret == -EINVAL ? UNKNOWN :
					ck_fail(err, -ret, "%s", why.msg);
	if (!json_is_array(list) || json_array_size(list) >= CK_MAX_JSON_DEPTH)
		return UNKNOWN;
	json_array_foreach(list, i, j)
	{
		struct ck_path_part *p = &part[nr++];
		uint64_t index = 0;

		*p = (struct ck_path_part){ .index = -1 };
		p->key = ck_json_text(j);
		if (!p->key && !ck_json_u64(j, &index))
			return UNKNOWN;
		ck_str_puts(&rest, i ? "." : "");
		if (p->key) {
			p->key_len = json_string_length(j);
			ck_str_add(&rest, p->key, p->key_len);
		} else {
			p->index = (int64_t)index;
			ck_str_u64(&rest, index);
		}
	}
	if (rest.failed || !ck_tc_name(r->s, r->item, rest.v, rest.len))
		return ck_no_memory(err);
	*out = ck_asm_tensor(&r->s->a, 0, r->s->name.v, r->s->name.len);
	return *out ? ck_tc_set_path(r->s, *out, r->item, part, nr, err) :
		      ck_no_memory(err);
}

/* @e: the groups of ranks, below the path. */
static int add_tensor(struct reading *r, const struct ck_pq_each *e,
		      struct ck_err *err)
{
	struct ck_asm_tensor *t = NULL;
	int ret = e->name ? name_tensor(r, e->name, e->len, &t, err) : UNKNOWN;

	if (ret)
		return ret < 0 ? ret :
				 malformed(r, "JSON lists that lead to tensors",
					   err);
	for (struct ck_pq_each g = ck_pq_begin(r->p, e->v, "[]");
	     !ret && ck_pq_next(&g);)
		ret = add_group(r, t, g.v, err);
	return ret == UNKNOWN ?
		       ck_asm_refuse(&r->s->a, t, err,
				     "%s does not say where its parts belong "
				     "in a way that is known",
				     TC_METADATA) :
		       ret;
}

static int add_item(struct reading *r, const struct ck_pq_each *item,
		    struct ck_err *err)
{
	ck_pv tensors, layouts;
	int ret;

	if (!item->name || !item->len || memchr(item->name, 0, item->len))
		return ck_fail(err, EINVAL, "%s: expected names of items",
			       TC_METADATA);
	r->item = ck_strmap_keep(&r->s->items, &r->s->a.mem, item->name,
				 item->len);
	if (r->item == CK_STRMAP_NONE)
		return ck_no_memory(err);
	if (!ck_pv_key(r->p, item->v, "nested_path_to_metadata", &tensors) ||
	    !ck_pv_key(r->p, item->v, "rank_to_layout_info", &layouts))
		return malformed(r,
				 "nested_path_to_metadata and "
				 "rank_to_layout_info",
				 err);
	ret = read_files(r, layouts, err);
	for (struct ck_pq_each e = ck_pq_begin(r->p, tensors, "{}");
	     !ret && ck_pq_next(&e);)
		ret = add_tensor(r, &e, err);
	return ret;
}

static int read_all(struct reading *r, struct ck_err *err)
{
	ck_pv root = ck_pickle_root(r->p), items, version;
	int64_t world;
	int ret = 0;

	if (!ck_pv_key(r->p, root, "version", &version) ||
	    !ck_pv_is_str(r->p, version, "2.0"))
		return ck_fail(err, EINVAL, "%s: expected \"version\" 2.0",
			       TC_METADATA);
	if (!ck_pq_int(r->p, root, "world_size", &world) || world < 1 ||
	    world > INT32_MAX || !ck_pv_key(r->p, root, "metadata", &items))
		return ck_fail(err, EINVAL,
			       "%s: expected \"world_size\" and \"metadata\"",
			       TC_METADATA);
	r->s->world = (uint64_t)world;
	for (struct ck_pq_each e = ck_pq_begin(r->p, items, "{}");
	     !ret && ck_pq_next(&e);)
		ret = add_item(r, &e, err);
	return ret;
}

int ck_tc_read_metadata(struct tc *s, struct ck_err *err)
{
	const struct ck_pickle_opts opts = { .allow = allow_nothing };
	struct reading r = { .s = s };
	ck_auto_pickle struct ck_pickle *p = NULL;
	ck_auto_free char *bytes = NULL;
	size_t len;
	int ret = ck_dir_slurp(s->a.dir, TC_METADATA, CK_PICKLE_SOURCE_MAX,
			       &bytes, &len, err);

	if (ret)
		return ret;
	ret = ck_pickle_parse(&p, bytes, len, &opts, NULL, err);
	if (ret)
		return ck_wrap(err, ret, "%s", TC_METADATA);
	r.p = p;
	ret = read_all(&r, err);
	free(r.files.v);
	free(r.place);
	return ret;
}
