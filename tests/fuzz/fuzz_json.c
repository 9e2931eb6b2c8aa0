/* SPDX-License-Identifier: Apache-2.0 */
/* fuzz_json.c - any bytes as the header of a safetensors file */
#include "core/base/check.h"
#include "core/parse/safetensors.h"
#include "tests/lib/sameheader.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_tensor(const struct ck_st_header *h,
			 const struct ck_st_tensor *t)
{
	uint64_t elements = 1;

	if (t->why)
		return;
	if (t->begin < h->data_off || t->end < t->begin ||
	    t->rank > CK_MAX_RANK || t->dtype == CK_DT_NONE ||
	    memchr(t->name, '\0', t->name_len))
		abort();
	for (unsigned d = 0; d < t->rank; d++)
		if (!t->shape[d])
			elements = 0;
	for (unsigned d = 0; d < t->rank; d++)
		if (!ck_mul_ok(elements, t->shape[d], &elements))
			abort();
	if (ck_dtype_info(t->dtype)->size &&
	    elements * ck_dtype_info(t->dtype)->size != t->end - t->begin)
		abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct ck_st_header h;
	struct ck_st_tensor t;
	struct ck_err err = { 0 };
	uint64_t len;

	if (size >= 8)
		ck_st_header_len(data, size, &len, &err);
	err = (struct ck_err){ 0 };
	if (ck_st_header_parse(&h, (const char *)data, size, &err)) {
		if (!err.msg[0] || strchr(err.msg, '\n'))
			abort();
		return 0;
	}
	while (ck_st_next(&h, &t))
		check_tensor(&h, &t);
	ck_st_header_free(&h);
	if (same_header((const char *)data, size))
		abort();
	return 0;
}
