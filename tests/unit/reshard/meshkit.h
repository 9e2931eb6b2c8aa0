/* SPDX-License-Identifier: Apache-2.0 */
/*
 * meshkit.h - a catalog of matrices, and the meshes that it is cut for
 *
 * One of each: a test has a process of its own.  MESH_SUITE() makes it anew.
 */
#ifndef MESHKIT_H
#define MESHKIT_H

#include "core/parse/json.h"
#include "core/reshard/spec.h"
#include "tests/unit/catalog/kit.h"
#include "tests/unit/reshard/naive.h"

#define MESHKIT_FILES 4

extern struct meshkit {
	struct kit kit; /* after kit_image(&mk.kit) it has its tensors */
	uint32_t file[MESHKIT_FILES];
	uint64_t at; /* of the next part, in whichever file */
	struct ck_opts opts; /* as the next ones, for mk_try() */
	json_t *config;
	struct ck_reshard *rs; /* of the last try */
	struct ck_err err;
	bool of_spec; /* it is the mesh that cannot be, not a tensor */
} mk;

#define MESH_SUITE(suite) TestSuite(suite, .init = mk_init, .fini = mk_free)
void mk_init(void);
void mk_free(void);

/* A part of a float32 tensor, in file @in. */
void mk_part(const char *name, unsigned rank, const uint64_t *shape,
	     const uint64_t *start, const uint64_t *len, unsigned in);
/* All of a [rows, columns], in the first file. */
void mk_whole(const char *name, uint64_t rows, uint64_t columns);
/* A [rows, columns] in @nr equal parts along @axis, a file each. */
void mk_split(const char *name, uint64_t rows, uint64_t columns, unsigned axis,
	      unsigned nr);

/* A mesh in words, or the @len bytes of a file; what ck_reshard_new() gives. */
int mk_try(const char *words);
int mk_try_file(const char *name, const char *bytes, size_t len);
/* It can be cut so, or the test fails. */
void mk_make(const char *words);
/* A tensor cannot be cut so, and the line has @why in it. */
void mk_refused(const char *words, const char *why);
/* No such mesh: -EINVAL. */
void mk_malformed(const char *words, const char *why);
/* As naive_holds(), by name. */
void mk_holds(uint32_t rank, const char *name, const char *want);

#endif
