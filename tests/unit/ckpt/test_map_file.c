/* SPDX-License-Identifier: Apache-2.0 */
/* .unshard/map as it is made, and any byte of it changed or missing. */
#include "core/ckpt/map_file.h"

#include "core/base/whole.h"
#include "core/ckpt/shared_catalog.h"
#include "tests/lib/openckpt.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define DEMO "tests/demo/checkpoint"

static struct ck_opts opts;
static struct ck_err err;
static struct ck_ckpt *ck;
static struct ck_str file;

static void set_up(void)
{
	struct ck_map_parts parts;

	cr_assert(!ck_opts_add(&opts, "sandbox", "off"));
	cr_assert(!open_ckpt(&ck, DEMO, &opts, &err), "%s", err.msg);
	cr_assert(ck_map_make(&parts, ck_ckpt_catalog(ck), ck_ckpt_root(ck),
			      "verify,follow=/x"));
	ck_str_add(&file, parts.head.v, parts.head.len);
	ck_str_add(&file, ck_ckpt_catalog(ck)->base, ck_ckpt_catalog(ck)->size);
	ck_str_add(&file, parts.end.v, parts.end.len);
	ck_map_parts_free(&parts);
	cr_assert(!file.failed);
}

static void tear_down(void)
{
	ck_str_free(&file);
	ck_ckpt_close(ck);
	ck_opts_free(&opts);
}

TestSuite(map_file, .init = set_up, .fini = tear_down);

/* Of the first @len bytes. */
static int read_back(struct ck_map *map, size_t len)
{
	int fd = memfd_create("map", MFD_CLOEXEC), ret;

	cr_assert(fd >= 0 && !ck_write_whole(fd, file.v, len));
	ret = ck_map_read(map, fd, &err);
	close(fd);
	return ret;
}

Test(map_file, says_what_is_mounted)
{
	struct ck_shared_catalog image;
	struct ck_map map;

	cr_assert_eq(read_back(&map, file.len), 0, "%s", err.msg);
	cr_assert_str_eq(map.path, ck_ckpt_root(ck)->real);
	cr_assert(!map.only);
	cr_assert_str_eq(map.options, "verify,follow=/x");
	cr_assert_eq(ck_shared_catalog_open(&image, map.image_fd, &err), 0);
	cr_assert(ck_shared_catalog_is_of(&image, ck_ckpt_root(ck)));
	cr_assert_eq(image.size, ck_ckpt_catalog(ck)->size);
	ck_map_free(&map);
}

Test(map_file, damaged)
{
	struct ck_map map;

	for (size_t i = 0; i < file.len; i += i < 200 ? 1 : 97) {
		file.v[i] = (char)(file.v[i] ^ 1);
		cr_assert_eq(read_back(&map, file.len), -EBADMSG, "byte %zu",
			     i);
		cr_assert(!map.path && !map.options && map.image_fd == -1);
		file.v[i] = (char)(file.v[i] ^ 1);
	}
	for (size_t n = 0; n < file.len; n += n < 200 ? 1 : 997)
		cr_assert_eq(read_back(&map, n), -EBADMSG, "%zu bytes", n);
}

Test(map_file, none_of_joined_directories)
{
	struct ck_root root = *ck_ckpt_root(ck);
	struct ck_map_parts parts;

	cr_assert(ck_map_is_of(&root));
	root.next = &root;
	cr_assert(!ck_map_is_of(&root));
	cr_assert(!ck_map_make(&parts, ck_ckpt_catalog(ck), &root, ""));
	ck_map_parts_free(&parts);
}
