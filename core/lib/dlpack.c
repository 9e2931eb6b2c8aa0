/* SPDX-License-Identifier: Apache-2.0 */
/*
 * dlpack.c - memory of other programs as an item, and a file's bytes as a
 * tensor of theirs
 */
#include "core/lib/dlpack.h"

#include "core/base/auto.h"
#include "core/base/check.h"
#include "core/base/str.h"
#include "core/geom/cast.h"
#include "core/geom/shard.h"
#include "core/geom/dtype.h"
#include "core/lib/lib.h"
#include "core/load/load.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { HOST = 1, HOST_PINNED = 3 };

static const struct {
	enum ck_dtype dtype;
	struct ck_dl_dtype dl;
} dtypes[] = {
	{ CK_DT_BOOL, { 6, 8, 1 } },	    { CK_DT_U8, { 1, 8, 1 } },
	{ CK_DT_I8, { 0, 8, 1 } },	    { CK_DT_U16, { 1, 16, 1 } },
	{ CK_DT_I16, { 0, 16, 1 } },	    { CK_DT_U32, { 1, 32, 1 } },
	{ CK_DT_I32, { 0, 32, 1 } },	    { CK_DT_U64, { 1, 64, 1 } },
	{ CK_DT_I64, { 0, 64, 1 } },	    { CK_DT_F16, { 2, 16, 1 } },
	{ CK_DT_BF16, { 4, 16, 1 } },	    { CK_DT_F32, { 2, 32, 1 } },
	{ CK_DT_F64, { 2, 64, 1 } },	    { CK_DT_C32, { 5, 32, 1 } },
	{ CK_DT_C64, { 5, 64, 1 } },	    { CK_DT_C128, { 5, 128, 1 } },
	{ CK_DT_F8_E4M3FN, { 10, 8, 1 } },  { CK_DT_F8_E4M3FNUZ, { 11, 8, 1 } },
	{ CK_DT_F8_E5M2, { 12, 8, 1 } },    { CK_DT_F8_E5M2FNUZ, { 13, 8, 1 } },
	{ CK_DT_F8_E8M0FNU, { 14, 8, 1 } },
};

/* False: DLPack has no such. */
static bool dl_dtype_of(enum ck_dtype dtype, struct ck_dl_dtype *out)
{
	for (size_t i = 0; i < CK_ARRAY_LEN(dtypes); i++)
		if (dtypes[i].dtype == dtype) {
			*out = dtypes[i].dl;
			return true;
		}
	return false;
}

static enum ck_dtype dl_dtype_to(const struct ck_dl_dtype *dl)
{
	for (size_t i = 0; i < CK_ARRAY_LEN(dtypes); i++)
		if (dtypes[i].dl.code == dl->code &&
		    dtypes[i].dl.bits == dl->bits && dl->lanes == 1)
			return dtypes[i].dtype;
	return CK_DT_NONE;
}

static void add_dtype(struct ck_str *out, enum ck_dtype dtype)
{
	const struct ck_dtype_info *info = ck_dtype_info(dtype);
	struct ck_dl_dtype dl;

	ck_str_fmt(out, "{\"name\": \"%s\", \"size\": %u", info->name,
		   info->size);
	if (info->safetensors)
		ck_str_fmt(out, ", \"safetensors\": \"%s\"", info->safetensors);
	if (dl_dtype_of(dtype, &dl))
		ck_str_fmt(out, ", \"dlpack\": [%u, %u]", dl.code, dl.bits);
	if (ck_cast_has(dtype, CK_DT_F32))
		ck_str_puts(out, ", \"cast\": true");
	ck_str_puts(out, "}");
}

void ck_lib_dtypes(struct ck_str *out)
{
	ck_str_puts(out, "[");
	for (unsigned i = CK_DT_NONE + 1; i < CK_DT_NR; i++) {
		if (i > CK_DT_NONE + 1)
			ck_str_puts(out, ", ");
		add_dtype(out, (enum ck_dtype)i);
	}
	ck_str_puts(out, "]");
}

int unshard_item_dlpack(unshard_item *item, const struct DLTensor *from)
{
	enum ck_dtype dtype = dl_dtype_to(&from->dtype);

	if (item->size < offsetof(unshard_item, tag))
		return -EINVAL;
	if (dtype == CK_DT_NONE)
		return -EINVAL;
	if (from->device.type != HOST && from->device.type != HOST_PINNED)
		return -ENODEV;
	item->mem = (uintptr_t)from->data + from->byte_offset;
	item->stride = from->strides;
	item->dtype = ck_dtype_info(dtype)->name;
	item->device = -1;
	return 0;
}

/* ---- a mapped file ---- */

struct mapped {
	struct DLManagedTensorVersioned t; /* first */
	unshard_ckpt *ck;
	void *base;
	size_t size;
	int64_t shape[CK_MAX_RANK];
};

static void unmap(struct DLManagedTensorVersioned *self)
{
	struct mapped *m = (struct mapped *)self;

	if (m->base)
		munmap(m->base, m->size);
	unshard_unref(m->ck);
	free(m);
}

/* Which elements, from which on in row-major order; -EXDEV: no stretch. */
static int stretch_of(struct mapped *m, const unshard_item *item,
		      uint64_t *first, struct ck_err *err)
{
	const struct ck_catalog *img = ck_ckpt_catalog(m->ck->ck);
	const uint64_t *start = CK_LIB_GET(item, start);
	const uint64_t *len = CK_LIB_GET(item, len);
	const struct ck_tensor *t = &img->tensors[item->tensor];
	const uint64_t *shape = img->dims + t->shape;
	struct ck_box box = { .rank = t->rank };
	struct ck_load_item as;
	int ret = ck_lib_item(item, &as, err);

	if (ret)
		return ret;
	if (CK_LIB_GET(item, device) > 0)
		return ck_fail(err, ENODEV,
			       "a map is memory of the host, not of device %d",
			       CK_LIB_GET(item, device));
	if (as.stride || (as.dtype != CK_DT_NONE && as.dtype != t->dtype))
		return ck_fail(
			err, EINVAL,
			"a map is as stored: no strides, no other dtype");
	for (unsigned d = 0; d < t->rank; d++) {
		box.start[d] = start ? start[d] : 0;
		box.len[d] = len ? len[d] : shape[d];
		if (!ck_range_ok(box.start[d], box.len[d], shape[d]))
			return ck_fail(err, EINVAL,
				       "dimension %u has %llu elements", d,
				       (unsigned long long)shape[d]);
		m->shape[d] = (int64_t)box.len[d];
	}
	m->t.dl_tensor.ndim = (int32_t)t->rank;
	m->size = ck_box_volume(&box) * ck_dtype_info(t->dtype)->size;
	if (m->size && !ck_box_is_stretch(&box, shape, first))
		return ck_fail(err, EXDEV, "it is no stretch of the tensor");
	return dl_dtype_of(t->dtype, &m->t.dl_tensor.dtype) ?
		       0 :
		       ck_fail(err, EXDEV, "DLPack has no %s",
			       ck_dtype_info(t->dtype)->name);
}

/* Bytes [off, off + m->size) of the file. */
static int map_file(struct mapped *m, const struct ck_raw_extent *at,
		    struct ck_err *err)
{
	const struct ck_catalog *img = ck_ckpt_catalog(m->ck->ck);
	const struct ck_src *src = &img->srcs[at->src];
	const char *name = ck_catalog_str(img, src->name, NULL);
	uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);
	uint64_t skip = at->off % page, end = 0;
	ck_auto_fd int fd = -1;
	struct ck_id now;
	struct stat st;
	int ret =
		ck_root_open_file(ck_ckpt_root(m->ck->ck), name, &fd, &st, err);

	if (ret)
		return ret;
	now = ck_id_of(&st);
	if (ck_id_compare(&src->id, &now) > CK_ID_TOUCHED)
		return ck_fail_at(err, ESTALE, name, CK_NOWHERE,
				  "%s: it was changed", name);
	if (!ck_add_ok(at->off, m->size, &end) || end > src->id.size)
		return ck_fail_at(err, EIO, name, src->id.size,
				  "%s: it ends before byte %llu", name,
				  (unsigned long long)end);
	m->size += skip;
	m->base = mmap(NULL, m->size, PROT_READ, MAP_SHARED, fd,
		       (off_t)(at->off - skip));
	if (m->base == MAP_FAILED) {
		m->base = NULL;
		return ck_fail(err, errno, "%s: mmap: %s", name,
			       strerror(errno));
	}
	m->t.dl_tensor.data = (char *)m->base + skip;
	return 0;
}

static int fill(struct mapped *m, const unshard_item *item, struct ck_err *err)
{
	struct ck_ckpt *ck = m->ck->ck;
	const struct ck_catalog *img = ck_ckpt_catalog(ck);
	struct ck_raw_extent at;
	uint64_t first = 0, elem;
	int ret;

	if (item->tensor >= img->nr_tensors)
		return ck_fail(err, EINVAL, "there is no tensor %u",
			       item->tensor);
	ret = stretch_of(m, item, &first, err);
	if (ret || !m->size)
		return ret;
	elem = ck_dtype_info(img->tensors[item->tensor].dtype)->size;
	ret = ck_ckpt_resolve(ck, item->tensor, err);
	if (ret)
		return ret;
	if (!ck_ckpt_raw_extent(ck, item->tensor, first * elem, m->size, &at) ||
	    at.len < m->size)
		return ck_fail(err, EXDEV,
			       "its bytes do not lie so in one file");
	return map_file(m, &at, err);
}

int unshard_map(unshard_ckpt *ck, const unshard_item *item,
		struct DLManagedTensorVersioned **out, unshard_error *err)
{
	struct ck_err why = { 0 };
	struct mapped *m;
	int ret = ck_lib_alive(ck->ctx, err);

	if (ret)
		return ret;
	m = calloc(1, sizeof(*m));
	if (!m)
		return ck_lib_fail(err, ENOMEM, "no memory");
	m->ck = unshard_ref(ck);
	m->t.major = 1;
	m->t.deleter = unmap;
	m->t.flags = 1;
	m->t.manager_ctx = m;
	m->t.dl_tensor.device.type = HOST;
	m->t.dl_tensor.shape = m->shape;
	ret = fill(m, item, &why);
	if (ret) {
		ck_lib_failed_of(err, ret, &why, ck_ckpt_catalog(ck->ck),
				 item->tensor);
		unmap(&m->t);
		return ret;
	}
	*out = &m->t;
	return 0;
}
