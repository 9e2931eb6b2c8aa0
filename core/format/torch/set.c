/* SPDX-License-Identifier: Apache-2.0 */
/*
 * set.c - which torch.save files of a folder belong together
 *
 * By names only, and by the first bytes of a file that stands alone.
 */
#include "core/format/torch/set.h"

#include "core/base/auto.h"
#include "core/base/check.h"
#include "core/base/limits.h"
#include "core/base/number.h"
#include "core/base/suffix.h"
#include "core/format/format.h"
#include "core/assemble/numbered.h"
#include "core/container/torch_save.h"
#include "core/parse/json.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define WORLD "_world_size_"

static const char *const indexes[] = { "pytorch_model.bin.index", NULL };

void ck_torch_set_free(struct ck_torch_set *set)
{
	free(set->name.v);
	ck_arena_free(&set->mem);
	ck_index_free(&set->index);
	*set = (struct ck_torch_set){ 0 };
}

static int add(struct ck_torch_set *set, const char *name, struct ck_err *err)
{
	const char **to = ck_vec_push(&set->name);

	name = ck_arena_copy(&set->mem, name, strlen(name));
	if (!to || !name)
		return ck_no_memory(err);
	*to = name;
	return 0;
}

/* What cannot be opened is none, but for want of memory. */
static int is_torch(const struct ck_dir *dir, const char *name, bool *yes,
		    struct ck_err *err)
{
	ck_auto_source struct ck_source *s = NULL;
	int ret = ck_dir_open(dir, name, &s, err);

	*yes = !ret && ck_torch_save_is(s);
	return ret == -ENOMEM ? ret : 0;
}

static int add_if_torch(struct ck_torch_set *set, const struct ck_dir *dir,
			const char *name, struct ck_err *err)
{
	bool yes;
	int ret = is_torch(dir, name, &yes, err);

	return ret || !yes ? ret : add(set, name, err);
}

static int text_order(const void *a, const void *b)
{
	return strcmp(*(char *const *)a, *(char *const *)b);
}

static int from_index(struct ck_torch_set *set, const struct ck_dir *dir,
		      const char *index, struct ck_err *err)
{
	int ret = ck_index_read(&set->index, dir, index, err);

	for (size_t i = 0; !ret && i < set->index.files.nr; i++)
		ret = add(set, set->index.files.v[i].s, err);
	if (ret)
		return ret;
	if (set->name.nr)
		qsort(set->name.v, set->name.nr, sizeof(*set->name.v),
		      text_order);
	set->indexed = true;
	return 0;
}

/* Where "rank<digits>" stands in a name; false: nowhere. */
static bool rank_in(const char *name, size_t *before, size_t *after,
		    uint64_t *rank)
{
	for (const char *at = name; (at = strstr(at, "rank"));) {
		const char *number = at + 4 + (at[4] == '_');
		size_t digits = ck_digits(number, SIZE_MAX, rank);

		*before = (size_t)(at - name);
		*after = (size_t)(number - name) + digits;
		if (digits)
			return true;
		at += 4;
	}
	return false;
}

static int rank_order(const void *a, const void *b)
{
	size_t x, y;
	uint64_t ra = 0, rb = 0;

	rank_in(*(char *const *)a, &x, &y, &ra);
	rank_in(*(char *const *)b, &x, &y, &rb);
	return ra < rb ? -1 : ra > rb;
}

/* Whether all names are the same but for the number of the rank. */
static bool one_a_rank(const struct ck_torch_set *set)
{
	size_t b0, a0, b, a;
	uint64_t rank;

	if (set->name.nr < 2 || !rank_in(set->name.v[0], &b0, &a0, &rank))
		return false;
	for (size_t i = 1; i < set->name.nr; i++)
		if (!rank_in(set->name.v[i], &b, &a, &rank) || b != b0 ||
		    memcmp(set->name.v[0], set->name.v[i], b) != 0 ||
		    strcmp(set->name.v[0] + a0, set->name.v[i] + a) != 0)
			return false;
	return true;
}

/* A trainer's own state, as transformers, accelerate and others call it. */
static bool is_trainer_file(const char *name)
{
	static const char *const begin[] = {
		"training_args",     "optimizer",
		"scheduler",	     "rng_state",
		"random_states",     "scaler",
		"sampler",	     "custom_checkpoint",
		"optim_world_size_", "extra_state_world_size_",
		"common.pt", /* Megatron's, an object of its DCP */
	};

	for (size_t i = 0; i < CK_ARRAY_LEN(begin); i++)
		if (ck_begins(name, begin[i]))
			return true;
	return false;
}

/* Whether weights in another form are there. */
static bool has_other_files(const struct ck_dir_list *l)
{
	for (size_t i = 0; i < l->nr; i++) {
		const char *dot = strrchr(l->v[i].name, '.');

		if (dot &&
		    (!strcmp(dot, ".safetensors") ||
		     !strcmp(dot, ".metadata") || !strcmp(dot, ".distcp")))
			return true;
	}
	return false;
}

/* Whether something else than a trainer's files is there. */
static bool has_other_form(const struct ck_dir_list *l)
{
	for (size_t i = 0; i < l->nr; i++)
		if (l->v[i].is_dir)
			return true;
	return has_other_files(l);
}

/* A file of several is no checkpoint: whether all are of one set. */
static bool all_numbered(const struct ck_torch_set *set)
{
	struct ck_numbered n;

	if (!set->name.nr || !ck_numbered_is(set->name.v[0], &n) || n.of == 1)
		return false;
	for (size_t i = 1; i < set->name.nr; i++)
		if (!ck_numbered_same(set->name.v[0], set->name.v[i]))
			return false;
	return true;
}

static int add_named(struct ck_torch_set *set, const struct ck_dir *dir,
		     const struct ck_dir_list *l, bool trainer,
		     struct ck_err *err)
{
	int ret = 0;

	for (size_t i = 0; i < l->nr && !ret; i++)
		if (!l->v[i].is_dir && ck_torch_save_is_name(l->v[i].name) &&
		    !ck_format_is_claimed(l->v[i].name) &&
		    (trainer || !is_trainer_file(l->v[i].name)))
			ret = add_if_torch(set, dir, l->v[i].name, err);
	return ret;
}

static int from_names(struct ck_torch_set *set, const struct ck_dir *dir,
		      const struct ck_dir_list *l, struct ck_err *err)
{
	int ret = add_named(set, dir, l, !has_other_form(l), err);

	if (ret)
		return ret;
	/* beside another form, several are for that one's reader to judge */
	if ((set->name.nr < 2 || !has_other_files(l)) &&
	    !ck_format_unfinished(dir))
		set->numbered = all_numbered(set);
	if (set->name.nr < 2 || set->numbered)
		return 0;
	set->ranks = one_a_rank(set);
	if (!set->ranks) { /* the model's of each rank, beside the optimizer's */
		ck_torch_set_free(set);
		ret = add_named(set, dir, l, false, err);
		if (ret)
			return ret;
		set->ranks = one_a_rank(set);
	}
	if (set->ranks)
		qsort(set->name.v, set->name.nr, sizeof(*set->name.v),
		      rank_order);
	else
		ck_torch_set_free(set);
	return 0;
}

/* KIND_world_size_N_rank_R: the length of KIND, and N; 0: it is called otherwise. */
static size_t counted(const char *name, uint64_t *of)
{
	const char *at = strstr(name, WORLD), *number;
	size_t digits;

	if (!at)
		return 0;
	number = at + strlen(WORLD);
	digits = ck_digits(number, SIZE_MAX, of);
	return digits && !strncmp(number + digits, "_rank_", 6) ?
		       (size_t)(at - name) :
		       0;
}

/* Whether @a and @b are files of one kind, for as many ranks. */
static bool same_kind(const char *a, const char *b)
{
	uint64_t x, y;
	size_t kind = counted(a, &x);

	return kind && counted(b, &y) == kind && x == y && !strncmp(a, b, kind);
}

int ck_torch_set_check_ranks(const struct ck_dir_list *l, struct ck_builder *b,
			     struct ck_err *err)
{
	int ret = 0;

	for (size_t i = 0, nr; i < l->nr && !ret; i += nr) {
		uint64_t of;

		for (nr = 1; i + nr < l->nr &&
			     same_kind(l->v[i].name, l->v[i + nr].name);)
			nr++;
		if (counted(l->v[i].name, &of) && nr < of)
			ret = ck_builder_report_file(
				b, CK_ERROR, l->v[i].name, err,
				"of such files %zu are there, and by their "
				"names there are %" PRIu64 " ranks",
				nr, of);
	}
	return ret;
}

int ck_torch_set_check(const struct ck_torch_set *set, struct ck_err *err)
{
	const char *const *name = set->name.v;
	struct ck_numbered n;
	int ret = 0;

	for (size_t i = 0; set->numbered && i < set->name.nr && !ret; i++)
		ret = ck_numbered_check(name, set->name.nr, i,
					".bin.index.json", err);
	if (ret || !set->numbered || !ck_numbered_is(name[0], &n) || n.of)
		return ret;
	return ck_fail(err, EINVAL,
		       "%s: %zu numbered files and no index "
		       "(*.bin.index.json) says whether they are all; a file "
		       "that is given alone is read by itself",
		       name[0], set->name.nr);
}

int ck_torch_set_find(struct ck_torch_set *set, const struct ck_dir *dir,
		      struct ck_err *err)
{
	ck_auto_dir_list struct ck_dir_list l = { 0 };
	const char *index;
	int ret;

	if (dir->only)
		return add_if_torch(set, dir, dir->only, err);
	ret = ck_dir_list(dir, "", &l, err);
	if (!ret)
		ret = ck_index_choose(dir, &l, indexes, &index, err);
	if (ret)
		return ret;
	return index ? from_index(set, dir, index, err) :
		       from_names(set, dir, &l, err);
}

int ck_torch_set_note_others(const struct ck_torch_set *set,
			     const struct ck_dir_list *l, struct ck_builder *b,
			     struct ck_err *err)
{
	return set->indexed ? ck_index_note_others(set->index.name, l, indexes,
						   b, err) :
			      0;
}
