/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ops_dir.c - opendir, readdir, readdirplus
 *
 * A position is the number of the entry, so a listing of a million tensors is
 * continued anywhere without having been kept.  shards/ and a directory of
 * checkpoints may change while they are read: what they held is taken down
 * when they are opened.
 *
 * The kernel keeps no listing either: of one that it had it would ask for the
 * attributes by a look-up for each name, and not by readdirplus.
 */
#include "fs/ops.h"

#include "core/base/auto.h"
#include "core/base/check.h"
#include "fs/kernel/reply.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* What a directory of checkpoints, or a group of them, has before these. */
enum { DOT, DOTS, META, LATEST, HF, SHARDS, MARKER, NR_FIXED };

static const struct {
	const char *name;
	uint64_t ino;
	bool is_dir, is_link;
} fixed[NR_FIXED] = {
	[DOT] = { ".", FS_INO_ROOT, .is_dir = true },
	[DOTS] = { "..", FS_INO_ROOT, .is_dir = true },
	[META] = { ".unshard", FS_INO_META, .is_dir = true },
	[LATEST] = { "latest", FS_INO_LATEST, .is_link = true },
	[HF] = { "hf", FS_INO_HF, .is_link = true },
	[SHARDS] = { "shards", FS_INO_SHARDS, .is_dir = true },
	[MARKER] = { FS_MARKER, .is_dir = false },
};

/* What a directory that changes held when it was opened. */
struct taken {
	struct fs_shard_list *shards; /* NULL: it is of checkpoints */
	struct ck_run_dir steps; /* whose names go before what is fixed */
	bool has[NR_FIXED];
	uint64_t marker; /* the inode of FS_MARKER */
};

static struct taken *taken_of(const struct fuse_file_info *fi)
{
	return (struct taken *)(uintptr_t)fi->fh;
}

static void free_taken(struct taken *t)
{
	if (!t)
		return;
	fs_shards_list_free(t->shards);
	ck_run_dir_free(&t->steps);
	free(t);
}

static uint64_t marker_of(struct fs *fs)
{
	struct fuse_entry_param e;

	if (fs_lookup(fs, FS_INO_ROOT, FS_MARKER, &e, NULL) || !e.ino)
		return 0;
	fs_forget(fs, e.ino, 1);
	return S_ISREG(e.attr.st_mode) ? e.ino : 0;
}

static int take_steps(struct fs *fs, const struct fs_mounted *in,
		      struct taken *t, struct ck_err *err)
{
	bool group = in->name;
	ck_auto_free char *latest =
		group ? NULL : fs_mounted_table_latest(fs->table);
	ck_auto_free char *hf = fs_hf_target(fs, in);
	int ret = fs_mounted_table_list(fs->table, in, &t->steps, err);

	t->marker = group ? 0 : marker_of(fs);
	t->has[DOT] = t->has[DOTS] = true;
	t->has[META] = !group;
	t->has[LATEST] = latest && !ck_run_dir_find(&t->steps, "latest");
	t->has[HF] = hf && !ck_run_dir_find(&t->steps, "hf");
	t->has[SHARDS] = group && !ck_run_dir_find(&t->steps, "shards");
	t->has[MARKER] = t->marker;
	return ret;
}

static int take(struct fs *fs, const struct fs_ref *dir, struct taken **out,
		struct ck_err *err)
{
	struct taken *t = calloc(1, sizeof(*t));
	int ret;

	if (!t)
		return ck_no_memory(err);
	ret = dir->node.kind == FS_SHARD ?
		      fs_shards_list(dir->mounted->shards, dir->ino, &t->shards,
				     err) :
		      take_steps(fs, dir->mounted, t, err);
	if (ret)
		free_taken(t);
	else
		*out = t;
	return ret;
}

static void op_opendir(fuse_req_t req, fuse_ino_t ino,
		       struct fuse_file_info *fi)
{
	struct fs *fs = fs_of(req);
	struct ck_err err = { 0 };
	struct taken *t = NULL;
	fs_auto_ref dir = { 0 };
	int ret = fs_find(fs, ino, false, &dir, &err);

	if (!ret && dir.node.kind != FS_DIR)
		ret = take(fs, &dir, &t, &err);
	fi->fh = (uintptr_t)t;
	if (ret == -ENOENT || ret == -EACCES)
		fs_reply_errno(req, -ret);
	else if (ret)
		fs_reply_fail(req, ret, &err);
	else if (fs_reply_open(req, fi))
		free_taken(t);
}

static void op_releasedir(fuse_req_t req, fuse_ino_t ino,
			  struct fuse_file_info *fi)
{
	(void)ino;
	free_taken(taken_of(fi));
	fs_reply_errno(req, 0);
}

static enum fs_at shard_at(const struct fs_shard_list *l, uint64_t pos,
			   struct fs_entry *e)
{
	if (pos >= l->nr)
		return FS_AT_END;
	snprintf(e->name, sizeof(e->name), "%s", l->v[pos].name);
	e->ino = l->v[pos].ino;
	e->is_dir = l->v[pos].is_dir;
	e->is_link = l->v[pos].is_link;
	return FS_AT_ENTRY;
}

/* Inodes of checkpoints vary. */
static enum fs_at step_at(const struct taken *t, uint64_t pos,
			  struct fs_entry *e)
{
	if (pos < NR_FIXED) {
		strcpy(e->name, fixed[pos].name);
		e->ino = pos == MARKER ? t->marker : fixed[pos].ino;
		e->is_dir = fixed[pos].is_dir;
		e->is_link = fixed[pos].is_link;
		return t->has[pos] ? FS_AT_ENTRY : FS_AT_NOTHING;
	}
	pos -= NR_FIXED;
	if (pos >= t->steps.nr)
		return FS_AT_END;
	snprintf(e->name, sizeof(e->name), "%s", t->steps.v[pos].name);
	e->ino = fs_ino(1, FS_INO_ROOT); /* said by the look-up */
	e->is_dir = true;
	return FS_AT_ENTRY;
}

static enum fs_at entry_at(const struct fs_ref *dir,
			   const struct fuse_file_info *fi, uint64_t pos,
			   struct fs_entry *e)
{
	const struct taken *t = taken_of(fi);

	e->is_link = e->beside = false;
	if (!t)
		return fs_tree_entry(dir->mounted, dir->ino, pos, e);
	return t->shards ? shard_at(t->shards, pos, e) : step_at(t, pos, e);
}

static mode_t type_of(const struct fs_entry *e)
{
	return e->is_dir ? S_IFDIR : e->is_link ? S_IFLNK : S_IFREG;
}

static size_t add_plain(fuse_req_t req, const struct fs_ref *dir, char *at,
			size_t left, const struct fs_entry *e, uint64_t next)
{
	struct stat st = { .st_ino = fs_ino(dir->mounted->nr, e->ino),
			   .st_mode = type_of(e) };

	return fuse_add_direntry(req, at, left, e->name, &st, (off_t)next);
}

static bool is_dots(const char *name)
{
	return !strcmp(name, ".") || !strcmp(name, "..");
}

/* What a look-up would say; the number of a fixed file is known already. */
static int fill_plus(struct fs *fs, const struct fs_ref *dir,
		     const struct fs_entry *e, struct fuse_entry_param *p)
{
	uint64_t ino = fs_ino(dir->mounted->nr, dir->ino);

	int ret;

	if (dir->node.kind != FS_DIR || e->beside)
		return fs_lookup(fs, ino, e->name, p, NULL);
	p->ino = fs_ino_known(fs, fs_ino(dir->mounted->nr, e->ino));
	p->entry_timeout = fs->keep;
	ret = fs_attr(fs, p->ino, &p->attr, &p->attr_timeout, NULL);
	if (!ret)
		fs_mounted_know(fs->table, dir->mounted);
	return ret;
}

/* The kernel counts a look-up for every entry with an inode that it gets. */
static size_t add_plus(fuse_req_t req, const struct fs_ref *dir, char *at,
		       size_t left, const struct fs_entry *e, uint64_t next)
{
	struct fs *fs = fs_of(req);
	struct fuse_entry_param p = { 0 };
	size_t len;

	if (is_dots(e->name) || fill_plus(fs, dir, e, &p)) {
		p = (struct fuse_entry_param){ 0 };
		p.attr.st_ino = fs_ino(dir->mounted->nr, e->ino);
		p.attr.st_mode = type_of(e);
	}
	len = fuse_add_direntry_plus(req, at, left, e->name, &p, (off_t)next);
	if (len > left && p.ino)
		fs_forget(fs, p.ino, 1);
	return len;
}

static void read_dir(fuse_req_t req, uint64_t ino, size_t size, off_t off,
		     const struct fuse_file_info *fi, bool plus)
{
	ck_auto_free char *buf = malloc(size);
	uint64_t pos = off < 0 ? 0 : (uint64_t)off;
	enum fs_at found = FS_AT_END;
	struct fs_entry e;
	fs_auto_ref dir = { 0 };
	size_t used = 0;

	if (!buf || fs_find(fs_of(req), ino, false, &dir, NULL)) {
		fs_reply_errno(req, buf ? ESTALE : ENOMEM);
		return;
	}
	for (;; pos++) {
		size_t left = size - used, len;

		found = entry_at(&dir, fi, pos, &e);
		if (found == FS_AT_END)
			break;
		if (found == FS_AT_NOTHING)
			continue;
		len = plus ? add_plus(req, &dir, buf + used, left, &e,
				      pos + 1) :
			     add_plain(req, &dir, buf + used, left, &e,
				       pos + 1);
		if (len > left)
			break;
		used += len;
	}
	fs_reply_buf(req, buf, used);
}

static void op_readdir(fuse_req_t req, fuse_ino_t ino, size_t size, off_t off,
		       struct fuse_file_info *fi)
{
	read_dir(req, ino, size, off, fi, false);
}

static void op_readdirplus(fuse_req_t req, fuse_ino_t ino, size_t size,
			   off_t off, struct fuse_file_info *fi)
{
	read_dir(req, ino, size, off, fi, true);
}

void fs_ops_dir(struct fuse_lowlevel_ops *ops)
{
	ops->opendir = op_opendir;
	ops->releasedir = op_releasedir;
	ops->readdir = op_readdir;
	ops->readdirplus = op_readdirplus;
}
