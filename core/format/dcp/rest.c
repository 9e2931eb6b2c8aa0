/* SPDX-License-Identifier: Apache-2.0 */
/*
 * rest.c - nesting, and what one dictionary has and another has not
 */
#include "core/format/dcp/dcp.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

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

int ck_dcp_add_paths(struct ck_dcp *d, struct ck_err *err)
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

int ck_dcp_report_unused(struct ck_dcp *d, struct ck_err *err)
{
	const struct ck_problem_in extra = {
		.severity = CK_WARNING,
		.file = d->m->file,
	};
	const struct ck_dcp_item *first = NULL;
	const struct ck_strmap_key *name;
	uint64_t nr = 0;
	int ret = 0;

	for (size_t i = 0; i < d->items.v.nr; i++) {
		if (d->items.v.v[i].used)
			continue;
		first = nr++ ? first : &d->items.v.v[i];
	}
	if (d->items.odd)
		ret = ck_builder_problem(d->b, &extra, err,
					 "%" PRIu64
					 " entries of storage_data are no "
					 "MetadataIndex and _StorageInfo as "
					 "they should be, the first is number "
					 "%" PRIu64,
					 d->items.odd, d->items.first_odd);
	if (!ret && d->items.twice)
		ret = ck_builder_problem(d->b, &extra, err,
					 "%" PRIu64
					 " entries of storage_data repeat the "
					 "name and offset of another; the "
					 "first counts",
					 d->items.twice);
	if (ret || !nr)
		return ret;
	name = &d->items.names.v[first->name];
	return ck_builder_problem(d->b, &extra, err,
				  "%" PRIu64 " entries of "
				  "storage_data belong to no part of a tensor, "
				  "the first is of %.*s",
				  nr, (int)(name->len < 200 ? name->len : 200),
				  name->s);
}

static int report_lost(struct ck_dcp *d, const struct ck_dcp_meta *m,
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
		ret = report_lost(d, &d->meta[i], err);
	return ret;
}
