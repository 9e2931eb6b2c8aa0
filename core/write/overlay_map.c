/* SPDX-License-Identifier: Apache-2.0 */
/* overlay_map.c - a table of tables: little memory for what is not edited */
#include "core/write/overlay_priv.h"

#include "core/base/check.h"

#include <stdlib.h>

static uint64_t nr_leaves(const struct ck_overlay_map *m)
{
	return m->size / (CK_OVERLAY_BLOCK * CK_OVERLAY_LEAF) + 1;
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

uint64_t ck_overlay_map_next(const struct ck_overlay_map *m, uint64_t *block,
			     uint64_t most)
{
	uint64_t nr = m->leaf ? CK_DIV_UP(m->size, CK_OVERLAY_BLOCK) : 0;
	uint64_t k = *block, end;

	while (k < nr && !ck_overlay_map_get(m, k))
		k += m->leaf[k / CK_OVERLAY_LEAF] ?
			     1 :
			     CK_OVERLAY_LEAF - k % CK_OVERLAY_LEAF;
	for (end = k; end < nr && end - k < most; end++)
		if (!ck_overlay_map_get(m, end))
			break;
	*block = k;
	return end - k;
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
		uint64_t *place;

		if (!*leaf)
			*leaf = calloc(CK_OVERLAY_LEAF, sizeof(**leaf));
		if (!*leaf)
			return false;
		place = &(*leaf)[k % CK_OVERLAY_LEAF];
		m->nr += !*place;
		*place = at + (k - first) * CK_OVERLAY_BLOCK;
	}
	return true;
}
