/* SPDX-License-Identifier: Apache-2.0 */
/* ranks.c - numbers of ranks in names of files; see ranks.h */
#include "core/publish/ranks.h"

#include "core/base/auto.h"
#include "core/base/check.h"
#include "core/base/str.h"
#include "core/base/vec.h"

#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define MAX_DIGITS 9
#define MAX_NAMED 4

/* The digits at @s, "3" or "-00003" or "_3"; false: none, or too many. */
static bool digits_at(const char *s, uint64_t *out)
{
	size_t n = 0;

	if (*s == '-' || *s == '_')
		s++;
	while (isdigit((unsigned char)s[n]))
		n++;
	if (!n || n > MAX_DIGITS)
		return false;
	*out = strtoull(s, NULL, 10);
	return true;
}

bool ck_rank_of(const char *path, uint64_t *rank)
{
	static const char *const words[] = { "rank", "node" };

	for (const char *s = path; *s; s++)
		for (size_t i = 0; i < CK_ARRAY_LEN(words); i++)
			if (!strncmp(s, words[i], 4) && digits_at(s + 4, rank))
				return true;
	return false;
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

static int by_number(const void *pa, const void *pb)
{
	const uint64_t *a = pa, *b = pb;

	return (*a > *b) - (*a < *b);
}

static void sort_once(struct ck_ranks *r)
{
	size_t kept = 0;

	if (r->nr)
		qsort(r->v, r->nr, sizeof(*r->v), by_number);
	for (size_t i = 0; i < r->nr; i++)
		if (!kept || r->v[kept - 1] != r->v[i])
			r->v[kept++] = r->v[i];
	r->nr = kept;
}

int ck_ranks_find(struct ck_ranks *out, const struct ck_below *files,
		  struct ck_err *err)
{
	uint64_t rank, *at;

	*out = (struct ck_ranks){ 0 };
	for (size_t i = 0; i < files->nr; i++) {
		const struct ck_below_file *f = &files->v[i];

		/* an empty folder of a rank is no rank that has written */
		if (!S_ISREG(f->st.st_mode))
			continue;
		out->told |= tells_how_many(f->path);
		if (!ck_rank_of(f->path, &rank))
			continue;
		at = ck_vec_push(out);
		if (!at)
			return ck_fail(err, ENOMEM, "no memory for ranks");
		*at = rank;
	}
	sort_once(out);
	return 0;
}

void ck_ranks_free(struct ck_ranks *r)
{
	free(r->v);
	*r = (struct ck_ranks){ 0 };
}

static bool has(const struct ck_ranks *r, uint64_t rank)
{
	return r->nr && bsearch(&rank, r->v, r->nr, sizeof(rank), by_number);
}

int ck_ranks_are(const struct ck_ranks *r, uint64_t nr, struct ck_err *err)
{
	ck_auto_str struct ck_str some = { 0 };
	uint64_t lacking = 0;

	if (nr == 1 && !r->nr)
		return 0; /* one rank has no need to number its files */
	if (r->nr && r->v[r->nr - 1] >= nr)
		return ck_fail(err, ENODATA,
			       "expected the files of %" PRIu64 " ranks, found "
			       "rank %" PRIu64,
			       nr, r->v[r->nr - 1]);
	lacking = nr - r->nr;
	for (uint64_t i = 0, said = 0;
	     i < nr && said < MAX_NAMED && said < lacking; i++)
		if (!has(r, i))
			ck_str_fmt(&some, "%s%" PRIu64, said++ ? ", " : "", i);
	if (!lacking)
		return 0;
	return ck_fail(err, ENODATA,
		       "expected the files of %" PRIu64
		       " ranks, found %zu: missing rank %s%s",
		       nr, r->nr, some.v ? some.v : "",
		       lacking > MAX_NAMED ? " and more" : "");
}
