/* SPDX-License-Identifier: Apache-2.0 */
/*
 * shared_storage.h - tensors that are stored in the same bytes: tied weights,
 * views
 *
 * A write to one of them changes the others.  Deferred items are not looked
 * at: each is saved by itself.
 *
 * Threads: made by one, then read by any.
 */
#ifndef CK_SHARED_STORAGE_H
#define CK_SHARED_STORAGE_H

#include "core/geom/catalog.h"

struct ck_shared_storage;

/* *out NULL where no two tensors share a byte.  0 or -ENOMEM. */
int ck_shared_storage_new(struct ck_shared_storage **out,
			  const struct ck_catalog *img);
void ck_shared_storage_free(struct ck_shared_storage *a);
/* The same for all tensors that share bytes; CK_NONE: it shares none. */
uint32_t ck_shared_storage_group(const struct ck_shared_storage *a,
				 uint32_t tensor);

#endif
