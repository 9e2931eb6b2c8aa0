/* SPDX-License-Identifier: Apache-2.0 */
/*
 * st_out.h - a safetensors header
 *
 *   {"__metadata__":{..},
 *   "NAME":{"dtype":"F32","shape":[2,3],"data_offsets":[0,24]}, ..}   padding
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
#define CK_ST_OUT_LEN 8 /* bytes before the header: how long it is */

/* Begins one; @metadata: a JSON object, or NULL. */
void ck_st_out_begin(struct ck_str *json, const char *metadata, size_t len);
/*
 * Appends one entry: an array of our elements at [at, at + size) of the data.
 * Of what was not refused.
 */
void ck_st_out_entry(struct ck_str *json, const char *name, size_t len,
		     uint8_t dtype, const uint64_t *shape, unsigned rank,
		     uint64_t at, uint64_t size);
/*
 * Ends it, with spaces so that the data, which follows, is aligned for any
 * element.  Where tensors behind the first @whole bytes of data have bytes that
 * are lost, those begin a page of the file instead: who maps it loses no other.
 */
void ck_st_out_end(struct ck_str *json, uint64_t whole);
#define CK_ST_OUT_ALL UINT64_MAX /* none has */

#endif
