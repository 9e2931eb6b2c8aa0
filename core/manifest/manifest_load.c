/* SPDX-License-Identifier: Apache-2.0 */
/* manifest_load.c - finding and reading the manifest of a root */
#include "core/manifest/manifest.h"

#include "core/base/auto.h"
#include "core/base/limits.h"
#include "core/root/source.h"

#include <errno.h>
#include <fcntl.h>

/*
 * ck_root_open_file() would find no other file than the one given alone, and
 * in a chain of roots that of any.
 */
static struct ck_root holder(const struct ck_root *root)
{
	struct ck_root alone = *root;

	alone.only = NULL;
	alone.next = NULL;
	return alone;
}

static int read_all(struct ck_manifest *m, struct ck_source *src,
		    struct ck_err *err)
{
	size_t len = (size_t)src->st.st_size;
	ck_auto_free unsigned char *bytes = NULL;
	int ret;

	if ((uint64_t)src->st.st_size > CK_MAX_INDEX)
		return ck_fail(err, EFBIG, "%zu bytes; at most %llu are read",
			       len, (unsigned long long)CK_MAX_INDEX);
	bytes = malloc(len + 1);
	if (!bytes)
		return ck_no_memory(err);
	ret = ck_source_read(src, bytes, len, 0, err);
	if (!ret)
		ret = ck_manifest_parse(m, bytes, len, err);
	if (!ret)
		m->own = ck_steal(bytes);
	return ret;
}

int ck_manifest_stat(const struct ck_root *root, struct stat *st)
{
	char name[256];

	if (!ck_root_manifest(root, name, sizeof(name)))
		return -ENOENT;
	return fstatat(root->fd, name, st, AT_SYMLINK_NOFOLLOW) ? -errno : 0;
}

int ck_manifest_load(struct ck_manifest *m, const struct ck_root *root,
		     struct ck_err *err)
{
	struct ck_root alone = holder(root);
	ck_auto_source struct ck_source *src = NULL;
	char name[256];
	struct stat st;
	int fd, ret;

	*m = (struct ck_manifest){ 0 };
	if (!ck_root_manifest(root, name, sizeof(name)))
		return ck_fail(err, ENOENT,
			       "no manifest: the name of %s is "
			       "too long for one",
			       root->only);
	ret = ck_root_open_file(&alone, name, &fd, &st, err);
	if (ret)
		return ret;
	src = ck_source_file(fd, name, &st);
	if (!src)
		return ck_no_memory(err);
	return ck_wrap(err, read_all(m, src, err), "%s", name);
}

void ck_manifest_free(struct ck_manifest *m)
{
	free(m->own);
	*m = (struct ck_manifest){ 0 };
}
