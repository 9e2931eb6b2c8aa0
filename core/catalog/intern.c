/* SPDX-License-Identifier: Apache-2.0 */
/* intern.c - strings, dims and layouts of a catalog, each kept once */
#include "core/catalog/intern.h"

#include <errno.h>
#include <string.h>
#include <xxhash.h>

static int too_large(struct ck_err *err, const char *what)
{
	return ck_fail(err, E2BIG, "the catalog has more than 2^32 %s", what);
}

struct str_key {
	const char *bytes;
	size_t len;
};

const char *ck_intern_text(const struct ck_intern *in, uint32_t ref,
			   size_t *len)
{
	const struct ck_catalog img = { .strs = in->strs.v };

	return ck_catalog_str(&img, ref, len);
}

static bool str_equal(const void *ctx, uint32_t ref, const void *key)
{
	const struct ck_intern *in = ctx;
	const struct str_key *k = key;
	size_t len;
	const char *text = ck_intern_text(in, ref, &len);

	return len == k->len && !memcmp(text, k->bytes, len);
}

static int append_str(struct ck_intern *in, const struct str_key *k,
		      struct ck_err *err)
{
	uint32_t len = (uint32_t)k->len;
	char *at;

	if (k->len >= UINT32_MAX - 5 || in->strs.nr + k->len + 5 >= UINT32_MAX)
		return too_large(err, "bytes of names");
	if (!ck_vec_reserve(&in->strs, k->len + 5))
		return ck_no_memory(err);
	at = in->strs.v + in->strs.nr;
	memcpy(at, &len, sizeof(len));
	memcpy(at + 4, k->bytes, k->len);
	at[4 + k->len] = '\0';
	in->strs.nr += k->len + 5;
	return 0;
}

int ck_intern_str(struct ck_intern *in, const char *bytes, size_t len,
		  uint32_t *ref, struct ck_err *err)
{
	const struct str_key key = { len ? bytes : "", len };
	uint64_t hash = XXH3_64bits_withSeed(key.bytes, len, in->seed);
	int ret;

	*ref = ck_table_find(&in->str_tab, hash, str_equal, in, &key);
	if (*ref != CK_NONE)
		return 0;
	*ref = (uint32_t)in->strs.nr;
	ret = append_str(in, &key, err);
	if (ret)
		return ret;
	if (!ck_table_put(&in->str_tab, hash, *ref))
		return ck_no_memory(err);
	return 0;
}

int ck_intern_room(struct ck_intern *in, size_t nr, uint32_t *ref,
		   uint64_t **at, struct ck_err *err)
{
	if (nr >= UINT32_MAX - in->dims.nr)
		return too_large(err, "coordinates");
	if (!ck_vec_reserve(&in->dims, nr + 1))
		return ck_no_memory(err);
	*ref = (uint32_t)in->dims.nr;
	*at = in->dims.v + in->dims.nr;
	in->dims.nr += nr;
	return 0;
}

struct run_key {
	const uint64_t *v;
	uint32_t nr;
};

static bool run_equal(const void *ctx, uint32_t index, const void *key)
{
	const struct ck_intern *in = ctx;
	const struct run_key *k = key;
	struct ck_dims_run run = in->runs.v[index];

	return run.nr == k->nr &&
	       !memcmp(in->dims.v + run.ref, k->v, k->nr * sizeof(*k->v));
}

int ck_intern_dims(struct ck_intern *in, const uint64_t *v, uint32_t nr,
		   uint32_t *ref, struct ck_err *err)
{
	const struct run_key key = { v, nr };
	uint32_t index;
	uint64_t hash, *at;
	int ret;

	*ref = 0;
	if (!nr)
		return 0;
	hash = XXH3_64bits_withSeed(v, nr * sizeof(*v), in->seed);
	index = ck_table_find(&in->run_tab, hash, run_equal, in, &key);
	if (index != CK_NONE) {
		*ref = in->runs.v[index].ref;
		return 0;
	}
	if (!ck_vec_reserve(&in->runs, 1))
		return ck_no_memory(err);
	ret = ck_intern_room(in, nr, ref, &at, err);
	if (ret)
		return ret;
	memcpy(at, v, nr * sizeof(*v));
	in->runs.v[in->runs.nr] = (struct ck_dims_run){ *ref, nr };
	if (!ck_table_put(&in->run_tab, hash, (uint32_t)in->runs.nr))
		return ck_no_memory(err);
	in->runs.nr++;
	return 0;
}

static bool layout_equal(const void *ctx, uint32_t index, const void *key)
{
	const struct ck_intern *in = ctx;

	return !memcmp(&in->layouts.v[index], key, sizeof(struct ck_layout));
}

int ck_intern_layout(struct ck_intern *in, const struct ck_layout *l,
		     uint32_t *ref, struct ck_err *err)
{
	uint64_t hash = XXH3_64bits_withSeed(l, sizeof(*l), in->seed);

	*ref = ck_table_find(&in->layout_tab, hash, layout_equal, in, l);
	if (*ref != CK_NONE)
		return 0;
	*ref = (uint32_t)in->layouts.nr;
	if (in->layouts.nr >= CK_NONE)
		return too_large(err, "layouts");
	if (!ck_vec_reserve(&in->layouts, 1) ||
	    !ck_table_put(&in->layout_tab, hash, *ref))
		return ck_no_memory(err);
	in->layouts.v[in->layouts.nr++] = *l;
	return 0;
}

void ck_intern_free(struct ck_intern *in)
{
	free(in->strs.v);
	free(in->dims.v);
	free(in->runs.v);
	free(in->layouts.v);
	ck_table_free(&in->str_tab);
	ck_table_free(&in->run_tab);
	ck_table_free(&in->layout_tab);
	*in = (struct ck_intern){ 0 };
}
