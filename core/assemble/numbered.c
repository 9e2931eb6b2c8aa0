/* SPDX-License-Identifier: Apache-2.0 */
/*
 * numbered.c - reads the numbers in a name, and counts the files of a set
 */
#include "core/assemble/numbered.h"

#include "core/base/check.h"
#include "core/base/number.h"
#include "core/base/suffix.h"

#include <ctype.h>
#include <errno.h>
#include <string.h>

#define STAGE "-stage-"
#define PART "part"
#define PARTS_REST "hyper_param.safetensors" /* is beside MindSpore's parts */

/* Five digits or more; NULL: none, or a number that nobody counts to. */
static const char *eat_number(const char *s, unsigned *out)
{
	uint64_t n = 0;
	size_t digits = s ? ck_digits(s, SIZE_MAX, &n) : 0;

	*out = (unsigned)n;
	return digits >= 5 && digits <= 9 ? s + digits : NULL;
}

static const char *eat(const char *s, const char *word)
{
	size_t len = strlen(word);

	return s && !strncmp(s, word, len) ? s + len : NULL;
}

/* STEM00001-of-00002.SUFFIX, where the stem mostly ends with a "-". */
static bool with_total(const char *name, const char *base,
		       struct ck_numbered *out)
{
	const char *at = strstr(base, "-of-");

	while (at && at > base && isdigit((unsigned char)at[-1]))
		at--;
	if (!at)
		return false;
	out->stem = (size_t)(at - name);
	at = eat(eat_number(at, &out->k), "-of-");
	out->suffix = eat_number(at, &out->of);
	return out->suffix && *out->suffix == '.' && out->of &&
	       !strchr(out->suffix + 1, '.');
}

/* Where the last @word in @s begins. */
static const char *last(const char *s, const char *word)
{
	const char *found = NULL;

	while ((s = strstr(s, word)))
		found = s++;
	return found;
}

/* "-00001", or "-stage-00001[-00001]-shard-00001", and where it begins. */
static const char *untotalled(const char *base, struct ck_numbered *out)
{
	const char *at = last(base, STAGE), *next;
	unsigned expert;

	if (!at) {
		at = strrchr(base, '-');
		out->suffix = at ? eat_number(at + 1, &out->k) : NULL;
		return at;
	}
	next = eat_number(at + strlen(STAGE), &out->stage);
	if (next && eat_number(eat(next, "-"), &expert))
		next = eat_number(next + 1, &expert);
	out->suffix = eat_number(eat(next, "-shard-"), &out->k);
	return at;
}

/* What ColossalAI calls its files; others number steps in names like that. */
static bool is_colossal(const char *base, size_t stem, const char *suffix)
{
	static const struct {
		const char *stem, *suffix;
	} known[] = { { "pytorch_model", ".bin" },
		      { "pytorch_optim", ".bin" },
		      { "model", ".safetensors" },
		      { "optimizer", ".safetensors" } };

	for (size_t i = 0; i < CK_ARRAY_LEN(known); i++) {
		size_t len = strlen(known[i].stem);

		if (stem >= len && !memcmp(base, known[i].stem, len) &&
		    (stem == len || base[len] == '.') &&
		    !strcmp(suffix, known[i].suffix))
			return true;
	}
	return false;
}

/* What unified_safetensors of MindSpore writes. */
static bool is_part(const char *name, const char *base, struct ck_numbered *out)
{
	const char *at = eat(base, PART);
	uint64_t k = 0;
	size_t digits = at ? ck_digits(at, SIZE_MAX, &k) : 0;

	if (!digits || digits > 9 || strcmp(at + digits, ".safetensors"))
		return false;
	out->stem = (size_t)(at - name);
	out->suffix = at + digits;
	out->k = (unsigned)k;
	out->part = true;
	return true;
}

bool ck_numbered_is(const char *name, struct ck_numbered *out)
{
	const char *base = ck_base_name(name), *at;

	*out = (struct ck_numbered){ 0 };
	if (with_total(name, base, out))
		return true;
	*out = (struct ck_numbered){ 0 };
	if (is_part(name, base, out))
		return true;
	at = strstr(base, "-dist-") ? NULL : untotalled(base, out);
	if (!at || !out->suffix ||
	    !is_colossal(base, (size_t)(at - base), out->suffix))
		return false;
	out->stem = (size_t)(at - name);
	return true;
}

static bool same(const char *a, const struct ck_numbered *x, const char *b,
		 const struct ck_numbered *y)
{
	return x->of == y->of && x->part == y->part && x->stem == y->stem &&
	       !memcmp(a, b, x->stem) && !strcmp(x->suffix, y->suffix);
}

bool ck_numbered_same(const char *a, const char *b)
{
	struct ck_numbered x, y;

	return ck_numbered_is(a, &x) && ck_numbered_is(b, &y) &&
	       same(a, &x, b, &y);
}

bool ck_numbered_next(const char *a, const char *b)
{
	struct ck_numbered x, y;

	return ck_numbered_is(a, &x) && ck_numbered_is(b, &y) &&
	       same(a, &x, b, &y) &&
	       (x.part || (x.stage == y.stage && y.k == x.k + 1 &&
			   (!y.of || y.k <= y.of)));
}

/* Those of the same stage that are there, and all by their numbers. */
static void count(const char *const *name, size_t nr, size_t i,
		  const struct ck_numbered *one, unsigned *have, unsigned *all)
{
	struct ck_numbered n;
	unsigned most = 0, least = 1;

	*have = 0;
	for (size_t k = 0; k < nr; k++) {
		if (one->part && !strcmp(ck_base_name(name[k]), PARTS_REST))
			least = 0;
		if (!ck_numbered_is(name[k], &n) ||
		    !same(name[i], one, name[k], &n) || n.stage != one->stage)
			continue;
		*have += !one->of || (n.k && n.k <= one->of);
		most = CK_MAX(most, n.k);
		least = CK_MIN(least, n.k);
	}
	*all = one->of ? one->of : most + 1 - least;
}

/* Stages are counted from 0 or from 1. */
static bool lacks_stage(const char *const *name, size_t nr, size_t i,
			const struct ck_numbered *one)
{
	struct ck_numbered n;

	for (size_t k = 0; k < nr && one->stage > 1; k++)
		if (ck_numbered_is(name[k], &n) &&
		    same(name[i], one, name[k], &n) &&
		    n.stage == one->stage - 1)
			return false;
	return one->stage > 1;
}

int ck_numbered_check(const char *const *name, size_t nr, size_t i,
		      const char *index, struct ck_err *err)
{
	struct ck_numbered one;
	unsigned have, all;

	if (!ck_numbered_is(name[i], &one))
		return 0;
	if (lacks_stage(name, nr, i, &one))
		return ck_fail(err, EINVAL,
			       "%s: no file of stage %u is there and no index "
			       "(*%s) says what it held",
			       name[i], one.stage - 1, index);
	count(name, nr, i, &one, &have, &all);
	/* of a number past the total there is no set either */
	if (have == all && (!one.of || (one.k && one.k <= one.of)))
		return 0;
	if (one.part)
		return ck_fail(
			err, EINVAL,
			"%.*s*%s: %u of %u files are there and no " CK_NUMBERED_PARTS
			" says what the others hold",
			(int)one.stem, name[i], one.suffix, have, all);
	if (!one.of)
		return ck_fail(err, EINVAL,
			       "%.*s-*%s: %u of %u files are there and no "
			       "index (*%s) says what the others hold",
			       (int)one.stem, name[i], one.suffix, have, all,
			       index);
	return ck_fail(err, EINVAL,
		       "%.*s*-of-%05u%s: %u of %u files are there and no index "
		       "(*%s) says what the others hold",
		       (int)one.stem, name[i], one.of, one.suffix, have, all,
		       index);
}
