/* SPDX-License-Identifier: Apache-2.0 */
/*
 * blocklog.c - a disk that remembers everything that was written to it
 *
 *	blocklog DISK LOG MNT	serves MNT/disk, a file as large as DISK
 *
 * Each write is done on DISK and appended to LOG as its offset and its length,
 * two numbers of 8 bytes, and its bytes; each flush, which a loop device makes
 * an fsync, as a length of 0.  DISK as it was with the first N of them is what
 * a disk holds when the power goes at that moment.  One thread: the order in
 * the log is the order of the writes.
 */
#define FUSE_USE_VERSION 31
#include <fuse.h>

#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static int disk, tape;

static int get_attr(const char *path, struct stat *st,
		    struct fuse_file_info *fi)
{
	(void)fi;
	if (strcmp(path, "/") && strcmp(path, "/disk"))
		return -ENOENT;
	if (fstat(disk, st))
		return -errno;
	if (!path[1]) {
		st->st_mode = S_IFDIR | 0755;
		st->st_nlink = 2;
	}
	return 0;
}

static int open_disk(const char *path, struct fuse_file_info *fi)
{
	(void)path;
	fi->direct_io = 1; /* nothing may wait in a cache */
	return 0;
}

static int read_disk(const char *path, char *buf, size_t len, off_t off,
		     struct fuse_file_info *fi)
{
	ssize_t n = pread(disk, buf, len, off);

	(void)path;
	(void)fi;
	return n < 0 ? -errno : (int)n;
}

static int put(const void *buf, size_t len)
{
	return write(tape, buf, len) == (ssize_t)len ? 0 : -EIO;
}

static int put_head(uint64_t off, uint64_t len)
{
	const uint64_t head[2] = { off, len };

	return put(head, sizeof(head));
}

static int write_disk(const char *path, const char *buf, size_t len, off_t off,
		      struct fuse_file_info *fi)
{
	int ret;

	(void)path;
	(void)fi;
	if (pwrite(disk, buf, len, off) != (ssize_t)len)
		return -EIO;
	ret = put_head((uint64_t)off, len);
	if (!ret)
		ret = put(buf, len);
	return ret ? ret : (int)len;
}

static int flush_disk(const char *path, int data, struct fuse_file_info *fi)
{
	(void)path;
	(void)data;
	(void)fi;
	return put_head(0, 0);
}

int main(int argc, char **argv)
{
	static const struct fuse_operations ops = {
		.getattr = get_attr,
		.open = open_disk,
		.read = read_disk,
		.write = write_disk,
		.fsync = flush_disk,
	};
	char single[] = "-s", fore[] = "-f";
	char *args[] = { argv[0], single, fore, argc > 3 ? argv[3] : NULL,
			 NULL };

	if (argc != 4) {
		fprintf(stderr, "usage: blocklog DISK LOG MNT\n");
		return 2;
	}
	disk = open(argv[1], O_RDWR | O_CLOEXEC);
	tape = open(argv[2], O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
	if (disk < 0 || tape < 0) {
		perror(disk < 0 ? argv[1] : argv[2]);
		return 1;
	}
	return fuse_main(4, args, &ops, NULL);
}
