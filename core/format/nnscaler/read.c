/* SPDX-License-Identifier: Apache-2.0 */
/*
 * read.c - reads the ranks, and leaves those aside that do not belong
 *
 * All files of one save say the same numbers of ranks, step and model.  Where
 * they do not, those are read that are whole by themselves, or else more than
 * half of all; otherwise nothing says which are meant.
 */
#include "core/format/nnscaler/priv.h"

#include "core/base/auto.h"
#include "core/base/check.h"
#include "core/container/container.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define MAX_NAMED 32 /* missing files that are named one by one */

static int say(struct ck_nn_set *s, uint32_t rank, const char *why,
	       struct ck_err *err)
{
	const struct ck_problem_in p = { .severity = CK_ERROR,
					 .file = s->ranks.v[rank].file };

	if (!s->first_fault.code)
		ck_fail(&s->first_fault, EINVAL, "%s: %s", p.file, why);
	return ck_builder_problem(s->b, &p, err, "%s", why);
}

/* What the file says of itself, before anything of it is used. */
static int look(struct ck_nn_set *s, uint32_t i, struct ck_err *err)
{
	ck_auto_nn_file struct ck_nn_file f = { 0 };
	struct ck_nn_rank *r = &s->ranks.v[i];
	struct ck_err why;
	int64_t inner = -1;
	int ret = ck_nn_file_open(&f, s->dir, s->b, r->file, &r->ok, &why, err);

	if (ret)
		return ret;
	r->src = f.t.src;
	if (!r->ok)
		return say(s, i, why.msg, err);
	ret = f.st ? ck_st_file_say_tail(&f.h, s->b, err) : 0;
	if (ret)
		return ret;
	ret = ck_nn_identity_read(&f, &r->id, &inner);
	if (ret == -ENOMEM)
		return ck_fail(err, ENOMEM, "no memory");
	if (ret) {
		r->ok = false;
		return say(s, i, "it has no model of a rank of nnScaler", err);
	}
	if (inner == (int64_t)i || inner < 0)
		return 0;
	r->ok = false;
	ck_fail(&why, EINVAL,
		"it says that it is the file of rank %" PRId64
		": it is left aside",
		inner);
	return say(s, i, why.msg, err);
}

static bool same_save(const struct ck_nn_identity *a,
		      const struct ck_nn_identity *b)
{
	return a->world == b->world && a->plan == b->plan &&
	       a->zero == b->zero && a->groups == b->groups &&
	       a->steps == b->steps && a->model == b->model;
}

static uint64_t count_like(const struct ck_nn_set *s, uint32_t like)
{
	uint64_t nr = 0;

	for (uint32_t i = 0; i < s->ranks.nr; i++)
		nr += s->ranks.v[i].ok &&
		      (int64_t)i < s->ranks.v[like].id.world &&
		      same_save(&s->ranks.v[i].id, &s->ranks.v[like].id);
	return nr;
}

static const char *difference(const struct ck_nn_identity *a,
			      const struct ck_nn_identity *b, char *room,
			      size_t len)
{
	if (a->world != b->world)
		snprintf(room, len, "runs of %" PRId64 " and %" PRId64 " ranks",
			 a->world, b->world);
	else if (a->steps != b->steps)
		snprintf(room, len, "steps %" PRId64 " and %" PRId64, a->steps,
			 b->steps);
	else if (a->model != b->model)
		snprintf(room, len, "models with other arguments");
	else
		snprintf(room, len, "runs with other plans");
	return room;
}

/* More than one save: the files of one that is whole, or of most. */
static int choose(struct ck_nn_set *s, uint32_t other, uint32_t *chosen,
		  struct ck_err *err)
{
	const struct ck_nn_rank *r = s->ranks.v;
	char room[96];
	uint32_t whole = UINT32_MAX, most = UINT32_MAX;

	for (uint32_t i = 0; i < s->ranks.nr; i++) {
		uint64_t nr = r[i].ok ? count_like(s, i) : 0;

		if (nr && nr == (uint64_t)r[i].id.world && whole == UINT32_MAX)
			whole = i;
		if (2 * nr > s->ranks.nr && nr * 2 > (uint64_t)r[i].id.world &&
		    most == UINT32_MAX)
			most = i;
	}
	*chosen = whole != UINT32_MAX ? whole : most;
	if (*chosen != UINT32_MAX)
		return 0;
	return ck_fail(
		err, EINVAL,
		"%s: %s and %s are of different saves (%s), and nothing says which is meant: take the files of one of them away",
		s->dir->path, r[s->first].file, r[other].file,
		difference(&r[s->first].id, &r[other].id, room, sizeof(room)));
}

static int leave_aside(struct ck_nn_set *s, uint32_t chosen, struct ck_err *err)
{
	const struct ck_nn_identity *id = &s->ranks.v[chosen].id;
	int ret = 0;

	for (uint32_t i = 0; i < s->ranks.nr && !ret; i++) {
		struct ck_nn_rank *r = &s->ranks.v[i];
		const struct ck_problem_in p = {
			.severity =
				(int64_t)i < id->world ? CK_ERROR : CK_WARNING,
			.file = r->file,
		};
		char room[96];

		if (!r->ok || (same_save(&r->id, id) && (int64_t)i < id->world))
			continue;
		r->ok = false;
		ret = ck_builder_problem(
			s->b, &p, err,
			"it is of another save than %s (%s): it is left aside",
			s->ranks.v[chosen].file,
			difference(&r->id, id, room, sizeof(room)));
	}
	return ret;
}

/* The ranks that are there, and how many there were. */
static int settle(struct ck_nn_set *s, struct ck_err *err)
{
	uint32_t other = UINT32_MAX, chosen;
	int ret;

	s->first = UINT32_MAX;
	for (uint32_t i = 0; i < s->ranks.nr; i++) {
		const struct ck_nn_rank *r = &s->ranks.v[i];

		if (!r->ok)
			continue;
		if (s->first == UINT32_MAX)
			s->first = i;
		if ((!same_save(&r->id, &s->ranks.v[s->first].id) ||
		     (r->id.world && (int64_t)i >= r->id.world)) &&
		    other == UINT32_MAX)
			other = i;
	}
	if (s->first == UINT32_MAX)
		return ck_fail(
			err, EINVAL,
			"%s: none of its files can be read as one of a rank of nnScaler; %s",
			s->dir->path, s->first_fault.msg);
	if (other == UINT32_MAX)
		return 0;
	ret = choose(s, other, &chosen, err);
	if (ret)
		return ret;
	ret = leave_aside(s, chosen, err);
	s->first = chosen;
	return ret;
}

/* As many ranks as the save had; those without a file are said. */
static int complete(struct ck_nn_set *s, struct ck_err *err)
{
	int64_t world = s->ranks.v[s->first].id.world;
	ck_auto_str struct ck_str name = { 0 };
	int ret = 0;

	if (world < 0 || world > (int64_t)(64 * s->ranks.nr + 4096))
		return ck_fail(err, EINVAL,
			       "%s: it says that it is one of %" PRId64
			       " ranks, and there are files of %zu",
			       s->ranks.v[s->first].file, world, s->ranks.nr);
	while ((int64_t)s->ranks.nr < world) {
		struct ck_nn_rank *r = ck_vec_push(&s->ranks);

		if (!r)
			return ck_fail(err, ENOMEM, "no memory for ranks");
		*r = (struct ck_nn_rank){ .src = UINT32_MAX };
	}
	for (uint32_t i = 0; (int64_t)i < world && !ret; i++) {
		struct ck_nn_rank *r = &s->ranks.v[i];

		s->nr_missing += !r->ok;
		if (r->file || s->nr_missing > MAX_NAMED)
			continue;
		if (ck_nn_set_name(s, i, &name))
			return ck_fail(err, ENOMEM, "no memory for a name");
		r->absent = true;
		ret = ck_dir_source(s->dir, s->b, name.v, &r->src, NULL, err);
	}
	return ret;
}

static int read_one(struct ck_nn_set *s, uint32_t i, struct ck_err *err)
{
	ck_auto_nn_file struct ck_nn_file f = { 0 };
	struct ck_nn_rank *r = &s->ranks.v[i];
	struct ck_err why;
	bool ok;
	int ret = ck_nn_file_open(&f, s->dir, s->b, r->file, &ok, &why, err);

	if (ret)
		return ret;
	if (!ok || !f.t.s) { /* it was read a moment ago */
		r->ok = false;
		return say(s, i, "it changed while it was read", err);
	}
	ret = ck_nn_rank_read(s, r, &f, &why);
	if (ret == -EINVAL) {
		ck_nn_rank_free(r);
		r->ok = false;
		s->nr_missing++;
		return say(s, i, why.msg, err);
	}
	if (ret)
		return ck_fail(err, -ret, "%s", why.msg);
	return ck_nn_rest_say(s, &f, i, err);
}

int ck_nn_set_read(struct ck_nn_set *s, struct ck_err *err)
{
	int ret = 0;

	if (!ck_vec_reserve(&s->ranks, s->files.nr + 1))
		return ck_fail(err, ENOMEM, "no memory for ranks");
	for (uint32_t i = 0; i < s->files.nr && !ret; i++) {
		s->ranks.v[s->ranks.nr++] =
			(struct ck_nn_rank){ .file = s->files.v[i],
					     .src = UINT32_MAX };
		if (s->files.v[i])
			ret = look(s, i, err);
	}
	if (!ret)
		ret = settle(s, err);
	if (!ret)
		ret = complete(s, err);
	for (uint32_t i = 0; i < s->ranks.nr && !ret; i++)
		if (s->ranks.v[i].ok)
			ret = read_one(s, i, err);
	return ret;
}
