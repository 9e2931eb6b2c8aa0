/* SPDX-License-Identifier: Apache-2.0 */
/*
 * torch_value.c - plain values out of one pickle, into another
 *
 * Iterative, and counted, for a small pickle may describe a value that is
 * endless to walk.
 */
#include "core/view/torch_value.h"

#include "core/base/auto.h"
#include "core/base/check.h"
#include "core/base/utf8.h"
#include "core/emit/pickle_out.h"
#include "core/parse/pickle.h"
#include "core/parse/zip.h"

#include <string.h>

#define MAX_DEPTH 32
#define MAX_STEPS (UINT64_C(1) << 20)

struct frame {
	struct ck_piter it;
	bool pairs;
	ck_pv value; /* of the key that was put last; 0: none */
	char end;
};

struct put {
	const struct ck_pickle *p;
	struct ck_str *s;
	struct frame frame[MAX_DEPTH];
	unsigned depth;
	size_t begin;
	const char *why;
};

static void put_text(struct put *p, ck_pv v)
{
	const char *text;
	size_t len;

	ck_pv_str(p->p, v, &text, &len);
	for (size_t at = 0, n; at < len; at += n) {
		n = ck_utf8_len((const unsigned char *)text + at, len - at);
		if (!n) {
			p->why = "a text in it is not UTF-8";
			return;
		}
	}
	ck_po_str(p->s, text, len);
}

static void enter(struct put *p, ck_pv v, bool pairs, const char *begin,
		  char end)
{
	struct frame *f = &p->frame[p->depth];

	if (p->depth == MAX_DEPTH) {
		p->why = "it is nested too deeply";
		return;
	}
	*f = (struct frame){ .pairs = pairs, .end = end };
	if (pairs)
		ck_piter_init_pairs(&f->it, p->p, v);
	else
		ck_piter_init(&f->it, p->p, v);
	ck_str_puts(p->s, begin);
	p->depth++;
}

/* An OrderedDict is a dict. */
static bool is_dict(const struct put *p, ck_pv v)
{
	return ck_pv_kind(v) == CK_P_DICT ||
	       (ck_pv_kind(v) == CK_P_CALL &&
		ck_pv_is_global(p->p, ck_pv_callee(p->p, v), "collections",
				"OrderedDict") &&
		!ck_pv_len(p->p, ck_pv_args(p->p, v)));
}

static void put_value(struct put *p, ck_pv v)
{
	int64_t n = 0;
	double d = 0;

	if (is_dict(p, v)) {
		enter(p, v, true, "}(", CK_PO_SETITEMS);
		return;
	}
	switch (ck_pv_kind(v)) {
	case CK_P_NONE:
		ck_po_op(p->s, CK_PO_NONE);
		return;
	case CK_P_BOOL:
		ck_pv_int(p->p, v, &n);
		ck_po_op(p->s, n ? '\x88' : CK_PO_FALSE);
		return;
	case CK_P_INT:
		ck_pv_int(p->p, v, &n);
		ck_po_signed(p->s, n);
		return;
	case CK_P_FLOAT:
		ck_pv_float(p->p, v, &d);
		ck_po_float(p->s, d);
		return;
	case CK_P_STR:
		put_text(p, v);
		return;
	case CK_P_TUPLE:
		enter(p, v, false, "(", CK_PO_TUPLE);
		return;
	case CK_P_LIST:
		enter(p, v, false, "](", CK_PO_APPENDS);
		return;
	default:
		p->why = "it is more than numbers, texts, lists and dicts";
	}
}

/* The next value of the innermost container, or its end. */
static void step(struct put *p)
{
	struct frame *f = &p->frame[p->depth - 1];
	ck_pv v, value;

	if (f->value) {
		v = f->value;
		f->value = 0;
	} else if (f->pairs && ck_piter_next2(&f->it, &v, &value)) {
		f->value = value;
	} else if (f->pairs || !ck_piter_next(&f->it, &v)) {
		ck_po_op(p->s, f->end);
		p->depth--;
		return;
	}
	put_value(p, v);
}

static void put_root(struct put *p, ck_pv root)
{
	put_value(p, root);
	for (uint64_t steps = 0; !p->why && p->depth; steps++) {
		step(p);
		if (p->s->len - p->begin > CK_TORCH_VALUE_MAX ||
		    steps > MAX_STEPS)
			p->why = "it is too large";
	}
}

bool ck_torch_value(struct ck_str *out, const void *bytes, size_t len,
		    const char **why)
{
	ck_auto_pickle struct ck_pickle *pickle = NULL;
	struct put p = { .s = out, .begin = out->len };

	if (ck_pickle_parse(&pickle, bytes, len, NULL, NULL, NULL)) {
		*why = "its bytes are no pickle that can be read";
		return false;
	}
	p.p = pickle;
	ck_po_begin(out);
	put_root(&p, ck_pickle_root(pickle));
	ck_po_end(out);
	*why = p.why;
	if (p.why)
		out->len = p.begin;
	return !p.why;
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
