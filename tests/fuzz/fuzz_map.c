/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fuzz_map.c - any bytes as .unshard/map of a mount, and again with the hash
 * that they should end with
 */
#include "core/base/auto.h"
#include "core/base/le.h"
#include "core/base/whole.h"
#include "core/catalog/catalog.h"
#include "core/ckpt/map_file.h"
#include "core/ckpt/shared_catalog.h"
#include "tests/lib/imagewalk.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <xxhash.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void walk(const struct ck_map *map)
{
	struct ck_shared_catalog shared;
	struct ck_catalog img;
	ck_auto_fd int fd = -1;

	if (map->only &&
	    strcmp(map->path + strlen(map->path) - strlen(map->only),
		   map->only) != 0)
		abort();
	if (ck_shared_catalog_open(&shared, map->image_fd, NULL) ||
	    ck_shared_catalog_alone(&shared, &fd, NULL) ||
	    ck_catalog_map(&img, fd, NULL))
		return;
	imagewalk(&img);
	ck_catalog_unmap(&img);
}

static void parse(const uint8_t *data, size_t size)
{
	ck_auto_fd int fd = memfd_create("map", MFD_CLOEXEC);
	struct ck_err err = { 0 };
	struct ck_map map;

	if (fd < 0 || ck_write_whole(fd, data, size))
		return;
	if (ck_map_read(&map, fd, &err)) {
		if (!err.msg[0] || map.path || map.image_fd >= 0)
			abort();
		return;
	}
	walk(&map);
	ck_map_free(&map);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	ck_auto_free uint8_t *fixed = malloc(size + 1);

	parse(data, size);
	if (!fixed || size < sizeof(uint64_t))
		return 0;
	memcpy(fixed, data, size);
	size -= sizeof(uint64_t);
	ck_le64_put(fixed + size, XXH3_64bits(fixed, size));
	parse(fixed, size + sizeof(uint64_t));
	return 0;
}
