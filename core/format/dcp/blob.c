/* SPDX-License-Identifier: Apache-2.0 */
/*
 * blob.c - FileSystemWriter with serialization_format=SAFETENSORS
 *
 * All tensors of a data file lie in one safetensors blob.  Each entry of
 * storage_data then has the offset where the blob begins, and as length the
 * bytes of its tensor.  An ordinary item is longer than its tensor, so only
 * entries of exactly that length are looked at.
 */
#include "core/format/dcp/dcp.h"

#include "core/base/check.h"
#include "core/geom/range.h"

#include <errno.h>
#include <string.h>

static bool may_be_blob(const struct ck_dcp_tensor *t,
			const struct ck_dcp_chunk *c,
			const struct ck_dcp_item *it)
{
	uint64_t volume, bytes;

	return !it->transforms && !t->flat &&
	       ck_dims_volume(c->len, t->rank, &volume) &&
	       ck_mul_ok(volume, ck_dtype_info(t->dtype)->size, &bytes) &&
	       bytes == it->len;
}

static int index_blob(struct ck_dcp_blob *blob, struct ck_err *err)
{
	for (size_t i = 0; i < blob->st.tensors.nr; i++) {
		const struct ck_st_entry *e = &blob->st.tensors.v[i];

		if (ck_strmap_put(&blob->names, e->name, e->name_len) ==
		    CK_STRMAP_NONE)
			return ck_no_memory(err);
	}
	return 0;
}

static int read_blob(struct ck_dcp *d, const struct ck_dcp_file *f,
		     struct ck_dcp_blob *blob, struct ck_err *err)
{
	const struct ck_problem_in bad = { .severity = CK_ERROR,
					   .file = f->path,
					   .off = blob->off };
	ck_auto_source struct ck_source *s = NULL;
	struct ck_err why = { 0 };
	unsigned char magic[4];
	int ret = ck_dir_open(d->dir, f->path, &s, err);

	if (ret)
		return ret;
	blob->zip =
		!ck_range_ok(blob->off, sizeof(magic), (uint64_t)s->st.st_size);
	if (!blob->zip)
		ret = ck_source_read(s, magic, sizeof(magic), blob->off, err);
	if (ret)
		return ret;
	blob->zip = blob->zip || !memcmp(magic, "PK\3\4", sizeof(magic));
	if (blob->zip)
		return 0;
	ret = ck_st_file_read(&blob->st, f->path, f->src, s, blob->off, &why);
	if (ret == -EINVAL)
		return ck_builder_problem(d->b, &bad, err, "%s", why.msg);
	if (ret && err)
		*err = why;
	return ret ? ret : index_blob(blob, err);
}

/* A data file has one blob; an entry elsewhere in it is something else. */
static int need_blob(struct ck_dcp *d, uint32_t file, uint64_t off,
		     struct ck_dcp_blob **out, struct ck_err *err)
{
	struct ck_dcp_file *f = &d->file.v[file];
	int ret;

	*out = NULL;
	if (!f->blob) {
		ret = ck_vec_put(&d->blobs, err,
				 (struct ck_dcp_blob){ .off = off });
		if (!ret)
			ret = read_blob(d, f, &d->blobs.v[d->blobs.nr - 1],
					err);
		if (ret)
			return ret;
		f->blob = (uint32_t)d->blobs.nr;
	}
	if (d->blobs.v[f->blob - 1].off == off)
		*out = &d->blobs.v[f->blob - 1];
	return 0;
}

static bool same_place(const struct ck_dcp_blob *blob,
		       const struct ck_st_entry *e,
		       const struct ck_dcp_tensor *t,
		       const struct ck_dcp_chunk *c)
{
	uint64_t at[CK_MAX_RANK];
	size_t bytes = t->rank * sizeof(*at);

	return e->rank == t->rank &&
	       !memcmp(ck_st_file_shape(&blob->st, e), c->len, bytes) &&
	       ck_st_file_corner(&blob->st, e, at) && !memcmp(at, c->at, bytes);
}

int ck_dcp_blob_add(struct ck_dcp *d, struct ck_dcp_tensor *t,
		    const struct ck_dcp_chunk *c, const struct ck_dcp_item *it,
		    bool *done, struct ck_err *err)
{
	const struct ck_problem_in lost = {
		.severity = CK_ERROR,
		.tensor = t->name,
		.tensor_len = t->name_len,
		.file = d->m->file,
	};
	struct ck_dcp_blob *blob;
	const struct ck_st_entry *e;
	uint32_t file, at;
	int ret;

	*done = false;
	if (!may_be_blob(t, c, it))
		return 0;
	ret = ck_dcp_file(d, it, &file, err);
	if (ret || d->file.v[file].absent)
		return ret;
	ret = need_blob(d, file, it->off, &blob, err);
	if (ret || !blob || blob->zip)
		return ret;
	*done = true;
	at = ck_strmap_get(&blob->names, t->name, t->name_len);
	e = at == CK_STRMAP_NONE ? NULL : &blob->st.tensors.v[at];
	if (e && same_place(blob, e, t, c))
		return ck_st_file_add(&blob->st, e, t->shape, c->at, d->b, err);
	return ck_builder_problem(d->b, &lost, err,
				  "the part that storage_data "
				  "says is in %s at byte %llu is not in the "
				  "safetensors header there",
				  d->file.v[file].path,
				  (unsigned long long)it->off);
}
