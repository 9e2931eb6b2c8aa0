/* SPDX-License-Identifier: Apache-2.0 */
/* hash_tensor.c - the digest of a tensor as it is read */
#include "core/manifest/hash.h"

#include "core/base/auto.h"
#include "core/base/check.h"
#include "core/io/read.h"

#include <errno.h>
#include <stdlib.h>
#include <xxhash.h>

#define PIECE (UINT64_C(4) << 20) /* read at once */

static int update(struct ck_reader *r, uint32_t t, uint64_t size,
		  XXH3_state_t *state, void *buf, _Atomic uint64_t *bytes,
		  struct ck_err *err)
{
	XXH3_128bits_reset(state);
	for (uint64_t at = 0, len; at < size; at += len) {
		int ret;

		len = CK_MIN(PIECE, size - at);
		ret = ck_reader_read(r, t, buf, len, at, err);
		if (ret)
			return ret;
		XXH3_128bits_update(state, buf, len);
		if (bytes)
			*bytes += len;
	}
	return 0;
}

int ck_hash_tensor(struct ck_reader *r, uint32_t t, uint64_t size,
		   struct ck_digest *out, _Atomic uint64_t *bytes,
		   struct ck_err *err)
{
	ck_auto_free void *buf = aligned_alloc(4096, PIECE);
	XXH3_state_t *state = XXH3_createState();
	int ret = buf && state ? 0 : ck_no_memory(err);

	if (!ret)
		ret = update(r, t, size, state, buf, bytes, err);
	if (!ret) {
		XXH128_hash_t h = XXH3_128bits_digest(state);

		*out = (struct ck_digest){ .hi = h.high64, .lo = h.low64 };
	}
	XXH3_freeState(state);
	return ret;
}
