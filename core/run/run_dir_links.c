/* SPDX-License-Identifier: Apache-2.0 */
/*
 * run_dir_links.c - opening an entry, which may be a link to another disk
 */
#include "core/run/run_dir_priv.h"

#include "core/base/auto.h"
#include "core/base/suffix.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>

/* The length of what stands before the number that ends @name. */
static bool stem_of(const char *name, size_t *stem)
{
	uint64_t number;
	size_t end;

	ck_last_number(name, strlen(name), stem, &end);
	return ck_run_dir_number_of(name, &number);
}

bool ck_run_dir_is_one_of(const struct ck_root *all, const struct ck_root *in,
			  const char *name)
{
	const char *base = ck_run_dir_base_of(name);
	size_t group = (size_t)(base - name), stem, other;
	ck_auto_free char *folder = strndup(name, group ? group - 1 : 0);
	ck_auto_dir DIR *d = NULL;
	const struct dirent *e;
	bool any = false;

	if (!stem_of(base, &stem) || !folder ||
	    ck_root_list(in, folder, &d, NULL))
		return false;
	while (!any && (e = readdir(d))) {
		ck_auto_str struct ck_str path = { 0 };
		struct stat st;

		if (!stem_of(e->d_name, &other) || other != stem ||
		    memcmp(e->d_name, base, stem) != 0 ||
		    fstatat(dirfd(d), e->d_name, &st, AT_SYMLINK_NOFOLLOW) ||
		    !S_ISDIR(st.st_mode))
			continue;
		ck_str_fmt(&path, "%.*s%s", (int)group, name, e->d_name);
		any = !path.failed && ck_run_dir_has_sign(all, path.v);
	}
	return any;
}

/* The first root that has @path, and it is a link there; else NULL. */
static const struct ck_root *has_link(const struct ck_root *root,
				      const char *in, const char *base)
{
	for (; root; root = root->next) {
		ck_auto_fd int fd = -1;
		struct stat st;

		if (!ck_root_open_dir(root, in, &fd, NULL) &&
		    !fstatat(fd, base, &st, AT_SYMLINK_NOFOLLOW))
			return S_ISLNK(st.st_mode) ? root : NULL;
	}
	return NULL;
}

/*
 * 1: @path is a link to a file that may be followed; 0: to a folder, or no
 * link; or why it is not.
 */
static int check_link(const struct ck_root *root, const char *path,
		      struct ck_err *err)
{
	ck_auto_fd int fd = -1;
	struct stat st;
	int ret;

	if (!root || !ck_root_open_dir(root, path, &fd, NULL))
		return 0;
	ret = ck_root_open_file(root, path, &fd, &st, err);
	return ret ? ret : 1;
}

/* A file by the name of the link, which tells what it is. */
static int open_file(struct ck_root *out, const struct ck_root *root,
		     const char *in, const char *base,
		     const struct ck_opts *opts, struct ck_err *err)
{
	ck_auto_str struct ck_str path = { 0 };
	int ret;

	ck_str_fmt(&path, "%s%s%s", root->real, *in ? "/" : "", in);
	ret = path.failed ? -ENOMEM : ck_root_open(out, path.v, opts, err);
	if (ret)
		return path.failed ? ck_no_memory(err) : ret;
	out->only = strdup(base);
	ck_str_fmt(&path, "/%s", base);
	if (path.failed || !out->only) {
		ck_root_close(out);
		return ck_no_memory(err);
	}
	free(out->path);
	out->path = ck_steal(path.v);
	return 0;
}

static int open_entry(struct ck_root *out, const struct ck_root *root,
		      const char *name, const struct ck_opts *opts,
		      struct ck_err *err)
{
	const char *file = ck_run_dir_file_of(root, name);
	const char *own = ck_run_dir_base_of(name), *base = file ? file : own;
	ck_auto_free char *in = strndup(name, (size_t)(own - name));
	ck_auto_str struct ck_str path = { 0 }, there = { 0 };
	const struct ck_root *of;
	int ret;

	if (!in)
		return ck_no_memory(err);
	ck_str_fmt(&there, "%s%s", in, base);
	in[strcspn(in, "/")] = '\0';
	ck_run_dir_path(root, name, &path);
	if (path.failed || there.failed || !path.len)
		return ck_fail(err, path.len ? ENOMEM : ENOENT,
			       "%s: gone, or no memory", name);
	of = has_link(root, in, base);
	ret = check_link(of, there.v, err);
	if (ret < 0)
		return ret;
	return ret ? open_file(out, of, in, base, opts, err) :
		     ck_root_open(out, path.v, opts, err);
}

/* The folders that the save's files are in. */
static int open_save(struct ck_root *out, const struct ck_root *root,
		     const char *name, const struct ck_opts *opts,
		     struct ck_err *err)
{
	ck_auto_free char *in = strdup(name);
	ck_auto_str struct ck_str path = { 0 };
	char *slash = in ? strrchr(in, '/') : NULL;

	if (!in)
		return ck_no_memory(err);
	*(slash ? slash : in) = '\0';
	ck_run_dir_add_paths(root, in, &path);
	return path.failed ? ck_no_memory(err) :
			     ck_root_open(out, path.v, opts, err);
}

bool (*ck_run_dir_hides(const char *save))(const char *, const char *)
{
	for (size_t i = 0; save && ck_formats[i]; i++)
		if (ck_run_dir_has_part(ck_formats[i]->parts, save))
			return ck_formats[i]->parts->hides;
	return NULL;
}

int ck_run_dir_open(struct ck_root *out, const struct ck_root *root,
		    const char *name, const struct ck_opts *opts,
		    struct ck_err *err)
{
	ck_auto_free char *save = ck_run_dir_save_of(root, name);
	int ret;

	*out = (struct ck_root){ .fd = -1, .blobs_fd = -1 };
	ret = save ? open_save(out, root, name, opts, err) :
		     open_entry(out, root, name, opts, err);
	if (ret)
		return ret;
	out->save = ck_steal(save);
	out->hides = ck_run_dir_hides(out->save);
	out->entry = true;
	ret = ck_root_allow(out, root, err);
	if (ret)
		ck_root_close(out);
	return ret;
}
