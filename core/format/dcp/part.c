/* SPDX-License-Identifier: Apache-2.0 */
/*
 * part.c - one chunk of a tensor to a part, one byte item to an object
 *
 *   ordinary:   an item is a torch.save archive; its payload is found later
 *   zstd:       the same, in one frame
 *   otherwise:  blob.c
 */
#include "core/format/dcp/dcp.h"
#include "core/container/container.h"
#include "core/container/zstd_len.h"

#include "core/base/check.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static int open_file(struct ck_dcp *d, const struct ck_dcp_item *it,
		     uint32_t file, struct ck_err *err)
{
	const struct ck_strmap_key *path = &d->files.v[file];
	const struct ck_strmap_key *name = &d->items->names.v[it->name];
	ck_auto_source struct ck_source *s = NULL;
	struct ck_dcp_file *f = &d->file.v[file];
	int ret;

	if (!f->path)
		f->path = ck_arena_copy(&d->mem, path->s, path->len);
	if (!f->path)
		return ck_no_memory(err);
	if (!ck_dir_name_ok(path->s, path->len))
		return ck_fail(err, EINVAL,
			       "%s: %.*s: relative_path \"%.*s\" "
			       "leads out of the checkpoint",
			       d->m->file, (int)name->len, name->s,
			       (int)path->len, path->s);
	ret = ck_dir_source(d->dir, d->b, f->path, &f->src, &s, err);
	if (ret)
		return ck_wrap(err, ret, "%s: %.*s", d->m->file, (int)name->len,
			       name->s);
	f->known = true;
	f->absent = !s;
	f->size = s ? (uint64_t)s->st.st_size : 0;
	return 0;
}

int ck_dcp_file(struct ck_dcp *d, const struct ck_dcp_item *it, uint32_t *file,
		struct ck_err *err)
{
	struct ck_strmap_key *path = &d->items->files.v[it->file];
	int ret = 0;

	*file = (uint32_t)path->user - 1;
	if (path->user)
		return 0;
	*file = ck_strmap_put(&d->files, path->s, path->len);
	if (*file == CK_STRMAP_NONE)
		return ck_no_memory(err);
	if (*file == d->file.nr)
		ret = ck_vec_put(&d->file, err, (struct ck_dcp_file){ 0 });
	if (!ret && !d->file.v[*file].known)
		ret = open_file(d, it, *file, err);
	path->user = ret ? 0 : *file + 1;
	return ret;
}

/* "stream.zstd/1", "stream.zstd@domain/1.2": name[@domain][/version] */
static bool is_zstd(const char *s, size_t len)
{
	static const char name[] = "stream.zstd";
	const char *slash = memchr(s, '/', len);
	size_t n = sizeof(name) - 1;

	if (len < n || memcmp(s, name, n))
		return false;
	if (len > n && s[n] != '@' && s[n] != '/')
		return false;
	if (!slash)
		return true;
	n = (size_t)(s + len - slash);
	return n >= 2 && slash[1] == '1' && (n == 2 || slash[2] == '.');
}

/*
 * The source and offset where an item's bytes begin, decoded.  @known false:
 * a transform that is not known, said in @why.
 */
struct where {
	uint32_t src;
	uint64_t off, len;
	bool known, coded;
	char why[160];
};

static void unknown_transform(struct where *w, const char *s, size_t len)
{
	w->known = false;
	snprintf(w->why, sizeof(w->why), "transform \"%.*s\" is not known",
		 (int)CK_MIN(len, 100), s);
}

static int apply_transforms(struct ck_dcp *d, const struct ck_dcp_item *it,
			    struct where *w, struct ck_err *err)
{
	int ret = 0;

	for (struct ck_pq_each e = ck_pq_begin(d->m->p, it->transforms, "[]");
	     !ret && ck_pq_next(&e);) {
		if (!e.name || !is_zstd(e.name, e.len) || w->coded ||
		    !it->len) {
			unknown_transform(w, e.name ? e.name : "?",
					  e.name ? e.len : 1);
			return 0;
		}
		ret = ck_builder_codec(d->b, w->src, CK_CODEC_ZSTD, it->off,
				       it->len, &w->src, err);
		w->coded = true;
		w->off = 0;
	}
	return ret;
}

static int find(struct ck_dcp *d, const struct ck_dcp_item *it, struct where *w,
		struct ck_err *err)
{
	uint32_t file;
	int ret = ck_dcp_file(d, it, &file, err);

	if (ret)
		return ret;
	*w = (struct where){
		.src = d->file.v[file].src,
		.off = it->off,
		.len = it->len,
		.known = true,
	};
	return it->transforms ? apply_transforms(d, it, w, err) : 0;
}

static int add_item(struct ck_dcp *d, const struct ck_dcp_tensor *t,
		    const struct ck_dcp_chunk *c, const struct where *w,
		    struct ck_err *err)
{
	uint64_t start[CK_MAX_RANK], flat[2];
	struct ck_part part = {
		.name = t->name,
		.name_len = t->name_len,
		.src = w->src,
		.dtype = t->dtype,
		.rank = t->rank,
		.shape = t->shape,
		.start = c->at,
		.len = c->len,
		.off = w->off,
		.item_len = w->len,
	};

	if (!w->len)
		return ck_builder_refuse(d->b, 0, t->name, t->name_len, err,
					 "an item of 0 bytes for a part that "
					 "is not empty");
	if (t->flat) {
		if (!ck_dcp_flat_box(t, c, start, flat))
			return ck_builder_refuse(
				d->b, 0, t->name, t->name_len, err,
				"a part "
				"of a flattened tensor crosses its rows");
		part.rank = t->true_rank;
		part.shape = t->true_shape;
		part.start = start;
		part.len = t->local;
		part.flat = flat;
	}
	return ck_builder_add(d->b, &part, err);
}

static void note_lost(struct ck_dcp_tensor *t, const struct ck_dcp_chunk *c)
{
	size_t n = 0;

	if (t->lost++)
		return;
	for (unsigned i = 0; i < t->rank && n + 48 < sizeof(t->first_lost); i++)
		n += (size_t)snprintf(
			t->first_lost + n, sizeof(t->first_lost) - n,
			"%s%llu:%llu", i ? "," : "",
			(unsigned long long)c->at[i],
			(unsigned long long)(c->at[i] + c->len[i]));
}

static int say_cut(struct ck_dcp *d, const struct ck_dcp_item *it,
		   struct ck_dcp_file *f, struct ck_err *err)
{
	const struct ck_problem_in cut = { .severity = CK_ERROR,
					   .file = f->path,
					   .off = it->off,
					   .len = it->len };

	if (f->cut)
		return 0;
	f->cut = true;
	return ck_builder_problem(
		d->b, &cut, err,
		"the item of an empty part is not there: the file has %" PRIu64
		" bytes",
		f->size);
}

/*
 * The item of an empty box is never read, so that nothing else finds out that
 * it is lost; one a file is said.  In the SAFETENSORS form it has no bytes, but
 * its name in the header.
 */
static int check_empty(struct ck_dcp *d, struct ck_dcp_tensor *t,
		       const struct ck_dcp_chunk *c,
		       const struct ck_dcp_item *it, struct ck_err *err)
{
	bool there = false;
	uint32_t file;
	int ret = ck_dcp_file(d, it, &file, err);

	if (ret || d->file.v[file].absent)
		return ret;
	if (it->len)
		there = ck_range_ok(it->off, it->len, d->file.v[file].size);
	else
		ret = ck_dcp_blob_add(d, t, c, it, &there, err);
	return ret || there ? ret : say_cut(d, it, &d->file.v[file], err);
}

int ck_dcp_add_chunk(struct ck_dcp *d, struct ck_dcp_tensor *t,
		     const struct ck_dcp_chunk *c, struct ck_err *err)
{
	struct ck_dcp_item *it = NULL;
	struct where w;
	bool empty = false, done = false;
	int ret;

	if (t->item_name != CK_STRMAP_NONE)
		it = ck_dcp_items_find(d->items, t->item_name, c->number);
	if (it)
		it->used = true;
	for (unsigned i = 0; i < t->rank; i++)
		empty = empty || !c->len[i];
	if (empty)
		return it ? check_empty(d, t, c, it, err) : 0;
	if (!it) {
		note_lost(t, c);
		return 0;
	}
	ret = ck_dcp_blob_add(d, t, c, it, &done, err);
	if (ret || done)
		return ret;
	ret = find(d, it, &w, err);
	if (ret)
		return ret;
	if (!w.known)
		return ck_builder_refuse(d->b, 0, t->name, t->name_len, err,
					 "%s", w.why);
	return add_item(d, t, c, &w, err);
}

/* Rank-local files have an object each, which need not agree. */
static int object_name(struct ck_dcp *d, const char *name, size_t len,
		       struct ck_str *out, struct ck_err *err)
{
	size_t before = d->objects.nr;

	if (ck_strmap_put(&d->objects, name, len) == CK_STRMAP_NONE)
		return ck_no_memory(err);
	ck_str_add(out, name, len);
	if (d->objects.nr == before && d->m->rank)
		ck_str_fmt(out, "@%.*s", (int)d->m->rank_len, d->m->rank);
	return out->failed ? ck_no_memory(err) : 0;
}

/* How long it is once decoded; where that cannot be told, as it is stored. */
static int measure(struct ck_dcp *d, const struct ck_dcp_item *it,
		   const struct where *w, struct ck_object_in *o,
		   struct ck_err *err)
{
	ck_auto_source struct ck_source *s = NULL;
	uint32_t file;
	int ret = ck_dcp_file(d, it, &file, err);

	if (ret)
		return ret;
	if (w->known && !d->file.v[file].absent)
		ret = ck_dir_open(d->dir, d->file.v[file].path, &s, err);
	if (!ret && s)
		ret = ck_zstd_length(s, it->off, it->len, &d->decoded, &o->len,
				     err);
	if ((!ret && s) || (ret && ret != -EINVAL && ret != -E2BIG))
		return ret;
	o->src = d->file.v[file].src;
	o->off = it->off;
	o->len = it->len;
	o->enc = CK_ENC_RAW;
	return 0;
}

int ck_dcp_add_object(struct ck_dcp *d, const char *name, size_t len,
		      struct ck_err *err)
{
	uint32_t key = ck_strmap_get(&d->items->names, name, len);
	const struct ck_problem_in lost = {
		.severity = CK_ERROR,
		.tensor = name,
		.tensor_len = len,
		.file = d->m->file,
	};
	ck_auto_str struct ck_str shown = { 0 };
	struct ck_object_in o = { .enc = CK_ENC_TORCH_ZIP };
	struct ck_dcp_item *it = NULL;
	struct where w;
	int ret;

	if (key != CK_STRMAP_NONE)
		it = ck_dcp_items_find(d->items, key, 0);
	if (!it)
		return ck_builder_problem(d->b, &lost, err,
					  "an object without "
					  "an entry in storage_data");
	it->used = true;
	ret = object_name(d, name, len, &shown, err);
	if (!ret)
		ret = find(d, it, &w, err);
	if (ret)
		return ret;
	o.name = shown.v ? shown.v : "";
	o.name_len = shown.len;
	o.src = w.src;
	o.off = w.off;
	o.len = w.len;
	if (w.coded || !w.known)
		ret = measure(d, it, &w, &o, err);
	return ret ? ret : ck_builder_object(d->b, &o, err);
}
