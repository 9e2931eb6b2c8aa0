/* SPDX-License-Identifier: Apache-2.0 */
/*
 * places.h - where in a view's file each of its tensors is
 *
 * Threads: one at a time.
 */
#ifndef FS_PLACES_H
#define FS_PLACES_H

#include "core/base/vec.h"
#include "core/view/view.h"

struct fs_place {
	uint32_t tensor;
	uint64_t off; /* of its first byte in the file */
};

struct fs_places {
	bool made;
	bool unclear; /* the file shows bytes in a way that is not known here */
	CK_VEC(struct fs_place) v; /* sorted by tensor */
};

/* Of file @nr of @v, once; @p is all zeros before. */
void fs_places_make(struct fs_places *p, const struct ck_view *v, uint32_t nr);
void fs_places_free(struct fs_places *p);
/* False: it is not in the file. */
bool fs_places_find(const struct fs_places *p, uint32_t tensor, uint64_t *off);

#endif
