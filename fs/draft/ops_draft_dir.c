/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ops_draft_dir.c - listings of a checkpoint that is being written
 *
 * What a directory held is taken down when it is read from its beginning.
 */
#include "fs/draft/ops_draft.h"

#include "core/base/auto.h"
#include "core/base/vec.h"
#include "fs/kernel/reply.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* One that is open; the kernel reads it by one thread at a time. */
struct open_dir {
	struct fs_shard_list *list; /* NULL: nothing was read yet */
};

static struct open_dir *dir_of(const struct fuse_file_info *fi)
{
	return (struct open_dir *)(uintptr_t)fi->fh;
}

/* The step itself, .unshard, and slices. */
static int list_own(const struct fs_draft_ref *r, struct fs_shard_list **out)
{
	struct fs_shard_list *l = calloc(1, sizeof(*l));
	uint64_t ino = r->ino;
	int ret;

	if (!l)
		return -ENOMEM;
	fs_shards_list_add(l, ".", ino, S_IFDIR);
	fs_shards_list_add(l, "..", FS_INO_ROOT, S_IFDIR);
	if (ino == FS_INO_ROOT)
		fs_shards_list_add(l, "shards", FS_INO_SHARDS, S_IFDIR);
	if (ino == FS_INO_META)
		fs_shards_list_add(l, "status", FS_DRAFT_STATUS, S_IFREG);
	ret = fs_slices_list(r, l);
	if (!ret && l->failed)
		ret = -ENOMEM;
	if (ret)
		fs_shards_list_free(l);
	else
		*out = l;
	return ret;
}

static int take(const struct fs_draft_ref *r, struct open_dir *d)
{
	struct fs_shard_list *l = NULL;
	int ret = fs_draft_ref_is_file(r) ?
			  fs_draft_tree_list(r->s->files, r->ino, &l) :
			  list_own(r, &l);

	if (ret)
		return ret;
	fs_shards_list_free(d->list);
	d->list = l;
	return 0;
}

static void op_opendir(fuse_req_t req, fuse_ino_t ino,
		       struct fuse_file_info *fi)
{
	struct open_dir *d = calloc(1, sizeof(*d));

	(void)ino;
	fi->fh = (uintptr_t)d;
	if (!d)
		fs_reply_errno(req, ENOMEM);
	else if (fs_reply_open(req, fi))
		free(d);
}

static void op_releasedir(fuse_req_t req, fuse_ino_t ino,
			  struct fuse_file_info *fi)
{
	(void)ino;
	fs_shards_list_free(dir_of(fi)->list);
	free(dir_of(fi));
	fs_reply_errno(req, 0);
}

static bool is_dots(const char *name)
{
	return !strcmp(name, ".") || !strcmp(name, "..");
}

/*
 * What a look-up says, and nothing else: of a file the list has no number that
 * is one, and each that the kernel is told of is a reference.  What went meanwhile
 * is only named.
 */
static void fill_plus(const struct fs_draft_ref *r,
		      const struct fs_shard_entry *d,
		      struct fuse_entry_param *e)
{
	struct fs_draft_tree_node node = { 0 };
	struct fs_draft_ref at = *r;

	if (!is_dots(d->name) && !fs_draft_ref_lookup(&at, d->name, &node)) {
		fs_draft_ref_entry(r, node.ino, &node.st, e);
		return;
	}
	*e = (struct fuse_entry_param){
		.attr = { .st_ino = fs_ino(r->s->nr, d->ino),
			  .st_mode = d->type },
	};
}

static size_t add(fuse_req_t req, const struct fs_draft_ref *r,
		  const struct fs_shard_entry *d, bool plus, char *at,
		  size_t left, off_t next)
{
	struct fuse_entry_param e;
	size_t len;

	if (!plus) {
		const struct stat st = {
			.st_ino = fs_ino(r->s->nr, d->ino),
			.st_mode = d->type,
		};

		return fuse_add_direntry(req, at, left, d->name, &st, next);
	}
	fill_plus(r, d, &e);
	len = fuse_add_direntry_plus(req, at, left, d->name, &e, next);
	if (len > left && e.ino)
		fs_draft_ref_forget(r->drafts, e.ino, 1);
	return len;
}

static void read_dir(fuse_req_t req, uint64_t ino, size_t size, off_t off,
		     const struct fuse_file_info *fi, bool plus)
{
	ck_auto_free char *buf = malloc(size);
	struct open_dir *d = dir_of(fi);
	const struct fs_shard_list *l;
	fs_auto_draft_ref r = { 0 };
	size_t used = 0;
	int ret = buf ? fs_draft_ref_find(fs_of(req), ino, &r) : -ENOMEM;

	if (!ret && (off <= 0 || !d->list))
		ret = take(&r, d);
	if (ret) {
		fs_reply_errno(req, -ret);
		return;
	}
	l = d->list;
	for (size_t i = off < 0 ? 0 : (size_t)off; i < l->nr; i++) {
		size_t len = add(req, &r, &l->v[i], plus, buf + used,
				 size - used, (off_t)i + 1);

		if (len > size - used)
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

void fs_draft_ops_dir(struct fuse_lowlevel_ops *ops)
{
	ops->opendir = op_opendir;
	ops->releasedir = op_releasedir;
	ops->readdir = op_readdir;
	ops->readdirplus = op_readdirplus;
}
