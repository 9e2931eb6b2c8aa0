/* SPDX-License-Identifier: Apache-2.0 */
#include "fs/tree/allows.h"

#include "core/base/auto.h"
#include "core/base/clock.h"

#include <sys/xattr.h>

#define MAX_CANDIDATES 8
#define ACL "system.posix_acl_access"

static bool has_list(int fd)
{
	return fgetxattr(fd, ACL, NULL, 0) >= 0;
}

/* Of a file with an access list the group's bits are what it gives at most. */
static mode_t with_list(mode_t mode)
{
	return mode | (mode & 0070) >> 3;
}

mode_t fs_allows_mode(const struct fs_allows *a)
{
	return a->listed ? with_list(a->mode) : a->mode;
}

void fs_allows_fd(int fd, struct stat *st)
{
	if (has_list(fd))
		st->st_mode = with_list(st->st_mode);
}

void fs_allows_look(const struct ck_root *root, const struct ck_catalog *img,
		    const struct ck_src *file, struct fs_allows *out)
{
	ck_auto_fd int fd = -1;
	struct stat st;

	*out = (struct fs_allows){ .mode = file->mode,
				   .uid = file->uid,
				   .gid = file->gid,
				   .at_ms = ck_now_ms() };
	if (ck_root_open_file(root, ck_catalog_str(img, file->name, NULL), &fd,
			      &st, NULL))
		return;
	out->mode = st.st_mode;
	out->uid = st.st_uid;
	out->gid = st.st_gid;
	out->listed = has_list(fd);
}

/* What all allow to @uid, as others or as owner. */
static mode_t as_owner(const struct fs_allows *v, uint32_t nr, uid_t uid)
{
	mode_t all = 07;

	for (uint32_t i = 0; i < nr; i++)
		all &= v[i].uid == uid ? v[i].mode >> 6 :
					 v[i].mode >> 3 | v[i].mode;
	return all;
}

/* He may be in others' groups, too. */
static mode_t as_group(const struct fs_allows *v, uint32_t nr, gid_t gid)
{
	mode_t all = 07;

	for (uint32_t i = 0; i < nr; i++)
		all &= v[i].gid == gid ? v[i].mode >> 3 :
					 v[i].mode >> 3 | v[i].mode;
	return all;
}

/* Of several owners or groups, as far as a few of them go. */
static mode_t beside(const struct fs_allows *v, uint32_t nr, bool owner,
		     bool group)
{
	mode_t more = 0;

	for (uint32_t i = 0; i < nr && i < MAX_CANDIDATES; i++) {
		if (!owner)
			more |= as_owner(v, nr, v[i].uid);
		if (!group)
			more |= as_group(v, nr, v[i].gid);
	}
	return more;
}

void fs_allows_all(const struct fs_allows *v, uint32_t nr, struct stat *st)
{
	bool owner = true, group = true;
	mode_t all = 0777;

	for (uint32_t i = 0; i < nr; i++) {
		owner &= v[i].uid == v[0].uid;
		group &= v[i].gid == v[0].gid;
		all &= v[i].mode;
	}
	all |= beside(v, nr, owner, group);
	if (!group)
		all &= ~(mode_t)070;
	/* one of several owners may be in the group, or root without his rights */
	if (!group || !owner)
		all |= (all & 07) << 3;
	if (!owner)
		all |= (all & 07) << 6;
	st->st_uid = owner ? v[0].uid : 0;
	st->st_gid = group ? v[0].gid : 0;
	st->st_mode = S_IFREG | (all & 0666);
}
