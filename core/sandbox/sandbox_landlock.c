/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sandbox_landlock.c - which files a process may still open
 *
 * Raw system calls and numbers of our own, for the headers of the oldest
 * supported system know the first version only.  A kernel refuses rights that
 * it does not know, so they are cut down to its version.
 */
#include "core/sandbox/sandbox_priv.h"

#include "core/base/auto.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#ifndef SYS_landlock_create_ruleset
#define SYS_landlock_create_ruleset 444 /* one number on all machines */
#define SYS_landlock_add_rule 445
#define SYS_landlock_restrict_self 446
#endif

enum {
	FS_EXECUTE = 1 << 0,
	FS_WRITE_FILE = 1 << 1,
	FS_READ_FILE = 1 << 2,
	FS_READ_DIR = 1 << 3,
	FS_REMOVE_DIR = 1 << 4,
	FS_REMOVE_FILE = 1 << 5,
	FS_MAKE_DIR = 1 << 7,
	FS_MAKE_REG = 1 << 8,
	FS_MAKE_SYM = 1 << 12,
	FS_REFER = 1 << 13,
	FS_TRUNCATE = 1 << 14,
	FS_IOCTL_DEV = 1 << 15,
};
#define FILE_RIGHTS \
	(FS_EXECUTE | FS_WRITE_FILE | FS_READ_FILE | FS_TRUNCATE | FS_IOCTL_DEV)
#define CHANGE_NAMES                                                  \
	(FS_REMOVE_DIR | FS_REMOVE_FILE | FS_MAKE_DIR | FS_MAKE_REG | \
	 FS_MAKE_SYM | FS_REFER)
#define READ_RIGHTS (FS_READ_FILE | FS_READ_DIR)
#define WRITE_RIGHTS (FS_WRITE_FILE | FS_TRUNCATE | CHANGE_NAMES)
#define NAMELESS_RIGHTS                                             \
	(FS_READ_DIR | FS_READ_FILE | FS_WRITE_FILE | FS_MAKE_REG | \
	 FS_REMOVE_FILE | FS_TRUNCATE)
#define NET_TCP 3 /* bind, connect */
#define SCOPE_ALL 3 /* abstract sockets, signals */
#define CREATE_VERSION 1
#define RULE_PATH_BENEATH 1

struct ruleset_attr {
	uint64_t fs, net, scoped;
};
struct path_beneath_attr {
	uint64_t allowed;
	int32_t parent_fd;
} __attribute__((packed));

struct rules {
	int fd;
	uint64_t handled;
};

/* Everything that version @abi can forbid. */
static struct ruleset_attr all_rights(long abi)
{
	unsigned fs_bits = abi >= 5 ? 16 : abi >= 3 ? 15 : abi == 2 ? 14 : 13;

	return (struct ruleset_attr){
		.fs = (UINT64_C(1) << fs_bits) - 1,
		.net = abi >= 4 ? NET_TCP : 0,
		.scoped = abi >= 6 ? SCOPE_ALL : 0,
	};
}

static int allow(const struct rules *r, int fd, uint64_t rights,
		 const char *what, struct ck_err *err)
{
	struct path_beneath_attr attr = { .parent_fd = fd };
	struct stat st;

	if (fstat(fd, &st))
		return ck_fail(err, errno, "sandbox: %s: %s", what,
			       strerror(errno));
	if (!S_ISDIR(st.st_mode))
		rights &= FILE_RIGHTS;
	attr.allowed = rights & r->handled;
	if (syscall(SYS_landlock_add_rule, r->fd, RULE_PATH_BENEATH, &attr, 0))
		return ck_fail(err, errno,
			       "sandbox: a Landlock rule for %s: "
			       "%s",
			       what, strerror(errno));
	return 0;
}

/* Skips what does not exist: then nothing can be done with it. */
static int allow_path(const struct rules *r, const char *path, uint64_t rights,
		      struct ck_err *err)
{
	ck_auto_fd int fd = open(path, O_PATH | O_CLOEXEC);

	return fd < 0 ? 0 : allow(r, fd, rights, path, err);
}

static int allow_file(const struct rules *r, const struct ck_root *root,
		      const char *name, uint64_t rights, struct ck_err *err)
{
	ck_auto_fd int fd =
		openat(root->fd, name, O_PATH | O_NOFOLLOW | O_CLOEXEC);

	return fd < 0 ? 0 : allow(r, fd, rights, root->path, err);
}

/*
 * One file: that file alone, and its manifest.  A link in a hub cache leads
 * into blobs/.
 */
static int allow_only(const struct rules *r, const struct ck_root *root,
		      uint64_t rights, struct ck_err *err)
{
	char name[256];
	int ret = allow_file(r, root, root->only, rights, err);

	if (!ret && ck_root_manifest(root, name, sizeof(name)))
		ret = allow_file(r, root, name, rights, err);
	return ret;
}

/* What a hub cache's blobs hold is named by its hash, and not written. */
static int allow_one(const struct rules *r, const struct ck_root *root,
		     bool writes, struct ck_err *err)
{
	uint64_t rights = READ_RIGHTS | (writes ? WRITE_RIGHTS : 0);
	int ret = root->only ? allow_only(r, root, rights, err) :
			       allow(r, root->fd, rights, root->path, err);

	if (!ret && root->blobs_fd >= 0)
		ret = allow(r, root->blobs_fd, READ_RIGHTS, "blobs", err);
	for (unsigned i = 0; !ret && i < root->nr_follow; i++)
		ret = allow(r, root->follow_fd[i], rights, root->follow_path[i],
			    err);
	return ret;
}

static int allow_root(const struct rules *r, const struct ck_root *root,
		      bool writes, struct ck_err *err)
{
	int ret = 0;

	for (; !ret && root; root = root->next)
		ret = allow_one(r, root, writes, err);
	return ret;
}

static int allow_worker(const struct rules *r, const struct ck_sandbox_in *in,
			struct ck_err *err)
{
	const char *spool = in->spool_dir ? in->spool_dir : "/var/tmp";
	int ret;

	/* Each thread of libfuse may open the device again. */
	ret = allow_path(r, "/dev/fuse",
			 FS_READ_FILE | FS_WRITE_FILE | FS_IOCTL_DEV, err);
	if (!ret && in->config_dir)
		ret = allow_path(r, in->config_dir, FS_READ_FILE | FS_READ_DIR,
				 err);
	if (!ret && in->write_dir)
		ret = allow_path(r, in->write_dir, READ_RIGHTS | WRITE_RIGHTS,
				 err);
	if (!ret && in->caches && in->cache_fd >= 0)
		ret = allow(r, in->cache_fd, NAMELESS_RIGHTS, "-o cache", err);
	return ret ? ret : allow_path(r, spool, NAMELESS_RIGHTS, err);
}

int ck_sandbox_landlock(const struct ck_sandbox_in *in, struct ck_err *err)
{
	long abi =
		syscall(SYS_landlock_create_ruleset, NULL, 0, CREATE_VERSION);
	struct ruleset_attr attr = all_rights(abi);
	struct rules r = { .handled = attr.fs };
	ck_auto_fd int fd = -1;
	int ret;

	if (abi < 1)
		return 0;
	fd = (int)syscall(SYS_landlock_create_ruleset, &attr,
			  abi >= 6 ? 24 :
			  abi >= 4 ? 16 :
				     8,
			  0);
	if (fd < 0)
		return ck_fail(err, errno, "sandbox: Landlock: %s",
			       strerror(errno));
	r.fd = fd;
	ret = allow_root(&r, in->root, in->writes, err);
	if (!ret &&
	    (in->role == CK_SANDBOX_WORKER || in->role == CK_SANDBOX_FINDER))
		ret = allow_worker(&r, in, err);
	if (!ret && in->role == CK_SANDBOX_ASKER)
		ret = allow_path(&r, "/proc", FS_READ_FILE, err);
	if (!ret && in->role == CK_SANDBOX_ASKER && in->write_dir)
		ret = allow_path(&r, in->write_dir, CHANGE_NAMES, err);
	if (ret)
		return ret;
	if (syscall(SYS_landlock_restrict_self, fd, 0))
		return ck_fail(err, errno, "sandbox: Landlock: %s",
			       strerror(errno));
	return 1;
}
