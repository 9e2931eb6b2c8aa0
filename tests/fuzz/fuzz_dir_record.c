/* SPDX-License-Identifier: Apache-2.0 */
/* fuzz_dir_record.c - any bytes as the record of what a reader asked */
#include "core/root/dir_record.h"
#include "tests/lib/memdir.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static const char bytes[] = "some bytes of a file";
	struct memdir mem;

	memdir_init(&mem);
	if (!memdir_put(&mem, "a", bytes, sizeof(bytes)) ||
	    !memdir_put(&mem, "b/c", bytes, sizeof(bytes)))
		abort();
	ck_dir_record_holds(&mem.dir, (const char *)data, size);
	memdir_free(&mem);
	return 0;
}
