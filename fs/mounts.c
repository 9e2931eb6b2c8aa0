/* SPDX-License-Identifier: Apache-2.0 */
/*
 * mounts.c - reads lines of /proc/self/mountinfo
 *
 *	36 35 0:57 / /mnt/a\040b ro,nosuid shared:1 - fuse.unshardfs SRC ro
 *	      dev    path, octal escapes             type
 */
#include "fs/mounts.h"

#include "core/base/auto.h"
#include "fs/mount_procs.h"
#include "fs/session.h"

#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <limits.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/wait.h>
#include <unistd.h>

/* "\040" and its like become bytes again, in place. */
static void unescape(char *s)
{
	char *to = s;

	for (; *s; s++) {
		if (s[0] == '\\' && s[1] >= '0' && s[1] <= '3' && s[2] &&
		    s[3]) {
			*to++ = (char)((s[1] - '0') << 6 | (s[2] - '0') << 3 |
				       (s[3] - '0'));
			s += 3;
		} else {
			*to++ = *s;
		}
	}
	*to = '\0';
}

/* Cuts one line up; false where it is none. */
static bool parse(char *line, char **path, struct fs_mount_info *out)
{
	char *rest = strstr(line, " - ");
	char *save = NULL, *dev, *source;

	if (!rest)
		return false;
	*rest = '\0';
	if (sscanf(rest + 3, "%63s", out->type) != 1)
		return false;
	strtok_r(rest + 3, " \n", &save);
	source = strtok_r(NULL, " \n", &save);
	out->source = source ? source : "";
	out->super = strtok_r(NULL, " \n", &save);
	if (!out->super)
		out->super = "";
	if (source)
		unescape(source);
	strtok_r(line, " ", &save);
	strtok_r(NULL, " ", &save);
	dev = strtok_r(NULL, " ", &save);
	strtok_r(NULL, " ", &save);
	*path = strtok_r(NULL, " ", &save);
	if (!dev || !*path)
		return false;
	snprintf(out->dev, sizeof(out->dev), "%s", dev);
	unescape(*path);
	return true;
}

int fs_mounts_find(const char *path, struct fs_mount_info *out)
{
	ck_auto_file FILE *f = fopen("/proc/self/mountinfo", "re");
	ck_auto_free char *line = NULL;
	struct fs_mount_info info;
	int ret = -ENOENT;
	size_t room = 0;
	char *at;

	if (!f)
		return -errno;
	while (getline(&line, &room, f) > 0) {
		if (!parse(line, &at, &info) || strcmp(at, path))
			continue;
		*out = info; /* a later line lies on top */
		out->source = out->super = NULL;
		ret = 0;
	}
	return ret;
}

int fs_mounts_each(void (*fn)(void *ctx, const char *path,
			      const struct fs_mount_info *info),
		   void *ctx)
{
	ck_auto_file FILE *f = fopen("/proc/self/mountinfo", "re");
	ck_auto_free char *line = NULL;
	struct fs_mount_info info;
	size_t room = 0;
	char *at;

	if (!f)
		return -errno;
	while (getline(&line, &room, f) > 0)
		if (parse(line, &at, &info) &&
		    !strcmp(info.type, FS_MOUNT_TYPE))
			fn(ctx, at, &info);
	return 0;
}

/* ---- ending one ---- */

void fs_catch_begin(struct fs_catch *c)
{
	fflush(stderr);
	c->saved = fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, 3);
	c->file = memfd_create("unshard-stderr", MFD_CLOEXEC);
	if (c->file >= 0)
		dup2(c->file, STDERR_FILENO);
}

void fs_catch_end(struct fs_catch *c, char *said, size_t size)
{
	ssize_t n = -1;

	fflush(stderr);
	if (c->file >= 0) {
		n = pread(c->file, said, size - 1, 0);
		close(c->file);
	}
	said[n > 0 ? n : 0] = '\0';
	said[strcspn(said, "\n")] = '\0';
	if (c->saved >= 0) {
		dup2(c->saved, STDERR_FILENO);
		close(c->saved);
	} else {
		close(STDERR_FILENO); /* it was closed before */
	}
}

static int wait_for(pid_t pid)
{
	int status;

	while (waitpid(pid, &status, 0) < 0)
		if (errno != EINTR)
			return -errno;
	return WIFEXITED(status) ? WEXITSTATUS(status) : -EINTR;
}

/*
 * Runs argv[0] from PATH and waits.  Returns its exit code, or -errno where it
 * could not be run; the first line of its stderr is in @said, "" if none.
 */
static int spawn(const char *const argv[], char *said, size_t size)
{
	struct fs_catch c;
	pid_t pid;
	int ret;

	fs_catch_begin(&c);
	ret = -posix_spawnp(&pid, argv[0], NULL, NULL, (char *const *)argv,
			    environ);
	if (!ret)
		ret = wait_for(pid);
	fs_catch_end(&c, said, size);
	return ret;
}

static int busy(const char *path, struct ck_err *err)
{
	return ck_fail(err, EBUSY,
		       "%s is busy: a file is open or a process stands in it "
		       "(fuser -vm shows who); -l unmounts it when they end",
		       path);
}

/* Who mounted what is at @path. */
struct owner {
	const char *path;
	unsigned uid;
	bool known;
};

static void find_owner(void *ctx, const char *path,
		       const struct fs_mount_info *info)
{
	struct owner *o = ctx;
	const char *at = strstr(info->super, "user_id=");

	if (!strcmp(path, o->path)) /* a later one lies on top */
		o->known = at && sscanf(at, "user_id=%u", &o->uid) == 1;
}

static int end_as_user(const char *path, bool lazy, struct ck_err *err)
{
	const char *const argv[] = { "fusermount3", lazy ? "-uz" : "-u", "--",
				     path, NULL };
	struct owner o = { .path = path };
	char said[512];
	int ret = spawn(argv, said, sizeof(said));

	if (ret < 0)
		return ck_fail(err, -ret,
			       "%s: cannot run fusermount3 (package fuse3): %s",
			       path, strerror(-ret));
	if (!ret)
		return 0;
	if (strstr(said, "busy"))
		return busy(path, err);
	if (!fs_mounts_each(find_owner, &o) && o.known && o.uid != getuid())
		return ck_fail(err, EPERM,
			       "%s: user %u mounted it, and he and root alone "
			       "may unmount it",
			       path, o.uid);
	return ck_fail(err, EPERM, "%s: %s", path,
		       *said ? said : "fusermount3 could not unmount it");
}

int fs_mounts_end(const char *path, bool lazy, struct ck_err *err)
{
	int flags = UMOUNT_NOFOLLOW | (lazy ? MNT_DETACH : 0);

	if (!umount2(path, flags))
		return 0;
	if (errno == EBUSY)
		return busy(path, err);
	if (errno == EPERM)
		return end_as_user(path, lazy, err);
	return ck_fail(err, errno, "%s: cannot unmount: %s", path,
		       strerror(errno));
}

/*
 * The absolute path of @mnt, which is joined from its folder's, for a dead
 * mount cannot be asked.
 */
static bool path_of(const char *mnt, char out[PATH_MAX])
{
	char copy[PATH_MAX], copy2[PATH_MAX], dir[PATH_MAX];
	const char *base;
	int n;

	if (strlen(mnt) >= PATH_MAX)
		return false;
	strcpy(copy, mnt);
	strcpy(copy2, mnt);
	base = basename(copy);
	if (!strcmp(base, ".") || !strcmp(base, "..") || !strcmp(base, "/"))
		return realpath(mnt, out);
	if (!realpath(dirname(copy2), dir))
		return false;
	n = snprintf(out, PATH_MAX, "%s/%s", strcmp(dir, "/") ? dir : "", base);
	return n > 0 && n < PATH_MAX;
}

static int find_ours(const char *mnt, char path[PATH_MAX],
		     struct fs_mount_info *info, struct ck_err *err)
{

	if (!path_of(mnt, path))
		return ck_fail(err, errno, "%s: %s", mnt, strerror(errno));
	/* Not there: it may be a link to the place. */
	if (fs_mounts_find(path, info) && !realpath(mnt, path))
		return ck_fail(err, errno, "%s: %s", mnt, strerror(errno));
	if (fs_mounts_find(path, info))
		return ck_fail(err, EINVAL, "%s: nothing is mounted there",
			       mnt);
	if (strcmp(info->type, FS_MOUNT_TYPE))
		return ck_fail(err, EINVAL,
			       "%s: expected a mount of unshard, "
			       "found one of type %s",
			       mnt, info->type);
	return 0;
}

/* Its supervisor, or somebody else, may be about to do the same: that is as well. */
static int end_found(const char *path, const struct fs_mount_info *found,
		     bool lazy, struct ck_err *err)
{
	struct fs_mount_info now;
	int ret = fs_mounts_end(path, lazy, err), at;

	if (!ret)
		return 0;
	at = fs_mounts_find(path, &now);
	return at == -ENOENT || (!at && strcmp(now.dev, found->dev)) ? 0 : ret;
}

int fs_unmount(const char *mnt, bool lazy, struct ck_err *err)
{
	struct fs_mount_info info;
	char path[PATH_MAX];
	int ret = find_ours(mnt, path, &info, err);

	return ret ? ret : end_found(path, &info, lazy, err);
}

int fs_unmount_wait(const char *mnt, unsigned seconds, struct ck_err *err)
{
	struct fs_mount_info info;
	struct fs_mount_procs e;
	char path[PATH_MAX];
	int ret = find_ours(mnt, path, &info, err);

	if (ret)
		return ret;
	fs_mount_procs_look(&e, path);
	ret = end_found(path, &info, false, err);
	if (ret == -EBUSY && e.hangs)
		ck_fail(err, EBUSY,
			"%s does not answer, and is busy: somebody waits for "
			"its answer; -l unmounts it when they end, or was its "
			"worker stopped?",
			mnt);
	else if (!ret)
		ret = fs_mount_procs_wait(&e, mnt, seconds, err);
	fs_mount_procs_free(&e);
	return ret;
}
