/* SPDX-License-Identifier: Apache-2.0 */
/*
 * run_dir_saves.c - saves that lie side by side in the same folders of ranks
 *
 * Each is an entry as a folder would be.  It has no inode of its own: what
 * stands for it is made of those of its files.
 */
#include "core/run/run_dir_priv.h"

#include "core/base/auto.h"
#include "core/base/check.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>

static bool is_newer(const struct timespec *a, const struct timespec *b)
{
	return a->tv_sec != b->tv_sec ? a->tv_sec > b->tv_sec :
					a->tv_nsec > b->tv_nsec;
}

struct sum {
	const struct ck_root *root;
	const char *in; /* the folder open as @fd, of @of; NULL: none */
	const struct ck_root *of;
	int fd;
	bool any;
	struct stat st;
};

static void add_stat(struct sum *s, const struct stat *st)
{
	if (!s->any) {
		if (fstat(s->fd, &s->st))
			return;
		s->st.st_ino = 0;
		s->st.st_mtim = st->st_mtim;
		s->any = true;
	}
	/* a sum that changes with each of them, and with their sizes */
	s->st.st_ino = (s->st.st_ino + st->st_ino) * UINT64_C(0x9e3779b1) +
		       (uint64_t)st->st_size;
	if (is_newer(&st->st_mtim, &s->st.st_mtim))
		s->st.st_mtim = st->st_mtim;
}

static void close_sum(struct sum *s)
{
	if (s->fd >= 0)
		close(s->fd);
	s->fd = -1;
}

static int add_file(void *ctx, const char *folder, const char *base)
{
	struct sum *s = ctx;
	struct stat st;

	for (const struct ck_root *r = s->root; r; r = r->next) {
		close_sum(s);
		if (!ck_root_open_dir(r, folder, &s->fd, NULL) &&
		    !fstatat(s->fd, base, &st, AT_SYMLINK_NOFOLLOW) &&
		    !S_ISDIR(st.st_mode))
			add_stat(s, &st);
	}
	return 0;
}

bool ck_run_dir_has_part(const struct ck_format_parts *parts, const char *key)
{
	for (const char *const *n = parts ? parts->names : NULL; n && *n; n++)
		if (!strcmp(*n, key))
			return true;
	return false;
}

/* Each file of the part @key of a save that lies in the folder @in. */
static int add_part(struct sum *s, const struct ck_format_parts *p,
		    const struct ck_dir *dir, const char *in, const char *key)
{
	ck_auto_dir_list struct ck_dir_list l = { 0 };
	size_t skip = *in ? strlen(in) + 1 : 0;
	unsigned seen = 0;
	int ret = ck_dir_list(dir, in, &l, NULL);

	if (ret)
		return ret == -ENOMEM ? ret : 0;
	for (size_t i = 0; i < l.nr; i++)
		seen |= p->seen(l.v[i].name + skip);
	for (size_t i = 0; i < l.nr && seen == p->all; i++)
		if (p->has(key, l.v[i].name + skip))
			add_file(s, in, l.v[i].name + skip);
	return 0;
}

/* Of the first format that has a save, or a part of one, called @key. */
static int add_files(struct sum *s, const struct ck_dir *dir, const char *in,
		     const char *key, bool *is_file)
{
	int ret = 0;

	for (size_t i = 0; ck_formats[i] && !ret && !s->any; i++)
		if (ck_formats[i]->saves)
			ret = ck_formats[i]->saves->each(dir, in, key, add_file,
							 s, NULL);
	for (size_t i = 0; ck_formats[i] && !ret && !s->any; i++) {
		const struct ck_format_parts *p = ck_formats[i]->parts;

		if (!ck_run_dir_has_part(p, key))
			continue;
		ret = add_part(s, p, dir, in, key);
		*is_file = !strcmp(p->file, key);
	}
	return ret;
}

int ck_run_dir_look_save(struct ck_run_dir_entry *out,
			 const struct ck_root *root, const char *name)
{
	const char *slash = strrchr(name, '/');
	const char *key = slash ? slash + 1 : name;
	ck_auto_free char *in =
		strndup(name, slash ? (size_t)(slash - name) : 0);
	struct sum s = { .root = root, .fd = -1 };
	bool is_file = false;
	struct ck_dir dir;
	int ret;

	if (!in)
		return -ENOMEM;
	ck_dir_root_init(&dir, root, NULL);
	ret = add_files(&s, &dir, in, key, &is_file);
	close_sum(&s);
	if (ret || !s.any)
		return ret == -ENOMEM ? ret : 0;
	*out = (struct ck_run_dir_entry){ .name = strdup(key),
					  .is_save = !is_file,
					  .is_file = is_file,
					  .st = s.st };
	return out->name ? 1 : -ENOMEM;
}

static void drop_all(struct ck_run_dir *s)
{
	while (s->nr)
		ck_run_dir_entry_free(&s->v[--s->nr]);
}

static struct ck_run_dir_entry *find(struct ck_run_dir *s, const char *name)
{
	for (size_t i = 0; i < s->nr; i++)
		if (!strcmp(s->v[i].name, name))
			return &s->v[i];
	return NULL;
}

/* @number NULL: it is a part of a save, and no step. */
static int add_save(struct ck_run_dir *s, const struct ck_root *root,
		    const char *group, const char *key, const uint64_t *number,
		    struct ck_err *err)
{
	ck_auto_str struct ck_str name = { 0 };
	struct ck_run_dir_entry step;
	int ret;

	ck_str_fmt(&name, "%s%s%s", group, *group ? "/" : "", key);
	ret = name.failed ? -ENOMEM : ck_run_dir_look_save(&step, root, name.v);
	if (ret < 0)
		return ck_no_memory(err);
	if (!ret)
		return 0; /* it went */
	step.numbered = number;
	step.number = number ? *number : 0;
	return ck_run_dir_add(s, &step, err);
}

static int add_all(struct ck_run_dir *s, const struct ck_root *root,
		   const char *group, const struct ck_saves *all,
		   struct ck_err *err)
{
	int ret = 0;

	for (size_t i = 0; i < all->v.nr && !ret; i++) {
		struct ck_run_dir_entry *step;
		uint64_t nr = i;

		if (all->in_ranks) {
			ret = add_save(s, root, group, all->v.v[i], &nr, err);
			continue;
		}
		step = find(s, all->v.v[i]);
		if (step) {
			step->numbered = true;
			step->number = i;
		}
	}
	return ret;
}

/* By names alone: most folders are none, and may have thousands of steps. */
static bool are_together(const struct ck_format_parts *p,
			 const struct ck_root *root, const char *group)
{
	unsigned seen = 0;

	for (; root; root = root->next) {
		ck_auto_dir DIR *d = NULL;
		const struct dirent *e;

		ck_root_list(root, group, &d, NULL);
		while (d && (e = readdir(d)))
			seen |= p->seen(e->d_name);
	}
	return seen == p->all;
}

/* Where its model and its optimizer lie in one folder, they are all it has. */
static int add_parts(struct ck_run_dir *s, const struct ck_format_parts *p,
		     const struct ck_root *root, const char *group,
		     struct ck_err *err)
{
	struct ck_run_dir parts = { .parts = true };
	int ret = 0;

	if (!are_together(p, root, group))
		return 0;
	for (const char *const *n = p->names; *n && !ret; n++)
		ret = add_save(&parts, root, group, *n, NULL, err);
	if (!ret && parts.nr > 1) {
		char *marker = s->marker;

		drop_all(s);
		free(s->v);
		*s = parts;
		s->marker = marker;
		return 0;
	}
	ck_run_dir_free(&parts);
	return ret;
}

static int add_several(struct ck_run_dir *s,
		       const struct ck_format_saves *saves,
		       const struct ck_root *root, const char *group,
		       struct ck_err *err)
{
	struct ck_saves all = { 0 };
	struct ck_dir dir;
	int ret;

	ck_dir_root_init(&dir, root, NULL);
	ret = saves->find(&all, &dir, group, err);
	if (!ret && all.in_ranks)
		drop_all(s);
	/* what cannot be listed is said by who lists the rest */
	ret = ret ? (ret == -ENOMEM ? ret : 0) :
		    add_all(s, root, group, &all, err);
	ck_saves_free(&all);
	return ret;
}

int ck_run_dir_add_saves(struct ck_run_dir *s, const struct ck_root *root,
			 const char *group, struct ck_err *err)
{
	int ret = 0;

	for (size_t i = 0; ck_formats[i] && !ret; i++)
		if (ck_formats[i]->saves)
			ret = add_several(s, ck_formats[i]->saves, root, group,
					  err);
	for (size_t i = 0; ck_formats[i] && !ret; i++)
		if (ck_formats[i]->parts)
			ret = add_parts(s, ck_formats[i]->parts, root, group,
					err);
	return ret;
}

char *ck_run_dir_save_of(const struct ck_root *root, const char *name)
{
	struct ck_run_dir_entry step;
	char *key;

	if (!ck_run_dir_look(&step, root, name))
		return NULL;
	key = step.is_save ? strdup(step.name) : NULL;
	ck_run_dir_entry_free(&step);
	return key;
}

bool ck_run_dir_shows(const struct ck_root *root, const char *path)
{
	for (size_t i = 0; root->save && ck_formats[i]; i++) {
		const struct ck_format *f = ck_formats[i];

		if ((f->saves && f->saves->hides(root->save, path)) ||
		    (f->parts && f->parts->hides(root->save, path)))
			return false;
	}
	return true;
}
