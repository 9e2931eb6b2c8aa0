/* SPDX-License-Identifier: Apache-2.0 */
/* overlay.h - the parts of unshard overlay */
#ifndef OVERLAY_H
#define OVERLAY_H

#include "mount-helpers/cmd.h"

#include "core/manifest/manifest.h"

/* A checkpoint with an overlay over it, to be read; in the sandbox. */
struct overlay {
	const struct cmd *cmd;
	const char *path, *dir;
	struct ck_opts *opts; /* the caller's; -o overlay= is added */
	struct ck_ckpt *ck;
	const struct ck_catalog *img;
	struct ck_err err;
};

/*
 * @write_dir as in cmd_open_several().  An exit code; the line is printed.
 * ck_ckpt_close(o->ck) after CMD_OK.
 */
int overlay_open(struct overlay *o, const char *write_dir);

/* The manifest of what is copied, if it has one. */
struct overlay_sealed {
	struct overlay *o;
	struct ck_manifest m;
	bool present;
};
/* -errno with o->err set; without a manifest nothing is compared. */
int overlay_sealed_open(struct overlay_sealed *s, struct overlay *o);
void overlay_sealed_close(struct overlay_sealed *s);
/* -EIO with o->err set where @file was sealed with another size. */
int overlay_sealed_size(const struct overlay_sealed *s, const char *file,
			uint64_t size);
/*
 * The same where one of its blocks that begin in [off, off + len) is not what
 * was sealed, nor new as a whole.  @src: its source, or CK_NONE.
 */
int overlay_sealed_check(struct overlay_sealed *s, const char *file,
			 uint32_t src, int fd, uint64_t off, uint64_t len);

/* These return exit codes. */
int overlay_status(struct overlay *o);
int overlay_diff(struct overlay *o);
int overlay_apply(struct overlay *o, const char *to);

#endif
