/* SPDX-License-Identifier: Apache-2.0 */
/* ckpt_overlay.c - the part of the facade that keeps edits beside the files */
#include "core/ckpt/ckpt_priv.h"
#include "core/manifest/manifest.h"
#include "core/write/overlay.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>

/* Nothing of it was acknowledged, unless it is damaged. */
static void say_lost(struct ck_ckpt *ck, bool write)
{
	struct ck_overlay_stats st;
	char line[300];

	ck_overlay_stats(ck->overlay, &st);
	if (st.damaged)
		snprintf(line, sizeof(line),
			 "overlay: byte %" PRIu64 " of overlay.log is damaged, "
			 "and of the last %" PRIu64 " bytes nothing counts%s: "
			 "an edit that was synced may be lost",
			 st.damaged, st.lost,
			 write ? ", which are in overlay.log.lost now" : "");
	else if (st.lost && write)
		snprintf(line, sizeof(line),
			 "overlay: a mount died within a write, and the last "
			 "%" PRIu64 " bytes of overlay.log were cut off",
			 st.lost);
	else
		return;
	ck_ckpt_said(ck, CK_NONE, line);
}

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
	if (ret)
		return ret;
	in->over = ck_overlay_layer(ck->overlay);
	say_lost(ck, in->write);
	return 0;
}

/* A replacement that is being written is not kept half-way by another's write. */
static int mark(struct ck_ckpt *ck, int (*fn)(void *ctx, struct ck_err *err),
		struct ck_err *err)
{
	int ret;

	pthread_mutex_lock(&ck->redo_lock);
	ret = fn(ck_overlay_layer(ck->overlay)->ctx, err);
	pthread_mutex_unlock(&ck->redo_lock);
	return ret;
}

int ck_ckpt_keep(struct ck_ckpt *ck, struct ck_err *err)
{
	return ck && ck->overlay ?
		       mark(ck, ck_overlay_layer(ck->overlay)->keep, err) :
		       0;
}

int ck_ckpt_overlay_sync(struct ck_ckpt *ck, struct ck_err *err)
{
	int ret = mark(ck, ck_overlay_layer(ck->overlay)->sync, err);

	return ret ? ret : ck_ckpt_keep(ck, err); /* others may be writing */
}

bool ck_ckpt_overlay_unsure(void *ctx, uint32_t src)
{
	struct ck_ckpt *ck = ctx;
	struct ck_overlay_stats st;
	uint64_t off = 0, len;

	ck_overlay_stats(ck->overlay, &st);
	return st.unclosed && ck_overlay_next(ck->overlay, src, &off, &len);
}

struct ck_overlay *ck_ckpt_overlay(struct ck_ckpt *ck)
{
	return ck->overlay;
}

int ck_ckpt_room_fd(const struct ck_ckpt *ck)
{
	int fd = -1;

	if (ck->overlay)
		return ck_overlay_dir_fd(ck->overlay);
	ck_root_fds(&ck->root, &fd, 1);
	return fd;
}

int ck_ckpt_end(struct ck_ckpt *ck, struct ck_err *err)
{
	const struct ck_file_layer *over;

	if (!ck->overlay || !ck->writer)
		return 0;
	ck_writer_free(ck->writer); /* may still write checksums */
	ck->writer = NULL;
	over = ck_overlay_layer(ck->overlay);
	return over->sync(over->ctx, err);
}
