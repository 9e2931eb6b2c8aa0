/* SPDX-License-Identifier: Apache-2.0 */
/*
 * model_names.h - which tensors are the model's, and what the model calls them
 *
 * Trainers save {"model": weights, "optimizer": ...}; loaders want the model's
 * own names.  A wrapping key is taken off only where the saved structure (the
 * path parts that the format recorded) shows that it is one: every tensor that
 * is no optimizer or trainer state lies below it, counters and generators in
 * the same dict aside, which are left out then.  A model whose own names
 * begin with "model." recorded them as one part, and keeps them.
 */
#ifndef CK_MODEL_NAMES_H
#define CK_MODEL_NAMES_H

#include "core/base/err.h"
#include "core/base/opts.h"
#include "core/base/str.h"
#include "core/view/merged.h"

struct ck_model_names {
	struct ck_merged_tensor *v; /* the model's tensors; names in @text */
	uint32_t nr;
	char *text;
	struct ck_str rule; /* what was done, in words, one line */
	bool idle; /* strip-prefix= is given, and no name begins with it */
	struct ck_model_clash {
		uint32_t tensor, other; /* both would get the same name */
	} * clash;
	uint32_t nr_clash;
};

/* Tensors [first, first + nr) of @img; option strip-prefix decides if given. */
int ck_model_names_make(struct ck_model_names *out,
			const struct ck_catalog *img, uint32_t first,
			uint32_t nr, const struct ck_opts *opts,
			struct ck_err *err);
/* Whether it has its weights twice, and -o weights= says which are shown. */
bool ck_model_names_twice(const struct ck_catalog *img);
void ck_model_names_free(struct ck_model_names *n);

#endif
