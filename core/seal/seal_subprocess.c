/* SPDX-License-Identifier: Apache-2.0 */
/*
 * seal_subprocess.c - sealing what nobody has open
 *
 *	this process   has the manifest checked
 *	  ├─fork──> parser: the index
 *	  └─fork──> reads all and hashes it, in a sandbox that allows no writing,
 *	            and leaves the manifest in a memfd
 */
#include "core/seal/seal.h"

#include "core/base/auto.h"
#include "core/base/limits.h"
#include "core/base/whole.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define SECONDS (7 * 24 * 3600) /* reading all of it takes what it takes */

struct job {
	bool crcs;
	const struct ck_hash_known *known;
	int out;
};

static int seal_into(struct ck_ckpt *ck, const struct job *job,
		     struct ck_err *err)
{
	struct ck_seal_in in = { .ck = ck,
				 .crcs = job->crcs,
				 .known = job->known };
	ck_auto_free void *bytes = NULL;
	struct ck_manifest_new *n = NULL;
	size_t len;
	int ret = ck_manifest_new(&n, 0, err);

	if (!ret)
		ret = ck_seal(&in, n, err);
	if (!ret)
		ret = ck_manifest_bytes(n, &bytes, &len, err);
	if (!ret)
		ret = ck_write_whole(job->out, bytes, len);
	return ret;
}

/* In the child, which ends afterwards. */
static int run(struct ck_ckpt *ck, void *ctx, struct ck_err *err)
{
	int ret = seal_into(ck, ctx, err);

	if (ret && !err->code)
		ck_fail(err, -ret, "%s", strerror(-ret));
	return ret;
}

static int take(int from, void **bytes, size_t *len, struct ck_err *err)
{
	struct ck_manifest m = { 0 };
	ck_auto_free char *all = NULL;
	int ret = ck_read_file(from, CK_MAX_INDEX, &all, len);

	if (ret == -ENOMEM)
		return ck_no_memory(err);
	if (ret || !*len)
		return ck_fail(err, ret ? -ret : EINVAL,
			       "no manifest was made");
	ret = ck_manifest_parse(&m, all, *len, err);
	if (!ret)
		*bytes = ck_steal(all);
	return ret;
}

int ck_seal_subprocess(struct ck_root *root, const struct ck_opts *opts,
		       const struct ck_hash_known *known, void **bytes,
		       size_t *len, struct ck_err *err)
{
	ck_auto_fd int catalog = -1, out = -1;
	const char *crc = ck_opts_get(opts, "crc");
	struct job job = { .crcs = !crc || strcmp(crc, "ignore"),
			   .known = known };
	struct ck_ckpt_apart apart = { .root = root,
				       .opts = opts,
				       .seconds = SECONDS,
				       .run = run,
				       .ctx = &job };
	int ret = ck_ckpt_describe(root, opts, &catalog, err);

	if (ret)
		return ret;
	out = memfd_create("manifest", MFD_CLOEXEC);
	if (out < 0)
		return ck_fail(err, errno, "memory: %s", strerror(errno));
	apart.catalog_fd = catalog;
	apart.out = job.out = out;
	ret = ck_ckpt_run_apart(&apart, err);
	return ret ? ret : take(out, bytes, len, err);
}
