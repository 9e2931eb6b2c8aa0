/* SPDX-License-Identifier: Apache-2.0 */
/* memsource.c - bytes in memory as a source */
#include "tests/lib/memsource.h"

#include "core/base/check.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

struct mem {
	struct ck_source base;
	const unsigned char *bytes;
	size_t len;
	char name[];
};

static int read_mem(struct ck_source *s, void *buf, size_t len, uint64_t off,
		    struct ck_err *err)
{
	struct mem *m = (struct mem *)s;

	if (!ck_range_ok(off, len, m->len))
		return ck_fail(err, EIO,
			       "%s: expected %zu bytes at byte %llu, but it "
			       "has %zu",
			       s->name, len, (unsigned long long)off, m->len);
	if (len)
		memcpy(buf, m->bytes + off, len);
	return 0;
}

static void close_mem(struct ck_source *s)
{
	free(s);
}

static const struct ck_source_ops mem_ops = { read_mem, close_mem };

struct ck_source *memsource(const void *bytes, size_t len, const char *name)
{
	size_t name_len = strlen(name) + 1;
	struct mem *m = malloc(sizeof(*m) + name_len);

	if (!m)
		return NULL;
	memcpy(m->name, name, name_len);
	m->bytes = bytes;
	m->len = len;
	m->base = (struct ck_source){ .ops = &mem_ops, .name = m->name };
	m->base.st.st_size = (off_t)len;
	m->base.st.st_mode = S_IFREG | 0444;
	return &m->base;
}
