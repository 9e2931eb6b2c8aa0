/* SPDX-License-Identifier: Apache-2.0 */
#include "fs/allow_other.h"

#include "core/base/auto.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>

static int closed(const char *path, mode_t mode, struct ck_err *err)
{
	return ck_fail(err, EACCES,
		       "allow-other: %s has mode %04o, so others cannot read "
		       "the checkpoint themselves",
		       path, mode & 07777);
}

/* Every directory on the way down from / must let others through. */
static int check_way(const char *dir, struct ck_err *err)
{
	ck_auto_free char *path = strdup(dir);
	struct stat st;

	if (!path)
		return ck_no_memory(err);
	for (char *end = path; end;) {
		char kept;

		end = strchr(end + 1, '/');
		kept = end ? *end : '\0';
		if (end)
			*end = '\0';
		if (stat(path, &st))
			return ck_fail(err, errno, "allow-other: %s: %s", path,
				       strerror(errno));
		if (!(st.st_mode & S_IXOTH))
			return closed(path, st.st_mode, err);
		if (end)
			*end = kept;
	}
	return 0;
}

/* The folders of @name below the root; a link's way is its target's. */
static int check_folders(const struct ck_root *root, const char *name,
			 struct ck_err *err)
{
	ck_auto_free char *path = strdup(name);
	struct stat st;

	if (!path)
		return ck_no_memory(err);
	for (char *s = strchr(path, '/'); s; s = strchr(s + 1, '/')) {
		*s = '\0';
		if (!fstatat(root->fd, path, &st, 0) && !(st.st_mode & S_IXOTH))
			return closed(path, st.st_mode, err);
		*s = '/';
	}
	return 0;
}

static int check_extra(int fd, const char *name, struct ck_err *err)
{
	struct stat st;

	if (fd < 0 || fstat(fd, &st) || (st.st_mode & S_IXOTH))
		return 0;
	return closed(name, st.st_mode, err);
}

int fs_allow_other_may_read(const struct ck_root *root,
			    const struct ck_catalog *img, struct ck_err *err)
{
	int ret = 0;

	for (const struct ck_root *r = root; !ret && r; r = r->next) {
		ret = check_way(r->real, err);
		if (!ret)
			ret = check_extra(r->blobs_fd, "blobs", err);
		for (unsigned i = 0; !ret && i < r->nr_follow; i++)
			ret = check_way(r->follow_path[i], err);
	}
	for (uint32_t i = 0; !ret && img && i < img->nr_srcs; i++) {
		const struct ck_src *s = &img->srcs[i];
		const char *name;

		if (s->kind != CK_SRC_FILE || s->state == CK_MISSING)
			continue;
		name = ck_catalog_str(img, s->name, NULL);
		if (!(s->mode & S_IROTH))
			ret = closed(name, s->mode, err);
		else
			for (const struct ck_root *r = root; !ret && r;
			     r = r->next)
				ret = check_folders(r, name, err);
	}
	return ret;
}
