/* SPDX-License-Identifier: Apache-2.0 */
/*
 * meta.h - OneFlow's data types, and the `meta` file of a tensor's folder
 */
#ifndef CK_ONEFLOW_META_H
#define CK_ONEFLOW_META_H

#include "core/base/err.h"
#include "core/base/limits.h"

#include <stddef.h>
#include <stdint.h>

#define CK_OF_BFLOAT16 11 /* 4 bytes an element where OneFlow wrote it */

struct ck_of_meta {
	int type; /* OneFlow's number of the data type */
	unsigned rank;
	uint64_t shape[CK_MAX_RANK];
};

/* protobuf's text form; -EINVAL with a line that begins with "byte N". */
int ck_of_meta_parse(struct ck_of_meta *out, const char *text, size_t len,
		     struct ck_err *err);
/* The enum ck_dtype of OneFlow's @type, CK_DT_NONE where there is none. */
int ck_of_dtype(int type);
/* "kFloat", or "an unknown type". */
const char *ck_of_type_name(int type);

#endif
