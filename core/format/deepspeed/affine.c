/* SPDX-License-Identifier: Apache-2.0 */
/*
 * affine.c - the map by which AutoTP says how its ranks share a tensor
 *
 *   {'^layers\.0\.qkv\.weight$': {logical_shape, ranks: {tp: {shard_shape,
 *     pieces: [{shape, source: [offset, strides], dest: [offset, strides]}]}}}}
 *
 * Offsets and strides count elements: of the whole in source, of the shard in
 * dest.  A piece is taken where it is a box of both.
 */
#include "core/format/deepspeed/priv.h"

#include "core/base/check.h"
#include "core/geom/range.h"

#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* Copies what @s stands for to @out, which has room; false: it is a pattern. */
static bool unescape(const char *s, size_t len, char *out)
{
	for (size_t i = 0; i < len; i++) {
		if (s[i] == '\\' && i + 1 < len &&
		    !isalnum((unsigned char)s[i + 1]))
			i++;
		else if (!s[i] || strchr("\\.*+?()[]{}|^$", s[i]))
			return false;
		*out++ = s[i];
	}
	*out = '\0';
	return true;
}

/* A pattern that may mean several names says nothing of one. */
static int add_name(struct ck_ds_model *m, const char *s, size_t len,
		    ck_pv value, struct ck_err *err)
{
	char *name, **kept;
	ck_pv *to;

	if (len < 2 || s[0] != '^' || s[len - 1] != '$')
		return 0;
	name = malloc(len);
	kept = name ? ck_vec_push(&m->kept) : NULL;
	if (!kept) {
		free(name);
		return ck_fail(err, ENOMEM, "no memory for names");
	}
	*kept = name;
	if (!unescape(s + 1, len - 2, name) ||
	    ck_strmap_get(&m->affine_names, name, strlen(name)) !=
		    CK_STRMAP_NONE)
		return 0;
	to = ck_vec_push(&m->affine_values);
	if (!to || ck_strmap_put(&m->affine_names, name, strlen(name)) ==
			   CK_STRMAP_NONE)
		return ck_fail(err, ENOMEM, "no memory for names");
	*to = value;
	return 0;
}

int ck_ds_affine_read(struct ck_ds_model *m, ck_pv info, struct ck_err *err)
{
	const struct ck_pickle *p = m->f.ts.pickle;
	ck_pv map, version, params, key, value;
	struct ck_piter it;
	int64_t n;
	int ret = 0;

	if (!ck_pv_key(p, info, "affine_map", &map) ||
	    !ck_pv_key(p, map, "version", &version) ||
	    !ck_pv_int(p, version, &n) || n != 1 ||
	    !ck_pv_key(p, map, "params", &params))
		return 0;
	ck_piter_init_pairs(&it, p, params);
	while (!ret && ck_piter_next2(&it, &key, &value)) {
		const char *s;
		size_t len;

		if (ck_pv_str(p, key, &s, &len))
			ret = add_name(m, s, len, value, err);
	}
	return ret;
}

/* The value under a number; dicts are small: one key a rank. */
static bool key_number(const struct ck_pickle *p, ck_pv dict, int64_t want,
		       ck_pv *out)
{
	struct ck_piter it;
	ck_pv key;
	int64_t n;

	ck_piter_init_pairs(&it, p, dict);
	while (ck_piter_next2(&it, &key, out))
		if (ck_pv_int(p, key, &n) && n == want)
			return true;
	return false;
}

/*
 * Where a piece with [offset, strides] begins in a row-major @shape; false
 * where it is no box of it.
 */
static bool box_start(const struct ck_pickle *p, ck_pv v, const uint64_t *shape,
		      const uint64_t *len, unsigned rank, uint64_t *start)
{
	uint64_t stride[CK_MAX_RANK], step = 1, at;
	ck_pv offset, strides;
	unsigned nr;
	int64_t n;

	if (!ck_pv_at(p, v, 0, &offset) || !ck_pv_at(p, v, 1, &strides) ||
	    !ck_pv_int(p, offset, &n) || n < 0 ||
	    !ck_torch_size(p, strides, stride, &nr) || nr != rank)
		return false;
	at = (uint64_t)n;
	for (unsigned d = rank; d-- > 0;) {
		if (!shape[d] || (len[d] > 1 && stride[d] != step))
			return false;
		start[d] = at / step % shape[d];
		if (!ck_range_ok(start[d], len[d], shape[d]))
			return false;
		step *= shape[d];
	}
	return at < step;
}

static int add_piece(const struct ck_pickle *p, ck_pv v, struct ck_cut *cut,
		     struct ck_err *why)
{
	struct ck_cut_piece *piece = ck_vec_push(&cut->pieces);
	ck_pv shape, source, dest;
	unsigned rank;

	if (!piece)
		return ck_fail(why, ENOMEM, "no memory for a piece");
	*piece = (struct ck_cut_piece){ 0 };
	if (!ck_pv_key(p, v, "shape", &shape) ||
	    !ck_pv_key(p, v, "source", &source) ||
	    !ck_pv_key(p, v, "dest", &dest) ||
	    !ck_torch_size(p, shape, piece->len, &rank) || rank != cut->rank ||
	    !box_start(p, source, cut->whole, piece->len, rank, piece->whole) ||
	    !box_start(p, dest, cut->shard, piece->len, rank, piece->shard))
		return ck_fail(
			why, EINVAL,
			"a piece of its affine_map is no box of the tensor and of the shard");
	return 0;
}

int ck_ds_affine_cut(const struct ck_pickle *p, ck_pv record, unsigned tp,
		     const uint64_t *shape, unsigned rank, struct ck_cut *cut,
		     struct ck_err *why)
{
	ck_pv logical, ranks, mine, shard, pieces, item;
	struct ck_piter it;
	unsigned whole_rank, shard_rank;
	uint64_t volume;
	int ret = 0;

	*cut = (struct ck_cut){ .rank = rank };
	if (!ck_pv_key(p, record, "logical_shape", &logical) ||
	    !ck_pv_key(p, record, "ranks", &ranks) ||
	    !key_number(p, ranks, tp, &mine) ||
	    !ck_pv_key(p, mine, "shard_shape", &shard) ||
	    !ck_pv_key(p, mine, "pieces", &pieces) ||
	    !ck_torch_size(p, logical, cut->whole, &whole_rank) ||
	    !ck_torch_size(p, shard, cut->shard, &shard_rank) ||
	    !ck_dims_volume(cut->whole, whole_rank, &volume) ||
	    !ck_dims_volume(cut->shard, shard_rank, &volume))
		return ck_fail(why, EINVAL,
			       "its affine_map says nothing of rank %u", tp);
	if (whole_rank != rank || shard_rank != rank ||
	    memcmp(cut->shard, shape, rank * sizeof(*shape)) != 0)
		return ck_fail(
			why, EINVAL,
			"its affine_map is of another shape than what is stored");
	ck_piter_init(&it, p, pieces);
	while (!ret && ck_piter_next(&it, &item))
		ret = add_piece(p, item, cut, why);
	return ret;
}
