/* SPDX-License-Identifier: Apache-2.0 */
/*
 * items.c - storage_data: (name, offset of a box) -> bytes of a file
 *
 * The `index` of a key is no key: it is None, or local to a rank, or repeated.
 */
#include "core/format/dcp/dcp.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#define NEAR 16 /* slots in a line of the processor's cache */

/*
 * The item of that name and offset, or the free slot where it would go.  Boxes of a
 * tensor mostly have numbers that follow each other: they are near each other.
 */
static uint32_t *find_slot(const struct ck_dcp_items *t, uint32_t name,
			   uint32_t at)
{
	uint64_t group = (uint64_t)name << 32 | at / NEAR;
	size_t i = XXH3_64bits_withSeed(&group, sizeof(group), t->seed) * NEAR +
		   at % NEAR;

	for (;; i++) {
		uint32_t *slot = &t->slot[i & (t->nr_slots - 1)];
		const struct ck_dcp_item *it;

		if (!*slot)
			return slot;
		it = &t->v.v[*slot - 1];
		if (it->name == name && it->at == at)
			return slot;
	}
}

/* One that cannot be read costs only the part that it is of. */
static int leave_entry(struct ck_dcp_items *t, uint64_t nr)
{
	if (!t->odd++)
		t->first_odd = nr;
	return 0;
}

static int read_entry(struct ck_dcp_items *t, const struct ck_dcp_meta *m,
		      ck_pv key, ck_pv info, uint64_t nr, struct ck_err *err)
{
	struct ck_dcp_key k;
	struct ck_dcp_info in;
	uint32_t *slot;
	int ret = ck_dcp_key(t, m->p, key, &k);

	if (!ret)
		ret = ck_dcp_info(t, m->p, info, &in);
	if (ret)
		return ret == -EINVAL ? leave_entry(t, nr) : ck_no_memory(err);
	slot = find_slot(t, k.name, k.at);
	if (*slot) {
		t->twice++;
		return 0;
	}
	ret = ck_vec_put(&t->v, err,
			 (struct ck_dcp_item){ .off = in.off,
					       .len = in.len,
					       .name = k.name,
					       .file = in.file,
					       .at = k.at,
					       .transforms = in.transforms });
	*slot = (uint32_t)t->v.nr;
	return ret;
}

static int make_room(struct ck_dcp_items *t, size_t nr, struct ck_err *err)
{
	t->nr_slots = NEAR;
	while (t->nr_slots < 2 * nr + NEAR)
		t->nr_slots *= 2;
	t->slot = calloc(t->nr_slots, sizeof(*t->slot));
	/* what grows is copied */
	return t->slot && ck_vec_reserve(&t->v, nr + 1) ? 0 : ck_no_memory(err);
}

int ck_dcp_items_read(struct ck_dcp_items *t, const struct ck_dcp_meta *m,
		      struct ck_err *err)
{
	struct ck_piter it;
	ck_pv key, info;
	uint64_t nr = 0;
	int ret;

	ck_piter_init_pairs(&it, m->p, m->storage);
	while (ck_piter_next2(&it, &key, &info))
		nr++;
	if (nr > CK_MAX_CHUNKS)
		return ck_fail(err, E2BIG, "%s: more than %u items", m->file,
			       CK_MAX_CHUNKS);
	ret = make_room(t, nr, err);
	ck_piter_init_pairs(&it, m->p, m->storage);
	for (nr = 0; !ret && ck_piter_next2(&it, &key, &info); nr++)
		ret = read_entry(t, m, key, info, nr, err);
	free(t->keys.v);
	free(t->infos.v);
	memset(&t->keys, 0, sizeof(t->keys));
	memset(&t->infos, 0, sizeof(t->infos));
	return ret;
}

struct ck_dcp_item *ck_dcp_items_find(struct ck_dcp_items *t, uint32_t name,
				      uint32_t at)
{
	uint32_t nr = *find_slot(t, name, at);

	return nr ? &t->v.v[nr - 1] : NULL;
}

struct ck_dcp_items *ck_dcp_items_new(struct ck_err *err)
{
	struct ck_dcp_items *t = calloc(1, sizeof(*t));

	if (!t) {
		ck_no_memory(err);
		return NULL;
	}
	t->seed =
		(uint64_t)(uintptr_t)t ^ (uint64_t)(uintptr_t)&ck_dcp_items_new;
	t->box_fields = (struct ck_pq_fields){ { "offsets", "sizes" }, { 0 } };
	t->key_fields = (struct ck_pq_fields){ { "fqn", "offset" }, { 0 } };
	t->info_fields =
		(struct ck_pq_fields){ { "relative_path", "offset", "length",
					 "transform_descriptors" },
				       { 0 } };
	return t;
}

void ck_dcp_items_free(struct ck_dcp_items *t)
{
	if (!t)
		return;
	ck_strmap_free(&t->names);
	ck_strmap_free(&t->files);
	ck_strmap_free(&t->dims);
	ck_arena_free(&t->mem);
	free(t->boxes.v);
	free(t->keys.v);
	free(t->infos.v);
	free(t->v.v);
	free(t->slot);
	free(t);
}
