/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fuzz_ca_optim.c - any bytes as ColossalAI's optimizer files
 *
 * The input is an index, a flat safetensors file and a torch.save file, each
 * after its length in u16 LE, and what is left is the file of groups.  The
 * index may name them i, s.safetensors, b.bin and g.bin.  Of what is accepted
 * the catalog must be one, and every refusal has its line.
 */
#include "core/base/le.h"
#include "core/catalog/catalog.h"
#include "core/format/colossalai/colossalai.h"
#include "tests/lib/memdir.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* A copy of exactly its size, so that an overread is seen. */
static void put(struct memdir *m, const char *name, const uint8_t *bytes,
		size_t len)
{
	void *copy = malloc(len ? len : 1);
	struct memdir_file *f;

	if (len)
		memcpy(copy, bytes, len);
	f = memdir_put(m, name, copy, len);
	if (!f)
		abort();
	f->owned = copy;
}

static int load(const struct memdir *m, const char *only, int fd,
		struct ck_err *err)
{
	struct ck_builder *b = ck_builder_new(err);
	int ret;

	if (!b)
		abort();
	ret = only ? ck_colossalai_optim_load_one(&m->dir, only, b, err) :
		     ck_colossalai_optim_load(&m->dir, "i", b, err);
	if (!ret)
		ret = ck_builder_finish(b, "colossalai", fd, err);
	ck_builder_free(b);
	return ret;
}

static void check(const struct memdir *m, const char *only)
{
	int fd = memfd_create("fuzz", MFD_CLOEXEC);
	struct ck_err err = { 0 };
	struct ck_catalog img;
	int ret = load(m, only, fd, &err);

	if (!ret) {
		if (ck_catalog_map(&img, fd, &err))
			abort(); /* the builder made what the mapper refuses */
		ck_catalog_unmap(&img);
	} else if (!err.msg[0] || err.code != -ret) {
		abort(); /* a refusal without its line */
	}
	close(fd);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static const char *const names[] = { "i", "s.safetensors", "b.bin",
					     "g.bin" };
	const uint8_t *at = data, *end = data + size;
	struct memdir m;

	memdir_init(&m);
	for (int i = 0; i < 4; i++) {
		size_t left = (size_t)(end - at), len = left;

		if (i < 3 && left >= 2) {
			len = ck_le16(at);
			at += 2;
			left -= 2;
			len = len < left ? len : left;
		}
		put(&m, names[i], at, len);
		at += len;
	}
	check(&m, NULL);
	check(&m, "s.safetensors");
	check(&m, "b.bin");
	memdir_free(&m);
	return 0;
}
