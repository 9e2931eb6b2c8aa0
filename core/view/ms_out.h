/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ms_out.h - writes the records of a MindSpore .ckpt file
 *
 *   0A len { 0A name  12 len { 08 dim ..  12 type  1A len content } } ...
 *
 * A tensor over CK_MS_SLICE is several records of one name, each with all of
 * its dimensions and the next bytes.  No checksum follows the last: MindSpore
 * does without, and it would cost reading everything.
 */
#ifndef CK_MS_OUT_H
#define CK_MS_OUT_H

#include "core/base/str.h"
#include "core/geom/catalog.h"
#include "core/view/merged.h"

#define CK_MS_SLICE (UINT64_C(512) << 20)

/* Why MindSpore would not load it from such a file; NULL: it does. */
const char *ck_ms_refuses(const struct ck_catalog *img, uint32_t t,
			  const char *name, size_t name_len);
/* Appends what comes before the @len bytes of content of one record. */
void ck_ms_record(struct ck_str *out, const struct ck_merged_tensor *m,
		  uint8_t dtype, const uint64_t *shape, unsigned rank,
		  uint64_t len);

#endif
