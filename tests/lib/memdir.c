/* SPDX-License-Identifier: Apache-2.0 */
/* memdir.c - a folder in memory, and a real one read into it */
#include "tests/lib/memdir.h"
#include "tests/lib/memsource.h"

#include <errno.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int mem_list(const struct ck_dir *d, const char *sub,
		    struct ck_dir_list *out, struct ck_err *err)
{
	const struct memdir *m = d->ctx;
	size_t skip = *sub ? strlen(sub) + 1 : 0;

	for (size_t i = 0; i < m->nr; i++) {
		const char *name = m->v[i].name, *slash;
		char *part;
		bool known = false;
		int ret = 0;

		if (skip &&
		    (strncmp(name, sub, skip - 1) || name[skip - 1] != '/'))
			continue;
		slash = strchr(name + skip, '/');
		part = strndup(name,
			       slash ? (size_t)(slash - name) : strlen(name));
		if (!part)
			return ck_fail(err, ENOMEM, "no memory");
		for (size_t k = 0; k < out->nr; k++)
			known = known || !strcmp(out->v[k].name, part);
		if (!known)
			ret = ck_dir_list_add(out, sub, part + skip,
					      slash != NULL, m->v[i].len);
		free(part);
		if (ret)
			return ck_fail(err, -ret, "no memory");
	}
	return 0;
}

static int mem_open(const struct ck_dir *d, const char *name,
		    struct ck_source **out, struct ck_err *err)
{
	const struct memdir *m = d->ctx;
	const struct memdir_file *f = memdir_find(m, name);

	if (!f)
		return ck_fail(err, ENOENT, "%s: no such file", name);
	if (f->fault)
		return ck_fail(err, f->fault, "%s: %s", name,
			       strerror(f->fault));
	*out = memsource(f->bytes, f->len, f->name);
	if (!*out)
		return ck_fail(err, ENOMEM, "%s: no memory", name);
	(*out)->st.st_mode = S_IFREG | 0644;
	(*out)->st.st_ino = (ino_t)(f - m->v) + 1;
	return 0;
}

static bool mem_beside(const struct ck_dir *d, const char *name)
{
	const struct memdir *m = d->ctx;
	size_t len = strlen(name);

	for (size_t i = 0; i < m->nr; i++)
		if (!strncmp(m->v[i].name, name, len) &&
		    (!m->v[i].name[len] || m->v[i].name[len] == '/'))
			return true;
	return false;
}

static const struct ck_dir_ops mem_ops = {
	.list = mem_list,
	.open = mem_open,
	.beside = mem_beside,
};

void memdir_init(struct memdir *m)
{
	*m = (struct memdir){ .dir = { .ops = &mem_ops, .path = "mem" } };
	m->dir.ctx = m;
}

void memdir_free(struct memdir *m)
{
	for (size_t i = 0; i < m->nr; i++) {
		free(m->v[i].name);
		free(m->v[i].owned);
	}
	free(m->v);
	*m = (struct memdir){ 0 };
}

struct memdir_file *memdir_find(const struct memdir *m, const char *name)
{
	for (size_t i = 0; i < m->nr; i++)
		if (!strcmp(m->v[i].name, name))
			return &m->v[i];
	return NULL;
}

struct memdir_file *memdir_put(struct memdir *m, const char *name,
			       const void *bytes, size_t len)
{
	struct memdir_file *f = memdir_find(m, name);

	if (!f && m->nr == m->room) {
		size_t room = m->room ? 2 * m->room : 16;

		f = reallocarray(m->v, room, sizeof(*m->v));
		if (!f)
			return NULL;
		m->v = f;
		m->room = room;
		f = NULL;
	}
	if (!f) {
		f = &m->v[m->nr];
		*f = (struct memdir_file){ .name = strdup(name) };
		if (!f->name)
			return NULL;
		m->nr++;
	}
	f->bytes = bytes;
	f->len = len;
	return f;
}

void memdir_drop(struct memdir *m, const char *name)
{
	struct memdir_file *f = memdir_find(m, name);

	if (!f)
		return;
	free(f->name);
	free(f->owned);
	*f = m->v[--m->nr];
}

/* nftw() has no argument to hand through. */
static struct memdir *into;
static size_t prefix;

static int take(const char *path, const struct stat *st, int type,
		struct FTW *ftw)
{
	struct memdir_file *file;
	char *bytes;
	FILE *f;

	(void)ftw;
	if (type != FTW_F)
		return 0;
	f = fopen(path, "rb");
	bytes = malloc((size_t)st->st_size + 1);
	if (!f || !bytes ||
	    fread(bytes, 1, (size_t)st->st_size, f) != (size_t)st->st_size) {
		free(bytes);
		return f ? (fclose(f), EIO) : errno;
	}
	fclose(f);
	file = memdir_put(into, path + prefix, bytes, (size_t)st->st_size);
	if (!file) {
		free(bytes);
		return ENOMEM;
	}
	file->owned = bytes;
	return 0;
}

int memdir_load(struct memdir *m, const char *path)
{
	int ret;

	into = m;
	prefix = strlen(path) + 1;
	ret = nftw(path, take, 16, FTW_PHYS);
	return ret < 0 ? -errno : -ret;
}
