/* SPDX-License-Identifier: Apache-2.0 */
#include "core/lib/from_mount.h"

#include "core/base/auto.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/vfs.h>
#include <unistd.h>

#define FUSE_MAGIC 0x65735546
#define MAP "/.unshard/map"
#define MAX_DEPTH 3 /* run/step-1/model */

/*
 * "36 35 98:0 / /mnt rw - fuse.unshardfs SOURCE rw,user_id=0,group_id=0": whether
 * the line is that of such a mount, of device @dev, and made by whom may be asked.
 */
static bool is_line_of(const char *line, dev_t dev)
{
	const char *kind = strstr(line, " - fuse.unshardfs "), *user;
	unsigned major, minor, uid;

	if (!kind || sscanf(line, "%*u %*u %u:%u", &major, &minor) != 2 ||
	    makedev(major, minor) != dev)
		return false;
	user = strstr(kind, "user_id=");
	return user && sscanf(user, "user_id=%u", &uid) == 1 &&
	       (!uid || uid == geteuid());
}

static bool is_ours(dev_t dev)
{
	ck_auto_file FILE *f = fopen("/proc/self/mountinfo", "re");
	ck_auto_free char *line = NULL;
	size_t room = 0;
	bool found = false;

	while (f && !found && getline(&line, &room, f) > 0)
		found = is_line_of(line, dev);
	return found;
}

/* Opens the map of folder @dir; -1: it has none, of this device. */
static int open_map(const char *dir, dev_t dev)
{
	ck_auto_free char *path = NULL;
	ck_auto_fd int fd = -1;
	struct stat st;

	if (asprintf(&path, "%s" MAP, dir) < 0) {
		path = NULL;
		return -1;
	}
	fd = open(path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
	if (fd < 0 || fstat(fd, &st) || !S_ISREG(st.st_mode) ||
	    st.st_dev != dev)
		return -1;
	return ck_steal_fd(fd);
}

/* Cuts @dir down to the folder that has a map, which is opened; -1: none has. */
static int find_map(char *dir, dev_t dev)
{
	struct stat st;

	for (;;) {
		int fd = open_map(dir, dev);
		char *end = strrchr(dir, '/');

		if (fd >= 0)
			return fd;
		if (!end || end == dir)
			return -1;
		*end = '\0';
		if (stat(dir, &st) || st.st_dev != dev)
			return -1;
	}
}

/* The longest beginning of @path that exists, without links; NULL: none. */
static char *existing(const char *path, const char **rest)
{
	ck_auto_free char *at = strdup(path);
	char *real;

	for (size_t n = at ? strlen(at) : 0; n; n--) {
		if (path[n] && path[n] != '/')
			continue;
		at[n] = '\0';
		real = realpath(at, NULL);
		if (real) {
			*rest = path + n;
			return real;
		}
	}
	return NULL;
}

static bool is_there(const char *dir, const char *name)
{
	ck_auto_free char *path = NULL;

	if (asprintf(&path, "%s/%s", dir, name) < 0)
		path = NULL;
	return path && !access(path, F_OK);
}

/* The only folder in @dir that is a checkpoint or holds some; to free(). */
static char *only_entry(const char *dir)
{
	ck_auto_free char *found = NULL;
	ck_auto_dir DIR *d = opendir(dir);
	unsigned nr = 0;

	for (struct dirent *e; d && (e = readdir(d));)
		if (*e->d_name != '.' && e->d_type == DT_DIR &&
		    strcmp(e->d_name, "shards") && !nr++ &&
		    asprintf(&found, "%s/%s", dir, e->d_name) < 0)
			found = NULL;
	return nr == 1 ? ck_steal(found) : NULL;
}

/*
 * The only checkpoint in @dir, where a directory of them is mounted; to free().
 * NULL: it is another folder, or there are several.
 */
static char *only_step(const char *dir)
{
	ck_auto_free char *at = NULL;

	if (!is_there(dir, ".unshard") || is_there(dir, "tensors"))
		return NULL;
	at = only_entry(dir);
	for (unsigned i = 0; i < MAX_DEPTH && at && !is_there(at, ".unshard");
	     i++) {
		char *in = only_entry(at);

		free(at);
		at = in;
	}
	return at && is_there(at, ".unshard") ? ck_steal(at) : NULL;
}

/*
 * A checkpoint without a map is every one of its views: the one that has all of it
 * is read, like any folder.
 */
static int take_view(struct ck_from_mount *out, const char *dir)
{
	if (is_there(dir, ".unshard") && is_there(dir, "dcp/.metadata"))
		snprintf(out->path, sizeof(out->path), "%s/dcp", dir);
	return 0;
}

static int look_at(struct ck_from_mount *out, const char *path,
		   struct ck_err *err)
{
	const char *gone = "";
	ck_auto_free char *real = existing(path, &gone);
	ck_auto_free char *dir = real ? strdup(real) : NULL;
	ck_auto_free char *step = NULL;
	ck_auto_fd int fd = -1;
	struct statfs fs;
	struct stat st;
	int n, k, ret;

	if (!dir || statfs(dir, &fs) || (uint32_t)fs.f_type != FUSE_MAGIC ||
	    stat(dir, &st) || !is_ours(st.st_dev))
		return 0;
	fd = find_map(dir, st.st_dev);
	if (fd < 0) {
		step = *gone ? NULL : only_step(real);
		return step  ? look_at(out, step, err) :
		       *gone ? 0 :
			       take_view(out, real);
	}
	ret = ck_wrap(err, ck_map_read(&out->map, fd, err), "%s" MAP, dir);
	if (ret)
		return ret;
	n = snprintf(out->path, sizeof(out->path), "%s%s%s", out->map.path,
		     real + strlen(dir), gone);
	k = snprintf(out->served, sizeof(out->served), "%s/shards%s%s%s%s", dir,
		     out->map.only ? "/" : "",
		     out->map.only ? out->map.only : "", real + strlen(dir),
		     gone);
	if (n > 0 && (size_t)n < sizeof(out->path) && k > 0 &&
	    (size_t)k < sizeof(out->served))
		return 1;
	ck_map_free(&out->map);
	return ck_fail(err, ENAMETOOLONG, "%s: its path is too long", path);
}

int ck_from_mount(struct ck_from_mount *out, const char *path, const char *step,
		  struct ck_err *err)
{
	ck_auto_free char *in = NULL;
	int ret;

	out->took_step = false;
	out->path[0] = '\0';
	if (!step)
		return look_at(out, path, err);
	if (asprintf(&in, "%s/%s", path, step) < 0) {
		in = NULL;
		return ck_no_memory(err);
	}
	if (access(in, F_OK))
		return 0;
	ret = look_at(out, in, err);
	out->took_step = ret > 0 || (!ret && *out->path);
	return ret;
}
