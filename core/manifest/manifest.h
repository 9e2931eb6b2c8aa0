/* SPDX-License-Identifier: Apache-2.0 */
/*
 * manifest.h - what the files of a checkpoint held when it was finished
 *
 * One file beside the shards, CK_MANIFEST_NAME: the size of every file and an
 * XXH3-64 of each of its blocks, and an XXH3-128 of every tensor as it is
 * shown.  docs/manifest.md describes the bytes.  XXH3 finds accidents, not
 * forgery.
 *
 * Reading: ck_manifest_parse() checks any bytes once, whoever wrote them;
 * afterwards the calls below cannot fail.  Writing: ck_manifest_new(), a call
 * for each file and tensor in any order, ck_manifest_bytes(), ck_manifest_store().
 *
 * Threads: parsed ones are constant, any; writers belong to one thread.
 */
#ifndef CK_MANIFEST_H
#define CK_MANIFEST_H

#include "core/base/err.h"
#include "core/root/root.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define CK_MANIFEST_SHIFT 22 /* log2 of the usual block: 4 MiB */

/* As xxh128sum prints it: hi, then lo, 16 hexadecimal digits each. */
struct ck_digest {
	uint64_t hi, lo;
};
#define CK_DIGEST_TEXT 33 /* with the NUL */
void ck_digest_text(const struct ck_digest *d, char out[CK_DIGEST_TEXT]);

struct ck_manifest_file {
	const char *name; /* relative, "a/b"; NUL-terminated */
	size_t name_len;
	uint64_t size; /* bytes */
	uint64_t first, nr; /* its blocks; the last may be shorter */
	/* XXH3-128 of its blocks' digests, as they stand in the manifest. */
	struct ck_digest digest;
};

struct ck_manifest_tensor {
	const char *tree, *name; /* NUL-terminated, and may contain NULs */
	size_t tree_len, name_len;
	uint64_t size; /* bytes */
	bool known; /* whether @digest is: not of what was torn or edited */
	struct ck_digest digest; /* XXH3-128 of its bytes */
};

struct ck_manifest {
	const unsigned char *bytes;
	size_t len;
	unsigned shift; /* a block is 1 << shift bytes of a file */
	uint64_t nr_files, nr_tensors, nr_blocks;
	int64_t made; /* seconds since 1970 */
	struct ck_digest digest; /* of the manifest itself */
	/* private */
	const unsigned char *files, *tensors, *blocks;
	const char *strs;
	uint64_t strs_len;
	unsigned char *own; /* freed with the manifest; or NULL */
};

/*
 * Borrows @bytes for the life of @m.  -EINVAL with a line for all that is not
 * exactly one manifest of this version.
 */
int ck_manifest_parse(struct ck_manifest *m, const void *bytes, size_t len,
		      struct ck_err *err);
/*
 * The manifest of a root, read and parsed: ck_root_manifest() in the first
 * directory of the chain.  -ENOENT where there is none.
 */
int ck_manifest_load(struct ck_manifest *m, const struct ck_root *root,
		     struct ck_err *err);
/* Its file, which is another one each time that it is replaced; -errno. */
int ck_manifest_stat(const struct ck_root *root, struct stat *st);
void ck_manifest_free(struct ck_manifest *m);

/* By number; sorted by name, and by tree and name, as memcmp() sorts. */
void ck_manifest_file(const struct ck_manifest *m, uint64_t i,
		      struct ck_manifest_file *out);
void ck_manifest_tensor(const struct ck_manifest *m, uint64_t i,
			struct ck_manifest_tensor *out);
/* Digest of block @k of the manifest: file->first + which. */
uint64_t ck_manifest_block(const struct ck_manifest *m, uint64_t k);
#define CK_NO_FILE UINT64_MAX

/* The number of that file, or CK_NO_FILE. */
uint64_t ck_manifest_number(const struct ck_manifest *m, const char *name,
			    size_t len);
bool ck_manifest_find_file(const struct ck_manifest *m, const char *name,
			   size_t len, struct ck_manifest_file *out);
/* Of block @k of file @name; false: it is not there, or not of such blocks. */
bool ck_manifest_block_of(const struct ck_manifest *m, unsigned shift,
			  const char *name, uint64_t size, uint64_t k,
			  uint64_t *digest);
bool ck_manifest_find_tensor(const struct ck_manifest *m, const char *tree,
			     size_t tree_len, const char *name, size_t len,
			     struct ck_manifest_tensor *out);

struct ck_manifest_new;

/* @shift 0: the usual.  *out: ck_manifest_drop() frees it. */
int ck_manifest_new(struct ck_manifest_new **out, unsigned shift,
		    struct ck_err *err);
void ck_manifest_drop(struct ck_manifest_new *n);
unsigned ck_manifest_new_shift(const struct ck_manifest_new *n);
/* Copies all; @block: XXH3-64 of each block, as many as @size makes. */
int ck_manifest_put_file(struct ck_manifest_new *n, const char *name,
			 uint64_t size, const uint64_t *block,
			 struct ck_err *err);
/* Copies all; @digest NULL: not known. */
int ck_manifest_put_tensor(struct ck_manifest_new *n, const char *tree,
			   size_t tree_len, const char *name, size_t len,
			   uint64_t size, const struct ck_digest *digest,
			   struct ck_err *err);
/* The bytes of the whole, from malloc().  -EINVAL: a name was given twice. */
int ck_manifest_bytes(struct ck_manifest_new *n, void **bytes, size_t *len,
		      struct ck_err *err);
/*
 * Writes them as @name in directory @dir (a descriptor): a file beside it,
 * fsync, rename, fsync of the directory.  After -errno what was there before
 * is there still, unless it was the last of these that failed.
 */
int ck_manifest_store(int dir, const char *name, const void *bytes, size_t len,
		      struct ck_err *err);

#endif
