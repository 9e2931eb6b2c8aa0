/* SPDX-License-Identifier: Apache-2.0 */
/* diff_show.c - what is different, as lines and as JSON, and the exit code */
#include "mount-helpers/diff/diff.h"
#include "mount-helpers/choose.h"
#include "mount-helpers/text.h"
#include "mount-helpers/values.h"

#include "core/base/auto.h"

#include <inttypes.h>
#include <string.h>

bool diff_chosen(const struct diff *d, const struct ck_catalog *img,
		 uint32_t name)
{
	return !d->glob || choose_matches(img, name, d->glob);
}

void diff_put_refusal(struct ck_str *out, const struct side *s,
		      uint32_t problem)
{
	const struct ck_problem *p = &s->img->problems[problem];
	const char *path = ck_ckpt_root(s->ck)->path;

	ck_str_plain(out, path, strlen(path));
	ck_str_puts(out, ": refused: ");
	if (p->file != CK_NONE) {
		text_ref(out, s->img, p->file);
		ck_str_puts(out, ": ");
	}
	text_ref(out, s->img, p->reason);
}

static const char *status(const struct compare_pair *p)
{
	static const char *const names[] = {
		[COMPARE_EQUAL] = "equal",
		[COMPARE_DIFFERS] = "differs",
		[COMPARE_DTYPE] = "dtype",
		[COMPARE_SHAPE] = "shape",
		[COMPARE_UNREADABLE] = "unreadable",
	};

	if (p->kind == COMPARE_ABSENT)
		return p->b == CK_NONE ? "only-a" : "only-b";
	return names[p->kind];
}

static void count(struct diff *d, const struct compare_pair *p)
{
	if (p->kind == COMPARE_EQUAL)
		d->equal++;
	else if (p->kind == COMPARE_UNREADABLE)
		d->unreadable++;
	else if (p->kind != COMPARE_ABSENT)
		d->differ++;
	else if (p->b == CK_NONE)
		d->only_a++;
	else
		d->only_b++;
}

static uint8_t dtype_a(const struct diff *d, const struct compare_pair *p)
{
	return d->a.img->tensors[p->a].dtype;
}

static uint8_t dtype_b(const struct diff *d, const struct compare_pair *p)
{
	return d->b.img->tensors[p->b].dtype;
}

/* Where in the tensor element number @at is. */
static void index_of(const struct ck_catalog *img, const struct ck_tensor *t,
		     uint64_t at, uint64_t *index)
{
	for (unsigned d = t->rank; d-- > 0;) {
		index[d] = at % img->dims[t->shape + d];
		at /= img->dims[t->shape + d];
	}
}

static void text_index(struct diff *d, const char *before, uint64_t at,
		       const struct ck_tensor *x)
{
	uint64_t index[CK_MAX_RANK];

	index_of(d->a.img, x, at, index);
	ck_str_puts(&d->out, before);
	text_dims(&d->out, index, x->rank);
}

static void text_elements(struct diff *d, const struct compare_pair *p)
{
	const struct ck_tensor *x = &d->a.img->tensors[p->a];
	uint64_t all = x->size / ck_dtype_info(x->dtype)->size;

	ck_str_fmt(&d->out, ": %" PRIu64 " of %" PRIu64 " elements differ",
		   p->changed, all);
	if (p->largest >= 0) {
		ck_str_fmt(&d->out, ", by at most %.9g", p->largest);
		text_index(d, ", at ", p->at, x);
	}
	if (p->largest < 0 || p->first != p->at)
		text_index(d, ", first at ", p->first, x);
	if (p->nans)
		ck_str_fmt(&d->out, ", %" PRIu64 " %s NaN in one of them",
			   p->nans, p->nans == 1 ? "is" : "are");
}

static void text_pair(struct diff *d, const struct compare_pair *p)
{
	const struct side *s = p->a == CK_NONE ? &d->b : &d->a;
	const struct ck_tensor *t =
		&s->img->tensors[p->a == CK_NONE ? p->b : p->a];
	static const char marks[] = { [COMPARE_EQUAL] = '=',
				      [COMPARE_DIFFERS] = '~',
				      [COMPARE_DTYPE] = '~',
				      [COMPARE_SHAPE] = '~',
				      [COMPARE_UNREADABLE] = '!' };

	ck_str_fmt(&d->out, "%c ",
		   p->kind != COMPARE_ABSENT ? marks[p->kind] :
		   p->b == CK_NONE	     ? '-' :
					       '+');
	text_tree(&d->out, s->img, t->tree);
	text_ref(&d->out, s->img, t->name);
	ck_str_fmt(&d->out, "  %s ", ck_dtype_info(t->dtype)->name);
	text_dims(&d->out, s->img->dims + t->shape, t->rank);
	if (p->a != CK_NONE && p->b != CK_NONE &&
	    dtype_a(d, p) != dtype_b(d, p))
		ck_str_fmt(&d->out, " -> %s",
			   ck_dtype_info(dtype_b(d, p))->name);
	if (p->kind == COMPARE_SHAPE) {
		const struct ck_tensor *y = &d->b.img->tensors[p->b];

		ck_str_puts(&d->out, " -> ");
		text_dims(&d->out, d->b.img->dims + y->shape, y->rank);
	}
	if (p->changed)
		text_elements(d, p);
	if (p->why)
		ck_str_fmt(&d->out, ": %s", p->why);
	ck_str_puts(&d->out, "\n");
}

static void json_side(struct ck_str *out, const char *key,
		      const struct ck_catalog *img, uint32_t i)
{
	const struct ck_tensor *t;

	ck_str_fmt(out, ", \"%s\": ", key);
	if (i == CK_NONE) {
		ck_str_puts(out, "null");
		return;
	}
	t = &img->tensors[i];
	ck_str_fmt(out, "{\"dtype\": \"%s\", \"shape\": ",
		   ck_dtype_info(t->dtype)->name);
	ck_str_json_u64(out, img->dims + t->shape, t->rank);
	ck_str_puts(out, "}");
}

static void json_index(struct diff *d, const char *key, uint64_t at,
		       const struct ck_tensor *x)
{
	uint64_t index[CK_MAX_RANK];

	index_of(d->a.img, x, at, index);
	ck_str_fmt(&d->out, ", \"%s\": ", key);
	ck_str_json_u64(&d->out, index, x->rank);
}

static void json_elements(struct diff *d, const struct compare_pair *p)
{
	const struct ck_tensor *x = &d->a.img->tensors[p->a];
	bool numbers = p->largest >= 0;

	ck_str_fmt(&d->out, ", \"changed\": %" PRIu64 ", \"nan\": %" PRIu64,
		   p->changed, p->nans);
	ck_str_puts(&d->out, ", \"largest\": ");
	if (numbers)
		value_text(CK_DT_F64, &p->largest, &d->out);
	else
		ck_str_puts(&d->out, "null");
	json_index(d, "at", numbers ? p->at : p->first, x);
	json_index(d, "first", p->first, x);
}

static void text_refusal(struct diff *d, const struct refusal *r)
{
	ck_str_puts(&d->out, "! ");
	text_ref(&d->out, r->s->img, r->s->img->problems[r->problem].tensor);
	ck_str_puts(&d->out, ": ");
	diff_put_refusal(&d->out, r->s, r->problem);
	ck_str_puts(&d->out, "\n");
}

static void json_name(struct diff *d, const struct ck_catalog *img,
		      uint32_t ref)
{
	size_t len;
	const char *text = ck_catalog_str(img, ref, &len);

	ck_str_puts(&d->out, d->printed ? ",\n{\"name\": " :
					  "{\"tensors\": [\n{\"name\": ");
	ck_str_json(&d->out, text, len);
}

static void json_refusal(struct diff *d, const struct refusal *r)
{
	ck_auto_str struct ck_str why = { 0 };

	diff_put_refusal(&why, r->s, r->problem);
	json_name(d, r->s->img, r->s->img->problems[r->problem].tensor);
	ck_str_puts(&d->out, ", \"status\": \"unreadable\", \"a\": null, "
			     "\"b\": null, \"reason\": ");
	ck_str_json(&d->out, why.v ? why.v : "", why.len);
	ck_str_puts(&d->out, "}");
	d->out.failed |= why.failed;
}

static void json_pair(struct diff *d, const struct compare_pair *p)
{
	const struct ck_catalog *img = p->a == CK_NONE ? d->b.img : d->a.img;
	const struct ck_tensor *t =
		&img->tensors[p->a == CK_NONE ? p->b : p->a];
	size_t len;
	const char *text = ck_catalog_str(img, img->trees[t->tree], &len);

	json_name(d, img, t->name);
	if (len) {
		ck_str_puts(&d->out, ", \"tree\": ");
		ck_str_json(&d->out, text, len);
	}
	ck_str_fmt(&d->out, ", \"status\": \"%s\"", status(p));
	json_side(&d->out, "a", d->a.img, p->a);
	json_side(&d->out, "b", d->b.img, p->b);
	if (p->kind == COMPARE_DIFFERS)
		json_elements(d, p);
	if (p->by_digest)
		ck_str_puts(&d->out, ", \"by_digest\": true");
	if (p->why) {
		ck_str_puts(&d->out, ", \"reason\": ");
		ck_str_json(&d->out, p->why, strlen(p->why));
	}
	ck_str_puts(&d->out, "}");
}

static void summary(struct diff *d)
{
	static const char *const text =
		"%" PRIu64 " equal, %" PRIu64 " differ, %" PRIu64
		" only in A, %" PRIu64 " only in B";

	if (d->json) {
		ck_str_puts(&d->out,
			    d->printed ? "\n], " : "{\"tensors\": [], ");
		ck_str_fmt(&d->out,
			   "\"equal\": %" PRIu64 ", \"differ\": %" PRIu64
			   ", \"only_a\": %" PRIu64 ", \"only_b\": %" PRIu64
			   ", \"unreadable\": %" PRIu64 "}\n",
			   d->equal, d->differ, d->only_a, d->only_b,
			   d->unreadable);
		return;
	}
	ck_str_fmt(&d->out, text, d->equal, d->differ, d->only_a, d->only_b);
	if (d->unreadable)
		ck_str_fmt(&d->out, ", %" PRIu64 " cannot be read",
			   d->unreadable);
	ck_str_puts(&d->out, "\n");
}

/* Of errors that stand behind no line: what they cost may be what differs. */
static int report_errors(const struct diff *d, const struct side *s)
{
	const struct ck_problem *first = NULL;
	ck_auto_str struct ck_str line = { 0 };
	uint64_t nr = 0;

	for (uint32_t i = 0; i < s->img->nr_problems; i++) {
		const struct ck_problem *p = &s->img->problems[i];

		if (p->severity != CK_ERROR || p->view != CK_NONE ||
		    (p->tensor != CK_NONE &&
		     !diff_chosen(d, s->img, p->tensor)))
			continue;
		first = first ? first : p;
		nr++;
	}
	if (!first)
		return CMD_OK;
	text_ref(&line, s->img, first->file);
	ck_str_puts(&line, first->file == CK_NONE ? "" : ": ");
	text_ref(&line, s->img, first->reason);
	if (nr > 1)
		ck_str_fmt(&line, ", and %" PRIu64 " more", nr - 1);
	return cmd_fail(&cmd_diff, CMD_BAD_CKPT,
			"%s: incomplete: %s (unshard inspect says more)",
			ck_ckpt_root(s->ck)->path, line.v ? line.v : "");
}

static int verdict(const struct diff *d)
{
	int a, b;

	if (d->unreadable)
		return cmd_fail(&cmd_diff, CMD_BAD_CKPT,
				"%s, %s: %" PRIu64 " tensor%s cannot be read",
				ck_ckpt_root(d->a.ck)->path,
				ck_ckpt_root(d->b.ck)->path, d->unreadable,
				d->unreadable == 1 ? "" : "s");
	a = report_errors(d, &d->a);
	b = report_errors(d, &d->b);
	return a || b || d->equal != d->pair.nr ? CMD_BAD_CKPT : CMD_OK;
}

static bool print_pairs(struct diff *d)
{
	bool ok = true;

	for (size_t i = 0; i < d->pair.nr && ok; i++) {
		const struct compare_pair *p = &d->pair.v[i];

		count(d, p);
		if (p->kind == COMPARE_EQUAL && !d->all)
			continue;
		if (d->json)
			json_pair(d, p);
		else
			text_pair(d, p);
		d->printed++;
		ok = text_flush(&d->out);
	}
	return ok;
}

static bool print_refusals(struct diff *d)
{
	bool ok = true;

	for (size_t i = 0; i < d->refusal.nr && ok; i++) {
		if (d->json)
			json_refusal(d, &d->refusal.v[i]);
		else
			text_refusal(d, &d->refusal.v[i]);
		d->printed++;
		d->unreadable++;
		ok = text_flush(&d->out);
	}
	return ok;
}

int diff_print(struct diff *d)
{
	bool ok;

	if (d->glob && !d->pair.nr && !d->refusal.nr)
		return cmd_fail(&cmd_diff, CMD_USAGE,
				"no tensor of A or B has a name like \"%s\" "
				"(unshard ls lists them)",
				d->glob);
	ok = print_pairs(d) && print_refusals(d);
	summary(d);
	ok = ok && text_flush(&d->out);
	if (cmd_flush(&cmd_diff))
		return CMD_SYSTEM;
	if (!ok)
		return cmd_fail(&cmd_diff, CMD_SYSTEM, "no memory");
	return verdict(d);
}
