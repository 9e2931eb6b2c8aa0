/* SPDX-License-Identifier: Apache-2.0 */
/*
 * source.h - bytes that can be read at an offset: a file, or memory in tests
 *
 * All that readers and item parsers see of I/O.
 */
#ifndef CK_SOURCE_H
#define CK_SOURCE_H

#include "core/base/err.h"

#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>

struct ck_source;

struct ck_source_ops {
	/* Exactly @len bytes or -errno; past the end is -EIO. */
	int (*read_at)(struct ck_source *s, void *buf, size_t len, uint64_t off,
		       struct ck_err *err);
	void (*close)(struct ck_source *s);
};

struct ck_source {
	const struct ck_source_ops *ops;
	const char *name; /* for messages */
	struct stat st; /* st_size is the size; all filled for files */
};

static inline int ck_source_read(struct ck_source *s, void *buf, size_t len,
				 uint64_t off, struct ck_err *err)
{
	return s->ops->read_at(s, buf, len, off, err);
}

static inline void ck_source_close(struct ck_source *s)
{
	if (s)
		s->ops->close(s);
}

static inline void ck_source_closep(struct ck_source **s)
{
	ck_source_close(*s);
}
#define ck_auto_source __attribute__((cleanup(ck_source_closep)))

/* Takes @fd (a regular file); copies @name.  NULL: no memory, @fd closed. */
struct ck_source *ck_source_file(int fd, const char *name,
				 const struct stat *st);

#endif
