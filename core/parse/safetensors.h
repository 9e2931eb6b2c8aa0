/* SPDX-License-Identifier: Apache-2.0 */
/*
 * safetensors.h - the header of a safetensors file
 *
 *   u64 LE header length N | N bytes JSON | data
 *   {"name": {"dtype": "F32", "shape": [..], "data_offsets": [begin, end]},
 *    "__metadata__": {"key": "value"}}          offsets count from the data
 */
#ifndef CK_SAFETENSORS_H
#define CK_SAFETENSORS_H

#include "core/base/err.h"
#include "core/base/limits.h"
#include "core/geom/dtype.h"
#include "core/parse/json.h"

struct ck_st_tensor {
	const char *name;
	size_t name_len;
	const char *dtype_name; /* as in the file */
	enum ck_dtype dtype; /* CK_DT_NONE: unknown to us */
	unsigned rank;
	/* F4: halved along the last axis, as CK_DT_F4_E2M1FN_X2 counts it. */
	uint64_t shape[CK_MAX_RANK];
	uint64_t begin, end; /* bytes of the file, not of the data */
	const char *why; /* not NULL: this entry is unusable, and why */
};

struct ck_st_header {
	json_t *metadata; /* __metadata__ or NULL */
	uint64_t data_off; /* where the data begins */
	/* private: */
	const char *at, *end; /* what is still to be read, of the usual form */
	char *names; /* of tensors of that form */
	size_t names_len;
	json_t *json; /* of another form: all of it */
	void *iter;
};

/*
 * The first 8 bytes say how long the header is: N, or -EINVAL where N is 0,
 * over CK_MAX_HEADER or past @file_size.
 */
int ck_st_header_len(const void *first8, uint64_t file_size, uint64_t *len,
		     struct ck_err *err);
/* @bytes stay until the header is freed. */
int ck_st_header_parse(struct ck_st_header *h, const char *bytes, size_t len,
		       struct ck_err *err);
void ck_st_header_free(struct ck_st_header *h);
/*
 * The next tensor, in file order of the JSON; false at the end.  Checks the
 * entry's own form; whether it lies in the file is the builder's business.
 */
bool ck_st_next(struct ck_st_header *h, struct ck_st_tensor *out);

#endif
