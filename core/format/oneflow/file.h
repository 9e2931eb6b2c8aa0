/* SPDX-License-Identifier: Apache-2.0 */
/*
 * file.h - one save by OneFlow: a folder, or one file
 *
 *   PATH                                      1.0: one pickle, tensors inside
 *   PATH/pickled_data, PATH/tensor_5/{meta,out}    0.6 to 0.9
 *   PATH/NAME/{meta,out}, PATH/snapshot_done       0.5 and before
 *   PATH/NAME/{meta,out}, PATH/model.mlir          a graph
 *
 * Gives its leaves one by one, tensors with the place of their bytes.
 */
#ifndef CK_ONEFLOW_FILE_H
#define CK_ONEFLOW_FILE_H

#include "core/base/err.h"
#include "core/base/limits.h"
#include "core/catalog/builder.h"
#include "core/root/dir.h"

#include <stdbool.h>
#include <stdint.h>

enum ck_of_kind {
	CK_OF_NONE,
	CK_OF_SINGLE,
	CK_OF_DIRECTORY,
	CK_OF_LEGACY,
	CK_OF_GRAPH,
};

struct ck_of_leaf {
	const char *name; /* valid during the call, as all here is */
	size_t name_len;
	const struct ck_path_part *path; /* NULL: the name is all of it */
	unsigned depth;
	bool is_tensor;
	const char *fault; /* why it cannot be read; NULL: it can */
	/* a tensor's */
	uint8_t dtype, xform; /* as stored */
	unsigned rank;
	uint64_t shape[CK_MAX_RANK];
	int64_t stride[CK_MAX_RANK]; /* elements */
	uint32_t src;
	uint64_t off;
	const char *file; /* that src is; NULL: these bytes */
	const void *bytes;
	bool whole; /* it was global: every process stored all of it */
	/* an object's */
	uint8_t enc;
	uint64_t len;
	const char *foreign; /* it calls what no framework has; or NULL */
};

typedef int (*ck_of_leaf_fn)(void *ctx, const struct ck_of_leaf *leaf,
			     struct ck_err *err);

/*
 * The enum ck_of_kind of @path ("": the checkpoint's folder itself, or its one
 * file), or -ENOMEM.
 */
int ck_of_kind_of(const struct ck_dir *dir, const char *path,
		  struct ck_err *err);
/* -EINVAL with a line that names the file where @path cannot be read. */
int ck_of_load(const struct ck_dir *dir, struct ck_builder *b, const char *path,
	       ck_of_leaf_fn fn, void *ctx, struct ck_err *err);

#endif
