/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ranks.c - finds the ranks' files, reads them, and leaves those aside that do
 * not belong
 *
 *   0.ckpt 1.ckpt ...                 the trainer's, or .safetensors
 *   dist_checkpoint-0.ckpt ...        CubeModule.save_checkpoint's
 *   PREFIX0SUFFIX ...                 a user's own torch.save, or renamed
 *
 * The rank is a number in the name, and said again inside; so is how many
 * ranks there are.  Of two kinds of names in one folder the user says which is
 * meant.  All files of one save say the same numbers of ranks, step and model.
 * Where they do not, those are read that are whole by themselves, or else more
 * than half of all; otherwise nothing says which are meant.
 */
#include "core/format/nnscaler/nnscaler.h"

#include "core/audit/audit.h"
#include "core/base/auto.h"
#include "core/base/check.h"
#include "core/base/number.h"
#include "core/base/suffix.h"

#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <string.h>
#include <xxhash.h>

#define MAX_NAMED 32 /* missing files that are named one by one */

/* ---- what a file says of its save ---- */

void ck_nnscaler_config(const struct ck_pickle *p, ck_pv extra, int64_t *fact)
{
	static const struct {
		const char *path;
		int64_t otherwise;
	} field[NNSCALER_FACTS] = {
		[NNSCALER_WORLD] = { "compute_config/runtime_ngpus", 0 },
		[NNSCALER_PLAN] = { "compute_config/plan_ngpus", 0 },
		[NNSCALER_ZERO] = { "compute_config/use_zero", 0 },
		[NNSCALER_GROUPS] = { "compute_config/zero_ngroups", 1 },
	};

	for (int i = 0; i < NNSCALER_FACTS; i++)
		if (field[i].path)
			fact[i] = ck_pq_int_or(p, extra, field[i].path,
					       field[i].otherwise);
	fact[NNSCALER_ZERO] =
		ck_pq_int_or(p, extra, "zero", fact[NNSCALER_ZERO]);
}

struct hash {
	const struct ck_pickle *p;
	uint64_t sum;
};

/* Numbers and strings: enough to tell one run's arguments from another's. */
static int hash_leaf(void *ctx, const struct ck_torch_leaf *leaf,
		     struct ck_err *err)
{
	struct hash *h = ctx;

	(void)err;
	h->sum = XXH3_64bits_withSeed(leaf->name, leaf->name_len, h->sum);
	if (ck_pv_kind(leaf->value) != CK_P_LIST &&
	    ck_pv_kind(leaf->value) != CK_P_TUPLE)
		ck_pq_hash(h->p, leaf->value, &h->sum);
	return 0;
}

/* -EINVAL: it is no rank's file; or -ENOMEM. */
static int read_facts(const struct nnscaler_file *f, int64_t *fact,
		      int64_t *rank)
{
	struct hash h = { f->p, 1 };
	ck_pv model, optimizer, extra, status, args;
	int ret;

	if (!ck_nnscaler_parts(f, &model, &optimizer) ||
	    !ck_nnscaler_extra(f->p, model, &extra))
		return -EINVAL;
	*rank = ck_pq_int_or(f->p, extra, "rank", -1);
	*rank = ck_pq_int_or(f->p, f->root, "rank", *rank);
	ck_nnscaler_config(f->p, extra, fact);
	fact[NNSCALER_STEPS] = -1;
	fact[NNSCALER_MODEL] = 0;
	if (ck_pv_key(f->p, f->root, "train_status", &status))
		fact[NNSCALER_STEPS] =
			ck_pq_int_or(f->p, status, "finished_train_steps", -1);
	if (!ck_pv_key(f->p, f->root, "train_args", &args) ||
	    !ck_pq(f->p, args, "model", &args))
		return 0;
	/* too deep or too long: the same for all, as far as it went */
	ret = ck_torch_walk(f->p, args, hash_leaf, &h, NULL);
	fact[NNSCALER_MODEL] = h.sum ? (int64_t)h.sum : 1;
	return ret == -ENOMEM ? ret : 0;
}

/* ---- which files are ranks ---- */

/*
 * Where the rank's number is in a name that a rank's file may have: its last
 * digits before the suffix.  Names that other writers use have none.
 */
static bool find_number(const char *name, size_t *at, size_t *end)
{
	static const char *const suffix[] = { ".ckpt", ".pt", ".pth", ".bin",
					      ".safetensors" };
	size_t dot = 0;

	for (size_t i = 0; i < CK_ARRAY_LEN(suffix); i++)
		if (ck_has_suffix(name, suffix[i]))
			dot = strlen(name) - strlen(suffix[i]);
	return dot && ck_last_number(name, dot, at, end) && *end - *at <= 7 &&
	       !strstr(name, "-of-") && !ck_format_is_claimed(name);
}

/* Whether the names differ in their numbers only. */
static bool same_kind(const char *a, const char *b)
{
	size_t at[2], end[2];

	return find_number(a, &at[0], &end[0]) &&
	       find_number(b, &at[1], &end[1]) && at[0] == at[1] &&
	       !memcmp(a, b, at[0]) && !strcmp(a + end[0], b + end[1]);
}

/*
 * 1: it is a rank's file; 0: not, or it cannot be read.  The trainer's "last"
 * has links in it, and is read where they may be followed.
 */
static int is_rank(const struct nnscaler *n, const char *name,
		   struct ck_err *err)
{
	ck_auto_nnscaler_file struct nnscaler_file f = { 0 };
	int64_t fact[NNSCALER_FACTS], rank;
	struct ck_err why;
	bool ok;
	int ret = ck_nnscaler_open(&f, n->a.dir, NULL, name, &ok, &why, err);

	if (ret == -ENOMEM || (ret == -ELOOP && isdigit((unsigned char)*name)))
		return ret;
	if (ret || !ok)
		return 0;
	ret = read_facts(&f, fact, &rank);
	return ret == -ENOMEM ? ck_no_memory(err) : !ret;
}

/* All files of the kind of @like, by their numbers; 0 may be written as 00. */
static int list_kind(struct nnscaler *n, const struct ck_dir_list *l,
		     const char *like, struct ck_err *err)
{
	size_t at, end;

	find_number(like, &at, &end);
	n->prefix = ck_arena_copy(&n->a.mem, like, at);
	n->suffix = ck_arena_fmt(&n->a.mem, "%s", like + end);
	for (size_t i = 0; i < l->nr && !n->a.mem.failed; i++) {
		const char *name = l->v[i].name;
		uint64_t nr;

		if (l->v[i].is_dir || !same_kind(like, name))
			continue;
		ck_digits(name + at, SIZE_MAX, &nr);
		if (nr >= NNSCALER_MAX_RANKS)
			continue;
		if (!ck_vec_reserve(&n->files, nr + 1))
			return ck_no_memory(err);
		while (n->files.nr <= nr)
			n->files.v[n->files.nr++] = NULL;
		if (n->files.v[nr])
			return ck_fail(err, EINVAL,
				       "%s and %s: two files of rank %" PRIu64,
				       n->files.v[nr], name, nr);
		n->files.v[nr] = ck_arena_fmt(&n->a.mem, "%s", name);
	}
	return n->a.mem.failed ? ck_no_memory(err) : 0;
}

/* Files that were opened to see what they are: few of each kind. */
struct tries {
	const char *kind; /* a name of it */
	unsigned of_kind, all;
};

static bool may_try(struct tries *t, const char *name)
{
	if (!t->kind || !same_kind(t->kind, name)) {
		t->kind = name;
		t->of_kind = 0;
	}
	return t->of_kind++ < 4 && t->all++ < 16;
}

/*
 * The first file that is a rank's, of the kind of @like (or any, NULL), and not
 * of the kind of @unlike.  *found NULL: there is none.
 */
static int find_rank(const struct nnscaler *n, const struct ck_dir_list *l,
		     const char *like, const char *unlike, struct tries *tries,
		     const char **found, struct ck_err *err)
{
	size_t at, end;
	int ret = 0;

	*found = NULL;
	for (size_t i = 0; i < l->nr && !ret; i++) {
		const char *name = l->v[i].name;

		if (l->v[i].is_dir || !find_number(name, &at, &end) ||
		    (like && !same_kind(like, name)) ||
		    (unlike && same_kind(unlike, name)) ||
		    !may_try(tries, name))
			continue;
		ret = is_rank(n, name, err);
		if (ret > 0)
			*found = name;
	}
	return CK_MIN(ret, 0);
}

/* What -o file= names, if it may be a rank's: the kind of all that count. */
static const char *find_wanted(const struct ck_dir *dir,
			       const struct ck_dir_list *l)
{
	const char *want = ck_opts_get(dir->opts, "file");
	size_t at, end;

	for (size_t i = 0; want && i < l->nr; i++)
		if (!l->v[i].is_dir && !strcmp(l->v[i].name, want))
			return find_number(want, &at, &end) ?
				       ck_opts_use(dir->opts, "file") :
				       NULL;
	return NULL;
}

/*
 * The first file of a kind that is a rank's gives the pattern of all.  Ranks'
 * files of another kind are another save: left there by a run with another
 * serializer, or by another program.
 */
int ck_nnscaler_find(struct nnscaler *n, struct ck_err *err)
{
	const struct ck_dir_list *l = &n->list;
	const char *want, *first, *second = NULL;
	struct tries tries = { 0 };
	int ret;

	if (n->a.dir->only)
		return 0;
	ret = ck_dir_list(n->a.dir, "", &n->list, err);
	if (ret)
		return ret;
	want = find_wanted(n->a.dir, l);
	ret = find_rank(n, l, want, NULL, &tries, &first, err);
	if (!ret && first)
		ret = list_kind(n, l, first, err);
	if (!ret && first && !want)
		ret = find_rank(n, l, NULL, first, &tries, &second, err);
	if (!ret && second)
		ret = ck_fail(err, EINVAL,
			      "%s: two saves in one folder, one of %s and one "
			      "of %s: -o file=%s or -o file=%s says which is "
			      "read",
			      n->a.dir->path, first, second, first, second);
	return ret;
}

/* ---- which files are of one save ---- */

static const struct ck_audit_words words = {
	.other =
		"it is of another save than {file} ({difference}): it is left aside",
	.fact = { [NNSCALER_WORLD] = "runs of {mine} and {meant} ranks",
		  [NNSCALER_STEPS] = "steps {mine} and {meant}",
		  [NNSCALER_MODEL] = "models with other arguments",
		  [NNSCALER_PLAN] = "runs with other plans" },
	.severity = CK_ERROR,
	.beyond = CK_WARNING,
};

static int report(struct nnscaler *n, uint32_t rank, const char *why,
		  struct ck_err *err)
{
	const struct ck_problem_in p = { .severity = CK_ERROR,
					 .file = n->ranks.v[rank].file };

	if (!n->first_fault.code)
		ck_fail(&n->first_fault, EINVAL, "%s: %s", p.file, why);
	return ck_builder_problem(n->a.b, &p, err, "%s", why);
}

int ck_nnscaler_add_file(struct nnscaler *n, uint32_t rank, const char *name,
			 uint32_t src, bool present, struct ck_err *err)
{
	uint32_t at = ck_asm_file(&n->a, name, rank);

	n->ranks.v[rank].at = at;
	if (at == CK_NONE)
		return ck_no_memory(err);
	n->a.files.v[at].src = src;
	n->a.files.v[at].present = present;
	return 0;
}

/* What the file says of itself, before anything of it is used. */
static int look(struct nnscaler *n, uint32_t i, struct ck_audit_file *says,
		struct ck_err *err)
{
	ck_auto_nnscaler_file struct nnscaler_file f = { 0 };
	struct nnscaler_rank *r = &n->ranks.v[i];
	struct ck_err why;
	int64_t inner = -1;
	bool ok;
	int ret =
		ck_nnscaler_open(&f, n->a.dir, n->a.b, r->file, &ok, &why, err);

	if (!ret)
		ret = ck_nnscaler_add_file(n, i, r->file, f.c.t.src, true, err);
	if (ret)
		return ret;
	if (!ok)
		return report(n, i, why.msg, err);
	ret = f.c.is_st ? ck_st_file_say_faults(&f.c.st, n->a.b, err) : 0;
	if (ret)
		return ret;
	ret = read_facts(&f, says->fact, &inner);
	if (ret == -ENOMEM)
		return ck_no_memory(err);
	if (ret)
		return report(n, i, "it has no model of a rank of nnScaler",
			      err);
	says->counts = inner == (int64_t)i || inner < 0;
	if (says->counts)
		return 0;
	ck_fail(&why, EINVAL,
		"it says that it is the file of rank %" PRId64
		": it is left aside",
		inner);
	return report(n, i, why.msg, err);
}

/* The files of one save that is whole, or of most; n->first is one of them. */
static int choose_save(struct nnscaler *n, struct ck_audit *a,
		       struct ck_err *err)
{
	ck_auto_str struct ck_str text = { 0 };
	struct ck_audit_vote vote;
	size_t chosen;

	ck_audit_vote(a, &vote);
	if (vote.first == CK_AUDIT_NONE)
		return ck_fail(
			err, EINVAL,
			"%s: none of its files can be read as one of a rank of nnScaler; %s",
			n->a.dir->path, n->first_fault.msg);
	/* or a rank that there was not, by its own words */
	for (size_t i = 0; i < CK_MIN(vote.other, a->nr); i++)
		if (a->v[i].fact[NNSCALER_WORLD] && ck_audit_is_other(a, i, i))
			vote.other = i;
	n->first = (uint32_t)vote.first;
	if (vote.other == CK_AUDIT_NONE)
		return 0;
	chosen = vote.whole != CK_AUDIT_NONE ? vote.whole : vote.most;
	if (chosen != CK_AUDIT_NONE) {
		n->first = (uint32_t)chosen;
		return ck_audit_report(a, chosen, &words, n->a.b, err);
	}
	ck_audit_text(&text, "{difference}", a, vote.first, vote.other, &words);
	return text.failed ?
		       ck_no_memory(err) :
		       ck_fail(err, EINVAL,
			       "%s: %s and %s are of different saves (%s), and nothing says which is meant: take the files of one of them away",
			       n->a.dir->path, a->v[vote.first].name,
			       a->v[vote.other].name, text.v);
}

/* Opens all files; which of them are ok, and how many ranks there were. */
static int look_at_all(struct nnscaler *n, int64_t *world, struct ck_err *err)
{
	struct ck_audit a = { .nr = n->files.nr,
			      .facts = NNSCALER_FACTS,
			      .world = NNSCALER_WORLD,
			      .all = n->files.nr };
	int ret = 0;

	a.v = ck_arena_alloc(&n->a.mem, a.nr * sizeof(*a.v));
	if (!a.v || !ck_vec_reserve(&n->ranks, a.nr + 1))
		return ck_no_memory(err);
	for (uint32_t i = 0; i < a.nr && !ret; i++) {
		n->ranks.v[n->ranks.nr++] =
			(struct nnscaler_rank){ .file = n->files.v[i],
						.at = CK_NONE };
		a.v[i].name = n->files.v[i];
		a.v[i].rank = i;
		if (n->files.v[i])
			ret = look(n, i, &a.v[i], err);
	}
	if (!ret)
		ret = choose_save(n, &a, err);
	for (size_t i = 0; i < a.nr && !ret; i++)
		n->ranks.v[i].ok = a.v[i].counts;
	*world = ret ? 0 : a.v[n->first].fact[NNSCALER_WORLD];
	return ret;
}

/* As many ranks as the save had; those without a file are reported. */
static int complete(struct nnscaler *n, int64_t world, struct ck_err *err)
{
	int ret = 0;

	if (world < 0 || world > (int64_t)(64 * n->ranks.nr + 4096))
		return ck_fail(err, EINVAL,
			       "%s: it says that it is one of %" PRId64
			       " ranks, and there are files of %zu",
			       n->ranks.v[n->first].file, world, n->ranks.nr);
	while (!ret && (int64_t)n->ranks.nr < world)
		ret = ck_vec_put(&n->ranks, err,
				 (struct nnscaler_rank){ .at = CK_NONE });
	for (uint32_t i = 0; (int64_t)i < world && !ret; i++) {
		struct nnscaler_rank *r = &n->ranks.v[i];
		const char *name;
		uint32_t src;

		n->nr_missing += !r->ok;
		if (r->file || n->nr_missing > MAX_NAMED)
			continue;
		name = ck_arena_fmt(&n->a.mem, "%s%u%s", n->prefix, i,
				    n->suffix);
		if (!name)
			return ck_no_memory(err);
		ret = ck_dir_source(n->a.dir, n->a.b, name, &src, NULL, err);
		if (!ret)
			ret = ck_nnscaler_add_file(n, i, name, src, false, err);
	}
	return ret;
}

static int read_one(struct nnscaler *n, uint32_t i, struct ck_err *err)
{
	ck_auto_nnscaler_file struct nnscaler_file f = { 0 };
	struct nnscaler_rank *r = &n->ranks.v[i];
	struct ck_err why;
	bool ok;
	int ret =
		ck_nnscaler_open(&f, n->a.dir, n->a.b, r->file, &ok, &why, err);

	if (ret)
		return ret;
	if (!ok) { /* it was read a moment ago */
		r->ok = false;
		return report(n, i, "it changed while it was read", err);
	}
	ret = ck_nnscaler_rank(n, i, &f, &why);
	if (ret == -EINVAL) {
		ck_nnscaler_forget(n, i);
		r->modules = NULL;
		r->states.nr = 0;
		n->plain.nr = i == n->first ? 0 : n->plain.nr;
		r->ok = false;
		n->nr_missing++;
		return report(n, i, why.msg, err);
	}
	if (ret)
		return ck_fail(err, -ret, "%s", why.msg);
	return ck_nnscaler_rest(n, i, &f, err);
}

int ck_nnscaler_ranks(struct nnscaler *n, struct ck_err *err)
{
	int64_t world = 0;
	int ret = look_at_all(n, &world, err);

	if (!ret)
		ret = complete(n, world, err);
	for (uint32_t i = 0; i < n->ranks.nr && !ret; i++)
		if (n->ranks.v[i].ok)
			ret = read_one(n, i, err);
	return ret;
}
