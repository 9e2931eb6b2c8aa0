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

/* 1 + the number of the list of numbers @v. */
static int read_dims(struct ck_dcp_items *t, const struct ck_pickle *p, ck_pv v,
		     uint32_t *out)
{
	uint64_t dims[CK_MAX_RANK];
	unsigned rank;

	if (!ck_pq_dims(p, v, "", dims, &rank))
		return -EINVAL;
	*out = ck_strmap_keep(&t->dims, &t->mem, (char *)dims,
			      rank * sizeof(*dims));
	return *out == CK_STRMAP_NONE ? -ENOMEM : ((*out)++, 0);
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
	out->name = ck_strmap_put(&t->names, name, len);
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
	out->file = ck_strmap_put(&t->files, path, len);
	return out->file == CK_STRMAP_NONE ? -ENOMEM : 0;
}

static bool is_class(const char *name, size_t len, const char *class)
{
	return len == strlen(class) && !memcmp(name, class, len);
}

uint64_t ck_dcp_fold(void *ctx, const struct ck_pickle *p, ck_pv object)
{
	struct ck_dcp_items *t = ctx;
	struct ck_dcp_box box;
	struct ck_dcp_key key;
	struct ck_dcp_info info;
	const char *name;
	size_t len;

	if (!ck_dcp_class(p, object, &name, &len))
		return CK_PICKLE_KEEP;
	if (is_class(name, len, "ChunkStorageMetadata") &&
	    !ck_dcp_box(t, p, object, &box) &&
	    !ck_vec_put(&t->boxes, NULL, box))
		return fold_to(BOX, t->boxes.nr - 1);
	if (is_class(name, len, "MetadataIndex") &&
	    !ck_dcp_key(t, p, object, &key) && !ck_vec_put(&t->keys, NULL, key))
		return fold_to(KEY, t->keys.nr - 1);
	/* the list of transforms would have to stay */
	if (is_class(name, len, "_StorageInfo") &&
	    !ck_dcp_info(t, p, object, &info) && !info.transforms &&
	    !ck_vec_put(&t->infos, NULL, info))
		return fold_to(INFO, t->infos.nr - 1);
	return CK_PICKLE_KEEP;
}
