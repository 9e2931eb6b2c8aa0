/* SPDX-License-Identifier: Apache-2.0 */
/*
 * files.c - which files of a folder are the ranks of one checkpoint
 *
 *   0.ckpt 1.ckpt ...                 the trainer's, or .safetensors
 *   dist_checkpoint-0.ckpt ...        CubeModule.save_checkpoint's
 *   PREFIX0SUFFIX ...                 a user's own torch.save, or renamed
 *
 * The rank is a number in the name, and said again inside; so is how many
 * ranks there are.  Which files belong together is decided by what they say;
 * of two kinds in one folder the user says which is meant.
 */
#include "core/format/nnscaler/nnscaler.h"

#include "core/base/check.h"
#include "core/base/suffix.h"

#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

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
	int ret = ck_nnscaler_open(&f, n->dir, NULL, name, &ok, &why, err);

	if (ret == -ENOMEM || (ret == -ELOOP && isdigit((unsigned char)*name)))
		return ret;
	if (ret || !ok)
		return 0;
	ret = ck_nnscaler_facts(&f, fact, &rank);
	return ret == -ENOMEM ? ck_fail(err, ENOMEM, "no memory") : !ret;
}

/* All files of the kind of @like, by their numbers; 0 may be written as 00. */
static int list_kind(struct nnscaler *n, const struct ck_dir_list *l,
		     const char *like, struct ck_err *err)
{
	size_t at, end;

	find_number(like, &at, &end);
	n->prefix = ck_arena_copy(&n->mem, like, at);
	n->suffix = ck_arena_fmt(&n->mem, "%s", like + end);
	for (size_t i = 0; i < l->nr && !n->mem.failed; i++) {
		const char *name = l->v[i].name;
		uint64_t nr;

		if (l->v[i].is_dir || !same_kind(like, name))
			continue;
		nr = strtoull(name + at, NULL, 10);
		if (nr >= NNSCALER_MAX_RANKS)
			continue;
		if (!ck_vec_reserve(&n->files, nr + 1))
			return ck_fail(err, ENOMEM, "no memory");
		while (n->files.nr <= nr)
			n->files.v[n->files.nr++] = NULL;
		if (n->files.v[nr])
			return ck_fail(err, EINVAL,
				       "%s and %s: two files of rank %" PRIu64,
				       n->files.v[nr], name, nr);
		n->files.v[nr] = ck_arena_fmt(&n->mem, "%s", name);
	}
	return n->mem.failed ? ck_fail(err, ENOMEM, "no memory") : 0;
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

	if (n->dir->only)
		return 0;
	ret = ck_dir_list(n->dir, "", &n->list, err);
	if (ret)
		return ret;
	want = find_wanted(n->dir, l);
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
			      n->dir->path, first, second, first, second);
	return ret;
}
