/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fused.c - which layers are fused, and where a rank's shares belong
 *
 *	rank 0 has Q0 K0 V0, rank 1 has Q1 K1 V1; the weight is Q0 Q1 K0 K1 V0 V1
 */
#include "core/format/colossalai/fused.h"

#include "core/base/check.h"

#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define OPTION "fused"

static int bad(const char *value, struct ck_err *err)
{
	return ck_fail(err, EINVAL,
		       "-o fused=%s: expected a number of equal parts, the "
		       "rows of each (64+16+16), or no",
		       value);
}

int ck_ca_fused_get(struct ck_ca_fused *f, const struct ck_opts *opts,
		    struct ck_err *err)
{
	const char *value = ck_opts_get(opts, OPTION), *at = value;
	char *end;

	*f = (struct ck_ca_fused){ .given = value != NULL };
	if (!value || !strcmp(value, "no"))
		return 0;
	for (;; at = end + 1) {
		unsigned long long n;

		if (f->nr == CK_CA_MAX_FUSED || !isdigit((unsigned char)*at))
			return bad(value, err);
		n = strtoull(at, &end, 10);
		if (!n || n > CK_SIZE_MAX / CK_CA_MAX_FUSED ||
		    (*end && *end != '+'))
			return bad(value, err);
		f->rows[f->nr++] = n;
		if (!*end)
			break;
	}
	if (f->nr > 1)
		return 0;
	f->equal = true;
	f->nr = (unsigned)CK_MIN(f->rows[0], (uint64_t)UINT32_MAX);
	return f->nr <= CK_CA_MAX_FUSED ? 0 : bad(value, err);
}

bool ck_ca_is_fused(const char *name, size_t len)
{
	static const char *const layers[] = { "c_attn",	  "qkv",
					      "qkv_proj", "query_key_value",
					      "Wqkv",	  "in_proj" };
	static const char *const ends[] = { ".weight", ".bias" };

	for (size_t e = 0; e < CK_ARRAY_LEN(ends); e++) {
		size_t n = strlen(ends[e]), to;

		if (len <= n || memcmp(name + len - n, ends[e], n) != 0)
			continue;
		to = len - n;
		for (size_t i = 0; i < CK_ARRAY_LEN(layers); i++) {
			size_t l = strlen(layers[i]);

			if (to >= l && !memcmp(name + to - l, layers[i], l) &&
			    (to == l || name[to - l - 1] == '.'))
				return true;
		}
	}
	return false;
}

int ck_ca_fused_share(const struct ck_ca_fused *f, unsigned i, uint64_t all,
		      uint64_t len, uint64_t off, struct ck_ca_share *out,
		      struct ck_err *err)
{
	uint64_t sum = 0, ranks;

	if (!len || all % len || off % len || off >= all)
		return ck_fail(err, EINVAL,
			       "its pieces are not equally long: %" PRIu64
			       " of %" PRIu64 " rows from %" PRIu64,
			       len, all, off);
	ranks = all / len;
	for (unsigned k = 0; k < f->nr; k++)
		sum += f->equal ? all / f->nr : f->rows[k];
	out->all = f->equal ? all / f->nr : f->rows[i];
	if (sum != all || out->all % ranks)
		return ck_fail(err, EINVAL,
			       "-o fused= has parts of %" PRIu64
			       " rows in all, where it has %" PRIu64
			       " over %" PRIu64 " ranks",
			       sum, all, ranks);
	out->len = out->all / ranks;
	out->start = out->len * (off / len);
	return 0;
}
