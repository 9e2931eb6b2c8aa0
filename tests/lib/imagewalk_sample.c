/* SPDX-License-Identifier: Apache-2.0 */
/* imagewalk_sample.c - small catalogs for the tests that damage them */
#include "tests/lib/imagewalk.h"

#include "core/catalog/builder.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

static void check(int ret, const struct ck_err *err)
{
	if (!ret)
		return;
	fprintf(stderr, "imagewalk_sample: %s\n", err->msg);
	abort();
}

static void add(struct ck_builder *b, struct ck_part p, const char *name,
		const uint64_t *start, const uint64_t *len, uint64_t off)
{
	struct ck_err err;

	p.name = name;
	p.name_len = strlen(name);
	p.start = start;
	p.len = len;
	p.off = off;
	check(ck_builder_add(b, &p, &err), &err);
}

/* A mesh with a tree and replicas. */
static void add_mesh(struct ck_builder *b, struct ck_part p)
{
	const uint64_t shape[2] = { 15, 10 }, len[2] = { 3, 2 };

	p.shape = shape;
	for (uint64_t i = 0; i < 50; i++) {
		const uint64_t start[2] = { i % 25 / 5 * 3, i % 5 * 2 };

		p.item_len = i % 2 ? 0 : 77;
		add(b, p, "mesh", start, len, i * 80);
	}
}

/* One of each thing that a part can be. */
static void add_kinds(struct ck_builder *b, struct ck_part p, uint32_t other)
{
	const uint64_t shape[2] = { 4, 8 }, grid[3] = { 2, 2, 8 };
	const uint64_t start[2] = { 2, 0 }, len[2] = { 2, 8 };
	const uint64_t flat[2] = { 0, 13 }, rest[2] = { 13, 32 };
	const int64_t back[2] = { 1, -4 };

	p.shape = shape;
	add(b, p, "whole", NULL, NULL, 0);
	p.flat = flat;
	add(b, p, "flat", NULL, NULL, 100);
	p.flat = rest;
	p.src = other;
	add(b, p, "flat", NULL, NULL, 0);
	p.flat = NULL;
	p.stride = back;
	add(b, p, "../strided", NULL, NULL, 1000);
	p.stride = NULL;
	add(b, p, "hole", start, len, 0);
	add(b, p, "torn", NULL, NULL, 4090);
	p.grid = grid;
	p.grid_rank = 3;
	add(b, p, "grid", NULL, NULL, 0);
	p.rank = 0;
	p.grid = NULL;
	add(b, p, "", NULL, NULL, 0);
}

static void add_rest(struct ck_builder *b, struct ck_part p, uint32_t file)
{
	const struct ck_path_part path[] = { { "model", 5, -1 },
					     { NULL, 0, 3 } };
	const uint64_t shape[1] = { 4 };
	struct ck_object_in o = { "step", 4, 0, file, CK_ENC_PICKLE, 9, 9 };
	const struct stat st = { .st_mode = S_IFREG, .st_size = 3 };
	struct ck_err err;

	check(ck_builder_read(b, "an index", &st, &err), &err);
	p.rank = 1;
	p.shape = shape;
	check(ck_builder_mem(b, "sixteen bytes...", 16, &p.src, &err), &err);
	add(b, p, "kept", NULL, NULL, 0);
	o.src = p.src;
	check(ck_builder_object(b, &o, &err), &err);
	o.src = file;
	check(ck_builder_object(b, &o, &err), &err);
	check(ck_builder_codec(b, file, CK_CODEC_ZSTD, 5, 50, &p.src, &err),
	      &err);
	add(b, p, "packed", NULL, NULL, 0);
	check(ck_builder_path(b, 0, "packed", 6, path, 2, &err), &err);
	check(ck_builder_tree(b, "optim", 5, &p.tree, &err), &err);
	add(b, p, "packed", NULL, NULL, 16);
	check(ck_builder_file(b, "gone", NULL, &p.src, &err), &err);
	add(b, p, "gone", NULL, NULL, 16);
}

unsigned char *imagewalk_sample(unsigned kind, size_t *size)
{
	struct stat st = { .st_mode = S_IFREG | 0644, .st_size = 4096 };
	struct ck_part p = { .dtype = CK_DT_F32, .rank = 2 };
	int fd = memfd_create("sample", MFD_CLOEXEC);
	struct ck_err err;
	struct ck_builder *b = ck_builder_new(&err);
	unsigned char *bytes;
	uint32_t other;

	check(!b || fd < 0, &err);
	check(ck_builder_file(b, "a.bin", &st, &p.src, &err), &err);
	check(ck_builder_file(b, "b.bin", &st, &other, &err), &err);
	if (kind != 1)
		add_mesh(b, p);
	if (kind != 0)
		add_kinds(b, p, other);
	if (kind != 0)
		add_rest(b, p, other);
	check(ck_builder_finish(b, "sample", fd, &err), &err);
	ck_builder_free(b);
	*size = (size_t)lseek(fd, 0, SEEK_END);
	bytes = malloc(*size);
	check(!bytes || pread(fd, bytes, *size, 0) != (ssize_t)*size, &err);
	close(fd);
	return bytes;
}
