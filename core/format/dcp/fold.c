/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fold.c - what a .metadata has one of for each chunk, as a few numbers
 *
 *   ChunkStorageMetadata   offsets, sizes          a box
 *   MetadataIndex          fqn, offset             a key of storage_data
 *   _StorageInfo           relative_path, ...      its value
 *
 * As objects, three of them are 31 words a chunk, and 6 more in the memo.  So they
 * are folded while the pickle is read; what cannot be stays an object and is read
 * later, by the same functions.
 */
#include "core/format/dcp/dcp.h"

#include <errno.h>
#include <string.h>

enum { BOX, KEY, INFO, KINDS };

/* Number @i of that kind, for the pickle, and back. */
static uint64_t fold_to(unsigned kind, uint64_t i)
{
	return i * KINDS + kind;
}

static bool folded(ck_pv v, unsigned kind, uint64_t *i)
{
	uint64_t number;

	if (!ck_pv_folded(v, &number) || number % KINDS != kind)
		return false;
	*i = number / KINDS;
	return true;
}

static struct ck_dcp_seen *seen(struct ck_dcp_seen *all, ck_pv v)
{
	return &all[(v * UINT64_C(0x9e3779b97f4a7c15) >> 32) % CK_DCP_SEEN];
}

/* The number of a text; CK_STRMAP_NONE: no memory. */
static uint32_t read_text(const struct ck_dcp_items *t, struct ck_strmap *map,
			  struct ck_dcp_seen *before, ck_pv v, const char *s,
			  size_t len)
{
	if (!t->folding || before->v != v) {
		before->v = v;
		before->number = ck_strmap_put(map, s, len);
	}
	return before->number;
}

/* Whether @v says the same as long as it is there. */
static bool is_fixed(const struct ck_pickle *p, ck_pv v)
{
	return ck_pv_kind(v) == CK_P_TUPLE ||
	       (ck_pv_at(p, ck_pv_args(p, v), 0, &v) &&
		ck_pv_kind(v) == CK_P_TUPLE);
}

/* 1 + the number of the list of numbers @v. */
static int read_dims(struct ck_dcp_items *t, const struct ck_pickle *p, ck_pv v,
		     uint32_t *out)
{
	struct ck_dcp_seen *before = seen(t->seen_dims, v);
	bool stays = t->folding && ck_pv_stays(v, t->folding);
	uint64_t dims[CK_MAX_RANK];
	unsigned rank;

	if (!v) /* there is no such attribute */
		return -EINVAL;
	if (stays && before->v == v) {
		*out = before->number;
		return 0;
	}
	if (!ck_pq_dims(p, v, "", dims, &rank))
		return -EINVAL;
	*out = ck_strmap_keep(&t->dims, &t->mem, (char *)dims,
			      rank * sizeof(*dims));
	if ((*out)++ == CK_STRMAP_NONE)
		return -ENOMEM;
	if (stays && is_fixed(p, v))
		*before = (struct ck_dcp_seen){ v, *out };
	return 0;
}

unsigned ck_dcp_dims(const struct ck_dcp_items *t, uint32_t at,
		     uint64_t out[CK_MAX_RANK])
{
	const struct ck_strmap_key *k = &t->dims.v[at - 1];

	memcpy(out, k->s, k->len);
	return (unsigned)(k->len / sizeof(*out));
}

int ck_dcp_box(struct ck_dcp_items *t, const struct ck_pickle *p, ck_pv v,
	       struct ck_dcp_box *out)
{
	ck_pv got[CK_PQ_FIELDS];
	uint64_t i;
	int ret;

	if (folded(v, BOX, &i)) {
		*out = t->boxes.v[i];
		return 0;
	}
	ck_pq_fields(&t->box_fields, p, v, got);
	ret = read_dims(t, p, got[0], &out->at);
	return ret ? ret : read_dims(t, p, got[1], &out->len);
}

int ck_dcp_key(struct ck_dcp_items *t, const struct ck_pickle *p, ck_pv v,
	       struct ck_dcp_key *out)
{
	ck_pv got[CK_PQ_FIELDS];
	const char *name;
	size_t len;
	uint64_t i;

	if (folded(v, KEY, &i)) {
		*out = t->keys.v[i];
		return 0;
	}
	ck_pq_fields(&t->key_fields, p, v, got);
	if (!got[0] || !ck_pv_str(p, got[0], &name, &len))
		return -EINVAL;
	out->name = read_text(t, &t->names, &t->seen_name, got[0], name, len);
	out->at = 0;
	if (out->name == CK_STRMAP_NONE)
		return -ENOMEM;
	if (!got[1] || ck_pv_kind(got[1]) == CK_P_NONE)
		return 0;
	return read_dims(t, p, got[1], &out->at);
}

int ck_dcp_info(struct ck_dcp_items *t, const struct ck_pickle *p, ck_pv v,
		struct ck_dcp_info *out)
{
	ck_pv got[CK_PQ_FIELDS];
	const char *path;
	size_t len;
	uint64_t i;

	if (folded(v, INFO, &i)) {
		*out = t->infos.v[i];
		return 0;
	}
	ck_pq_fields(&t->info_fields, p, v, got);
	*out = (struct ck_dcp_info){ 0 };
	if (!got[0] || !ck_pv_str(p, got[0], &path, &len) ||
	    !ck_dcp_size(p, got[1], &out->off) ||
	    !ck_dcp_size(p, got[2], &out->len))
		return -EINVAL;
	if (got[3] && ck_pv_kind(got[3]) != CK_P_NONE)
		out->transforms = got[3];
	out->file = read_text(t, &t->files, seen(t->seen_file, got[0]), got[0],
			      path, len);
	return out->file == CK_STRMAP_NONE ? -ENOMEM : 0;
}

/* Which kind it is to be, by its class; KINDS: it stays. */
static unsigned kind_of(const struct ck_pickle *p, ck_pv object)
{
#define CLASS(text)                    \
	{                              \
		text, sizeof(text) - 1 \
	}
	static const struct {
		const char *name;
		size_t len;
	} class[] = { [BOX] = CLASS("ChunkStorageMetadata"),
		      [KEY] = CLASS("MetadataIndex"),
		      [INFO] = CLASS("_StorageInfo") };
#undef CLASS
	const char *name;
	size_t len;

	if (!ck_dcp_class(p, object, &name, &len))
		return KINDS;
	for (unsigned i = 0; i < KINDS; i++)
		if (len == class[i].len && !memcmp(name, class[i].name, len))
			return i;
	return KINDS;
}

static int fold(struct ck_dcp_items *t, const struct ck_pickle *p, ck_pv object,
		unsigned kind, uint64_t *i)
{
	struct ck_dcp_box box;
	struct ck_dcp_key key;
	struct ck_dcp_info info;
	int ret;

	if (kind == BOX) {
		ret = ck_dcp_box(t, p, object, &box);
		*i = t->boxes.nr;
		return ret ? ret : ck_vec_put(&t->boxes, NULL, box);
	}
	if (kind == KEY) {
		ret = ck_dcp_key(t, p, object, &key);
		*i = t->keys.nr;
		return ret ? ret : ck_vec_put(&t->keys, NULL, key);
	}
	ret = ck_dcp_info(t, p, object, &info);
	*i = t->infos.nr;
	/* the list of transforms would have to stay */
	if (!ret && info.transforms)
		ret = -EINVAL;
	return ret ? ret : ck_vec_put(&t->infos, NULL, info);
}

uint64_t ck_dcp_fold(void *ctx, const struct ck_pickle *p, ck_pv object)
{
	struct ck_dcp_items *t = ctx;
	unsigned kind = kind_of(p, object);
	uint64_t i = 0;
	int ret;

	if (kind == KINDS)
		return CK_PICKLE_KEEP;
	t->folding = object;
	ret = fold(t, p, object, kind, &i);
	t->folding = 0;
	return ret ? CK_PICKLE_KEEP : fold_to(kind, i);
}
