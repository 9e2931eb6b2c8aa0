/* SPDX-License-Identifier: Apache-2.0 */
/*
 * builder_finish.c - tensor by tensor from the kept parts into the catalog
 *
 * Chunks go to the file as soon as their tensor is done, so that a checkpoint
 * of millions of chunks is not held twice.
 */
#include "core/catalog/builder_priv.h"

#include "core/base/match.h"

#include <inttypes.h>
#include <stdio.h>

struct finish {
	struct ck_builder *b;
	struct ck_cells cells;
	struct ck_catalog_out out;
	CK_VEC(struct ck_tensor) tensors;
	uint64_t nr_chunks;
	struct ck_err *err;
};

/* How many replicas there are beside the cells' first ones. */
static uint32_t nr_replicas(const struct ck_cells *c, uint32_t cell)
{
	uint32_t nr = 0;

	for (uint32_t at = c->part.v[c->cell.v[cell]].next; at != CK_NONE;
	     at = c->part.v[at].next)
		nr++;
	return nr;
}

static int put_chunk(struct finish *f, struct ck_chunk x, uint32_t next)
{
	x.next = next;
	x.pad[0] = 0;
	return ck_catalog_out_put(&f->out, &x, sizeof(x), f->err);
}

/* Cells in stored order, then the rest of each ring in the same order. */
static int put_chunks(struct finish *f)
{
	const struct ck_cells *c = &f->cells;
	uint32_t first = (uint32_t)f->nr_chunks, nr = (uint32_t)c->cell.nr;
	uint32_t spare = first + nr;
	int ret = 0;

	for (uint32_t i = 0; i < nr && !ret; i++) {
		uint32_t more = nr_replicas(c, c->perm.v[i]);

		ret = put_chunk(f, c->part.v[c->cell.v[c->perm.v[i]]],
				more ? spare : CK_NONE);
		spare += more;
	}
	spare = first + nr;
	for (uint32_t i = 0; i < nr && !ret; i++) {
		uint32_t at = c->part.v[c->cell.v[c->perm.v[i]]].next;

		while (at != CK_NONE && !ret) {
			const struct ck_chunk *x = &c->part.v[at];

			at = x->next;
			spare++;
			ret = put_chunk(f, *x,
					at == CK_NONE ? first + i : spare);
		}
	}
	return ret;
}

static uint32_t newest_src(const struct ck_cells *c)
{
	const struct ck_src *srcs = c->b->srcs.v;
	uint32_t newest = CK_NONE;

	for (uint32_t i = 0; i < c->part.nr; i++) {
		uint32_t src = c->part.v[i].src;

		if (src == newest)
			continue;
		while (srcs[src].kind == CK_SRC_CODEC)
			src = srcs[src].parent;
		if (srcs[src].kind != CK_SRC_FILE)
			continue;
		if (newest == CK_NONE ||
		    srcs[src].id.mtime_ns > srcs[newest].id.mtime_ns)
			newest = src;
	}
	return newest;
}

static int report_hole(struct finish *f)
{
	const struct ck_cells *c = &f->cells;
	uint64_t lo = 0, hi = 0, missing = c->e->volume - c->covered;
	struct ck_problem at = { .severity = CK_ERROR,
				 .tensor = c->e->name,
				 .view = CK_NONE,
				 .file = CK_NONE };
	int ret = ck_cells_hole(c, &lo, &hi, f->err);

	return ret ? ret :
		     ck_builder_report(
			     f->b, &at, f->err,
			     "%" PRIu64 " of %" PRIu64 " elements (%" PRIu64
			     " bytes) are stored nowhere, the first are [%" PRIu64
			     ", %" PRIu64 ")",
			     missing, c->e->volume, missing * c->elem, lo, hi);
}

/* Bytes of the tensor that files hold which are not there, file by file. */
static int say_lost(struct finish *f)
{
	const struct ck_cells *c = &f->cells;
	struct ck_problem at = { .severity = CK_ERROR,
				 .tensor = c->e->name,
				 .view = CK_NONE };
	int ret = 0;

	for (uint32_t i = 0, next; i < c->part.nr && !ret; i = next) {
		const struct ck_chunk *x = &c->part.v[i];
		uint64_t lost = 0;

		for (next = i; next < c->part.nr; next++) {
			if (c->part.v[next].src != x->src)
				break;
			lost += ck_chunk_volume(&c->img, &c->part.v[next],
						c->rank);
		}
		if (x->state != CK_MISSING)
			continue;
		at.file = ck_srcs_file(f->b->srcs.v, x->src);
		ret = ck_builder_report(
			f->b, &at, f->err,
			"%" PRIu64 " of its %" PRIu64
			" bytes are in this file, which cannot be read",
			lost * c->elem, c->e->volume * c->elem);
	}
	return ret;
}

static uint8_t worst_state(const struct ck_cells *c)
{
	uint8_t worst = c->covered < c->e->volume ? CK_MISSING : CK_OK;

	for (uint32_t i = 0; i < c->cell.nr; i++)
		worst = CK_MAX(worst, c->part.v[c->cell.v[i]].state);
	return worst;
}

static int put_tensor(struct finish *f)
{
	const struct ck_cells *c = &f->cells;
	const struct ck_entry *e = c->e;
	struct ck_tensor t = {
		.size = e->volume * c->elem,
		.covered = c->covered,
		.name = e->name,
		.file = e->file,
		.tree = e->tree,
		.path = e->path,
		.shape = e->shape,
		.grid = e->grid,
		.first = (uint32_t)f->nr_chunks,
		.nr = (uint32_t)c->cell.nr,
		.nr_all = (uint32_t)c->part.nr,
		.index = c->index,
		.newest = newest_src(c),
		.dtype = e->dtype,
		.rank = e->rank,
		.grid_rank = e->grid_rank,
		.state = worst_state(c),
		.order = e->order,
	};
	int ret = 0;

	if (f->nr_chunks + c->part.nr > CK_MAX_CHUNKS)
		return ck_fail(f->err, E2BIG, "more than %u parts of tensors",
			       CK_MAX_CHUNKS);
	if (c->covered < e->volume)
		ret = report_hole(f);
	if (!ret && t.state == CK_MISSING)
		ret = say_lost(f);
	if (!ret)
		ret = put_chunks(f);
	f->nr_chunks += c->part.nr;
	return ret ? ret : ck_vec_put(&f->tensors, f->err, t);
}

static int do_tensor(struct finish *f, uint32_t entry)
{
	struct ck_entry *e = &f->b->entries.v[entry];
	size_t dims = f->b->in.dims.nr;
	int ret = ck_cells_make(&f->cells, f->b, e, f->err);

	if (!ret)
		ret = ck_cells_copies(&f->cells, f->err);
	if (!ret) {
		ret = ck_cells_duplicates(&f->cells, f->err);
		return ret ? ret : put_tensor(f);
	}
	if (ret != -EINVAL)
		return ret;
	/* give its tree back, if that is all that was added */
	if (f->cells.index == dims)
		f->b->in.dims.nr = dims;
	return ck_entry_refuse(f->b, e, f->err->msg, f->err);
}

static int do_tensors(struct finish *f)
{
	ck_auto_free uint32_t *order = NULL;
	uint32_t nr = 0;
	int ret;

	order = reallocarray(NULL, f->b->entries.nr + 1, sizeof(*order));
	if (!order)
		return ck_no_memory(f->err);
	ret = ck_builder_names(f->b, order, &nr, f->err);
	if (!ret)
		ret = ck_catalog_out_section(&f->out, CK_SEC_CHUNKS, NULL, 0,
					     f->err);
	for (uint32_t i = 0; i < nr && !ret; i++)
		ret = do_tensor(f, order[i]);
	f->out.head.sec[CK_SEC_CHUNKS].nr = f->nr_chunks;
	return ret;
}

static int by_name(const void *px, const void *py, void *ctx)
{
	const struct ck_builder *b = ctx;
	const struct ck_object *x = px, *y = py;
	size_t x_len, y_len;
	const char *xs = ck_intern_text(&b->in, x->name, &x_len);
	const char *ys = ck_intern_text(&b->in, y->name, &y_len);
	int c = (x->tree > y->tree) - (x->tree < y->tree);

	if (!c)
		c = ck_text_order(xs, x_len, ys, y_len);
	/* the same name twice: by place, so that the order is one */
	if (!c)
		c = (x->src > y->src) - (x->src < y->src);
	return c ? c : (x->off > y->off) - (x->off < y->off);
}

static int do_objects(struct finish *f)
{
	struct ck_builder *b = f->b;

	for (size_t i = 0; i < b->objects.nr; i++) {
		struct ck_object *o = &b->objects.v[i];
		size_t len;
		const char *name = ck_intern_text(&b->in, o->name, &len);
		uint32_t entry = ck_builder_lookup(b, o->tree, name, len);

		if (entry == CK_NONE)
			continue;
		o->path = b->entries.v[entry].path;
		o->order = b->entries.v[entry].order;
	}
	if (b->objects.nr)
		qsort_r(b->objects.v, b->objects.nr, sizeof(*b->objects.v),
			by_name, b);
	return ck_catalog_out_section(&f->out, CK_SEC_OBJECTS, b->objects.v,
				      b->objects.nr, f->err);
}

static int do_problems(struct finish *f)
{
	struct ck_builder *b = f->b;
	struct ck_problem more = { .severity = b->worst_more,
				   .tensor = CK_NONE,
				   .view = CK_NONE,
				   .file = CK_NONE };
	char reason[64];
	size_t len;
	int ret = 0;

	if (b->more_problems) {
		len = (size_t)snprintf(reason, sizeof(reason),
				       "%" PRIu64 " more are not listed",
				       b->more_problems);
		ret = ck_intern_str(&b->in, reason, len, &more.reason, f->err);
		if (!ret)
			ret = ck_vec_put(&b->problems, f->err, more);
	}
	return ret ? ret :
		     ck_catalog_out_section(&f->out, CK_SEC_PROBLEMS,
					    b->problems.v, b->problems.nr,
					    f->err);
}

static int by_file(const void *a, const void *b)
{
	const struct ck_src *x = a, *y = b;

	return (x->name > y->name) - (x->name < y->name);
}

/* Of what was read, each file once that is no source. */
static void do_indexes(struct ck_builder *b)
{
	struct ck_src *v = b->indexes.v;
	size_t nr = 0;

	if (!b->indexes.nr)
		return;
	qsort(v, b->indexes.nr, sizeof(*v), by_file);
	for (size_t i = 0; i < b->indexes.nr; i++)
		if (!nr || v[nr - 1].name != v[i].name)
			v[nr++] = v[i];
	b->indexes.nr = nr;
	for (size_t i = 0; i < b->srcs.nr; i++) {
		struct ck_src *is =
			b->srcs.v[i].kind == CK_SRC_FILE ?
				bsearch(&b->srcs.v[i], v, b->indexes.nr,
					sizeof(*v), by_file) :
				NULL;

		if (is)
			is->kind = CK_SRC_ABSENT;
	}
	nr = 0;
	for (size_t i = 0; i < b->indexes.nr; i++)
		if (v[i].kind == CK_SRC_FILE)
			v[nr++] = v[i];
	b->indexes.nr = nr;
}

/* The sections that nothing is added to any more. */
static int do_rest(struct finish *f, uint32_t format)
{
	struct ck_builder *b = f->b;
	const struct {
		unsigned sec;
		const void *records;
		size_t nr;
	} rest[] = {
		{ CK_SEC_TENSORS, f->tensors.v, f->tensors.nr },
		{ CK_SEC_LAYOUTS, b->in.layouts.v, b->in.layouts.nr },
		{ CK_SEC_SRCS, b->srcs.v, b->srcs.nr },
		{ CK_SEC_INDEXES, b->indexes.v, b->indexes.nr },
		{ CK_SEC_TREES, b->trees.v, b->trees.nr },
		{ CK_SEC_DIMS, b->in.dims.v, b->in.dims.nr },
		{ CK_SEC_STRS, b->in.strs.v, b->in.strs.nr },
		{ CK_SEC_BLOB, b->blob.v, b->blob.nr },
	};
	int ret = 0;

	for (size_t i = 0; i < CK_ARRAY_LEN(rest) && !ret; i++)
		ret = ck_catalog_out_section(&f->out, rest[i].sec,
					     rest[i].records, rest[i].nr,
					     f->err);
	if (ret)
		return ret;
	f->out.head.save = b->save;
	f->out.head.saved_to = b->saved_to;
	return ck_catalog_out_end(&f->out, format, f->err);
}

int ck_builder_finish(struct ck_builder *b, const char *format, int fd,
		      struct ck_err *err)
{
	struct ck_err local;
	struct finish f = { .b = b, .err = err ? err : &local };
	uint32_t name;
	int ret;

	if (b->spent)
		return ck_fail(err, EINVAL, "this catalog is finished");
	b->spent = true;
	ret = ck_intern_str(&b->in, format, strlen(format), &name, f.err);
	if (!ret)
		ret = ck_catalog_out_begin(&f.out, fd, f.err);
	if (!ret)
		ret = do_tensors(&f);
	if (!ret)
		ret = ck_builder_duplicates(b, f.err);
	if (!ret)
		ret = do_objects(&f);
	if (!ret)
		ret = do_problems(&f);
	do_indexes(b);
	if (!ret)
		ret = do_rest(&f, name);
	ck_cells_free(&f.cells);
	ck_catalog_out_free(&f.out);
	free(f.tensors.v);
	return ret;
}
