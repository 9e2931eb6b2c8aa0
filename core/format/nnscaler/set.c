/* SPDX-License-Identifier: Apache-2.0 */
/*
 * set.c - which files of a folder are the ranks of one checkpoint
 *
 *   0.ckpt 1.ckpt ...                 the trainer's, or .safetensors
 *   dist_checkpoint-0.ckpt ...        CubeModule.save_checkpoint's
 *   PREFIX0SUFFIX ...                 a user's own torch.save, or renamed
 *
 * The rank is a number in the name, and said again inside; so is how many
 * ranks there are.  Which files belong together is decided by what they say;
 * of two kinds in one folder the user says which is meant.
 */
#include "core/format/nnscaler/priv.h"

#include "core/base/auto.h"
#include "core/base/check.h"
#include "core/base/suffix.h"
#include "core/format/format.h"

#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

void ck_nn_set_free(struct ck_nn_set *s)
{
	for (size_t i = 0; i < s->ranks.nr; i++)
		ck_nn_rank_free(&s->ranks.v[i]);
	for (size_t i = 0; i < s->files.nr; i++)
		free(s->files.v[i]);
	free(s->ranks.v);
	free(s->files.v);
	free(s->pieces.v);
	free(s->ties.v);
	free(s->marks.v);
	free(s->dims.v);
	free(s->prefix);
	free(s->suffix);
	ck_strmap_free(&s->numbers);
	ck_nn_names_free(&s->names);
}

/*
 * Where the rank's number is in a name that a rank's file may have: its last
 * digits before the suffix.  Names that other writers use have none.
 */
static bool number_in(const char *name, size_t *at, size_t *end)
{
	static const char *const suffix[] = { ".ckpt", ".pt", ".pth", ".bin",
					      ".safetensors" };
	size_t len = strlen(name), dot = 0;

	for (size_t i = 0; i < CK_ARRAY_LEN(suffix); i++)
		if (ck_has_suffix(name, suffix[i]))
			dot = len - strlen(suffix[i]);
	*end = dot;
	while (*end && !isdigit((unsigned char)name[*end - 1]))
		--*end;
	*at = *end;
	while (*at && isdigit((unsigned char)name[*at - 1]))
		--*at;
	if (!dot || *at == *end || *end - *at > 7)
		return false;
	return !strstr(name, "-of-") && !ck_format_is_claimed(name);
}

/* Whether @name is PREFIX<number>SUFFIX; 0 may be written as 00. */
static bool is_like(const struct ck_nn_set *s, const char *name, uint64_t *nr)
{
	size_t at, end, len = strlen(s->prefix);

	if (!number_in(name, &at, &end) || at != len ||
	    memcmp(name, s->prefix, len) != 0 ||
	    strcmp(name + end, s->suffix) != 0)
		return false;
	*nr = strtoull(name + at, NULL, 10);
	return *nr < CK_NN_MAX_RANKS;
}

int ck_nn_set_name(const struct ck_nn_set *s, uint64_t nr, struct ck_str *out)
{
	out->len = 0;
	ck_str_fmt(out, "%s%" PRIu64 "%s", s->prefix, nr, s->suffix);
	return out->failed ? -ENOMEM : 0;
}

/*
 * 1: it is a rank's file; 0: not, or it cannot be read.  The trainer's "last"
 * has links in it, and is read where they may be followed.
 */
static int looks_so(const struct ck_nn_set *s, const char *name,
		    struct ck_err *err)
{
	ck_auto_nn_file struct ck_nn_file f = { 0 };
	struct ck_nn_identity id;
	struct ck_err why;
	int64_t rank;
	bool ok;
	int ret = ck_nn_file_open(&f, s->dir, NULL, name, &ok, &why, err);

	if (ret == -ENOMEM || (ret == -ELOOP && isdigit((unsigned char)*name)))
		return ret;
	if (ret || !ok)
		return 0;
	ret = ck_nn_identity_read(&f, &id, &rank);
	return ret == -ENOMEM ? ck_fail(err, ENOMEM, "no memory") : !ret;
}

static int take_names(struct ck_nn_set *s, const struct ck_dir_list *l,
		      struct ck_err *err)
{
	for (size_t i = 0; i < l->nr; i++) {
		uint64_t nr;

		if (l->v[i].is_dir || !is_like(s, l->v[i].name, &nr))
			continue;
		while (s->files.nr <= nr) {
			char **to = ck_vec_push(&s->files);

			if (!to)
				return ck_fail(err, ENOMEM,
					       "no memory for names");
			*to = NULL;
		}
		if (s->files.v[nr])
			return ck_fail(err, EINVAL,
				       "%s and %s: two files of rank %" PRIu64,
				       s->files.v[nr], l->v[i].name, nr);
		s->files.v[nr] = strdup(l->v[i].name);
		if (!s->files.v[nr])
			return ck_fail(err, ENOMEM, "no memory for a name");
	}
	return 0;
}

/* Files that were opened to see what they are: few of each kind. */
struct tries {
	const char *kind; /* a name of it */
	unsigned of_kind, all;
};

static bool same_kind(const char *a, const char *b)
{
	size_t at[2], end[2];

	return number_in(a, &at[0], &end[0]) && number_in(b, &at[1], &end[1]) &&
	       at[0] == at[1] && !memcmp(a, b, at[0]) &&
	       !strcmp(a + end[0], b + end[1]);
}

static bool may_try(struct tries *t, const char *name)
{
	if (!t->kind || !same_kind(t->kind, name)) {
		t->kind = name;
		t->of_kind = 0;
	}
	return t->of_kind++ < 4 && t->all++ < 16;
}

/* The first file of a kind that is a rank's gives the pattern of all. */
static int try_name(struct ck_nn_set *s, const struct ck_dir_list *l,
		    const char *name, bool *found, struct ck_err *err)
{
	size_t at, end;
	int ret = looks_so(s, name, err);

	if (ret <= 0)
		return ret;
	number_in(name, &at, &end);
	s->prefix = strndup(name, at);
	s->suffix = strdup(name + end);
	if (!s->prefix || !s->suffix)
		return ck_fail(err, ENOMEM, "no memory for a name");
	*found = true;
	return take_names(s, l, err);
}

/* What -o file= names, if it may be a rank's: the kind of all that count. */
static const char *wanted(const struct ck_dir *dir, const struct ck_dir_list *l)
{
	const char *want = ck_opts_get(dir->opts, "file");
	size_t at, end;

	for (size_t i = 0; want && i < l->nr; i++)
		if (!l->v[i].is_dir && !strcmp(l->v[i].name, want))
			return number_in(want, &at, &end) ?
				       ck_opts_use(dir->opts, "file") :
				       NULL;
	return NULL;
}

/*
 * Ranks' files of another kind are another save: left there by a run with
 * another serializer, or by another program.
 */
static int refuse_second(const struct ck_nn_set *s, const struct ck_dir_list *l,
			 const char *first, struct tries *tries,
			 struct ck_err *err)
{
	size_t at, end;
	int ret = 0;

	for (size_t i = 0; i < l->nr && !ret; i++) {
		const char *name = l->v[i].name;

		if (l->v[i].is_dir || !number_in(name, &at, &end) ||
		    same_kind(first, name) || !may_try(tries, name))
			continue;
		ret = looks_so(s, name, err);
		if (ret <= 0)
			continue;
		return ck_fail(err, EINVAL,
			       "%s: two saves in one folder, one of %s and one "
			       "of %s: -o file=%s or -o file=%s says which is "
			       "read",
			       s->dir->path, first, name, first, name);
	}
	return ret;
}

int ck_nn_set_find(struct ck_nn_set *s, struct ck_err *err)
{
	ck_auto_dir_list struct ck_dir_list l = { 0 };
	const char *want, *first = NULL;
	struct tries tries = { 0 };
	bool found = false;
	size_t at, end;
	int ret;

	if (s->dir->only)
		return 0;
	ret = ck_dir_list(s->dir, "", &l, err);
	want = ret ? NULL : wanted(s->dir, &l);
	for (size_t i = 0; i < l.nr && !ret && !found; i++) {
		first = l.v[i].name;
		if (!l.v[i].is_dir && number_in(first, &at, &end) &&
		    (!want || same_kind(want, first)) && may_try(&tries, first))
			ret = try_name(s, &l, first, &found, err);
	}
	if (ret || !found || want)
		return ret;
	return refuse_second(s, &l, first, &tries, err);
}
