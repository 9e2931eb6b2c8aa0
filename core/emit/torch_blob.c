/* SPDX-License-Identifier: Apache-2.0 */
/*
 * torch_blob.c - zip records and opcodes around one tensor; see the header
 */
#include "core/emit/torch_blob.h"

#include "core/base/check.h"
#include "core/base/crc32.h"
#include "core/base/limits.h"
#include "core/emit/pickle_out.h"
#include "core/emit/zip_records.h"
#include "core/geom/dtype.h"

#include <errno.h>
#include <stdio.h>

uint8_t ck_torch_plain_dtype(uint8_t dtype)
{
	switch (dtype) {
	case CK_DT_QINT8:
		return CK_DT_I8;
	case CK_DT_QUINT8:
		return CK_DT_U8;
	case CK_DT_QINT32:
		return CK_DT_I32;
	default:
		return dtype;
	}
}

static const struct ck_dtype_info *info_of(uint8_t dtype)
{
	return ck_dtype_info(ck_torch_plain_dtype(dtype));
}

bool ck_torch_has_dtype(uint8_t dtype)
{
	return info_of(dtype)->torch && info_of(dtype)->size;
}

static void put_persid(struct ck_str *s, const struct ck_dtype_info *info,
		       uint64_t nr, uint32_t storage)
{
	char key[16];

	ck_po_op(s, CK_PO_MARK);
	ck_po_str(s, "storage", 7);
	ck_po_global(s, info->storage ? "torch" : "torch.storage",
		     info->storage ? info->storage : "UntypedStorage");
	ck_po_str(s, key, (size_t)snprintf(key, sizeof(key), "%u", storage));
	ck_po_str(s, "cpu", 3);
	ck_po_int(s, info->storage ? nr : nr * info->size);
	ck_po_op(s, CK_PO_TUPLE);
	ck_po_op(s, CK_PO_PERSID);
}

void ck_po_tensor(struct ck_str *s, uint8_t dtype, const uint64_t *shape,
		  unsigned rank, uint32_t storage)
{
	const struct ck_dtype_info *info = info_of(dtype);
	uint64_t stride[CK_MAX_RANK], step = 1, nr = 1;

	for (unsigned d = rank; d-- > 0;) {
		stride[d] = step;
		step *= shape[d] ? shape[d] : 1;
		nr *= shape[d];
	}
	ck_po_global(s, "torch._utils",
		     info->storage ? "_rebuild_tensor_v2" :
				     "_rebuild_tensor_v3");
	ck_po_op(s, CK_PO_MARK);
	put_persid(s, info, nr, storage);
	ck_po_int(s, 0);
	ck_po_ints(s, shape, rank);
	ck_po_ints(s, stride, rank);
	ck_po_op(s, CK_PO_FALSE);
	ck_po_global(s, "collections", "OrderedDict");
	ck_po_op(s, CK_PO_EMPTY_TUPLE);
	ck_po_op(s, CK_PO_REDUCE);
	if (!info->storage)
		ck_po_global(s, "torch", info->torch);
	ck_po_op(s, CK_PO_TUPLE);
	ck_po_op(s, CK_PO_REDUCE);
}

/* A member that is put in full; @at: where it begins in the archive. */
static void put_member(struct ck_str *s, struct ck_zip_member *m,
		       const char *name, const void *bytes, size_t len,
		       uint64_t at)
{
	snprintf(m->name, sizeof(m->name), "%s", name);
	m->local_off = at;
	m->size = len;
	m->crc = ck_crc32(0, bytes, len);
	ck_zip_put_local(s, m);
	ck_str_add(s, bytes, len);
}

enum { PICKLE, ORDER, DATA, VERSION, NR };

static void put_head(struct ck_torch_blob *b, struct ck_zip_member *m,
		     const struct ck_str *pickle)
{
	struct ck_str *s = &b->head;

	put_member(s, &m[PICKLE], "archive/data.pkl", pickle->v, pickle->len,
		   0);
	put_member(s, &m[ORDER], "archive/byteorder", "little", 6, s->len);
	m[DATA] = (struct ck_zip_member){ .name = "archive/data/0",
					  .local_off = s->len,
					  .size = b->payload,
					  .crc = b->crc };
	ck_zip_put_local(s, &m[DATA]);
}

int ck_torch_blob_make(struct ck_torch_blob *b, uint8_t dtype,
		       const uint64_t *shape, unsigned rank)
{
	ck_auto_str struct ck_str pickle = { 0 };
	struct ck_zip_member m[NR];
	uint64_t end;

	b->payload = info_of(dtype)->size;
	for (unsigned d = 0; d < rank; d++)
		b->payload *= shape[d];
	ck_po_begin(&pickle);
	ck_po_tensor(&pickle, dtype, shape, rank, 0);
	ck_po_end(&pickle);
	if (pickle.failed)
		return -ENOMEM;
	put_head(b, m, &pickle);
	end = b->head.len + b->payload;
	put_member(&b->tail, &m[VERSION], "archive/version", "3\n", 2, end);
	ck_zip_put_end(&b->tail, m, NR, end + b->tail.len);
	b->size = end + b->tail.len;
	return b->head.failed || b->tail.failed ? -ENOMEM : 0;
}

void ck_torch_blob_free(struct ck_torch_blob *b)
{
	ck_str_free(&b->head);
	ck_str_free(&b->tail);
}

void ck_torch_blob_pickle(struct ck_str *s, const void *pickle, size_t len)
{
	struct ck_zip_member m[3];
	ck_auto_str struct ck_str zip = { 0 };

	put_member(&zip, &m[0], "archive/data.pkl", pickle, len, 0);
	put_member(&zip, &m[1], "archive/byteorder", "little", 6, zip.len);
	put_member(&zip, &m[2], "archive/version", "3\n", 2, zip.len);
	ck_zip_put_end(&zip, m, 3, zip.len);
	s->failed |= zip.failed;
	ck_str_add(s, zip.v, zip.len);
}
