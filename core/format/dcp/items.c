/* SPDX-License-Identifier: Apache-2.0 */
/*
 * items.c - storage_data: (name, offset of a box) -> bytes of a file
 *
 * The `index` of a key is no key: it is None, or local to a rank, or repeated.
 */
#include "core/format/dcp/dcp.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

static uint64_t hash_of(uint32_t name, const uint64_t *at, unsigned rank)
{
	uint64_t seed = (uint64_t)name << 8 | rank;

	if (rank == CK_DCP_NO_OFFSET)
		rank = 0;
	return XXH3_64bits_withSeed(at, rank * sizeof(*at), seed);
}

/*
 * The slot of that entry, or the free one where it would go.  Half of the
 * hash is in the slot, so that other entries are hardly ever looked at.
 */
static uint64_t *find_slot(const struct ck_dcp_items *t, uint32_t name,
			   const uint64_t *at, unsigned rank, uint64_t hash)
{
	size_t i = hash & (t->nr_slots - 1);
	size_t nr = rank == CK_DCP_NO_OFFSET ? 0 : rank;

	for (;; i = (i + 1) & (t->nr_slots - 1)) {
		const struct ck_dcp_item *it;

		if (!t->slots[i])
			return &t->slots[i];
		if ((t->slots[i] ^ hash) >> 32)
			continue;
		it = &t->v.v[(uint32_t)t->slots[i] - 1];
		if (it->name == name && it->rank == rank &&
		    (!nr || !memcmp(t->dims.v + it->at, at, nr * sizeof(*at))))
			return &t->slots[i];
	}
}

static bool make_slots(struct ck_dcp_items *t, uint64_t nr)
{
	t->nr_slots = 64;
	while (t->nr_slots < 2 * nr)
		t->nr_slots *= 2;
	t->slots = calloc(t->nr_slots, sizeof(*t->slots));
	return t->slots;
}

struct entry_attrs {
	struct ck_pq_fields key, info;
};

/* One that cannot be read costs only the part that it is of. */
static int leave_entry(struct ck_dcp_items *t, uint64_t nr)
{
	if (!t->odd++)
		t->first_odd = nr;
	return 0;
}

static int parse_key(const struct ck_dcp_meta *m, struct entry_attrs *a,
		     ck_pv key, const char **name, size_t *len, uint64_t *at,
		     unsigned *rank)
{
	ck_pv got[CK_PQ_FIELDS];

	*rank = CK_DCP_NO_OFFSET;
	ck_pq_fields(&a->key, m->p, key, got);
	if (!got[0] || !ck_pv_str(m->p, got[0], name, len))
		return -EINVAL;
	if (!got[1] || ck_pv_kind(got[1]) == CK_P_NONE)
		return 0;
	return ck_pq_dims(m->p, got[1], "", at, rank) ? 0 : -EINVAL;
}

static int parse_info(struct ck_dcp_items *t, const struct ck_dcp_meta *m,
		      struct entry_attrs *a, ck_pv info, struct ck_dcp_item *it)
{
	ck_pv got[CK_PQ_FIELDS];
	const char *path;
	size_t len;

	ck_pq_fields(&a->info, m->p, info, got);
	if (!got[0] || !ck_pv_str(m->p, got[0], &path, &len) ||
	    !ck_dcp_size(m->p, got[1], &it->off) ||
	    !ck_dcp_size(m->p, got[2], &it->len))
		return -EINVAL;
	if (got[3] && ck_pv_kind(got[3]) != CK_P_NONE)
		it->transforms = got[3];
	it->file = ck_strmap_put(&t->files, path, len);
	return it->file == CK_STRMAP_NONE ? -ENOMEM : 0;
}

static int put(struct ck_dcp_items *t, struct ck_dcp_item *it,
	       const uint64_t *at)
{
	uint64_t hash = hash_of(it->name, at, it->rank);
	uint64_t *slot = find_slot(t, it->name, at, it->rank, hash);
	size_t nr = it->rank == CK_DCP_NO_OFFSET ? 0 : it->rank;
	struct ck_dcp_item *fresh;

	if (*slot) {
		t->twice++;
		return 0;
	}
	fresh = ck_vec_push(&t->v);
	if (!fresh || !ck_vec_reserve(&t->dims, nr + 1) ||
	    t->dims.nr + nr > UINT32_MAX)
		return -ENOMEM;
	it->at = (uint32_t)t->dims.nr;
	if (nr)
		memcpy(t->dims.v + it->at, at, nr * sizeof(*at));
	t->dims.nr += nr;
	*fresh = *it;
	*slot = hash >> 32 << 32 | t->v.nr;
	return 0;
}

static int read_entry(struct ck_dcp_items *t, const struct ck_dcp_meta *m,
		      struct entry_attrs *a, ck_pv key, ck_pv info, uint64_t nr,
		      struct ck_err *err)
{
	struct ck_dcp_item it = { 0 };
	uint64_t at[CK_MAX_RANK];
	const char *name;
	unsigned rank;
	size_t len;
	int ret;

	if (parse_key(m, a, key, &name, &len, at, &rank))
		return leave_entry(t, nr);
	it.rank = (uint8_t)rank;
	ret = parse_info(t, m, a, info, &it);
	if (ret == -EINVAL)
		return leave_entry(t, nr);
	it.name = ck_strmap_put(&t->names, name, len);
	if (!ret && it.name != CK_STRMAP_NONE)
		ret = put(t, &it, at);
	return ret || it.name == CK_STRMAP_NONE ? ck_no_memory(err) : 0;
}

int ck_dcp_items_read(struct ck_dcp_items *t, const struct ck_dcp_meta *m,
		      struct ck_err *err)
{
	struct entry_attrs attrs = {
		.key = { .names = { "fqn", "offset" } },
		.info = { .names = { "relative_path", "offset", "length",
				     "transform_descriptors" } },
	};
	struct ck_piter it;
	ck_pv key, info;
	uint64_t nr = 0;
	int ret = 0;

	*t = (struct ck_dcp_items){ 0 };
	ck_piter_init_pairs(&it, m->p, m->storage);
	while (ck_piter_next2(&it, &key, &info))
		nr++;
	if (nr > CK_MAX_CHUNKS)
		return ck_fail(err, E2BIG, "%s: more than %u items", m->file,
			       CK_MAX_CHUNKS);
	/* real keys have two dimensions, mostly; what grows is copied */
	if (!make_slots(t, nr) || !ck_vec_reserve(&t->v, nr + 1) ||
	    !ck_vec_reserve(&t->dims, 2 * nr + 1))
		return ck_no_memory(err);
	ck_piter_init_pairs(&it, m->p, m->storage);
	for (nr = 0; !ret && ck_piter_next2(&it, &key, &info); nr++)
		ret = read_entry(t, m, &attrs, key, info, nr, err);
	t->dcp_file = ret ? NULL : malloc((t->files.nr + 1) * sizeof(uint32_t));
	if (!ret && !t->dcp_file)
		return ck_no_memory(err);
	for (size_t i = 0; !ret && i < t->files.nr; i++)
		t->dcp_file[i] = CK_DCP_NONE;
	return ret;
}

struct ck_dcp_item *ck_dcp_items_find(struct ck_dcp_items *t, uint32_t name,
				      const uint64_t *at, unsigned rank)
{
	uint64_t *slot = find_slot(t, name, at, rank, hash_of(name, at, rank));

	return *slot ? &t->v.v[(uint32_t)*slot - 1] : NULL;
}

void ck_dcp_items_free(struct ck_dcp_items *t)
{
	ck_strmap_free(&t->names);
	ck_strmap_free(&t->files);
	free(t->v.v);
	free(t->dims.v);
	free(t->slots);
	free(t->dcp_file);
	*t = (struct ck_dcp_items){ 0 };
}
