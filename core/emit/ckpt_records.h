/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ckpt_records.h - writes the records of a MindSpore .ckpt file
 *
 *   0A len { 0A name  12 len { 08 dim ..  12 type  1A len content } } ...
 *
 * A tensor over CK_CKPT_RECORD_MAX is several records of one name, each with
 * all of its dimensions and the next bytes.  No checksum follows the last:
 * MindSpore does without, and it would cost reading everything.
 */
#ifndef CK_CKPT_RECORDS_H
#define CK_CKPT_RECORDS_H

#include "core/base/str.h"
#include "core/geom/catalog.h"

#define CK_CKPT_RECORD_MAX (UINT64_C(512) << 20)
/* An index of some bytes may say of a tensor that it has exabytes. */
#define CK_CKPT_TENSOR_MAX (CK_CKPT_RECORD_MAX << 16)
/* In a file, besides one for each tensor: 512 TiB. */
#define CK_CKPT_RECORDS_MAX (UINT64_C(1) << 20)

/* Why MindSpore would not load it from such a file; NULL: it does. */
const char *ck_ckpt_records_refuse(const struct ck_catalog *img, uint32_t t,
				   const char *name, size_t name_len);
/* Appends what comes before the @len bytes of content of one record. */
void ck_ckpt_records_add(struct ck_str *out, const char *name, size_t name_len,
			 uint8_t dtype, const uint64_t *shape, unsigned rank,
			 uint64_t len);

#endif
