/* SPDX-License-Identifier: Apache-2.0 */
/*
 * slices_plan.c - a plan is checked, and looked up in
 *
 * It lies in a directory that others may write to, so that every reference
 * and every product of it is checked before it is used.
 */
#include "core/slices/slices_plan_priv.h"

#include "core/base/check.h"
#include "core/base/limits.h"
#include "core/base/search.h"
#include "core/emit/st_out.h"
#include "core/emit/torch_blob.h"
#include "core/geom/dtype.h"
#include "core/geom/catalog.h"
#include "core/geom/range.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

static int bad(struct ck_err *err, const char *what)
{
	return ck_fail(err, EINVAL, "plan of slices: %s", what);
}

/* ---- tables ---- */

static const void *table(const char *bytes, uint64_t len, uint64_t *at,
			 uint64_t nr, uint64_t size, bool *ok)
{
	const void *t = bytes + *at;
	uint64_t n;

	if (nr >= UINT32_MAX || !ck_mul_ok(nr, size, &n) || n > len - *at) {
		*ok = false;
		return NULL;
	}
	*at = CK_MIN(len, (*at + n + 7) & ~UINT64_C(7));
	return t;
}

static int find_tables(struct ck_slice_plan *p, const char *bytes, uint64_t len,
		       struct ck_err *err)
{
	const struct ck_slice_plan_head *h = (const void *)bytes;
	uint64_t at = sizeof(*h);
	bool ok = true;

	p->head = h;
	p->id = h->id;
	p->files = table(bytes, len, &at, h->nr_files, sizeof(*p->files), &ok);
	p->tensors =
		table(bytes, len, &at, h->nr_tensors, sizeof(*p->tensors), &ok);
	p->pieces =
		table(bytes, len, &at, h->nr_pieces, sizeof(*p->pieces), &ok);
	p->ranks = table(bytes, len, &at, h->nr_ranks, sizeof(*p->ranks), &ok);
	p->dims = table(bytes, len, &at, h->nr_dims, sizeof(*p->dims), &ok);
	p->entries =
		table(bytes, len, &at, h->nr_entries, sizeof(*p->entries), &ok);
	p->strs = table(bytes, len, &at, h->strs_len, 1, &ok);
	if (!ok || !h->strs_len || p->strs[h->strs_len - 1] ||
	    h->layout >= h->strs_len)
		return bad(err, "its tables do not fit into it");
	p->nr_files = (uint32_t)h->nr_files;
	p->nr_tensors = (uint32_t)h->nr_tensors;
	p->nr_pieces = (uint32_t)h->nr_pieces;
	p->nr_ranks = (uint32_t)h->nr_ranks;
	p->nr_entries = (uint32_t)h->nr_entries;
	p->nr_dims = h->nr_dims;
	p->strs_len = h->strs_len;
	p->layout = p->strs + h->layout;
	p->dcp = h->dcp;
	return 0;
}

static int check_head(const struct ck_slice_plan_head *h, size_t len,
		      struct ck_err *err)
{
	if (len < sizeof(*h) || memcmp(h->magic, CK_SLICE_PLAN_MAGIC, 8) != 0)
		return bad(err,
			   "expected it to begin with " CK_SLICE_PLAN_MAGIC);
	if (h->version != CK_SLICE_PLAN_VERSION)
		return bad(err, "it is of another version");
	if (h->len != len ||
	    h->id != XXH3_64bits((const char *)h + CK_SLICE_PLAN_HASHED,
				 len - CK_SLICE_PLAN_HASHED))
		return bad(err, "it is cut off, or damaged");
	return 0;
}

/* ---- records ---- */

const char *ck_slice_plan_refuses(uint8_t dtype, unsigned rank,
				  const char *name, bool dcp)
{
	if (!dcp)
		return ck_st_out_refuses(dtype, rank, name, strlen(name));
	return ck_torch_has_dtype(dtype) ? NULL :
					   "files of torch have no such dtype";
}

static bool file_ok(const struct ck_slice_plan *p,
		    const struct ck_slice_plan_file *f)
{
	const char *name =
		f->name < p->strs_len ? ck_slice_plan_str(p, f->name) : ".";

	return *name && *name != '.' && !strchr(name, '/') &&
	       f->size <= CK_SIZE_MAX && f->data <= f->size &&
	       ck_range_ok(f->first, f->nr, p->nr_pieces);
}

static bool tensor_ok(const struct ck_slice_plan *p,
		      const struct ck_slice_plan_tensor *t)
{
	uint64_t shape, grid, bytes;
	unsigned elem;

	if (t->name >= p->strs_len || !t->dtype || t->dtype >= CK_DT_NR ||
	    t->rank > CK_MAX_RANK || t->grid_rank > CK_MAX_RANK ||
	    !ck_range_ok(t->shape, t->rank, p->nr_dims) ||
	    !ck_range_ok(t->grid, t->grid_rank, p->nr_dims))
		return false;
	elem = ck_dtype_info(t->dtype)->size;
	return elem &&
	       !ck_slice_plan_refuses(t->dtype, t->grid_rank,
				      ck_slice_plan_str(p, t->name), p->dcp) &&
	       ck_dims_volume(p->dims + t->shape, t->rank, &shape) &&
	       ck_dims_volume(p->dims + t->grid, t->grid_rank, &grid) &&
	       shape == grid && ck_mul_ok(shape, elem, &bytes) &&
	       bytes == t->size;
}

/* As many bytes as its lengths make. */
static bool piece_len_ok(const struct ck_slice_plan *p,
			 const struct ck_slice_plan_piece *x)
{
	const struct ck_slice_plan_tensor *t = &p->tensors[x->tensor];
	const uint64_t *start = p->dims + x->dims;
	const uint64_t *len = start + t->grid_rank, *full = len + t->grid_rank;
	uint64_t volume, stored, bytes;
	unsigned elem = ck_dtype_info(t->dtype)->size;

	for (unsigned d = 0; d < t->grid_rank; d++)
		if (!ck_range_ok(start[d], len[d], p->dims[t->grid + d]) ||
		    len[d] > full[d])
			return false;
	if (!ck_dims_volume(len, t->grid_rank, &volume) ||
	    !ck_dims_volume(full, t->grid_rank, &stored))
		return false;
	if (p->dcp && (x->flat || stored != volume || t->rank != t->grid_rank))
		return false;
	if (x->flat)
		return x->lo <= x->hi && x->hi <= volume && !(x->len % elem) &&
		       (x->hi - x->lo) * elem <= x->len;
	return ck_mul_ok(stored, elem, &bytes) && bytes == x->len;
}

static bool piece_ok(const struct ck_slice_plan *p, uint32_t i)
{
	const struct ck_slice_plan_piece *x = &p->pieces[i];
	const struct ck_slice_plan_file *f;

	if (x->tensor >= p->nr_tensors || x->file >= p->nr_files ||
	    !ck_range_ok(x->dims, 3 * p->tensors[x->tensor].grid_rank,
			 p->nr_dims))
		return false;
	f = &p->files[x->file];
	return i >= f->first && i < f->first + f->nr && x->off >= f->data &&
	       ck_range_ok(x->off, x->len, f->size) && piece_len_ok(p, x);
}

/* One after the other, each in its file. */
static bool order_ok(const struct ck_slice_plan *p, uint32_t i)
{
	const struct ck_slice_plan_piece *x = &p->pieces[i];

	return !i || x[-1].file != x->file || x->off >= x[-1].off + x[-1].len;
}

static bool rank_ok(const struct ck_slice_plan *p, uint32_t i)
{
	const struct ck_slice_plan_rank *r = &p->ranks[i];
	uint32_t last = 0;

	if (!ck_range_ok(r->first, r->nr, p->nr_entries) ||
	    (i && r[-1].rank >= r->rank))
		return false;
	for (uint32_t k = 0; k < r->nr; k++) {
		uint32_t piece = p->entries[r->first + k];

		if (piece >= p->nr_pieces ||
		    (k && p->pieces[piece].tensor <= last))
			return false;
		last = p->pieces[piece].tensor;
	}
	return true;
}

static int check_records(const struct ck_slice_plan *p, struct ck_err *err)
{
	for (uint32_t i = 0; i < p->nr_files; i++)
		if (!file_ok(p, &p->files[i]))
			return bad(err, "a file of it is not possible");
	for (uint32_t i = 0; i < p->nr_tensors; i++)
		if (!tensor_ok(p, &p->tensors[i]) ||
		    (i &&
		     strcmp(ck_slice_plan_str(p, p->tensors[i - 1].name),
			    ck_slice_plan_str(p, p->tensors[i].name)) >= 0))
			return bad(err, "a tensor of it is not possible");
	for (uint32_t i = 0; i < p->nr_pieces; i++)
		if (!piece_ok(p, i) || !order_ok(p, i))
			return bad(err, "a piece of it is not possible");
	for (uint32_t i = 0; i < p->nr_ranks; i++)
		if (!rank_ok(p, i))
			return bad(err, "a rank of it is not possible");
	return 0;
}

int ck_slice_plan_take(struct ck_slice_plan *p, void *bytes, size_t len,
		       struct ck_err *err)
{
	int ret = check_head(bytes, len, err);

	*p = (struct ck_slice_plan){ .own = bytes };
	if (!ret)
		ret = find_tables(p, bytes, len, err);
	if (!ret)
		ret = check_records(p, err);
	if (ret)
		ck_slice_plan_free(p);
	return ret;
}

void ck_slice_plan_free(struct ck_slice_plan *p)
{
	free(p->own);
	*p = (struct ck_slice_plan){ 0 };
}

/* ---- look-ups ---- */

static const char *name_of(const struct ck_slice_plan *p, uint32_t tensor)
{
	return ck_slice_plan_str(p, p->tensors[tensor].name);
}

uint32_t ck_slice_plan_find_tensor(const struct ck_slice_plan *p,
				   const char *name)
{
	uint32_t at =
		CK_FIRST(i, 0, p->nr_tensors, strcmp(name_of(p, i), name) >= 0);

	return at < p->nr_tensors && !strcmp(name_of(p, at), name) ? at :
								     CK_NONE;
}

uint32_t ck_slice_plan_find_rank(const struct ck_slice_plan *p, uint64_t rank)
{
	uint32_t at = CK_FIRST(i, 0, p->nr_ranks, p->ranks[i].rank >= rank);

	return at < p->nr_ranks && p->ranks[at].rank == rank ? at : CK_NONE;
}

static uint32_t tensor_of(const struct ck_slice_plan *p, uint32_t entry)
{
	return p->pieces[p->entries[entry]].tensor;
}

uint32_t ck_slice_plan_find_entry(const struct ck_slice_plan *p, uint32_t r,
				  uint32_t t)
{
	uint32_t first = p->ranks[r].first, end = first + p->ranks[r].nr;
	uint32_t at = CK_FIRST(i, first, end, tensor_of(p, i) >= t);

	return at < end && tensor_of(p, at) == t ? at : CK_NONE;
}

void ck_slice_plan_runs(const struct ck_slice_plan *p, uint32_t piece,
			struct ck_slice_plan_runs *out)
{
	const struct ck_slice_plan_piece *x = &p->pieces[piece];
	const struct ck_slice_plan_tensor *t = &p->tensors[x->tensor];
	const uint64_t *len = p->dims + x->dims + t->grid_rank;
	const uint64_t *full = len + t->grid_rank;
	uint64_t elem = ck_dtype_info(t->dtype)->size;
	unsigned d = t->grid_rank;

	*out = (struct ck_slice_plan_runs){ .nr = 1, .len = x->len };
	if (x->flat) {
		out->len = (x->hi - x->lo) * elem;
		return;
	}
	while (d && len[d - 1] == full[d - 1])
		d--;
	if (!d || !x->len)
		return;
	out->len = elem;
	for (unsigned i = d - 1; i < t->grid_rank; i++)
		out->len *= len[i];
	out->elem = elem;
	for (unsigned i = d - 1; i < t->grid_rank; i++)
		out->elem *= full[i];
	out->shape = len;
	out->full = full;
	out->rank = d - 1;
	for (unsigned i = 0; i < out->rank; i++)
		out->nr *= len[i];
	if (!out->len)
		out->nr = 0;
}

uint64_t ck_slice_plan_run(const struct ck_slice_plan_runs *r, uint64_t i)
{
	uint64_t at = 0, step = r->elem;

	for (unsigned d = r->rank; d-- > 0;) {
		at += i % r->shape[d] * step;
		i /= r->shape[d];
		step *= r->full[d];
	}
	return at;
}
