/* SPDX-License-Identifier: Apache-2.0 */
/*
 * nullfs.c - a FUSE file that answers without looking
 *
 *	nullfs MNT BYTES		serves MNT/file in the foreground
 *	nullfs MNT BYTES FILE [splice]	writes go to FILE, one call each
 *	nullfs MNT BYTES cut AT FILE...	rows of 4 KiB go to the FILEs in turns,
 *					from byte AT of each
 *
 * MNT/file has BYTES bytes.  A read is answered with as many bytes of one
 * buffer that nobody fills; a write is forgotten, or goes to the same place
 * of FILE, with "splice" by a pipe, or as whole rows by one call to each of
 * several FILEs, by a plan that is always the same.  Delivery, sizes and threads are those of
 * the real thing (fs/kernel/kernel.c), so what it reaches is what the transport
 * allows.
 */
#include "fs/kernel/kernel.h"
#include "fs/kernel/receive.h"
#include "fs/kernel/reply.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/uio.h>
#include <unistd.h>

#define FILE_INO 2
#define ROW 4096u
#define MAX_CUTS 64

static struct {
	struct fs_kernel kernel; /* first: see fs_kernel_hook() */
	off_t size;
	void *buf;
	int to; /* where writes go, or -1 */
	bool splice;
	int cut[MAX_CUTS];
	unsigned nr_cuts;
	off_t cut_at;
} fs;

static void fill(fuse_ino_t ino, struct stat *st)
{
	*st = (struct stat){ .st_ino = ino, .st_nlink = 1 };
	st->st_mode = ino == FILE_INO ? S_IFREG | 0644 : S_IFDIR | 0555;
	st->st_size = ino == FILE_INO ? fs.size : 4096;
	st->st_blksize = FS_MAX_IO;
}

static void op_init(void *data, struct fuse_conn_info *conn)
{
	(void)data;
	fs_kernel_init(&fs.kernel, conn);
	if (fs.splice)
		conn->want |= FUSE_CAP_SPLICE_READ;
}

static void op_lookup(fuse_req_t req, fuse_ino_t parent, const char *name)
{
	struct fuse_entry_param e = { .ino = FILE_INO,
				      .attr_timeout = 3600,
				      .entry_timeout = 3600 };

	(void)parent;
	if (strcmp(name, "file")) {
		fuse_reply_err(req, ENOENT);
		return;
	}
	fill(FILE_INO, &e.attr);
	fuse_reply_entry(req, &e);
}

static void op_getattr(fuse_req_t req, fuse_ino_t ino,
		       struct fuse_file_info *fi)
{
	struct stat st;

	(void)fi;
	fill(ino, &st);
	fuse_reply_attr(req, &st, 3600);
}

static void op_open(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
	(void)ino;
	if ((fi->flags & O_ACCMODE) == O_WRONLY) {
		fs_reply_open(req, fi, true);
		return;
	}
	fi->direct_io = fs.kernel.direct;
	fs_reply_open(req, fi, false);
}

static void op_write(fuse_req_t req, fuse_ino_t ino, const char *buf,
		     size_t size, off_t off, struct fuse_file_info *fi)
{
	ssize_t n = fs.to < 0 ?
			    (ssize_t)size :
			    pwrite(fs.to, fs_receive_payload(buf), size, off);

	(void)ino;
	(void)fi;
	if (n != (ssize_t)size)
		fuse_reply_err(req, n < 0 ? errno : EIO);
	else
		fuse_reply_write(req, size);
}

/* Two writers of two halves begin with different files. */
static int write_rows(const char *buf, size_t size, uint64_t off)
{
	struct iovec row[FS_MAX_IO / ROW];
	uint64_t first = off * fs.nr_cuts / (uint64_t)fs.size;
	unsigned nr = (unsigned)(size / (ROW * fs.nr_cuts));

	if (size % (ROW * fs.nr_cuts) || off % (ROW * fs.nr_cuts))
		return -EINVAL;
	for (unsigned i = 0; i < fs.nr_cuts; i++) {
		unsigned at = (unsigned)((first + i) % fs.nr_cuts);

		for (unsigned r = 0; r < nr; r++)
			row[r] = (struct iovec){
				(char *)buf + (r * fs.nr_cuts + at) * ROW, ROW
			};
		if (pwritev(fs.cut[at], row, (int)nr,
			    fs.cut_at + (off_t)(off / fs.nr_cuts)) !=
		    (ssize_t)nr * ROW)
			return -EIO;
	}
	return 0;
}

static void op_write_rows(fuse_req_t req, fuse_ino_t ino, const char *buf,
			  size_t size, off_t off, struct fuse_file_info *fi)
{
	int ret = write_rows(fs_receive_payload(buf), size, (uint64_t)off);

	(void)ino;
	(void)fi;
	if (ret)
		fuse_reply_err(req, -ret);
	else
		fuse_reply_write(req, size);
}

static void op_write_buf(fuse_req_t req, fuse_ino_t ino,
			 struct fuse_bufvec *from, off_t off,
			 struct fuse_file_info *fi)
{
	struct fuse_bufvec to = FUSE_BUFVEC_INIT(fuse_buf_size(from));
	ssize_t n;

	(void)ino;
	(void)fi;
	to.buf[0].flags = FUSE_BUF_IS_FD | FUSE_BUF_FD_SEEK;
	to.buf[0].fd = fs.to;
	to.buf[0].pos = off;
	n = fuse_buf_copy(&to, from, 0);
	if (n < 0)
		fuse_reply_err(req, (int)-n);
	else
		fuse_reply_write(req, (size_t)n);
}

static void op_read(fuse_req_t req, fuse_ino_t ino, size_t size, off_t off,
		    struct fuse_file_info *fi)
{
	off_t left = off < fs.size ? fs.size - off : 0;

	(void)ino;
	(void)fi;
	fuse_reply_buf(req, fs.buf, (off_t)size < left ? size : (size_t)left);
}

static struct fuse_lowlevel_ops ops = {
	.init = op_init,
	.lookup = op_lookup,
	.getattr = op_getattr,
	.open = op_open,
	.read = op_read,
	.write = op_write,
};

static int serve(const char *mnt)
{
	char *argv[] = { "nullfs", "-o",
			 "rw,fsname=null,subtype=nullfs,"
			 "max_read=1048576",
			 NULL };
	struct fuse_args args = FUSE_ARGS_INIT(3, argv);
	struct fuse_session *se;
	struct ck_err err;
	int ret = 1;

	se = fuse_session_new(&args, &ops, sizeof(ops), &fs);
	if (!se)
		return 1;
	if (!fuse_session_mount(se, mnt)) {
		/* libfuse does not splice where its reads are replaced. */
		if (fs.splice || !fs_kernel_hook(&fs.kernel, se, &err))
			ret = fs_kernel_loop(&fs.kernel, se);
		fuse_session_unmount(se);
	}
	fuse_session_destroy(se);
	return ret;
}

static int open_to(const char *name)
{
	int fd = open(name, O_WRONLY | O_CLOEXEC);

	if (fd < 0)
		perror(name);
	return fd;
}

/* What writes do; @args: all after BYTES. */
static int set_writes(int nr, char **args)
{
	fs.to = -1;
	if (!nr)
		return 0;
	if (!strcmp(args[0], "cut") && nr > 2 && nr - 2 <= MAX_CUTS) {
		ops.write = op_write_rows;
		fs.cut_at = (off_t)strtoull(args[1], NULL, 10);
		for (int i = 2; i < nr; i++) {
			fs.cut[fs.nr_cuts] = open_to(args[i]);
			if (fs.cut[fs.nr_cuts++] < 0)
				return 1;
		}
		return 0;
	}
	fs.to = open_to(args[0]);
	fs.splice = nr > 1;
	if (fs.splice)
		ops.write_buf = op_write_buf;
	return fs.to < 0;
}

int main(int argc, char **argv)
{
	if (argc < 3) {
		fprintf(stderr, "usage: nullfs MNT BYTES "
				"[FILE [splice] | cut AT FILE...]\n");
		return 2;
	}
	if (set_writes(argc - 3, argv + 3))
		return 1;
	fs_kernel_setup(&fs.kernel, NULL);
	fs.kernel.writes = true;
	fs.size = (off_t)strtoull(argv[2], NULL, 10);
	fs.buf = mmap(NULL, FS_MAX_IO, PROT_READ | PROT_WRITE,
		      MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	return fs.buf == MAP_FAILED ? 1 : serve(argv[1]);
}
