/* SPDX-License-Identifier: Apache-2.0 */
/*
 * set.h - the saves of several ranks, joined as the SBP given says
 *
 * One save alone is a set of one, whose tensors are whole.
 */
#ifndef CK_ONEFLOW_SET_H
#define CK_ONEFLOW_SET_H

#include "core/base/err.h"
#include "core/base/vec.h"
#include "core/catalog/builder.h"
#include "core/root/dir.h"
#include "core/format/oneflow/sbp.h"
#include "core/base/strmap.h"

#include <stdbool.h>
#include <stdint.h>

struct ck_of_part {
	uint32_t rank, src, next; /* of the same tensor; CK_STRMAP_NONE: last */
	uint8_t dtype, xform;
	bool whole;
	uint64_t off;
	uint64_t *dims; /* shape, then strides */
	char *file;
	void *bytes;
};

struct ck_of_item {
	char *name;
	size_t len;
	uint32_t first, last; /* parts */
	unsigned rank; /* dimensions */
	char *fault;
};

struct ck_of_set {
	const struct ck_dir *dir;
	struct ck_builder *b;
	const struct ck_of_sbp *sbp; /* NULL: every save holds all of it */
	uint32_t nr_saves; /* how many there should be, where sbp is NULL */
	/* private */
	uint32_t rank; /* that is read now */
	const char *path; /* its save */
	struct ck_strmap names, objects;
	CK_VEC(struct ck_of_item) items;
	CK_VEC(struct ck_of_part) parts;
	CK_VEC(char *) kept; /* the names of objects */
	uint64_t compared; /* bytes */
};

/* Reads the save of rank @rank; a damaged one of several is a problem and 0. */
int ck_of_set_read(struct ck_of_set *s, uint32_t rank, const char *path,
		   struct ck_err *err);
/* Says all tensors to the builder, or why not. */
int ck_of_set_join(struct ck_of_set *s, struct ck_err *err);
void ck_of_set_free(struct ck_of_set *s);

/* copies.c: whether parts @a and @b of a tensor hold the same bytes. */
int ck_of_same_bytes(struct ck_of_set *s, const struct ck_of_item *item,
		     const struct ck_of_part *a, const struct ck_of_part *b,
		     bool *compared, uint64_t *differ, struct ck_err *err);

#endif
