/* SPDX-License-Identifier: Apache-2.0 */
/* overlay.h - the parts of unshard overlay */
#ifndef OVERLAY_H
#define OVERLAY_H

#include "mount-helpers/cmd.h"

/* A checkpoint with an overlay over it, to be read; in the sandbox. */
struct overlay {
	const struct cmd *cmd;
	const char *path, *dir;
	struct ck_opts *opts; /* the caller's; -o overlay= is added */
	struct ck_ckpt *ck;
	const struct ck_image *img;
	struct ck_err err;
};

/*
 * @write_dir as in cmd_open_several().  An exit code; the line is printed.
 * ck_ckpt_close(o->ck) after CMD_OK.
 */
int overlay_open(struct overlay *o, const char *write_dir);

/* These return exit codes. */
int overlay_status(struct overlay *o);
int overlay_diff(struct overlay *o);
int overlay_apply(struct overlay *o, const char *to);

#endif
