/* SPDX-License-Identifier: Apache-2.0 */
/*
 * draft_tree_own.c - whose what is made is, which mode it has, and who may change
 * both
 *
 * As what that user makes himself: in a folder with a default access list that
 * list counts, and not his umask; so the kernel hands both to the mount.
 */
#include "fs/draft/draft_tree_priv.h"

#include "core/base/auto.h"
#include "core/root/openat_beneath.h"
#include "fs/ops.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/xattr.h>
#include <unistd.h>

#define DEFAULT_LIST "system.posix_acl_default"
#define LIST_MAX 65536

/* A list is its version, and then these; all of it little endian. */
struct list_entry {
	uint16_t tag, perm;
	uint32_t id;
};
enum { OWNER = 1, GROUP = 4, MASK = 16, OTHERS = 32 };

/* What the list gives: with a mask that is the group's part of a mode. */
static mode_t bits_of(const char *list, size_t len)
{
	mode_t owner = 0, group = 0, mask = 0, others = 0;
	struct list_entry e;
	bool masked = false;

	for (size_t at = sizeof(uint32_t); at + sizeof(e) <= len;
	     at += sizeof(e)) {
		memcpy(&e, list + at, sizeof(e));
		if (e.tag == OWNER)
			owner = e.perm & 07;
		else if (e.tag == GROUP)
			group = e.perm & 07;
		else if (e.tag == OTHERS)
			others = e.perm & 07;
		else if (e.tag == MASK)
			masked = true, mask = e.perm & 07;
	}
	return owner << 6 | (masked ? mask : group) << 3 | others;
}

/* What something new in @dir may have of a mode; one that cannot be read: nothing. */
static mode_t most_in(int dir, mode_t umask)
{
	ck_auto_fd int fd = ck_beneath_dir(dir, "");
	ck_auto_free char *list = NULL;
	ssize_t len = fd < 0 ? -1 : fgetxattr(fd, DEFAULT_LIST, NULL, 0);

	if (fd < 0 || (len < 0 && (errno == ENODATA || errno == EOPNOTSUPP)))
		return 0777 & ~umask;
	list = len > 0 && len <= LIST_MAX ? malloc((size_t)len) : NULL;
	len = list ? fgetxattr(fd, DEFAULT_LIST, list, (size_t)len) : -1;
	return len < 0 ? 0 : bits_of(list, (size_t)len);
}

mode_t fs_draft_tree_mode_in(int dir, mode_t mode,
			     const struct fs_draft_tree_who *who)
{
	return mode & (07000 | most_in(dir, who->umask));
}

/*
 * Set-group-ID stays on a file whose group is his own: whether he is in that of a
 * set-group-ID folder only newer kernels have looked (Linux 6.0).
 */
static mode_t own_bits(const struct stat *st, mode_t mode, bool his)
{
	return S_ISDIR(st->st_mode) || his || !(mode & S_IXGRP) ?
		       mode :
		       mode & ~(mode_t)S_ISGID;
}

int fs_draft_tree_own(int fd, int dir, mode_t mode,
		      const struct fs_draft_tree_who *who)
{
	struct stat st, in;
	gid_t gid;

	if (fstat(fd, &st) || fstat(dir, &in))
		return -errno;
	gid = in.st_mode & S_ISGID ? in.st_gid : who->gid;
	if ((st.st_uid != who->uid || st.st_gid != gid) && !geteuid() &&
	    fchown(fd, who->uid, gid))
		return -errno;
	mode = own_bits(&st, mode, gid == who->gid || !who->uid);
	if (S_ISDIR(st.st_mode))
		mode |= in.st_mode & S_ISGID;
	/* a new owner took set-user-ID; our umask was none of his */
	if (((st.st_mode ^ mode) & 0777 || mode & 07000 ||
	     S_ISDIR(st.st_mode)) &&
	    fchmod(fd, mode & 07777))
		return -errno;
	return 0;
}

/* ---- who may change it ---- */

#define ID_BITS (S_ISUID | S_ISGID)

static int ask_owner(const struct fs_draft_tree_who *who, const struct stat *of,
		     int rights)
{
	struct fs_question q = { 0 };

	fs_question_owner(&q, of->st_uid, of->st_gid, rights);
	return fs_access_ask(who->req, &q, 0);
}

static int ask_write(struct fs_draft_tree *s, uint64_t ino,
		     const struct fs_draft_tree_who *who)
{
	struct fs_question q = { 0 };
	int ret = fs_draft_tree_ask(s, ino, W_OK, &q);

	return fs_access_ask(who->req, &q, ret);
}

/* Whoever writes takes such bits away. */
static bool only_clears(const struct stat *now, mode_t mode)
{
	mode_t other = (now->st_mode ^ mode) & 07777;

	return !(other & ~(mode_t)ID_BITS) && !(mode & other);
}

static int rights_for(const struct stat *now, const struct stat *attr,
		      int to_set, bool owner)
{
	const int times = FUSE_SET_ATTR_ATIME | FUSE_SET_ATTR_MTIME;
	bool at = to_set & FUSE_SET_ATTR_ATIME &&
		  !(to_set & FUSE_SET_ATTR_ATIME_NOW);
	bool mt = to_set & FUSE_SET_ATTR_MTIME &&
		  !(to_set & FUSE_SET_ATTR_MTIME_NOW);
	int rights = 0;

	if (to_set & FUSE_SET_ATTR_UID && attr->st_uid != now->st_uid)
		rights |= FS_GIVES;
	if (to_set & FUSE_SET_ATTR_GID && attr->st_gid != now->st_gid && !owner)
		rights |= FS_GIVES;
	/* the kernel's own, with a change of the owner or size */
	if (to_set & FUSE_SET_ATTR_MODE && !owner &&
	    !only_clears(now, attr->st_mode))
		rights |= FS_OWNS;
	if (to_set & times && !owner && (at || mt))
		rights |= FS_OWNS;
	return rights;
}

int fs_draft_tree_may_set(struct fs_draft_tree *s, uint64_t ino,
			  const struct fs_draft_tree_who *who,
			  const struct stat *now, struct stat *attr, int to_set)
{
	const int to_now = FUSE_SET_ATTR_ATIME_NOW | FUSE_SET_ATTR_MTIME_NOW;
	bool owner = who && who->uid == now->st_uid;
	int rights, ret = 0;

	if (!who || !who->req)
		return 0;
	rights = rights_for(now, attr, to_set, owner);
	if (rights)
		ret = ask_owner(who, now, rights);
	else if (!owner && to_set & to_now && !(to_set & FUSE_SET_ATTR_SIZE))
		ret = ask_owner(who, now, FS_OWNS) ? ask_write(s, ino, who) : 0;
	if (ret || !(to_set & FUSE_SET_ATTR_MODE) ||
	    !(attr->st_mode & S_ISGID) || now->st_gid == who->gid)
		return ret;
	ret = ask_owner(who, now, FS_IN_GROUP);
	if (ret == -EPERM)
		attr->st_mode &= ~(mode_t)S_ISGID;
	return ret == -EPERM ? 0 : ret;
}
