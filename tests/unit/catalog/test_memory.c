/* SPDX-License-Identifier: Apache-2.0 */
/* Each allocation of a load fails in turn: -ENOMEM, nothing leaked or lost. */
#include "tests/unit/catalog/kit.h"

#include "tests/lib/failalloc.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static int add_parts(struct ck_builder *b, uint32_t src, struct ck_err *err)
{
	struct ck_part p = kit_part("mesh", src);
	int ret = 0;

	p.shape = DIMS(40, 40);
	for (uint64_t i = 0; i < 100 && !ret; i++) {
		p.start = DIMS(i / 10 * 4, i % 10 * 4);
		p.len = DIMS(4, 4);
		p.off = i * 64;
		if (i != 50)
			ret = ck_builder_add(b, &p, err);
	}
	p = kit_part("cut", src);
	p.overlap_ok = true;
	for (uint64_t i = 0; i < 4 && !ret; i++) {
		p.start = i < 2 ? DIMS(i * 2, 0) : DIMS(0, i * 4 - 8);
		p.len = i < 2 ? DIMS(2, 8) : DIMS(4, 4);
		p.off = i * 1000;
		ret = ck_builder_add(b, &p, err);
	}
	p = kit_part("overlap", src);
	for (uint64_t i = 0; i < 2 && !ret; i++) {
		p.len = DIMS(3 + i, 8);
		ret = ck_builder_add(b, &p, err);
	}
	return ret;
}

static int load(struct ck_builder *b, int fd, struct ck_err *err)
{
	struct stat st = { .st_mode = S_IFREG, .st_size = 1 << 20 };
	const struct ck_problem_in note = { .severity = CK_NOTE };
	const struct ck_path_part path[] = { { "m", 1, -1 } };
	struct ck_object_in o = { .name = "o", .name_len = 1, .len = 3 };
	uint32_t src, tree;
	int ret = ck_builder_file(b, "a.bin", &st, &src, err);

	if (!ret)
		ret = add_parts(b, src, err);
	if (!ret)
		ret = ck_builder_mem(b, "xyz", 3, &o.src, err);
	if (!ret)
		ret = ck_builder_tree(b, "t", 1, &tree, err);
	if (!ret)
		ret = ck_builder_object(b, &o, err);
	if (!ret)
		ret = ck_builder_path(b, 0, "o", 1, path, 1, err);
	if (!ret)
		ret = ck_builder_problem(b, &note, err, "note");
	if (!ret)
		ret = ck_builder_refuse(b, 0, "r", 1, err, "refused");
	return ret ? ret : ck_builder_finish(b, "kit", fd, err);
}

/* One load whose @nth allocation fails; whether there were so many. */
static bool fails_at(unsigned long nth)
{
	struct ck_err err = { .code = 0 };
	struct ck_catalog img;
	struct ck_builder *b;
	int fd = memfd_create("image", MFD_ALLOW_SEALING);
	bool failed;
	int ret = -ENOMEM;

	failalloc_arm(nth);
	b = ck_builder_new(&err);
	if (b)
		ret = load(b, fd, &err);
	failed = failalloc_happened();
	ck_builder_free(b);
	if (failed) {
		cr_assert_eq(ret, -ENOMEM, "allocation %lu: %d", nth, ret);
		cr_assert_str_eq(err.msg, "no memory");
		cr_assert_neq(ck_catalog_map(&img, fd, &err), 0);
	} else {
		cr_assert_eq(ret, 0);
		cr_assert_eq(ck_catalog_map(&img, fd, &err), 0, "%s", err.msg);
		cr_assert_eq(img.nr_tensors, 2);
		cr_assert_eq(img.nr_problems, 4);
		ck_catalog_unmap(&img);
	}
	close(fd);
	return failed;
}

Test(catalog_memory, each_allocation_fails_in_turn)
{
	unsigned long nth = 1;

	while (fails_at(nth))
		nth++;
	cr_expect_gt(nth, 100, "only %lu allocations", nth);
}

/* No room for the catalog: not a catalog, and it is said. */
Test(catalog_memory, no_room_for_the_image)
{
	struct kit k = kit_new();
	int full = memfd_create("full", MFD_ALLOW_SEALING);

	cr_assert_eq(ftruncate(full, 10), 0);
	cr_assert_eq(fcntl(full, F_ADD_SEALS, F_SEAL_GROW), 0);
	cr_expect_eq(ck_builder_finish(k.b, "kit", full, &k.err), -EPERM);
	cr_expect(strstr(k.err.msg, "cannot write the catalog"));
	close(full);
	kit_free(&k);
}
