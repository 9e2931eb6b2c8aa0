/* SPDX-License-Identifier: Apache-2.0 */
/*
 * builder_items.c - names: who has one, which are refused, objects, paths
 */
#include "core/catalog/builder_priv.h"

#include <stdio.h>
#include <xxhash.h>

/* Of a name that is refused for its length, this much is shown. */
#define SHOWN_NAME 200

struct entry_key {
	const char *name;
	size_t len;
	uint32_t tree;
};

static bool entry_equal(const void *ctx, uint32_t index, const void *key)
{
	const struct ck_builder *b = ctx;
	const struct entry_key *k = key;
	const struct ck_entry *e = &b->entries.v[index];
	size_t len;
	const char *name = ck_intern_text(&b->in, e->name, &len);

	return e->tree == k->tree && len == k->len &&
	       !memcmp(name, k->name, len);
}

static uint64_t hash_of(const struct ck_builder *b, const struct entry_key *k)
{
	return XXH3_64bits_withSeed(k->name, k->len, b->in.seed + k->tree);
}

uint32_t ck_builder_lookup(const struct ck_builder *b, uint32_t tree,
			   const char *name, size_t len)
{
	const struct entry_key key = { len ? name : "", len, tree };

	if (b->last_entry != CK_NONE && entry_equal(b, b->last_entry, &key))
		return b->last_entry;
	return ck_table_find(&b->entry_tab, hash_of(b, &key), entry_equal, b,
			     &key);
}

static int add_entry(struct ck_builder *b, const struct entry_key *k,
		     uint64_t hash, uint32_t *index, struct ck_err *err)
{
	struct ck_entry e = { .tree = k->tree,
			      .path = CK_NONE,
			      .first = CK_NONE,
			      .last = CK_NONE };
	int ret;

	if (b->entries.nr >= CK_MAX_TENSORS)
		return ck_fail(err, E2BIG, "more than %u tensors",
			       CK_MAX_TENSORS);
	if (k->tree >= b->trees.nr)
		return ck_fail(err, EINVAL, "no tree %u", k->tree);
	ret = ck_intern_str(&b->in, k->name, k->len, &e.name, err);
	if (ret)
		return ret;
	*index = (uint32_t)b->entries.nr;
	return ck_table_put(&b->entry_tab, hash, *index) ?
		       ck_vec_put(&b->entries, err, e) :
		       ck_no_memory(err);
}

int ck_builder_entry(struct ck_builder *b, uint32_t tree, const char *name,
		     size_t len, uint32_t *index, struct ck_err *err)
{
	const struct entry_key key = { len ? name : "", len, tree };

	*index = ck_builder_lookup(b, tree, name, len);
	if (*index != CK_NONE)
		return 0;
	return add_entry(b, &key, hash_of(b, &key), index, err);
}

int ck_entry_refuse(struct ck_builder *b, struct ck_entry *e,
		    const char *reason, struct ck_err *err)
{
	const struct ck_problem at = { .severity = CK_ERROR,
				       .tensor = e->name,
				       .view = CK_NONE,
				       .file = CK_NONE };

	if (e->flags & CK_ENTRY_REFUSED)
		return 0;
	e->flags |= CK_ENTRY_REFUSED;
	return ck_builder_report(b, &at, err, "%s", reason);
}

int ck_builder_refuse(struct ck_builder *b, uint32_t tree, const char *name,
		      size_t name_len, struct ck_err *err, const char *fmt, ...)
{
	char reason[CK_ERR_MAX];
	uint32_t index;
	va_list ap;
	int ret;

	va_start(ap, fmt);
	vsnprintf(reason, sizeof(reason), fmt, ap);
	va_end(ap);
	if (name_len > CK_MAX_NAME) {
		const struct ck_problem_in at = { .severity = CK_ERROR,
						  .tensor = name,
						  .tensor_len = SHOWN_NAME };
		return ck_builder_problem(b, &at, err, "%s", reason);
	}
	ret = ck_builder_entry(b, tree, name, name_len, &index, err);
	if (ret)
		return ret;
	return ck_entry_refuse(b, &b->entries.v[index], reason, err);
}

/* Why an object is left out, or NULL. */
static const char *object_fault(const struct ck_builder *b,
				const struct ck_object_in *o)
{
	uint64_t end;

	if (o->name_len > CK_MAX_NAME)
		return "its name is longer than 64 KiB";
	if (o->name_len && memchr(o->name, 0, o->name_len))
		return "its name has a NUL byte in it";
	if (o->tree >= b->trees.nr || o->src >= b->srcs.nr ||
	    o->enc > CK_ENC_JSON)
		return "it is described wrongly";
	if (!ck_add_ok(o->off, o->len, &end))
		return "its bytes end past 2^62";
	if (b->srcs.v[o->src].kind == CK_SRC_MEM && end > b->srcs.v[o->src].len)
		return "its bytes end past those kept for it";
	return NULL;
}

static int report_of_object(struct ck_builder *b, const struct ck_object_in *o,
			    const char *reason, struct ck_err *err)
{
	struct ck_problem at = { .severity = CK_ERROR,
				 .off = o->off,
				 .len = o->len,
				 .view = CK_NONE,
				 .file = CK_NONE };
	int ret =
		ck_intern_str(&b->in, o->name, CK_MIN(o->name_len, SHOWN_NAME),
			      &at.tensor, err);

	if (o->src < b->srcs.nr)
		at.file = ck_srcs_file(b->srcs.v, o->src);
	return ret ? ret : ck_builder_report(b, &at, err, "%s", reason);
}

int ck_builder_object(struct ck_builder *b, const struct ck_object_in *o,
		      struct ck_err *err)
{
	struct ck_object out = { .off = o->off,
				 .len = o->len,
				 .tree = o->tree,
				 .path = CK_NONE,
				 .src = o->src,
				 .enc = o->enc };
	const char *fault = object_fault(b, o);
	int ret;

	if (fault)
		return report_of_object(b, o, fault, err);
	if (b->objects.nr >= CK_MAX_TENSORS)
		return ck_fail(err, E2BIG, "more than %u objects",
			       CK_MAX_TENSORS);
	ret = ck_intern_str(&b->in, o->name, o->name_len, &out.name, err);
	if (!ret)
		ret = ck_vec_put(&b->objects, err, out);
	if (!ret && b->srcs.v[o->src].kind == CK_SRC_FILE &&
	    o->off + o->len > b->srcs.v[o->src].len)
		return report_of_object(
			b, o, "it ends past the end of the file", err);
	return ret;
}

static int intern_part(struct ck_builder *b, const struct ck_path_part *p,
		       uint64_t *out, struct ck_err *err)
{
	uint32_t ref;
	int ret;

	if (p->index >= 0) {
		*out = (uint64_t)p->index;
		return 0;
	}
	if (p->key_len > CK_MAX_NAME)
		return ck_fail(err, EINVAL, "a key has %zu bytes", p->key_len);
	ret = ck_intern_str(&b->in, p->key, p->key_len, &ref, err);
	*out = CK_PATH_STR | ref;
	return ret;
}

int ck_builder_path(struct ck_builder *b, uint32_t tree, const char *name,
		    size_t name_len, const struct ck_path_part *parts,
		    unsigned nr, struct ck_err *err)
{
	uint64_t v[CK_MAX_JSON_DEPTH + 1];
	uint32_t index;
	int ret;

	if (name_len > CK_MAX_NAME)
		return 0; /* the tensor itself is refused for it */
	if (nr > CK_MAX_JSON_DEPTH)
		return ck_fail(err, EINVAL, "a path of %u parts", nr);
	v[0] = nr;
	for (unsigned i = 0; i < nr; i++) {
		ret = intern_part(b, &parts[i], &v[i + 1], err);
		if (ret)
			return ret;
	}
	ret = ck_builder_entry(b, tree, name, name_len, &index, err);
	if (ret)
		return ret;
	return ck_intern_dims(&b->in, v, nr + 1, &b->entries.v[index].path,
			      err);
}

int ck_builder_save(struct ck_builder *b, const char *id, size_t len,
		    const char *to, size_t to_len, struct ck_err *err)
{
	int ret = ck_intern_str(&b->in, id, len, &b->save, err);

	return ret ? ret : ck_intern_str(&b->in, to, to_len, &b->saved_to, err);
}

int ck_builder_order(struct ck_builder *b, uint32_t tree, const char *name,
		     size_t name_len, uint32_t order, struct ck_err *err)
{
	uint32_t index;
	int ret;

	if (name_len > CK_MAX_NAME)
		return 0;
	ret = ck_builder_entry(b, tree, name, name_len, &index, err);
	if (!ret)
		b->entries.v[index].order = order;
	return ret;
}
