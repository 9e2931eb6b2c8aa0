/* SPDX-License-Identifier: Apache-2.0 */
/* derived_file.c - their header and their ranges, as one file */
#include "core/view/derive/derived_file.h"

#include "core/base/auto.h"
#include "core/base/check.h"
#include "core/emit/st_out.h"
#include "core/geom/dtype.h"
#include "core/view/merged.h"

#include <endian.h>
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

uint64_t ck_derived_size(const struct ck_derived *t)
{
	uint64_t n = ck_dtype_info(t->dtype)->size;

	for (unsigned d = 0; d < t->rank; d++)
		n *= t->shape[d];
	return n;
}

static bool is_lost(const struct ck_catalog *img, const struct ck_derivation *d,
		    const struct ck_derived *t)
{
	for (uint32_t i = 0; i < t->nr; i++)
		if (ck_merged_is_lost(img, d->range.v[t->first + i].tensor))
			return true;
	return false;
}

struct order {
	struct ck_derived t;
	size_t nr; /* as they came */
	bool lost; /* some of its bytes are */
};

static int file_order(const void *pa, const void *pb)
{
	const struct order *a = pa, *b = pb;
	unsigned wa = ck_dtype_info(a->t.dtype)->size;
	unsigned wb = ck_dtype_info(b->t.dtype)->size;

	if (a->lost != b->lost)
		return a->lost ? 1 : -1;
	if (wa != wb)
		return wa > wb ? -1 : 1;
	return a->nr < b->nr ? -1 : a->nr > b->nr;
}

int ck_derived_sort(struct ck_derivation *d, const struct ck_catalog *img,
		    struct ck_err *err)
{
	ck_auto_free struct order *o = calloc(d->v.nr + 1, sizeof(*o));

	if (!o)
		return ck_no_memory(err);
	for (size_t i = 0; i < d->v.nr; i++)
		o[i] = (struct order){ d->v.v[i], i,
				       is_lost(img, d, &d->v.v[i]) };
	qsort(o, d->v.nr, sizeof(*o), file_order);
	for (size_t i = 0; i < d->v.nr; i++)
		d->v.v[i] = o[i].t;
	return 0;
}

static void put_header(struct ck_str *json, const struct ck_catalog *img,
		       const struct ck_derivation *d, size_t from, size_t nr,
		       const struct ck_str *metadata)
{
	static const char none[] = "{\"format\":\"pt\"}";
	uint64_t at = 0, whole = CK_ST_OUT_ALL;

	if (metadata)
		ck_st_out_begin(json, metadata->v, metadata->len);
	else
		ck_st_out_begin(json, none, sizeof(none) - 1);
	for (size_t i = from; i < from + nr; i++) {
		const struct ck_derived *t = &d->v.v[i];

		if (whole == CK_ST_OUT_ALL && is_lost(img, d, t))
			whole = at;
		ck_st_out_entry(json, t->name, strlen(t->name), t->dtype,
				t->shape, t->rank, at, ck_derived_size(t));
		at += ck_derived_size(t);
	}
	ck_st_out_end(json, whole);
}

static void saturate(struct ck_piece *p, const struct ck_derived *t)
{
	if (p)
		p->saturate = t->saturate;
}

/* A matrix: @nr ranges from @from on are its rows. */
static void add_matrix(struct ck_compose *out, const struct ck_catalog *img,
		       const struct ck_derived *t,
		       const struct ck_derived_range *from, uint32_t nr)
{
	uint64_t row = t->turned * ck_dtype_info(t->stored)->size, at = 0;
	struct ck_turn_run *run = calloc(nr, sizeof(*run));
	struct ck_turned turned = { .turn = { .rows = t->shape[t->rank - 1],
					      .cols = t->turned,
					      .run = run,
					      .nr_runs = nr } };

	out->failed = out->failed || !run;
	for (uint32_t k = 0; run && k < nr; k++) {
		const struct ck_derived_range *r = &from[k];

		run[k] = (struct ck_turn_run){
			.ref = r->tensor,
			.first = r->at / row,
			.nr = r->len / row,
			.at = r->step ? r->to : at,
			.step = r->step ?: 1,
		};
		at += run[k].nr;
	}
	if (run)
		saturate(ck_compose_turned(out, img, &turned, t->dtype), t);
}

/* Its ranges are rows, of as many matrices as they fill. */
static void add_turned(struct ck_compose *out, const struct ck_catalog *img,
		       const struct ck_derivation *d,
		       const struct ck_derived *t)
{
	uint64_t size = t->turned * ck_dtype_info(t->stored)->size *
			t->shape[t->rank - 1];
	uint32_t nr = 0;
	uint64_t sum = 0;

	for (uint32_t k = 0; size && k < t->nr; k++) {
		nr++;
		sum += d->range.v[t->first + k].len;
		if (sum < size)
			continue;
		add_matrix(out, img, t, &d->range.v[t->first + k + 1 - nr], nr);
		sum = nr = 0;
	}
}

static void add_ranges(struct ck_compose *out, const struct ck_catalog *img,
		       const struct ck_derivation *d,
		       const struct ck_derived *t)
{
	for (uint32_t k = 0; k < t->nr; k++) {
		const struct ck_derived_range *r = &d->range.v[t->first + k];

		saturate(ck_compose_range(out, img, r->tensor, r->at, r->len,
					  t->dtype),
			 t);
	}
}

int ck_derived_file(struct ck_compose *out, const struct ck_catalog *img,
		    const struct ck_derivation *d, size_t from, size_t nr,
		    const struct ck_str *metadata, struct ck_err *err)
{
	ck_auto_str struct ck_str json = { 0 };
	uint64_t len;

	put_header(&json, img, d, from, nr, metadata);
	if (json.failed)
		return ck_no_memory(err);
	if (json.len > CK_MAX_HEADER)
		return ck_fail(err, E2BIG,
			       "the header would have %zu bytes, the format "
			       "allows %" PRIu64,
			       json.len, CK_MAX_HEADER);
	len = htole64(json.len);
	ck_compose_bytes(out, &len, sizeof(len));
	ck_compose_bytes(out, json.v, json.len);
	for (size_t i = from; i < from + nr; i++) {
		if (d->v.v[i].turned)
			add_turned(out, img, d, &d->v.v[i]);
		else
			add_ranges(out, img, d, &d->v.v[i]);
	}
	return ck_compose_done(out, err);
}
