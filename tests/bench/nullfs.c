/* SPDX-License-Identifier: Apache-2.0 */
/*
 * nullfs.c - a FUSE file that answers reads without looking
 *
 *	nullfs MNT BYTES	serves MNT/file in the foreground
 *
 * The ceiling that a mount of the same kind (low-level, multi-threaded, opened
 * direct) has on this machine: all that is left is the transport.  The bytes
 * are whatever is in one buffer.
 */
#define FUSE_USE_VERSION 312
#include <fuse_lowlevel.h>

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { FILE_INO = 2, MAX_IO = 1 << 20 };

static char buffer[MAX_IO];
static off_t size;

static int attr_of(fuse_ino_t ino, struct stat *st)
{
	memset(st, 0, sizeof(*st));
	st->st_ino = ino;
	st->st_nlink = 1;
	st->st_mode = ino == FUSE_ROOT_ID ? S_IFDIR | 0755 : S_IFREG | 0444;
	st->st_size = ino == FUSE_ROOT_ID ? 0 : size;
	return ino == FUSE_ROOT_ID || ino == FILE_INO;
}

static void op_getattr(fuse_req_t req, fuse_ino_t ino,
		       struct fuse_file_info *fi)
{
	struct stat st;

	(void)fi;
	if (attr_of(ino, &st))
		fuse_reply_attr(req, &st, 3600.0);
	else
		fuse_reply_err(req, ENOENT);
}

static void op_lookup(fuse_req_t req, fuse_ino_t parent, const char *name)
{
	struct fuse_entry_param e = { .ino = FILE_INO,
				      .attr_timeout = 3600.0,
				      .entry_timeout = 3600.0 };

	if (parent != FUSE_ROOT_ID || strcmp(name, "file")) {
		fuse_reply_err(req, ENOENT);
		return;
	}
	attr_of(FILE_INO, &e.attr);
	fuse_reply_entry(req, &e);
}

static void op_open(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
	(void)ino;
	fi->direct_io = 1;
	fuse_reply_open(req, fi);
}

static void op_read(fuse_req_t req, fuse_ino_t ino, size_t len, off_t off,
		    struct fuse_file_info *fi)
{
	(void)ino;
	(void)fi;
	if (off >= size)
		len = 0;
	else if ((off_t)len > size - off)
		len = (size_t)(size - off);
	if (len > sizeof(buffer))
		fuse_reply_err(req, EINVAL);
	else
		fuse_reply_buf(req, buffer, len);
}

static const struct fuse_lowlevel_ops ops = {
	.lookup = op_lookup,
	.getattr = op_getattr,
	.open = op_open,
	.read = op_read,
};

int main(int argc, char **argv)
{
	char *none[] = { argv[0], NULL };
	struct fuse_args args = FUSE_ARGS_INIT(1, none);
	struct fuse_loop_config *config = fuse_loop_cfg_create();
	struct fuse_session *se;
	int ret;

	if (argc != 3 || !config) {
		fprintf(stderr, "usage: nullfs MNT BYTES\n");
		return 2;
	}
	size = (off_t)strtoull(argv[2], NULL, 10);
	se = fuse_session_new(&args, &ops, sizeof(ops), NULL);
	if (!se || fuse_set_signal_handlers(se) ||
	    fuse_session_mount(se, argv[1]))
		return 1;
	ret = fuse_session_loop_mt(se, config);
	fuse_session_unmount(se);
	fuse_remove_signal_handlers(se);
	fuse_session_destroy(se);
	fuse_loop_cfg_destroy(config);
	return ret != 0;
}
