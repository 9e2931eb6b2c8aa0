/* SPDX-License-Identifier: Apache-2.0 */
/*
 * view_npy.c - npy/NAME.npy: each tensor with a NumPy header before it
 *
 *   93 "NUMPY" 01 00 | u16 LE length | {'descr': '<f4', 'fortran_order':
 *   False, 'shape': (3, 4), } spaces \n | the tensor's bytes
 *
 * The data begins at a multiple of 64.  Types that NumPy has no name for are
 * shown as raw void of their size, which is what NumPy itself writes for
 * ml_dtypes arrays: a.view(ml_dtypes.bfloat16) gives the values.
 */
#include "core/view/view.h"

#include "core/base/check.h"
#include "core/catalog/catalog.h"
#include "core/geom/dtype.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define NPY_SUFFIX ".npy"
#define NPY_ALIGN 64
#define NPY_MAX 2048 /* 64 dimensions of 20 digits fit */

static const char *descr(uint8_t dtype)
{
	static const char *const names[CK_DT_NR] = {
		[CK_DT_BOOL] = "|b1",	[CK_DT_U8] = "|u1",
		[CK_DT_I8] = "|i1",	[CK_DT_U16] = "<u2",
		[CK_DT_I16] = "<i2",	[CK_DT_U32] = "<u4",
		[CK_DT_I32] = "<i4",	[CK_DT_U64] = "<u8",
		[CK_DT_I64] = "<i8",	[CK_DT_F16] = "<f2",
		[CK_DT_F32] = "<f4",	[CK_DT_F64] = "<f8",
		[CK_DT_C64] = "<c8",	[CK_DT_C128] = "<c16",
		[CK_DT_QINT8] = "|i1",	[CK_DT_QUINT8] = "|u1",
		[CK_DT_QINT32] = "<i4",
	};

	return names[dtype];
}

/* Writes the header of @t to @out and returns its length. */
static size_t header(const struct ck_catalog *img, const struct ck_tensor *t,
		     char out[NPY_MAX])
{
	const uint64_t *shape = img->dims + t->shape;
	char *at = out + 10;
	size_t len;

	if (descr(t->dtype))
		at += sprintf(at, "{'descr': '%s'", descr(t->dtype));
	else
		at += sprintf(at, "{'descr': '|V%u'",
			      ck_dtype_info(t->dtype)->size);
	at += sprintf(at, ", 'fortran_order': False, 'shape': (");
	for (unsigned d = 0; d < t->rank; d++)
		at += sprintf(at, "%s%" PRIu64, d ? ", " : "", shape[d]);
	at += sprintf(at, "%s), }", t->rank == 1 ? "," : "");
	len = CK_DIV_UP((size_t)(at - out) + 1, NPY_ALIGN) * NPY_ALIGN;
	memset(at, ' ', len - (size_t)(at - out));
	out[len - 1] = '\n';
	memcpy(out, "\x93NUMPY\x01\x00", 8);
	out[8] = (char)((len - 10) & 0xff);
	out[9] = (char)((len - 10) >> 8);
	return len;
}

static const struct ck_tensor *tensor(const struct ck_view *v, uint32_t i)
{
	return &v->img->tensors[v->first + i];
}

static bool npy_file(const struct ck_view *v, uint32_t i, struct ck_vfile *out)
{
	const struct ck_tensor *t;
	char head[NPY_MAX];

	if (i >= v->nr)
		return false;
	t = tensor(v, i);
	out->size = header(v->img, t, head) + t->size;
	out->newest = t->newest;
	out->like = NULL;
	out->tensor = v->first + i;
	return true;
}

static void npy_label(const struct ck_view *v, uint32_t i,
		      char name[CK_VIEW_NAME])
{
	snprintf(name, CK_VIEW_NAME, "%s" NPY_SUFFIX,
		 ck_catalog_str(v->img, tensor(v, i)->file, NULL));
}

static uint32_t npy_find(const struct ck_view *v, const char *name, size_t len)
{
	const size_t tail = sizeof(NPY_SUFFIX) - 1;
	uint32_t t;

	if (len < tail || memcmp(name + len - tail, NPY_SUFFIX, tail) != 0)
		return CK_NONE;
	t = ck_catalog_find_file(v->img, v->tree, name, len - tail);
	return t == CK_NONE ? CK_NONE : t - v->first;
}

static void npy_at(const struct ck_view *v, uint32_t i, uint64_t off,
		   struct ck_span *out)
{
	char head[NPY_MAX];
	size_t n = header(v->img, tensor(v, i), head);

	out->kind = off < n ? CK_SPAN_MADE : CK_SPAN_TENSOR;
	out->ref = v->first + i;
	out->off = off < n ? off : off - n;
	out->len = off < n ? n - off : tensor(v, i)->size - out->off;
}

static int npy_made(const struct ck_view *v, uint32_t i, void *buf,
		    uint64_t len, uint64_t off, struct ck_err *err)
{
	char head[NPY_MAX];

	(void)err;
	header(v->img, tensor(v, i), head);
	memcpy(buf, head + off, len);
	return 0;
}

const struct ck_view_ops ck_view_npy = {
	.name = "npy",
	.is_dir = true,
	.open = ck_view_per_tensor_open,
	.close = ck_view_per_tensor_close,
	.nr = ck_view_per_tensor_nr,
	.file = npy_file,
	.label = npy_label,
	.find = npy_find,
	.at = npy_at,
	.made = npy_made,
};
