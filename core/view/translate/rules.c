/* SPDX-License-Identifier: Apache-2.0 */
/* rules.c - reads files of rules for one config.json; the header says what they say */
#include "core/view/translate/rules.h"

#include "core/base/check.h"
#include "core/base/match.h"
#include "core/base/number.h"
#include "core/view/translate/translate.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#define MAX_PARTS 64
#define MAX_LINES 65536 /* of each kind, in the user's file too */

struct reading {
	struct ck_name_rules *r;
	const json_t *config;
	unsigned file;
	bool takes; /* the second time over the files, for what has to be known */
	bool in_model, skip; /* lines about a model; about another one */
	bool model_line; /* the last line was "model", which this one may go on */
};

/* ---- numbers ---- */

static bool member(const json_t *config, struct ck_tp_word w, uint64_t *out)
{
	char name[128];
	const json_t *j;

	if (w.len >= sizeof(name))
		return false;
	memcpy(name, w.s, w.len);
	name[w.len] = '\0';
	j = json_object_get(config, name);
	if (!j || json_is_null(j))
		j = json_object_get(json_object_get(config, "text_config"),
				    name);
	if (json_is_boolean(j))
		*out = json_is_true(j);
	return json_is_boolean(j) || ck_json_u64(j, out);
}

static bool number(const struct reading *d, struct ck_tp_word w, uint64_t *out)
{
	const struct ck_name_rules *r = d->r;

	if (w.len && ck_digits(w.s, w.len, out) == w.len)
		return true;
	for (size_t i = 0; i < r->number.nr; i++)
		if (r->number.v[i].name.len == w.len &&
		    !memcmp(r->number.v[i].name.s, w.s, w.len)) {
			*out = r->number.v[i].value;
			return true;
		}
	return member(d->config, w, out);
}

/* Joins *@sum and @n by @how; false: there is no such number. */
static bool join(uint64_t *sum, char how, uint64_t n)
{
	if (how == '+')
		return ck_add_ok(*sum, n, sum);
	if (how == '*')
		return ck_mul_ok(*sum, n, sum);
	if (how == '-' ? n > *sum : !n || *sum % n)
		return false;
	*sum = how == '-' ? *sum - n : *sum / n;
	return true;
}

/* Up to @len bytes; false: something in it says nothing. */
static bool value(const struct reading *d, struct ck_tp_word e, uint64_t *out)
{
	uint64_t term = 1, n;
	char add = '+', mul = '*';
	size_t from = 0;

	*out = 0;
	for (size_t i = 0; i <= e.len; i++) {
		char c = i < e.len ? e.s[i] : '+';

		if (!strchr("+-*/", c) || !c)
			continue;
		if (!number(d, (struct ck_tp_word){ e.s + from, i - from },
			    &n) ||
		    !join(&term, mul, n))
			return false;
		mul = c;
		from = i + 1;
		if (c == '*' || c == '/')
			continue;
		if (!join(out, add, term))
			return false;
		add = c;
		mul = '*';
		term = 1;
	}
	return true;
}

/* The part of *@rest up to @mark, which is taken off. */
static struct ck_tp_word next(struct ck_tp_word *rest, char mark)
{
	const char *end = memchr(rest->s, mark, rest->len);
	struct ck_tp_word w = { rest->s,
				end ? (size_t)(end - rest->s) : rest->len };

	rest->s += w.len + (end != NULL);
	rest->len -= w.len + (end != NULL);
	return w;
}

static bool first_value(const struct reading *d, struct ck_tp_word all,
			uint64_t *out)
{
	while (all.len)
		if (value(d, next(&all, '|'), out))
			return true;
	return false;
}

/* 1: as many as there are, in @out; 0: one says nothing; -EINVAL: too many. */
static int values(const struct reading *d, struct ck_tp_word all, uint64_t *out,
		  unsigned max, unsigned *nr)
{
	for (*nr = 0; all.len; ++*nr) {
		if (*nr == max)
			return -EINVAL;
		if (!value(d, next(&all, ','), &out[*nr]))
			return 0;
	}
	return 1;
}

/* ---- lines ---- */

static bool is_true(const struct reading *d, struct ck_tp_word w)
{
	uint64_t n;

	return value(d, w, &n) && n;
}

/* "if NUMBER", "unless NUMBER" at the end of a line; *ok: it holds. */
static unsigned condition(const struct reading *d,
			  const struct ck_rules_line *l, bool *ok)
{
	unsigned nr = l->nr_words;

	*ok = true;
	if (nr < 3)
		return nr;
	if (ck_word_is(l->word[nr - 2], "if"))
		*ok = is_true(d, l->word[nr - 1]);
	else if (ck_word_is(l->word[nr - 2], "unless"))
		*ok = !is_true(d, l->word[nr - 1]);
	else
		return nr;
	return nr - 2;
}

static int take_number(struct reading *d, const struct ck_rules_line *l,
		       struct ck_err *err)
{
	struct ck_name_number *to;
	uint64_t n;

	if (l->nr_words != 3)
		return ck_rules_bad(l, "expected number NAME EXPR|EXPR", err);
	if (!first_value(d, l->word[2], &n))
		return 0;
	to = ck_vec_push(&d->r->number);
	if (!to)
		return ck_no_memory(err);
	*to = (struct ck_name_number){ l->word[1], n };
	return 0;
}

/* How many there are of what @name stands for. */
static uint64_t wanted(const struct reading *d, struct ck_tp_word name)
{
	static const char *const counts[] = { "layers", "experts" };
	unsigned bits = ck_name_bits(name);
	uint64_t nr = 1, n;

	for (unsigned i = 0; i < CK_RULE_VARS; i++)
		if (bits & 1u << i &&
		    (!number(d,
			     (struct ck_tp_word){ counts[i],
						  strlen(counts[i]) },
			     &n) ||
		     !ck_mul_ok(nr, n, &nr)))
			return 0;
	return nr;
}

static int take_has(struct reading *d, const struct ck_rules_line *l,
		    struct ck_err *err)
{
	bool ok, may = ck_word_is(l->word[0], "may");
	struct ck_name_has has = { 0 }, *to;
	struct ck_name_words *own;
	int ret;

	if (condition(d, l, &ok) != 3)
		return ck_rules_bad(l, "expected NAME EXPR,EXPR [if NUMBER]",
				    err);
	has.name = l->word[1];
	own = ck_vec_push(&d->r->own);
	if (!own)
		return ck_no_memory(err);
	*own = (struct ck_name_words){ d->file, has.name };
	ret = values(d, l->word[2], has.shape, CK_RULE_AXES, &has.rank);
	if (ret < 0)
		return ck_rules_bad(l, "over 4 dimensions", err);
	if (!ret || !ok)
		return 0;
	has.want = may ? 0 : wanted(d, has.name);
	to = d->r->has.nr < MAX_LINES ? ck_vec_push(&d->r->has) : NULL;
	if (!to)
		return ck_no_memory(err);
	*to = has;
	return 0;
}

static int take_model(struct reading *d, const struct ck_rules_line *l)
{
	const json_t *all = json_object_get(d->config, "architectures");

	d->in_model = true;
	d->skip = !d->model_line || d->skip;
	for (unsigned i = 1; i < l->nr_words; i++)
		for (size_t k = 0; k < json_array_size(all); k++) {
			const char *name = ck_json_text(json_array_get(all, k));

			if (!name || !ck_word_is(l->word[i], name))
				continue;
			d->r->model = l->word[i];
			d->skip = false;
		}
	return 0;
}

static int add_words(struct reading *d, const struct ck_rules_line *l,
		     struct ck_err *err)
{
	for (unsigned i = 1; i < l->nr_words; i++) {
		struct ck_name_words *to;

		if (ck_word_is(l->word[0], "names"))
			to = ck_vec_push(&d->r->names);
		else if (ck_word_is(l->word[0], "off"))
			to = ck_vec_push(&d->r->off);
		else
			to = ck_vec_push(&d->r->skip);
		if (!to)
			return ck_no_memory(err);
		*to = (struct ck_name_words){ d->file, l->word[i] };
	}
	return 0;
}

static int add_unproven(struct reading *d, const struct ck_rules_line *l,
			struct ck_err *err)
{
	unsigned i = 1;

	do {
		struct ck_name_words *to = ck_vec_push(&d->r->unproven);

		if (!to)
			return ck_no_memory(err);
		*to = (struct ck_name_words){ .file = d->file };
		if (i < l->nr_words)
			to->text = l->word[i];
	} while (++i < l->nr_words);
	return 0;
}

/* ---- take ---- */

/* The first of @names that the model has. */
static bool becomes(const struct ck_name_rules *r, struct ck_tp_word names,
		    unsigned *out)
{
	while (names.len) {
		struct ck_tp_word w = next(&names, '|');

		for (size_t i = 0; i < r->has.nr; i++)
			if (r->has.v[i].name.len == w.len &&
			    !memcmp(r->has.v[i].name.s, w.s, w.len)) {
				*out = (unsigned)i;
				return true;
			}
	}
	return false;
}

/* 1, 0 or -EINVAL as values(). */
static int read_at(const struct reading *d, struct ck_tp_word w,
		   struct ck_name_take *t)
{
	for (t->nr_at = 0; w.len; t->nr_at++) {
		struct ck_tp_word one = next(&w, ',');
		struct ck_name_at *at = &t->at[t->nr_at];
		uint64_t axis;

		if (t->nr_at == CK_RULE_AXES)
			return -EINVAL;
		if (!value(d, next(&one, ':'), &axis) ||
		    !value(d, next(&one, ':'), &at->from) ||
		    !value(d, one, &at->len))
			return 0;
		if (axis >= t->nr_rows || at->from > t->rows[axis] ||
		    at->len > t->rows[axis] - at->from)
			return -EINVAL;
		at->axis = (unsigned)axis;
	}
	return 1;
}

/* Each axis once. */
static int read_order(const struct reading *d, struct ck_tp_word w,
		      struct ck_name_take *t)
{
	uint64_t axis[CK_RULE_AXES];
	unsigned nr, seen = 0;

	if (values(d, w, axis, CK_RULE_AXES, &nr) <= 0 || nr != t->nr_rows)
		return -EINVAL;
	for (unsigned i = 0; i < nr; i++) {
		if (axis[i] >= nr || seen & 1u << axis[i])
			return -EINVAL;
		seen |= 1u << axis[i];
		t->order[i] = (unsigned)axis[i];
	}
	return 1;
}

/* "K:OF" */
static int read_part(const struct reading *d, struct ck_tp_word w,
		     struct ck_name_take *t)
{
	if (!value(d, next(&w, ':'), &t->part) || !value(d, w, &t->parts))
		return 0;
	return t->part < t->parts && t->parts <= MAX_PARTS ? 1 : -EINVAL;
}

/* A word that has none of its own behind it. */
static bool read_alone(struct ck_tp_word w, struct ck_name_take *t)
{
	bool turned = ck_word_is(w, "turned"), stack = ck_word_is(w, "stack");

	t->turned |= turned;
	t->stack |= stack;
	return turned || stack;
}

/* Word @i and the one behind it. */
static int read_how(const struct reading *d, const struct ck_rules_line *l,
		    unsigned i, unsigned nr, struct ck_name_take *t)
{
	struct ck_tp_word w;
	int ret;

	if (i + 1 == nr)
		return -EINVAL;
	w = l->word[i + 1];
	if (ck_word_is(l->word[i], "cut")) {
		t->cut = true;
		return value(d, w, &t->cut_to);
	}
	if (ck_word_is(l->word[i], "at"))
		return read_at(d, w, t);
	if (ck_word_is(l->word[i], "order"))
		return read_order(d, w, t);
	if (ck_word_is(l->word[i], "part"))
		return read_part(d, w, t);
	if (!ck_word_is(l->word[i], "rows"))
		return -EINVAL;
	ret = values(d, w, t->rows, CK_RULE_AXES, &t->nr_rows);
	for (unsigned a = 0; a < CK_RULE_AXES; a++)
		t->order[a] = a;
	return ret;
}

static int take_take(struct reading *d, const struct ck_rules_line *l,
		     struct ck_err *err)
{
	struct ck_name_take t = { .file = d->file, .parts = 1 }, *to;
	bool ok;
	unsigned nr = condition(d, l, &ok);
	int ret = 1;

	if (nr < 3)
		return ck_rules_bad(l, "expected take NAME NAME ...", err);
	t.source = l->word[1];
	for (unsigned i = 3; i < nr && ret > 0; i++)
		if (!read_alone(l->word[i], &t))
			ret = read_how(d, l, i++, nr, &t);
	if (ret < 0)
		return ck_rules_bad(
			l,
			"expected rows A,B ..., at AXIS:FROM:LENGTH "
			"inside of them, order AXIS,AXIS ..., cut N, "
			"turned, part K:OF, stack, if N or unless N",
			err);
	if (!ret || !ok || !becomes(d->r, l->word[2], &t.has))
		return 0;
	to = d->r->take.nr < MAX_LINES ? ck_vec_push(&d->r->take) : NULL;
	if (!to)
		return ck_no_memory(err);
	*to = t;
	return 0;
}

/* ---- files ---- */

static int take_source(struct reading *d, const struct ck_rules_line *l)
{
	d->in_model = false;
	d->skip = false;
	if (d->file < CK_ARRAY_LEN(d->r->source) && l->nr_words > 1)
		d->r->source[d->file] = (struct ck_tp_word){
			l->word[1].s,
			(size_t)(l->word[l->nr_words - 1].s +
				 l->word[l->nr_words - 1].len - l->word[1].s)
		};
	return 0;
}

static int take_word(struct reading *d, const struct ck_rules_line *l,
		     struct ck_err *err)
{
	struct ck_tp_word w = l->word[0];

	if (ck_word_is(w, "source"))
		return take_source(d, l);
	if (ck_word_is(w, "model"))
		return d->takes ? 0 : take_model(d, l);
	if (ck_word_is(w, "take"))
		return d->takes ? take_take(d, l, err) : 0;
	if (d->takes || (d->in_model && d->skip))
		return 0;
	if (ck_word_is(w, "number"))
		return take_number(d, l, err);
	if (ck_word_is(w, "has") || ck_word_is(w, "may"))
		return take_has(d, l, err);
	if (ck_word_is(w, "unproven"))
		return add_unproven(d, l, err);
	if (ck_word_is(w, "names") || ck_word_is(w, "off") ||
	    ck_word_is(w, "skip"))
		return add_words(d, l, err);
	return ck_rules_bad(l,
			    "expected model, number, has, may, unproven, "
			    "source, names, off, skip or take",
			    err);
}

static int take_line(void *ctx, const struct ck_rules_line *l,
		     struct ck_err *err)
{
	struct reading *d = ctx;
	int ret = take_word(d, l, err);

	d->model_line = ck_word_is(l->word[0], "model");
	return ret;
}

static int read_all(struct reading *d, const struct ck_opts *opts,
		    struct ck_err *err)
{
	const char *path, *bytes;
	size_t len;
	int ret = 0;

	d->file = 0;
	for (size_t i = 0; !ret && (path = ck_opts_nth(opts, "names", i));
	     i++) {
		bytes = ck_opts_bytes(opts, "names", i, &len);
		d->in_model = false;
		ret = bytes ? ck_rules_lines(path, bytes, len, take_line, d,
					     err) :
			      ck_fail(err, ENOENT,
				      "-o names=%s: no such file, and not asis",
				      path);
		d->file++;
	}
	for (const struct ck_rules_builtin *b = ck_translations;
	     b->name && !ret; b++, d->file++) {
		d->in_model = false;
		ret = ck_rules_lines(b->name, b->text, strlen(b->text),
				     take_line, d, err);
	}
	return ret;
}

int ck_name_rules_read(struct ck_name_rules *r, const json_t *config,
		       const struct ck_opts *opts, struct ck_err *err)
{
	struct reading d = { .r = r, .config = config };
	int ret;

	*r = (struct ck_name_rules){ 0 };
	ret = read_all(&d, opts, err);
	d.takes = true;
	return ret || !r->model.len ? ret : read_all(&d, opts, err);
}

void ck_name_rules_free(struct ck_name_rules *r)
{
	free(r->number.v);
	free(r->has.v);
	free(r->take.v);
	free(r->names.v);
	free(r->off.v);
	free(r->skip.v);
	free(r->own.v);
	free(r->unproven.v);
	*r = (struct ck_name_rules){ 0 };
}

/* ---- names ---- */

/* "{l}" or "{e}" at the front of @p: which; -1: neither. */
static int var_at(struct ck_tp_word p)
{
	if (p.len < 3 || p.s[0] != '{' || p.s[2] != '}')
		return -1;
	return p.s[1] == 'l' ? 0 : p.s[1] == 'e' ? 1 : -1;
}

unsigned ck_name_bits(struct ck_tp_word p)
{
	unsigned bits = 0;

	for (; p.len; p.s++, p.len--)
		if (var_at(p) >= 0)
			bits |= 1u << var_at(p);
	return bits;
}

bool ck_name_fits(struct ck_tp_word p, const char *name, size_t len, bool loose,
		  struct ck_name_vars *vars)
{
	size_t at = 0;

	for (unsigned i = 0; i < CK_RULE_VARS; i++)
		vars->v[i] = CK_SIZE_MAX;
	while (p.len) {
		int var = var_at(p);
		size_t n;

		if (var < 0) {
			if (at == len || name[at++] != *p.s)
				return false;
			p.s++;
			p.len--;
			continue;
		}
		n = ck_digits(name + at, len - at, &vars->v[var]);
		p.s += 3;
		p.len -= 3;
		at += n;
		if (n && n < 10)
			continue;
		vars->v[var] = CK_SIZE_MAX;
		if (n || !loose || !p.len || *p.s != '.')
			return false;
		p.s++;
		p.len--;
	}
	return at == len;
}
