/* SPDX-License-Identifier: Apache-2.0 */
/*
 * zero.c - which optimizer files belong together
 */
#include "core/format/deepspeed/priv.h"

#include "core/base/check.h"
#include "core/container/container.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int say(struct ck_ds_zero *z, enum ck_severity severity,
	       const char *file, const char *what, struct ck_err *err)
{
	const struct ck_problem_in p = { .severity = severity, .file = file };

	return ck_builder_problem(z->b, &p, err, "%s", what);
}

static int read_one(struct ck_ds_zero *z, const struct ck_ds_file *file,
		    struct ck_err *err)
{
	ck_auto_torch_open struct ck_torch_open f = { 0 };
	struct ck_ds_rank *r = ck_vec_push(&z->ranks);
	bool ok;
	int ret;

	if (!r)
		return ck_fail(err, ENOMEM, "no memory for ranks");
	*r = (struct ck_ds_rank){ .file = file, .dp = file->dp };
	ret = ck_ds_open_all(&f, z->dir, z->b, file->name, &ok, err);
	if (ret || !ok)
		return ret;
	r->src = f.src;
	return ck_ds_rank_read(z, r, &f, err);
}

int ck_ds_zero_read(struct ck_ds_zero *z, const struct ck_ds_files *fs,
		    struct ck_err *err)
{
	size_t nr;
	const struct ck_ds_file *file =
		ck_ds_files_of(fs, CK_DS_OPTIM, z->m->mp, &nr);
	int ret = 0;

	z->states[0] = strdup("fp32");
	if (!z->states[0])
		return ck_fail(err, ENOMEM, "no memory for a name");
	z->nr_states = 1;
	for (size_t i = 0; i < nr && !ret; i++)
		ret = read_one(z, &file[i], err);
	return ret;
}

void ck_ds_zero_free(struct ck_ds_zero *z)
{
	for (size_t i = 0; i < z->ranks.nr; i++)
		ck_ds_rank_free(&z->ranks.v[i]);
	for (unsigned i = 0; i < z->nr_states; i++)
		free(z->states[i]);
	for (size_t i = 0; i < z->kept.nr; i++)
		free(z->kept.v[i]);
	free(z->kept.v);
	for (size_t i = 0; i < z->placed.nr; i++)
		free(z->placed.v[i].name);
	free(z->placed.v);
	ck_strmap_free(&z->trained);
	free(z->ranks.v);
	free(z->pos);
	free(z->group_size);
	*z = (struct ck_ds_zero){ 0 };
}

const struct ck_ds_rank *ck_ds_first(const struct ck_ds_zero *z)
{
	for (size_t i = 0; i < z->ranks.nr; i++)
		if (z->ranks.v[i].usable)
			return &z->ranks.v[i];
	return NULL;
}

/* How many of ranks 0 to count - 1 say that there are as many. */
static uint64_t votes(const struct ck_ds_zero *z, uint64_t count)
{
	uint64_t nr = 0;

	for (size_t i = 0; i < z->ranks.nr; i++)
		nr += z->ranks.v[i].usable && z->ranks.v[i].count == count &&
		      z->ranks.v[i].dp < count;
	return nr;
}

/* The one count that all usable files say, or that a whole set says. */
static bool find_count(struct ck_ds_zero *z)
{
	bool agreed = true, whole = false;

	z->count = 0;
	for (size_t i = 0; i < z->ranks.nr; i++)
		if (z->ranks.v[i].usable) {
			agreed &= !z->count || z->count == z->ranks.v[i].count;
			z->count = z->ranks.v[i].count;
		}
	if (agreed)
		return z->count;
	for (size_t i = 0; i < z->ranks.nr; i++) {
		uint64_t count = z->ranks.v[i].count;

		if (!z->ranks.v[i].usable || !count ||
		    votes(z, count) != count || (whole && count == z->count))
			continue;
		if (whole)
			return false;
		whole = true;
		z->count = count;
	}
	return whole;
}

/* A file of another run lies beside: it is not used. */
static int drop_strays(struct ck_ds_zero *z, struct ck_err *err)
{
	size_t kept = 0;
	int ret = 0;

	for (size_t i = 0; i < z->ranks.nr && !ret; i++) {
		struct ck_ds_rank *r = &z->ranks.v[i];
		char why[128];

		if (r->dp < z->count && (!r->usable || r->count == z->count) &&
		    (!kept || z->ranks.v[kept - 1].dp != r->dp)) {
			struct ck_ds_rank mine = *r;

			*r = (struct ck_ds_rank){ 0 };
			z->ranks.v[kept++] = mine;
			continue;
		}
		snprintf(why, sizeof(why),
			 "it is of a save by %" PRIu64
			 " ranks, the others of one by %" PRIu64
			 ": it is left aside",
			 r->count, z->count);
		ret = say(z, CK_ERROR, r->file->name, why, err);
		if (ret) /* what is left is freed with the vector */
			break;
		ck_ds_rank_free(r);
	}
	if (!ret)
		z->ranks.nr = kept;
	return ret;
}

/* The name of rank @dp's file, as those of the others are. */
static char *sibling(const char *name, unsigned dp)
{
	const char *at = strstr(name, "zero_pp_rank_") + 13;
	ck_auto_str struct ck_str s = { 0 };
	char *out;

	ck_str_add(&s, name, (size_t)(at - name));
	ck_str_fmt(&s, "%u", dp);
	ck_str_puts(&s, at + strspn(at, "0123456789"));
	if (s.failed)
		return NULL;
	out = s.v;
	s.v = NULL;
	return out;
}

static int add_absent(struct ck_ds_zero *z, unsigned dp, struct ck_err *err)
{
	char *name = sibling(z->ranks.v[0].file->name, dp);
	struct ck_ds_rank *r;
	int ret;

	if (!name || !(r = ck_vec_push(&z->ranks))) {
		free(name);
		return ck_fail(err, ENOMEM, "no memory for ranks");
	}
	*r = (struct ck_ds_rank){ .dp = dp, .absent = true };
	ret = ck_dir_source(z->dir, z->b, name, &r->src, NULL, err);
	free(name);
	return ret;
}

static int by_dp(const void *pa, const void *pb)
{
	const struct ck_ds_rank *a = pa, *b = pb;

	return a->dp < b->dp ? -1 : a->dp > b->dp;
}

static int add_absents(struct ck_ds_zero *z, struct ck_err *err)
{
	size_t have = z->ranks.nr;
	unsigned dp = 0;
	int ret = 0;

	for (size_t i = 0; i <= have && !ret; i++) {
		unsigned next =
			i < have ? z->ranks.v[i].dp : (unsigned)z->count;

		for (; dp < next && !ret; dp++)
			ret = add_absent(z, dp, err);
		dp = next + 1;
	}
	if (!ret)
		qsort(z->ranks.v, z->ranks.nr, sizeof(*z->ranks.v), by_dp);
	return ret;
}

/*
 * Which step the ranks are of, where they differ: that of the model file, else
 * that of more than half of them.
 */
static bool find_step(const struct ck_ds_zero *z, double *step, bool *differ)
{
	size_t of_model = 0, nr = 0, alike;
	bool first = true;

	*differ = false;
	for (size_t i = 0; i < z->ranks.nr; i++) {
		const struct ck_ds_rank *r = &z->ranks.v[i];

		if (!r->usable || !r->has_step)
			continue;
		nr++;
		if (first)
			*step = r->step;
		first = false;
		*differ |= r->step < *step || r->step > *step;
		of_model += (int64_t)r->step == z->m->steps - z->m->skipped;
	}
	if (!*differ)
		return true;
	*step = (double)(z->m->steps - z->m->skipped);
	if (z->m->steps >= 0 && of_model)
		return true;
	for (size_t i = 0; i < z->ranks.nr; i++) {
		*step = z->ranks.v[i].step;
		alike = 0;
		for (size_t k = 0; k < z->ranks.nr; k++)
			alike += z->ranks.v[k].usable &&
				 z->ranks.v[k].has_step &&
				 (int64_t)z->ranks.v[k].step == (int64_t)*step;
		if (2 * alike > nr)
			return true;
	}
	return false;
}

static int drop_other_steps(struct ck_ds_zero *z, struct ck_err *err)
{
	double step = 0;
	bool differ, known = find_step(z, &step, &differ);
	int ret = 0;

	for (size_t i = 0; differ && i < z->ranks.nr && !ret; i++) {
		struct ck_ds_rank *r = &z->ranks.v[i];
		char why[160];

		if (!r->usable || !r->has_step ||
		    (known && (int64_t)r->step == (int64_t)step))
			continue;
		if (known)
			snprintf(
				why, sizeof(why),
				"it is of step %.0f, the checkpoint of step %.0f: its part is not read",
				r->step, step);
		else
			snprintf(
				why, sizeof(why),
				"it is of step %.0f, others of other steps, and no file says which is meant: it is not read",
				r->step);
		r->usable = false;
		ret = say(z, CK_ERROR, r->file->name, why, err);
	}
	return ret;
}

/* Those that are left are of one step. */
static int check_step(struct ck_ds_zero *z, struct ck_err *err)
{
	for (size_t i = 0; i < z->ranks.nr; i++)
		if (z->ranks.v[i].usable && z->ranks.v[i].has_step)
			return ck_ds_check_optim(z, (int64_t)z->ranks.v[i].step,
						 err);
	return 0;
}

static int check_ranks(struct ck_ds_zero *z, struct ck_err *err)
{
	int ret = 0;

	z->complete = true;
	for (size_t i = 0; i < z->ranks.nr && !ret; i++) {
		struct ck_ds_rank *r = &z->ranks.v[i];
		struct ck_err why = { 0 };

		if (r->usable && r->stage3 && ck_ds_check_rank3(z, r, &why)) {
			r->usable = false;
			ret = say(z, CK_ERROR, r->file->name, why.msg, err);
		}
		z->complete &= r->usable;
	}
	return ret;
}

static int drop_all(struct ck_ds_zero *z, const char *what, struct ck_err *err)
{
	const char *name = z->ranks.nr ? z->ranks.v[0].file->name : NULL;

	for (size_t i = 0; i < z->ranks.nr; i++)
		ck_ds_rank_free(&z->ranks.v[i]);
	z->ranks.nr = 0;
	return name ? say(z, CK_ERROR, name, what, err) : 0;
}

int ck_ds_zero_settle(struct ck_ds_zero *z, struct ck_err *err)
{
	size_t files = z->ranks.nr;
	bool any = false;
	int ret;

	for (size_t i = 0; i < files; i++) {
		any |= z->ranks.v[i].usable;
		if (z->ranks.v[i].usable && !z->ranks.v[i].count)
			z->ranks.v[i].count = files;
	}
	if (!any)
		return drop_all(z, "no optimizer file can be read", err);
	if (!find_count(z))
		return drop_all(
			z,
			"the optimizer files are of saves by different numbers of ranks, and none is whole: they are left out",
			err);
	if (z->count > 64 * files + 64)
		return drop_all(
			z,
			"nearly all optimizer files are missing: they are left out",
			err);
	ret = drop_strays(z, err);
	if (!ret)
		ret = drop_other_steps(z, err);
	if (!ret)
		ret = check_step(z, err);
	if (!ret)
		ret = add_absents(z, err);
	for (size_t i = 0; i < z->ranks.nr; i++)
		z->stage3 |= z->ranks.v[i].usable && z->ranks.v[i].stage3;
	return ret ? ret : check_ranks(z, err);
}
