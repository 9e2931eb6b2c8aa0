/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kernel.h - what this kernel and this libfuse give, and the fall-backs
 *
 * libfuse 3.10 to 3.18 are built against; the version that a feature needs is
 * tested here and nowhere else.  FUSE_USE_VERSION 312 is the newest interface
 * that all of them take (the loop configuration changes with it).
 */
#ifndef FS_KERNEL_H
#define FS_KERNEL_H

#define FUSE_USE_VERSION 312
#include <fuse_lowlevel.h>

#include "core/base/err.h"
#include "core/base/opts.h"
#include "fs/kernel/read_ahead.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>

#define FS_MAX_IO (1u << 20) /* bytes of the largest read request */

enum fs_direct { FS_DIRECT_AUTO, FS_DIRECT_ON, FS_DIRECT_OFF };

/* What .unshard/stats says of -o cache. */
struct fs_cache_said {
	const char *where; /* "off", "folder", "memory" */
	_Atomic uint64_t held; /* bytes of files that are kept */
	_Atomic uint64_t whole; /* of which further opens are served */
	_Atomic uint64_t passthrough; /* 1: by the kernel alone */
};

struct fs_kernel {
	enum fs_direct want; /* -o direct= */
	unsigned threads; /* most workers */
	bool lost; /* bytes of what is served are lost; set before the loop */
	bool writes; /* requests with a payload come; set before the loop */
	/*
	 * Agreed in the INIT exchange, constant afterwards.  @direct: files
	 * are opened FOPEN_DIRECT_IO; @direct_mmap: and can be mapped shared.
	 */
	bool direct, direct_mmap;
	/* see passthrough.h; asked for before the loop, then whether it is there */
	bool passthrough;
	unsigned proto_minor;
	struct fs_read_ahead read_ahead;
	struct fs_cache_said cache;
	/* private to kernel.c */
	uint32_t offered; /* 64-bit flags that it has, the upper half */
	atomic_bool pending;
	uint64_t unique;
};

/* What tests set @name to instead of *out, from 0 on; -EINVAL with a line. */
int fs_seconds_from_env(const char *name, double *out, struct ck_err *err);
/* Reads -o direct= threads=, which passed ck_options_parse(). */
void fs_kernel_setup(struct fs_kernel *k, const struct ck_opts *opts);
/*
 * After fuse_session_mount(), before the loop.  The userdata given to
 * fuse_session_new() must BEGIN with the struct fs_kernel.
 */
int fs_kernel_hook(struct fs_kernel *k, struct fuse_session *se,
		   struct ck_err *err);
/* To be called by the init operation. */
void fs_kernel_init(struct fs_kernel *k, struct fuse_conn_info *conn);
/* Serves with up to @k->threads threads until the mount is gone. */
int fs_kernel_loop(struct fs_kernel *k, struct fuse_session *se);

#endif
