/* SPDX-License-Identifier: Apache-2.0 */
/*
 * zip_records.h - the records of a zip of stored members, aligned as torch does
 *
 *   [local header, name, padding][payload] ... [directory][zip64 end][end]
 *
 * Sizes stand in the local headers, so no descriptor follows a payload.
 */
#ifndef CK_ZIP_RECORDS_H
#define CK_ZIP_RECORDS_H

#include "core/base/str.h"

#include <stddef.h>
#include <stdint.h>

struct ck_zip_member {
	char name[64];
	uint64_t local_off,
		size; /* where its local header is; of the payload */
	uint32_t crc; /* 0 where it is not known, which torch minds not */
};

#define CK_ZIP_OUT_ALIGN 64 /* of payloads, from where the archive begins */

/* Where the payload begins. */
uint64_t ck_zip_payload(const struct ck_zip_member *m);
/* Appends what comes before the payload. */
void ck_zip_put_local(struct ck_str *s, const struct ck_zip_member *m);
/* Appends what comes after the last payload, which is at @off. */
void ck_zip_put_end(struct ck_str *s, const struct ck_zip_member *m, size_t nr,
		    uint64_t off);

#endif
