/* SPDX-License-Identifier: Apache-2.0 */
/* rank_layout.c - tensors with a box for each part; see the header */
#include "core/view/rank_layout.h"

#include "core/geom/dtype.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

/* Names are templates, in which braces are doubled. */
static void add_template(struct ck_str *out, const char *name, size_t len)
{
	ck_auto_str struct ck_str s = { 0 };

	for (size_t i = 0; i < len; i++) {
		ck_str_add(&s, name + i, 1);
		if (name[i] == '{' || name[i] == '}')
			ck_str_add(&s, name + i, 1);
	}
	ck_str_json(out, s.v ? s.v : "", s.len);
	out->failed = out->failed || s.failed;
}

static void add_box(struct ck_str *out, bool first, uint32_t rank,
		    const struct ck_merged_tensor *m, const struct ck_box *box,
		    uint64_t skip, bool whole)
{
	ck_str_fmt(out,
		   "%s\n   {\"file\": \"rank-%05" PRIu32
		   ".safetensors\", \"kind\": \"safetensors\", \"key\": ",
		   first ? "" : ",", rank);
	ck_str_json(out, m->name, m->name_len);
	ck_str_puts(out, ", \"start\": ");
	ck_str_json_u64(out, box->start, box->rank);
	ck_str_puts(out, ", \"size\": ");
	ck_str_json_u64(out, box->len, box->rank);
	/* elements of the key, whose own shape is that of all pieces */
	if (!whole)
		ck_str_fmt(out,
			   ", \"skip\": %" PRIu64 ", \"flat\": [0, %" PRIu64
			   "]",
			   skip, ck_box_volume(box));
	ck_str_puts(out, "}");
}

/* Its pieces, which lie one after the other in the file; false: they do not. */
static bool add_part(struct ck_str *out, bool *any, uint32_t rank,
		     const struct ck_merged_tensor *m, const struct ck_shard *s)
{
	uint64_t volume = ck_box_volume(&s->box);
	struct ck_box box;

	for (unsigned d = 0; s->nr > 1 && d < s->dim; d++)
		if (s->box.len[d] != 1)
			return false;
	for (uint64_t at = 0; at < volume; at += ck_box_volume(&box)) {
		uint64_t skip;

		ck_shard_at(s, at, &box, &skip);
		add_box(out, !*any, rank, m, &box, at, s->nr <= 1);
		*any = true;
	}
	return true;
}

static bool add_tensor(struct ck_str *out, const struct ck_reshard *rs,
		       const struct ck_image *img,
		       const struct ck_merged_tensor *m)
{
	const struct ck_tensor *t = &img->tensors[m->tensor];
	struct ck_reshard_part part;
	bool any = false;

	ck_str_puts(out, "  {\"name\": ");
	add_template(out, m->name, m->name_len);
	ck_str_fmt(out, ", \"dtype\": \"%s\", \"shape\": ",
		   ck_dtype_info(t->dtype)->name);
	ck_str_json_u64(out, img->dims + t->shape, t->rank);
	ck_str_puts(out, ", \"boxes\": [");
	for (uint32_t r = 0; r < ck_reshard_ranks(rs); r++)
		if (ck_reshard_part(rs, r, m->tensor, &part) && !part.zeros &&
		    !add_part(out, &any, r, m, &part.shard))
			return false;
	ck_str_puts(out, "]}");
	return true;
}

int ck_rank_layout_make(struct ck_str *out, const struct ck_reshard *rs,
			const struct ck_merged_in *in, struct ck_err *err)
{
	if ((uint64_t)in->nr * ck_reshard_ranks(rs) > CK_RANK_LAYOUT_PARTS)
		return -ENOENT;
	ck_str_puts(out, "{\"unshard_layout\": 1, \"tensors\": [\n");
	for (uint32_t i = 0; i < in->nr && !out->failed; i++) {
		ck_str_puts(out, i ? ",\n" : "");
		if (!add_tensor(out, rs, in->img, &in->v[i]))
			return -ENOENT;
	}
	ck_str_puts(out, "\n]}\n");
	return out->failed ? ck_fail(err, ENOMEM, "no memory for a layout") : 0;
}
