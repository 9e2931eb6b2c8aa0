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

/* What tells an entry from others, as bytes; returns how many. */
static size_t place_of(uint64_t out[1 + CK_MAX_RANK], uint32_t name,
		       const uint64_t *at, unsigned rank)
{
	unsigned nr = rank == CK_DCP_NO_OFFSET ? 0 : rank;

	out[0] = (uint64_t)name << 8 | rank;
	if (nr)
		memcpy(out + 1, at, nr * sizeof(*at));
	return (1 + nr) * sizeof(*out);
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

static int read_entry(struct ck_dcp_items *t, const struct ck_dcp_meta *m,
		      struct entry_attrs *a, ck_pv key, ck_pv info, uint64_t nr,
		      struct ck_err *err)
{
	struct ck_dcp_item it = { 0 };
	uint64_t at[CK_MAX_RANK], place[1 + CK_MAX_RANK];
	const char *name;
	unsigned rank;
	uint32_t number;
	size_t len;
	int ret;

	if (parse_key(m, a, key, &name, &len, at, &rank))
		return leave_entry(t, nr);
	ret = parse_info(t, m, a, info, &it);
	if (ret == -EINVAL)
		return leave_entry(t, nr);
	it.name = ck_strmap_put(&t->names, name, len);
	if (ret || it.name == CK_STRMAP_NONE)
		return ck_no_memory(err);
	len = place_of(place, it.name, at, rank);
	number = ck_strmap_keep(&t->places, &t->mem, (char *)place, len);
	if (number == CK_STRMAP_NONE)
		return ck_no_memory(err);
	if (number == t->v.nr)
		return ck_vec_put(&t->v, err, it);
	t->twice++;
	return 0;
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
	/* what grows is copied */
	if (!ck_vec_reserve(&t->v, nr + 1) ||
	    !ck_vec_reserve(&t->places, nr + 1))
		return ck_no_memory(err);
	ck_piter_init_pairs(&it, m->p, m->storage);
	for (nr = 0; !ret && ck_piter_next2(&it, &key, &info); nr++)
		ret = read_entry(t, m, &attrs, key, info, nr, err);
	return ret;
}

struct ck_dcp_item *ck_dcp_items_find(struct ck_dcp_items *t, uint32_t name,
				      const uint64_t *at, unsigned rank)
{
	uint64_t place[1 + CK_MAX_RANK];
	size_t len = place_of(place, name, at, rank);
	uint32_t nr = ck_strmap_get(&t->places, (char *)place, len);

	return nr == CK_STRMAP_NONE ? NULL : &t->v.v[nr];
}

void ck_dcp_items_free(struct ck_dcp_items *t)
{
	ck_strmap_free(&t->names);
	ck_strmap_free(&t->files);
	ck_strmap_free(&t->places);
	ck_arena_free(&t->mem);
	free(t->v.v);
	*t = (struct ck_dcp_items){ 0 };
}
