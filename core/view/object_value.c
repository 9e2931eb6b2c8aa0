/* SPDX-License-Identifier: Apache-2.0 */
/*
 * object_value.c - one value out of a parsed pickle, as opcodes of protocol 4
 */
#include "core/view/object_value.h"

#include "core/base/auto.h"
#include "core/base/check.h"
#include "core/base/limits.h"
#include "core/base/number.h"
#include "core/base/utf8.h"
#include "core/emit/pickle_out.h"
#include "core/geom/dtype.h"
#include "core/parse/json.h"
#include "core/parse/pickle.h"
#include "core/view/nest.h"
#include "core/view/value_out.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_STEPS (UINT64_C(1) << 26)

void ck_object_values_init(struct ck_object_values *v, struct ck_ckpt *ck)
{
	*v = (struct ck_object_values){ .ck = ck, .src = CK_NONE };
}

void ck_object_values_free(struct ck_object_values *v)
{
	ck_pickle_free(v->p);
	free(v->bytes);
	v->p = NULL;
	v->bytes = NULL;
	v->src = CK_NONE;
}

/* ---- where it is ---- */

static bool is_dict(const struct ck_pickle *p, ck_pv v)
{
	ck_pv callee = ck_pv_callee(p, v);

	return ck_pv_kind(v) == CK_P_DICT ||
	       (ck_pv_kind(v) == CK_P_CALL &&
		(ck_pv_is_global(p, callee, "collections", "OrderedDict") ||
		 ck_pv_is_global(p, callee, "collections", "defaultdict")));
}

static bool is_key(const struct ck_pickle *p, ck_pv key,
		   const struct ck_nest_part *part)
{
	const char *text;
	char number[24];
	size_t len;

	return part->key && ck_pv_key_text(p, key, number, &text, &len) &&
	       len == part->len && !memcmp(text, part->key, len);
}

static bool child(struct ck_object_values *v, ck_pv at,
		  const struct ck_nest_part *part, ck_pv *out)
{
	struct ck_piter it;
	ck_pv key, value;
	bool found = false;

	if (!is_dict(v->p, at))
		return !part->key && ck_pv_at(v->p, at, part->index, out);
	ck_piter_init_pairs(&it, v->p, at);
	while (v->steps++ < MAX_STEPS && ck_piter_next2(&it, &key, &value))
		if (is_key(v->p, key, part)) {
			*out = value; /* the last one counts */
			found = true;
		}
	return found;
}

static bool by_path(struct ck_object_values *v, const struct ck_object *o,
		    ck_pv *out)
{
	const struct ck_catalog *img = ck_ckpt_catalog(v->ck);
	unsigned depth = ck_nest_path_depth(img, o->path);
	ck_pv at = ck_pickle_root(v->p);

	for (unsigned i = 0; i < depth; i++) {
		struct ck_nest_part part =
			ck_nest_path_part(img, o->path, o->name, i);

		if (!child(v, at, &part, &at))
			return false;
	}
	*out = at;
	return true;
}

/* The longest key of dict @at that @name begins with, and all before a dot. */
static size_t longest_key(struct ck_object_values *v, ck_pv at,
			  const char *name, size_t len, ck_pv *out)
{
	struct ck_piter it;
	ck_pv key, value;
	size_t best = 0;

	ck_piter_init_pairs(&it, v->p, at);
	while (v->steps++ < MAX_STEPS && ck_piter_next2(&it, &key, &value)) {
		char number[24];
		const char *text;
		size_t n;

		if (!ck_pv_key_text(v->p, key, number, &text, &n) || n < best ||
		    n > len || (n < len && name[n] != '.'))
			continue;
		if (!memcmp(text, name, n)) {
			best = n;
			*out = value;
		}
	}
	return best;
}

static size_t position(const struct ck_pickle *p, ck_pv at, const char *name,
		       size_t len, ck_pv *out)
{
	uint64_t index;
	size_t n = ck_digits(name, CK_MIN(len, 9), &index);

	return n && (n == len || name[n] == '.') &&
			       ck_pv_at(p, at, index, out) ?
		       n :
		       0;
}

/* Keys and positions joined by dots. */
static bool by_dots(struct ck_object_values *v, ck_pv at, const char *name,
		    size_t len, ck_pv *out)
{
	while (len) {
		size_t n = is_dict(v->p, at) ?
				   longest_key(v, at, name, len, &at) :
				   position(v->p, at, name, len, &at);

		if (!n)
			return false;
		n += n < len;
		name += n;
		len -= n;
	}
	*out = at;
	return true;
}

/* Some formats keep one object in a pickle of its own. */
static bool is_alone(const struct ck_catalog *img, const struct ck_object *o)
{
	for (uint32_t i = 0; i < img->nr_objects; i++) {
		const struct ck_object *other = &img->objects[i];

		if (other != o && other->src == o->src &&
		    other->off == o->off && other->len == o->len)
			return false;
	}
	return true;
}

/*
 * Readers put the rank or the file before some names, so the object is what
 * the longest end of its name leads to; Megatron's puts the rank behind.
 * OneFlow saves an envelope around all.
 */
static bool find_named(struct ck_object_values *v, const struct ck_object *o,
		       ck_pv *out)
{
	ck_pv root = ck_pickle_root(v->p), data;
	size_t len;
	const char *name =
		ck_catalog_str(ck_ckpt_catalog(v->ck), o->name, &len);

	if (o->path != CK_NONE && by_path(v, o, out))
		return true;
	if (!ck_pv_key(v->p, root, "data", &data))
		data = 0;
	for (size_t at = 0; at < len; at++) {
		if (at && name[at - 1] != '.' && name[at - 1] != '/')
			continue;
		if (by_dots(v, root, name + at, len - at, out) ||
		    (data && by_dots(v, data, name + at, len - at, out)))
			return true;
	}
	while (len && name[len - 1] != '.')
		len--;
	return len && by_dots(v, root, name, len - 1, out);
}

static bool find(struct ck_object_values *v, const struct ck_object *o,
		 ck_pv *out)
{
	if (find_named(v, o, out))
		return true;
	*out = ck_pickle_root(v->p);
	return is_alone(ck_ckpt_catalog(v->ck), o);
}

/* ---- what it is ---- */

static void put_bytes(struct ck_str *s, const char *bytes, size_t len)
{
	ck_po_op(s, 'B'); /* BINBYTES */
	for (int shift = 0; shift < 32; shift += 8)
		ck_po_op(s, (char)(len >> shift));
	ck_str_add(s, bytes, len);
}

/* Constructors of plain values, which do nothing else. */
static const struct {
	const char *module, *names; /* names: each between blanks */
} harmless[] = {
	{ "collections", " OrderedDict Counter deque " },
	{ "torch", " Size device " },
	{ "_codecs", " encode " }, /* bytes of protocol 2 */
	{ "builtins", " set frozenset bytearray complex slice range " },
	{ "__builtin__", " set frozenset bytearray complex slice xrange " },
};

static bool is_harmless(const struct ck_pickle *p, ck_pv callee)
{
	for (size_t i = 0; i < CK_ARRAY_LEN(harmless); i++) {
		const char *at = harmless[i].names + 1;
		char name[16];

		for (size_t n; (n = strcspn(at, " ")); at += n + 1) {
			snprintf(name, sizeof(name), "%.*s", (int)n, at);
			if (ck_pv_is_global(p, callee, harmless[i].module,
					    name))
				return true;
		}
	}
	return false;
}

static bool is_namespace(const struct ck_pickle *p, ck_pv callee)
{
	return ck_pv_is_global(p, callee, "argparse", "Namespace") ||
	       ck_pv_is_global(p, callee, "types", "SimpleNamespace");
}

/* Protocols before 3 have the names of Python 2. */
static void put_name(struct ck_str *s, ck_pv callee, const struct ck_pickle *p)
{
	const char *module, *name;
	char m[32], n[32];
	size_t module_len, len;

	ck_pv_global(p, callee, &module, &module_len, &name, &len);
	snprintf(m, sizeof(m), "%.*s", (int)module_len, module);
	snprintf(n, sizeof(n), "%.*s", (int)len, name);
	ck_po_global(s, strcmp(m, "__builtin__") ? m : "builtins",
		     strcmp(n, "xrange") ? n : "range");
}

/* The call with its arguments, then what APPENDS or SETITEMS gave it. */
static void put_call(struct ck_value_out *o, ck_pv v)
{
	const struct ck_pickle *pk = o->p;
	ck_pv callee = ck_pv_callee(pk, v), key, value;
	const char *begin = "";
	struct ck_piter it;

	if (is_namespace(pk, callee) && ck_pv_state(pk, v, &value) &&
	    ck_pv_kind(value) == CK_P_DICT) {
		put_name(o->s, callee, pk);
		ck_value_out_enter(o, value, true, ")\x81}(", "ub");
		return;
	}
	if (!is_harmless(pk, callee) || ck_pv_kwargs(pk, v, &value)) {
		o->why = "it is an instance of a class, or the result of a "
			 "call, which is left to the file itself";
		return;
	}
	put_name(o->s, callee, pk);
	ck_piter_init_pairs(&it, pk, v);
	if (ck_piter_next2(&it, &key, &value)) {
		ck_value_out_enter(o, v, true, "", "u");
		begin = "tR(";
	} else if (ck_pv_len(pk, v)) {
		ck_value_out_enter(o, v, false, "", "e");
		begin = "tR(";
	}
	if (!o->why)
		ck_value_out_enter(o, ck_pv_args(pk, v), false, "(",
				   *begin ? begin : "tR");
}

static void put_global(struct ck_value_out *o, ck_pv v)
{
	const char *module, *name;
	char known[40];
	size_t module_len, len;

	o->why = "it names a class or function";
	if (!ck_pv_global(o->p, v, &module, &module_len, &name, &len) ||
	    module_len != 5 || memcmp(module, "torch", 5) ||
	    len >= sizeof(known) || ck_dtype_by_torch(name, len) == CK_DT_NONE)
		return;
	snprintf(known, sizeof(known), "%.*s", (int)len, name);
	ck_po_global(o->s, "torch", known);
	o->why = NULL;
}

static void put_string(struct ck_value_out *o, ck_pv v)
{
	const char *text;
	size_t len;

	ck_pv_str(o->p, v, &text, &len);
	if (len > CK_OBJECT_VALUE_MAX)
		o->why = "it is too large";
	else if (ck_pv_kind(v) == CK_P_STR)
		ck_po_str(o->s, text, len);
	else
		put_bytes(o->s, text, len);
}

static void put_value(struct ck_value_out *o, ck_pv v)
{
	if (ck_value_out_scalar(o, v))
		return;
	switch (ck_pv_kind(v)) {
	case CK_P_STR:
	case CK_P_BYTES:
		put_string(o, v);
		return;
	case CK_P_TUPLE:
		ck_value_out_enter(o, v, false, "(", "t");
		return;
	case CK_P_LIST:
		ck_value_out_enter(o, v, false, "](", "e");
		return;
	case CK_P_SET: /* EMPTY_SET, ADDITEMS */
		ck_value_out_enter(o, v, false, "\x8f(", "\x90");
		return;
	case CK_P_DICT:
		ck_value_out_enter(o, v, true, "}(", "u");
		return;
	case CK_P_CALL:
		put_call(o, v);
		return;
	case CK_P_GLOBAL:
		put_global(o, v);
		return;
	default:
		o->why = "it is no plain value";
	}
}

static const char *put_found(struct ck_object_values *v,
			     const struct ck_object *o, struct ck_str *s)
{
	struct ck_value_out out = { .p = v->p,
				    .s = s,
				    .put = put_value,
				    .steps = v->steps,
				    .max_steps = MAX_STEPS,
				    .max_len = CK_OBJECT_VALUE_MAX };
	ck_pv root;

	if (!v->p)
		return "its bytes are no pickle that can be read";
	if (!find(v, o, &root))
		return "it is not where its name says";
	ck_value_out_run(&out, root);
	v->steps = out.steps;
	return out.why;
}

/* ---- where its bytes are ---- */

/* The pickle that @o is in: the one of the object before, or a new one. */
static int load(struct ck_object_values *v, uint32_t i,
		const struct ck_object *o, struct ck_err *err)
{
	const struct ck_catalog *img = ck_ckpt_catalog(v->ck);
	int ret;

	if (o->src == v->src && o->off == v->off && o->len == v->len)
		return 0;
	ck_object_values_free(v);
	if (img->srcs[o->src].kind == CK_SRC_ABSENT || !o->len ||
	    o->len > CK_MAX_ITEM_META)
		return 0;
	v->bytes = malloc(o->len);
	if (!v->bytes)
		return ck_no_memory(err);
	ret = ck_ckpt_read_object(v->ck, i, v->bytes, o->len, 0, err);
	if (ret)
		return ret;
	v->src = o->src;
	v->off = o->off;
	v->len = o->len;
	ret = ck_pickle_parse(&v->p, v->bytes, v->len, NULL, NULL, NULL);
	return ret == -ENOMEM ? ck_no_memory(err) : 0;
}

/* A safetensors header's __metadata__: strings by strings. */
static const char *put_json(struct ck_str *s, const char *text, size_t len)
{
	ck_auto_json json_t *all = NULL;
	const char *key;
	json_t *value;

	if (ck_json_parse(&all, text, len, NULL) || !json_is_object(all))
		return "it is no JSON object";
	ck_str_puts(s, "}(");
	json_object_foreach(all, key, value)
	{
		if (!json_is_string(value))
			return "it holds more than strings";
		ck_po_str(s, key, strlen(key));
		ck_po_str(s, json_string_value(value),
			  json_string_length(value));
	}
	ck_po_op(s, CK_PO_SETITEMS);
	return NULL;
}

static const char *put_text(struct ck_str *s, const char *text, size_t len)
{
	if (!ck_utf8_ok(text, len))
		return "its bytes are in no form that is known";
	ck_po_str(s, text, len);
	return NULL;
}

static const char *put_plain(const struct ck_object *o, const char *text,
			     struct ck_str *s)
{
	return o->enc == CK_ENC_JSON ? put_json(s, text, o->len) :
				       put_text(s, text, o->len);
}

int ck_object_value(struct ck_object_values *v, uint32_t i, struct ck_str *out,
		    const char **why, struct ck_err *err)
{
	const struct ck_object *o = &ck_ckpt_catalog(v->ck)->objects[i];
	ck_auto_free char *text = NULL;
	size_t begin = out->len;
	int ret = 0;

	*why = NULL;
	ck_str_add(out, "\x80\x04", 2);
	if (o->enc == CK_ENC_PICKLE) {
		ret = load(v, i, o, err);
		*why = ret ? NULL : put_found(v, o, out);
	} else if (o->len > CK_OBJECT_VALUE_MAX) {
		*why = "it is too large";
	} else {
		text = malloc(o->len + 1);
		ret = text ? ck_ckpt_read_object(v->ck, i, text, o->len, 0,
						 err) :
			     ck_no_memory(err);
		*why = ret ? NULL : put_plain(o, text, out);
	}
	ck_po_end(out);
	if (ret || *why)
		out->len = begin;
	return ret ? ret : !*why;
}
