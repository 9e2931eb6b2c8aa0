/* SPDX-License-Identifier: Apache-2.0 */
/*
 * names.c - what names say of ranks and saves
 *
 *   rank_3/ node3/                of rank 3
 *   device_3/ npu3/ ..            of rank 3, if MindSpore's files are in it
 *   3/ ckpt_3/                    of rank 3, or of a save
 *   CKP-4_32_part1.ckpt           of the save CKP-4_32.ckpt: epoch 4, step 32
 *   net_3.ckpt in rank_3/         of the save net_3.ckpt, or of net_{r}.ckpt
 */
#include "core/format/mindspore/mindspore.h"

#include "core/base/auto.h"
#include "core/base/check.h"
#include "core/base/str.h"
#include "core/base/suffix.h"

#include <stdio.h>
#include <stdlib.h>

#define MAX_RANK 1000000
#define MAX_NAME 200

/* The first of these that a number follows says what that number is. */
static const struct {
	const char *text;
	enum mindspore_word word;
} words[] = {
	{ "rank", MINDSPORE_RANK },	  { "node", MINDSPORE_RANK },
	{ "device", MINDSPORE_DEVICE },	  { "npu", MINDSPORE_DEVICE },
	{ "gpu", MINDSPORE_DEVICE },	  { "card", MINDSPORE_DEVICE },
	{ "worker", MINDSPORE_DEVICE },	  { "process", MINDSPORE_DEVICE },
	{ "parallel", MINDSPORE_DEVICE },
};

/* What a number beside these counts is no rank. */
static const char *const counts[] = { "step",  "epoch", "iter",	  "stage",
				      "run",   "seed",	"exp",	  "fold",
				      "trial", "save",	"version" };

static bool is_digit(char c)
{
	return isdigit((unsigned char)c);
}

/* ---- the number of a rank ---- */

/* "-4_32": the epoch and the step of a save, which "rank-4_32" may end in. */
static bool is_epoch(const char *digits)
{
	while (is_digit(*digits))
		digits++;
	return digits[0] == '_' && is_digit(digits[1]);
}

/* The last number that follows @word. */
static const char *after_word(const char *base, const char *word)
{
	const char *at = base, *found = NULL;

	while ((at = strcasestr(at, word))) {
		at += strlen(word);
		if (is_digit(at[*at == '_']))
			found = at + (*at == '_');
		else if (*at == '-' && is_digit(at[1]) && !is_epoch(at + 1))
			found = at + 1;
	}
	return found;
}

/* Whether what is before @at ends in "-4_". */
static bool ends_epoch(const char *base, size_t at)
{
	size_t digits = at ? at - 1 : 0;

	while (digits && is_digit(base[digits - 1]))
		digits--;
	return at > 2 && base[at - 1] == '_' && digits < at - 1 && digits &&
	       base[digits - 1] == '-';
}

/* The last number, unless what is before it says that it counts something. */
static const char *last_number(const char *base)
{
	size_t at, end;

	if (!ck_last_number(base, strlen(base), &at, &end) ||
	    (at == 1 && *base == 'v') || ends_epoch(base, at))
		return NULL;
	for (size_t i = 0; i < CK_ARRAY_LEN(counts); i++)
		if (strcasestr(base, counts[i]))
			return NULL;
	return base + at;
}

bool ck_mindspore_number_in(const char *name, struct mindspore_number *out)
{
	const char *base = ck_base_name(name), *digits = NULL;
	unsigned long long number;
	char *end;

	*out = (struct mindspore_number){ .word = MINDSPORE_NO_NUMBER };
	if (strlen(base) > MAX_NAME)
		return false;
	for (size_t i = 0; i < CK_ARRAY_LEN(words) && !digits; i++) {
		digits = after_word(base, words[i].text);
		out->word = words[i].word;
	}
	if (!digits) {
		digits = last_number(base);
		out->word = MINDSPORE_NUMBER;
	}
	if (!digits)
		return false;
	number = strtoull(digits, &end, 10);
	out->rank = (uint32_t)CK_MIN(number, (unsigned long long)MAX_RANK);
	out->from = (size_t)(digits - base);
	out->to = (size_t)(end - base);
	return out->rank < MAX_RANK;
}

bool ck_mindspore_folder_rank(const char *name, uint32_t *rank)
{
	struct mindspore_number n;

	if (!ck_mindspore_number_in(name, &n) || n.word < MINDSPORE_DEVICE)
		return false;
	*rank = n.rank;
	return true;
}

bool ck_mindspore_same_kind(const char *a, const char *b)
{
	struct mindspore_number x, y;

	if (!ck_mindspore_number_in(a, &x) || !ck_mindspore_number_in(b, &y) ||
	    x.word != y.word || x.from != y.from)
		return false;
	a = ck_base_name(a);
	b = ck_base_name(b);
	return !memcmp(a, b, x.from) && !strcmp(a + x.to, b + y.to);
}

/* ---- the key of a save ---- */

/* Where "_part<k>" before the ending begins, and the ending. */
static size_t part_in(const char *base, size_t *end)
{
	const char *dot = strrchr(base, '.');
	size_t at;

	*end = at = dot ? (size_t)(dot - base) : strlen(base);
	while (at && is_digit(base[at - 1]))
		at--;
	return at < *end && at >= 5 && !memcmp(base + at - 5, "_part", 5) ?
		       at - 5 :
		       *end;
}

bool ck_mindspore_key(struct ck_str *out, const char *base, uint32_t rank,
		      bool numbered, size_t nth)
{
	ck_auto_str struct ck_str bare = { 0 };
	size_t end, part = part_in(base, &end);
	char *next;

	out->len = 0;
	ck_str_fmt(&bare, "%.*s%s", (int)part, base, base + end);
	out->failed |= bare.failed;
	if (out->failed)
		return true;
	if (!numbered)
		ck_str_puts(out, bare.v);
	for (char *at = bare.v; *at && numbered; at = next) {
		next = at + 1;
		if (!is_digit(*at) || strtoull(at, &next, 10) != rank || nth--)
			continue;
		ck_str_fmt(out, "%.*s{r}%s", (int)(at - bare.v), bare.v, next);
		return true;
	}
	return !numbered && !nth;
}

bool ck_mindspore_key_has(const char *key, const char *base, uint32_t rank)
{
	ck_auto_str struct ck_str own = { 0 };

	for (int numbered = 0; numbered < 2; numbered++)
		for (size_t n = 0;
		     ck_mindspore_key(&own, base, rank, numbered, n) &&
		     !own.failed;
		     n++)
			if (!strcmp(own.v, key))
				return true;
	return false;
}

bool ck_mindspore_epoch_in(const char *base, uint64_t *epoch, uint64_t *step)
{
	bool any = false;

	for (const char *at = base; (at = strchr(at, '-')); at++) {
		unsigned long long e, n;

		if (!is_digit(at[1]) ||
		    sscanf(at, "-%18llu_%18llu", &e, &n) < 2)
			continue;
		*epoch = e;
		*step = n;
		any = true;
	}
	return any;
}

/* ---- the names of one save's files ---- */

static bool is_file_of_rank(const char *name)
{
	return ck_has_suffix(name, ".ckpt") ||
	       ck_has_suffix(name, ".safetensors");
}

struct naming {
	const struct ck_dir *dir;
	const char *key;
	int (*fn)(void *ctx, const char *folder, const char *base);
	void *ctx;
};

/* What the file of @rank is called, and its first part. */
static int name_both(const struct naming *n, const char *folder, uint32_t rank,
		     struct ck_err *err)
{
	static const char *const parts[] = { "", "_part0" };
	const char *dot = strrchr(n->key, '.'), *open = strstr(n->key, "{r}");
	const char *before = open ? open : dot, *after = open ? open + 3 : dot;
	char number[16] = "";
	int ret = 0;

	if (open)
		snprintf(number, sizeof(number), "%u", rank);
	for (size_t i = 0; i < CK_ARRAY_LEN(parts) && !ret; i++) {
		ck_auto_str struct ck_str base = { 0 };

		ck_str_fmt(&base, "%.*s%s%.*s%s%s", (int)(before - n->key),
			   n->key, number, (int)(dot - after), after, parts[i],
			   dot);
		ret = base.failed ? ck_no_memory(err) :
				    n->fn(n->ctx, folder, base.v);
	}
	return ret;
}

static int name_below(const struct naming *n, const char *folder, uint32_t rank,
		      struct ck_err *err)
{
	ck_auto_dir_list struct ck_dir_list l = { 0 };
	int ret = ck_dir_list(n->dir, folder, &l, err);

	for (size_t i = 0; i < l.nr && !ret; i++) {
		uint32_t own = rank;

		ck_mindspore_folder_rank(l.v[i].name, &own);
		if (l.v[i].is_dir)
			ret = name_both(n, l.v[i].name, own, err);
	}
	return ret;
}

/* Whether the files of ranks lie in folders of those of ranks. */
static bool are_deep(const struct ck_dir *dir, const char *folder)
{
	ck_auto_dir_list struct ck_dir_list l = { 0 };

	if (ck_dir_list(dir, folder, &l, NULL))
		return false;
	for (size_t i = 0; i < l.nr; i++)
		if (!l.v[i].is_dir && is_file_of_rank(l.v[i].name))
			return false;
	return l.nr;
}

int ck_mindspore_save_each(const struct ck_dir *dir, const char *in,
			   const char *key,
			   int (*fn)(void *ctx, const char *folder,
				     const char *base),
			   void *ctx, struct ck_err *err)
{
	const struct naming n = { dir, key, fn, ctx };
	ck_auto_dir_list struct ck_dir_list list = { 0 };
	bool known = false, deep = false;
	uint32_t rank;
	int ret;

	if (!is_file_of_rank(key))
		return 0;
	ret = ck_dir_list(dir, in, &list, err);
	for (size_t i = 0; i < list.nr && !ret; i++) {
		const char *folder = list.v[i].name;

		if (!list.v[i].is_dir ||
		    !ck_mindspore_folder_rank(folder, &rank))
			continue;
		deep = known ? deep : are_deep(dir, folder);
		known = true;
		ret = deep ? name_below(&n, folder, rank, err) :
			     name_both(&n, folder, rank, err);
	}
	return ret;
}

/* The rank of whose files @path is: rank_0/net.ckpt, rank_0/ckpt/net.ckpt. */
static bool rank_of_path(const char *path, uint32_t *rank)
{
	ck_auto_free char *folder = strdup(path);
	bool any = false;

	for (unsigned depth = 0; folder && depth < 2; depth++) {
		char *slash = strrchr(folder, '/');

		if (!slash)
			break;
		*slash = '\0';
		any = ck_mindspore_folder_rank(folder, rank);
		if (any)
			return !strchr(folder, '/') || depth == 0;
	}
	return any;
}

bool ck_mindspore_save_hides(const char *key, const char *path)
{
	uint32_t rank;

	return is_file_of_rank(path) && rank_of_path(path, &rank) &&
	       !ck_mindspore_key_has(key, ck_base_name(path), rank);
}
