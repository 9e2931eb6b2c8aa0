/* SPDX-License-Identifier: Apache-2.0 */
/*
 * plan_reshard.h - plan --reshard: which stored chunks each new shard meets
 */
#ifndef PLAN_RESHARD_H
#define PLAN_RESHARD_H

#include "mount-helpers/cmd.h"

#include "core/geom/catalog.h"

/* Prints it for option "reshard" of @mesh, with the file's bytes; the exit code. */
int plan_reshard(const struct cmd *c, const char *path, struct ck_ckpt *ck,
		 const struct ck_opts *mesh, const struct ck_opts *opts);
/*
 * A warning on stderr for each file given to -o reshard= of which no entry fits
 * a tensor of the model.
 */
void plan_reshard_unused(const struct cmd *c, const char *path,
			 const struct ck_catalog *img,
			 const struct ck_opts *opts);

#endif
