/* SPDX-License-Identifier: Apache-2.0 */
/* overlay_map.c - a table of tables: little memory for what is not edited */
#include "core/write/overlay_priv.h"

#include <errno.h>
#include <stdlib.h>

static uint64_t nr_leaves(const struct ck_overlay_map *m)
{
	return m->size / (CK_OVERLAY_BLOCK * CK_OVERLAY_LEAF) + 1;
}

int ck_overlay_map_init(struct ck_overlay_map *m, uint64_t size)
{
	m->size = size;
	m->leaf = NULL; /* made with the first block */
	return 0;
}

void ck_overlay_map_free(struct ck_overlay_map *m)
{
	for (uint64_t i = 0; m->leaf && i < nr_leaves(m); i++)
		free(m->leaf[i]);
	free(m->leaf);
	m->leaf = NULL;
}

uint64_t ck_overlay_map_get(const struct ck_overlay_map *m, uint64_t block)
{
	const uint64_t *leaf =
		m->leaf ? m->leaf[block / CK_OVERLAY_LEAF] : NULL;

	return leaf ? leaf[block % CK_OVERLAY_LEAF] : 0;
}

uint64_t ck_overlay_map_nr(const struct ck_overlay_map *m)
{
	uint64_t nr = 0;

	for (uint64_t i = 0; m->leaf && i < nr_leaves(m); i++)
		for (unsigned k = 0; m->leaf[i] && k < CK_OVERLAY_LEAF; k++)
			nr += m->leaf[i][k] != 0;
	return nr;
}

bool ck_overlay_map_put(struct ck_overlay_map *m, uint64_t first, uint64_t nr,
			uint64_t at)
{
	if (!m->leaf)
		m->leaf = calloc(nr_leaves(m), sizeof(*m->leaf));
	if (!m->leaf)
		return false;
	for (uint64_t k = first; k < first + nr; k++) {
		uint64_t **leaf = &m->leaf[k / CK_OVERLAY_LEAF];

		if (!*leaf)
			*leaf = calloc(CK_OVERLAY_LEAF, sizeof(**leaf));
		if (!*leaf)
			return false;
		(*leaf)[k % CK_OVERLAY_LEAF] =
			at + (k - first) * CK_OVERLAY_BLOCK;
	}
	return true;
}
