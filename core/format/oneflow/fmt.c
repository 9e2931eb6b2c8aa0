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
#include "core/base/number.h"
#include "core/base/suffix.h"
#include "core/base/vec.h"
#include "core/format/format.h"
#include "core/format/oneflow/oneflow.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

#define MAX_NUMBER 8 /* digits of a rank in a name */

struct save {
	const char *name;
	size_t from, to; /* the last number of the name; the same: none */
	uint32_t rank;
};

/* Saves directly in the folder, whose names differ in one number. */
struct saves {
	struct ck_dir_list l;
	CK_VEC(struct save) v; /* by rank */
	bool alike; /* they do, and no number is twice */
	bool pickles; /* all are files named .pkl */
	CK_VEC(const char *) odd; /* called as one of them, and no save */
};

static void saves_free(struct saves *f)
{
	ck_dir_list_free(&f->l);
	free(f->v.v);
	free(f->odd.v);
}
#define auto_saves __attribute__((cleanup(saves_free)))

static struct save save_called(const char *name)
{
	struct save s = { .name = name };
	uint64_t rank;

	if (!ck_last_number(name, strlen(name), &s.from, &s.to) ||
	    s.to - s.from > MAX_NUMBER)
		s.from = s.to = 0;
	if (s.to && ck_decimal(name + s.from, s.to - s.from, UINT32_MAX, &rank))
		s.rank = (uint32_t)rank;
	return s;
}

static bool alike(const struct save *a, const struct save *b)
{
	return a->to && b->to && a->from == b->from &&
	       !memcmp(a->name, b->name, a->from) &&
	       !strcmp(a->name + a->to, b->name + b->to);
}

static int by_rank(const void *a, const void *b)
{
	const struct save *x = a, *y = b;

	return x->rank != y->rank ? (x->rank > y->rank) - (x->rank < y->rank) :
				    strcmp(x->name, y->name);
}

/* A rank whose file is empty, or its folder, is no save any more. */
static int add_odd(struct saves *f, const char *name, struct ck_err *err)
{
	const struct save s = save_called(name);
	bool is = false;
	const char **to;

	for (size_t i = 0; i < f->v.nr && !is; i++)
		is = alike(&f->v.v[i], &s);
	for (size_t i = 0; i < f->v.nr && is; i++)
		is = f->v.v[i].name != name;
	to = is ? ck_vec_push(&f->odd) : NULL;
	if (to)
		*to = name;
	return to || !is ? 0 : ck_no_memory(err);
}

static void sort(struct saves *f)
{
	struct save *v = f->v.v;

	if (f->v.nr)
		qsort(v, f->v.nr, sizeof(*v), by_rank);
	f->alike = f->pickles = f->v.nr > 1;
	for (size_t i = 0; i < f->v.nr; i++) {
		f->alike &= alike(&v[0], &v[i]) &&
			    (!i || v[i].rank != v[i - 1].rank);
		f->pickles &= ck_has_suffix(v[i].name, ".pkl");
	}
}

static int find(struct saves *f, const struct ck_dir *dir, struct ck_err *err)
{
	int ret = dir->only ? 0 : ck_dir_list(dir, "", &f->l, err);

	for (size_t i = 0; !ret && i < f->l.nr; i++) {
		struct save *to;

		ret = ck_oneflow_kind_of(dir, f->l.v[i].name, err);
		if (ret <= 0)
			continue;
		to = ck_vec_push(&f->v);
		if (!to)
			return ck_no_memory(err);
		*to = save_called(f->l.v[i].name);
		ret = 0;
	}
	for (size_t i = 0; !ret && i < f->l.nr; i++)
		ret = add_odd(f, f->l.v[i].name, err);
	if (!ret)
		sort(f);
	return ret;
}

/* Numbers as ranks have them: few are left out; steps count further. */
static bool are_ranks(const struct saves *f)
{
	return f->alike && f->v.v[f->v.nr - 1].rank < 2 * f->v.nr + 16;
}

/* What @rank's save is, enum oneflow_kind, or -errno; *@path to free(). */
static int kind_at(const struct ck_dir *dir, const struct oneflow_sbp *sbp,
		   uint32_t rank, char **path, struct ck_err *err)
{
	*path = ck_oneflow_sbp_path(sbp, rank);
	return *path ? ck_oneflow_kind_of(dir, *path, err) : ck_no_memory(err);
}

/* -o sbp= is given: whether there is what it speaks of. */
static int probe_asked(const struct ck_dir *dir, struct ck_err *err)
{
	auto_saves struct saves f = { 0 };
	struct oneflow_sbp sbp = { 0 };
	struct ck_err why = { 0 };
	bool given;
	int ret = ck_oneflow_sbp_get(&sbp, dir, &given, &why);

	if (ret == -ENOMEM)
		ret = ck_fail(err, ENOMEM, "%s", why.msg);
	else if (ret || !sbp.path)
		ret = 0; /* what is wrong with it is said by load() */
	for (uint32_t i = 0; !ret && sbp.path && i < sbp.by.world; i++) {
		ck_auto_free char *path = NULL;

		ret = kind_at(dir, &sbp, i, &path, err);
	}
	ck_oneflow_sbp_free(&sbp);
	if (!ret)
		ret = find(&f, dir, err);
	if (!ret)
		ret = f.v.nr > 0;
	return ret < 0 ? ret : ret ? CK_MATCH_INDEX : CK_MATCH_ASKED;
}

static int probe(const struct ck_dir *dir, struct ck_err *err)
{
	auto_saves struct saves f = { 0 };
	bool rules;
	int ret, kind = ck_oneflow_kind_of(dir, "", err);

	if (kind < 0)
		return kind;
	if (kind == ONEFLOW_DIRECTORY)
		return CK_MATCH_INDEX;
	if (kind != ONEFLOW_NONE)
		return CK_MATCH_FILE;
	if (dir->only)
		return CK_MATCH_NONE;
	if (ck_opts_get(dir->opts, "sbp"))
		return probe_asked(dir, err);
	ret = ck_oneflow_sbp_in_layout(dir, &rules, err);
	if (ret || rules)
		return ret ? ret : CK_MATCH_USER;
	ret = find(&f, dir, err);
	if (!ret)
		ret = f.pickles || are_ranks(&f) ? CK_MATCH_FILE :
						   CK_MATCH_NONE;
	return ret;
}

static int read_one(struct oneflow_load *ld, const char *path,
		    struct ck_err *err)
{
	int ret;

	ld->nr_saves = 1;
	ret = ck_oneflow_read(ld, 0, path, err);
	return ret ? ret : ck_oneflow_join(ld, err);
}

/* ---- -o sbp=FILE: where each rank's is ---- */

static bool is_placed(const struct oneflow_sbp *sbp, uint32_t rank)
{
	uint32_t at;

	for (size_t i = 0; i < sbp->by.nr; i++) {
		const struct ck_mesh m = { .place = sbp->by.rules[i].place,
					   .ranks = sbp->by.rules[i].nr };

		if (ck_mesh_find(&m, rank, &at))
			return true;
	}
	return false;
}

/* Ranks outside of every placement need not have saved. */
static int read_rank(struct oneflow_load *ld, uint32_t rank, uint32_t *found,
		     struct ck_err *err)
{
	ck_auto_free char *path = NULL;
	int kind = kind_at(ld->a.dir, ld->sbp, rank, &path, err);

	if (kind > ONEFLOW_NONE) {
		++*found;
		return ck_oneflow_read(ld, rank, path, err);
	}
	if (kind < 0 || !is_placed(ld->sbp, rank))
		return kind;
	return ck_builder_report_file(ld->a.b, CK_ERROR, path, err,
				      "rank %" PRIu32 " is missing: no save by "
				      "OneFlow at %s",
				      rank, path);
}

/* Whether @name begins as a save that @sbp has no rank for. */
static bool is_beyond(const struct oneflow_sbp *sbp, const char *name,
		      uint32_t *rank)
{
	size_t len = (size_t)(strstr(sbp->path, "{rank}") - sbp->path), digits;
	uint64_t nr;

	if (strncmp(name, sbp->path, len))
		return false;
	name += len;
	digits = ck_digits(name, SIZE_MAX, &nr);
	if (!digits || digits > MAX_NUMBER || (*name == '0' && digits > 1))
		return false;
	*rank = (uint32_t)nr;
	return *rank >= sbp->by.world;
}

static int refuse_beyond(const struct oneflow_load *ld, uint32_t rank,
			 struct ck_err *err)
{
	ck_auto_free char *path = NULL;
	int kind = kind_at(ld->a.dir, ld->sbp, rank, &path, err);

	return kind <= ONEFLOW_NONE ?
		       kind :
		       ck_fail(err, EINVAL,
			       "%s: %s is a save too, and -o sbp= is for ranks "
			       "0 to %" PRIu32 " (\"world_size\"): it has to "
			       "say how all of them join",
			       ld->a.dir->path, path, ld->sbp->by.world - 1);
}

/* Parts of ranks past "world_size" would be missing without a word. */
static int check_beyond(const struct oneflow_load *ld, struct ck_err *err)
{
	ck_auto_dir_list struct ck_dir_list l = { 0 };
	const char *path = ld->sbp->path, *mark = strstr(path, "{rank}");
	ck_auto_free char *in =
		mark ? strndup(path, (size_t)(mark - path)) : NULL;
	char *slash;
	uint32_t rank;
	int ret;

	if (!in)
		return mark ? ck_no_memory(err) : 0;
	slash = strrchr(in, '/');
	*(slash ? slash : in) = '\0';
	ret = ck_dir_list(ld->a.dir, in, &l, err);
	for (size_t i = 0; !ret && i < l.nr; i++)
		if (is_beyond(ld->sbp, l.v[i].name, &rank))
			ret = refuse_beyond(ld, rank, err);
	return ret;
}

static int read_by_file(struct oneflow_load *ld, const struct oneflow_sbp *sbp,
			struct ck_err *err)
{
	uint32_t found = 0;
	int ret = 0;

	if (sbp->by.world == 1 && !strstr(sbp->path, "{rank}"))
		return read_one(ld, sbp->path, err);
	ld->sbp = sbp;
	for (uint32_t i = 0; !ret && i < sbp->by.world; i++)
		ret = read_rank(ld, i, &found, err);
	if (!ret && !found)
		ret = ck_fail(err, EINVAL,
			      "%s: no save by OneFlow at %s for any of %" PRIu32
			      " ranks, as -o sbp= says",
			      ld->a.dir->path, sbp->path, sbp->by.world);
	if (!ret)
		ret = check_beyond(ld, err);
	return ret ? ret : ck_oneflow_join(ld, err);
}

/* ---- saves that were found ---- */

static int read_all(struct oneflow_load *ld, const struct saves *f, bool ranks,
		    struct ck_err *err)
{
	int ret = 0;

	for (uint32_t i = 0; !ret && i < f->v.nr; i++)
		ret = ck_oneflow_read(ld, ranks ? f->v.v[i].rank : i,
				      f->v.v[i].name, err);
	return ret ? ret : ck_oneflow_join(ld, err);
}

static int check_found(const struct saves *f, const char *path,
		       struct ck_err *err)
{
	static const char file[] =
		"-o sbp=FILE says which ranks are the placement";
	const struct save *first = f->v.v, *last = f->v.v + f->v.nr - 1;

	if (!f->alike)
		return ck_fail(
			err, EINVAL,
			"%s: -o sbp=: expected saves a rank, whose names "
			"differ in their number; FILE names them",
			path);
	if (f->odd.nr)
		return ck_fail(err, EINVAL,
			       "%s: %s is called as the ranks' saves are, and "
			       "is none: empty or damaged; %s",
			       path, f->odd.v[0], file);
	if (last->rank - first->rank + 1 != f->v.nr)
		return ck_fail(err, EINVAL,
			       "%s: the ranks from %s to %s are not all there; "
			       "%s",
			       path, first->name, last->name, file);
	/* nothing says that a first one is not lost */
	if (first->rank)
		return ck_fail(err, EINVAL,
			       "%s: the ranks begin with %s, and those before "
			       "it are not there; %s",
			       path, first->name, file);
	return 0;
}

static int read_found(struct oneflow_load *ld, struct oneflow_sbp *sbp,
		      const struct saves *f, struct ck_err *err)
{
	int ret = check_found(f, ld->a.dir->path, err);

	if (!ret)
		ret = ck_oneflow_sbp_spread(sbp, (uint32_t)f->v.nr, err);
	ld->sbp = sbp;
	return ret ? ret : read_all(ld, f, true, err);
}

/* Every process pickled the same: global tensors are then stored whole. */
static int read_copies(struct oneflow_load *ld, const struct saves *f,
		       struct ck_err *err)
{
	int ret = 0;

	ld->nr_saves = (uint32_t)f->v.nr;
	for (size_t i = 0; !ret && i < f->odd.nr; i++) {

		ret = ck_builder_report_file(
			ld->a.b, CK_ERROR, f->odd.v[i], err,
			"it is called as the others are, and "
			"is no pickle of OneFlow's tensors");
	}
	return ret ? ret : read_all(ld, f, false, err);
}

static int ask(const struct ck_dir *dir, const struct saves *f,
	       struct ck_err *err)
{
	if (!f->v.nr)
		return ck_fail(err, EINVAL, "%s: no save by OneFlow in it",
			       dir->path);
	return ck_fail(err, EINVAL,
		       "%s: %zu saves by OneFlow (%s, ...), and no file says "
		       "how their tensors are split; -o sbp=FILE or -o "
		       "sbp='split(0)' does, or give one of them",
		       dir->path, f->v.nr, f->v.v[0].name);
}

static int read_set(struct oneflow_load *ld, struct oneflow_sbp *sbp,
		    bool given, struct ck_err *err)
{
	auto_saves struct saves f = { 0 };
	int ret = 0;

	if (given && sbp->path)
		return read_by_file(ld, sbp, err);
	if (!given)
		ret = ck_oneflow_kind_of(ld->a.dir, "", err);
	if (ret)
		return ret < 0 ? ret : read_one(ld, "", err);
	ret = find(&f, ld->a.dir, err);
	if (ret)
		return ret;
	return given	 ? read_found(ld, sbp, &f, err) :
	       f.pickles ? read_copies(ld, &f, err) :
			   ask(ld->a.dir, &f, err);
}

static int load(const struct ck_dir *dir, struct ck_builder *b,
		struct ck_err *err)
{
	struct oneflow_load ld;
	struct oneflow_sbp sbp;
	bool given;
	int ret = ck_oneflow_sbp_get(&sbp, dir, &given, err);

	ck_oneflow_begin(&ld, dir, b);
	if (!ret && given)
		ck_opts_use(dir->opts, "sbp");
	if (!ret)
		ret = read_set(&ld, &sbp, given, err);
	ck_oneflow_end(&ld);
	ck_oneflow_sbp_free(&sbp);
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
	.is_layout = ck_oneflow_sbp_in_layout,
	.ranks = CK_TELLS_NOTHING,
	.ranks_are_files = true,
	.ends = ends,
	.begun = "meta",
	.signs = signs,
	.probe = probe,
	.load = load,
};
