/* SPDX-License-Identifier: Apache-2.0 */
/* translate.c - whose names these are, and whether all of a model is there */
#include "core/view/translate/translate.h"

#include "core/base/check.h"
#include "core/base/match.h"
#include "core/geom/dtype.h"
#include "core/view/translate/apply.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

struct names {
	struct ck_translation *out;
	const struct ck_catalog *img;
	const struct ck_model_names *all;
	struct ck_name_rules rules;
	uint32_t nr; /* names that somebody else's are */
	const struct ck_merged_tensor *first; /* of them */
	unsigned file; /* that says so */
	struct ck_err *err;
};

#define AT_MOST(len) ((int)CK_MIN((size_t)(len), (size_t)160))

static void find_whose(struct names *n)
{
	const struct ck_name_rules *r = &n->rules;

	for (uint32_t i = 0; i < n->all->nr; i++) {
		const struct ck_merged_tensor *m = &n->all->v[i];
		size_t k = 0;

		while (k < r->names.nr &&
		       !ck_glob(r->names.v[k].text.s, r->names.v[k].text.len,
				m->name, m->name_len))
			k++;
		if (k < r->names.nr && !n->nr++) {
			n->first = m;
			n->file = r->names.v[k].file;
		}
	}
}

static void put_whose(const struct names *n)
{
	struct ck_tp_word w = { "somebody else's", 15 };

	if (n->file < CK_ARRAY_LEN(n->rules.source) &&
	    n->rules.source[n->file].len)
		w = n->rules.source[n->file];
	ck_str_fmt(&n->out->why,
		   "not shown: names of its tensors are %.*s (%.*s), not "
		   "Hugging Face's, and loaders would take random weights",
		   AT_MOST(w.len), w.s, AT_MOST(n->first->name_len),
		   n->first->name);
}

static bool is_unproven(const struct names *n)
{
	const struct ck_name_rules *r = &n->rules;
	struct ck_tp_word source = { "", 0 };

	if (n->file < CK_ARRAY_LEN(r->source))
		source = r->source[n->file];
	for (size_t i = 0; i < r->unproven.nr; i++) {
		struct ck_tp_word w = r->unproven.v[i].text;

		if (!w.len ||
		    (w.len <= source.len && !memcmp(w.s, source.s, w.len)))
			return true;
	}
	return false;
}

static void put_choices(const struct names *n)
{
	ck_str_puts(&n->out->why, "; -o names=FILE has more rules, and -o "
				  "names=asis shows these names");
}

/* ---- all that the model has ---- */

static int by_name(const void *pa, const void *pb)
{
	const struct ck_derived *a = pa, *b = pb;
	int order = strcmp(a->name, b->name);

	return order ? order : (a->part > b->part) - (a->part < b->part);
}

/* Adds the ranges of @part, behind @before bytes of a slice of @slice; 0 or -errno. */
static int append(struct ck_derivation *d, const struct ck_derived *part,
		  uint64_t slice, uint64_t *before)
{
	uint64_t row = part->turned * ck_dtype_info(part->stored)->size;
	uint64_t base = row ? *before / row : 0;

	for (uint32_t i = 0; i < part->nr; i++) {
		struct ck_derived_range r = d->range.v[part->first + i], *to;

		if (r.len > slice - *before)
			return -EINVAL;
		*before += r.len;
		r.to += base;
		to = ck_vec_push(&d->range);
		if (!to)
			return -ENOMEM;
		*to = r;
	}
	return 0;
}

/* Makes the first of @nr parts all that they are; -EINVAL: they do not fit. */
static int join(struct ck_derivation *d, struct ck_derived *t, size_t nr)
{
	uint64_t size = ck_dtype_info(t->stored)->size, before = 0, slice;
	struct ck_derived all = *t;
	int ret = 0;

	if (t->parts != nr)
		return -EINVAL;
	for (unsigned i = 0; i < t->rank; i++)
		if (!ck_mul_ok(size, t->shape[i], &size))
			return -EINVAL;
	all.first = (uint32_t)d->range.nr;
	slice = size / (nr / t->each);
	for (size_t i = 0; i < nr && !ret; i++) {
		if (t[i].part != i || t[i].each != t->each ||
		    t[i].stored != t->stored || t[i].turned != t->turned)
			return -EINVAL;
		ret = append(d, &t[i], slice, &before);
		if ((i + 1) % t->each || ret)
			continue;
		if (before != slice)
			return -EINVAL;
		before = 0;
	}
	if (ret)
		return ret;
	all.nr = (uint32_t)d->range.nr - all.first;
	all.parts = 0;
	for (size_t i = 1; i < nr; i++)
		free(t[i].name);
	*t = all;
	return 0;
}

/* How many from @t on, of @left, have its name. */
static size_t of_one_name(const struct ck_derived *t, size_t left)
{
	size_t nr = 1;

	while (nr < left && !strcmp(t->name, t[nr].name))
		nr++;
	return nr;
}

/* Sorts what there is by name, and joins parts; says which is there twice. */
static int join_all(struct names *n)
{
	struct ck_derivation *d = &n->out->d;
	size_t kept = 0, left = d->v.nr, nr;
	struct ck_derived *t = d->v.v;
	int ret = 0;

	if (left)
		qsort(t, left, sizeof(*t), by_name);
	for (; left; left -= nr, t += nr) {
		nr = of_one_name(t, left);
		ret = t->parts ? join(d, t, nr) : nr > 1 ? -EINVAL : 0;
		if (ret)
			break;
		d->v.v[kept++] = *t;
	}
	if (ret == -EINVAL)
		ck_str_fmt(&n->out->why,
			   t->parts ? "not shown: the %zu parts of %.200s that "
				      "are there are not all of it" :
				      "not shown: %zu tensors would be %.200s",
			   nr, t->name);
	if (left)
		memmove(d->v.v + kept, t, left * sizeof(*t));
	d->v.nr = kept + left;
	return ret == -EINVAL ? 0 : ret;
}

static void check_whole(struct names *n)
{
	const struct ck_name_rules *r = &n->rules;
	uint64_t missing = 0, want = 0;
	size_t first = 0;

	for (size_t i = r->has.nr; i-- > 0;) {
		const struct ck_name_has *h = &r->has.v[i];

		want += h->want;
		if (h->nr >= h->want)
			continue;
		missing += h->want - h->nr;
		first = i;
	}
	if (!missing)
		return;
	ck_str_fmt(&n->out->why,
		   "not shown: %" PRIu64 " of %" PRIu64
		   " tensors that %.*s has by config.json are not there, such "
		   "as %.*s",
		   missing, want, AT_MOST(r->model.len), r->model.s,
		   AT_MOST(r->has.v[first].name.len), r->has.v[first].name.s);
}

static int translate(struct names *n)
{
	uint32_t unknown = 0, first = 0;
	int ret = 1;

	for (uint32_t i = 0; i < n->all->nr && ret >= 0; i++) {
		ret = ck_name_apply(&n->out->d, &n->rules, n->img,
				    &n->all->v[i], n->err);
		if (!ret && !unknown++)
			first = i;
	}
	if (ret == -EINVAL)
		ck_str_fmt(&n->out->why, "not shown: %s", n->err->msg);
	else if (ret < 0)
		return ret;
	if (!n->out->why.len && unknown)
		ck_str_fmt(&n->out->why,
			   "not shown: of %" PRIu32 " of its %" PRIu32
			   " tensors no rule says what %.*s calls them, such "
			   "as %.*s",
			   unknown, n->all->nr, AT_MOST(n->rules.model.len),
			   n->rules.model.s, AT_MOST(n->all->v[first].name_len),
			   n->all->v[first].name);
	if (!n->out->why.len)
		check_whole(n);
	ret = n->out->why.len ? 0 : join_all(n);
	if (ret)
		return ck_no_memory(n->err);
	if (n->out->why.len) {
		put_choices(n);
		return 0;
	}
	n->out->unproven = is_unproven(n);
	ck_str_fmt(&n->out->rule, "%zu tensors, translated for %.*s by rules",
		   n->out->d.v.nr, AT_MOST(n->rules.model.len),
		   n->rules.model.s);
	return 0;
}

/* ---- names as they are ---- */

/*
 * The module behind "{l}." in @w, with the dots around it: ".self_attn.q_proj.".
 * False: there is none.
 */
static bool module_of(struct ck_tp_word w, char out[128])
{
	const char *from = memmem(w.s, w.len, "{l}.", 4), *to;

	if (!from)
		return false;
	from += 3;
	to = memrchr(from, '.', w.len - (size_t)(from - w.s));
	if (to <= from || to - from > 120 ||
	    memchr(from, '{', w.len - (size_t)(from - w.s)))
		return false;
	snprintf(out, 128, "%.*s.", (int)(to - from), from);
	return true;
}

/*
 * With or without the first component, as loaders take them; or of such a
 * module, for adapters and quantized weights are called after them.
 */
static bool is_hf_name(const struct ck_name_rules *r,
		       const struct ck_merged_tensor *m)
{
	struct ck_name_vars vars;
	char module[128];

	for (size_t i = 0; i < r->own.nr; i++) {
		struct ck_tp_word w = r->own.v[i].text;
		const char *dot = memchr(w.s, '.', w.len);
		size_t off = dot ? (size_t)(dot - w.s) + 1 : 0;

		if (ck_name_fits(w, m->name, m->name_len, false, &vars) ||
		    ck_name_fits((struct ck_tp_word){ w.s + off, w.len - off },
				 m->name, m->name_len, false, &vars) ||
		    (module_of(w, module) &&
		     memmem(m->name, m->name_len, module, strlen(module))))
			return true;
	}
	return false;
}

/* Not one of those that the model has: a loader would find nothing. */
static void check_known(struct names *n)
{
	const struct ck_name_rules *r = &n->rules;

	if (!r->model.len || !n->all->nr)
		return;
	for (uint32_t i = 0; i < n->all->nr; i++)
		if (is_hf_name(r, &n->all->v[i]))
			return;
	ck_str_fmt(&n->out->why,
		   "not shown: none of the names of its %" PRIu32
		   " tensors, such as %.*s, is one of %.*s, which config.json "
		   "asks for",
		   n->all->nr, AT_MOST(n->all->v[0].name_len),
		   n->all->v[0].name, AT_MOST(r->model.len), r->model.s);
	put_choices(n);
}

static int decide(struct names *n, const json_t *config,
		  const struct ck_opts *opts)
{
	bool asked = ck_opts_get(opts, "names");

	if (!n->nr && !asked) {
		check_known(n);
		return 0;
	}
	if (n->rules.model.len)
		return translate(n);
	if (n->nr)
		put_whose(n);
	else
		ck_str_puts(&n->out->why, "not shown: -o names= was given");
	if (!config)
		ck_str_puts(&n->out->why,
			    "; with -o config=DIR, where the model's "
			    "config.json is, they are translated");
	else
		ck_str_puts(&n->out->why, "; no rule is for the architectures "
					  "that config.json names");
	put_choices(n);
	return 0;
}

int ck_translate(struct ck_translation *out, const struct ck_catalog *img,
		 const struct ck_model_names *names, const json_t *config,
		 const struct ck_opts *opts, struct ck_err *err)
{
	struct names n = { .out = out, .img = img, .all = names };
	const char *how = ck_opts_get(opts, "names");
	struct ck_err own = { 0 };
	int ret;

	*out = (struct ck_translation){ 0 };
	n.err = err ? err : &own;
	if (how && !strcmp(how, "asis"))
		return 0;
	ret = ck_name_rules_read(&n.rules, config, opts, n.err);
	if (!ret) {
		find_whose(&n);
		ret = decide(&n, config, opts);
	}
	if (!ret && (out->why.failed || out->rule.failed))
		ret = ck_no_memory(n.err);
	ck_name_rules_free(&n.rules);
	return ret;
}

void ck_translation_free(struct ck_translation *t)
{
	ck_derivation_free(&t->d);
	ck_str_free(&t->why);
	ck_str_free(&t->rule);
}
