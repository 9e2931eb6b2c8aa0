/* SPDX-License-Identifier: Apache-2.0 */
/*
 * torch_place.h - a tensor of a torch.save file, with where its bytes are
 */
#ifndef CK_TORCH_PLACE_H
#define CK_TORCH_PLACE_H

#include "core/base/str.h"
#include "core/catalog/builder.h"
#include "core/container/extent.h"
#include "core/container/torch_save.h"
#include "core/parse/pickle_query.h"
#include "core/root/dir.h"

#include <stdbool.h>

struct ck_torch_place {
	struct ck_torch_tensor t;
	struct ck_extent x; /* whose shape and strides are those of @t */
};

/* A file that is open for its pickle; close it when the names are used up. */
struct ck_torch_open {
	struct ck_source *s;
	struct ck_torch_save ts;
	uint32_t src;
};

/*
 * 0, and *ok says whether it can be read: a file that is missing or damaged is
 * said to @b as a problem.  -errno is for what ends the load.
 */
int ck_torch_open(struct ck_torch_open *f, const struct ck_dir *dir,
		  struct ck_builder *b, const char *name, bool *ok,
		  struct ck_err *err);
void ck_torch_open_close(struct ck_torch_open *f);
#define ck_auto_torch_open __attribute__((cleanup(ck_torch_open_close)))

/* -EINVAL with a line in @why where it is no tensor with plain bytes. */
int ck_torch_place(struct ck_torch_open *f, ck_pv v, struct ck_torch_place *out,
		   struct ck_err *why);
/*
 * The same where it says what is wrong with it: 0 also where its bytes cannot
 * be had: out->x.fault is then the line in @why.  -errno is for what ends the
 * load.
 */
int ck_torch_extent(struct ck_torch_open *f, ck_pv v,
		    struct ck_torch_place *out, struct ck_err *why,
		    struct ck_err *err);
/* The number in a 0-d tensor, or a plain one: 1; it is none: 0; or -ENOMEM. */
int ck_torch_number(struct ck_torch_open *f, ck_pv v, double *out);

/*
 * Leaf @v, as it is: a tensor, or an object.  @path leads to it in the saved
 * structure; @nr 0: nobody says so.
 */
int ck_torch_leaf_add(struct ck_torch_open *f, struct ck_builder *b, ck_pv v,
		      const struct ck_str *name,
		      const struct ck_path_part *path, unsigned nr,
		      struct ck_err *err);
/*
 * The tensors and other leaves below the keys of the root that @skip does not
 * name, as they are, with @prefix before their names.
 */
int ck_torch_rest(struct ck_torch_open *f, struct ck_builder *b,
		  const char *prefix, const char *const *skip,
		  struct ck_err *err);

#endif
