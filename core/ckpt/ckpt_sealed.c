/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ckpt_sealed.c - the part of the facade that knows the manifest
 *
 * Who only reads looks for it when somebody asks for a digest.
 */
#include "core/ckpt/ckpt_priv.h"

#include "core/base/auto.h"
#include "core/io/checked.h"
#include "core/manifest/hash.h"
#include "core/manifest/sealed.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

int ck_ckpt_unsealed(const struct ck_root *root, struct ck_err *err)
{
	return ck_fail(err, EINVAL,
		       "%s: is not sealed, and -o verify has nothing to "
		       "compare with (unshard seal)",
		       root->path);
}

static int open_verified(struct ck_ckpt *ck, struct ck_reader_in *in, int found,
			 struct ck_err *err)
{
	if (found == -ENOENT)
		return ck_ckpt_unsealed(&ck->root, err);
	if (found)
		return ck_wrap(err, found, "%s", ck->root.path);
	found = ck_sealed_sums(ck->sealed, &ck->checked, err);
	in->checked = ck->checked;
	return ck_wrap(err, found, "%s", ck->root.path);
}

/*
 * What is written would make it untrue, and a new one would be of bytes that
 * nobody compared: reading goes on, and is told.
 */
static int cannot_keep(struct ck_ckpt *ck, const struct ck_err *why,
		       struct ck_err *err)
{
	if (asprintf(&ck->unsealed,
		     "%s: nothing can be written, for the manifest cannot be "
		     "kept true: %s; unshard seal --force makes another of "
		     "what the files hold now",
		     ck->root.path, why->msg) < 0) {
		ck->unsealed = NULL;
		return ck_no_memory(err);
	}
	ck_ckpt_said(ck, CK_NONE, ck->unsealed);
	return 0;
}

int ck_ckpt_seal_open(struct ck_ckpt *ck, const struct ck_opts *opts,
		      struct ck_reader_in *in, struct ck_err *err)
{
	bool verify = ck_opts_get(opts, "verify");
	const struct ck_sealed_said said = { ck_ckpt_said, ck };
	struct ck_err why = { 0 };
	int ret;

	if (!verify && !in->write)
		return 0;
	ck->sealed_sought = true;
	ck->sealed = ck_sealed_new(&ck->root, &ck->img);
	if (!ck->sealed)
		return ck_no_memory(err);
	ret = ck_sealed_load(ck->sealed, &why);
	if (verify) {
		*err = why;
		ret = open_verified(ck, in, ret, err);
	}
	if (ret && verify)
		return ret;
	if (!in->write || in->over)
		return 0;
	if (ret && ret != -ENOENT)
		return cannot_keep(ck, &why, err);
	/* also without a manifest: there may be one before the first write */
	ck->watched = true;
	in->watch = ck_sealed_watch(ck->sealed, ck->checked, &said);
	return 0;
}

int ck_ckpt_seal_may(const struct ck_ckpt *ck, struct ck_err *err)
{
	return ck->unsealed ? ck_fail(err, EROFS, "%s", ck->unsealed) : 0;
}

void ck_ckpt_update_manifest(struct ck_ckpt *ck, bool last)
{
	struct ck_err err = { 0 };
	ck_auto_free char *line = NULL;

	/* If it fails, a file beside the manifest goes on to say so. */
	if (!ck || !ck->reader || !ck->watched ||
	    !ck_sealed_update_manifest(ck->sealed, ck->reader, ck->resolved,
				       last, &err) ||
	    !*err.msg)
		return;
	if (asprintf(&line,
		     "the manifest could not follow what was written (%s), "
		     "and the next mount with -o rw makes it good",
		     err.msg) < 0)
		line = NULL;
	else
		ck_ckpt_said(ck, CK_NONE, line);
}

int ck_ckpt_seal_lock(struct ck_ckpt *ck, struct ck_err *err)
{
	struct ck_err why = { 0 };
	int ret = ck->watched ? ck_sealed_writer_lock(ck->sealed, &why) : 0;

	return ret ? ck_fail(err, EROFS,
			     "%s: nothing can be written, for the manifest "
			     "cannot be kept true: %s",
			     ck->root.path, why.msg) :
		     0;
}

bool ck_ckpt_is_corrupt(void *ctx, uint32_t src, uint64_t off, uint64_t len,
			bool look)
{
	const struct ck_ckpt *ck = ctx;

	return ck->watched &&
	       ck_sealed_is_corrupt(ck->sealed, src, off, len, look);
}

void ck_ckpt_seal_close(struct ck_ckpt *ck)
{
	ck_sealed_free(ck->sealed);
	ck_checked_free(ck->checked);
	free(ck->unsealed);
	pthread_mutex_destroy(&ck->sealed_lock);
}

int ck_ckpt_hash(struct ck_ckpt *ck, uint32_t tensor, struct ck_digest *out,
		 _Atomic uint64_t *bytes, struct ck_err *err)
{
	return ck_hash_tensor(ck->reader, tensor, ck->img.tensors[tensor].size,
			      out, bytes, err);
}

bool ck_ckpt_digest(struct ck_ckpt *ck, uint32_t tensor, struct ck_digest *out)
{
	struct ck_err err;

	if (ck->overlay)
		return false; /* what is shown may not be what was sealed */
	pthread_mutex_lock(&ck->sealed_lock);
	if (!ck->sealed_sought)
		ck_sealed_open(&ck->sealed, &ck->root, &ck->img, &err);
	ck->sealed_sought = true;
	pthread_mutex_unlock(&ck->sealed_lock);
	return ck->sealed && ck_sealed_digest(ck->sealed, tensor, out);
}
