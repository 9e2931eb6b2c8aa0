/* SPDX-License-Identifier: Apache-2.0 */
/*
 * save.c - whether files lie together that are of different saves
 *
 * A model file says its step, and so do most optimizers; the archive in a file
 * has the name that the file was saved under.
 */
#include "core/format/deepspeed/priv.h"

#include "core/base/check.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_STEP ((int64_t)1 << 52)

/* The number in "global_stepN", as the folder is called by itself; or -1. */
static int64_t folder_step(const struct ck_dir *dir)
{
	static const char prefix[] = "global_step";
	size_t end = strlen(dir->path), at, nr;
	int64_t n = 0;

	while (end && dir->path[end - 1] == '/')
		end--;
	for (at = end; at && dir->path[at - 1] != '/';)
		at--;
	nr = end - at;
	if (nr < sizeof(prefix) || nr > sizeof(prefix) + 15 ||
	    memcmp(dir->path + at, prefix, sizeof(prefix) - 1) != 0)
		return -1;
	for (at += sizeof(prefix) - 1; at < end; at++) {
		if (dir->path[at] < '0' || dir->path[at] > '9')
			return -1;
		n = n * 10 + (dir->path[at] - '0');
	}
	return n;
}

static bool said(const struct ck_pickle *p, int64_t *steps)
{
	ck_pv v;

	return ck_pv_key(p, ck_pickle_root(p), "global_steps", &v) &&
	       ck_pv_int(p, v, steps) && *steps >= 0;
}

/* 1: what the file says; 0: it does not, or cannot be read; or -ENOMEM. */
static int peek(const struct ck_dir *dir, const char *name, int64_t *steps)
{
	ck_auto_torch_open struct ck_torch_open f = { 0 };
	int ret = ck_dir_open(dir, name, &f.s, NULL);

	if (!ret)
		ret = ck_torch_save_open(&f.ts, f.s, NULL);
	if (ret)
		return ret == -ENOMEM ? ret : 0;
	return said(f.ts.pickle, steps);
}

/* Votes are settled by the folder's name, else by more than half of them. */
static void settle(struct ck_ds_load *ld, const int64_t *v, size_t nr)
{
	int64_t named = folder_step(ld->dir);

	ld->steps = -1;
	for (size_t i = 0; i < nr; i++) {
		size_t alike = 0;

		ld->mixed |= v[i] != v[0];
		for (size_t k = 0; k < nr; k++)
			alike += v[k] == v[i];
		if (v[i] == named || (ld->steps < 0 && 2 * alike > nr))
			ld->steps = v[i];
	}
}

int ck_ds_find_steps(struct ck_ds_load *ld, struct ck_err *err)
{
	const struct ck_ds_file *f = ld->fs.v.v;
	int64_t *votes = calloc(ld->fs.v.nr + 1, sizeof(*votes));
	size_t nr = 0;
	int ret = 0;

	if (!votes)
		return ck_fail(err, ENOMEM, "no memory for steps");
	for (size_t i = 0; i < ld->fs.v.nr && ret >= 0; i++) {
		if (f[i].kind > CK_DS_MODEL3 ||
		    (i && f[i].kind == f[i - 1].kind && f[i].mp == f[i - 1].mp))
			continue;
		ret = peek(ld->dir, f[i].name, &votes[nr]);
		nr += ret > 0;
	}
	settle(ld, votes, nr);
	free(votes);
	return ret < 0 ? ck_fail(err, ENOMEM, "no memory for steps") : 0;
}

int ck_ds_check_beside(struct ck_ds_load *ld, const struct ck_ds_model *m,
		       const struct ck_torch_open *f, bool *ok,
		       struct ck_err *err)
{
	const struct ck_problem_in p = { .severity = CK_ERROR,
					 .file = f->s->name };
	int64_t steps;

	*ok = m->steps < 0 || !said(f->ts.pickle, &steps) || steps == m->steps;
	return *ok ? 0 :
		     ck_builder_problem(ld->b, &p, err,
					"it is of step %" PRIi64
					", the checkpoint of step %" PRIi64
					": its part is not read",
					steps, m->steps);
}

int ck_ds_check_steps(struct ck_ds_load *ld, const char *file, int64_t steps,
		      bool *ok, struct ck_err *err)
{
	const struct ck_problem_in p = { .severity = CK_ERROR, .file = file };

	*ok = !ld->mixed || steps < 0 || steps == ld->steps;
	if (*ok)
		return 0;
	if (ld->steps < 0)
		return ck_builder_problem(
			ld->b, &p, err,
			"it is of step %" PRIi64
			", others of other steps, and no file says which is meant: it is not read",
			steps);
	return ck_builder_problem(ld->b, &p, err,
				  "it is of step %" PRIi64
				  ", the checkpoint of step %" PRIi64
				  ": its part is not read",
				  steps, ld->steps);
}

/*
 * Before 0.14 an optimizer had made a step when training began; 0.15 leaves
 * room for what was built in between.
 */
static bool counts_from_one(const struct ck_ds_model *m)
{
	const struct ck_pickle *p = m->f.ts.pickle;
	unsigned major, minor;
	char text[16] = "";
	const char *s;
	size_t len;
	ck_pv v;

	if (!ck_pv_key(p, ck_pickle_root(p), "ds_version", &v) ||
	    !ck_pv_str(p, v, &s, &len))
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
int ck_ds_check_optim(struct ck_ds_zero *z, int64_t step, struct ck_err *err)
{
	const struct ck_ds_model *m = z->m;
	struct ck_problem_in p = { .severity = CK_WARNING,
				   .file = m->f.s->name };
	int64_t model = m->steps - m->skipped, named = folder_step(z->dir);
	int differs;

	if (m->steps < 0 || step == model || model > MAX_STEP ||
	    model < -MAX_STEP)
		return 0;
	if (step > model + 1 || (named == step && named != m->steps))
		p.severity = CK_ERROR;
	else if (step == model + 1 && counts_from_one(m))
		return 0;
	differs = p.severity == CK_ERROR ? 1 : ck_ds_twin_differs(z);
	if (differs < 0)
		return ck_fail(err, ENOMEM, "no memory to compare weights");
	if (differs)
		p.severity = CK_ERROR;
	z->two_saves = differs;
	return ck_builder_problem(
		z->b, &p, err,
		"it is of step %" PRIi64
		", the optimizer files of step %" PRIi64 ": %s",
		model, step,
		p.severity == CK_ERROR ?
			"weights and optimizer states are of two saves" :
			"they are of two saves, or the optimizer was begun anew");
}

/* The name that it was saved under, if one that DeepSpeed gives: into @text. */
static bool saved_as(const struct ck_torch_open *f, char *text, size_t room,
		     struct ck_ds_file *out)
{
	size_t len;
	const char *top = ck_torch_save_top(&f->ts, &len);

	if (!top || len + sizeof(".pt") > room || memchr(top, 0, len))
		return false;
	memcpy(text, top, len);
	memcpy(text + len, ".pt", sizeof(".pt"));
	return ck_ds_is_name(text, out);
}

bool ck_ds_says_name(const struct ck_torch_open *f)
{
	struct ck_ds_file was;
	char text[128];

	return saved_as(f, text, sizeof(text), &was);
}

int ck_ds_open(struct ck_torch_open *f, const struct ck_dir *dir,
	       struct ck_builder *b, const char *name, bool *ok,
	       struct ck_err *err)
{
	const struct ck_problem_in p = { .severity = CK_ERROR, .file = name };
	struct ck_ds_file is, was;
	char text[128];
	int ret = ck_torch_open(f, dir, b, name, ok, err);

	if (ret || !*ok || !ck_ds_is_name(name, &is) ||
	    !saved_as(f, text, sizeof(text), &was) ||
	    (was.kind == is.kind && was.mp == is.mp && was.dp == is.dp))
		return ret;
	*ok = false;
	return ck_builder_problem(
		b, &p, err, "it says that it was saved as %s: it is not read",
		text);
}
