/* SPDX-License-Identifier: Apache-2.0 */
/* export_place.c - folders and names of an export; no byte of what it writes */
#include "mount-helpers/export/export_place.h"

#include "core/base/auto.h"
#include "core/base/clock.h"
#include "core/base/fds.h"
#include "mount-helpers/export/export.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define LOCK_WAIT_MS 5000

static bool is_empty(const char *path)
{
	ck_auto_dir DIR *d = opendir(path);
	const struct dirent *e;
	unsigned nr = 0;

	while (d && nr < 3 && (e = readdir(d)))
		nr++;
	return d && nr == 2;
}

/* OUT -> parent and name; an existing directory takes one file into it. */
static int take_names(const struct cmd *c, struct export_place *p,
		      const char *out, const char *file)
{
	size_t len = strlen(out);
	struct stat st;
	bool into = file && !stat(out, &st) && S_ISDIR(st.st_mode);
	int n;

	while (len > 1 && out[len - 1] == '/')
		len--;
	n = snprintf(p->parent, sizeof(p->parent), "%.*s%s%s", (int)len, out,
		     into ? "/" : "", into ? file : "");
	if (n < 0 || (size_t)n >= sizeof(p->parent))
		return cmd_fail(c, CMD_USAGE, "%s: is too long", out);
	if (!lstat(p->parent, &st) &&
	    (file || !S_ISDIR(st.st_mode) || !is_empty(p->parent)))
		return cmd_fail(c, CMD_USAGE,
				file ? "%s: is there already" :
				       "%s: is there already, and not empty",
				p->parent);
	return CMD_OK;
}

/* Leaves the folder in parent, the last part in name. */
static int split(const struct cmd *c, struct export_place *p, const char *out)
{
	char *slash = strrchr(p->parent, '/');
	const char *name = slash ? slash + 1 : p->parent;
	int n = -1;

	if (*name && strcmp(name, ".") && strcmp(name, "..") &&
	    strlen(name) < sizeof(p->name)) {
		strcpy(p->name, name);
		n = snprintf(p->temp_dir, sizeof(p->temp_dir),
			     ".%s.unshard-part", name);
	}
	if (n < 0 || (size_t)n >= sizeof(p->temp_dir))
		return cmd_fail(c, CMD_USAGE,
				"%s: is no name for what is written", out);
	if (!slash)
		strcpy(p->parent, ".");
	else
		slash[slash == p->parent] = '\0';
	snprintf(p->path, sizeof(p->path), "%s/%s", p->parent, p->temp_dir);
	return CMD_OK;
}

static int failed(const struct cmd *c, const char *path)
{
	return cmd_fail(c, CMD_SYSTEM, "%s: %s", path, strerror(errno));
}

/*
 * The child of one that was killed dies with it, but not before what it writes
 * is on disk, and holds the lock until then.
 */
static int lock_temp_dir(const struct cmd *c, const struct export_place *p)
{
	static const struct timespec pause = { .tv_nsec = 20000000 };
	int64_t until = ck_now_ms() + LOCK_WAIT_MS;

	while (flock(p->temp_fd, LOCK_EX | LOCK_NB)) {
		if (errno != EWOULDBLOCK && errno != EINTR)
			return failed(c, p->path);
		if (ck_now_ms() >= until)
			return cmd_fail(c, CMD_SYSTEM,
					"%s: another export is writing there",
					p->path);
		nanosleep(&pause, NULL);
	}
	return CMD_OK;
}

/* What it waited for may have ended well, and be called OUT by now. */
static int still_ours(const struct cmd *c, const struct export_place *p)
{
	struct stat mine, there;

	if (fstat(p->temp_fd, &mine))
		return failed(c, p->path);
	if (!fstatat(p->parent_fd, p->temp_dir, &there, AT_SYMLINK_NOFOLLOW) &&
	    there.st_dev == mine.st_dev && there.st_ino == mine.st_ino &&
	    (!p->one ||
	     fstatat(p->parent_fd, p->name, &there, AT_SYMLINK_NOFOLLOW)))
		return CMD_OK;
	return cmd_fail(c, CMD_SYSTEM,
			"%s/%s: another export has written it meanwhile",
			p->parent, p->name);
}

/* A parent that is not there was misspelt: folders are not made for it. */
static int open_both(const struct cmd *c, struct export_place *p)
{
	int ret;

	p->parent_fd = open(p->parent, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (p->parent_fd < 0 && (errno == ENOENT || errno == ENOTDIR))
		return cmd_fail(c, CMD_USAGE,
				"%s: expected a folder to write into: %s",
				p->parent, strerror(errno));
	if (p->parent_fd < 0)
		return failed(c, p->parent);
	if (mkdirat(p->parent_fd, p->temp_dir, 0777) && errno != EEXIST)
		return failed(c, p->path);
	p->temp_fd = openat(p->parent_fd, p->temp_dir,
			    O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
	if (p->temp_fd < 0)
		return failed(c, p->path);
	ret = lock_temp_dir(c, p);
	return ret ? ret : still_ours(c, p);
}

int export_place_open(const struct cmd *c, struct export_place *p,
		      const char *out, const char *file)
{
	int ret = take_names(c, p, out, file);

	p->one = file != NULL;
	if (!ret)
		ret = split(c, p, out);
	return ret ? ret : open_both(c, p);
}

/* OUT has come while it was written; what is written stays, with its record. */
static int in_the_way(const struct cmd *c, const struct export_place *p)
{
	return cmd_fail(c, CMD_USAGE,
			"%s/%s: is there by now, and not from this export; all "
			"is written, the same command goes on once it is moved "
			"away",
			p->parent, p->name);
}

static bool is_there(const struct export_place *p)
{
	char path[sizeof(p->parent) + sizeof(p->name)];
	struct stat st;

	if (fstatat(p->parent_fd, p->name, &st, AT_SYMLINK_NOFOLLOW))
		return false;
	snprintf(path, sizeof(path), "%s/%s", p->parent, p->name);
	return p->one || !S_ISDIR(st.st_mode) || !is_empty(path);
}

/* A folder takes the place of an empty one, and of no other. */
static int name_it(const struct export_place *p)
{
	int from = p->one ? p->temp_fd : p->parent_fd;
	const char *name = p->one ? p->name : p->temp_dir;
	int ret = p->one ? ck_fds_rename(from, name, p->parent_fd, p->name,
					 RENAME_NOREPLACE) :
			   -EINVAL;

	if (ret != -EINVAL && ret != -ENOSYS)
		return ret;
	return renameat(from, name, p->parent_fd, p->name) ? -errno : 0;
}

int export_place_finish(const struct cmd *c, struct export_place *p)
{
	int ret;

	if (is_there(p))
		return in_the_way(c, p);
	/* first: whoever ends here leaves an export to be made anew */
	if ((unlinkat(p->temp_fd, EXPORT_STATE, 0) && errno != ENOENT) ||
	    (unlinkat(p->temp_fd, EXPORT_STATE_2, 0) && errno != ENOENT))
		return failed(c, p->path);
	ret = name_it(p);
	if (!ret && fsync(p->parent_fd))
		ret = -errno;
	if (ret)
		return cmd_fail(c, CMD_SYSTEM, "%s/%s: %s", p->parent, p->name,
				strerror(-ret));
	if (p->one)
		unlinkat(p->parent_fd, p->temp_dir, AT_REMOVEDIR);
	return CMD_OK;
}

void export_place_leave(const struct export_place *p)
{
	if (p->parent_fd >= 0) /* refused where it is not empty */
		unlinkat(p->parent_fd, p->temp_dir, AT_REMOVEDIR);
}
