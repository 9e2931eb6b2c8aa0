/* SPDX-License-Identifier: Apache-2.0 */
/*
 * run_dir.c - entries of a directory of checkpoints, by their names
 */
#include "core/run/run_dir_priv.h"

#include "core/base/auto.h"
#include "core/base/check.h"
#include "core/base/number.h"
#include "core/base/suffix.h"
#include "core/format/explain.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>

#define MARKER_MAX 255

bool ck_run_dir_number_of(const char *name, uint64_t *out)
{
	size_t len = strlen(name), from, to;

	return ck_last_number(name, len, &from, &to) && to == len &&
	       len - from <= 18 &&
	       ck_decimal(name + from, len - from, UINT64_MAX, out);
}

int ck_run_dir_add(struct ck_run_dir *s, struct ck_run_dir_entry *step,
		   struct ck_err *err)
{
	if (s->nr == s->room) {
		size_t room = s->room ? 2 * s->room : 16;
		struct ck_run_dir_entry *grown =
			reallocarray(s->v, room, sizeof(*grown));

		if (!grown) {
			ck_run_dir_entry_free(step);
			return ck_no_memory(err);
		}
		s->v = grown;
		s->room = room;
	}
	s->v[s->nr++] = *step;
	return 0;
}

const char *ck_run_dir_base_of(const char *name)
{
	const char *slash = strrchr(name, '/');

	return slash ? slash + 1 : name;
}

/* Of @base in the folder @at, which is @path in @in. */
static bool stat_entry(const struct ck_root *in, int at, const char *base,
		       const char *path, struct stat *st)
{
	if (fstatat(at, base, st, AT_SYMLINK_NOFOLLOW))
		return false;
	if (S_ISLNK(st->st_mode))
		ck_root_stat_link(in, at, base, path, st);
	return true;
}

/* The attributes of @base, which lies where @name does. */
static bool stat_beside(const struct ck_root *in, const char *name,
			const char *base, struct stat *st)
{
	const char *slash = strchr(name, '/');
	ck_auto_str struct ck_str path = { 0 };
	ck_auto_free char *group = NULL;
	ck_auto_fd int fd = -1;

	if (!slash)
		return stat_entry(in, in->fd, base, base, st);
	group = strndup(name, (size_t)(slash - name));
	ck_str_fmt(&path, "%s/%s", group ? group : "", base);
	return group && !path.failed &&
	       !ck_root_open_dir(in, group, &fd, NULL) &&
	       stat_entry(in, fd, base, path.v, st);
}

/* @base lies where @name does, and is a link to what lies there. */
static bool is_second_name(const struct ck_root *in, const char *name,
			   const char *base)
{
	size_t group = (size_t)(ck_run_dir_base_of(name) - name);
	ck_auto_free char *folder = strndup(name, group ? group - 1 : 0);
	ck_auto_str struct ck_str path = { 0 };
	ck_auto_fd int fd = -1;

	ck_str_fmt(&path, "%.*s%s", (int)group, name, base);
	return folder && !path.failed &&
	       !ck_root_open_dir(in, folder, &fd, NULL) &&
	       ck_root_is_second_name(in, fd, base, path.v);
}

/* "NAME" or "GROUP/NAME", neither of them hidden. */
static bool may_be_step(const char *name)
{
	const char *slash = strchr(name, '/');

	return *name != '.' &&
	       (!slash || (slash[1] != '.' && !strchr(slash + 1, '/')));
}

struct beside {
	const struct ck_root *all;
	const char *name;
};

static bool has_beside(const void *ctx, const char *base)
{
	const struct beside *b = ctx;
	struct stat st;

	for (const struct ck_root *r = b->all; r; r = r->next)
		if (stat_beside(r, b->name, base, &st))
			return true;
	return false;
}

/* Whether @name lies in a folder of the parts of one save. */
static bool in_parts(const struct ck_format_parts *p, const struct ck_root *all,
		     const char *name)
{
	const struct beside b = { all, name };

	return p && p->are_save(has_beside, &b);
}

static bool in_save(const struct ck_root *all, const char *name)
{
	for (size_t i = 0; ck_formats[i]; i++)
		if (in_parts(ck_formats[i]->parts, all, name))
			return true;
	return false;
}

/*
 * The file beside @name that is shown as @stem: "model.bin" as "model", if that
 * is unique and nothing else is called so.  NULL: none is.
 */
static const char *file_of_part(const struct ck_format_parts *p,
				const struct ck_root *all, const char *name,
				const char *stem, size_t len)
{
	const struct beside b = { all, name };
	const char *found = NULL;
	char text[32];

	for (const char *const *f = p->files; *f; f++) {
		if (p->stem(*f) != len || memcmp(*f, stem, len) != 0 ||
		    !has_beside(&b, *f))
			continue;
		if (found || len >= sizeof(text))
			return NULL;
		found = *f;
		memcpy(text, stem, len);
		text[len] = '\0';
	}
	return found && !has_beside(&b, text) && in_parts(p, all, name) ?
		       found :
		       NULL;
}

/* The same by the whole of @name, whoever's part it is. */
static const char *file_of(const struct ck_root *all, const char *name)
{
	const char *base = ck_run_dir_base_of(name), *file = NULL;

	for (size_t i = 0; ck_formats[i] && !file; i++)
		if (ck_formats[i]->parts)
			file = file_of_part(ck_formats[i]->parts, all, name,
					    base, strlen(base));
	return file;
}

/* The length of what the last part of @name is shown as. */
static size_t shown_len(const struct ck_root *all, const char *name)
{
	const char *base = ck_run_dir_base_of(name), *file;

	for (size_t i = 0; ck_formats[i]; i++) {
		const struct ck_format_parts *p = ck_formats[i]->parts;
		size_t stem = p ? p->stem(base) : strlen(base);

		file = base[stem] ? file_of_part(p, all, name, base, stem) :
				    NULL;
		if (file && !strcmp(file, base))
			return stem;
	}
	return strlen(base);
}

/* One that holds no tensors, but is of a save. */
static bool is_file_part(const struct ck_root *all, const char *name)
{
	const char *base = ck_run_dir_base_of(name);

	for (size_t i = 0; ck_formats[i]; i++) {
		const struct ck_format_parts *p = ck_formats[i]->parts;

		if (p && !strcmp(p->file, base) && in_parts(p, all, name))
			return true;
	}
	return false;
}

static bool is_file_step(const struct ck_root *all, const char *name)
{
	return (ck_run_dir_is_weights(name) && !ck_run_dir_is_aux(all, name)) ||
	       is_file_part(all, name);
}

/* 1: an entry of @in, one of the roots from @all on; 0: none; -ENOMEM. */
static int look(struct ck_run_dir_entry *out, const struct ck_root *all,
		const struct ck_root *in, const char *name)
{
	const char *base = ck_run_dir_base_of(name), *file;
	struct stat st;

	if (!may_be_step(name))
		return 0;
	file = file_of(all, name);
	if (!stat_beside(in, name, file ? file : base, &st))
		return 0;
	if (S_ISDIR(st.st_mode) ?
		    !ck_run_dir_has_sign(all, name) :
	    S_ISLNK(st.st_mode) ?
		    !(file || is_file_step(all, name) ||
		      ck_run_dir_is_one_of(all, in, name)) ||
			    is_second_name(in, name, file ? file : base) :
		    !S_ISREG(st.st_mode) || !(file || is_file_step(all, name)))
		return 0;
	*out = (struct ck_run_dir_entry){ .name = strndup(base,
							  shown_len(all, name)),
					  .is_file = !S_ISDIR(st.st_mode),
					  .st = st };
	if (!out->name)
		return -ENOMEM;
	out->numbered =
		!out->is_file && ck_run_dir_number_of(out->name, &out->number);
	return 1;
}

bool ck_run_dir_look(struct ck_run_dir_entry *out, const struct ck_root *root,
		     const char *name)
{
	for (const struct ck_root *r = root; r; r = r->next)
		if (look(out, root, r, name) > 0)
			return true;
	return may_be_step(name) && ck_run_dir_look_save(out, root, name) > 0;
}

void ck_run_dir_entry_free(struct ck_run_dir_entry *step)
{
	free(step->name);
	step->name = NULL;
}

static int take(struct ck_run_dir *s, const struct ck_root *all,
		const struct ck_root *in, const char *name, struct ck_err *err)
{
	struct ck_run_dir_entry step;
	int ret = look(&step, all, in, name);

	if (ret < 0)
		return ck_no_memory(err);
	if (ret && in != all && ck_run_dir_find(s, step.name)) {
		ck_run_dir_entry_free(&step);
		return 0; /* joined: the same entry on another disk */
	}
	return ret ? ck_run_dir_add(s, &step, err) : 0;
}

static int by_number(const void *pa, const void *pb)
{
	const struct ck_run_dir_entry *a = pa, *b = pb;

	if (a->numbered != b->numbered)
		return a->numbered ? 1 : -1;
	if (a->numbered && a->number != b->number)
		return a->number < b->number ? -1 : 1;
	return strcmp(a->name, b->name);
}

/* The first line of a small file; NULL: there is none. */
static char *first_line(const struct ck_root *root, const char *name)
{
	char text[MARKER_MAX + 1];
	ck_auto_fd int fd = -1;
	struct stat st;
	ssize_t n;

	if (ck_root_open_file(root, name, &fd, &st, NULL))
		return NULL;
	n = read(fd, text, MARKER_MAX);
	if (n <= 0)
		return NULL;
	text[n] = '\0';
	text[strcspn(text, "\r\n")] = '\0';
	return *text ? strdup(text) : NULL;
}

static char *read_marker(const struct ck_root *root)
{
	char *text = NULL;

	for (size_t i = 0; ck_formats[i] && !text; i++)
		if (ck_formats[i]->marker)
			text = first_line(root, ck_formats[i]->marker);
	return text;
}

static int take_all(struct ck_run_dir *s, const struct ck_root *all,
		    const struct ck_root *in, const char *group,
		    struct ck_err *err)
{
	ck_auto_dir DIR *d = NULL;
	const struct dirent *e;
	int ret = ck_root_list(in, group, &d, err);

	if (ret)
		return ret == -ENOENT && in->next ? 0 : ret;
	while (!ret && (e = readdir(d))) {
		ck_auto_str struct ck_str name = { 0 };

		if (*e->d_name == '.')
			continue;
		ck_str_fmt(&name, "%s%s%s", group, *group ? "/" : "",
			   e->d_name);
		ret = name.failed ? ck_no_memory(err) :
				    take(s, all, in, name.v, err);
	}
	return ret;
}

/* Folders called as scripts call the parts of one save, and nothing else. */
static bool have_part_names(const struct ck_run_dir *s)
{
	static const char *const names[] = { "model", "optimizer", "scheduler",
					     "lr_scheduler", "ema" };
	size_t folders = 0;

	for (size_t i = 0; i < s->nr; i++) {
		bool known = s->v[i].is_file;

		folders += !known;
		for (size_t k = 0; k < CK_ARRAY_LEN(names) && !known; k++)
			known = !strcmp(s->v[i].name, names[k]);
		if (!known)
			return false;
	}
	return folders > 1;
}

int ck_run_dir_list_in(struct ck_run_dir *out, const struct ck_root *root,
		       const char *group, struct ck_err *err)
{
	ck_auto_str struct ck_str any = { 0 };
	int ret = 0;

	ck_str_fmt(&any, "%s%sx", group, *group ? "/" : "");
	if (any.failed)
		return ck_no_memory(err);
	*out = (struct ck_run_dir){ .parts = in_save(root, any.v) };
	for (const struct ck_root *r = root; !ret && r; r = r->next)
		ret = take_all(out, root, r, group, err);
	if (!ret)
		ret = ck_run_dir_add_saves(out, root, group, err);
	if (ret) {
		ck_run_dir_free(out);
		return ret;
	}
	if (out->nr)
		qsort(out->v, out->nr, sizeof(*out->v), by_number);
	out->parts |= have_part_names(out);
	return 0;
}

int ck_run_dir_list(struct ck_run_dir *out, const struct ck_root *root,
		    struct ck_err *err)
{
	int ret = ck_run_dir_list_in(out, root, "", err);

	if (!ret)
		out->marker = read_marker(root);
	return ret;
}

void ck_run_dir_free(struct ck_run_dir *s)
{
	for (size_t i = 0; i < s->nr; i++)
		free(s->v[i].name);
	free(s->v);
	free(s->marker);
	*s = (struct ck_run_dir){ 0 };
}

const struct ck_run_dir_entry *ck_run_dir_find(const struct ck_run_dir *s,
					       const char *name)
{
	for (size_t i = 0; i < s->nr; i++)
		if (!strcmp(s->v[i].name, name))
			return &s->v[i];
	return NULL;
}

static bool shares_number(const struct ck_run_dir *s, size_t i)
{
	const struct ck_run_dir_entry *step = &s->v[i];

	return (i && s->v[i - 1].numbered &&
		s->v[i - 1].number == step->number) ||
	       (i + 1 < s->nr && s->v[i + 1].numbered &&
		s->v[i + 1].number == step->number);
}

static const struct ck_run_dir_entry *by_largest(const struct ck_run_dir *s,
						 size_t nr)
{
	for (size_t i = s->nr; i-- > 0 && s->v[i].numbered;)
		if (!shares_number(s, i) && nr-- == 0)
			return &s->v[i];
	return NULL;
}

static bool newer(const struct stat *a, const struct stat *b)
{
	if (a->st_mtim.tv_sec != b->st_mtim.tv_sec)
		return a->st_mtim.tv_sec > b->st_mtim.tv_sec;
	return a->st_mtim.tv_nsec > b->st_mtim.tv_nsec;
}

/* How many folders are newer than folder @i; of equals the first counts. */
static size_t rank_of(const struct ck_run_dir *s, size_t i)
{
	size_t rank = 0;

	for (size_t k = 0; k < s->nr; k++)
		if (!s->v[k].is_file &&
		    (newer(&s->v[k].st, &s->v[i].st) ||
		     (k < i && !newer(&s->v[i].st, &s->v[k].st))))
			rank++;
	return rank;
}

const struct ck_run_dir_entry *ck_run_dir_newest(const struct ck_run_dir *s,
						 size_t nr)
{
	if (s->parts)
		return NULL;
	if (s->nr && s->v[s->nr - 1].numbered)
		return by_largest(s, nr);
	for (size_t i = 0; i < s->nr; i++)
		if (!s->v[i].is_file && rank_of(s, i) == nr)
			return &s->v[i];
	return NULL;
}

const char *ck_run_dir_file_of(const struct ck_root *root, const char *name)
{
	return file_of(root, name);
}

static void add_escaped(struct ck_str *s, const char *text)
{
	for (; *text; text++)
		ck_str_fmt(s, *text == ':' ? "\\%c" : "%c", *text);
}

void ck_run_dir_add_paths(const struct ck_root *root, const char *name,
			  struct ck_str *out)
{
	const char *slash = *name ? "/" : "";

	if (!root->next) {
		ck_str_fmt(out, "%s%s%s", root->real, slash, name);
		return;
	}
	for (; root; root = root->next) {
		struct stat st;

		if (*name && fstatat(root->fd, name, &st, AT_SYMLINK_NOFOLLOW))
			continue;
		ck_str_puts(out, out->len ? ":" : "");
		add_escaped(out, root->real);
		ck_str_puts(out, slash);
		add_escaped(out, name);
	}
}

void ck_run_dir_path(const struct ck_root *root, const char *name,
		     struct ck_str *out)
{
	const char *base = ck_run_dir_base_of(name);
	const char *file = ck_run_dir_file_of(root, name);
	ck_auto_str struct ck_str real = { 0 };

	ck_auto_free char *inner = ck_run_dir_inner(root, name);

	if (inner) {
		ck_str_puts(&real, inner);
	} else {
		ck_str_add(&real, name, (size_t)(base - name));
		ck_str_puts(&real, file ? file : base);
	}
	if (real.failed)
		out->failed = true;
	else
		ck_run_dir_add_paths(root, real.v, out);
}

bool ck_run_dir_whole(const struct ck_catalog *img)
{
	for (uint32_t i = 0; i < img->nr_tensors; i++)
		if (img->tensors[i].state != CK_OK)
			return false;
	for (uint32_t i = 0; i < img->nr_problems; i++)
		if (img->problems[i].severity == CK_ERROR)
			return false;
	return true;
}

bool ck_run_dir_are_one(const struct ck_run_dir *s)
{
	return s->nr && !ck_run_dir_newest(s, 0);
}

bool ck_run_dir_is_part(const struct ck_run_dir *s,
			const struct ck_run_dir_entry *step)
{
	return !step->is_file || s->parts || ck_leftover_is_name(step->name);
}

bool ck_run_dir_is_marked(const struct ck_run_dir_entry *s, const char *marker)
{
	uint64_t number;

	if (!strcmp(s->name, marker))
		return true;
	return ck_decimal(marker, strlen(marker), UINT64_MAX, &number) &&
	       s->numbered && s->number == number; /* of some, that alone */
}
