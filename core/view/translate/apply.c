/* SPDX-License-Identifier: Apache-2.0 */
/* apply.c - tensors, slices and boxes of rows under the names that rules give */
#include "core/view/translate/apply.h"

#include "core/base/check.h"
#include "core/base/match.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* One tensor, or a slice of it, on its way. */
struct work {
	struct ck_derivation *d;
	struct ck_name_rules *r;
	const struct ck_catalog *img;
	const struct ck_merged_tensor *m;
	const struct ck_name_take *take;
	struct ck_name_vars vars;
	uint64_t at, rows, row; /* bytes; rows of it; bytes a row */
	unsigned rank;
	uint64_t shape[CK_MAX_RANK];
	uint64_t run, run_len; /* rows that are not said yet */
	uint64_t nr; /* rows said, with these */
	bool apart; /* some of them are shown apart */
	struct ck_err *err;
};

/* ---- rows ---- */

static bool flush(struct work *w)
{
	uint64_t len = w->run_len;

	w->run_len = 0;
	return !len ||
	       ck_derive_range(w->d, w->at + w->run * w->row, len * w->row);
}

static bool add_rows(struct work *w, uint64_t from, uint64_t nr)
{
	w->nr += nr;
	if (w->run_len && w->run + w->run_len == from) {
		w->run_len += nr;
		return true;
	}
	if (!flush(w))
		return false;
	w->run = from;
	w->run_len = nr;
	return true;
}

/* Of a box: how far apart, how many of them, and how far apart when shown. */
struct axis {
	uint64_t stride, from, len, out;
};

static void measure(const struct ck_name_take *t, const struct ck_name_at *at,
		    struct axis axis[CK_RULE_AXES])
{
	uint64_t step = 1;

	for (unsigned a = t->nr_rows; a-- > 0; step *= t->rows[a]) {
		bool cut = at && at->axis == a;

		axis[a] = (struct axis){ .stride = step,
					 .from = cut ? at->from : 0,
					 .len = cut ? at->len : t->rows[a] };
	}
	step = 1;
	for (unsigned k = t->nr_rows; k-- > 0; step *= axis[t->order[k]].len)
		axis[t->order[k]].out = step;
}

/* Rows that are shown @step apart: columns, from @to on. */
static bool add_apart(struct work *w, uint64_t from, uint64_t nr, uint64_t to,
		      uint64_t step)
{
	struct ck_derived_range *r;

	if (!flush(w) ||
	    !ck_derive_range(w->d, w->at + from * w->row, nr * w->row))
		return false;
	r = &w->d->range.v[w->d->range.nr - 1];
	r->to = to;
	r->step = step;
	w->nr += nr;
	return true;
}

/* Every row of the box in the order of the line, one piece of it. */
static bool add_piece(struct work *w, const struct ck_name_at *at)
{
	const struct ck_name_take *t = w->take;
	unsigned last = t->nr_rows - 1;
	uint64_t i[CK_RULE_AXES] = { 0 }, base = w->nr, run = 1, total = 1;
	struct axis axis[CK_RULE_AXES];

	measure(t, at, axis);
	for (unsigned a = 0; a <= last; a++)
		total *= axis[a].len;
	/* as runs of the rows that are stored one after the other */
	if (axis[last].out > 1 && (t->turned || w->rank == 1)) {
		run = axis[last].len;
		w->apart = true;
	}
	for (uint64_t n = 0; n < total; n += run) {
		uint64_t row = 0, to = base;

		for (unsigned a = 0; a <= last; a++) {
			row += (axis[a].from + i[a]) * axis[a].stride;
			to += i[a] * axis[a].out;
		}
		if (!(w->apart ? add_apart(w, row, run, to, axis[last].out) :
				 add_rows(w, row, 1)))
			return false;
		for (unsigned k = t->nr_rows; k-- > 0;) {
			unsigned a = t->order[k];

			if (run > 1 && a == last)
				continue;
			if (++i[a] < axis[a].len)
				break;
			i[a] = 0;
		}
	}
	return true;
}

static int add_box(struct work *w)
{
	const struct ck_name_take *t = w->take;
	uint64_t product = 1;
	bool ok = true;

	for (unsigned a = 0; a < t->nr_rows; a++)
		if (!ck_mul_ok(product, t->rows[a], &product))
			return -EINVAL;
	if (product != w->rows)
		return ck_fail(w->err, EINVAL,
			       "%.*s has %" PRIu64 " rows, and by config.json "
			       "it should have %" PRIu64,
			       (int)w->m->name_len, w->m->name, w->rows,
			       product);
	for (unsigned i = 0; ok && i < t->nr_at; i++)
		ok = add_piece(w, &t->at[i]);
	if (ok && !t->nr_at)
		ok = add_piece(w, NULL);
	return ok && flush(w) ? 0 : ck_no_memory(w->err);
}

static int add_all(struct work *w)
{
	uint64_t nr = w->rows;

	if (w->take->cut)
		nr = CK_MIN(nr, w->take->cut_to);
	return add_rows(w, 0, nr) && flush(w) ? 0 : ck_no_memory(w->err);
}

/* ---- a tensor that is shown ---- */

static void put_shape(char *out, size_t room, const uint64_t *shape,
		      unsigned rank)
{
	size_t at = (size_t)snprintf(out, room, "[");

	for (unsigned i = 0; i < rank && at < room; i++)
		at += (size_t)snprintf(out + at, room - at, "%s%" PRIu64,
				       i ? ", " : "", shape[i]);
	if (at < room)
		snprintf(out + at, room - at, "]");
}

/* Of a part: as one that is alone, but along the dimension that parts share. */
static int check_shape(const struct work *w, const struct ck_derived *t,
		       const struct ck_name_has *has)
{
	const struct ck_name_take *take = w->take;
	unsigned rank = has->rank - take->stack, joint = CK_MAX_RANK;
	const uint64_t *shape = has->shape + take->stack;
	char here[120], there[120];
	bool ok = t->rank == rank;

	if (take->parts > 1 && rank)
		joint = take->turned ? rank - 1 : 0;
	for (unsigned d = 0; ok && d < rank; d++)
		ok = d == joint ? t->shape[d] <= shape[d] :
				  t->shape[d] == shape[d];
	if (ok)
		return 0;
	put_shape(here, sizeof(here), t->shape, t->rank);
	put_shape(there, sizeof(there), shape, rank);
	return ck_fail(w->err, EINVAL,
		       "%s%.200s would be %s, from %.*s, and by config.json "
		       "it is %s",
		       t->parts > 1 ? "a part of " : "", t->name, here,
		       (int)CK_MIN(w->m->name_len, (size_t)200), w->m->name,
		       there);
}

/* Which of how many parts of one tensor it is; -EINVAL: of more than it has. */
static int place(const struct work *w, struct ck_derived *t,
		 const struct ck_name_has *has)
{
	uint64_t expert = w->take->stack ? w->vars.v[1] : 0;
	uint64_t experts = w->take->stack ? has->shape[0] : 1;

	if (expert >= experts)
		return ck_fail(w->err, EINVAL,
			       "%.*s is of expert %" PRIu64
			       ", and by config.json there are %" PRIu64,
			       (int)CK_MIN(w->m->name_len, (size_t)200),
			       w->m->name, expert, experts);
	if (!w->take->stack && w->take->parts == 1)
		return 0;
	t->part = expert * w->take->parts + w->take->part;
	t->parts = experts * w->take->parts;
	t->each = w->take->parts;
	return 0;
}

/* @has->name with its numbers; false: it is too long. */
static bool put_name(const struct work *w, struct ck_tp_word p, char *out,
		     size_t room)
{
	size_t at = 0;

	while (p.len) {
		unsigned bits = ck_name_bits(
			(struct ck_tp_word){ p.s, CK_MIN(p.len, (size_t)3) });

		if (at + 24 > room)
			return false;
		if (*p.s == '{' && bits) {
			at += (size_t)snprintf(out + at, room - at, "%" PRIu64,
					       w->vars.v[bits == 2]);
			p.s += 3;
			p.len -= 3;
		} else {
			out[at++] = *p.s++;
			p.len--;
		}
	}
	out[at] = '\0';
	return true;
}

/* The rows, and the shape that they have. */
static int put_rows(struct work *w, struct ck_derived *t)
{
	int ret;

	t->rank = w->rank;
	memcpy(t->shape, w->shape, w->rank * sizeof(*t->shape));
	w->nr = w->run_len = 0;
	w->apart = false;
	ret = w->take->nr_rows ? add_box(w) : add_all(w);
	if (ret)
		return ret;
	if (t->rank)
		t->shape[0] = w->nr;
	if (w->take->turned && !ck_derive_turn(w->d, w->img))
		return ck_fail(w->err, EINVAL, "%.*s: expected a matrix",
			       (int)CK_MIN(w->m->name_len, (size_t)200),
			       w->m->name);
	if (w->apart && !t->turned)
		t->turned = 1;
	return 0;
}

static int show(struct work *w)
{
	struct ck_name_has *has = &w->r->has.v[w->take->has];
	struct ck_derived *t;
	char name[512];
	int ret;

	if (!put_name(w, has->name, name, sizeof(name)))
		return ck_fail(w->err, EINVAL,
			       "%.*s: its name would be too "
			       "long",
			       (int)CK_MIN(w->m->name_len, (size_t)200),
			       w->m->name);
	t = ck_derive_add(w->d, w->img, w->m->tensor, name);
	if (!t)
		return ck_no_memory(w->err);
	ret = place(w, t, has);
	if (!ret)
		ret = put_rows(w, t);
	if (!ret)
		ret = check_shape(w, t, has);
	if (ret)
		return ret;
	has->nr += !t->part;
	t->rank = has->rank;
	memcpy(t->shape, has->shape, t->rank * sizeof(*t->shape));
	return 0;
}

/* Slice @nr of @of that its first @skip dimensions are. */
static void slice(struct work *w, unsigned skip, uint64_t nr, uint64_t of)
{
	const struct ck_tensor *t = &w->img->tensors[w->m->tensor];
	const uint64_t *shape = w->img->dims + t->shape;
	uint64_t size = t->size / CK_MAX(of, UINT64_C(1));

	w->rank = t->rank - skip;
	memcpy(w->shape, shape + skip, w->rank * sizeof(*shape));
	w->rows = w->rank ? w->shape[0] : 1;
	w->row = w->rows ? size / w->rows : 0;
	w->at = nr * size;
}

static int follow(struct work *w)
{
	const struct ck_tensor *t = &w->img->tensors[w->m->tensor];
	const uint64_t *shape = w->img->dims + t->shape;
	struct ck_name_vars vars = w->vars;
	unsigned bits = ck_name_bits(w->r->has.v[w->take->has].name) |
			(w->take->stack ? 1u << 1 : 0);
	unsigned skip = 0, var[CK_RULE_VARS];
	uint64_t nr = 1;
	int ret = 0;

	for (unsigned i = 0; i < CK_RULE_VARS; i++)
		if (bits & 1u << i && vars.v[i] == CK_SIZE_MAX)
			var[skip++] = i;
	if (t->rank < skip)
		return ck_fail(w->err, EINVAL, "%.*s: expected a stack of %s",
			       (int)CK_MIN(w->m->name_len, (size_t)200),
			       w->m->name, var[0] ? "experts" : "layers");
	for (unsigned i = 0; i < skip; i++)
		nr *= shape[i];
	for (uint64_t n = 0; n < nr && !ret; n++) {
		uint64_t rest = n;

		for (unsigned i = skip; i-- > 0; rest /= shape[i])
			w->vars.v[var[i]] = rest % shape[i];
		slice(w, skip, n, nr);
		ret = show(w);
	}
	return ret;
}

/* ---- which lines ---- */

/* Without what @file takes off the front. */
static const char *bare(const struct ck_name_rules *r, unsigned file,
			const char *name, size_t *len)
{
	for (size_t i = 0; i < r->off.nr; i++) {
		struct ck_tp_word off = r->off.v[i].text;

		if (r->off.v[i].file != file || off.len >= *len ||
		    memcmp(name, off.s, off.len) != 0)
			continue;
		name += off.len;
		*len -= off.len;
		i = SIZE_MAX; /* from the first on */
	}
	return name;
}

static bool is_skipped(const struct ck_name_rules *r,
		       const struct ck_merged_tensor *m)
{
	for (size_t i = 0; i < r->skip.nr; i++)
		if (ck_glob(r->skip.v[i].text.s, r->skip.v[i].text.len, m->name,
			    m->name_len))
			return true;
	return false;
}

int ck_name_apply(struct ck_derivation *d, struct ck_name_rules *r,
		  const struct ck_catalog *img,
		  const struct ck_merged_tensor *m, struct ck_err *err)
{
	struct work w = { .d = d, .r = r, .img = img, .m = m, .err = err };
	unsigned file = UINT32_MAX;
	const char *name = NULL;
	size_t len = 0;
	bool any = false;
	int ret = 0;

	for (size_t i = 0; i < r->take.nr && !ret; i++) {
		w.take = &r->take.v[i];
		if (w.take->file != file) {
			if (any)
				break;
			file = w.take->file;
			len = m->name_len;
			name = bare(r, file, m->name, &len);
		}
		if (!ck_name_fits(w.take->source, name, len, true, &w.vars))
			continue;
		any = true;
		ret = follow(&w);
	}
	return ret ? ret : any || is_skipped(r, m);
}
