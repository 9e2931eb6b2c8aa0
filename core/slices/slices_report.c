/* SPDX-License-Identifier: Apache-2.0 */
/*
 * slices_report.c - the layout that readers of what is written get
 *
 * Exact names, shapes and placements; files by the pattern of the layout for
 * writing, of which it keeps the mesh.
 */
#include "core/slices/slices_plan_priv.h"

#include "core/geom/dtype.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

static void report_sizes(struct ck_str *s, const struct ck_split *split)
{
	if (split->how == CK_SIZES_CEIL)
		ck_str_puts(s, ",\"sizes\":\"ceil\"");
	if (split->how == CK_SIZES_BALANCED)
		ck_str_puts(s, ",\"sizes\":\"balanced\"");
	if (split->how != CK_SIZES_GIVEN)
		return;
	ck_str_puts(s, ",\"sizes\":");
	ck_str_json_u64(s, split->given, split->nr);
}

static void report_placement(struct ck_str *s, const struct ck_layout_rule *r)
{
	ck_str_puts(s, ",\"placement\":[");
	for (size_t i = 0; i < r->nr_steps; i++) {
		const struct ck_mesh_step *step = &r->step[i];

		ck_str_fmt(s, "%s{\"axis\":\"%s\",", i ? "," : "",
			   step->axis_name);
		if (step->flat)
			ck_str_puts(s, "\"flat\":true");
		else
			ck_str_fmt(s, "\"shard\":%u", step->dim);
		report_sizes(s, &step->split);
		if (step->padded)
			ck_str_fmt(s, ",\"padded\":%" PRIu64, step->padded);
		ck_str_puts(s, "}");
	}
	ck_str_puts(s, "]");
}

static void report_boxes(const struct ck_slice_plan_making *m, struct ck_str *s,
			 const struct ck_slice_plan_tensor *t, uint32_t number)
{
	uint32_t first = m->first.v[number];
	size_t end = number + 1 < m->first.nr ? m->first.v[number + 1] :
						m->pieces.nr;

	ck_str_puts(s, ",\"boxes\":[");
	for (uint32_t i = first; i < end; i++) {
		const struct ck_slice_plan_piece *p = &m->pieces.v[m->to[i]];

		ck_str_fmt(s, "%s{\"at\":{\"rank\":%" PRIu64 "},\"start\":",
			   i > first ? "," : "", m->files.v[p->file].rank);
		ck_str_json_u64(s, m->dims.v + p->dims, t->grid_rank);
		ck_str_puts(s, ",\"size\":");
		ck_str_json_u64(s, m->dims.v + p->dims + t->grid_rank,
				t->grid_rank);
		if (p->flat)
			ck_str_fmt(s, ",\"flat\":[%" PRIu64 ",%" PRIu64 "]",
				   p->lo, p->hi);
		ck_str_puts(s, "}");
	}
	ck_str_puts(s, "]");
}

static void report_tensor(const struct ck_slice_plan_making *m,
			  struct ck_str *s, uint32_t i)
{
	const struct ck_layout_target *from = ck_slice_plan_target(m, i);
	const struct ck_layout_rule *r = from->rule;
	const struct ck_slice_plan_tensor *t = &m->tensors.v[i];

	ck_str_puts(s, "\n  {\"name\":");
	ck_str_json(s, from->name, strlen(from->name));
	ck_str_fmt(s, ",\"dtype\":\"%s\",\"shape\":",
		   ck_dtype_info(t->dtype)->name);
	ck_str_json_u64(s, m->dims.v + t->shape, t->rank);
	if (r->view.v) {
		ck_str_puts(s, ",\"view\":");
		ck_str_json_u64(s, m->dims.v + t->grid, t->grid_rank);
	}
	if (r->boxed)
		report_boxes(m, s, t, i);
	else if (r->nr_steps)
		report_placement(s, r);
	ck_str_puts(s, "},");
}

static void report_mesh(const struct ck_slice_plan_making *m, struct ck_str *s)
{
	const struct ck_layout_mesh *mesh = &m->lay.doc.mesh;

	ck_str_puts(s, "{\"unshard_layout\":1,\n \"mesh\":{\"axes\":[");
	for (unsigned a = 0; a < mesh->nr; a++)
		ck_str_fmt(s, "%s{\"name\":\"%s\",\"size\":%" PRIu64 "}",
			   a ? "," : "", mesh->axis[a].name,
			   mesh->axis[a].size);
	ck_str_puts(s, "]");
	if (mesh->rank) {
		ck_str_puts(s, ",\"ranks\":");
		ck_str_json_u64(s, mesh->rank, mesh->nr_ranks);
	}
	ck_str_puts(s, "},\n \"files\":[{\"path\":");
	ck_str_json(s, m->lay.path, strlen(m->lay.path));
	ck_str_puts(s, ",\"kind\":\"safetensors\"}],\n \"tensors\":[");
}

int ck_slice_plan_report_layout(struct ck_slice_plan_making *m,
				struct ck_err *err)
{
	ck_auto_str struct ck_str s = { 0 };

	report_mesh(m, &s);
	for (uint32_t i = 0; i < m->tensors.nr; i++)
		report_tensor(m, &s, i);
	ck_str_puts(&s, "\n  {\"glob\":\"" CK_LAYOUT_FILLER "*\","
			"\"ignore\":true}]}\n");
	if (s.failed)
		return ck_no_memory(err);
	if (s.len > CK_LAYOUT_MAX_BYTES)
		return ck_fail(err, E2BIG,
			       "the layout of what is written would have %zu "
			       "bytes, of at most %" PRIu64,
			       s.len, CK_LAYOUT_MAX_BYTES);
	m->text = ck_slice_plan_put_str(m, s.v, s.len);
	return m->strs.failed ? ck_no_memory(err) : 0;
}
