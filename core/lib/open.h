/* SPDX-License-Identifier: Apache-2.0 */
/* open.h - what opening one checkpoint and listing many have in common */
#ifndef CK_LIB_OPEN_H
#define CK_LIB_OPEN_H

#include "core/lib/lib.h"
#include "core/lib/only_ckpt.h"
#include "core/run/run_dir.h"

struct ck_shared_catalog;

/* Who describes for the library. */
struct ck_lib_describer {
	struct ck_parser_by by;
	bool in_process; /* instead of by it */
	const struct ck_shared_catalog
		*image; /* or somebody did already; or NULL */
	bool every_file; /* is compared with the image, not some of them */
	bool served; /* by a mount, of which the image is */
	unsigned depth; /* how often it was none: a directory of them */
};
struct ck_describer ck_lib_describer(struct ck_lib_describer *d);

/* Fills @out, which is to be freed also after -errno. */
int ck_lib_opts(struct ck_opts *out, const unshard_ctx *ctx,
		const unshard_open_opts *opts, struct ck_err *err);
/* Of a run, its folder of checkpoints. */
int ck_lib_open_root(struct ck_root *out, const char *path,
		     const struct ck_opts *opts, struct ck_err *err);

enum ck_lib_entry {
	CK_LIB_COMPLETE,
	CK_LIB_INCOMPLETE, /* bytes are missing */
	CK_LIB_UNREADABLE,
	CK_LIB_SEVERAL /* a directory of more than one */
};
/* Of checkpoint @name in the directory @all. */
enum ck_lib_entry ck_lib_entry_state(const struct ck_lib_describer *d,
				     const struct ck_root *all,
				     const char *name,
				     const struct ck_opts *opts);

#endif
