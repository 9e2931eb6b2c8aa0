/* SPDX-License-Identifier: Apache-2.0 */
/* data.h - the files of tests/unit/data/parse/, each in memory of its size */
#ifndef TEST_PARSE_DATA_H
#define TEST_PARSE_DATA_H

#include <criterion/criterion.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

struct data {
	char *bytes;
	size_t len;
};

static inline struct data data_read(const char *name)
{
	struct data d = { 0 };
	char path[256];
	FILE *f;
	long size = 0;

	snprintf(path, sizeof(path), "tests/unit/data/parse/%s", name);
	f = fopen(path, "rb");
	cr_assert(f, "%s: run from the top of the tree", path);
	cr_assert(!fseek(f, 0, SEEK_END) && (size = ftell(f)) > 0);
	rewind(f);
	d.bytes = malloc((size_t)size);
	d.len = fread(d.bytes, 1, (size_t)size, f);
	cr_assert_eq(d.len, (size_t)size);
	fclose(f);
	return d;
}

static inline void data_free(struct data *d)
{
	free(d->bytes);
}

#endif
