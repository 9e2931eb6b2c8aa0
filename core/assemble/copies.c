/* SPDX-License-Identifier: Apache-2.0 */
/* copies.c - a small table of open files, by a hash of their names */
#include "core/assemble/copies.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

void ck_copies_free(struct ck_copies *c)
{
	for (size_t i = 0; i < CK_COPIES_OPEN; i++) {
		ck_source_close(c->v[i].src);
		free(c->v[i].name);
	}
}

int ck_copies_open(struct ck_copies *c, const char *file,
		   struct ck_source **out, struct ck_err *err)
{
	size_t at = XXH3_64bits(file, strlen(file)) % CK_COPIES_OPEN;

	if (!c->v[at].name || strcmp(c->v[at].name, file) != 0) {
		char *name = strdup(file);

		if (!name)
			return -ENOMEM;
		ck_source_close(c->v[at].src);
		free(c->v[at].name);
		c->v[at].name = name;
		c->v[at].src = NULL;
		if (ck_dir_open(c->dir, file, &c->v[at].src, err) == -ENOMEM) {
			free(name);
			c->v[at].name = NULL;
			return -ENOMEM;
		}
	}
	*out = c->v[at].src;
	return 0;
}

int ck_copies_read(void *ctx, const char *file, void *buf, size_t len,
		   uint64_t off, struct ck_err *err)
{
	struct ck_source *s;
	int ret = ck_copies_open(ctx, file, &s, err);

	if (ret)
		return ret;
	return s ? ck_source_read(s, buf, len, off, err) : -EIO;
}
