/* SPDX-License-Identifier: Apache-2.0 */
/* dir.c - what readers ask of any folder, whoever keeps its files */
#include "core/root/dir.h"

#include "core/base/arena.h"
#include "core/base/auto.h"
#include "core/base/check.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define HUGE_PAGE ((uint64_t)2 << 20)

static int by_name(const void *a, const void *b)
{
	const struct ck_dir_entry *x = a, *y = b;

	return strcmp(x->name, y->name);
}

static void drop_hidden(const struct ck_dir *d, struct ck_dir_list *l)
{
	size_t kept = 0;

	for (size_t i = 0; i < l->nr; i++)
		if (d->hides(d->save, l->v[i].name))
			free(l->v[i].name);
		else
			l->v[kept++] = l->v[i];
	l->nr = kept;
}

int ck_dir_list(const struct ck_dir *d, const char *sub,
		struct ck_dir_list *out, struct ck_err *err)
{
	int ret;

	*out = (struct ck_dir_list){ 0 };
	ret = d->ops->list(d, sub, out, err);
	if (ret) {
		ck_dir_list_free(out);
		return ret == -ENOMEM ? ck_no_memory(err) : ret;
	}
	if (d->hides)
		drop_hidden(d, out);
	if (out->nr)
		qsort(out->v, out->nr, sizeof(*out->v), by_name);
	return 0;
}

static char *join(const char *sub, const char *name)
{
	char *path = NULL;

	if (!*sub)
		return strdup(name);
	return asprintf(&path, "%s/%s", sub, name) < 0 ? NULL : path;
}

int ck_dir_list_add(struct ck_dir_list *l, const char *sub, const char *name,
		    bool is_dir, uint64_t size)
{
	struct ck_dir_entry *grown;

	if (l->nr == l->room) {
		size_t room = l->room ? 2 * l->room : 32;

		grown = reallocarray(l->v, room, sizeof(*l->v));
		if (!grown)
			return -ENOMEM;
		l->v = grown;
		l->room = room;
	}
	l->v[l->nr].name = join(sub, name);
	l->v[l->nr].is_dir = is_dir;
	l->v[l->nr].size = size;
	return l->v[l->nr].name ? (l->nr++, 0) : -ENOMEM;
}

void ck_dir_list_free(struct ck_dir_list *l)
{
	for (size_t i = 0; i < l->nr; i++)
		free(l->v[i].name);
	free(l->v);
	*l = (struct ck_dir_list){ 0 };
}

bool ck_dir_name_ok(const char *name, size_t len)
{
	const char *end = name + len;

	if (!len || *name == '/' || memchr(name, '\0', len))
		return false;
	for (const char *at = name; at < end;) {
		const char *slash = memchr(at, '/', (size_t)(end - at));
		size_t n = (size_t)((slash ? slash : end) - at);

		if (n == 2 && at[0] == '.' && at[1] == '.')
			return false;
		at += n + 1;
	}
	return true;
}

int ck_dir_open(const struct ck_dir *d, const char *name,
		struct ck_source **out, struct ck_err *err)
{
	int ret;

	*out = NULL;
	if (!ck_dir_name_ok(name, strlen(name)))
		return ck_fail(err, EINVAL, "%s: leads out of the checkpoint",
			       name);
	ret = d->ops->open(d, name, out, err);
	if (ret || !d->wrap)
		return ret;
	*out = d->wrap->call(d->wrap->ctx, *out);
	return *out ? 0 : ck_no_memory(err);
}

bool ck_dir_has(const struct ck_dir *d, const char *name)
{
	struct ck_source *s = NULL;
	int ret = ck_dir_name_ok(name, strlen(name)) ?
			  d->ops->open(d, name, &s, NULL) :
			  -EINVAL;

	ck_source_close(s);
	return ret != -ENOENT;
}

bool ck_dir_siblings(const struct ck_dir *d, const char *name)
{
	return !strchr(name, '/') && d->ops->beside(d, name);
}

bool ck_dir_is_written(const struct ck_dir *d, const char *name)
{
	return d->ops->written && d->ops->written(d, name);
}

/* Fewer faults for a large index; a hint that may be refused. */
static void advise_huge(char *buf, uint64_t size)
{
	uintptr_t from =
		((uintptr_t)buf + HUGE_PAGE - 1) / HUGE_PAGE * HUGE_PAGE;

	if (size >= 2 * HUGE_PAGE)
		madvise((void *)from, size - (from - (uintptr_t)buf),
			MADV_HUGEPAGE);
}

int ck_dir_slurp(const struct ck_dir *d, const char *name, uint64_t max,
		 char **bytes, size_t *len, struct ck_err *err)
{
	ck_auto_source struct ck_source *s = NULL;
	ck_auto_free char *buf = NULL;
	uint64_t size;
	int ret = ck_dir_open(d, name, &s, err);

	if (ret)
		return ret;
	size = (uint64_t)s->st.st_size;
	if (size > max)
		return ck_fail(err, EINVAL,
			       "%s: has %" PRIu64 " bytes, at most %" PRIu64
			       " are accepted",
			       name, size, max);
	buf = malloc(size + 1);
	if (!buf)
		return ck_no_memory(err);
	advise_huge(buf, size);
	ret = size ? ck_source_read(s, buf, size, 0, err) : 0;
	if (ret)
		return ret;
	buf[size] = '\0';
	*len = size;
	*bytes = ck_steal(buf);
	return 0;
}

bool ck_dir_any_copy(const struct ck_dir *dir)
{
	return ck_opts_get(dir->opts, CK_ANY_COPY) ||
	       ck_opts_get(dir->opts, "verify");
}

int ck_dir_option(const struct ck_dir *d, const char *option, size_t i,
		  uint64_t max, struct ck_arena *mem, const char **bytes,
		  size_t *len, struct ck_err *err)
{
	const char *name = ck_opts_nth(d->opts, option, i);
	ck_auto_free char *text = NULL;
	int ret;

	*bytes = ck_opts_bytes(d->opts, option, i, len);
	if (*bytes)
		return 0;
	ret = ck_dir_name_ok(name, strlen(name)) ?
		      ck_dir_slurp(d, name, max, &text, len, err) :
		      -ENOENT;
	if (ret == -ENOENT)
		return ck_fail(
			err, EINVAL,
			"-o %s=%s: there is no such file, neither here nor in the checkpoint",
			option, name);
	*bytes = ret ? NULL : ck_arena_copy(mem, text, *len);
	return ret || *bytes ? ret : ck_no_memory(err);
}
