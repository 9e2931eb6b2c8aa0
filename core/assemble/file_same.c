/* SPDX-License-Identifier: Apache-2.0 */
/* file_same.c - whether a file of a checkpoint is a copy of another one */
#include "core/assemble/file_same.h"

#include "core/base/auto.h"
#include "core/base/check.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define BLOCK 65536
#define MAX_BLOCKS 64 /* of a file, that are compared */

int ck_dir_same(const struct ck_dir *dir, const char *a, const char *b,
		struct ck_err *err)
{
	ck_auto_source struct ck_source *sa = NULL, *sb = NULL;
	ck_auto_free unsigned char *buf = malloc((size_t)2 * BLOCK);
	uint64_t size, step, off = 0;
	int ret = ck_dir_open(dir, a, &sa, err);

	if (!ret)
		ret = ck_dir_open(dir, b, &sb, err);
	if (!ret && !buf)
		ret = ck_no_memory(err);
	if (ret)
		return ret;
	size = (uint64_t)sa->st.st_size;
	if (size != (uint64_t)sb->st.st_size)
		return 0;
	step = CK_MAX(size / MAX_BLOCKS, (uint64_t)BLOCK);
	for (; off < size; off += step) {
		size_t n = (size_t)CK_MIN(size - off, (uint64_t)BLOCK);

		ret = ck_source_read(sa, buf, n, off, err);
		if (!ret)
			ret = ck_source_read(sb, buf + BLOCK, n, off, err);
		if (ret || memcmp(buf, buf + BLOCK, n) != 0)
			return ret;
	}
	return 1;
}
