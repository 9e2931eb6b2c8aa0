/* SPDX-License-Identifier: Apache-2.0 */
/* ckpt_overlay.c - the part of the facade that keeps edits beside the files */
#include "core/ckpt_priv.h"
#include "core/publish/manifest.h"
#include "core/write/overlay.h"

#include <errno.h>

int ck_ckpt_overlay_open(struct ck_ckpt *ck, const struct ck_opts *opts,
			 struct ck_reader_in *in, struct ck_err *err)
{
	char digest[CK_DIGEST_TEXT] = "";
	struct ck_overlay_in over = {
		.dir = ck_opts_get(opts, "overlay"),
		.root = &ck->root,
		.img = &ck->img,
		.sealed = digest,
		.write = in->write,
	};
	struct ck_manifest m;
	int ret;

	if (!over.dir)
		return 0;
	/* Without one the times of the files have to do. */
	ret = ck_manifest_load(&m, &ck->root, err);
	if (ret && ret != -ENOENT)
		return ck_wrap(err, ret,
			       "overlay: whether the checkpoint is what it was "
			       "cannot be known: %s",
			       ck->root.path);
	if (!ret)
		ck_digest_text(&m.digest, digest);
	ck_manifest_free(&m);
	ret = ck_overlay_open(&ck->overlay, &over, err);
	if (!ret)
		in->over = ck_overlay_over(ck->overlay);
	return ret;
}

struct ck_overlay *ck_ckpt_overlay(struct ck_ckpt *ck)
{
	return ck->overlay;
}

int ck_ckpt_end(struct ck_ckpt *ck, struct ck_err *err)
{
	const struct ck_over *over;

	if (!ck->overlay || !ck->writer)
		return 0;
	ck_writer_free(ck->writer); /* may still write checksums */
	ck->writer = NULL;
	over = ck_overlay_over(ck->overlay);
	return over->sync(over->ctx, err);
}
