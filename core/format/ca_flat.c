/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ca_flat.c - tensors and pickles of a flat safetensors file
 */
#include "core/format/ca_flat.h"

#include "core/base/auto.h"
#include "core/base/check.h"
#include "core/format/st_file.h"
#include "core/parse/json.h"
#include "core/parse/pickle.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define STATE "state."
#define KEYS "non_tensor_keys"
#define MAX_GUESS 4096 /* bytes of a pickle that nothing says is one */
#define MAX_PICKLE (UINT64_C(64) << 20)

struct flat {
	const struct ck_dir *dir;
	struct ck_builder *b;
	struct ck_source *s;
	struct ck_st_file f;
	json_t *keys; /* names that are pickles */
	struct ck_strmap pickled; /* the same */
	bool told; /* the file says which are */
	struct ck_index_map *index;
	uint32_t file;
	struct ck_ca_joined *joined;
	size_t guessed;
	char *first_guess;
};

static int no_memory(const struct flat *l, struct ck_err *err)
{
	return ck_fail(err, ENOMEM, "%s: no memory for its names", l->f.name);
}

static int warn(const struct flat *l, struct ck_err *err, const char *what)
{
	const struct ck_problem_in odd = { .severity = CK_WARNING,
					   .file = l->f.name };

	return ck_builder_problem(l->b, &odd, err, "%s", what);
}

/* A list in JSON, in a string. */
static int read_keys(struct flat *l, struct ck_err *err)
{
	const json_t *text = json_object_get(l->f.h.metadata, KEYS);
	struct ck_err why = { 0 };
	size_t i;
	json_t *key;
	int ret;

	if (!json_is_string(text))
		return 0;
	ret = ck_json_parse(&l->keys, json_string_value(text),
			    json_string_length(text), &why);
	if (ret == -ENOMEM)
		return no_memory(l, err);
	if (ret || !json_is_array(l->keys))
		return warn(l, err,
			    KEYS " of its __metadata__ is no list in JSON");
	l->told = true;
	json_array_foreach(l->keys, i, key)
	{
		if (json_is_string(key) &&
		    ck_strmap_put(&l->pickled, json_string_value(key),
				  json_string_length(key)) == CK_STRMAP_NONE)
			return no_memory(l, err);
	}
	return 0;
}

/* Whether the bytes are exactly one pickle; -ENOMEM. */
static int is_pickle(const struct flat *l, const struct ck_st_entry *e,
		     bool *yes, struct ck_err *err)
{
	ck_auto_pickle struct ck_pickle *p = NULL;
	ck_auto_free char *bytes = NULL;
	uint64_t len = e->end - e->begin;
	struct ck_err why = { 0 };
	size_t used;
	int ret;

	*yes = false;
	if (e->why || e->dtype != CK_DT_U8 || e->rank != 1 || len < 2 ||
	    len > MAX_PICKLE || !ck_range_ok(e->begin, len, l->f.size))
		return 0;
	bytes = malloc(len);
	if (!bytes)
		return no_memory(l, err);
	ret = ck_source_read(l->s, bytes, len, e->begin, &why);
	if (ret || bytes[0] != '\x80')
		return ret == -ENOMEM ? no_memory(l, err) : 0;
	ret = ck_pickle_parse(&p, bytes, len, NULL, &used, &why);
	*yes = !ret && used == len;
	return ret == -ENOMEM ? no_memory(l, err) : 0;
}

static int add_object(const struct flat *l, const struct ck_st_entry *e,
		      struct ck_err *err)
{
	const struct ck_object_in o = { .name = e->name,
					.name_len = e->name_len,
					.src = l->f.src,
					.enc = CK_ENC_PICKLE,
					.off = e->begin,
					.len = e->end - e->begin };

	return ck_builder_object(l->b, &o, err);
}

/* Nothing says that it is a pickle, but it is one from end to end. */
static int guess(struct flat *l, const struct ck_st_entry *e, bool *yes,
		 struct ck_err *err)
{
	int ret = 0;

	*yes = false;
	if (e->end - e->begin <= MAX_GUESS)
		ret = is_pickle(l, e, yes, err);
	if (ret || !*yes || l->guessed++)
		return ret;
	l->first_guess = strndup(e->name, CK_MIN(e->name_len, (size_t)100));
	return l->first_guess ? 0 : no_memory(l, err);
}

/* @e has the name that is shown, @as the one that the file knows it by. */
static int add_entry(struct flat *l, const struct ck_st_entry *e,
		     const struct ck_st_entry *as, struct ck_err *err)
{
	const struct ck_problem_in odd = { .severity = CK_WARNING,
					   .tensor = e->name,
					   .tensor_len = e->name_len,
					   .file = l->f.name };
	bool listed = ck_strmap_get(&l->pickled, as->name, as->name_len) !=
		      CK_STRMAP_NONE;
	bool yes = false;
	int ret = 0;

	if (listed)
		ret = is_pickle(l, as, &yes, err);
	else if (!l->told && as->dtype == CK_DT_U8)
		ret = guess(l, e, &yes, err);
	if (!ret && listed && !yes)
		ret = ck_builder_problem(l->b, &odd, err,
					 KEYS " lists it, but it is no pickle: "
					      "shown as its bytes are");
	if (ret)
		return ret;
	if (yes)
		return add_object(l, e, err);
	ret = ck_ca_joined_see(l->joined, e->name, e->name_len,
			       ck_st_file_shape(&l->f, e), e->rank, err);
	return ret ? ret : ck_st_file_add(&l->f, e, NULL, NULL, l->b, err);
}

/* What the index says of the entry 7.exp_avg: it knows "7". */
static int ask(const struct flat *l, const struct ck_st_entry *e,
	       struct ck_err *err)
{
	const char *dot = memchr(e->name, '.', e->name_len);

	return l->index && dot ? ck_index_say(l->index, l->file, e->name,
					      (size_t)(dot - e->name), err) :
				 CK_INDEX_TAKE;
}

static int take(struct flat *l, const struct ck_st_entry *e, struct ck_err *err)
{
	struct ck_st_entry shown = *e;
	size_t skip = strlen(STATE);
	int said = CK_INDEX_TAKE;

	if (e->name_len > skip && !memcmp(e->name, STATE, skip)) {
		shown.name += skip;
		shown.name_len -= skip;
		said = ask(l, &shown, err);
	}
	if (said == CK_INDEX_TWICE)
		return ck_builder_refuse(l->b, 0, shown.name, shown.name_len,
					 err,
					 "%s: another file has it too, and %s "
					 "lists neither",
					 l->f.name, l->index->name);
	return said <= 0 ? said : add_entry(l, &shown, e, err);
}

static int take_all(struct flat *l, struct ck_err *err)
{
	const struct ck_problem_in note = { .severity = CK_NOTE,
					    .file = l->f.name };
	int ret = read_keys(l, err);

	for (size_t i = 0; !ret && i < l->f.tensors.nr; i++)
		ret = take(l, &l->f.tensors.v[i], err);
	if (ret || !l->guessed)
		return ret;
	return ck_builder_problem(
		l->b, &note, err,
		"it does not say what is no tensor (0.4.7 did "
		"not): %s is taken for a pickle, as its bytes "
		"are one, %zu in all",
		l->first_guess, l->guessed);
}

static void flat_free(struct flat *l)
{
	ck_source_close(l->s);
	ck_st_file_free(&l->f);
	ck_strmap_free(&l->pickled);
	json_decref(l->keys);
	free(l->first_guess);
}

int ck_ca_flat_load(const struct ck_dir *dir, const char *name,
		    struct ck_index_map *index, uint32_t file, bool *usable,
		    struct ck_ca_joined *joined, struct ck_builder *b,
		    struct ck_err *err)
{
	__attribute__((cleanup(flat_free))) struct flat l = { .dir = dir,
							      .b = b,
							      .index = index,
							      .file = file,
							      .joined =
								      joined };
	const struct ck_problem_in bad = { .severity = CK_ERROR, .file = name };
	struct ck_err why = { 0 };
	uint32_t src;
	int ret = ck_dir_source(dir, b, name, &src, &l.s, err);

	*usable = false;
	if (ret || !l.s)
		return ret;
	ret = ck_st_file_read(&l.f, name, src, l.s, 0, &why);
	if (ret == -EINVAL && index)
		return ck_builder_problem(b, &bad, err, "%s", why.msg);
	if (ret)
		return ck_fail(err, -ret, "%s", why.msg);
	*usable = true;
	ret = ck_st_file_say_tail(&l.f, b, err);
	return ret ? ret : take_all(&l, err);
}
