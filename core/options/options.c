/* SPDX-License-Identifier: Apache-2.0 */
/*
 * options.c - "NAME=VALUE,NAME,..." by the rows that there are for them
 *
 * Commas end a value.  In paths "\," and "\:" stand for the characters, and a
 * path that exists just as it is written wins over any splitting.
 */
#include "core/options/options.h"

#include "core/base/auto.h"
#include "core/base/match.h"
#include "core/base/number.h"
#include "core/format/format.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define MAX_FILE (64 << 20) /* bytes of a file that an option names */

/* What mount(8), fstab and systemd say of every file system. */
static const char *const everyones[] = {
	"_netdev",    "async",	    "atime",	     "auto",	"defaults",
	"dev",	      "diratime",   "dirsync",	     "exec",	"group",
	"lazytime",   "loud",	    "noatime",	     "noauto",	"nodev",
	"nodiratime", "noexec",	    "nofail",	     "nogroup", "nolazytime",
	"noowner",    "norelatime", "nostrictatime", "nosuid",	"nousers",
	"nouser",     "owner",	    "relatime",	     "silent",	"strictatime",
	"suid",	      "sync",	    "user",	     "users",	NULL
};

static bool is_everyones(const char *name)
{
	for (const char *const *e = everyones; *e; e++)
		if (!strcmp(name, *e))
			return true;
	return !strncmp(name, "x-", 2) || !strncmp(name, "X-", 2) ||
	       !strcmp(name, "comment");
}

static const struct ck_option *find(const char *name)
{
	const struct ck_option *o = ck_options;

	while (o->name && strcmp(o->name, name) != 0)
		o++;
	if (o->name)
		return o;
	for (size_t i = 0; (o = ck_format_option(i)); i++)
		if (!strcmp(o->name, name))
			break;
	return o;
}

/* Bytes up to the first @stop that no backslash precedes. */
static size_t span(const char *text, char stop)
{
	size_t n = 0;

	while (text[n] && text[n] != stop)
		n += text[n] == '\\' && text[n + 1] ? 2 : 1;
	return n;
}

/* Removes the backslash of "\," and "\:"; any other stays. */
static void unescape(char *text)
{
	char *to = text;

	for (const char *p = text; *p; p++) {
		if (*p == '\\' && (p[1] == ',' || p[1] == ':'))
			p++;
		*to++ = *p;
	}
	*to = '\0';
}

static bool exists(const char *text, size_t len)
{
	ck_auto_free char *path = strndup(text, len);

	return path && len && !access(path, F_OK);
}

/* How much of @text is the path: the longest piece that exists, if any. */
static size_t path_span(const char *text)
{
	size_t len = strlen(text);

	for (;;) {
		if (exists(text, len))
			return len;
		while (len > 0 && text[--len] != ',')
			;
		if (!len)
			return span(text, ',');
	}
}

static int add(struct ck_opts *out, const char *name, const char *value,
	       struct ck_err *err)
{
	return ck_opts_add(out, name, value) ? ck_no_memory(err) : 0;
}

static int add_path(struct ck_opts *out, const char *name, const char *text,
		    size_t len, struct ck_err *err)
{
	ck_auto_free char *path = strndup(text, len);

	if (!path)
		return ck_no_memory(err);
	if (!exists(path, len))
		unescape(path);
	if (!*path)
		return ck_fail(err, EINVAL, "option %s: expected a path", name);
	return add(out, name, path, err);
}

/* A name of nothing stays a name: it may mean something in the checkpoint. */
static int read_file(struct ck_opts *out, const char *name, const char *path,
		     struct ck_err *err)
{
	ck_auto_fd int fd =
		open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC | O_NOCTTY);
	ck_auto_free char *bytes = NULL;
	struct stat st;
	size_t len = 0;
	ssize_t n;

	if (fd < 0 && errno == ENOENT)
		return 0;
	if (fd < 0 || fstat(fd, &st))
		return ck_fail(err, errno, "option %s: %s: %s", name, path,
			       strerror(errno));
	if (S_ISDIR(st.st_mode))
		return ck_fail(err, EINVAL,
			       "option %s: %s: it is a folder; expected a file",
			       name, path);
	if (!S_ISREG(st.st_mode) || st.st_size > MAX_FILE)
		return ck_fail(err, EINVAL,
			       "option %s: %s: expected a file of at most %d "
			       "bytes",
			       name, path, MAX_FILE);
	bytes = malloc((size_t)st.st_size + 1);
	if (!bytes)
		return ck_no_memory(err);
	while (len < (size_t)st.st_size &&
	       (n = read(fd, bytes + len, (size_t)st.st_size - len)) > 0)
		len += (size_t)n;
	if (len < (size_t)st.st_size)
		return ck_fail(err, EIO,
			       "option %s: %s: cannot be read to its end", name,
			       path);
	bytes[len] = '\0';
	ck_opts_keep(out, ck_steal(bytes), len);
	return 0;
}

int ck_options_add_file(struct ck_opts *out, const char *name,
			const char *value, struct ck_err *err)
{
	int ret = add(out, name, value, err);

	return ret ? ret : read_file(out, name, value, err);
}

static int is_kept(const struct dirent *e)
{
	const char *dot = strrchr(e->d_name, '.');

	return dot && dot > e->d_name &&
	       (!strcmp(dot, ".ckpt") || !strcmp(dot, ".json"));
}

static int add_in(struct ck_opts *out, const char *name, const char *folder,
		  const char *base, struct ck_err *err)
{
	ck_auto_free char *path = NULL;

	if (asprintf(&path, "%s/%s", folder, base) < 0) {
		path = NULL;
		return ck_no_memory(err);
	}
	return ck_options_add_file(out, name, path, err);
}

static int add_folder(struct ck_opts *out, const char *name, const char *folder,
		      struct ck_err *err)
{
	struct dirent **list = NULL;
	int nr = scandir(folder, &list, is_kept, alphasort), ret = 0;

	if (nr < 0)
		return ck_fail(err, errno, "option %s: %s: %s", name, folder,
			       strerror(errno));
	if (!nr)
		ret = ck_fail(err, EINVAL,
			      "option %s: %s: no .ckpt or .json file is in "
			      "that folder",
			      name, folder);
	for (int i = 0; i < nr; i++) {
		if (!ret)
			ret = add_in(out, name, folder, list[i]->d_name, err);
		free(list[i]);
	}
	free(list);
	return ret;
}

/* Whether folders in the one at @path are called as those of ranks. */
static bool has_ranks(const char *path)
{
	ck_auto_dir DIR *d = opendir(path);
	const struct dirent *e;

	while (d && (e = readdir(d)))
		for (size_t i = 0; ck_formats[i]; i++)
			if (ck_formats[i]->is_rank_dir &&
			    ck_formats[i]->is_rank_dir(e->d_name))
				return true;
	return false;
}

/* Whether a file in the folder at @path has the option's name in its own. */
static bool has_called_so(const char *path, const char *name)
{
	ck_auto_dir DIR *d = opendir(path);
	const struct dirent *e;

	while (d && (e = readdir(d)))
		if (is_kept(e) && strstr(e->d_name, name))
			return true;
	return false;
}

int ck_options_beside(struct ck_opts *opts, const char *path,
		      struct ck_err *err)
{
	const struct ck_option *o;
	int ret = 0;

	for (size_t i = 0; !ret && (o = ck_format_option(i)); i++) {
		ck_auto_free char *folder = NULL;

		if (!o->beside || ck_opts_get(opts, o->name))
			continue;
		if (asprintf(&folder, "%s/%s", path, o->beside) < 0) {
			folder = NULL;
			return ck_no_memory(err);
		}
		if (has_called_so(folder, o->name) && has_ranks(path))
			ret = add_folder(opts, o->name, folder, err);
	}
	return ret;
}

/* Whether the text names a folder; then *@ret is what adding it came to. */
static bool took_folder(struct ck_opts *out, const char *name, const char *text,
			size_t len, int *ret, struct ck_err *err)
{
	ck_auto_free char *path = strndup(text, len);
	struct stat st;

	if (path && !exists(path, len))
		unescape(path);
	if (!path || stat(path, &st) || !S_ISDIR(st.st_mode))
		return false;
	*ret = add_folder(out, name, path, err);
	return true;
}

static int add_any_path(struct ck_opts *out, const struct ck_option *o,
			const char *text, size_t len, struct ck_err *err)
{
	int ret = 0;

	if (o->folder && took_folder(out, o->name, text, len, &ret, err))
		return ret;
	ret = add_path(out, o->name, text, len, err);
	if (ret || o->type != CK_OPTION_FILES)
		return ret;
	return read_file(out, o->name, out->v[out->nr - 1].value, err);
}

static int add_paths(struct ck_opts *out, const struct ck_option *o,
		     const char *text, struct ck_err *err)
{
	size_t len;
	int ret;

	if (exists(text, strlen(text)))
		return add_any_path(out, o, text, strlen(text), err);
	for (;; text += len + 1) {
		len = span(text, ':');
		ret = add_any_path(out, o, text, len, err);
		if (ret || !text[len])
			return ret;
	}
}

static bool is_choice(const char *choices, const char *value)
{
	size_t len = strlen(value);

	if (strchr(value, '|'))
		return false;
	for (const char *p = choices; p && len; p = strchr(p, '|')) {
		p += *p == '|';
		if (!strncmp(p, value, len) && (!p[len] || p[len] == '|'))
			return true;
	}
	return false;
}

static int check_format(const char *value, struct ck_err *err)
{
	ck_auto_str struct ck_str names = { 0 };

	for (const struct ck_format *const *f = ck_formats; *f; f++) {
		if (!strcmp((*f)->name, value))
			return 0;
		ck_str_fmt(&names, "%s%s", names.len ? ", " : "", (*f)->name);
	}
	return ck_fail(err, EINVAL,
		       "option format: expected one of %s, "
		       "found \"%s\"",
		       names.v ? names.v : "none", value);
}

static int check_value(const struct ck_option *o, const char *value,
		       struct ck_err *err)
{
	uint64_t n;

	switch (o->type) {
	case CK_OPTION_CHOICE:
		if (!is_choice(o->choices, value))
			return ck_fail(err, EINVAL,
				       "option %s: expected %s, "
				       "found \"%s\"",
				       o->name, o->choices, value);
		return 0;
	case CK_OPTION_FORMAT:
		return check_format(value, err);
	case CK_OPTION_SIZE:
		if (!ck_size_parse(value, &n))
			return ck_fail(err, EINVAL,
				       "option %s: expected a "
				       "size such as 256M, found \"%s\"",
				       o->name, value);
		return 0;
	case CK_OPTION_NUMBER:
		if (value[strspn(value, "0123456789")] ||
		    !ck_size_parse(value, &n) || n < 1 || n > o->max)
			return ck_fail(err, EINVAL,
				       "option %s: expected a "
				       "number from 1 to %lu, found \"%s\"",
				       o->name, (unsigned long)o->max, value);
		return 0;
	default:
		return 0;
	}
}

static int take(struct ck_opts *out, const struct ck_option *o,
		const char *value, struct ck_err *err)
{
	int ret;

	if (!value != (o->type == CK_OPTION_FLAG))
		return ck_fail(err, EINVAL,
			       value ? "option %s takes no value" :
				       "option %s: expected %s=%s",
			       o->name, o->name, o->value);
	if (o->type == CK_OPTION_PATHS || o->type == CK_OPTION_FILES)
		return add_paths(out, o, value, err);
	if (o->type == CK_OPTION_PATH)
		return add_path(out, o->name, value, strlen(value), err);
	ret = value ? check_value(o, value, err) : 0;
	if (!ret && !strcmp(o->name, "replace"))
		ret = add(out, "rw", "", err);
	return ret ? ret : add(out, o->name, value ? value : "", err);
}

static void offer(const struct ck_option *o, void *ctx)
{
	ck_nearest_offer(ctx, o->name, strlen(o->name));
}

static int unknown(enum ck_options_who who, const char *name,
		   struct ck_err *err)
{
	struct ck_nearest near;

	if (!strcmp(name, "remount"))
		return ck_fail(err, EINVAL,
			       "option remount: a mount cannot be changed");
	ck_nearest_begin(&near, name, strlen(name));
	ck_options_each(who, offer, &near);
	return ck_fail(err, EINVAL,
		       "unknown option \"%s\" (%s%s%sunshard %s --help=all "
		       "lists them)",
		       name, near.name ? "did you mean " : "",
		       near.name ? near.name : "", near.name ? "? " : "",
		       who == CK_OPTIONS_OPEN ? "ls" : "mount");
}

/* @word is "NAME" or "NAME=VALUE", and is changed. */
static int parse_word(struct ck_opts *out, enum ck_options_who who, char *word,
		      struct ck_err *err)
{
	char *value = strchr(word, '=');
	const struct ck_option *o;

	if (value)
		*value++ = '\0';
	if (!*word || is_everyones(word) ||
	    (who == CK_OPTIONS_FSTAB && !strcmp(word, "rw")))
		return 0;
	for (char *p = word; *p; p++)
		if (*p == '_')
			*p = '-';
	o = find(strcmp(word, "writable") ? word : "rw");
	if (!o)
		return unknown(who, word, err);
	if (who == CK_OPTIONS_OPEN && !o->open)
		return ck_fail(err, EINVAL, "option %s is for unshard mount",
			       o->name);
	return take(out, o, value, err);
}

/* Bytes of the first option of @text; only paths may hold a comma. */
static size_t word_span(const char *text)
{
	size_t len = strcspn(text, ",=");
	ck_auto_free char *name = strndup(text, len);
	const struct ck_option *o = name ? find(name) : NULL;

	if (text[len] != '=' || !o ||
	    (o->type != CK_OPTION_PATH && o->type != CK_OPTION_PATHS &&
	     o->type != CK_OPTION_FILES))
		return strcspn(text, ",");
	return len + 1 + path_span(text + len + 1);
}

int ck_options_parse(struct ck_opts *out, enum ck_options_who who,
		     const char *text, struct ck_err *err)
{
	while (*text) {
		size_t len = word_span(text);
		ck_auto_free char *word = strndup(text, len);
		int ret;

		if (!word)
			return ck_no_memory(err);
		ret = parse_word(out, who, word, err);
		if (ret)
			return ret;
		text += len + (text[len] == ',');
	}
	return 0;
}

int ck_options_absolute(struct ck_opts *opts, const char *name,
			struct ck_err *err)
{
	const char *dir = ck_opts_get(opts, name);
	ck_auto_free char *real = dir ? realpath(dir, NULL) : NULL;
	struct stat st;

	if (!dir)
		return 0;
	if (!real && errno == ENOENT)
		return ck_fail(err, ENOENT, "-o %s=%s: no such directory", name,
			       dir);
	if (!real || stat(real, &st)) {
		int code = errno == EINVAL ? EIO : errno;

		return ck_fail(err, code, "-o %s=%s: %s", name, dir,
			       strerror(errno));
	}
	if (!S_ISDIR(st.st_mode))
		return ck_fail(
			err, EINVAL, "-o %s=%s: expected a directory, found %s",
			name, dir,
			S_ISREG(st.st_mode) ? "a file" : "something else");
	return ck_opts_add(opts, name, real) ?
		       ck_fail(err, ENOMEM, "out of memory") :
		       0;
}

static bool takes(enum ck_options_who who, const struct ck_option *o)
{
	return who != CK_OPTIONS_OPEN || o->open;
}

bool ck_options_is_how(const char *name)
{
	const struct ck_option *o = find(name);

	return o && o->how;
}

/* Whether @a stands before @b in lists, of two of one group. */
static bool precedes(const struct ck_option *a, const struct ck_option *b)
{
	unsigned x = a->place - 1, y = b->place - 1; /* 0: the last */

	return x != y ? x < y : strcmp(a->name, b->name) < 0;
}

/* The formats' option of group @g that stands next behind @last. */
static const struct ck_option *next_behind(unsigned g,
					   const struct ck_option *last)
{
	const struct ck_option *best = NULL, *o;

	for (size_t i = 0; (o = ck_format_option(i)); i++)
		if (o->group == g && (!last || precedes(last, o)) &&
		    (!best || precedes(o, best)))
			best = o;
	return best;
}

void ck_options_each(enum ck_options_who who,
		     void (*fn)(const struct ck_option *o, void *ctx),
		     void *ctx)
{
	for (unsigned g = 0; g < CK_OPTION_GROUPS; g++) {
		const struct ck_option *own = NULL;

		for (const struct ck_option *o = ck_options; o->name; o++)
			if (o->group == g && takes(who, o))
				fn(o, ctx);
		while ((own = next_behind(g, own)))
			if (takes(who, own))
				fn(own, ctx);
	}
}
