/* SPDX-License-Identifier: Apache-2.0 */
/*
 * container.h - a file that holds tensors by name, of whichever kind
 *
 *	*.safetensors   a header of names, dtypes, shapes and offsets
 *	all others      torch.save: a pickled object, whose leaves are tensors
 *
 * Headers and pickles are read, never the bytes of tensors.  One thread.
 */
#ifndef CK_CONTAINER_FILE_H
#define CK_CONTAINER_FILE_H

#include "core/container/extent.h"
#include "core/container/st_file.h"
#include "core/container/torch_place.h"
#include "core/container/torch_walk.h"

/*
 * Opens @name, registers it with @b and returns both.  A file that does not
 * exist, or that may not be read, is registered as missing: *out is NULL and 0
 * is returned.  @out may be NULL.
 */
int ck_dir_source(const struct ck_dir *d, struct ck_builder *b,
		  const char *name, uint32_t *src, struct ck_source **out,
		  struct ck_err *err);

struct ck_container {
	const char *name; /* borrowed */
	bool is_st;
	struct ck_torch_open
		t; /* its source, of either kind; and torch.save's */
	struct ck_st_file st;
};

/*
 * 0, and *ok says whether it can be read.  A file that is missing is registered
 * as such with @b; one that is damaged is told in @why, whose code is set then.
 * -errno is for what ends the load.  @b NULL: only to look; it must be there.
 */
int ck_container_open(struct ck_container *c, const struct ck_dir *dir,
		      struct ck_builder *b, const char *name, bool *ok,
		      struct ck_err *why, struct ck_err *err);
/* The same of a file of which something else says what it is. */
int ck_container_open_as(struct ck_container *c, const struct ck_dir *dir,
			 struct ck_builder *b, const char *name, bool is_st,
			 bool *ok, struct ck_err *why, struct ck_err *err);
void ck_container_close(struct ck_container *c);
#define ck_auto_container __attribute__((cleanup(ck_container_close)))

/* What a name in a file stands for; valid during the call. */
struct ck_found {
	const char *name;
	size_t len;
	struct ck_torch_open *torch; /* NULL: of safetensors */
	const struct ck_torch_leaf *leaf; /* the same */
	const struct ck_st_entry *entry; /* NULL: of torch.save */
	bool is_tensor; /* else an object of torch.save's */
	struct ck_extent x; /* is_tensor */
};

/*
 * All of them in the order of the file; stops at the first call that does not
 * return 0, and returns that.  Then says to @b which tensors no name leads to,
 * and that bytes follow the last.
 */
typedef int (*ck_found_fn)(void *ctx, const struct ck_found *f,
			   struct ck_err *err);
int ck_container_each(struct ck_container *c, struct ck_builder *b,
		      ck_found_fn fn, void *ctx, struct ck_err *err);

#endif
