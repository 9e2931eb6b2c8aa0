/* SPDX-License-Identifier: Apache-2.0 */
/*
 * index_map.c - {"weight_map": {KEY: FILE}}, and what differs from it
 */
#include "core/assemble/index_map.h"

#include "core/base/auto.h"
#include "core/base/check.h"
#include "core/base/limits.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

bool ck_index_is(const char *name, const char *base)
{
	size_t len = strlen(name), nr = strlen(base), end = strlen(".json");

	return len >= nr + end && !memcmp(name, base, nr) &&
	       !strcmp(name + len - end, ".json") && name[nr] == '.';
}

static bool is_one(const char *name, const char *const *bases, bool *plain)
{
	for (; *bases; bases++)
		if (ck_index_is(name, *bases)) {
			*plain = strlen(name) ==
				 strlen(*bases) + strlen(".json");
			return true;
		}
	return false;
}

int ck_index_choose(const struct ck_dir *dir, const struct ck_dir_list *l,
		    const char *const *bases, const char **name,
		    struct ck_err *err)
{
	const char *want = ck_opts_get(dir->opts, "file");
	const char *found[2] = { NULL }, *plain[2] = { NULL };
	bool is_plain;

	*name = NULL;
	for (size_t i = 0; i < l->nr; i++) {
		const char *one = l->v[i].name;

		if (l->v[i].is_dir || !is_one(one, bases, &is_plain))
			continue;
		if (want && !strcmp(want, one)) {
			ck_opts_use(dir->opts, "file");
			*name = one;
			return 0;
		}
		found[found[0] != NULL] = one;
		if (is_plain)
			plain[plain[0] != NULL] = one;
	}
	if (!found[0] || want)
		return 0;
	*name = !found[1] ? found[0] : plain[0];
	if (*name && (!found[1] || !plain[1]))
		return 0;
	return ck_fail(err, EINVAL,
		       "%s: two indexes, %s and %s: -o file= says which is "
		       "read",
		       dir->path, plain[1] ? plain[0] : found[0],
		       plain[1] ? plain[1] : found[1]);
}

int ck_index_note_others(const char *name, const struct ck_dir_list *l,
			 const char *const *bases, struct ck_builder *b,
			 struct ck_err *err)
{
	bool plain;
	int ret = 0;

	for (size_t i = 0; !ret && i < l->nr; i++) {
		const char *one = l->v[i].name;

		if (!l->v[i].is_dir && is_one(one, bases, &plain) &&
		    strcmp(one, name) != 0)
			ret = ck_builder_report_file(
				b, CK_NOTE, one, err,
				"left aside: another index; "
				"-o file=%s reads it",
				one);
	}
	return ret;
}

static int add_file(struct ck_index_map *m, const char *file, uint32_t *nr,
		    struct ck_err *err)
{
	struct ck_index_file *f;

	*nr = ck_strmap_put(&m->files, file, strlen(file));
	if (*nr == CK_STRMAP_NONE)
		return ck_no_memory(err);
	if (*nr < m->file.nr)
		return 0;
	f = ck_vec_push(&m->file);
	if (!f)
		return ck_no_memory(err);
	*f = (struct ck_index_file){ 0 };
	return 0;
}

static int take_entry(struct ck_index_map *m, const char *key, size_t len,
		      const json_t *file, struct ck_err *err)
{
	const char *name = json_string_value(file);
	struct ck_index_key *k;
	uint32_t nr;
	int ret;

	if (!name || strlen(name) != json_string_length(file) ||
	    !ck_dir_name_ok(name, strlen(name)))
		return ck_fail(err, EINVAL,
			       "%s: weight_map: %.100s: expected the name of a "
			       "file in the folder",
			       m->name, key);
	ret = add_file(m, name, &nr, err);
	if (ret)
		return ret;
	k = ck_vec_push(&m->key);
	if (!k || ck_strmap_put(&m->keys, key, len) == CK_STRMAP_NONE)
		return ck_no_memory(err);
	*k = (struct ck_index_key){ .file = nr, .other = CK_STRMAP_NONE };
	return 0;
}

int ck_index_read(struct ck_index_map *m, const struct ck_dir *dir,
		  const char *name, struct ck_err *err)
{
	ck_auto_free char *text = NULL;
	const char *key;
	json_t *file;
	size_t len;
	int ret;

	*m = (struct ck_index_map){ .name = strdup(name) };
	if (!m->name)
		return ck_no_memory(err);
	ret = ck_dir_slurp(dir, name, CK_MAX_HEADER, &text, &len, err);
	if (!ret)
		ret = ck_json_parse(&m->json, text, len, err);
	if (ret)
		return ck_wrap(err, ret, "%s", name);
	m->map = json_object_get(m->json, "weight_map");
	if (!json_is_object(m->map))
		return ck_fail(err, EINVAL,
			       "%s: expected an object \"weight_map\"", name);
	json_object_keylen_foreach(m->map, key, len, file)
	{
		ret = take_entry(m, key, len, file, err);
		if (ret)
			return ret;
	}
	return 0;
}

void ck_index_free(struct ck_index_map *m)
{
	ck_arena_free(&m->mem);
	free(m->loose_file.v);
	free(m->file.v);
	free(m->key.v);
	ck_strmap_free(&m->loose);
	ck_strmap_free(&m->keys);
	ck_strmap_free(&m->files);
	json_decref(m->json);
	free(m->name);
	*m = (struct ck_index_map){ 0 };
}

static int count(struct ck_index_map *m, uint32_t *nr, const char **first,
		 const char *key, size_t len, struct ck_err *err)
{
	if (!(*nr)++)
		*first = ck_arena_copy(&m->mem, key, CK_MIN(len, (size_t)100));
	return *first ? 0 : ck_no_memory(err);
}

/* A key that no list has: the number of the first file that has it. */
static int loose(struct ck_index_map *m, uint32_t file, const char *key,
		 size_t len, uint32_t *first, struct ck_err *err)
{
	uint32_t at = ck_strmap_keep(&m->loose, &m->mem, key, len);

	if (at == CK_STRMAP_NONE || !ck_vec_reserve(&m->loose_file, 1))
		return ck_no_memory(err);
	if (at == m->loose_file.nr)
		m->loose_file.v[m->loose_file.nr++] = file;
	*first = m->loose_file.v[at];
	return 0;
}

/* Nothing but this file has it, though the index says another. */
static bool is_only_here(const struct ck_index_map *m,
			 const struct ck_index_key *k, uint32_t file)
{
	return file < m->file.nr && !k->seen && !k->others &&
	       k->other == file && m->file.v[k->file].usable;
}

static bool is_to_be_read_again(const struct ck_index_map *m, uint32_t file)
{
	for (size_t i = 0; i < m->key.nr; i++)
		if (is_only_here(m, &m->key.v[i], file))
			return true;
	return false;
}

static int report_other(struct ck_index_map *m, uint32_t file,
			struct ck_index_key *k, const char *key, size_t len,
			struct ck_err *err)
{
	struct ck_index_file *f = &m->file.v[file];
	int ret = count(m, &f->nr_other, &f->other, key, len, err);

	if (k->other == CK_STRMAP_NONE)
		k->other = file;
	k->others |= k->other != file;
	return ret ? ret : CK_INDEX_LEAVE;
}

int ck_index_say(struct ck_index_map *m, uint32_t file, const char *key,
		 size_t len, struct ck_err *err)
{
	struct ck_index_file *f = &m->file.v[file];
	uint32_t at = ck_strmap_get(&m->keys, key, len), first = file;
	struct ck_index_key *k = at == CK_STRMAP_NONE ? NULL : &m->key.v[at];
	int ret;

	if (m->again)
		return k && is_only_here(m, k, file) ? CK_INDEX_TAKE :
						       CK_INDEX_LEAVE;
	if (k && k->file != file)
		return report_other(m, file, k, key, len, err);
	if (k) {
		k->seen = f->own = true;
		return CK_INDEX_TAKE;
	}
	ret = count(m, &f->nr_extra, &f->extra, key, len, err);
	if (!ret)
		ret = loose(m, file, key, len, &first, err);
	return ret ? ret : first == file ? CK_INDEX_TAKE : CK_INDEX_TWICE;
}

static int report_file(const struct ck_index_map *m, uint32_t nr,
		       const char *what, struct ck_builder *b,
		       struct ck_err *err)
{
	const struct ck_index_file *f = &m->file.v[nr];
	int ret = 0;

	if (f->nr_extra)
		ret = ck_builder_report_file(
			b, CK_WARNING, m->files.v[nr].s, err,
			"%s does not list all that it has: "
			"%s %s is the first of %" PRIu32,
			m->name, what, f->extra, f->nr_extra);
	if (!ret && f->nr_other)
		ret = ck_builder_report_file(
			b, CK_WARNING, m->files.v[nr].s, err,
			"%s puts into another file what it "
			"has too: %s %s is the first of "
			"%" PRIu32,
			m->name, what, f->other, f->nr_other);
	return ret;
}

/* Another file in its place, rather than a list with a stale name in it. */
static bool is_another(const struct ck_index_file *f)
{
	return !f->own && (!f->may_lack || f->nr_extra || f->nr_other);
}

static int report_key(const struct ck_index_map *m, uint32_t nr,
		      struct ck_builder *b, struct ck_err *err)
{
	const struct ck_index_file *f = &m->file.v[m->key.v[nr].file];
	const struct ck_strmap_key *k = &m->keys.v[nr];
	const char *file = m->files.v[m->key.v[nr].file].s;
	bool lacks = f->may_lack && m->key.v[nr].other == CK_STRMAP_NONE;

	if (!f->usable)
		return ck_builder_refuse(b, 0, k->s, k->len, err,
					 "%s is missing or damaged: nothing "
					 "else tells shape and bytes",
					 file);
	if (is_only_here(m, &m->key.v[nr], m->key.v[nr].other))
		return ck_builder_report_tensor(
			b, lacks ? CK_NOTE : CK_WARNING, k->s, k->len, m->name,
			err, "the index says %s, it is in %s", file,
			m->files.v[m->key.v[nr].other].s);
	if (is_another(f))
		return ck_builder_refuse(b, 0, k->s, k->len, err,
					 "the index says %s, which holds "
					 "nothing of what the index says of it",
					 file);
	if (!lacks)
		return ck_builder_refuse(b, 0, k->s, k->len, err,
					 "the index says %s, which does not "
					 "hold it",
					 file);
	return ck_builder_report_tensor(
		b, lacks ? CK_NOTE : CK_WARNING, k->s, k->len, m->name, err,
		"the index says %s, which does not hold it", file);
}

int ck_index_load(struct ck_index_map *m, ck_index_load_fn load, void *ctx,
		  struct ck_err *err)
{
	bool usable;
	int ret = 0;

	for (uint32_t i = 0; !ret && i < m->file.nr; i++)
		ret = load(ctx, i, m->files.v[i].s, &m->file.v[i].usable, err);
	m->again = true;
	for (uint32_t i = 0; !ret && i < m->file.nr; i++)
		if (is_to_be_read_again(m, i))
			ret = load(ctx, i, m->files.v[i].s, &usable, err);
	return ret;
}

int ck_index_report(struct ck_index_map *m, const char *what,
		    struct ck_builder *b, struct ck_err *err)
{
	int ret = 0;

	for (uint32_t i = 0; !ret && i < m->file.nr; i++)
		ret = report_file(m, i, what, b, err);
	for (uint32_t i = 0; !ret && i < m->key.nr; i++)
		if (!m->key.v[i].seen)
			ret = report_key(m, i, b, err);
	return ret;
}
