/* SPDX-License-Identifier: Apache-2.0 */
/*
 * model_names.c - from saved names to the model's own; the header says the rule
 */
#include "core/view/model_names.h"

#include "core/base/check.h"
#include "core/base/match.h"
#include "core/format/format.h"
#include "core/geom/dtype.h"
#include "core/geom/range.h"
#include "core/view/nest.h"
#include "core/view/optim_state.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* First parts that hold a trainer's state, never the model's weights. */
static const char *const trainer_keys[] = {
	"optimizer",
	"optimizers",
	"optim",
	"optimizer_state",
	"optimizer_states",
	"optimizer_state_dict",
	"optim_state_dict",
	"opt",
	"lr_scheduler",
	"scheduler",
	"lr_schedulers",
	"scheduler_state_dict",
	"loops",
	"callbacks",
	"train_state",
	"trainer",
	"dataloader",
	"rng_state",
	"rng_states",
	"scaler",
	"grad_scaler",
	"amp_scaler",
	"last_optimizer_state",
	"param_schedulers",
	"message_hub",
	"ema",
	"ema_model",
	"model_ema",
	"ema_state_dict",
	"state_dict_ema",
	"master_params",
	"fp32_from_fp16",
	"fp32_from_fp16_params",
};

/* Keys under which a model's state dict is commonly saved. */
static const char *const wrapper_keys[] = {
	"model",     "state_dict", "module", "model_state_dict", "app",
	"app_state", "network",	   "net",    "model_state",	 "state",
};

/* Components that wrappers insert into names; no module is called so. */
static const char *const inserted[] = {
	"_orig_mod.",	    "_fsdp_wrapped_module.",	   "_fpw_module.",
	"_forward_module.", "_checkpoint_wrapped_module.",
};

static bool is_one_of(const char *const *list, size_t nr, const char *s,
		      size_t len)
{
	for (size_t i = 0; i < nr; i++)
		if (ck_text_is(s, len, list[i]))
			return true;
	return false;
}

/*
 * Where the format kept no structure only "optimizer." is trusted to say so:
 * a model may well call a module of its own "opt" or "ema".
 */
static bool trainer_state(const struct ck_catalog *img, uint32_t t,
			  unsigned level)
{
	static const char flat[] = "optimizer.";
	struct ck_nest_part part = ck_nest_part(img, t, level);

	if (img->tensors[t].path == CK_NONE)
		return part.len > sizeof(flat) - 1 &&
		       !memcmp(part.key, flat, sizeof(flat) - 1);
	return part.key && is_one_of(trainer_keys, CK_ARRAY_LEN(trainer_keys),
				     part.key, part.len);
}

struct pick {
	const struct ck_catalog *img;
	uint32_t *held;
	uint32_t nr;
	unsigned level; /* wrapping keys taken off */
	uint32_t loose; /* left out, beside them */
	struct ck_str taken; /* they, joined by dots */
};

static void drop_trainer_state(struct pick *p)
{
	uint32_t kept = 0;

	for (uint32_t i = 0; i < p->nr; i++)
		if (!trainer_state(p->img, p->held[i], p->level))
			p->held[kept++] = p->held[i];
	p->nr = kept;
}

static bool lies_below(const struct ck_catalog *img, uint32_t t,
		       const char *key)
{
	struct ck_nest_part part = ck_nest_part(img, t, 0);

	return img->tensors[t].path != CK_NONE && part.key &&
	       ck_nest_depth(img, t) == 2 &&
	       ck_text_is(part.key, part.len, key);
}

bool ck_model_names_twice(const struct ck_catalog *img)
{
	const struct ck_format *f = ck_format_of(img);

	return f && f->copies;
}

/*
 * Of two copies of the weights the one that the option says, or that is there.
 * False: there is only one.
 */
static bool take_copy(struct pick *p, const struct ck_opts *opts)
{
	const struct ck_format *f = ck_format_of(p->img);
	uint32_t kept = 0, usual = 0;
	const char *want;

	if (!f || !f->copies)
		return false;
	want = ck_opts_get(opts, f->copies->option);
	for (uint32_t i = 0; i < p->nr; i++)
		usual += lies_below(p->img, p->held[i], f->copies->usual);
	if (!want)
		want = usual ? f->copies->usual : f->copies->other;
	for (uint32_t i = 0; i < p->nr; i++)
		if (lies_below(p->img, p->held[i], want))
			p->held[kept++] = p->held[i];
	p->nr = kept;
	p->level = 1;
	ck_str_fmt(&p->taken, "%s.", want);
	return true;
}

/*
 * A trainer's counter or generator: a tensor that stands in the dict itself,
 * and is one number or no floating point.  Only where a dict wraps the model.
 */
static bool is_loose(const struct pick *p, uint32_t t)
{
	static const uint8_t counting[] = { CK_DT_BOOL, CK_DT_U8,  CK_DT_I8,
					    CK_DT_U16,	CK_DT_I16, CK_DT_U32,
					    CK_DT_I32,	CK_DT_U64, CK_DT_I64 };
	const struct ck_tensor *tensor = &p->img->tensors[t];
	uint64_t elements;

	if (ck_nest_depth(p->img, t) != p->level + 1)
		return false;
	return memchr(counting, tensor->dtype, sizeof(counting)) ||
	       (ck_dims_volume(p->img->dims + tensor->shape, tensor->rank,
			       &elements) &&
		elements == 1);
}

/* Whether all that is left, but what is loose, lies below one key. */
static bool find_wrapper(const struct pick *p, struct ck_nest_part *key)
{
	struct ck_nest_part part;

	*key = (struct ck_nest_part){ 0 };
	for (uint32_t i = 0; i < p->nr; i++) {
		if (is_loose(p, p->held[i]))
			continue;
		if (ck_nest_depth(p->img, p->held[i]) < p->level + 2)
			return false;
		part = ck_nest_part(p->img, p->held[i], p->level);
		if (!part.key || (key->key && ck_nest_cmp_part(key, &part)))
			return false;
		*key = part;
	}
	return key->key && is_one_of(wrapper_keys, CK_ARRAY_LEN(wrapper_keys),
				     key->key, key->len);
}

static bool take_wrapper(struct pick *p)
{
	struct ck_nest_part key;
	uint32_t kept = 0;

	if (!find_wrapper(p, &key))
		return false;
	for (uint32_t i = 0; i < p->nr; i++)
		if (!is_loose(p, p->held[i]))
			p->held[kept++] = p->held[i];
	p->loose += p->nr - kept;
	p->nr = kept;
	ck_str_add(&p->taken, key.key, key.len);
	ck_str_puts(&p->taken, ".");
	p->level++;
	return true;
}

/* The name from @level on, parts joined by dots. */
static void add_rest(struct ck_str *s, const struct ck_catalog *img, uint32_t t,
		     unsigned level)
{
	unsigned depth = ck_nest_depth(img, t);

	for (unsigned i = level; i < depth; i++) {
		struct ck_nest_part part = ck_nest_part(img, t, i);

		if (i > level)
			ck_str_puts(s, ".");
		if (part.key)
			ck_str_add(s, part.key, part.len);
		else
			ck_str_fmt(s, "%" PRIu64, part.index);
	}
}

/* Removes @what wherever it begins a component of s[from..] but is not all. */
static bool cut_component(struct ck_str *s, size_t from, const char *what)
{
	size_t n = strlen(what);
	bool cut = false;

	for (size_t i = from; i + n <= s->len;) {
		if ((i == from || s->v[i - 1] == '.') && s->len - from > n &&
		    !memcmp(s->v + i, what, n)) {
			memmove(s->v + i, s->v + i + n, s->len - i - n + 1);
			s->len -= n;
			cut = true;
		} else {
			i++;
		}
	}
	return cut;
}

static bool cut_inserted(struct ck_str *s, size_t from)
{
	bool cut = false;

	for (size_t i = 0; i < CK_ARRAY_LEN(inserted); i++)
		cut |= cut_component(s, from, inserted[i]);
	return cut;
}

static bool all_begin_with(const struct ck_model_names *n, const char *prefix)
{
	size_t len = strlen(prefix);

	for (uint32_t i = 0; i < n->nr; i++)
		if (n->v[i].name_len <= len ||
		    memcmp(n->v[i].name, prefix, len) != 0)
			return false;
	return n->nr > 0;
}

/* Returns how many names began with it. */
static uint32_t cut_prefix(struct ck_model_names *n, const char *prefix)
{
	size_t len = strlen(prefix);
	uint32_t cut = 0;

	for (uint32_t i = 0; i < n->nr; i++) {
		struct ck_merged_tensor *m = &n->v[i];

		if (m->name_len > len && !memcmp(m->name, prefix, len)) {
			m->name += len;
			m->name_len -= len;
			cut++;
		}
	}
	return cut;
}

static int by_name(const void *pa, const void *pb)
{
	const struct ck_merged_tensor *a = pa, *b = pb;
	int cmp = ck_text_order(a->name, a->name_len, b->name, b->name_len);

	if (cmp)
		return cmp;
	return a->tensor < b->tensor ? -1 : a->tensor > b->tensor;
}

static bool same_name(const struct ck_merged_tensor *a,
		      const struct ck_merged_tensor *b)
{
	return a->name_len == b->name_len &&
	       !memcmp(a->name, b->name, a->name_len);
}

/* Takes every tensor out that shares its new name with another. */
static int drop_clashes(struct ck_model_names *n)
{
	uint32_t kept = 0;

	qsort(n->v, n->nr, sizeof(*n->v), by_name);
	n->clash = calloc((size_t)n->nr + 1, sizeof(*n->clash));
	if (!n->clash)
		return -ENOMEM;
	for (uint32_t i = 0; i < n->nr; i++) {
		bool before = i && same_name(&n->v[i], &n->v[i - 1]);
		bool after = i + 1 < n->nr && same_name(&n->v[i], &n->v[i + 1]);

		if (before || after) {
			n->clash[n->nr_clash].tensor = n->v[i].tensor;
			n->clash[n->nr_clash++].other =
				n->v[after ? i + 1 : i - 1].tensor;
		}
	}
	for (uint32_t i = 0, c = 0; i < n->nr; i++) {
		if (c < n->nr_clash && n->clash[c].tensor == n->v[i].tensor)
			c++;
		else
			n->v[kept++] = n->v[i];
	}
	n->nr = kept;
	return 0;
}

/* Writes all names into one text; offsets first, for it moves as it grows. */
static int write_names(struct ck_model_names *n, struct pick *p, bool plain,
		       bool *cut)
{
	struct ck_str text = { 0 };

	for (uint32_t i = 0; i < p->nr; i++) {
		size_t from = text.len, len;
		const char *name;

		if (p->level) {
			add_rest(&text, p->img, p->held[i], p->level);
		} else {
			name = ck_catalog_str(
				p->img, p->img->tensors[p->held[i]].name, &len);
			ck_str_add(&text, name, len);
		}
		if (!plain && !text.failed)
			*cut |= cut_inserted(&text, from);
		n->v[i].tensor = p->held[i];
		n->v[i].name = (const char *)from;
		n->v[i].name_len = text.len - from;
	}
	n->nr = p->nr;
	n->text = text.v;
	for (uint32_t i = 0; i < n->nr; i++)
		n->v[i].name = n->text + (size_t)n->v[i].name;
	return text.failed ? -ENOMEM : 0;
}

static int drop_optim_state(struct pick *p)
{
	uint32_t kept = 0;
	bool *is;
	int ret = ck_optim_state_find(p->img, p->held, p->nr, &is);

	for (uint32_t i = 0; !ret && i < p->nr; i++)
		if (!is[i])
			p->held[kept++] = p->held[i];
	p->nr = kept;
	free(is);
	return ret;
}

static int name_all(struct ck_model_names *n, struct pick *p,
		    const struct ck_opts *opts)
{
	const char *prefix = ck_opts_get(opts, "strip-prefix");
	bool cut = false, any = p->nr;
	int ret;

	if (!take_copy(p, opts)) {
		ret = drop_optim_state(p);
		if (ret)
			return ret;
		drop_trainer_state(p);
		while (!prefix && take_wrapper(p))
			drop_trainer_state(p);
	}
	ret = write_names(n, p, prefix != NULL, &cut);
	if (ret)
		return ret;
	if (prefix) {
		n->idle = !cut_prefix(n, prefix) && *prefix;
		ck_str_fmt(&n->rule,
			   n->idle ? "nothing: none begins with \"%s\" "
				     "(strip-prefix)" :
				     "prefix \"%s\" (strip-prefix)",
			   prefix);
	} else {
		if (p->taken.len)
			ck_str_fmt(&n->rule, "wrapping key \"%s\"", p->taken.v);
		if (p->loose)
			ck_str_fmt(&n->rule, " (without %" PRIu32 " beside it)",
				   p->loose);
		if (cut)
			ck_str_fmt(&n->rule, "%swrappers inside names",
				   n->rule.len ? ", " : "");
		if (all_begin_with(n, "module.")) {
			cut_prefix(n, "module.");
			ck_str_fmt(&n->rule, "%sprefix \"module.\" of all",
				   n->rule.len ? ", " : "");
		}
		if (!n->rule.len)
			ck_str_puts(&n->rule, "nothing");
		if (any && !p->nr)
			ck_str_puts(&n->rule, ", for all of it is an "
					      "optimizer's or a trainer's");
	}
	return n->rule.failed || p->taken.failed ? -ENOMEM : drop_clashes(n);
}

int ck_model_names_make(struct ck_model_names *out,
			const struct ck_catalog *img, uint32_t first,
			uint32_t nr, const struct ck_opts *opts,
			struct ck_err *err)
{
	struct pick p = { .img = img, .nr = nr };
	int ret = -ENOMEM;

	*out = (struct ck_model_names){ 0 };
	out->v = calloc((size_t)nr + 1, sizeof(*out->v));
	p.held = calloc((size_t)nr + 1, sizeof(*p.held));
	for (uint32_t i = 0; p.held && i < nr; i++)
		p.held[i] = first + i;
	if (out->v && p.held)
		ret = name_all(out, &p, opts);
	free(p.held);
	ck_str_free(&p.taken);
	if (ret) {
		ck_model_names_free(out);
		return ck_no_memory(err);
	}
	return 0;
}

void ck_model_names_free(struct ck_model_names *n)
{
	free(n->v);
	free(n->text);
	free(n->clash);
	ck_str_free(&n->rule);
	*n = (struct ck_model_names){ 0 };
}
