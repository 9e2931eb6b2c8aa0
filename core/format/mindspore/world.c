/* SPDX-License-Identifier: Apache-2.0 */
/* world.c - how many ranks a strategy is for, and which of them are there */
#include "core/format/mindspore/world.h"

#include "core/base/auto.h"
#include "core/base/check.h"
#include "core/base/str.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

#define MAX_STRATEGY (UINT64_C(64) << 20)
#define MAX_SHOWN 8

/* ---- strategies ---- */

static int add_strategy(struct ck_ms_set *s, const char *name,
			struct ck_err *err)
{
	ck_auto_free char *bytes = NULL;
	size_t len;
	int ret = ck_dir_slurp(s->dir, name, MAX_STRATEGY, &bytes, &len, err);

	return ret ? ret : ck_strategy_add(&s->strategy, name, bytes, len, err);
}

/* A name that is no file where the command ran is one of the checkpoint. */
static int add_given(struct ck_ms_set *s, size_t i, const char *name,
		     struct ck_err *err)
{
	size_t len;
	const char *bytes = ck_opts_bytes(s->dir->opts, "strategy", i, &len);
	int ret;

	if (bytes)
		return ck_strategy_add(&s->strategy, name, bytes, len, err);
	ret = ck_dir_name_ok(name, strlen(name)) ? add_strategy(s, name, err) :
						   -ENOENT;
	return ret == -ENOENT ?
		       ck_fail(err, EINVAL,
			       "-o strategy=%s: there is no such file, neither here nor in the checkpoint",
			       name) :
		       ret;
}

static bool is_given(const struct ck_dir *dir)
{
	return ck_opts_get(dir->opts, "strategy");
}

static bool are_whole(const struct ck_dir *dir)
{
	const char *said = ck_opts_get(dir->opts, "integrated");

	return said && !strcmp(said, "yes");
}

int ck_ms_check_given(const struct ck_dir *dir, struct ck_err *err)
{
	struct ck_ms_set s = { .dir = dir };
	const char *name;
	int ret = 0;

	for (size_t i = 0;
	     !ret && (name = ck_opts_nth(dir->opts, "strategy", i)); i++)
		ret = add_given(&s, i, name, err);
	ck_ms_set_free(&s);
	return ret;
}

/* As names have them; files of one folder are called so themselves. */
static int ask(const struct ck_ms_set *s, const struct mindspore_found *f,
	       struct ck_err *err)
{
	const char *first = f->file.v[0].name;
	const char *last = f->file.v[f->file.nr - 1].name;
	size_t nr = f->ranks.nr;

	return ck_fail(
		err, EINVAL,
		"%s: pieces of %zu rank%s, by their names (%.*s%s%.*s), and no strategy file beside them says how tensors were cut: give it with -o strategy=FILE; if each rank holds all of each tensor (data parallel), say -o integrated=yes; or mount one rank's file by itself",
		s->dir->path, nr, nr > 1 ? "s" : "",
		(int)strcspn(first, f->flat ? "" : "/"), first,
		nr > 1 ? " to " : "",
		nr > 1 ? (int)strcspn(last, f->flat ? "" : "/") : 0, last);
}

static int say_dud(struct ck_ms_set *s, const char *name, struct ck_err *err)
{
	const struct ck_problem_in p = { .severity = CK_WARNING, .file = name };

	return ck_builder_problem(
		s->b, &p, err,
		"it is called a strategy, and is none: empty or damaged; what it would say is not known");
}

static int add_strategies(struct ck_ms_set *s, const struct mindspore_found *f,
			  struct ck_err *err)
{
	const char *name;
	int ret = 0;

	for (size_t i = 0;
	     !ret && (name = ck_opts_nth(s->dir->opts, "strategy", i)); i++)
		ret = add_given(s, i, name, err);
	if (is_given(s->dir))
		return ret;
	for (size_t i = 0; i < f->strategy.nr && !ret; i++)
		ret = add_strategy(s, f->strategy.v[i], err);
	for (size_t i = 0; i < f->dud.nr && !ret; i++)
		ret = say_dud(s, f->dud.v[i], err);
	return ret || f->strategy.nr || are_whole(s->dir) ? ret :
							    ask(s, f, err);
}

/* ---- which ranks there must be ---- */

static bool has_rank(const struct mindspore_found *f, uint64_t rank)
{
	for (size_t i = 0; i < f->file.nr; i++)
		if (f->file.v[i].chosen && f->file.v[i].rank == rank)
			return true;
	return false;
}

/* Ranks 0..n-1, and n is a number of devices that a run may have. */
static bool is_smaller_world(const struct mindspore_found *f, uint64_t world)
{
	size_t n = f->ranks.nr;

	for (size_t i = 0; i < n; i++)
		if (f->ranks.v[i] != i)
			return false;
	return n < world && (n == 1 || n == 2 || n == 4 || n % 8 == 0);
}

static bool has_shapes(const struct ck_strategy *st)
{
	for (size_t i = 0; i < st->item.nr; i++)
		if (!st->item.v[i].l.has_shape && !st->item.v[i].why)
			return false;
	return true;
}

static int report_missing(struct ck_ms_set *s, const struct mindspore_found *f,
			  uint64_t world, struct ck_err *err)
{
	const struct ck_problem_in p = { .severity = CK_ERROR };
	ck_auto_str struct ck_str list = { 0 };
	uint64_t nr = 0;

	for (uint64_t r = 0; r < world; r++) {
		if (has_rank(f, r))
			continue;
		if (++nr <= MAX_SHOWN)
			ck_str_fmt(&list, "%s%" PRIu64, nr > 1 ? ", " : "", r);
	}
	if (!nr)
		return 0;
	if (list.failed)
		return ck_mindspore_no_memory(err);
	s->missing = true;
	return ck_builder_problem(s->b, &p, err,
				  "the strategy is for %" PRIu64
				  " ranks; those without a file of %s: %s%s",
				  world, f->save->name, list.v,
				  nr > MAX_SHOWN ? " and more" : "");
}

static bool has_layouts(const struct ck_strategy *st, uint32_t stage)
{
	for (size_t i = 0; i < st->item.nr; i++)
		if (st->item.v[i].l.stage == stage)
			return true;
	return false;
}

/*
 * Without its stage's layouts a rank's slices would be taken for copies of
 * whole tensors, and those of one value would pass for such.
 */
static int check_stages(const struct ck_ms_set *s,
			const struct mindspore_found *f, struct ck_err *err)
{
	uint64_t devices = s->strategy.devices;
	uint32_t seen = CK_STRATEGY_NONE;

	for (size_t i = 0; i < f->ranks.nr; i++) {
		uint32_t stage = (uint32_t)(f->ranks.v[i] / devices);

		if (stage != seen && !has_layouts(&s->strategy, stage))
			return ck_fail(
				err, EINVAL,
				"%s: no strategy file describes stage %u (ranks %" PRIu64
				" to %" PRIu64
				"), whose rank %u is there: give the files of all stages with -o strategy=FILE:FILE",
				s->dir->path, stage, stage * devices,
				(stage + 1) * devices - 1, f->ranks.v[i]);
		seen = stage;
	}
	return 0;
}

/* A merged file has all stages; others may be of the first ones alone. */
static bool is_merged(const struct ck_strategy *st)
{
	for (size_t i = 1; i < st->item.nr; i++)
		if (st->item.v[i].file == st->item.v[i - 1].file &&
		    st->item.v[i].l.stage != st->item.v[i - 1].l.stage)
			return true;
	return false;
}

static int note_stages(const struct ck_ms_set *s, uint64_t world,
		       struct ck_err *err)
{
	const struct ck_problem_in note = { .severity = CK_NOTE };

	if (is_merged(&s->strategy))
		return 0;
	return ck_builder_problem(
		s->b, &note, err,
		"no file says how many stages there were: ranks from %" PRIu64
		" on, without their strategy, would not be missed",
		world);
}

/* Numbers that no word calls ranks must be just those that there are. */
static int check_numbers(const struct ck_ms_set *s,
			 const struct mindspore_found *f, uint64_t world,
			 struct ck_err *err)
{
	size_t nr = f->ranks.nr;
	const char *first = f->file.v[0].name;
	const char *last = f->file.v[f->file.nr - 1].name;

	if (!f->weak || (nr == world && f->ranks.v[nr - 1] == world - 1))
		return 0;
	return ck_fail(
		err, EINVAL,
		"%s: the strategy is for %" PRIu64 " ranks (0 to %" PRIu64
		"), and the numbers of %s to %s (%zu) are not these: where they are ranks, call folders rank_N",
		s->dir->path, world, world - 1, first, last, nr);
}

static int check_world(struct ck_ms_set *s, const struct mindspore_found *f,
		       struct ck_err *err)
{
	uint64_t devices = s->strategy.devices, world, have;
	uint32_t last = f->ranks.v[f->ranks.nr - 1];
	int ret;

	if (!devices)
		return ck_fail(
			err, EINVAL,
			"%s: no layout of the strategy can be used, so nothing tells how many ranks a stage has",
			s->dir->path);
	world = devices * s->strategy.nr_stages;
	have = (uint64_t)last + 1;
	if (check_numbers(s, f, world, err))
		return -EINVAL;
	if (have > world)
		return ck_fail(
			err, EINVAL,
			"%s: rank %u is there, and the strategy files describe %" PRIu64
			" ranks (%u stages of %" PRIu64
			"): give the files of all stages with -o strategy=FILE:FILE",
			s->dir->path, last, world, s->strategy.nr_stages,
			devices);
	if (check_stages(s, f, err))
		return -EINVAL;
	s->smaller = is_smaller_world(f, world);
	if (s->smaller && !has_shapes(&s->strategy))
		return ck_ms_other_world(s, world, f->ranks.nr, NULL, err);
	if (world > UINT32_MAX)
		return ck_fail(err, EINVAL, "%s: %" PRIu64 " ranks",
			       s->dir->path, world);
	ret = report_missing(s, f, world, err);
	return ret ? ret : note_stages(s, world, err);
}

/* ---- one file, or several that are of no ranks ---- */

static uint64_t world_of(const struct ck_ms_set *s)
{
	return s->strategy.devices * s->strategy.nr_stages;
}

static int check_single(const struct ck_ms_set *s,
			const struct mindspore_found *f, struct ck_err *err)
{
	uint64_t world = world_of(s);

	if (world == 1 || are_whole(s->dir))
		return 0;
	return ck_fail(
		err, EINVAL,
		"%s: -o strategy= is for %" PRIu64
		" ranks, and no name says which of them %s%s of: expected a folder for each (rank_0/, node0/, device0/, 0/), or files whose names differ in the rank only (net_rank_0.ckpt, net-0.ckpt)",
		s->dir->path, world, f->file.v[0].base,
		f->file.nr > 1 ? " and others are" : " is");
}

/* Who mounts one rank's folder by itself may not know that it is one. */
static int warn_single(struct ck_ms_set *s, const struct mindspore_found *f,
		       struct ck_err *err)
{
	const struct ck_problem_in p = { .severity = CK_WARNING,
					 .file = f->strategy.v[0] };
	struct ck_err why;
	int ret = add_strategies(s, f, &why);
	uint64_t world = ret ? 0 : world_of(s);

	ck_strategy_free(&s->strategy);
	if (ret == -ENOMEM)
		return ck_fail(err, ENOMEM, "%s", why.msg);
	if (ret || world < 2 || are_whole(s->dir))
		return 0;
	return ck_builder_problem(
		s->b, &p, err,
		"it is for %" PRIu64
		" ranks, of which no others are here: tensors may be one rank's pieces (-o integrated=yes: they are whole)",
		world);
}

int ck_ms_world(struct ck_ms_set *s, const struct mindspore_found *f,
		struct ck_err *err)
{
	int ret;

	if (f->mode == MINDSPORE_RANKS || f->strategy.nr || is_given(s->dir))
		ck_opts_use(s->dir->opts, "integrated");
	ck_opts_use(s->dir->opts, "strategy");
	if (f->mode != MINDSPORE_RANKS && !is_given(s->dir))
		return f->strategy.nr ? warn_single(s, f, err) : 0;
	ret = add_strategies(s, f, err);
	if (ret || !s->strategy.files.nr)
		return ret;
	return f->mode == MINDSPORE_RANKS ? check_world(s, f, err) :
					    check_single(s, f, err);
}
