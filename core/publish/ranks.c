/* SPDX-License-Identifier: Apache-2.0 */
/* ranks.c - numbers of ranks in names of files; see ranks.h */
#include "core/publish/ranks.h"

#include "core/base/auto.h"
#include "core/base/check.h"
#include "core/base/match.h"
#include "core/base/number.h"
#include "core/base/search.h"
#include "core/base/str.h"
#include "core/base/suffix.h"
#include "core/base/vec.h"
#include "core/format/format.h"

#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define MAX_DIGITS 9
#define MAX_NAMED 4

/* ---- names ---- */

/* The number at @from of the rank's name, and how long that is. */
static bool take(struct ck_rank *r, const char *path, size_t from)
{
	uint64_t rank;
	size_t n = ck_digits(path + from, SIZE_MAX, &rank), to = from + n;

	if (!n || n > MAX_DIGITS)
		return false;
	*r = (struct ck_rank){
		.path = path, .from = from, .to = to, .rank = rank
	};
	r->len = to + strcspn(path + to, "/");
	r->is_dir = path[r->len];
	return true;
}

/* "3" or "-00003" or "_3" */
static bool digits_at(struct ck_rank *r, const char *path, size_t at)
{
	at += path[at] == '-' || path[at] == '_';
	return take(r, path, at);
}

/* Whether a word begins at @at: none is inside of "frank", but in "ddprank". */
static bool begins(const char *path, size_t at)
{
	static const char *const before[] = { "dp", "tp",   "pp",    "mp",
					      "ep", "cp",   "sp",    "ddp",
					      "ws", "fsdp", "local", "global",
					      "my", "world" };
	size_t n = 0;

	while (n < at && isalpha((unsigned char)path[at - n - 1]))
		n++;
	for (size_t i = 0; i < CK_ARRAY_LEN(before); i++)
		if (n == strlen(before[i]) &&
		    !strncmp(path + at - n, before[i], n))
			return true;
	return !n;
}

/* The number after the word "rank" or "node", the first that has one. */
static bool rank_of(const char *path, struct ck_rank *out)
{
	static const char *const words[] = { "rank", "node" };

	for (size_t at = 0; path[at]; at++)
		for (size_t i = 0; i < CK_ARRAY_LEN(words); i++)
			if (!strncmp(path + at, words[i], 4) &&
			    begins(path, at) && digits_at(out, path, at + 4))
				return true;
	return false;
}

/* Whether a format's save has ended where a file is called so. */
static bool is_end(const char *name)
{
	for (size_t i = 0; ck_formats[i]; i++)
		for (const char *const *e = ck_formats[i]->ends; e && *e; e++)
			if (!strcmp(*e, name))
				return true;
	return false;
}

/* The last number in the name that is [from, to) of @path. */
static bool number_of(const char *path, size_t from, size_t to,
		      struct ck_rank *out)
{
	size_t at, end;

	return ck_last_number(path + from, to - from, &at, &end) &&
	       take(out, path, from + at);
}

/* The folder of a save that ended: "model_3/pickled_data". */
static bool save_of(const char *path, struct ck_rank *out)
{
	const char *slash = strrchr(path, '/');
	size_t len = slash ? (size_t)(slash - path) : 0, from = len;

	if (!len || !is_end(slash + 1))
		return false;
	while (from && path[from - 1] != '/')
		from--;
	return number_of(path, from, len, out);
}

/* "-00001-of-00004" */
static bool tells_how_many(const char *path)
{
	const char *of = path;

	while ((of = strstr(of, "-of-"))) {
		if (of > path && isdigit((unsigned char)of[-1]) &&
		    isdigit((unsigned char)of[4]))
			return true;
		of += 4;
	}
	return false;
}

/* ---- all of a directory ---- */

/* What is called alike but for the number together. */
static int by_series(const void *pa, const void *pb)
{
	const struct ck_rank *a = pa, *b = pb;
	int c = ck_text_order(a->path, a->from, b->path, b->from);

	return c ? c :
		   ck_text_order(a->path + a->to, a->len - a->to,
				 b->path + b->to, b->len - b->to);
}

static int by_name(const void *pa, const void *pb)
{
	const struct ck_rank *a = pa, *b = pb;
	int c = by_series(a, b);

	return c ? c : ck_text_order(a->path, a->len, b->path, b->len);
}

static int by_number(const void *pa, const void *pb)
{
	return ck_order(*(const uint64_t *)pa, *(const uint64_t *)pb);
}

static size_t sort_numbers(uint64_t *v, size_t nr)
{
	size_t kept = 0;

	if (nr)
		qsort(v, nr, sizeof(*v), by_number);
	for (size_t i = 0; i < nr; i++)
		if (!kept || v[kept - 1] != v[i])
			v[kept++] = v[i];
	return kept;
}

static void sort_names(struct ck_ranks *r)
{
	size_t kept = 0;

	if (r->nr)
		qsort(r->v, r->nr, sizeof(*r->v), by_name);
	for (size_t i = 0; i < r->nr; i++)
		if (!kept || by_name(&r->v[kept - 1], &r->v[i]) != 0)
			r->v[kept++] = r->v[i];
	r->nr = kept;
}

static bool is_rank(struct ck_ranks *r, const char *path, enum ck_ranks_by by,
		    struct ck_rank *out)
{
	size_t top = strcspn(path, "/");
	bool saved;

	if (by != CK_RANKS_WORDS)
		return (by == CK_RANKS_ANY || !path[top]) &&
		       number_of(path, 0, top, out);
	saved = save_of(path, out);
	r->told |= tells_how_many(path);
	r->saves |= saved;
	return rank_of(path, out) || saved;
}

static int add_all(struct ck_ranks *r, const struct ck_dir_tree *files,
		   enum ck_ranks_by by, struct ck_err *err)
{
	int ret = 0;

	for (size_t i = 0; i < files->nr && !ret; i++) {
		const struct ck_dir_tree_file *f = &files->v[i];
		struct ck_rank one;

		/* an empty folder of a rank is no rank that has written */
		if (!S_ISREG(f->st.st_mode) || !is_rank(r, f->path, by, &one))
			continue;
		ret = ck_vec_put(r, err, one);
	}
	return ret;
}

/*
 * The numbers, ascending, each once, to free(); without those that are alone
 * among names that are alike, unless all are.
 */
static uint64_t *numbers_of(const struct ck_ranks *r, bool all, size_t *nr)
{
	uint64_t *v = calloc(r->nr + 1, sizeof(*v));
	bool any = false;

	*nr = 0;
	for (size_t i = 0, end; v && i < r->nr; i = end) {
		for (end = i + 1; end < r->nr; end++)
			if (by_series(&r->v[i], &r->v[end]) != 0)
				break;
		any |= end - i > 1;
		for (size_t k = i; k < end && (all || end - i > 1); k++)
			v[(*nr)++] = r->v[k].rank;
	}
	if (v && !all && !any) {
		free(v);
		return numbers_of(r, true, nr);
	}
	*nr = v ? sort_numbers(v, *nr) : 0;
	return v;
}

int ck_ranks_find(struct ck_ranks *out, const struct ck_dir_tree *files,
		  enum ck_ranks_by by, struct ck_err *err)
{
	ck_auto_free uint64_t *v = NULL;
	size_t nr;
	int ret;

	*out = (struct ck_ranks){ 0 };
	ret = add_all(out, files, CK_RANKS_WORDS, err);
	if (!ret && by != CK_RANKS_WORDS && !out->nr)
		ret = add_all(out, files, by, err);
	sort_names(out);
	v = ret ? NULL : numbers_of(out, true, &nr);
	if (!ret && !v)
		ret = ck_no_memory(err);
	if (!ret)
		out->nr_ranks = nr;
	return ret;
}

void ck_ranks_free(struct ck_ranks *r)
{
	free(r->v);
	*r = (struct ck_ranks){ 0 };
}

static int lack(const uint64_t *v, size_t found, uint64_t nr,
		struct ck_err *err)
{
	ck_auto_str struct ck_str some = { 0 };
	uint64_t lacking = nr - found, said = 0;

	for (uint64_t i = 0; i < nr && said < CK_MIN(lacking, MAX_NAMED); i++)
		if (!found || !bsearch(&i, v, found, sizeof(*v), by_number))
			ck_str_fmt(&some, "%s%" PRIu64, said++ ? ", " : "", i);
	return ck_fail(err, ENODATA,
		       "expected the files of %" PRIu64
		       " rank%s, found %zu: missing rank %s%s",
		       nr, nr == 1 ? "" : "s", found, some.v ? some.v : "",
		       lacking > MAX_NAMED ? " and more" : "");
}

int ck_ranks_are(const struct ck_ranks *r, uint64_t nr, struct ck_err *err)
{
	size_t found;
	ck_auto_free uint64_t *v = numbers_of(r, nr == 1, &found);

	if (!v)
		return ck_no_memory(err);
	/* one rank has no need to number its files */
	if (nr == 1 && (!found || v[0]))
		return 0;
	if (found && v[found - 1] >= nr)
		return ck_fail(err, ENODATA,
			       "expected the files of %" PRIu64
			       " rank%s, found "
			       "rank %" PRIu64,
			       nr, nr == 1 ? "" : "s", v[found - 1]);
	return found == nr ? 0 : lack(v, found, nr, err);
}
