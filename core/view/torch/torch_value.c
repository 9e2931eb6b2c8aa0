/* SPDX-License-Identifier: Apache-2.0 */
/*
 * torch_value.c - plain values out of one pickle, into another
 */
#include "core/view/torch/torch_value.h"

#include "core/base/auto.h"
#include "core/base/check.h"
#include "core/base/utf8.h"
#include "core/emit/pickle_out.h"
#include "core/parse/pickle.h"
#include "core/parse/zip.h"
#include "core/view/value_out.h"

#include <string.h>

#define MAX_STEPS (UINT64_C(1) << 20)

static void put_text(struct ck_value_out *o, ck_pv v)
{
	const char *text;
	size_t len;

	ck_pv_str(o->p, v, &text, &len);
	if (ck_utf8_ok(text, len))
		ck_po_str(o->s, text, len);
	else
		o->why = "a text in it is not UTF-8";
}

/* An OrderedDict is a dict. */
static bool is_dict(const struct ck_value_out *o, ck_pv v)
{
	return ck_pv_kind(v) == CK_P_DICT ||
	       (ck_pv_kind(v) == CK_P_CALL &&
		ck_pv_is_global(o->p, ck_pv_callee(o->p, v), "collections",
				"OrderedDict") &&
		!ck_pv_len(o->p, ck_pv_args(o->p, v)));
}

static void put_value(struct ck_value_out *o, ck_pv v)
{
	if (is_dict(o, v))
		ck_value_out_enter(o, v, true, "}(", "u");
	else if (ck_pv_kind(v) == CK_P_STR)
		put_text(o, v);
	else if (ck_pv_kind(v) == CK_P_TUPLE)
		ck_value_out_enter(o, v, false, "(", "t");
	else if (ck_pv_kind(v) == CK_P_LIST)
		ck_value_out_enter(o, v, false, "](", "e");
	else if (!ck_value_out_scalar(o, v))
		o->why = "it is more than numbers, texts, lists and dicts";
}

bool ck_torch_value(struct ck_str *out, const void *bytes, size_t len,
		    const char **why)
{
	ck_auto_pickle struct ck_pickle *pickle = NULL;
	struct ck_value_out o = { .s = out,
				  .put = put_value,
				  .max_steps = MAX_STEPS,
				  .max_len = CK_TORCH_VALUE_MAX };
	size_t begin = out->len;

	if (ck_pickle_parse(&pickle, bytes, len, NULL, NULL, NULL)) {
		*why = "its bytes are no pickle that can be read";
		return false;
	}
	o.p = pickle;
	ck_po_begin(out);
	ck_value_out_run(&o, ck_pickle_root(pickle));
	ck_po_end(out);
	*why = o.why;
	if (o.why)
		out->len = begin;
	return !o.why;
}

/* ---- archives ---- */

#define NAME "/data.pkl"

static bool is_pickle(const struct ck_zip_entry *e)
{
	size_t len = strlen(NAME);

	return e->name_len > len &&
	       !memcmp(e->name + e->name_len - len, NAME, len) &&
	       !memchr(e->name, '/', e->name_len - len);
}

static bool unzip(const char *bytes, size_t len, struct ck_zip_entry *e,
		  uint64_t *payload)
{
	size_t tail = CK_MIN(len, (size_t)CK_ZIP_TAIL), at = 0;
	struct ck_zip_end end;

	if (ck_zip_end(bytes + len - tail, tail, len, &end, NULL) ||
	    !ck_range_ok(end.dir_off, end.dir_len, len))
		return false;
	while (ck_zip_dir_next(bytes + end.dir_off, end.dir_len, &at, &end, e,
			       NULL) > 0)
		if (is_pickle(e))
			return e->local_off < len &&
			       !ck_zip_local(bytes + e->local_off,
					     len - e->local_off, e, payload,
					     NULL) &&
			       ck_range_ok(*payload, e->size, len);
	return false;
}

bool ck_torch_value_zip(struct ck_str *out, const char *bytes, size_t len,
			const char **why)
{
	struct ck_zip_entry e;
	uint64_t payload;

	if (unzip(bytes, len, &e, &payload))
		return ck_torch_value(out, bytes + payload, e.size, why);
	*why = "its bytes are no archive by torch.save";
	return false;
}
