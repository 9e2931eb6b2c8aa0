/* SPDX-License-Identifier: Apache-2.0 */
/*
 * run_dir_pair.h - a model and the optimizer of the same save, held together
 *
 * Parts of one save are checkpoints of their own, and no file of one says what
 * the other has to have.  But every parameter that has states is a tensor of
 * the model, and of its shape: so a model that lacks a stage shows, and so does
 * another model's optimizer, and one in the place of the other.
 */
#ifndef CK_RUN_DIR_PAIR_H
#define CK_RUN_DIR_PAIR_H

#include "core/base/str.h"
#include "core/geom/catalog.h"

enum { CK_PAIR_MODEL, CK_PAIR_OPTIMIZER, CK_PAIR_NR };

/* What the parts are called; ck_pair_of(): which of them @name is, or -1. */
extern const char *const ck_pair_names[CK_PAIR_NR];
int ck_pair_of(const char *name);

/*
 * Appends to @out of a part what is wrong with it; nothing where nothing is, or
 * where it is not known.  @img of a part NULL: there is none, or it cannot be
 * read.  Where one has errors of its own they are not compared.
 */
void ck_pair_check(const struct ck_catalog *const img[CK_PAIR_NR],
		   struct ck_str out[CK_PAIR_NR]);

#endif
