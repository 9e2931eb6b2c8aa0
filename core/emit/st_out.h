/* SPDX-License-Identifier: Apache-2.0 */
/*
 * st_out.h - entries of a safetensors header
 *
 *   "NAME":{"dtype":"F32","shape":[2,3],"data_offsets":[0,24]}
 */
#ifndef CK_ST_OUT_H
#define CK_ST_OUT_H

#include "core/base/str.h"

#include <stddef.h>
#include <stdint.h>

/*
 * Why safetensors cannot hold elements of @dtype in an array of @rank
 * dimensions under that name; NULL: it can.
 */
const char *ck_st_out_refuses(uint8_t dtype, unsigned rank, const char *name,
			      size_t len);
/*
 * Appends one entry, without a comma: an array of our elements at [at, at +
 * size) of the data.  Of what was not refused.
 */
void ck_st_out_entry(struct ck_str *json, const char *name, size_t len,
		     uint8_t dtype, const uint64_t *shape, unsigned rank,
		     uint64_t at, uint64_t size);

#endif
