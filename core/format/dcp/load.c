/* SPDX-License-Identifier: Apache-2.0 */
/*
 * load.c - state_dict_metadata against storage_data
 */
#include "core/format/dcp/dcp.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

struct load_attrs {
	struct ck_pq_fields tensor, props;
};

static enum ck_dtype dtype_of(const struct ck_pickle *p, ck_pv v,
			      const char **name, size_t *len)
{
	const char *module;
	size_t module_len;

	*name = "?";
	*len = 1;
	if (!v)
		return CK_DT_NONE;
	if (!ck_pv_global(p, v, &module, &module_len, name, len) &&
	    !ck_pv_str(p, v, name, len))
		return CK_DT_NONE;
	if (*len > 6 && !memcmp(*name, "torch.", 6)) {
		*name += 6;
		*len -= 6;
	}
	return ck_dtype_by_torch(*name, *len);
}

/* Its state is a tuple that begins with the dtype; writers of others: dict. */
static ck_pv dtype_value(struct load_attrs *a, const struct ck_pickle *p,
			 ck_pv props)
{
	ck_pv got[CK_PQ_FIELDS], state, dtype;

	if (!props || ck_pv_kind(props) != CK_P_CALL ||
	    !ck_pv_state(p, props, &state))
		return 0;
	if (ck_pv_kind(state) == CK_P_TUPLE)
		return ck_pv_at(p, state, 0, &dtype) ? dtype : 0;
	ck_pq_fields(&a->props, p, props, got);
	return got[0];
}

static int refuse(struct ck_dcp *d, const struct ck_dcp_tensor *t,
		  const char *why, struct ck_err *err)
{
	return ck_builder_refuse(d->b, 0, t->name, t->name_len, err, "%s: %s",
				 d->m->file, why);
}

static int spend(struct ck_dcp *d, struct ck_err *err)
{
	if (d->budget--)
		return 0;
	d->budget = 0;
	return ck_fail(err, EINVAL,
		       "%s: describes more parts than its %zu "
		       "bytes can hold",
		       d->m->file, d->m->len);
}

static int load_chunks(struct ck_dcp *d, struct ck_dcp_tensor *t, ck_pv chunks,
		       struct ck_err *err)
{
	const struct ck_pickle *p = d->m->p;
	struct ck_dcp_chunk c;
	struct ck_dcp_box box;
	int ret = 0;

	for (struct ck_pq_each e = ck_pq_begin(p, chunks, "[]");
	     !ret && ck_pq_next(&e);) {
		ret = spend(d, err);
		if (ret)
			return ret;
		ret = ck_dcp_box(d->items, p, e.v, &box);
		if (ret == -ENOMEM)
			return ck_no_memory(err);
		if (ret || ck_dcp_dims(d->items, box.at, c.at) != t->rank ||
		    ck_dcp_dims(d->items, box.len, c.len) != t->rank)
			return refuse(d, t,
				      "one of its chunks has no offsets "
				      "and sizes of its rank",
				      err);
		c.number = box.at;
		ret = ck_dcp_add_chunk(d, t, &c, err);
	}
	return ret;
}

static int declare(struct ck_dcp *d, const struct ck_dcp_tensor *t,
		   struct ck_err *err)
{
	const struct ck_part decl = {
		.name = t->name,
		.name_len = t->name_len,
		.dtype = t->dtype,
		.rank = t->flat ? t->true_rank : t->rank,
		.shape = t->flat ? t->true_shape : t->shape,
	};

	return ck_builder_declare(d->b, &decl, err);
}

static int report_lost(struct ck_dcp *d, const struct ck_dcp_tensor *t,
		       struct ck_err *err)
{
	const struct ck_problem_in lost = {
		.severity = CK_ERROR,
		.tensor = t->name,
		.tensor_len = t->name_len,
		.file = d->m->file,
	};

	if (!t->lost)
		return 0;
	return ck_builder_problem(d->b, &lost, err,
				  "%llu of its parts have "
				  "no entry in storage_data, the first is [%s]",
				  (unsigned long long)t->lost, t->first_lost);
}

static int load_tensor(struct ck_dcp *d, struct load_attrs *a,
		       struct ck_dcp_tensor *t, const ck_pv *got,
		       struct ck_err *err)
{
	const struct ck_pickle *p = d->m->p;
	const char *dtype;
	struct ck_err why;
	size_t len;
	int ret;

	if (!ck_pq_dims(p, got[1], "", t->shape, &t->rank))
		return refuse(d, t, "its size is no list of sizes", err);
	t->dtype =
		(uint8_t)dtype_of(p, dtype_value(a, p, got[0]), &dtype, &len);
	if (t->dtype == CK_DT_NONE)
		return ck_builder_refuse(d->b, 0, t->name, t->name_len, err,
					 "%s: dtype %.*s is not known",
					 d->m->file, (int)(len < 64 ? len : 64),
					 dtype);
	if (ck_dcp_flat_shape(d, t, &why))
		return refuse(d, t, why.msg, err);
	ret = declare(d, t, err);
	if (!ret)
		ret = load_chunks(d, t, got[2], err);
	return ret ? ret : report_lost(d, t, err);
}

static bool is_bytes(const struct ck_pickle *p, ck_pv v)
{
	static const char name[] = "BytesStorageMetadata";
	const char *class;
	size_t len;

	return ck_dcp_class(p, v, &class, &len) && len == sizeof(name) - 1 &&
	       !memcmp(class, name, len);
}

static int load_entry(struct ck_dcp *d, struct load_attrs *a,
		      const struct ck_pq_each *e, struct ck_err *err)
{
	const struct ck_pickle *p = d->m->p;
	struct ck_dcp_tensor t = { .name = e->name, .name_len = e->len };
	ck_pv got[CK_PQ_FIELDS];

	if (!t.name)
		return ck_fail(err, EINVAL,
			       "%s: a key of state_dict_metadata "
			       "is no string",
			       d->m->file);
	if (ck_strmap_put(&d->stored, t.name, t.name_len) == CK_STRMAP_NONE)
		return ck_no_memory(err);
	if (is_bytes(p, e->v))
		return ck_dcp_add_object(d, t.name, t.name_len, err);
	t.item_name = ck_strmap_get(&d->items->names, t.name, t.name_len);
	ck_pq_fields(&a->tensor, p, e->v, got);
	if (!got[0] || !got[1] || !got[2])
		return refuse(d, &t,
			      "expected a TensorStorageMetadata with "
			      "properties, size and chunks",
			      err);
	return load_tensor(d, a, &t, got, err);
}

/* ---- nesting, and what one dictionary has and another has not ---- */

/* The parts of one path; 0 where it is no path or a deep one. */
static unsigned path_parts(const struct ck_pickle *p, ck_pv v,
			   struct ck_path_part *parts)
{
	unsigned nr = 0;

	if (ck_pv_kind(v) != CK_P_TUPLE && ck_pv_kind(v) != CK_P_LIST)
		return 0;
	for (struct ck_pq_each e = ck_pq_begin(p, v, "[]"); ck_pq_next(&e);) {
		struct ck_path_part *at = &parts[nr];

		if (nr++ >= CK_MAX_JSON_DEPTH)
			return 0;
		*at = (struct ck_path_part){ e.name, e.name ? e.len : 0, -1 };
		if (e.name ? e.len > CK_MAX_NAME :
			     !ck_pv_int(p, e.v, &at->index) || at->index < 0)
			return 0;
	}
	return nr;
}

/* A path of just the name says nothing new. */
static bool is_plain(const struct ck_path_part *parts, unsigned nr,
		     const char *name, size_t len)
{
	return nr == 1 && parts[0].index < 0 && parts[0].key_len == len &&
	       !memcmp(parts[0].key, name, len);
}

/*
 * What the last rank saved stands first, then what only the one before it did:
 * who needs the order of one dict sees by gaps in it that it is of several.
 */
static int add_order(struct ck_dcp *d, const char *name, size_t len,
		     uint32_t order, struct ck_err *err)
{
	return d->m->rank ? 0 :
			    ck_builder_order(d->b, 0, name, len, order, err);
}

static int add_paths(struct ck_dcp *d, struct ck_err *err)
{
	struct ck_path_part parts[CK_MAX_JSON_DEPTH];
	const struct ck_pickle *p = d->m->p;
	int ret = 0;

	for (struct ck_pq_each e = ck_pq_begin(p, d->m->planner, "{}");
	     !ret && ck_pq_next(&e);) {
		unsigned nr;

		if (!e.name || !ck_strmap_has(&d->stored, e.name, e.len))
			continue;
		ret = add_order(d, e.name, e.len, e.at[0] + 1, err);
		nr = path_parts(p, e.v, parts);
		if (!ret && nr && !is_plain(parts, nr, e.name, e.len))
			ret = ck_builder_path(d->b, 0, e.name, e.len, parts, nr,
					      err);
	}
	return ret;
}

static int report_unused(struct ck_dcp *d, struct ck_err *err)
{
	const struct ck_problem_in extra = {
		.severity = CK_WARNING,
		.file = d->m->file,
	};
	const struct ck_dcp_item *first = NULL;
	const struct ck_strmap_key *name;
	uint64_t nr = 0;
	int ret = 0;

	for (size_t i = 0; i < d->items->v.nr; i++) {
		if (d->items->v.v[i].used)
			continue;
		first = nr++ ? first : &d->items->v.v[i];
	}
	if (d->items->odd)
		ret = ck_builder_problem(d->b, &extra, err,
					 "%" PRIu64
					 " entries of storage_data are no "
					 "MetadataIndex and _StorageInfo as "
					 "they should be, the first is number "
					 "%" PRIu64,
					 d->items->odd, d->items->first_odd);
	if (!ret && d->items->twice)
		ret = ck_builder_problem(d->b, &extra, err,
					 "%" PRIu64
					 " entries of storage_data repeat the "
					 "name and offset of another; the "
					 "first counts",
					 d->items->twice);
	if (ret || !nr)
		return ret;
	name = &d->items->names.v[first->name];
	return ck_builder_problem(d->b, &extra, err,
				  "%" PRIu64 " entries of "
				  "storage_data belong to no part of a tensor, "
				  "the first is of %.*s",
				  nr, (int)(name->len < 200 ? name->len : 200),
				  name->s);
}

/* ---- all of it ---- */

int ck_dcp_load_meta(struct ck_dcp *d, struct ck_err *err)
{
	struct load_attrs attrs = {
		.tensor = { .names = { "properties", "size", "chunks" } },
		.props = { .names = { "dtype" } },
	};
	int ret;

	d->budget = d->m->len;
	d->items = d->m->items;
	ret = ck_dcp_items_read(d->items, d->m, err);
	if (!ret)
		ret = ck_dcp_flat_index(d, err);
	for (struct ck_pq_each e = ck_pq_begin(d->m->p, d->m->tensors, "{}");
	     !ret && ck_pq_next(&e);)
		ret = load_entry(d, &attrs, &e, err);
	if (!ret)
		ret = add_paths(d, err);
	if (!ret)
		ret = report_unused(d, err);
	ck_dcp_items_free(d->items);
	d->items = d->m->items = NULL;
	return ret;
}

static int report_lost_of(struct ck_dcp *d, const struct ck_dcp_meta *m,
			  struct ck_err *err)
{
	int ret = 0;

	for (struct ck_pq_each e = ck_pq_begin(m->p, m->planner, "{}");
	     !ret && ck_pq_next(&e);) {
		const struct ck_problem_in lost = { .severity = CK_ERROR,
						    .file = m->file,
						    .tensor = e.name,
						    .tensor_len = e.len };

		if (e.name && !ck_strmap_has(&d->stored, e.name, e.len))
			ret = ck_builder_problem(
				d->b, &lost, err,
				"listed but not stored: "
				"planner_data names it, and neither its shape "
				"nor any bytes were saved");
	}
	return ret;
}

int ck_dcp_report_lost(struct ck_dcp *d, struct ck_err *err)
{
	int ret = 0;

	for (size_t i = 0; i < d->nr_meta && !ret; i++)
		ret = report_lost_of(d, &d->meta[i], err);
	return ret;
}

void ck_dcp_free(struct ck_dcp *d)
{
	for (size_t i = 0; i < d->blobs.nr; i++) {
		ck_st_file_free(&d->blobs.v[i].st);
		ck_strmap_free(&d->blobs.v[i].names);
	}
	for (size_t i = 0; i < d->nr_meta; i++)
		ck_dcp_meta_free(&d->meta[i]);
	free(d->blobs.v);
	free(d->file.v);
	ck_strmap_free(&d->files);
	ck_strmap_free(&d->mcore);
	ck_strmap_free(&d->stored);
	ck_strmap_free(&d->objects);
	ck_arena_free(&d->mem);
}
