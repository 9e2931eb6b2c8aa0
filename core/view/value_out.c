/* SPDX-License-Identifier: Apache-2.0 */
/*
 * value_out.c - from the containers of a pickle to opcodes, without recursion
 */
#include "core/view/value_out.h"

#include "core/emit/pickle_out.h"

void ck_value_out_enter(struct ck_value_out *o, ck_pv v, bool pairs,
			const char *begin, const char *end)
{
	struct ck_value_out_frame *f = &o->frame[o->depth];

	if (o->depth == CK_VALUE_OUT_DEPTH) {
		o->why = "it is nested too deeply";
		return;
	}
	*f = (struct ck_value_out_frame){ .pairs = pairs, .end = end };
	if (pairs)
		ck_piter_init_pairs(&f->it, o->p, v);
	else
		ck_piter_init(&f->it, o->p, v);
	ck_str_puts(o->s, begin);
	o->depth++;
}

bool ck_value_out_scalar(struct ck_value_out *o, ck_pv v)
{
	int64_t n = 0;
	double d = 0;

	switch (ck_pv_kind(v)) {
	case CK_P_NONE:
		ck_po_op(o->s, CK_PO_NONE);
		return true;
	case CK_P_BOOL:
		ck_pv_int(o->p, v, &n);
		ck_po_op(o->s, n ? CK_PO_TRUE : CK_PO_FALSE);
		return true;
	case CK_P_INT:
		ck_pv_int(o->p, v, &n);
		ck_po_signed(o->s, n);
		return true;
	case CK_P_FLOAT:
		ck_pv_float(o->p, v, &d);
		ck_po_float(o->s, d);
		return true;
	default:
		return false;
	}
}

/* The next value of the innermost container, or its end. */
static void step(struct ck_value_out *o)
{
	struct ck_value_out_frame *f = &o->frame[o->depth - 1];
	ck_pv v, value;

	if (f->value) {
		v = f->value;
		f->value = 0;
	} else if (f->pairs && ck_piter_next2(&f->it, &v, &value)) {
		f->value = value;
	} else if (f->pairs || !ck_piter_next(&f->it, &v)) {
		ck_str_puts(o->s, f->end);
		o->depth--;
		return;
	}
	o->put(o, v);
}

void ck_value_out_run(struct ck_value_out *o, ck_pv root)
{
	size_t begin = o->s->len;

	o->put(o, root);
	while (!o->why && o->depth) {
		step(o);
		if (o->s->len - begin > o->max_len || o->steps++ > o->max_steps)
			o->why = "it is too large";
	}
}
