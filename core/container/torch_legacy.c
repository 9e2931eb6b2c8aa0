/* SPDX-License-Identifier: Apache-2.0 */
/*
 * torch_legacy.c - what torch.save wrote before 1.6
 *
 *   pickle: 0x1950A86A20F9469CFC6C | pickle: 1001 | pickle: sizes of types
 *   pickle: the object             | pickle: list of the storages' keys
 *   for each key, in that order: i64 LE count of elements, the bytes
 *
 * How many bytes an element has stands only in the class of the storage's
 * persistent id, so all ids of the object are collected first.
 */
#include "core/container/torch_save_priv.h"

#include "core/base/auto.h"
#include "core/base/check.h"
#include "core/base/le.h"
#include "core/base/limits.h"
#include "core/container/torch_walk.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

#define FIRST_READ (UINT64_C(1) << 20)

/* The five pickles in the first @len bytes; *used: where storages begin. */
static int parse_five(struct ck_torch_save *ts, size_t len,
		      struct ck_pickle **keys, size_t *used, struct ck_err *err)
{
	size_t at = 0, n;

	for (int i = 0; i < 5; i++) {
		ck_auto_pickle struct ck_pickle *p = NULL;
		int ret = ck_pickle_parse(&p, ts->bytes + at, len - at, NULL,
					  &n, err);

		if (ret)
			return ck_wrap(err, ret, "pickle %d of 5, at byte %zu",
				       i + 1, at);
		if (i == 3) {
			ts->pickle = ck_steal(p);
			ts->pickle_off = at;
			ts->pickle_len = n;
		} else if (i == 4) {
			*keys = ck_steal(p);
		}
		at += n;
	}
	*used = at;
	return 0;
}

/*
 * How long the pickles are is not written anywhere: reads more of the file
 * until they are whole.
 */
static int read_five(struct ck_torch_save *ts, struct ck_pickle **keys,
		     size_t *used, struct ck_err *err)
{
	uint64_t size = (uint64_t)ts->src->st.st_size;
	uint64_t most = CK_MIN(size, CK_MAX_INDEX);

	for (uint64_t len = CK_MIN(FIRST_READ, most);;
	     len = CK_MIN(4 * len, most)) {
		int ret;

		free(ts->bytes);
		ts->bytes = malloc(len);
		if (!ts->bytes)
			return ck_no_memory(err);
		ret = ck_source_read(ts->src, ts->bytes, len, 0, err);
		if (!ret)
			ret = parse_five(ts, len, keys, used, err);
		if (!ret || len == most)
			return ret;
		ck_pickle_free(ts->pickle);
		ts->pickle = NULL;
	}
}

/* Bytes an element of the storage class @v; 0: not known. */
static uint64_t unit_of(const struct ck_pickle *p, ck_pv v)
{
	const char *module, *name;
	size_t module_len, len;

	if (!ck_pv_global(p, v, &module, &module_len, &name, &len))
		return 0;
	if (len == 14 && !memcmp(name, "UntypedStorage", len))
		return 1;
	return ck_dtype_info(ck_dtype_by_storage(name, len))->size;
}

/* ("storage", class, key, location, count, view) */
static int take_id(struct ck_torch_save *ts, ck_pv id, struct ck_err *err)
{
	const struct ck_pickle *p = ts->pickle;
	struct ck_torch_storage *s;
	const char *key;
	size_t key_len;
	int64_t count;
	uint64_t unit;
	ck_pv kind, class, k, n;

	if (!ck_pv_at(p, id, 0, &kind) || !ck_pv_is_str(p, kind, "storage") ||
	    !ck_pv_at(p, id, 1, &class) || !ck_pv_at(p, id, 2, &k) ||
	    !ck_pv_str(p, k, &key, &key_len) || !ck_pv_at(p, id, 4, &n) ||
	    !ck_pv_int(p, n, &count) || count < 0)
		return 0; /* a saved module's source, or nothing we use */
	unit = unit_of(p, class);
	s = ck_vec_push(&ts->storages);
	if (!s)
		return ck_no_memory(err);
	*s = (struct ck_torch_storage){ .key = key,
					.key_len = key_len,
					/* until placed: torn */
					.off = (uint64_t)ts->src->st.st_size,
					.placed = true };
	if (!unit || !ck_mul_ok((uint64_t)count, unit, &s->len))
		return ck_fail(
			err, EINVAL,
			"storage %.*s: its class does not say how long an element is",
			(int)CK_MIN(key_len, 100), key);
	return 0;
}

/* Every persistent id below the root. */
static int collect_ids(struct ck_torch_save *ts, struct ck_err *err)
{
	ck_auto_torch_below struct ck_torch_below w = { .p = ts->pickle };
	ck_pv v;
	int ret = 0;

	if (ck_torch_below_add(&w, ck_pickle_root(ts->pickle)))
		return ck_no_memory(err);
	while (!ret && ck_torch_below_next(&w, &v)) {
		if (ck_torch_below_enter(&w, v))
			return ck_no_memory(err);
		if (ck_pv_kind(v) == CK_P_PERSID)
			ret = take_id(ts, ck_pv_persid(ts->pickle, v), err);
	}
	return ret;
}

/* The same storage is named once a tensor that uses it. */
static int drop_repeats(struct ck_torch_save *ts, struct ck_err *err)
{
	size_t kept = 0;

	ck_torch_save_sort(ts);
	for (size_t i = 0; i < ts->storages.nr; i++) {
		const struct ck_torch_storage *s = &ts->storages.v[i];
		struct ck_torch_storage *last =
			kept ? &ts->storages.v[kept - 1] : NULL;

		if (!last || last->key_len != s->key_len ||
		    memcmp(last->key, s->key, s->key_len) != 0)
			ts->storages.v[kept++] = *s;
		else if (last->len != s->len)
			return ck_fail(err, EINVAL,
				       "storage %.*s is said to have %" PRIu64
				       " bytes and %" PRIu64,
				       (int)CK_MIN(s->key_len, 100), s->key,
				       last->len, s->len);
	}
	ts->storages.nr = kept;
	return 0;
}

/* Storages lie one after the other in the order of @keys. */
static int place_all(struct ck_torch_save *ts, const struct ck_pickle *keys,
		     uint64_t at, struct ck_err *err)
{
	uint64_t size = (uint64_t)ts->src->st.st_size;
	struct ck_piter it;
	ck_pv v;

	ck_piter_init(&it, keys, ck_pickle_root(keys));
	while (ck_piter_next(&it, &v)) {
		struct ck_torch_storage *s = NULL;
		unsigned char count[8];
		const char *key;
		size_t len;
		int ret;

		if (ck_pv_str(keys, v, &key, &len))
			s = ck_torch_save_find(ts, key, len);
		if (!s)
			return ck_fail(
				err, EINVAL,
				"byte %" PRIu64
				": a storage that the object does not name",
				at);
		if (at + sizeof(count) > size)
			return 0; /* cut off: what lies there is torn */
		ret = ck_source_read(ts->src, count, sizeof(count), at, err);
		if (ret)
			return ret;
		if (ck_le64(count) ? s->len % ck_le64(count) : s->len)
			return ck_fail(err, EINVAL,
				       "byte %" PRIu64
				       ": storage %.*s has %" PRIu64
				       " elements in %" PRIu64 " bytes",
				       at, (int)CK_MIN(len, 100), key,
				       ck_le64(count), s->len);
		s->off = at + sizeof(count);
		if (!ck_add_ok(s->off, s->len, &at))
			return ck_fail(err, EINVAL, "storages of 2^62 bytes");
	}
	return 0;
}

int ck_torch_save_open_legacy(struct ck_torch_save *ts, struct ck_err *err)
{
	ck_auto_pickle struct ck_pickle *keys = NULL;
	size_t used = 0;
	int ret = read_five(ts, &keys, &used, err);

	if (!ret)
		ret = collect_ids(ts, err);
	if (!ret)
		ret = drop_repeats(ts, err);
	return ret ? ret : place_all(ts, keys, used, err);
}
