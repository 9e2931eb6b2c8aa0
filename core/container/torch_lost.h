/* SPDX-License-Identifier: Apache-2.0 */
/*
 * torch_lost.h - says which tensors of a saved object no view can show
 *
 * Those below a key of a dict that is no text and no integer, and those inside
 * of objects (a pickled module, a set, a dataclass), which only the code of
 * their classes could take apart.
 */
#ifndef CK_TORCH_LOST_H
#define CK_TORCH_LOST_H

#include "core/base/err.h"
#include "core/catalog/builder.h"
#include "core/parse/pickle.h"

#include <stdbool.h>

struct ck_torch_lost_in {
	const struct ck_pickle *p;
	ck_pv from; /* the part of the saved object that was walked */
	struct ck_builder *b;
	const char *file;
	bool any; /* the file shows a tensor at least */
	bool keys_only; /* objects are taken apart by somebody */
	bool integers; /* only those that are keys of @from, and no names there */
	/* NULL: what torch.save writes, ck_torch_is_rebuild() */
	bool (*is_tensor)(const void *ctx, const struct ck_pickle *p, ck_pv v);
	const void *ctx;
};

/*
 * Says them to @b as problems of @file, a bounded number.  A key is an error;
 * an object a warning, or an error where nothing at all is shown.  0, or
 * -ENOMEM and the limits of ck_torch_walk().
 */
int ck_torch_lost_report(const struct ck_torch_lost_in *in, struct ck_err *err);

#endif
