/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kit.h - a builder with few words, and what came of it
 */
#ifndef CATALOG_KIT_H
#define CATALOG_KIT_H

#include "core/base/check.h"
#include "core/base/str.h"
#include "core/catalog/builder.h"
#include "core/catalog/dump.h"
#include "core/catalog/catalog.h"

#include <criterion/criterion.h>
#include <sys/stat.h>

#define DIMS(...) ((const uint64_t[]){ __VA_ARGS__ })
#define STEPS(...) ((const int64_t[]){ __VA_ARGS__ })

struct kit {
	struct ck_builder *b;
	struct ck_catalog img;
	struct ck_err err;
	int fd;
};

struct kit kit_new(void);
void kit_free(struct kit *k);
uint32_t kit_file(struct kit *k, const char *name, uint64_t size);
uint32_t kit_missing(struct kit *k, const char *name);
/* Fails the test unless it returns 0. */
void kit_add(struct kit *k, const struct ck_part *p);
/* Finishes, maps, and fails the test where either does. */
const struct ck_catalog *kit_image(struct kit *k);
/* CK_NONE where it is not served. */
uint32_t kit_find(struct kit *k, const char *name);
const struct ck_tensor *kit_tensor(struct kit *k, const char *name);
/* The only problem that names the tensor: its reason; fails on 0 or 2. */
const char *kit_reason(struct kit *k, const char *tensor);
unsigned kit_nr_problems(struct kit *k, const char *tensor);
/* The whole document; free with ck_str_free(). */
struct ck_str kit_dump(const struct ck_catalog *img, enum ck_dump_doc doc);
/* Start and end of each cell, as text: "[0:2, 0:4] [2:4, 0:4]". */
struct ck_str kit_cells(const struct ck_catalog *img,
			const struct ck_tensor *t);

/* A float32 part of [4, 8] of the whole, in @src at 0. */
static inline struct ck_part kit_part(const char *name, uint32_t src)
{
	static const uint64_t shape[] = { 4, 8 };

	return (struct ck_part){ .name = name,
				 .name_len = __builtin_strlen(name),
				 .src = src,
				 .dtype = CK_DT_F32,
				 .rank = 2,
				 .shape = shape };
}

/* Each test of @suite has a kit @k of its own, and in it @file of 1 MiB. */
#define KIT_SUITE(suite)                               \
	static struct kit k;                           \
	static uint32_t file;                          \
	static void set_up(void)                       \
	{                                              \
		k = kit_new();                         \
		file = kit_file(&k, "a.bin", 1 << 20); \
	}                                              \
	static void tear_down(void)                    \
	{                                              \
		kit_free(&k);                          \
	}                                              \
	TestSuite(suite, .init = set_up, .fini = tear_down)

#endif
