/* SPDX-License-Identifier: Apache-2.0 */
/*
 * intern.h - the sections of a catalog whose values are shared
 *
 * Equal strings, runs of dims and layouts are stored once.  References are
 * what the catalog has: byte offsets of strings, positions in dims, indices of
 * layouts.  Private to catalog/.
 */
#ifndef CK_INTERN_H
#define CK_INTERN_H

#include "core/base/err.h"
#include "core/base/vec.h"
#include "core/catalog/table.h"
#include "core/geom/catalog.h"

struct ck_dims_run {
	uint32_t ref, nr;
};

struct ck_intern {
	CK_VEC(char) strs;
	CK_VEC(uint64_t) dims;
	CK_VEC(struct ck_dims_run) runs;
	CK_VEC(struct ck_layout) layouts;
	uint64_t seed; /* of all hashes: names are chosen by who wrote them */
	struct ck_table str_tab, run_tab, layout_tab;
};

/* Each returns 0, -ENOMEM, or -E2BIG where references would not fit. */
int ck_intern_str(struct ck_intern *in, const char *bytes, size_t len,
		  uint32_t *ref, struct ck_err *err);
int ck_intern_dims(struct ck_intern *in, const uint64_t *v, uint32_t nr,
		   uint32_t *ref, struct ck_err *err);
int ck_intern_layout(struct ck_intern *in, const struct ck_layout *l,
		     uint32_t *ref, struct ck_err *err);
/* Appends @nr dims without looking for equal ones; *at is valid till the next
 * call. */
int ck_intern_room(struct ck_intern *in, size_t nr, uint32_t *ref,
		   uint64_t **at, struct ck_err *err);
const char *ck_intern_text(const struct ck_intern *in, uint32_t ref,
			   size_t *len);
void ck_intern_free(struct ck_intern *in);

#endif
