/* SPDX-License-Identifier: Apache-2.0 */
/* zip_out.h - a zip of stored members over pieces; zip_records.h has its picture */
#ifndef CK_ZIP_OUT_H
#define CK_ZIP_OUT_H

#include "core/base/err.h"
#include "core/emit/zip_records.h"
#include "core/view/compose.h"

struct ck_zip_out {
	struct ck_compose *file; /* empty at first */
	CK_VEC(struct ck_zip_member) members;
	bool lost; /* the last one's payload is, in part */
};

void ck_zip_out_free(struct ck_zip_out *z);
/* A member of own bytes, with its CRC. */
void ck_zip_out_bytes(struct ck_zip_out *z, const char *name, const void *bytes,
		      size_t len);
/*
 * A member that is tensor @t; its CRC is not known and stands as 0.  Where bytes
 * of it are lost, it has its pages to itself.
 */
void ck_zip_out_tensor(struct ck_zip_out *z, const char *name,
		       const struct ck_catalog *img, uint32_t t);
/* The directory and the end records; 0 or -ENOMEM. */
int ck_zip_out_end(struct ck_zip_out *z, struct ck_err *err);

#endif
