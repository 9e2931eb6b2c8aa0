/* SPDX-License-Identifier: Apache-2.0 */
/* pickle_query.c - one step of a path after another */
#include "core/parse/pickle_query.h"

#include "core/base/check.h"
#include "core/base/limits.h"

#include <string.h>
#include <xxhash.h>

#define MAX_STEP 128

/* "12": a position. */
static bool position(const char *step, uint64_t *at)
{
	*at = 0;
	for (; *step; step++) {
		if (*step < '0' || *step > '9' || *at > CK_MAX_PICKLE_STACK)
			return false;
		*at = 10 * *at + (uint64_t)(*step - '0');
	}
	return true;
}

static bool follow(const struct ck_pickle *p, ck_pv v, const char *step,
		   ck_pv *out)
{
	uint64_t at;

	switch (ck_pv_kind(v)) {
	case CK_P_TUPLE:
	case CK_P_LIST:
		return position(step, &at) && ck_pv_at(p, v, at, out);
	case CK_P_CALL:
		return ck_pv_key(p, v, step, out) ||
		       ck_pv_attr(p, v, step, out);
	default:
		return ck_pv_key(p, v, step, out);
	}
}

/* Up to the first {} or [], or the end, of *@path; false: it leads nowhere. */
static bool walk(const struct ck_pickle *p, ck_pv *v, const char **path)
{
	char step[MAX_STEP];

	while (**path && *v && **path != '{' && **path != '[') {
		size_t len = strcspn(*path, "/");

		if (len >= sizeof(step))
			return false;
		memcpy(step, *path, len);
		step[len] = '\0';
		if (!follow(p, *v, step, v))
			return false;
		*path += len + ((*path)[len] == '/');
	}
	return *v != 0;
}

bool ck_pq(const struct ck_pickle *p, ck_pv v, const char *path, ck_pv *out)
{
	if (!walk(p, &v, &path) || *path)
		return false;
	*out = v;
	return true;
}

/* Where "{}/rest" or "[]/rest" begins to be gone through. */
static void open_level(struct ck_pq_each *e, ck_pv v, const char *path)
{
	unsigned d = e->depth++;

	e->level[d].pairs = *path == '{';
	e->level[d].rest = path + 2 + (path[2] == '/');
	e->at[d] = UINT32_MAX;
	if (e->level[d].pairs)
		ck_piter_init_pairs(&e->level[d].it, e->p, v);
	else
		ck_piter_init(&e->level[d].it, e->p, v);
}

struct ck_pq_each ck_pq_begin(const struct ck_pickle *p, ck_pv v,
			      const char *path)
{
	struct ck_pq_each e = { .p = p };

	if (walk(p, &v, &path) && *path)
		open_level(&e, v, path);
	return e;
}

bool ck_pq_next(struct ck_pq_each *e)
{
	while (e->depth) {
		unsigned d = e->depth - 1;
		const char *path = e->level[d].rest;
		ck_pv v;

		e->key[d] = 0;
		if ((e->level[d].pairs &&
		     !ck_piter_next(&e->level[d].it, &e->key[d])) ||
		    !ck_piter_next(&e->level[d].it, &v)) {
			e->depth--;
			continue;
		}
		e->at[d]++;
		if (!walk(e->p, &v, &path))
			continue;
		if (*path && e->depth < CK_PQ_LEVELS) {
			open_level(e, v, path);
			continue;
		}
		e->v = v;
		if (!ck_pv_str(e->p, e->level[d].pairs ? e->key[d] : v,
			       &e->name, &e->len))
			e->name = NULL;
		return true;
	}
	return false;
}

int ck_pq_index(struct ck_strmap *map, const struct ck_pickle *p, ck_pv v,
		const char *path, struct ck_err *err)
{
	for (struct ck_pq_each e = ck_pq_begin(p, v, path); ck_pq_next(&e);) {
		uint32_t at;

		if (!e.name)
			continue;
		at = ck_strmap_put(map, e.name, e.len);
		if (at == CK_STRMAP_NONE)
			return ck_no_memory(err);
		map->v[at].user = e.v;
	}
	return 0;
}

bool ck_pq_int(const struct ck_pickle *p, ck_pv v, const char *path,
	       int64_t *out)
{
	return ck_pq(p, v, path, &v) && ck_pv_int(p, v, out);
}

int64_t ck_pq_int_or(const struct ck_pickle *p, ck_pv v, const char *path,
		     int64_t otherwise)
{
	int64_t n;

	return ck_pq_int(p, v, path, &n) ? n : otherwise;
}

bool ck_pq_str(const struct ck_pickle *p, ck_pv v, const char *path,
	       const char **s, size_t *len)
{
	return ck_pq(p, v, path, &v) && ck_pv_str(p, v, s, len);
}

bool ck_pq_dims(const struct ck_pickle *p, ck_pv v, const char *path,
		uint64_t *dims, unsigned *rank)
{
	struct ck_piter it;
	ck_pv one;
	int64_t n;

	if (!ck_pq(p, v, path, &v) ||
	    (ck_pq_is(p, v, "torch", "Size") &&
	     !ck_pv_at(p, ck_pv_args(p, v), 0, &v)) ||
	    (ck_pv_kind(v) != CK_P_TUPLE && ck_pv_kind(v) != CK_P_LIST))
		return false;
	*rank = 0;
	ck_piter_init(&it, p, v);
	while (ck_piter_next(&it, &one)) {
		if (*rank == CK_MAX_RANK || !ck_pv_int(p, one, &n) || n < 0 ||
		    (uint64_t)n > CK_SIZE_MAX)
			return false;
		dims[(*rank)++] = (uint64_t)n;
	}
	return true;
}

bool ck_pq_is(const struct ck_pickle *p, ck_pv v, const char *module,
	      const char *name)
{
	const char *of, *is;
	size_t of_len, len, n = strlen(module);

	return ck_pv_kind(v) == CK_P_CALL &&
	       ck_pv_global(p, ck_pv_callee(p, v), &of, &of_len, &is, &len) &&
	       of_len >= n && !memcmp(of, module, n) &&
	       (of_len == n || of[n] == '.') &&
	       (!name || (len == strlen(name) && !memcmp(is, name, len)));
}

/* Keys that were seen before match by identity. */
static void match(struct ck_pq_fields *f, const struct ck_pickle *p, ck_pv key,
		  ck_pv value, ck_pv out[CK_PQ_FIELDS])
{
	for (int i = 0; i < CK_PQ_FIELDS && f->names[i]; i++)
		if (f->seen[i] == key) {
			out[i] = value;
			return;
		}
	for (int i = 0; i < CK_PQ_FIELDS && f->names[i]; i++)
		if (ck_pv_is_str(p, key, f->names[i])) {
			f->seen[i] = key;
			out[i] = value;
			return;
		}
}

void ck_pq_fields(struct ck_pq_fields *f, const struct ck_pickle *p,
		  ck_pv object, ck_pv out[CK_PQ_FIELDS])
{
	struct ck_piter it;
	ck_pv state, key, value;

	memset(out, 0, CK_PQ_FIELDS * sizeof(*out));
	if (ck_pv_kind(object) != CK_P_CALL || !ck_pv_state(p, object, &state))
		return;
	if (ck_pv_kind(state) != CK_P_DICT) {
		/* classes with slots, once a library decides so */
		for (int i = 0; i < CK_PQ_FIELDS && f->names[i]; i++)
			if (!ck_pv_attr(p, object, f->names[i], &out[i]))
				out[i] = 0;
		return;
	}
	ck_piter_init_pairs(&it, p, state);
	while (ck_piter_next2(&it, &key, &value))
		match(f, p, key, value, out);
}

static bool hash_one(const struct ck_pickle *p, ck_pv v, uint64_t *sum)
{
	enum ck_pkind kind = ck_pv_kind(v);
	union {
		int64_t whole;
		double real;
	} n = { 0 };
	const char *s = (const char *)&n;
	size_t len = sizeof(n);

	if (!ck_pv_int(p, v, &n.whole) && !ck_pv_float(p, v, &n.real) &&
	    !ck_pv_str(p, v, &s, &len) && kind != CK_P_NONE)
		return false;
	*sum = XXH3_64bits_withSeed(s, len, *sum + kind);
	return true;
}

bool ck_pq_hash(const struct ck_pickle *p, ck_pv v, uint64_t *sum)
{
	bool plain = true;

	if (ck_pv_kind(v) != CK_P_TUPLE && ck_pv_kind(v) != CK_P_LIST)
		return hash_one(p, v, sum);
	*sum += ck_pv_len(p, v);
	for (struct ck_pq_each e = ck_pq_begin(p, v, "[]"); ck_pq_next(&e);)
		plain &= hash_one(p, e.v, sum);
	return plain;
}
