/* SPDX-License-Identifier: Apache-2.0 */
/* source_file.c - a file as a source, by pread */
#include "core/root/source.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct file {
	struct ck_source base;
	int fd;
	char name[];
};

static int read_file(struct ck_source *s, void *buf, size_t len, uint64_t off,
		     struct ck_err *err)
{
	struct file *f = (struct file *)s;
	size_t done = 0;

	while (done < len) {
		ssize_t n = pread(f->fd, (char *)buf + done, len - done,
				  (off_t)(off + done));

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return ck_fail(err, errno, "%s: byte %llu: %s", s->name,
				       (unsigned long long)off + done,
				       strerror(errno));
		if (n == 0)
			return ck_fail(err, EIO,
				       "%s: expected %zu bytes at byte %llu, "
				       "found %zu before the end",
				       s->name, len, (unsigned long long)off,
				       done);
		done += (size_t)n;
	}
	return 0;
}

static void close_file(struct ck_source *s)
{
	close(((struct file *)s)->fd);
	free(s);
}

static const struct ck_source_ops file_ops = { read_file, close_file };

struct ck_source *ck_source_file(int fd, const char *name,
				 const struct stat *st)
{
	size_t len = strlen(name) + 1;
	struct file *f = malloc(sizeof(*f) + len);

	if (!f) {
		close(fd);
		return NULL;
	}
	memcpy(f->name, name, len);
	f->fd = fd;
	f->base = (struct ck_source){ &file_ops, f->name, *st };
	return &f->base;
}
