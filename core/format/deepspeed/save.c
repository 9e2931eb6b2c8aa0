/* SPDX-License-Identifier: Apache-2.0 */
/*
 * save.c - whether files lie together that are of different saves
 *
 * A model file says its step, and so do most optimizers; an optimizer file
 * also says over how many ranks it was partitioned.
 */
#include "core/format/deepspeed/deepspeed.h"

#include "core/assemble/pattern.h"
#include "core/base/auto.h"
#include "core/base/check.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_STEP ((int64_t)1 << 52)

static const struct ck_audit_words step_words = {
	.other =
		"it is of step {mine}, the checkpoint of step {meant}: its part is not read",
	.unclear =
		"it is of step {mine}, others of other steps, and no file says which is meant: it is not read",
	.severity = CK_ERROR,
};

static const struct ck_audit_words count_words = {
	.other =
		"it is of a save by {mine} ranks, the others of one by {meant}: it is left aside",
	.severity = CK_ERROR,
	.beyond = CK_ERROR,
};

/* ---- model files ---- */

/* The number in "global_stepN", as the folder is called by itself; or -1. */
static int64_t folder_step(const struct ck_dir *dir)
{
	static const struct ck_pattern step = { "global_step#", 0 };
	const char *end = dir->path + strlen(dir->path), *at;
	struct ck_pattern_found f;
	char name[32] = "";

	while (end > dir->path && end[-1] == '/')
		end--;
	for (at = end; at > dir->path && at[-1] != '/';)
		at--;
	if (end - at < (ptrdiff_t)sizeof(name))
		memcpy(name, at, (size_t)(end - at));
	return ck_pattern_find(&step, 1, name, &f) && f.to[0] - f.from[0] < 17 ?
		       (int64_t)f.n[0] :
		       -1;
}

static bool has_steps(const struct ck_pickle *p, int64_t *steps)
{
	return ck_pq_int(p, ck_pickle_root(p), "global_steps", steps) &&
	       *steps >= 0;
}

/* Fills in what the file says; 0, or -ENOMEM. */
static int peek(const struct ck_dir *dir, struct ck_audit_file *v)
{
	ck_auto_torch_open struct ck_torch_open f = { 0 };
	int ret = ck_deepspeed_peek(dir, v->name, &f);

	v->counts = !ret && has_steps(f.ts.pickle, &v->fact[0]);
	return ret == -ENOMEM ? ret : 0;
}

int ck_deepspeed_find_steps(struct deepspeed_load *ld, struct ck_err *err)
{
	const struct deepspeed_file *f = ld->files.v;
	ck_auto_free struct ck_audit_file *v =
		calloc(ld->files.nr + 1, sizeof(*v));
	int64_t named = folder_step(ld->dir);
	struct ck_audit a = {
		.v = v, .facts = 1, .world = -1, .named = &named
	};
	struct ck_audit_vote vote;
	size_t meant;

	if (!v)
		return ck_no_memory(err);
	for (size_t i = 0; i < ld->files.nr; i++) {
		if (f[i].kind > DEEPSPEED_MODEL3 ||
		    (i && f[i].kind == f[i - 1].kind && f[i].mp == f[i - 1].mp))
			continue;
		v[a.nr].name = f[i].name;
		if (peek(ld->dir, &v[a.nr++]))
			return ck_no_memory(err);
	}
	ck_audit_vote(&a, &vote);
	meant = vote.named != CK_AUDIT_NONE ? vote.named : vote.most;
	ld->mixed = vote.other != CK_AUDIT_NONE;
	ld->steps = meant != CK_AUDIT_NONE ? v[meant].fact[0] : -1;
	return 0;
}

/* Says that @file is of step @steps, and not of @meant (-1: unclear). */
static int say_step(struct deepspeed_load *ld, const char *file, int64_t steps,
		    int64_t meant, struct ck_err *err)
{
	struct ck_audit_file v[] = { { .fact = { meant } },
				     { .name = file, .fact = { steps } } };
	const struct ck_audit a = { .v = v, .nr = 2, .facts = 1, .world = -1 };

	return ck_audit_say(&a, 1, meant < 0 ? CK_AUDIT_NONE : 0, &step_words,
			    ld->b, err);
}

int ck_deepspeed_check_steps(struct deepspeed_load *ld, const char *file,
			     int64_t steps, bool *ok, struct ck_err *err)
{
	*ok = !ld->mixed || steps < 0 || steps == ld->steps;
	return *ok ? 0 : say_step(ld, file, steps, ld->steps, err);
}

int ck_deepspeed_check_beside(struct deepspeed_load *ld,
			      const struct deepspeed_model *m,
			      const struct ck_torch_open *f, bool *ok,
			      struct ck_err *err)
{
	int64_t steps;

	*ok = m->steps < 0 || !has_steps(f->ts.pickle, &steps) ||
	      steps == m->steps;
	return *ok ? 0 : say_step(ld, f->s->name, steps, m->steps, err);
}

/* ---- optimizer files ---- */

/*
 * The ranks by their numbers; files of another run that lie beside are not
 * used.
 */
static int drop_strays(struct deepspeed_zero *z, const struct ck_audit *a,
		       size_t meant, struct ck_err *err)
{
	struct deepspeed_rank *v = calloc(z->count, sizeof(*v));
	int ret = v ? 0 : ck_no_memory(err);

	for (size_t i = 0; i < a->nr; i++) {
		struct deepspeed_rank *r = &z->ranks.v[i];

		if (v && r->dp < z->count && !v[r->dp].name &&
		    (!r->usable || r->count == z->count)) {
			v[r->dp] = *r;
			continue;
		}
		if (!ret)
			ret = ck_audit_say(a, i, meant, &count_words, z->ld->b,
					   err);
		ck_deepspeed_rank_free(r);
	}
	free(z->ranks.v);
	z->ranks.v = v;
	z->ranks.nr = z->ranks.room = v ? z->count : 0;
	return ret;
}

/*
 * Which step the ranks are of, where they differ: that of the model file, else
 * that of more than half of them.
 */
static int drop_other_steps(struct deepspeed_zero *z, struct ck_err *err)
{
	const int64_t step = z->m->steps - z->m->skipped;
	ck_auto_free struct ck_audit_file *v =
		calloc(z->ranks.nr + 1, sizeof(*v));
	struct ck_audit a = { .v = v,
			      .nr = z->ranks.nr,
			      .facts = 1,
			      .world = -1,
			      .named = z->m->steps < 0 ? NULL : &step };
	struct ck_audit_vote vote;
	int ret;

	if (!v)
		return ck_no_memory(err);
	for (size_t i = 0; i < a.nr; i++) {
		const struct deepspeed_rank *r = &z->ranks.v[i];

		v[i].name = r->name;
		v[i].counts = r->usable && r->has_step;
		v[i].fact[0] = (int64_t)r->step;
	}
	ck_audit_vote(&a, &vote);
	if (vote.other == CK_AUDIT_NONE)
		return 0;
	ret = ck_audit_report(
		&a, vote.named != CK_AUDIT_NONE ? vote.named : vote.most,
		&step_words, z->ld->b, err);
	for (size_t i = 0; i < a.nr; i++)
		z->ranks.v[i].usable &= !z->ranks.v[i].has_step || v[i].counts;
	return ret;
}

/*
 * Before 0.14 an optimizer had made a step when training began; 0.15 leaves
 * room for what was built in between.
 */
static bool counts_from_one(const struct deepspeed_model *m)
{
	const struct ck_pickle *p = m->f.ts.pickle;
	unsigned major, minor;
	char text[16] = "";
	const char *s;
	size_t len;

	if (!ck_pq_str(p, ck_pickle_root(p), "ds_version", &s, &len))
		return true;
	memcpy(text, s, CK_MIN(len, sizeof(text) - 1));
	return sscanf(text, "%4u.%4u", &major, &minor) != 2 ||
	       (!major && minor < 15);
}

/*
 * An optimizer that was begun anew, as one may when loading, is behind the
 * model, and its master copy is what the weights are; nothing but a file of
 * another save brings it further than one ahead.
 */
static int check_step(struct deepspeed_zero *z, int64_t step,
		      struct ck_err *err)
{
	const struct deepspeed_model *m = z->m;
	int64_t model = m->steps - m->skipped, named = folder_step(z->ld->dir);
	int differs = 1;

	if (m->steps < 0 || step == model || model > MAX_STEP ||
	    model < -MAX_STEP)
		return 0;
	if (step <= model + 1 && (named != step || named == m->steps)) {
		if (step == model + 1 && counts_from_one(m))
			return 0;
		differs = ck_deepspeed_master_differs(z);
	}
	if (differs < 0)
		return ck_no_memory(err);
	z->two_saves = differs;
	return deepspeed_problem(
		z->ld, differs ? CK_ERROR : CK_WARNING, m->f.s->name, err,
		"it is of step %" PRIi64
		", the optimizer files of step %" PRIi64 ": %s",
		model, step,
		differs ?
			"weights and optimizer states are of two saves" :
			"they are of two saves, or the optimizer was begun anew");
}

/* Files that are not there are called as those of the others are. */
static int add_absents(struct deepspeed_zero *z, const char *like,
		       struct ck_err *err)
{
	size_t head = (size_t)(strstr(like, "zero_pp_rank_") + 13 - like);
	const char *tail = like + head + strspn(like + head, "0123456789");
	int ret = 0;

	for (size_t i = 0; i < z->ranks.nr && !ret; i++) {
		struct deepspeed_rank *r = &z->ranks.v[i];

		if (r->name)
			continue;
		r->dp = (unsigned)i;
		r->absent = true;
		r->name = ck_arena_fmt(&z->ld->mem, "%.*s%zu%s", (int)head,
				       like, i, tail);
		ret = r->name ? ck_dir_source(z->ld->dir, z->ld->b, r->name,
					      &r->src, NULL, err) :
				ck_no_memory(err);
	}
	return ret;
}

/* Of stage 3: whether its vectors are what the parameters need. */
static int check_rank3(const struct deepspeed_zero *z,
		       const struct deepspeed_rank *r, struct ck_err *why)
{
	uint64_t want = 0, have = 0;

	for (size_t i = 0; i < z->m->params.nr; i++)
		if (!ck_add_ok(want,
			       CK_DIV_UP(z->m->params.v[i].numel, z->count),
			       &want))
			return ck_fail(why, EINVAL, "param_shapes overflow");
	for (size_t i = 0; i < r->flats.nr && !r->flats.v[i].state; i++)
		have += r->flats.v[i].run.len;
	if (want != have)
		return ck_fail(
			why, EINVAL,
			"its vectors have %" PRIu64
			" elements, where param_shapes in %s make %" PRIu64
			" over %" PRIu64 " ranks: it is not read",
			have, z->m->f.s->name, want, z->count);
	return 0;
}

static int check_ranks(struct deepspeed_zero *z, struct ck_err *err)
{
	int ret = 0;

	z->complete = true;
	for (size_t i = 0; i < z->ranks.nr; i++)
		z->stage3 |= z->ranks.v[i].usable && z->ranks.v[i].stage3;
	for (size_t i = 0; i < z->ranks.nr && !ret; i++) {
		struct deepspeed_rank *r = &z->ranks.v[i];
		struct ck_err why = { 0 };

		if (r->usable && r->stage3 && check_rank3(z, r, &why)) {
			r->usable = false;
			ret = deepspeed_problem(z->ld, CK_ERROR, r->name, err,
						"%s", why.msg);
		}
		z->complete &= r->usable;
	}
	return ret;
}

static int drop_all(struct deepspeed_zero *z, const char *what,
		    struct ck_err *err)
{
	const char *name = z->ranks.nr ? z->ranks.v[0].name : NULL;

	for (size_t i = 0; i < z->ranks.nr; i++)
		ck_deepspeed_rank_free(&z->ranks.v[i]);
	z->ranks.nr = 0;
	return name ? deepspeed_problem(z->ld, CK_ERROR, name, err, "%s",
					what) :
		      0;
}

/* The one count that all usable files say, or that a whole set says. */
static int find_count(struct deepspeed_zero *z, struct ck_err *err)
{
	ck_auto_free struct ck_audit_file *v =
		calloc(z->ranks.nr + 1, sizeof(*v));
	const struct ck_audit a = { .v = v, .nr = z->ranks.nr, .facts = 1 };
	struct ck_audit_vote vote;
	size_t meant;

	if (!v)
		return ck_no_memory(err);
	for (size_t i = 0; i < a.nr; i++) {
		struct deepspeed_rank *r = &z->ranks.v[i];

		if (r->usable && !r->count)
			r->count = a.nr;
		if (r->usable) /* if in doubt; pieces of others are so many */
			z->count = r->count;
		v[i].name = r->name;
		v[i].counts = r->usable;
		v[i].rank = r->dp;
		v[i].fact[0] = (int64_t)r->count;
	}
	ck_audit_vote(&a, &vote);
	meant = vote.other == CK_AUDIT_NONE ? vote.first : vote.whole;
	if (vote.first == CK_AUDIT_NONE)
		return drop_all(z, "no optimizer file can be read", err);
	if (meant == CK_AUDIT_NONE)
		return drop_all(
			z,
			"the optimizer files are of saves by different numbers of ranks, and none is whole: they are left out",
			err);
	z->count = (uint64_t)v[meant].fact[0];
	if (z->count > 64 * a.nr + 64)
		return drop_all(
			z,
			"nearly all optimizer files are missing: they are left out",
			err);
	return drop_strays(z, &a, meant, err);
}

int ck_deepspeed_zero_join(struct deepspeed_zero *z, struct ck_err *err)
{
	const struct deepspeed_rank *r = NULL;
	const char *like = NULL;
	int ret = find_count(z, err);

	if (ret || !z->ranks.nr)
		return ret;
	for (size_t i = 0; i < z->ranks.nr && !like; i++)
		like = z->ranks.v[i].name;
	ret = drop_other_steps(z, err);
	for (size_t i = 0; i < z->ranks.nr && !ret && !r; i++)
		if (z->ranks.v[i].usable && z->ranks.v[i].has_step)
			r = &z->ranks.v[i];
	if (!ret && r)
		ret = check_step(z, (int64_t)r->step, err);
	if (!ret)
		ret = add_absents(z, like, err);
	return ret ? ret : check_ranks(z, err);
}
