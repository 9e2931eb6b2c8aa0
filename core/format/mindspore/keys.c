/* SPDX-License-Identifier: Apache-2.0 */
/* keys.c - the names of files, without their ranks and parts */
#include "core/format/mindspore/keys.h"

#include "core/base/auto.h"
#include "core/base/check.h"
#include "core/format/mindspore/set.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void ck_ms_keys_free(struct ck_ms_keys *s)
{
	for (size_t i = 0; i < s->v.nr; i++)
		free(s->v.v[i].key);
	free(s->v.v);
	free(s->of.v);
	ck_strmap_free(&s->names);
}

/* Where "_part<k>" before the ending begins and ends, or @len twice. */
static void part_in(const char *base, size_t *from, size_t *to)
{
	const char *dot = strrchr(base, '.');
	size_t end = dot ? (size_t)(dot - base) : strlen(base), at = end;

	while (at && isdigit((unsigned char)base[at - 1]))
		at--;
	*from = *to = end;
	if (at < end && at >= 5 && !memcmp(base + at - 5, "_part", 5))
		*from = at - 5;
}

/* The @nth number in @base that is @rank, as [*from, *to); false: no more. */
static bool number_in(const char *base, uint32_t rank, size_t nth, size_t *from,
		      size_t *to)
{
	size_t at = 0;

	while (base[at]) {
		char *end;

		if (!isdigit((unsigned char)base[at])) {
			at++;
			continue;
		}
		*from = at;
		if (strtoull(base + at, &end, 10) == rank && nth-- == 0) {
			*to = (size_t)(end - base);
			return true;
		}
		at = (size_t)(end - base);
	}
	return false;
}

/*
 * The @nth key of a file: by its name, or, with @numbered, with each number
 * that is the rank's left open.  NULL: there are no more.
 */
static char *key_of(const char *base, uint32_t rank, bool numbered, size_t nth,
		    bool *failed)
{
	ck_auto_free char *bare = NULL;
	size_t from, to;
	char *key = NULL;

	part_in(base, &from, &to);
	if (asprintf(&bare, "%.*s%s", (int)from, base, base + to) < 0) {
		bare = NULL;
		*failed = true;
		return NULL;
	}
	if (!numbered)
		return nth ? NULL : ck_steal(bare);
	if (!number_in(bare, rank, nth, &from, &to))
		return NULL;
	if (asprintf(&key, "%.*s{r}%s", (int)from, bare, bare + to) < 0) {
		*failed = true;
		return NULL;
	}
	return key;
}

/* "CKP_1-4_32.ckpt", "net-1_2_breakpoint.ckpt": epoch 4, step 32. */
static void read_numbers(struct ck_ms_key *s)
{
	const char *at = s->key;

	for (; *at; at++) {
		unsigned long long epoch, number;
		int n = 0;

		if (*at != '-' || !isdigit((unsigned char)at[1]) ||
		    sscanf(at, "-%18llu_%18llu%n", &epoch, &number, &n) != 2 ||
		    !n)
			continue;
		s->epoch = epoch + 1;
		s->number = number;
	}
}

bool ck_ms_names_epoch(const char *base)
{
	struct ck_ms_key key = { .key = (char *)base };

	read_numbers(&key);
	return key.epoch;
}

/* Numbers in names as numbers: net-9 before net-10. */
static int natural(const char *a, const char *b)
{
	while (*a && *b) {
		char *a_end, *b_end;
		unsigned long long x, y;

		if (!isdigit((unsigned char)*a) ||
		    !isdigit((unsigned char)*b)) {
			if (*a != *b)
				return *a < *b ? -1 : 1;
			a++;
			b++;
			continue;
		}
		x = strtoull(a, &a_end, 10);
		y = strtoull(b, &b_end, 10);
		if (x != y)
			return x < y ? -1 : 1;
		a = a_end;
		b = b_end;
	}
	return *a ? 1 : *b ? -1 : 0;
}

bool ck_ms_key_later(const struct ck_ms_key *a, const struct ck_ms_key *b)
{
	if (a->epoch != b->epoch)
		return a->epoch > b->epoch;
	if (a->number != b->number)
		return a->number > b->number;
	return natural(a->key, b->key) > 0;
}

/* The same but for the numbers: "iter_99.ckpt", "iter_100.ckpt". */
static bool differ_in_numbers(const char *a, const char *b)
{
	while (*a && *b) {
		if (isdigit((unsigned char)*a) && isdigit((unsigned char)*b)) {
			while (isdigit((unsigned char)*a))
				a++;
			while (isdigit((unsigned char)*b))
				b++;
			continue;
		}
		if (*a++ != *b++)
			return false;
	}
	return *a == *b;
}

bool ck_ms_key_are_steps(const struct ck_ms_key *a, const struct ck_ms_key *b)
{
	return (a->epoch && b->epoch) || differ_in_numbers(a->key, b->key);
}

/* The number of @key, which is taken; CK_STRMAP_NONE: no memory. */
static uint32_t put(struct ck_ms_keys *s, char *key)
{
	uint32_t at = s->names.nr ? ck_strmap_get(&s->names, key, strlen(key)) :
				    CK_STRMAP_NONE;

	if (at == CK_STRMAP_NONE && ck_vec_reserve(&s->v, 1))
		at = ck_strmap_put(&s->names, key, strlen(key));
	if (at != s->v.nr || at == CK_STRMAP_NONE) {
		free(key);
		return at;
	}
	s->v.v[s->v.nr] = (struct ck_ms_key){ .key = key };
	read_numbers(&s->v.v[s->v.nr++]);
	return at;
}

static int count(struct ck_ms_keys *s, char *key, uint32_t rank, uint32_t file)
{
	uint32_t at = put(s, key);
	struct ck_ms_key_file *of =
		at == CK_STRMAP_NONE ? NULL : ck_vec_push(&s->of);

	if (!of)
		return -ENOMEM;
	*of = (struct ck_ms_key_file){ .key = at, .file = file };
	if (s->v.v[at].last != rank + 1) {
		s->v.v[at].last = rank + 1;
		s->v.v[at].nr_ranks++;
	}
	return 0;
}

int ck_ms_keys_collect(struct ck_ms_keys *s, const struct ck_ms_found *f,
		       bool numbered, struct ck_err *err)
{
	s->numbered = numbered;
	for (size_t i = 0; i < f->file.nr; i++) {
		const struct ck_ms_found_file *file = &f->file.v[i];
		bool failed = false;
		char *key;

		for (size_t nth = 0; (key = key_of(file->base, file->rank,
						   numbered, nth, &failed));
		     nth++)
			if (count(s, key, file->rank, (uint32_t)i))
				return ck_ms_no_memory(err);
		if (failed)
			return ck_ms_no_memory(err);
	}
	return 0;
}

size_t ck_ms_keys_most(const struct ck_ms_keys *s)
{
	size_t nr = 0;

	for (size_t i = 0; i < s->v.nr; i++)
		nr = CK_MAX(nr, s->v.v[i].nr_ranks);
	return nr;
}

bool ck_ms_key_is_of(const char *base, uint32_t rank, bool numbered,
		     const char *key, bool *failed)
{
	char *own;

	for (size_t nth = 0; (own = key_of(base, rank, numbered, nth, failed));
	     nth++) {
		bool same = !strcmp(own, key);

		free(own);
		if (same)
			return true;
	}
	return false;
}

bool ck_ms_key_has(const char *key, const char *base, uint32_t rank)
{
	bool failed = false;

	return ck_ms_key_is_of(base, rank, false, key, &failed) ||
	       (strstr(key, "{r}") &&
		ck_ms_key_is_of(base, rank, true, key, &failed));
}
