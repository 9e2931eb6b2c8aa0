/* SPDX-License-Identifier: Apache-2.0 */
/* describe.h - the catalog of what is to be mounted, made or kept from before */
#ifndef MOUNT_DESCRIBE_H
#define MOUNT_DESCRIBE_H

#include "core/base/opts.h"
#include "core/catalog/catalog.h"
#include "core/root/root.h"
#include "mount-helpers/cmd.h"

/* ck_ckpt_describe_kept() as -o index-cache says, or where users keep such. */
int mount_describe(const struct cmd *cmd, const struct ck_root *root,
		   const struct ck_opts *opts, struct ck_catalog *out,
		   struct ck_err *err);

#endif
