/* SPDX-License-Identifier: Apache-2.0 */
/* seal.c - digests of tensors as they are shown, a thread a tensor */
#include "core/publish/seal.h"

#include "core/base/auto.h"
#include "core/base/check.h"
#include "core/publish/pool.h"

#include <errno.h>
#include <stdlib.h>
#include <xxhash.h>

#define PIECE (UINT64_C(4) << 20) /* read at once */

static int update(struct ck_ckpt *ck, uint32_t t, XXH3_state_t *state,
		  void *buf, _Atomic uint64_t *bytes, struct ck_err *err)
{
	uint64_t size = ck_ckpt_image(ck)->tensors[t].size;

	XXH3_128bits_reset(state);
	for (uint64_t at = 0, len; at < size; at += len) {
		int ret;

		len = CK_MIN(PIECE, size - at);
		ret = ck_ckpt_read(ck, t, buf, len, at, err);
		if (ret)
			return ret;
		XXH3_128bits_update(state, buf, len);
		if (bytes)
			*bytes += len;
	}
	return 0;
}

int ck_seal_tensor(struct ck_ckpt *ck, uint32_t t, struct ck_digest *out,
		   _Atomic uint64_t *bytes, struct ck_err *err)
{
	ck_auto_free void *buf = aligned_alloc(4096, PIECE);
	XXH3_state_t *state = XXH3_createState();
	int ret = buf && state ? 0 : ck_fail(err, ENOMEM, "no memory");

	if (!ret)
		ret = update(ck, t, state, buf, bytes, err);
	if (!ret) {
		XXH128_hash_t h = XXH3_128bits_digest(state);

		*out = (struct ck_digest){ .hi = h.high64, .lo = h.low64 };
	}
	XXH3_freeState(state);
	return ret;
}

struct job {
	struct ck_seal_in *in;
	struct ck_digest *digest; /* of each tensor */
	unsigned char *known;
	uint64_t total;
	_Atomic uint32_t next;
	_Atomic uint64_t bytes;
};

static void work(void *ctx)
{
	struct job *j = ctx;
	uint32_t nr = ck_ckpt_image(j->in->ck)->nr_tensors, t;

	while ((t = j->next++) < nr) {
		struct ck_err err;

		j->known[t] = !ck_seal_tensor(j->in->ck, t, &j->digest[t],
					      &j->bytes, &err);
	}
}

static void tick(void *ctx)
{
	struct job *j = ctx;

	if (j->in->tick)
		j->in->tick(j->in->ctx, j->bytes, j->total);
}

static int put_all(struct job *j, struct ck_manifest_new *n, struct ck_err *err)
{
	const struct ck_image *img = ck_ckpt_image(j->in->ck);
	int ret = 0;

	for (uint32_t i = 0; !ret && i < img->nr_tensors; i++) {
		const struct ck_tensor *t = &img->tensors[i];
		size_t tree_len, len;
		const char *tree =
			ck_image_str(img, img->trees[t->tree], &tree_len);
		const char *name = ck_image_str(img, t->name, &len);

		j->in->unknown += !j->known[i];
		ret = ck_manifest_put_tensor(
			n, tree, tree_len, name, len, t->size,
			j->known[i] ? &j->digest[i] : NULL, err);
	}
	return ret;
}

int ck_seal_tensors(struct ck_seal_in *in, struct ck_manifest_new *n,
		    struct ck_err *err)
{
	const struct ck_image *img = ck_ckpt_image(in->ck);
	struct job j = { .in = in };
	struct ck_pool_in pool = {
		.jobs = in->jobs, .ctx = &j, .work = work, .tick = tick
	};
	int ret = 0;

	in->unknown = 0;
	for (uint32_t i = 0; i < img->nr_tensors; i++)
		j.total += img->tensors[i].size;
	j.digest = calloc(img->nr_tensors + 1, sizeof(*j.digest));
	j.known = calloc(img->nr_tensors + 1, 1);
	if (!j.digest || !j.known)
		ret = ck_fail(err, ENOMEM, "no memory");
	if (!ret)
		ret = ck_pool_run(&pool, err);
	if (!ret)
		ret = put_all(&j, n, err);
	free(j.digest);
	free(j.known);
	return ret;
}
