/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fuzz_layout.c - any bytes as an unshard-layout.json beside three files
 *
 * What is accepted is a catalog that passes all checks; what is not has a line.
 */
#include "core/catalog/catalog.h"
#include "core/format/detect.h"
#include "tests/lib/memdir.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const char header[] =
	"{\"w\":{\"dtype\":\"F32\",\"shape\":[2,3],\"data_offsets\":[0,24]},"
	"\"l.0.b\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[24,28]}}";

static size_t make_file(unsigned char *to)
{
	memset(to, 0, 8);
	to[0] = sizeof(header) - 1;
	memcpy(to + 8, header, sizeof(header) - 1);
	memset(to + 8 + sizeof(header) - 1, 7, 28);
	return 8 + sizeof(header) - 1 + 28;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static unsigned char file[sizeof(header) + 64];
	size_t len = make_file(file);
	int fd = memfd_create("fuzz", MFD_CLOEXEC);
	struct ck_err err = { 0 };
	struct ck_catalog img;
	struct memdir m;

	memdir_init(&m);
	if (fd < 0 || !memdir_put(&m, "r0.safetensors", file, len) ||
	    !memdir_put(&m, "r1.safetensors", file, len) ||
	    !memdir_put(&m, "w.bin", file, 64) ||
	    !memdir_put(&m, "unshard-layout.json", data, size))
		abort();
	if (ck_detect_load(&m.dir, fd, &err)) {
		if (!err.msg[0])
			abort();
	} else {
		if (ck_catalog_map(&img, fd, &err))
			abort();
		ck_catalog_unmap(&img);
	}
	memdir_free(&m);
	close(fd);
	return 0;
}
