/* SPDX-License-Identifier: Apache-2.0 */
/*
 * flat.c - tensors and pickles of a flat safetensors file
 */
#include "core/format/colossalai/colossalai.h"

#include "core/base/auto.h"
#include "core/base/check.h"
#include "core/container/container.h"
#include "core/optim/groups.h"
#include "core/container/st_file.h"
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
	struct colossalai_joined *joined;
	size_t guessed;
	char *first_guess;
};

static int warn(const struct flat *l, struct ck_err *err, const char *what)
{

	return ck_builder_report_file(l->b, CK_WARNING, l->f.name, err, "%s",
				      what);
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
		return ck_no_memory(err);
	if (ret || !json_is_array(l->keys))
		return warn(l, err,
			    KEYS " of its __metadata__ is no list in JSON");
	l->told = true;
	json_array_foreach(l->keys, i, key)
	{
		if (json_is_string(key) &&
		    ck_strmap_put(&l->pickled, json_string_value(key),
				  json_string_length(key)) == CK_STRMAP_NONE)
			return ck_no_memory(err);
	}
	return 0;
}

/* One pickle in the file, and its bytes. */
struct pickled {
	char *bytes;
	struct ck_pickle *p; /* NULL: it is none */
};

static void pickled_free(struct pickled *p)
{
	ck_pickle_free(p->p);
	free(p->bytes);
}
#define auto_pickled __attribute__((cleanup(pickled_free)))

/* Where the bytes are exactly one pickle; -ENOMEM. */
static int read_pickle(const struct flat *l, const struct ck_st_entry *e,
		       struct pickled *out, struct ck_err *err)
{
	uint64_t len = e->end - e->begin;
	struct ck_err why = { 0 };
	size_t used;
	int ret;

	if (e->why || e->dtype != CK_DT_U8 || e->rank != 1 || len < 2 ||
	    len > MAX_PICKLE || !ck_range_ok(e->begin, len, l->f.size))
		return 0;
	out->bytes = malloc(len);
	if (!out->bytes)
		return ck_no_memory(err);
	ret = ck_source_read(l->s, out->bytes, len, e->begin, &why);
	if (ret || out->bytes[0] != '\x80')
		return ret == -ENOMEM ? ck_no_memory(err) : 0;
	ret = ck_pickle_parse(&out->p, out->bytes, len, NULL, &used, &why);
	if (!ret && used != len) {
		ck_pickle_free(out->p);
		out->p = NULL;
	}
	return ret == -ENOMEM ? ck_no_memory(err) : 0;
}

static int is_pickle(const struct flat *l, const struct ck_st_entry *e,
		     bool *yes, struct ck_err *err)
{
	auto_pickled struct pickled one = { 0 };
	int ret = read_pickle(l, e, &one, err);

	*yes = one.p;
	return ret;
}

/* 7.exp_avg is below state, whether it is in a file of states alone or not. */
static int add_path(const struct flat *l, const struct ck_st_entry *e,
		    struct ck_err *err)
{
	const struct ck_optim_groups g = { .b = l->b };
	uint64_t id;
	size_t at = ck_colossalai_state_id(e->name, e->name_len, &id) + 1;

	return at > 1 && at < e->name_len ?
		       ck_optim_state_path(&g, e->name, e->name_len, id,
					   e->name + at, e->name_len - at,
					   err) :
		       0;
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
	return l->first_guess ? 0 : ck_no_memory(err);
}

/* All groups are one pickle, a list: 1 where it was shown value by value. */
static int add_groups(const struct flat *l, const struct ck_st_entry *e,
		      struct ck_err *err)
{
	const struct ck_optim_groups g = { .b = l->b };
	const struct ck_object_in in = { .src = l->f.src,
					 .enc = CK_ENC_PICKLE,
					 .off = e->begin,
					 .len = e->end - e->begin };
	auto_pickled struct pickled one = { 0 };
	int ret;

	if (e->name_len != strlen(CK_OPTIM_GROUPS) ||
	    memcmp(e->name, CK_OPTIM_GROUPS, e->name_len) != 0)
		return 0;
	ret = read_pickle(l, e, &one, err);
	if (ret || !one.p || !ck_optim_groups_ok(one.p, ck_pickle_root(one.p)))
		return ret;
	ret = ck_optim_groups_report(&g, one.p, ck_pickle_root(one.p), &in,
				     NULL, err);
	return ret ? ret : 1;
}

/* @e has the name that is shown, @as the one that the file knows it by. */
static int add_entry(struct flat *l, const struct ck_st_entry *e,
		     const struct ck_st_entry *as, struct ck_err *err)
{
	bool listed = ck_strmap_get(&l->pickled, as->name, as->name_len) !=
		      CK_STRMAP_NONE;
	bool yes = false;
	int ret = 0;

	if (listed)
		ret = is_pickle(l, as, &yes, err);
	else if (!l->told && as->dtype == CK_DT_U8)
		ret = guess(l, e, &yes, err);
	if (!ret && listed && !yes)
		ret = ck_builder_report_tensor(
			l->b, CK_WARNING, e->name, e->name_len, l->f.name, err,
			KEYS " lists it, but it is no pickle: "
			     "shown as its bytes are");
	if (!ret && yes)
		ret = add_groups(l, as, err);
	if (ret)
		return CK_MIN(ret, 0);
	ret = e->name == as->name ? 0 : add_path(l, e, err);
	if (ret || yes)
		return ret ? ret : add_object(l, e, err);
	ret = ck_colossalai_joined_see(l->joined, e->name, e->name_len,
				       ck_st_file_shape(&l->f, e), e->rank,
				       err);
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
	int ret = read_keys(l, err);

	for (size_t i = 0; !ret && i < l->f.tensors.nr; i++)
		ret = take(l, &l->f.tensors.v[i], err);
	if (ret || !l->guessed)
		return ret;
	return ck_builder_report_file(
		l->b, CK_NOTE, l->f.name, err,
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

int ck_colossalai_flat_load(const struct ck_dir *dir, const char *name,
			    struct ck_index_map *index, uint32_t file,
			    bool *usable, struct colossalai_joined *joined,
			    struct ck_builder *b, struct ck_err *err)
{
	__attribute__((cleanup(flat_free))) struct flat l = { .dir = dir,
							      .b = b,
							      .index = index,
							      .file = file,
							      .joined =
								      joined };
	struct ck_err why = { 0 };
	uint32_t src;
	int ret = ck_dir_source(dir, b, name, &src, &l.s, err);

	*usable = false;
	if (ret || !l.s)
		return ret;
	ret = ck_st_file_read(&l.f, name, src, l.s, 0, &why);
	if (ret == -EINVAL && index)
		return ck_builder_report_file(b, CK_ERROR, name, err, "%s",
					      why.msg);
	if (ret)
		return ck_fail(err, -ret, "%s", why.msg);
	*usable = true;
	ret = ck_st_file_say_faults(&l.f, b, err);
	return ret ? ret : take_all(&l, err);
}
