/* SPDX-License-Identifier: Apache-2.0 */
/*
 * torch_blob.h - the torch.save archive of one tensor, as DCP stores each part
 *
 *   [head: archive/data.pkl, archive/byteorder, header of archive/data/0]
 *   [the elements, row-major]
 *   [tail: archive/version, the directory]
 *
 * torch.load(weights_only=True) opens it.  The CRC of the elements stands as
 * 0 where nobody gives it: it is not known without reading them, and torch does
 * not check it.
 */
#ifndef CK_TORCH_BLOB_H
#define CK_TORCH_BLOB_H

#include "core/base/str.h"

#include <stdbool.h>
#include <stdint.h>

/* The dtype that torch calls the bytes; quantized ones show as integers. */
uint8_t ck_torch_plain_dtype(uint8_t dtype);
/* Whether torch has a dtype for them. */
bool ck_torch_has_dtype(uint8_t dtype);

/*
 * Appends the opcodes that build a dense tensor over storage number @storage,
 * which has no other elements.  torch has the dtype.
 */
void ck_po_tensor(struct ck_str *s, uint8_t dtype, const uint64_t *shape,
		  unsigned rank, uint32_t storage);

struct ck_torch_blob {
	struct ck_str head, tail;
	uint64_t payload, size; /* bytes of the elements; of all three */
	uint32_t crc; /* in: CRC-32 of the elements; 0: not known */
};

/*
 * Of a dtype that torch has.  Begin with { 0 }, or the crc; -ENOMEM.  Free it
 * anyway.
 */
int ck_torch_blob_make(struct ck_torch_blob *b, uint8_t dtype,
		       const uint64_t *shape, unsigned rank);
void ck_torch_blob_free(struct ck_torch_blob *b);

/* Appends the archive of an object that is no tensor: its pickle as it is. */
void ck_torch_blob_pickle(struct ck_str *s, const void *pickle, size_t len);

#endif
