/* SPDX-License-Identifier: Apache-2.0 */
/* fuzz_zip.c - any bytes as an archive; no member may lie outside of it */
#include "core/base/check.h"
#include "core/parse/zip.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_member(const uint8_t *data, size_t size,
			 const struct ck_zip_entry *e)
{
	struct ck_err err;
	uint64_t payload, len = size - e->local_off;
	char *exact;

	/* Just what the header asks for, and all there is. */
	if (!ck_zip_local(data + e->local_off, len, e, &payload, &err) &&
	    (!ck_range_ok(payload, e->size, size) ||
	     payload + e->size > e->limit))
		abort();
	exact = malloc(CK_ZIP_LOCAL + e->name_len);
	if (!exact)
		return;
	memcpy(exact, data + e->local_off, CK_ZIP_LOCAL + e->name_len);
	ck_zip_local(exact, CK_ZIP_LOCAL + e->name_len, e, &payload, &err);
	free(exact);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct ck_zip_end end;
	struct ck_zip_entry *e = NULL;
	struct ck_err err;

	if (ck_zip_end(data, size, size, &end, &err))
		return 0;
	if (!ck_range_ok(end.dir_off, end.dir_len, size))
		abort();
	if (ck_zip_dir(data + end.dir_off, end.dir_len, &end, &e, &err))
		return 0;
	for (uint64_t i = 0; i < end.nr; i++) {
		if (i && e[i - 1].local_off + CK_ZIP_LOCAL + e[i - 1].name_len +
					 e[i - 1].size >
				 e[i].local_off)
			abort();
		check_member(data, size, &e[i]);
	}
	free(e);
	return 0;
}
