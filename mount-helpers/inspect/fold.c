/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fold.c - groups of names of one pattern, cut until each is a full product
 *
 * A group that is none (layers 0 to 2 are dense, the others have experts) is cut
 * where its first number that is not the same in all of them changes.
 */
#include "mount-helpers/inspect/fold.h"

#include "core/base/auto.h"
#include "core/base/check.h"
#include "core/base/number.h"

#include <ctype.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define MAX_NUMBERS 8

struct group {
	size_t first, nr, at; /* at: where its first name was */
};

/* Length of the number at @s; 0: none, or a longer one, is there. */
static size_t number_at(const char *s, uint64_t *out)
{
	size_t n = isdigit((unsigned char)*s) ? ck_digits(s, 10, out) : 0;

	return n < 10 ? n : 0;
}

/* Moves *s over what is no number; and then @out is the number there. */
static size_t next_number(const char **s, uint64_t *out)
{
	size_t n = 0;

	while (**s && !(n = number_at(*s, out))) {
		const char *from = *s;

		do /* of digits that are no such number, all */
			++*s;
		while (isdigit((unsigned char)*from) &&
		       isdigit((unsigned char)**s));
	}
	return n;
}

/* As if all numbers were the same. */
static int compare_patterns(const char *a, const char *b)
{
	for (;;) {
		const char *x = a, *y = b;
		uint64_t ignored;
		size_t n = next_number(&x, &ignored);
		size_t m = next_number(&y, &ignored);
		size_t len = CK_MIN((size_t)(x - a), (size_t)(y - b));
		int c = memcmp(a, b, len);

		if (c || x - a != y - b)
			return c ? c : x - a < y - b ? -1 : 1;
		if (!n || !m)
			return (n != 0) - (m != 0);
		a = x + n;
		b = y + m;
	}
}

static int by_pattern(const void *pa, const void *pb)
{
	const struct fold_name *a = pa, *b = pb;
	int c = compare_patterns(a->name, b->name);

	if (a->class != b->class)
		return a->class < b->class ? -1 : 1;
	return c ? c : strverscmp(a->name, b->name);
}

static int by_at(const void *pa, const void *pb)
{
	const struct group *a = pa, *b = pb;

	return a->at < b->at ? -1 : a->at > b->at;
}

struct numbers {
	uint64_t v[MAX_NUMBERS];
	size_t len[MAX_NUMBERS]; /* digits */
	bool padded[MAX_NUMBERS]; /* zeros lead it */
	unsigned nr; /* the rest of the name has none that counts */
};

static void numbers_of(const char *name, struct numbers *out)
{
	size_t n;

	for (out->nr = 0; out->nr < MAX_NUMBERS; out->nr++, name += n) {
		n = next_number(&name, &out->v[out->nr]);
		if (!n)
			return;
		out->len[out->nr] = n;
		out->padded[out->nr] = n > 1 && *name == '0';
	}
}

/* Of as many digits all, if the first of them has leading zeros; else of none. */
static bool is_written_as(const struct numbers *a, const struct numbers *first)
{
	for (unsigned i = 0; i < first->nr; i++)
		if (first->padded[i] ? a->len[i] != first->len[i] :
				       a->padded[i])
			return false;
	return true;
}

/* Whether the names are all numbers from the first's to the last's, in order. */
static bool is_product(const struct fold_name *v, size_t nr,
		       const struct numbers *lo, const struct numbers *hi)
{
	struct numbers want = *lo, is;
	uint64_t volume = 1;

	for (unsigned i = 0; i < lo->nr; i++) {
		if (hi->v[i] < lo->v[i] ||
		    !ck_mul_ok(volume, hi->v[i] - lo->v[i] + 1, &volume) ||
		    volume > nr)
			return false;
	}
	if (volume != nr)
		return false;
	for (size_t k = 0; k < nr; k++) {
		numbers_of(v[k].name, &is);
		if (memcmp(is.v, want.v, lo->nr * sizeof(*is.v)) ||
		    !is_written_as(&is, lo))
			return false;
		for (unsigned i = lo->nr; i-- > 0;) {
			if (want.v[i]++ < hi->v[i])
				break;
			want.v[i] = lo->v[i];
		}
	}
	return true;
}

static void put_text(struct ck_str *out, const char *name,
		     const struct numbers *lo, const struct numbers *hi)
{
	for (unsigned i = 0; i < lo->nr; i++) {
		const char *from = name;
		uint64_t ignored;
		size_t n = next_number(&name, &ignored);

		ck_str_plain(out, from, (size_t)(name - from));
		int width = lo->padded[i] ? (int)lo->len[i] : 1;

		if (lo->v[i] == hi->v[i])
			ck_str_fmt(out, "%0*" PRIu64, width, lo->v[i]);
		else
			ck_str_fmt(out, "{%0*" PRIu64 "..%0*" PRIu64 "}", width,
				   lo->v[i], width, hi->v[i]);
		name += n;
	}
	ck_str_plain(out, name, strlen(name));
}

/* How many of the first names have the same numbers up to the first that differs. */
static size_t head_of(const struct fold_name *v, size_t nr)
{
	struct numbers a, b;
	unsigned at = 0;
	size_t n = 1;

	numbers_of(v[0].name, &a);
	numbers_of(v[nr - 1].name, &b);
	while (at < a.nr && a.v[at] == b.v[at])
		at++;
	for (; n < nr; n++) {
		numbers_of(v[n].name, &b);
		if (at == a.nr || b.v[at] != a.v[at])
			break;
	}
	return n;
}

struct folding {
	struct fold_name *v;
	struct group *group;
	size_t nr;
};

/* Names [first, first + nr) of one pattern: as few groups as it is simple. */
static void cut(struct folding *f, size_t first, size_t nr)
{
	while (nr) {
		const struct fold_name *v = f->v + first;
		struct numbers lo, hi;
		size_t n = nr;

		for (;; n = head_of(v, n)) {
			numbers_of(v[0].name, &lo);
			numbers_of(v[n - 1].name, &hi);
			if (n == 1 || is_product(v, n, &lo, &hi))
				break;
		}
		f->group[f->nr++] = (struct group){ first, n, v->index };
		first += n;
		nr -= n;
	}
}

/* Groups that follow each other and are the next numbers of the same. */
static void join(struct folding *f, size_t from)
{
	size_t kept = from;

	for (size_t i = from + 1; i < f->nr; i++) {
		struct group *a = &f->group[kept], *b = &f->group[i];
		struct numbers lo, hi;
		size_t nr = a->nr + b->nr;

		numbers_of(f->v[a->first].name, &lo);
		numbers_of(f->v[a->first + nr - 1].name, &hi);
		if (is_product(f->v + a->first, nr, &lo, &hi))
			a->nr = nr;
		else
			f->group[++kept] = *b;
	}
	f->nr = kept + 1;
}

bool fold_names(struct fold_name *v, size_t nr,
		bool (*each)(void *ctx, const struct ck_str *text,
			     const struct fold_name *v, size_t nr),
		void *ctx)
{
	ck_auto_free struct group *group = calloc(nr + 1, sizeof(*group));
	struct folding f = { v, group, 0 };
	bool ok = group;

	if (ok && nr)
		qsort(v, nr, sizeof(*v), by_pattern);
	for (size_t i = 0, n; ok && i < nr; i += n) {
		size_t before = f.nr;

		for (n = 1; i + n < nr && v[i].class == v[i + n].class &&
			    !compare_patterns(v[i].name, v[i + n].name);)
			n++;
		cut(&f, i, n);
		join(&f, before);
	}
	if (ok)
		qsort(group, f.nr, sizeof(*group), by_at);
	for (size_t i = 0; ok && i < f.nr; i++) {
		const struct fold_name *at = v + group[i].first;
		ck_auto_str struct ck_str text = { 0 };
		struct numbers lo, hi;

		numbers_of(at->name, &lo);
		numbers_of(at[group[i].nr - 1].name, &hi);
		put_text(&text, at->name, &lo, &hi);
		ok = !text.failed && each(ctx, &text, at, group[i].nr);
	}
	return ok;
}
