/* SPDX-License-Identifier: Apache-2.0 */
/* mount_helper.h - what mount(8) calls for type unshardfs */
#ifndef MOUNT_HELPER_H
#define MOUNT_HELPER_H

#include "core/base/opts.h"

/* mount.unshardfs SRC MNT [-sfnv] [-N NS] [-t TYPE] [-o OPTIONS] */
int mount_helper_main(int argc, char **argv);
/* The work of `unshard mount`; returns an exit code after at most one line. */
int mount_run(const char *src, const char *mnt, struct ck_opts *opts);

#endif
