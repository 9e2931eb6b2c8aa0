/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ops_dir.c - opendir, readdir, readdirplus
 *
 * A position is the number of the entry, so a listing of a million tensors is
 * continued anywhere without having been kept.  shards/ and a directory of
 * checkpoints may change while they are read: what they held is taken down
 * when they are opened, and what a draft holds when it is read.
 *
 * The kernel keeps no listing either: of one that it had it would ask for the
 * attributes by a look-up for each name, and not by readdirplus.
 */
#include "fs/ops.h"

#include "core/base/auto.h"
#include "fs/kernel/reply.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* One that is open; the kernel reads it by one thread at a time. */
struct open_dir {
	struct fs_shard_list
		*list; /* NULL: nothing moves in it, or see begin() */
};

static struct open_dir *dir_of(const struct fuse_file_info *fi)
{
	return (struct open_dir *)(uintptr_t)fi->fh;
}

static void free_dir(struct open_dir *d)
{
	if (d)
		fs_shards_list_free(d->list);
	free(d);
}

/* The inode of Megatron's marker; 0: there is none. */
static uint64_t marker_of(struct fs *fs)
{
	struct fuse_entry_param e;

	if (fs_lookup(fs, FS_INO_ROOT, FS_MARKER, &e, NULL) || !e.ino)
		return 0;
	fs_forget(fs, e.ino, 1);
	return S_ISREG(e.attr.st_mode) ? e.ino : 0;
}

/* A checkpoint whose name is that of a link of ours, or of shards, is shown. */
static void add_own(struct fs_shard_list *l, const struct ck_run_dir *steps,
		    const char *name, uint64_t ino, mode_t type)
{
	if (!ck_run_dir_find(steps, name))
		fs_shards_list_add(l, name, ino, type);
}

/* A directory of checkpoints, or a group of them. */
static int list_steps(struct fs *fs, const struct fs_mounted *in,
		      struct fs_shard_list *l, struct ck_err *err)
{
	ck_auto_free char *latest =
		in->name ? NULL : fs_mounted_table_latest(fs->table);
	ck_auto_free char *hf = fs_hf_target(fs, in);
	uint64_t marker = in->name ? 0 : marker_of(fs);
	struct ck_run_dir steps;
	int ret = fs_mounted_table_list(fs->table, in, &steps, err);

	if (ret)
		return ret;
	fs_shards_list_add(l, ".", FS_INO_ROOT, S_IFDIR);
	fs_shards_list_add(l, "..", FS_INO_ROOT, S_IFDIR);
	if (!in->name)
		fs_shards_list_add(l, ".unshard", FS_INO_META, S_IFDIR);
	if (latest)
		add_own(l, &steps, "latest", FS_INO_LATEST, S_IFLNK);
	if (hf)
		add_own(l, &steps, "hf", FS_INO_HF, S_IFLNK);
	if (in->name)
		add_own(l, &steps, "shards", FS_INO_SHARDS, S_IFDIR);
	if (marker)
		fs_shards_list_add(l, FS_MARKER, marker, S_IFREG);
	for (size_t i = 0; i < steps.nr; i++) /* inodes: said by the look-up */
		fs_shards_list_add(l, steps.v[i].name, fs_ino(1, FS_INO_ROOT),
				   S_IFDIR);
	ck_run_dir_free(&steps);
	return l->failed ? ck_no_memory(err) : 0;
}

static int take(struct fs *fs, uint64_t ino, struct fs_shard_list **out,
		struct ck_err *err)
{
	struct fs_shard_list *l;
	fs_auto_ref dir = { 0 };
	int ret = fs_find(fs, ino, false, &dir, err);

	if (ret || dir.node.kind == FS_DIR)
		return ret;
	if (dir.node.kind == FS_SHARD)
		return fs_shards_list(dir.mounted->shards, dir.ino, out, err);
	l = calloc(1, sizeof(*l));
	ret = l ? list_steps(fs, dir.mounted, l, err) : ck_no_memory(err);
	if (ret)
		fs_shards_list_free(l);
	else
		*out = l;
	return ret;
}

static void op_opendir(fuse_req_t req, fuse_ino_t ino,
		       struct fuse_file_info *fi)
{
	struct open_dir *d = calloc(1, sizeof(*d));
	struct fs *fs = fs_of(req);
	struct ck_err err = { 0 };
	int ret = d ? 0 : ck_no_memory(&err);

	if (!ret && !fs_is_draft(fs, ino))
		ret = take(fs, ino, &d->list, &err);
	fi->fh = (uintptr_t)d;
	if (ret)
		fs_reply_found(req, ret, &err);
	if (ret || fs_reply_open(req, fi, false))
		free_dir(d);
}

static void op_releasedir(fuse_req_t req, fuse_ino_t ino,
			  struct fuse_file_info *fi)
{
	(void)ino;
	free_dir(dir_of(fi));
	fuse_reply_err(req, 0);
}

/* ---- reading one ---- */

struct reading {
	fuse_req_t req;
	uint64_t ino; /* as the kernel has it */
	const struct fs_ref *dir; /* of nothing where it is a draft's */
	const struct fs_shard_list *list; /* NULL: what the tree says */
};

/* What is in a draft is taken down when it is read from its beginning. */
static int begin(struct fs *fs, uint64_t ino, struct open_dir *d, off_t off,
		 struct fs_ref *dir)
{
	struct fs_shard_list *l = NULL;
	int ret;

	if (!fs_is_draft(fs, ino))
		return fs_find(fs, ino, false, dir, NULL) ? -ESTALE : 0;
	if (off > 0 && d->list)
		return 0;
	ret = fs_draft_ops.list(fs, ino, &l);
	if (!ret) {
		fs_shards_list_free(d->list);
		d->list = l;
	}
	return ret;
}

static enum fs_at entry_at(const struct reading *r, uint64_t pos,
			   struct fs_entry *e)
{
	const struct fs_shard_list *l = r->list;

	if (!l)
		return fs_tree_entry(r->dir->mounted, r->dir->ino, pos, e);
	if (pos >= l->nr)
		return FS_AT_END;
	snprintf(e->name, sizeof(e->name), "%s", l->v[pos].name);
	e->ino = l->v[pos].ino;
	e->type = l->v[pos].type;
	e->beside = false;
	return FS_AT_ENTRY;
}

static struct stat number_of(const struct reading *r, const struct fs_entry *e)
{
	return (struct stat){ .st_ino = fs_ino(fs_ino_mounted(r->ino), e->ino),
			      .st_mode = e->type };
}

static size_t add_plain(const struct reading *r, char *at, size_t left,
			const struct fs_entry *e, uint64_t next)
{
	const struct stat st = number_of(r, e);

	return fuse_add_direntry(r->req, at, left, e->name, &st, (off_t)next);
}

static bool is_dots(const char *name)
{
	return !strcmp(name, ".") || !strcmp(name, "..");
}

/* What a look-up would say; the number of a fixed file is known already. */
static int fill_plus(const struct reading *r, const struct fs_entry *e,
		     struct fuse_entry_param *p)
{
	struct fs *fs = fs_of(r->req);
	int ret;

	if (r->list || e->beside)
		return fs_lookup(fs, r->ino, e->name, p, NULL);
	p->ino = fs_ino_known(fs, fs_ino(r->dir->mounted->nr, e->ino));
	p->entry_timeout = fs->keep;
	ret = fs_attr(fs, p->ino, &p->attr, &p->attr_timeout, NULL);
	if (!ret)
		fs_mounted_know(fs->table, r->dir->mounted);
	return ret;
}

/*
 * The kernel counts a look-up for every entry with an inode that it gets.  What
 * went meanwhile is only named.
 */
static size_t add_plus(const struct reading *r, char *at, size_t left,
		       const struct fs_entry *e, uint64_t next)
{
	struct fuse_entry_param p = { 0 };
	size_t len;

	if (is_dots(e->name) || fill_plus(r, e, &p))
		p = (struct fuse_entry_param){ .attr = number_of(r, e) };
	p.entry_timeout =
		fs_access_keep(fs_of(r->req), r->ino, p.entry_timeout);
	len = fuse_add_direntry_plus(r->req, at, left, e->name, &p,
				     (off_t)next);
	if (len > left && p.ino)
		fs_forget(fs_of(r->req), p.ino, 1);
	return len;
}

static void read_dir(fuse_req_t req, uint64_t ino, size_t size, off_t off,
		     const struct fuse_file_info *fi, bool plus)
{
	ck_auto_free char *buf = malloc(size);
	uint64_t pos = off < 0 ? 0 : (uint64_t)off;
	enum fs_at found = FS_AT_END;
	fs_auto_ref dir = { 0 };
	int ret = buf ? begin(fs_of(req), ino, dir_of(fi), off, &dir) : -ENOMEM;
	struct reading r = { req, ino, &dir, dir_of(fi)->list };
	struct fs_entry e;
	size_t used = 0;

	if (ret) {
		fuse_reply_err(req, -ret);
		return;
	}
	for (;; pos++) {
		size_t left = size - used, len;

		found = entry_at(&r, pos, &e);
		if (found == FS_AT_END)
			break;
		if (found == FS_AT_NOTHING)
			continue;
		len = (plus ? add_plus : add_plain)(&r, buf + used, left, &e,
						    pos + 1);
		if (len > left)
			break;
		used += len;
	}
	fuse_reply_buf(req, buf, used);
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
