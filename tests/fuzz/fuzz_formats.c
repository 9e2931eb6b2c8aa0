/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fuzz_formats.c - whole folders through every reader, the gate and the catalog
 *
 * The input is files, one after the other: u8 length of the name, the name,
 * u16 LE length, the bytes.  A first byte of 0 instead says that the next file
 * is the only one that is given.  What is left over is one file more, so that
 * cutting an input anywhere gives an input.
 */
#include "core/base/le.h"
#include "core/catalog/dump.h"
#include "core/catalog/catalog.h"
#include "core/format/detect.h"
#include "tests/lib/memdir.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define MAX_FILES 16

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* A copy of exactly its size, so that an overread is seen. */
static void put(struct memdir *m, const char *name, const uint8_t *bytes,
		size_t len)
{
	void *copy = malloc(len ? len : 1);
	struct memdir_file *f;

	if (memdir_find(m, name)) {
		free(copy);
		return;
	}
	if (len)
		memcpy(copy, bytes, len);
	f = memdir_put(m, name, copy, len);
	if (!f)
		abort();
	f->owned = copy;
}

static const uint8_t *take_file(struct memdir *m, const uint8_t *at,
				const uint8_t *end, char *only)
{
	char name[256] = { 0 };
	size_t left, len, name_len = *at++;
	bool is_only = name_len == 0;

	if (is_only && at < end)
		name_len = *at++;
	left = (size_t)(end - at);
	name_len = name_len < left ? name_len : left;
	memcpy(name, at, name_len);
	at += name_len;
	left = (size_t)(end - at);
	len = left;
	if (left >= 2) {
		len = ck_le16(at);
		at += 2;
		left -= 2;
		len = len < left ? len : left;
	}
	put(m, name, at, len);
	if (is_only)
		strcpy(only, name);
	return at + len;
}

static void walk(const struct ck_catalog *img)
{
	for (int doc = CK_DUMP_CATALOG; doc <= CK_DUMP_PROBLEMS_TEXT; doc++) {
		struct ck_dump_pos pos = { 0 };
		struct ck_str text = { 0 };

		while (ck_dump_next(img, (enum ck_dump_doc)doc, 1, &pos, &text))
			;
		ck_str_free(&text);
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	const uint8_t *at = data, *end = data + size;
	struct ck_err err = { 0 };
	struct ck_catalog img;
	struct memdir m;
	char only[256] = { 0 };
	int fd, ret;

	memdir_init(&m);
	for (int i = 0; i < MAX_FILES && at < end; i++)
		at = take_file(&m, at, end, only);
	m.dir.only = only[0] ? only : NULL;
	fd = memfd_create("fuzz", MFD_CLOEXEC);
	ret = ck_detect_load(&m.dir, fd, &err);
	if (!ret) {
		if (ck_catalog_map(&img, fd, &err))
			abort(); /* the builder made what the mapper refuses */
		walk(&img);
		ck_catalog_unmap(&img);
	} else if (!err.msg[0] || err.code != -ret) {
		abort(); /* a refusal without its line */
	}
	close(fd);
	memdir_free(&m);
	return 0;
}
