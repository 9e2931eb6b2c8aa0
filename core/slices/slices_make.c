/* SPDX-License-Identifier: Apache-2.0 */
/*
 * slices_make.c - a plan from a layout
 *
 * Of ranks that hold the same, one keeps it: another one for each tensor, so
 * that files grow alike, but for all boxes of one tensor those of the same
 * place on the axes that do not cut it, which is how a reader looks for them.
 */
#include "core/slices/slices_plan_priv.h"

#include "core/base/auto.h"
#include "core/base/check.h"
#include "core/base/search.h"
#include "core/emit/torch_blob.h"
#include "core/format/format.h"
#include "core/base/strmap.h"
#include "core/geom/dtype.h"
#include "core/geom/catalog.h"
#include "core/geom/range.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>
#include <xxhash.h>

#define MAX_FORMS 16

/* The boxes of one tensor. */
struct group {
	uint32_t piece; /* CK_NONE: nobody holds it */
	uint32_t holders, seen;
};

uint32_t ck_slice_plan_put_str(struct ck_slice_plan_making *m, const char *s,
			       size_t len)
{
	uint32_t at = (uint32_t)m->strs.len;

	if (m->strs.len + len + 1 > UINT32_MAX / 2) {
		m->strs.failed = true;
		return 0;
	}
	ck_str_add(&m->strs, s, len);
	ck_str_add(&m->strs, "", 1);
	return at;
}

static uint32_t put_dims(struct ck_slice_plan_making *m, const uint64_t *v,
			 unsigned nr)
{
	uint32_t at = (uint32_t)m->dims.nr;

	if (m->dims.nr + nr > UINT32_MAX / 2 ||
	    !ck_vec_reserve(&m->dims, nr + 1)) {
		m->strs.failed = true;
		return 0;
	}
	if (nr)
		memcpy(m->dims.v + at, v, nr * sizeof(*v));
	m->dims.nr += nr;
	return at;
}

/* ---- tensors and their pieces ---- */

static int by_name(const void *a, const void *b)
{
	return strcmp(((const struct ck_layout_target *)a)->name,
		      ((const struct ck_layout_target *)b)->name);
}

static int sort_targets(struct ck_slice_plan_making *m, struct ck_err *err)
{
	struct ck_layout_target *v = m->lay.targets.v;
	size_t nr = m->lay.targets.nr;

	if (nr > CK_MAX_TENSORS)
		return ck_fail(err, EINVAL, "write: more than %u tensors",
			       CK_MAX_TENSORS);
	qsort(v, nr, sizeof(*v), by_name);
	for (size_t i = 1; i < nr; i++)
		if (!strcmp(v[i - 1].name, v[i].name))
			return ck_fail(err, EINVAL,
				       "write: %.200s occurs twice", v[i].name);
	return 0;
}

static int add_tensor(struct ck_slice_plan_making *m, uint32_t t,
		      struct ck_err *err)
{
	const struct ck_layout_target *from = ck_slice_plan_target(m, t);
	const struct ck_dtype_info *type = ck_dtype_info(from->dtype);
	struct ck_slice_plan_tensor to = { .dtype = from->dtype,
					   .rank = (uint8_t)from->shape.rank };
	const char *why = ck_slice_plan_refuses(
		from->dtype, from->grid.rank, from->name, m->lay.form->indexed);

	if (why)
		return ck_fail(err, EINVAL, "write: %.200s: %s: %s", from->name,
			       type->name, why);
	ck_dims_volume(from->shape.v, to.rank, &to.size);
	to.size *= type->size;
	to.grid_rank = (uint8_t)from->grid.rank;
	to.name = ck_slice_plan_put_str(m, from->name, strlen(from->name));
	to.shape = put_dims(m, from->shape.v, to.rank);
	to.grid = put_dims(m, from->grid.v, to.grid_rank);
	return m->strs.failed ? ck_no_memory(err) :
				ck_vec_put(&m->tensors, err, to);
}

/* Metadata of DCP's has boxes of a tensor's own dimensions, and no more. */
static int check_box(const struct ck_slice_plan_making *m, uint32_t t,
		     const struct ck_placed *place, struct ck_err *err)
{
	const struct ck_slice_plan_tensor *to = &m->tensors.v[t];
	bool plain = !place->flat && to->rank == to->grid_rank &&
		     !memcmp(m->dims.v + to->shape, m->dims.v + to->grid,
			     to->rank * sizeof(uint64_t));

	for (unsigned d = 0; d < to->grid_rank && plain; d++)
		plain = place->len[d] == place->full[d];
	return plain ? 0 :
		       ck_fail(err, EINVAL,
			       "write: %.200s: DCP has neither flat nor padded "
			       "parts, nor views",
			       ck_slice_plan_target(m, t)->name);
}

static int add_piece(struct ck_slice_plan_making *m, uint32_t t,
		     const struct ck_placed *place, struct ck_err *err)
{
	unsigned rank = m->tensors.v[t].grid_rank;
	struct ck_slice_plan_piece p = { .tensor = t, .file = CK_NONE };
	uint64_t nr = place->stored;
	int ret = ck_box_check(place->start, place->len,
			       m->dims.v + m->tensors.v[t].grid, rank, err);

	if (ret)
		return ck_wrap(err, ret, "write: %.200s",
			       ck_slice_plan_target(m, t)->name);
	if (place->hi < place->lo ||
	    (!place->flat && !ck_dims_volume(place->full, rank, &nr)) ||
	    !ck_mul_ok(nr, ck_dtype_info(m->tensors.v[t].dtype)->size, &p.len))
		return ck_fail(err, EINVAL, "write: %.200s: is too large",
			       ck_slice_plan_target(m, t)->name);
	p.flat = place->flat;
	p.lo = place->lo;
	p.hi = place->hi;
	p.dims = put_dims(m, place->start, rank);
	put_dims(m, place->len, rank);
	put_dims(m, place->full, rank);
	return m->strs.failed || m->pieces.nr >= CK_SLICE_PLAN_MAX_ENTRIES ?
		       ck_no_memory(err) :
		       ck_vec_put(&m->pieces, err, p);
}

static int hold(struct ck_slice_plan_making *m, uint32_t t, uint32_t pos,
		struct group *v, struct ck_err *err)
{
	struct ck_placed place;
	struct ck_slice_plan_held held = { .pos = pos };
	uint64_t group;
	int ret = ck_layout_out_place(&m->lay, ck_slice_plan_target(m, t), pos,
				      &place, &group, err);

	if (ret < 0)
		return ck_wrap(err, ret, "write: %.200s",
			       ck_slice_plan_target(m, t)->name);
	if (!ret)
		return 0;
	if (v[group].piece == CK_NONE) {
		v[group].piece = (uint32_t)m->pieces.nr;
		ret = m->lay.form->indexed ? check_box(m, t, &place, err) : 0;
		if (!ret)
			ret = add_piece(m, t, &place, err);
		if (ret)
			return ret;
	}
	v[group].holders++;
	if (m->held.nr >= CK_SLICE_PLAN_MAX_ENTRIES)
		return ck_fail(err, E2BIG, "more than %u slices",
			       CK_SLICE_PLAN_MAX_ENTRIES);
	held.piece = v[group].piece;
	return ck_vec_put(&m->held, err, held);
}

/* Who keeps each piece that is new: its (@t mod holders)-th holder. */
static void choose(struct ck_slice_plan_making *m, uint32_t t,
		   size_t first_held, uint32_t first_piece, struct group *v,
		   uint64_t nr)
{
	for (uint64_t g = 0; g < nr; g++)
		if (v[g].piece != CK_NONE)
			/* found by the piece from now on */
			m->pieces.v[v[g].piece].zero = (uint32_t)g;
	for (size_t i = first_held; i < m->held.nr; i++) {
		struct ck_slice_plan_piece *p =
			&m->pieces.v[m->held.v[i].piece];
		struct group *g = &v[p->zero];

		if (g->seen++ == t % g->holders)
			p->file = m->held.v[i].pos;
	}
	for (uint32_t i = first_piece; i < m->pieces.nr; i++)
		m->pieces.v[i].zero = 0;
}

static int cut(struct ck_slice_plan_making *m, uint32_t t, struct ck_err *err)
{
	uint64_t nr = ck_layout_out_groups(ck_slice_plan_target(m, t));
	ck_auto_free struct group *v = calloc(nr + 1, sizeof(*v));
	uint32_t first_piece = (uint32_t)m->pieces.nr;
	size_t first_held = m->held.nr;
	int ret =
		v ? ck_vec_put(&m->first, err, first_piece) : ck_no_memory(err);

	if (!ret)
		ret = add_tensor(m, t, err);
	for (uint64_t g = 0; v && g < nr; g++)
		v[g].piece = CK_NONE;
	for (uint32_t pos = 0; pos < m->nr_ranks && !ret; pos++)
		ret = hold(m, t, pos, v, err);
	if (!ret)
		choose(m, t, first_held, first_piece, v, nr);
	return ret;
}

/* ---- files ---- */

static int name_file(struct ck_slice_plan_making *m, uint32_t pos,
		     struct ck_err *err)
{
	ck_auto_str struct ck_str name = { 0 };
	struct ck_slice_plan_file f = { .rank = ck_layout_rank(&m->lay.doc.mesh,
							       pos) };
	int ret = ck_layout_out_file(&m->lay, pos, &name, err);

	if (ret)
		return ck_wrap(err, ret, "write.path");
	if (name.failed)
		return ck_no_memory(err);
	if (name.len > 240)
		return ck_fail(err, EINVAL, "write.path: %.80s...: too long",
			       name.v);
	f.name = ck_slice_plan_put_str(m, name.v, name.len);
	return ck_vec_put(&m->files, err, f);
}

static int name_files(struct ck_slice_plan_making *m, struct ck_err *err)
{
	ck_auto_strmap struct ck_strmap seen = { 0 };
	int ret = 0;

	for (uint32_t i = 0; i < m->nr_ranks && !ret; i++)
		ret = name_file(m, i, err);
	if (!ret && m->strs.failed)
		ret = ck_no_memory(err);
	for (uint32_t i = 0; i < m->nr_ranks && !ret; i++) {
		const char *name = m->strs.v + m->files.v[i].name;
		uint32_t nr = ck_strmap_put(&seen, name, strlen(name));

		if (nr == CK_STRMAP_NONE)
			ret = ck_no_memory(err);
		else if (nr < i)
			ret = ck_fail(err, EINVAL,
				      "write.path: ranks %" PRIu64
				      " and %" PRIu64 " would both be %s",
				      m->files.v[nr].rank, m->files.v[i].rank,
				      name);
	}
	return ret;
}

/* By file, and then by tensor; packed ones by the size of their elements. */
static unsigned elem_of(const struct ck_slice_plan_making *m,
			const struct ck_slice_plan_piece *p)
{
	return ck_dtype_info(m->tensors.v[p->tensor].dtype)->size;
}

static int by_file(const void *a, const void *b, void *ctx)
{
	const struct ck_slice_plan_making *m = ctx;
	const struct ck_slice_plan_piece *p =
		&m->pieces.v[*(const uint32_t *)a];
	const struct ck_slice_plan_piece *q =
		&m->pieces.v[*(const uint32_t *)b];
	unsigned x = elem_of(m, p), y = elem_of(m, q);

	if (p->file == q->file && m->lay.align == 1 && x != y)
		return ck_order(y, x);
	if (p->file == q->file && p->tensor == q->tensor)
		return p < q ? -1 : p > q;
	return ck_order2(p->file, q->file, p->tensor, q->tensor);
}

static int sort_pieces(struct ck_slice_plan_making *m, struct ck_err *err)
{
	size_t nr = m->pieces.nr;
	struct ck_slice_plan_piece *v = calloc(nr + 1, sizeof(*v));
	ck_auto_free uint32_t *order = calloc(nr + 1, sizeof(*order));

	m->to = calloc(nr + 1, sizeof(*m->to));
	if (!v || !m->to || !order) {
		free(v);
		return ck_no_memory(err);
	}
	for (uint32_t i = 0; i < nr; i++)
		order[i] = i;
	qsort_r(order, nr, sizeof(*order), by_file, m);
	for (uint32_t i = 0; i < nr; i++) {
		v[i] = m->pieces.v[order[i]];
		m->to[order[i]] = i;
	}
	for (size_t i = 0; i < m->held.nr; i++)
		m->held.v[i].piece = m->to[m->held.v[i].piece];
	free(m->pieces.v);
	m->pieces.v = v;
	m->pieces.room = nr + 1;
	return 0;
}

static struct ck_slice_plan tables_of(const struct ck_slice_plan_making *m)
{
	return (struct ck_slice_plan){
		.files = m->files.v,
		.tensors = m->tensors.v,
		.pieces = m->pieces.v,
		.dims = m->dims.v,
		.strs = m->strs.v,
		.nr_files = (uint32_t)m->files.nr,
		.dcp = m->lay.form->indexed,
	};
}

/* What comes before and behind a piece; nothing where there is a header. */
static int frame_of(const struct ck_slice_plan_making *m,
		    const struct ck_slice_plan_piece *x, uint64_t *head,
		    uint64_t *tail, struct ck_err *err)
{
	const struct ck_slice_plan p = tables_of(m);
	struct ck_torch_blob b;
	int ret;

	*head = *tail = 0;
	if (!m->lay.form->indexed)
		return 0;
	ret = ck_slice_plan_blob(&p, x, 0, &b, err);
	*head = b.head.len;
	*tail = b.tail.len;
	ck_torch_blob_free(&b);
	return ret;
}

/* Offsets after the header, as it does not know its own length yet. */
static int place_pieces(struct ck_slice_plan_making *m, struct ck_err *err)
{
	uint64_t at = 0, align = m->lay.align, head, tail;
	int ret = 0;

	for (uint32_t i = 0; i < m->pieces.nr && !ret; i++) {
		struct ck_slice_plan_piece *p = &m->pieces.v[i];
		struct ck_slice_plan_file *f = &m->files.v[p->file];

		ret = frame_of(m, p, &head, &tail, err);
		if (!f->nr++) {
			f->first = i;
			at = 0;
		}
		at += head;
		if (p->len)
			at = (at + align - 1) & ~(align - 1);
		p->off = at;
		if (!ret && (!ck_add_ok(at, p->len + tail, &at) ||
			     at > CK_SIZE_MAX / 2))
			ret = ck_fail(err, EINVAL, "write: too large");
		f->size = at;
	}
	return ret;
}

/* ---- the bytes ---- */

static void align8(struct ck_str *s)
{
	static const char zero[8];

	ck_str_add(s, zero, -s->len & 7);
}

/* By position, each with its entries in the order of tensors. */
static int put_ranks(struct ck_slice_plan_making *m, struct ck_str *ranks,
		     struct ck_str *entries)
{
	ck_auto_free uint32_t *at = calloc(m->nr_ranks + 2, sizeof(*at));
	ck_auto_free uint32_t *to = calloc(m->held.nr + 1, sizeof(*to));

	if (!at || !to)
		return -ENOMEM;
	for (size_t i = 0; i < m->held.nr; i++)
		at[m->held.v[i].pos + 1]++;
	for (uint64_t i = 0; i < m->nr_ranks; i++) {
		const struct ck_slice_plan_rank r = {
			.rank = m->files.v[i].rank,
			.first = at[i],
			.nr = at[i + 1],
		};

		ck_str_add(ranks, &r, sizeof(r));
		at[i + 1] += at[i];
	}
	/* in the order of tensors, as they were found */
	for (size_t i = 0; i < m->held.nr; i++)
		to[at[m->held.v[i].pos]++] = m->held.v[i].piece;
	ck_str_add(entries, to, m->held.nr * sizeof(*to));
	return ranks->failed || entries->failed ? -ENOMEM : 0;
}

static int rank_order(const void *a, const void *b)
{
	const struct ck_slice_plan_rank *x = a, *y = b;

	return ck_order(x->rank, y->rank);
}

static int put_all(struct ck_slice_plan_making *m, struct ck_str *out,
		   struct ck_err *err)
{
	ck_auto_str struct ck_str ranks = { 0 }, entries = { 0 };
	struct ck_slice_plan_head h = {
		.magic = CK_SLICE_PLAN_MAGIC,
		.version = CK_SLICE_PLAN_VERSION,
		.nr_files = m->files.nr,
		.nr_tensors = m->tensors.nr,
		.nr_pieces = m->pieces.nr,
		.nr_ranks = m->nr_ranks,
		.nr_dims = m->dims.nr,
		.nr_entries = m->held.nr,
		.strs_len = m->strs.len,
		.layout = m->text,
		.dcp = m->lay.form->indexed,
	};

	if (put_ranks(m, &ranks, &entries))
		return ck_no_memory(err);
	qsort(ranks.v, m->nr_ranks, sizeof(struct ck_slice_plan_rank),
	      rank_order);
	ck_str_add(out, &h, sizeof(h));
	ck_str_add(out, m->files.v, m->files.nr * sizeof(*m->files.v));
	ck_str_add(out, m->tensors.v, m->tensors.nr * sizeof(*m->tensors.v));
	ck_str_add(out, m->pieces.v, m->pieces.nr * sizeof(*m->pieces.v));
	ck_str_add(out, ranks.v, ranks.len);
	ck_str_add(out, m->dims.v, m->dims.nr * sizeof(*m->dims.v));
	ck_str_add(out, entries.v, entries.len);
	align8(out);
	ck_str_add(out, m->strs.v, m->strs.len);
	if (out->failed)
		return ck_no_memory(err);
	h.len = out->len;
	memcpy(out->v, &h, sizeof(h));
	h.id = XXH3_64bits(out->v + CK_SLICE_PLAN_HASHED,
			   out->len - CK_SLICE_PLAN_HASHED);
	memcpy(out->v, &h, sizeof(h));
	return 0;
}

/* Lengths of headers are known once there are tables to make them from. */
static int place_files(struct ck_slice_plan_making *m, struct ck_str *out,
		       struct ck_err *err)
{
	const struct ck_slice_plan p = tables_of(m);
	uint64_t align = CK_MAX(m->lay.align, 8);
	int ret = 0;

	for (uint32_t i = 0; i < m->files.nr && !ret && !p.dcp; i++) {
		struct ck_slice_plan_file *f = &m->files.v[i];

		out->len = 0;
		ret = ck_slice_plan_header(&p, i, out, err);
		f->data = (out->len + align - 1) & ~(align - 1);
	}
	out->len = 0;
	for (uint32_t i = 0; i < m->pieces.nr && !ret; i++)
		m->pieces.v[i].off += m->files.v[m->pieces.v[i].file].data;
	for (uint32_t i = 0; i < m->files.nr && !ret; i++)
		m->files.v[i].size += m->files.v[i].data;
	return ret;
}

static int make(struct ck_slice_plan_making *m, struct ck_str *out,
		struct ck_err *err)
{
	int ret = sort_targets(m, err);

	m->nr_ranks = m->lay.doc.mesh.nr_ranks;
	for (uint32_t t = 0; t < m->lay.targets.nr && !ret; t++)
		ret = cut(m, t, err);
	if (!ret)
		ret = name_files(m, err);
	if (!ret)
		ret = sort_pieces(m, err);
	if (!ret)
		ret = place_pieces(m, err);
	if (!ret)
		ret = place_files(m, out, err);
	if (!ret)
		ret = ck_slice_plan_report_layout(m, err);
	return ret ? ret : put_all(m, out, err);
}

/* Of all formats that can be written; the one that is preferred is first. */
static void find_forms(const struct ck_layout_form **forms)
{
	size_t nr = 0;

	for (int first = 1; first >= 0; first--)
		for (size_t i = 0; ck_formats[i]; i++)
			if (ck_formats[i]->form && nr + 1 < MAX_FORMS &&
			    ck_formats[i]->preferred == first)
				forms[nr++] = ck_formats[i]->form;
	forms[nr] = NULL;
}

int ck_slice_plan_make(struct ck_str *out, const char *name, const char *layout,
		       size_t len, const char *format, struct ck_err *err)
{
	const struct ck_layout_form *forms[MAX_FORMS];
	struct ck_slice_plan_making m = { 0 };
	int ret;

	find_forms(forms);
	ret = ck_layout_out_parse(&m.lay, name, layout, len, forms, format,
				  err);

	/* what is empty is pointed into, too */
	if (!ret && !ck_vec_reserve(&m.dims, 1))
		ret = ck_no_memory(err);
	if (!ret) {
		ret = make(&m, out, err);
		ret = ck_wrap(err, ret, "%s", name);
	}
	free(m.files.v);
	free(m.tensors.v);
	free(m.pieces.v);
	free(m.held.v);
	free(m.dims.v);
	free(m.first.v);
	free(m.to);
	ck_str_free(&m.strs);
	ck_layout_out_free(&m.lay);
	return ret;
}
