/* SPDX-License-Identifier: Apache-2.0 */
/*
 * labels.h - short words for the files behind one tensor
 *
 * "rank 3" where the names of all of them tell the rank that wrote them and no
 * two the same, else the name without its folders, or A, B, ... where those
 * are long.
 */
#ifndef LABELS_H
#define LABELS_H

#include "core/base/str.h"
#include "core/geom/catalog.h"

#include <stdbool.h>

enum labels_kind { LABELS_RANK, LABELS_NAME, LABELS_KEY };

struct labels {
	const struct ck_catalog *img;
	enum labels_kind kind;
	uint32_t *files; /* strings of the catalog, in order of appearance */
	uint32_t nr;
};

/* False: no memory, or files beyond counting. */
bool labels_init(struct labels *l, const struct ck_catalog *img,
		 const struct ck_tensor *t);
void labels_free(struct labels *l);
void labels_put(const struct labels *l, uint32_t src, struct ck_str *out);
/* "rank 3" and the like -> the file: what the labels leave out; or nothing. */
void labels_legend(const struct labels *l, struct ck_str *out);

/* The rank in "__3_0.distcp", "rank-00003.safetensors", ...; false: none. */
bool labels_rank(const char *name, size_t len, uint64_t *rank);

#endif
