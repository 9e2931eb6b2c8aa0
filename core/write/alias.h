/* SPDX-License-Identifier: Apache-2.0 */
/*
 * alias.h - tensors that are stored in the same bytes: tied weights, views
 *
 * A write to one of them changes the others.  Deferred items are not looked
 * at: each is saved by itself.
 *
 * Threads: made by one, then read by any.
 */
#ifndef CK_ALIAS_H
#define CK_ALIAS_H

#include "core/geom/image.h"

struct ck_alias;

/* *out NULL where no two tensors share a byte.  0 or -ENOMEM. */
int ck_alias_new(struct ck_alias **out, const struct ck_image *img);
void ck_alias_free(struct ck_alias *a);
/* The same for all tensors that share bytes; CK_NONE: it shares none. */
uint32_t ck_alias_group(const struct ck_alias *a, uint32_t tensor);

#endif
