/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fmt.c - OneFlow: saves of one process, and of several
 *
 *   CKPT                        a folder or a file; all of every tensor
 *   CKPT/model_0, CKPT/model_1  a save a rank: -o sbp= says how they join
 *   CKPT/a.pkl, CKPT/b.pkl      pickles of the same, one a rank
 */
#include "core/base/auto.h"
#include "core/base/check.h"
#include "core/base/suffix.h"
#include "core/base/vec.h"
#include "core/format/format.h"
#include "core/format/oneflow/file.h"
#include "core/format/oneflow/set.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

#define MAX_NUMBER 8 /* digits of a rank in a name */

/* Saves directly in the folder, whose names differ in one number. */
struct saves {
	CK_VEC(char *) name;
	uint32_t *rank; /* sorted, as @name */
	bool alike; /* they do, and no number is twice */
	bool pickles; /* all are files named .pkl */
	CK_VEC(char *) odd; /* called as one of them, and no save */
};

static void saves_free(struct saves *f)
{
	for (size_t i = 0; i < f->name.nr; i++)
		free(f->name.v[i]);
	for (size_t i = 0; i < f->odd.nr; i++)
		free(f->odd.v[i]);
	free(f->name.v);
	free(f->odd.v);
	free(f->rank);
}

static bool number_in(const char *name, size_t *from, size_t *to)
{
	return ck_last_number(name, strlen(name), from, to) &&
	       *to - *from <= MAX_NUMBER;
}

static bool alike(const char *a, const char *b)
{
	size_t fa, ta, fb, tb;

	return number_in(a, &fa, &ta) && number_in(b, &fb, &tb) && fa == fb &&
	       !memcmp(a, b, fa) && !strcmp(a + ta, b + tb);
}

static uint32_t number_of(const char *name)
{
	size_t from, to;

	return number_in(name, &from, &to) ?
		       (uint32_t)strtoul(name + from, NULL, 10) :
		       0;
}

static int by_number(const void *a, const void *b)
{
	const char *na = *(char *const *)a, *nb = *(char *const *)b;
	uint32_t ra = number_of(na), rb = number_of(nb);

	return ra != rb ? (ra > rb) - (ra < rb) : strcmp(na, nb);
}

static int add(struct saves *f, const char *name, struct ck_err *err)
{
	char *copy = strdup(name);

	if (!copy || !ck_vec_reserve(&f->name, 1)) {
		free(copy);
		return ck_fail(err, ENOMEM, "no memory for names");
	}
	f->name.v[f->name.nr++] = copy;
	return 0;
}

/* A rank whose file is empty, or its folder, is no save any more. */
static int add_odd(struct saves *f, const char *name, struct ck_err *err)
{
	bool is = false;

	for (size_t i = 0; i < f->name.nr && !is; i++)
		is = alike(f->name.v[i], name);
	for (size_t i = 0; i < f->name.nr && is; i++)
		is = strcmp(f->name.v[i], name) != 0;
	if (!is)
		return 0;
	if (!ck_vec_reserve(&f->odd, 1) ||
	    !(f->odd.v[f->odd.nr] = strdup(name)))
		return ck_fail(err, ENOMEM, "no memory for names");
	f->odd.nr++;
	return 0;
}

static int sort(struct saves *f, struct ck_err *err)
{
	char **v = f->name.v;

	f->rank = calloc(f->name.nr + 1, sizeof(*f->rank));
	if (!f->rank)
		return ck_fail(err, ENOMEM, "no memory for ranks");
	if (f->name.nr)
		qsort(v, f->name.nr, sizeof(*v), by_number);
	f->alike = f->name.nr > 1;
	f->pickles = f->name.nr > 1;
	for (size_t i = 0; i < f->name.nr; i++) {
		f->rank[i] = number_of(v[i]);
		f->alike &= alike(v[0], v[i]) &&
			    (!i || f->rank[i] != f->rank[i - 1]);
		f->pickles &= ck_has_suffix(v[i], ".pkl");
	}
	return 0;
}

static int find(struct saves *f, const struct ck_dir *dir, struct ck_err *err)
{
	ck_auto_dir_list struct ck_dir_list l = { 0 };
	int ret = dir->only ? 0 : ck_dir_list(dir, "", &l, err);

	*f = (struct saves){ 0 };
	for (size_t i = 0; !ret && i < l.nr; i++) {
		ret = ck_of_kind_of(dir, l.v[i].name, err);
		if (ret > 0)
			ret = add(f, l.v[i].name, err);
	}
	for (size_t i = 0; !ret && i < l.nr; i++)
		ret = add_odd(f, l.v[i].name, err);
	return ret ? ret : sort(f, err);
}

/* Numbers as ranks have them: few are left out; steps count further. */
static bool are_ranks(const struct saves *f)
{
	return f->alike && f->rank[f->name.nr - 1] < 2 * f->name.nr + 16;
}

static int has_saves(const struct ck_dir *dir, struct ck_err *err)
{
	struct saves f;
	int ret = find(&f, dir, err);

	if (!ret)
		ret = f.name.nr > 0;
	saves_free(&f);
	return ret;
}

/* What @rank's save is, enum ck_of_kind, or -errno; *@path to free(). */
static int kind_at(const struct ck_dir *dir, const struct ck_of_sbp *sbp,
		   uint32_t rank, char **path, struct ck_err *err)
{
	*path = ck_of_sbp_path(sbp, rank);
	return *path ? ck_of_kind_of(dir, *path, err) :
		       ck_fail(err, ENOMEM, "no memory for a path");
}

/* -o sbp= is given: whether there is what it speaks of. */
static int probe_asked(const struct ck_dir *dir, struct ck_err *err)
{
	struct ck_of_sbp sbp = { 0 };
	struct ck_err why = { 0 };
	bool given;
	int ret = ck_of_sbp_get(&sbp, dir, &given, &why);

	if (ret == -ENOMEM)
		ret = ck_fail(err, ENOMEM, "%s", why.msg);
	else if (ret || !sbp.path)
		ret = 0; /* what is wrong with it is said by load() */
	for (uint32_t i = 0; !ret && sbp.path && i < sbp.by.world; i++) {
		ck_auto_free char *path = NULL;

		ret = kind_at(dir, &sbp, i, &path, err);
	}
	ck_of_sbp_free(&sbp);
	if (!ret)
		ret = has_saves(dir, err);
	return ret < 0 ? ret : ret ? CK_MATCH_INDEX : CK_MATCH_ASKED;
}

static int probe(const struct ck_dir *dir, struct ck_err *err)
{
	struct saves f;
	bool rules;
	int ret, kind = ck_of_kind_of(dir, "", err);

	if (kind < 0)
		return kind;
	if (kind == CK_OF_DIRECTORY)
		return CK_MATCH_INDEX;
	if (kind != CK_OF_NONE)
		return CK_MATCH_FILE;
	if (dir->only)
		return CK_MATCH_NONE;
	if (ck_opts_get(dir->opts, "sbp"))
		return probe_asked(dir, err);
	ret = ck_of_sbp_in_layout(dir, &rules, err);
	if (ret || rules)
		return ret ? ret : CK_MATCH_USER;
	ret = find(&f, dir, err);
	if (!ret)
		ret = f.pickles || are_ranks(&f) ? CK_MATCH_FILE :
						   CK_MATCH_NONE;
	saves_free(&f);
	return ret;
}

static int read_one(struct ck_of_set *s, const char *path, struct ck_err *err)
{
	int ret;

	s->nr_saves = 1;
	s->sbp = NULL;
	ret = ck_of_set_read(s, 0, path, err);
	return ret ? ret : ck_of_set_join(s, err);
}

static int say_missing(struct ck_of_set *s, uint32_t rank, const char *path,
		       struct ck_err *err)
{
	const struct ck_problem_in p = { .severity = CK_ERROR, .file = path };

	return ck_builder_problem(s->b, &p, err,
				  "rank %" PRIu32 " is missing: no save by "
				  "OneFlow at %s",
				  rank, path);
}

static bool is_placed(const struct ck_of_sbp *sbp, uint32_t rank)
{
	for (size_t i = 0; i < sbp->by.nr; i++)
		for (uint32_t k = 0; k < sbp->by.rules[i].nr; k++)
			if (sbp->by.rules[i].place[k].rank == rank)
				return true;
	return false;
}

/* Ranks outside of every placement need not have saved. */
static int read_rank(struct ck_of_set *s, uint32_t rank, uint32_t *found,
		     struct ck_err *err)
{
	ck_auto_free char *path = NULL;
	int kind = kind_at(s->dir, s->sbp, rank, &path, err);

	if (kind < 0)
		return kind;
	if (kind != CK_OF_NONE) {
		++*found;
		return ck_of_set_read(s, rank, path, err);
	}
	return is_placed(s->sbp, rank) ? say_missing(s, rank, path, err) : 0;
}

/* Whether @name begins as a save that @sbp has no rank for. */
static bool is_beyond(const struct ck_of_sbp *sbp, const char *name,
		      uint32_t *rank)
{
	size_t len = (size_t)(strstr(sbp->path, "{rank}") - sbp->path), digits;

	if (strncmp(name, sbp->path, len))
		return false;
	name += len;
	digits = strspn(name, "0123456789");
	if (!digits || digits > MAX_NUMBER || (*name == '0' && digits > 1))
		return false;
	*rank = (uint32_t)strtoul(name, NULL, 10);
	return *rank >= sbp->by.world;
}

static int refuse_beyond(const struct ck_of_set *s, uint32_t rank,
			 struct ck_err *err)
{
	ck_auto_free char *path = NULL;
	int kind = kind_at(s->dir, s->sbp, rank, &path, err);

	return kind <= CK_OF_NONE ?
		       kind :
		       ck_fail(err, EINVAL,
			       "%s: %s is a save too, and -o sbp= is for ranks "
			       "0 to %" PRIu32 " (\"world_size\"): it has to "
			       "say how all of them join",
			       s->dir->path, path, s->sbp->by.world - 1);
}

/* Parts of ranks past "world_size" would be missing without a word. */
static int check_beyond(const struct ck_of_set *s, struct ck_err *err)
{
	ck_auto_dir_list struct ck_dir_list l = { 0 };
	const char *mark = strstr(s->sbp->path, "{rank}");
	ck_auto_free char *in = mark ? strdup(s->sbp->path) : NULL;
	char *slash;
	uint32_t rank;
	int ret;

	if (!in)
		return mark ? ck_fail(err, ENOMEM, "no memory for a path") : 0;
	in[mark - s->sbp->path] = '\0';
	slash = strrchr(in, '/');
	*(slash ? slash : in) = '\0';
	ret = ck_dir_list(s->dir, in, &l, err);
	for (size_t i = 0; !ret && i < l.nr; i++)
		if (is_beyond(s->sbp, l.v[i].name, &rank))
			ret = refuse_beyond(s, rank, err);
	return ret;
}

static int read_by_file(struct ck_of_set *s, const struct ck_of_sbp *sbp,
			struct ck_err *err)
{
	uint32_t found = 0;
	int ret = 0;

	if (sbp->by.world == 1 && !strstr(sbp->path, "{rank}"))
		return read_one(s, sbp->path, err);
	s->sbp = sbp;
	for (uint32_t i = 0; !ret && i < sbp->by.world; i++)
		ret = read_rank(s, i, &found, err);
	if (!ret && !found)
		ret = ck_fail(err, EINVAL,
			      "%s: no save by OneFlow at %s for any of %" PRIu32
			      " ranks, as -o sbp= says",
			      s->dir->path, sbp->path, sbp->by.world);
	if (!ret)
		ret = check_beyond(s, err);
	return ret ? ret : ck_of_set_join(s, err);
}

static int read_found(struct ck_of_set *s, struct ck_of_sbp *sbp,
		      const struct saves *f, struct ck_err *err)
{
	uint32_t nr = (uint32_t)f->name.nr;
	int ret;

	if (!f->alike)
		return ck_fail(
			err, EINVAL,
			"%s: -o sbp=: expected saves a rank, whose names "
			"differ in their number; FILE names them",
			s->dir->path);
	if (f->odd.nr)
		return ck_fail(err, EINVAL,
			       "%s: %s is called as the ranks' saves are, and "
			       "is none: empty or damaged; -o sbp=FILE says "
			       "which ranks are the placement",
			       s->dir->path, f->odd.v[0]);
	if (f->rank[nr - 1] - f->rank[0] + 1 != nr)
		return ck_fail(err, EINVAL,
			       "%s: the ranks from %s to %s are not all there; "
			       "-o sbp=FILE says which ranks are the placement",
			       s->dir->path, f->name.v[0], f->name.v[nr - 1]);
	/* nothing says that a first one is not lost */
	if (f->rank[0])
		return ck_fail(err, EINVAL,
			       "%s: the ranks begin with %s, and those before "
			       "it are not there; -o sbp=FILE says which ranks "
			       "are the placement",
			       s->dir->path, f->name.v[0]);
	ret = ck_of_sbp_spread(sbp, f->rank, nr, err);
	s->sbp = sbp;
	for (uint32_t i = 0; !ret && i < nr; i++)
		ret = ck_of_set_read(s, f->rank[i], f->name.v[i], err);
	return ret ? ret : ck_of_set_join(s, err);
}

/* Every process pickled the same: global tensors are then stored whole. */
static int read_copies(struct ck_of_set *s, const struct saves *f,
		       struct ck_err *err)
{
	int ret = 0;

	s->nr_saves = (uint32_t)f->name.nr;
	for (size_t i = 0; !ret && i < f->odd.nr; i++) {
		const struct ck_problem_in bad = { .severity = CK_ERROR,
						   .file = f->odd.v[i] };

		ret = ck_builder_problem(s->b, &bad, err,
					 "it is called as the others are, and "
					 "is no pickle of OneFlow's tensors");
	}
	for (uint32_t i = 0; !ret && i < s->nr_saves; i++)
		ret = ck_of_set_read(s, i, f->name.v[i], err);
	return ret ? ret : ck_of_set_join(s, err);
}

static int ask(const struct ck_dir *dir, const struct saves *f,
	       struct ck_err *err)
{
	if (!f->name.nr)
		return ck_fail(err, EINVAL, "%s: no save by OneFlow in it",
			       dir->path);
	return ck_fail(err, EINVAL,
		       "%s: %zu saves by OneFlow (%s, ...), and no file says "
		       "how their tensors are split; -o sbp=FILE or -o "
		       "sbp='split(0)' does, or give one of them",
		       dir->path, f->name.nr, f->name.v[0]);
}

static int read_set(struct ck_of_set *s, struct ck_of_sbp *sbp, bool given,
		    struct ck_err *err)
{
	struct saves f = { 0 };
	int ret = 0;

	if (given && sbp->path)
		return read_by_file(s, sbp, err);
	if (!given)
		ret = ck_of_kind_of(s->dir, "", err);
	if (ret)
		return ret < 0 ? ret : read_one(s, "", err);
	ret = find(&f, s->dir, err);
	if (!ret)
		ret = given	? read_found(s, sbp, &f, err) :
		      f.pickles ? read_copies(s, &f, err) :
				  ask(s->dir, &f, err);
	saves_free(&f);
	return ret;
}

static int load(const struct ck_dir *dir, struct ck_builder *b,
		struct ck_err *err)
{
	struct ck_of_set s = { .dir = dir, .b = b };
	struct ck_of_sbp sbp;
	bool given;
	int ret = ck_of_sbp_get(&sbp, dir, &given, err);

	if (!ret && given)
		ck_opts_use(dir->opts, "sbp");
	if (!ret)
		ret = read_set(&s, &sbp, given, err);
	ck_of_set_free(&s);
	ck_of_sbp_free(&sbp);
	return ret;
}

static const struct ck_option options[] = {
	{ .name = "sbp",
	  .type = CK_OPTION_FILES,
	  .value = "FILE",
	  .fallback = "none",
	  .open = true,
	  .help = "how OneFlow's saves of several ranks join: rules in FILE, or "
		  "split(0), broadcast, ... for all",
	  .place = 3 },
	{ .name = NULL },
};

static bool is_words(const struct ck_opts *opts)
{
	const char *sbp = ck_opts_get(opts, "sbp");
	int32_t axis;
	size_t len;

	return sbp && !ck_opts_bytes(opts, "sbp", 0, &len) &&
	       ck_sbp_word(sbp, strlen(sbp), &axis);
}

static const struct ck_format_join join = {
	.option = "sbp",
	.whose = "OneFlow's",
	.is_words = is_words,
};

static const struct ck_format_sign signs[] = {
	{ "pickled_data", 0 },
	{ "snapshot_done", 0 },
	{ NULL, 0 },
};

static const char *const ends[] = { "pickled_data", "snapshot_done",
				    "model.mlir", NULL };

const struct ck_format ck_format_oneflow = {
	.name = "oneflow",
	.summary = "OneFlow: folders and files by flow.save, one or one a rank",
	.options = options,
	.join = &join,
	.is_layout = ck_of_sbp_in_layout,
	.ranks = CK_TELLS_NOTHING,
	.ranks_are_files = true,
	.ends = ends,
	.begun = "meta",
	.signs = signs,
	.compares = true,
	.probe = probe,
	.load = load,
};
