/* SPDX-License-Identifier: Apache-2.0 */
/*
 * builder.c - what a catalog has beside its parts: sources, trees, problems
 */
#include "core/catalog/builder_priv.h"

#include <stdio.h>
#include <sys/stat.h>
#include <xxhash.h>

#define BLOB_ALIGN 16

struct ck_builder *ck_builder_new(struct ck_err *err)
{
	/* reallocarray, as everywhere here: tests make it fail */
	struct ck_builder *b = reallocarray(NULL, 1, sizeof(*b));
	uint32_t tree;

	if (!b) {
		ck_no_memory(err);
		return NULL;
	}
	*b = (struct ck_builder){ .last_entry = CK_NONE };
	/* where the loader put us; nothing that is written depends on it */
	b->in.seed =
		(uint64_t)(uintptr_t)b ^ (uint64_t)(uintptr_t)&ck_builder_new;
	/* shapes of no dimensions are pointed into, too */
	if ((!ck_vec_reserve(&b->in.dims, 1) && ck_no_memory(err)) ||
	    ck_builder_tree(b, "", 0, &tree, err)) {
		ck_builder_free(b);
		return NULL;
	}
	return b;
}

void ck_builder_free(struct ck_builder *b)
{
	if (!b)
		return;
	ck_intern_free(&b->in);
	free(b->entries.v);
	free(b->parts.v);
	free(b->srcs.v);
	free(b->indexes.v);
	free(b->objects.v);
	free(b->problems.v);
	free(b->trees.v);
	free(b->blob.v);
	free(b->last_copy.bytes);
	free(b->duplicates.v.v);
	ck_table_free(&b->entry_tab);
	ck_table_free(&b->src_tab);
	free(b);
}

int ck_builder_tree(struct ck_builder *b, const char *name, size_t name_len,
		    uint32_t *tree, struct ck_err *err)
{
	uint32_t ref;
	int ret;

	if (name_len > CK_MAX_NAME)
		return ck_fail(err, EINVAL, "a tree's name has %zu bytes",
			       name_len);
	ret = ck_intern_str(&b->in, name, name_len, &ref, err);
	if (ret)
		return ret;
	for (uint32_t i = 0; i < b->trees.nr; i++) {
		if (b->trees.v[i] == ref) {
			*tree = i;
			return 0;
		}
	}
	*tree = (uint32_t)b->trees.nr;
	return ck_vec_put(&b->trees, err, ref);
}

/* What makes two sources one. */
struct src_key {
	uint64_t off, len; /* 0 for files */
	uint32_t name, parent, codec, pad;
};

static struct src_key key_of(const struct ck_src *s)
{
	struct src_key k = { .name = s->name, .parent = s->parent };

	if (s->kind == CK_SRC_CODEC) {
		k.off = s->off;
		k.len = s->len;
		k.codec = s->codec;
	}
	return k;
}

static bool src_equal(const void *ctx, uint32_t index, const void *key)
{
	const struct ck_builder *b = ctx;
	struct src_key k = key_of(&b->srcs.v[index]);

	return !memcmp(&k, key, sizeof(k));
}

static int add_src(struct ck_builder *b, const struct ck_src *s, uint32_t *src,
		   bool *is_new, struct ck_err *err)
{
	const struct src_key key = key_of(s);
	uint64_t hash = XXH3_64bits_withSeed(&key, sizeof(key), b->in.seed);

	*is_new = false;
	*src = ck_table_find(&b->src_tab, hash, src_equal, b, &key);
	if (*src != CK_NONE)
		return 0;
	*src = (uint32_t)b->srcs.nr;
	if (b->srcs.nr >= CK_MAX_CHUNKS)
		return ck_fail(err, E2BIG, "more than %u sources",
			       CK_MAX_CHUNKS);
	*is_new = true;
	return ck_table_put(&b->src_tab, hash, *src) ?
		       ck_vec_put(&b->srcs, err, *s) :
		       ck_no_memory(err);
}

static void describe_file(struct ck_src *s, const struct stat *st)
{
	uint64_t size = st->st_size < 0 ? 0 : (uint64_t)st->st_size;

	s->kind = CK_SRC_FILE;
	s->state = CK_OK;
	s->mode = st->st_mode;
	s->uid = st->st_uid;
	s->gid = st->st_gid;
	s->len = CK_MIN(size, CK_SIZE_MAX);
	s->id = ck_id_of(st);
	s->id.size = s->len;
}

static int name_file(struct ck_builder *b, const char *name, struct ck_src *s,
		     struct ck_err *err)
{
	size_t len = strlen(name);

	if (len > CK_MAX_NAME)
		return ck_fail(err, EINVAL, "a file's name has %zu bytes", len);
	return ck_intern_str(&b->in, name, len, &s->name, err);
}

/* @st NULL: it is lost, for the reason @why, or because there is none. */
static int add_file(struct ck_builder *b, const char *name,
		    const struct stat *st, const char *why, uint32_t *src,
		    struct ck_err *err)
{
	struct ck_src s = { .kind = CK_SRC_ABSENT,
			    .state = CK_MISSING,
			    .parent = CK_NONE };
	struct ck_problem lost = { .severity = CK_ERROR,
				   .tensor = CK_NONE,
				   .view = CK_NONE };
	bool is_new;
	int ret = name_file(b, name, &s, err);

	if (ret)
		return ret;
	if (st)
		describe_file(&s, st);
	ret = add_src(b, &s, src, &is_new, err);
	if (ret || !is_new || st)
		return ret;
	lost.file = s.name;
	return ck_builder_report(b, &lost, err, "%s%s",
				 why ? "the file cannot be read: " :
				       "the file does not exist",
				 why ? why : "");
}

int ck_builder_file(struct ck_builder *b, const char *name,
		    const struct stat *st, uint32_t *src, struct ck_err *err)
{
	return add_file(b, name, st, NULL, src, err);
}

int ck_builder_file_lost(struct ck_builder *b, const char *name,
			 const char *why, uint32_t *src, struct ck_err *err)
{
	return add_file(b, name, NULL, why, src, err);
}

int ck_builder_read(struct ck_builder *b, const char *name,
		    const struct stat *st, struct ck_err *err)
{
	struct ck_src s = { .parent = CK_NONE };
	int ret = name_file(b, name, &s, err);

	if (ret)
		return ret;
	if (b->indexes.nr && b->indexes.v[b->indexes.nr - 1].name == s.name)
		return 0;
	describe_file(&s, st);
	return ck_vec_put(&b->indexes, err, s);
}

bool ck_builder_has_file(const struct ck_builder *b, const char *name)
{
	size_t len = strlen(name), n;

	for (size_t i = 0; i < b->srcs.nr; i++) {
		const char *s;

		if (b->srcs.v[i].kind != CK_SRC_FILE)
			continue;
		s = ck_intern_text(&b->in, b->srcs.v[i].name, &n);
		if (n == len && !memcmp(s, name, len))
			return true;
	}
	return false;
}

uint64_t ck_src_size(const struct ck_src *src)
{
	return src->kind == CK_SRC_FILE || src->kind == CK_SRC_MEM ? src->len :
								     UINT64_MAX;
}

uint32_t ck_srcs_file(const struct ck_src *srcs, uint32_t src)
{
	/* a parent always comes before its child */
	while (srcs[src].kind == CK_SRC_CODEC)
		src = srcs[src].parent;
	return srcs[src].name;
}

const char *ck_builder_src_name(const struct ck_builder *b, uint32_t src)
{
	uint32_t ref = ck_srcs_file(b->srcs.v, src);

	return ref == CK_NONE ? "the index" : ck_intern_text(&b->in, ref, NULL);
}

static int report_torn(struct ck_builder *b, const struct ck_src *s,
		       struct ck_err *err)
{
	const struct ck_problem at = {
		.severity = CK_ERROR,
		.off = s->off,
		.len = s->len,
		.tensor = CK_NONE,
		.view = CK_NONE,
		.file = ck_srcs_file(b->srcs.v, s->parent),
	};

	return ck_builder_report(
		b, &at, err, "a compressed item ends past the end of the file");
}

int ck_builder_codec(struct ck_builder *b, uint32_t parent, uint8_t codec,
		     uint64_t off, uint64_t len, uint32_t *src,
		     struct ck_err *err)
{
	struct ck_src s = { .kind = CK_SRC_CODEC,
			    .codec = codec,
			    .name = CK_NONE,
			    .parent = parent,
			    .off = off,
			    .len = len };
	uint64_t end;
	bool is_new;
	int ret;

	if (parent >= b->srcs.nr || b->srcs.v[parent].kind == CK_SRC_CODEC)
		return ck_fail(err, EINVAL, "no source that can be decoded");
	if (codec != CK_CODEC_ZSTD)
		return ck_fail(err, EINVAL, "%s: unknown codec %u",
			       ck_builder_src_name(b, parent), codec);
	if (!ck_add_ok(off, len, &end) || !len)
		return ck_fail(err, EINVAL,
			       "%s: bytes [%llu, +%llu) are no compressed item",
			       ck_builder_src_name(b, parent),
			       (unsigned long long)off,
			       (unsigned long long)len);
	s.state = b->srcs.v[parent].state;
	if (s.state == CK_OK && end > ck_src_size(&b->srcs.v[parent]))
		s.state = CK_TORN;
	ret = add_src(b, &s, src, &is_new, err);
	if (ret || !is_new || s.state != CK_TORN)
		return ret;
	return report_torn(b, &s, err);
}

int ck_builder_mem(struct ck_builder *b, const void *bytes, size_t len,
		   uint32_t *src, struct ck_err *err)
{
	size_t pad = -b->blob.nr % BLOB_ALIGN;

	if (len > CK_MAX_INDEX)
		return ck_fail(err, E2BIG, "%zu bytes are too many to keep",
			       len);
	if (b->srcs.nr >= CK_MAX_CHUNKS)
		return ck_fail(err, E2BIG, "more than %u sources",
			       CK_MAX_CHUNKS);
	if (!ck_vec_reserve(&b->blob, pad + len + 1) ||
	    !ck_vec_reserve(&b->srcs, 1))
		return ck_no_memory(err);
	memset(b->blob.v + b->blob.nr, 0, pad);
	b->blob.nr += pad;
	*src = (uint32_t)b->srcs.nr;
	b->srcs.v[b->srcs.nr++] = (struct ck_src){ .kind = CK_SRC_MEM,
						   .name = CK_NONE,
						   .parent = CK_NONE,
						   .off = b->blob.nr,
						   .len = len };
	if (len)
		memcpy(b->blob.v + b->blob.nr, bytes, len);
	b->blob.nr += len;
	return 0;
}

int ck_builder_report(struct ck_builder *b, const struct ck_problem *at,
		      struct ck_err *err, const char *fmt, ...)
{
	struct ck_problem p = *at;
	char reason[CK_ERR_MAX];
	va_list ap;
	int ret;

	if (b->problems.nr >= CK_MAX_PROBLEMS) {
		b->more_problems++;
		b->worst_more = CK_MAX(b->worst_more, at->severity);
		return 0;
	}
	va_start(ap, fmt);
	vsnprintf(reason, sizeof(reason), fmt, ap);
	va_end(ap);
	ret = ck_intern_str(&b->in, reason, strlen(reason), &p.reason, err);
	if (ret)
		return ret;
	if (b->problems.nr &&
	    !memcmp(&b->problems.v[b->problems.nr - 1], &p, sizeof(p)))
		return 0;
	return ck_vec_put(&b->problems, err, p);
}

int ck_builder_problem(struct ck_builder *b, const struct ck_problem_in *p,
		       struct ck_err *err, const char *fmt, ...)
{
	struct ck_problem at = { .severity = (uint8_t)p->severity,
				 .off = p->off,
				 .len = p->len,
				 .tensor = CK_NONE,
				 .view = CK_NONE,
				 .file = CK_NONE };
	char reason[CK_ERR_MAX];
	va_list ap;
	int ret = 0;

	va_start(ap, fmt);
	vsnprintf(reason, sizeof(reason), fmt, ap);
	va_end(ap);
	if (p->tensor)
		ret = ck_intern_str(&b->in, p->tensor,
				    CK_MIN(p->tensor_len, CK_MAX_NAME),
				    &at.tensor, err);
	if (!ret && p->file)
		ret = ck_intern_str(&b->in, p->file,
				    CK_MIN(strlen(p->file), CK_MAX_NAME),
				    &at.file, err);
	return ret ? ret : ck_builder_report(b, &at, err, "%s", reason);
}

struct ck_catalog ck_builder_view(const struct ck_builder *b)
{
	return (struct ck_catalog){
		.layouts = b->in.layouts.v,
		.srcs = b->srcs.v,
		.dims = b->in.dims.v,
		.strs = b->in.strs.v,
	};
}
