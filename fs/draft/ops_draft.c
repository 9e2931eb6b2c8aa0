/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ops_draft.c - names of drafts, and names in them
 *
 *	MNT/step-N		1
 *	  shards/		3	below: FS_INO_SHARD | a number
 *	  unshard-layout.json, ranks/, tensors/	see ops_slices.c
 *	  .unshard/		4	not listed, so that rm -r can remove it
 *	    status		FS_DRAFT_STATUS
 */
#include "fs/draft/ops_draft.h"

#include "fs/kernel/reply.h"

#include <errno.h>
#include <string.h>
#include <sys/statvfs.h>
#include <unistd.h>

#define NAME_MAX_BYTES 255

int fs_draft_ref_find(struct fs *fs, uint64_t ino, struct fs_draft_ref *out)
{
	out->drafts = fs->drafts;
	out->s = fs_drafts_pin(fs->drafts, ino);
	out->ino = ino & FS_INO_MASK;
	return out->s ? 0 : -ESTALE;
}

void fs_draft_ref_end(const struct fs_draft_ref *r)
{
	if (r->s)
		fs_draft_unpin(r->drafts, r->s);
}

static int own_attr(const struct fs_draft_ref *r, struct stat *st)
{
	ck_auto_str struct ck_str text = { 0 };
	int ret = fs_draft_tree_stat(r->s->files, FS_INO_SHARDS, NULL, st);

	if (ret)
		return ret;
	st->st_nlink = 2;
	if (r->ino != FS_DRAFT_STATUS)
		return 0;
	fs_draft_text(r->drafts, r->s, &text);
	st->st_mode = S_IFREG | (st->st_mode & 0444);
	st->st_nlink = 1;
	st->st_size = (off_t)text.len;
	return text.failed ? -ENOMEM : 0;
}

int fs_draft_ref_attr(const struct fs_draft_ref *r,
		      const struct fs_draft_tree_file *f, struct stat *st)
{
	int ret = r->ino & FS_INO_SHARD ?
			  fs_draft_tree_stat(r->s->files, r->ino, f, st) :
		  fs_slices_has(r->ino) ? fs_slices_attr(r, st) :
					  own_attr(r, st);

	st->st_ino = fs_ino(r->s->nr, r->ino);
	return ret;
}

void fs_draft_ref_entry(const struct fs_draft_ref *r, uint64_t ino,
			const struct stat *st, struct fuse_entry_param *e)
{
	*e = (struct fuse_entry_param){
		.ino = fs_ino(r->s->nr, ino),
		.attr = *st,
		.attr_timeout = fs_slices_keep(ino),
		.entry_timeout =
			ino == FS_INO_ROOT ? FS_KEEP_NONE : fs_keep_src,
	};
	e->attr.st_ino = e->ino;
	fs_draft_know(r->drafts, r->s);
}

void fs_draft_forget_ino(struct fs *fs, uint64_t ino, uint64_t nr)
{
	struct fs_draft *s = fs_drafts_pin(fs->drafts, ino);

	if (!s)
		return;
	if (ino & FS_INO_SHARD)
		fs_draft_tree_forget(s->files, ino & FS_INO_MASK, nr);
	fs_draft_forget(fs->drafts, s, nr);
	fs_draft_unpin(fs->drafts, s);
}

/* Answers with what was found or made, or with why it was not. */
static void reply_entry(fuse_req_t req, int ret, const struct fs_draft_ref *r,
			const struct fs_draft_tree_node *node)
{
	const struct ck_err quiet = { 0 };
	struct fuse_entry_param e;

	if (!ret) {
		fs_draft_ref_entry(r, node->ino, &node->st, &e);
		e.entry_timeout =
			fs_access_keep(fs_of(req), e.ino, e.entry_timeout);
	}
	fs_reply_lookup(req, ret, &e, &quiet);
}

/* Of others' what an ordinary user's mount makes is his, as all else. */
struct fs_draft_tree_who fs_draft_who(fuse_req_t req)
{
	const struct fuse_ctx *ctx = fuse_req_ctx(req);
	bool himself = fs_of(req)->asker && !geteuid() && ctx->uid;

	return (struct fs_draft_tree_who){ .uid = ctx->uid,
					   .gid = ctx->gid,
					   .umask = ctx->umask,
					   .req = himself ? req : NULL };
}

static uint64_t fixed_name(uint64_t dir, const char *name)
{
	if (dir == FS_INO_ROOT)
		return !strcmp(name, "shards")	 ? FS_INO_SHARDS :
		       !strcmp(name, ".unshard") ? FS_INO_META :
						   0;
	return dir == FS_INO_META && !strcmp(name, "status") ? FS_DRAFT_STATUS :
							       0;
}

int fs_draft_ref_lookup(struct fs_draft_ref *r, const char *name,
			struct fs_draft_tree_node *out)
{
	if (fs_draft_is_file(r->ino))
		return fs_draft_tree_lookup(r->s->files, r->ino, name, out);
	out->ino = fixed_name(r->ino, name);
	if (!out->ino)
		out->ino = fs_slices_lookup(r, name);
	if (!out->ino)
		return fs_siblings_lookup(r, name, out);
	r->ino = out->ino;
	return fs_draft_ref_attr(r, NULL, &out->st);
}

int fs_draft_lookup(struct fs *fs, uint64_t parent, const char *name,
		    struct fuse_entry_param *e)
{
	struct fs_draft_tree_node node = { .ino = FS_INO_ROOT };
	fs_auto_draft_ref r = { .drafts = fs->drafts, .ino = FS_INO_ROOT };
	int ret;

	if (fs_ino_is_draft(parent)) {
		ret = fs_draft_ref_find(fs, parent, &r);
		if (!ret)
			ret = fs_draft_ref_lookup(&r, name, &node);
	} else {
		ret = fs_drafts_lookup(fs->drafts, name, &r.s) ? -ENOENT : 0;
		if (!ret)
			ret = fs_draft_ref_attr(&r, NULL, &node.st);
	}
	if (!ret)
		fs_draft_ref_entry(&r, node.ino, &node.st, e);
	return ret;
}

/* The step itself, .unshard, and slices. */
static int list_own(const struct fs_draft_ref *r, struct fs_shard_list **out)
{
	struct fs_shard_list *l = calloc(1, sizeof(*l));
	int ret;

	if (!l)
		return -ENOMEM;
	fs_shards_list_add(l, ".", r->ino, S_IFDIR);
	fs_shards_list_add(l, "..", FS_INO_ROOT, S_IFDIR);
	if (r->ino == FS_INO_ROOT)
		fs_shards_list_add(l, "shards", FS_INO_SHARDS, S_IFDIR);
	if (r->ino == FS_INO_META)
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

int fs_draft_list(struct fs *fs, uint64_t ino, struct fs_shard_list **out)
{
	fs_auto_draft_ref r = { 0 };
	int ret = fs_draft_ref_find(fs, ino, &r);

	return ret ? ret :
	       fs_draft_is_file(r.ino) ?
		     fs_draft_tree_list(r.s->files, r.ino, out) :
		     list_own(&r, out);
}

static void op_readlink(fuse_req_t req, fuse_ino_t ino)
{
	fs_auto_draft_ref r = { 0 };
	char to[PATH_MAX];
	int ret = fs_draft_ref_find(fs_of(req), ino, &r);

	if (!ret)
		ret = fs_draft_tree_readlink(r.s->files, r.ino, to);
	if (ret)
		fuse_reply_err(req, -ret);
	else
		fuse_reply_readlink(req, to);
}

/* Where something is written, what is free is that of SRC. */
static void op_statfs(fuse_req_t req, fuse_ino_t ino)
{
	fs_auto_draft_ref r = { 0 };
	struct statvfs st;

	if (fs_draft_ref_find(fs_of(req), ino, &r)) {
		fuse_reply_err(req, ESTALE);
	} else if (fstatvfs(fs_draft_tree_draft(r.s->files)->files_fd, &st)) {
		fuse_reply_err(req, errno);
	} else {
		st.f_namemax = NAME_MAX_BYTES;
		fuse_reply_statfs(req, &st);
	}
}

/* ---- changes ---- */

/* Refused in a step outside of its shards/. */
static int find_dir(struct fs *fs, uint64_t ino, struct fs_draft_ref *r)
{
	int ret = fs_draft_ref_find(fs, ino, r);

	return ret ? ret : fs_draft_is_file(r->ino) ? 0 : -EPERM;
}

/* shards/ is there from the beginning; who removed it may make it again. */
static int make_dir(struct fs *fs, uint64_t parent, const char *name,
		    mode_t mode, const struct fs_draft_tree_who *by,
		    struct fs_draft_ref *r, struct fs_draft_tree_node *node)
{
	int ret = fs_draft_ref_find(fs, parent, r);

	if (ret)
		return ret;
	if (fs_draft_is_file(r->ino))
		return fs_draft_tree_mkdir(r->s->files, r->ino, name, mode, by,
					   node);
	node->ino = fixed_name(r->ino, name);
	if (node->ino != FS_INO_SHARDS)
		return node->ino ? -EEXIST : -EPERM;
	r->ino = FS_INO_SHARDS;
	return fs_draft_ref_attr(r, NULL, &node->st);
}

static void op_mkdir(fuse_req_t req, fuse_ino_t parent, const char *name,
		     mode_t mode)
{
	const struct fs_draft_tree_who by = fs_draft_who(req);
	struct fs_draft_tree_node node = { .ino = FS_INO_ROOT };
	struct fs *fs = fs_of(req);
	fs_auto_draft_ref r = { .drafts = fs->drafts, .ino = FS_INO_ROOT };
	struct ck_err err = { 0 };
	int ret;

	if (fs_ino_is_draft(parent)) {
		ret = make_dir(fs, parent, name, mode, &by, &r, &node);
	} else {
		ret = fs_drafts_mkdir(fs->drafts, name, mode, &by, &r.s, &err);
		if (!ret)
			ret = fs_draft_ref_attr(&r, NULL, &node.st);
	}
	if (ret)
		fs_reply_end(req, ret, &err);
	else
		reply_entry(req, 0, &r, &node);
}

static void op_symlink(fuse_req_t req, const char *to, fuse_ino_t parent,
		       const char *name)
{
	const struct fs_draft_tree_who by = fs_draft_who(req);
	struct fs_draft_tree_node node;
	fs_auto_draft_ref r = { 0 };
	int ret = find_dir(fs_of(req), parent, &r);

	if (!ret)
		ret = fs_draft_tree_symlink(r.s->files, r.ino, name, to, &by,
					    &node);
	reply_entry(req, ret, &r, &node);
}

static void op_mknod(fuse_req_t req, fuse_ino_t parent, const char *name,
		     mode_t mode, dev_t rdev)
{
	const struct fs_draft_tree_who by = fs_draft_who(req);
	struct fs_draft_tree_file *f;
	struct fs_draft_tree_node node;
	fs_auto_draft_ref r = { 0 };
	int ret = find_dir(fs_of(req), parent, &r);

	(void)rdev;
	if (!ret && !S_ISREG(mode))
		ret = -EPERM;
	if (!ret)
		ret = fs_draft_tree_create(r.s->files, r.ino, name, mode,
					   O_WRONLY | O_EXCL, &by, &node, &f);
	if (!ret)
		fs_draft_tree_release(r.s->files, f);
	reply_entry(req, ret, &r, &node);
}

/* rm -r removes what is in the step before it; it goes with the step. */
static int remove_name(struct fs_draft_ref *r, const char *name, bool is_dir,
		       const struct fs_draft_tree_who *by)
{
	struct fs_shard_list *l;
	int ret;

	if (fs_draft_is_file(r->ino))
		return fs_draft_tree_unlink(r->s->files, r->ino, name, is_dir,
					    by);
	if (fixed_name(r->ino, name) != FS_INO_SHARDS)
		return fs_slices_remove(r, name, is_dir, by);
	if (!is_dir)
		return -EISDIR;
	ret = fs_draft_tree_list(r->s->files, FS_INO_SHARDS, &l);
	if (ret)
		return ret;
	ret = l->nr > 2 ? -ENOTEMPTY : 0;
	fs_shards_list_free(l);
	return ret;
}

static void remove_in(fuse_req_t req, fuse_ino_t parent, const char *name,
		      bool is_dir)
{
	const struct fs_draft_tree_who by = fs_draft_who(req);
	fs_auto_draft_ref r = { 0 };
	int ret = fs_draft_ref_find(fs_of(req), parent, &r);

	if (!ret)
		ret = remove_name(&r, name, is_dir, &by);
	fuse_reply_err(req, -ret);
}

static void op_unlink(fuse_req_t req, fuse_ino_t parent, const char *name)
{
	remove_in(req, parent, name, false);
}

static void op_rmdir(fuse_req_t req, fuse_ino_t parent, const char *name)
{
	int ret;

	if (fs_ino_is_draft(parent)) {
		remove_in(req, parent, name, true);
		return;
	}
	ret = fs_drafts_rmdir(fs_of(req)->drafts, name);
	fuse_reply_err(req, ret == -ENOENT ? EPERM : -ret);
}

/* Of the root index, which comes last: a rename that fails was not done. */
static int rename_index(struct fs *fs, const struct fs_draft_ref *r,
			const char *name, const char *new_name, unsigned flags,
			const struct fs_draft_tree_who *by, struct ck_err *err)
{
	struct fs_draft_tree *files = r->s->files;
	struct stat old;
	bool other = !flags && fs_draft_tree_replace(files, FS_INO_SHARDS, name,
						     new_name, by, &old);
	int ret = other ? 0 :
			  fs_draft_tree_rename(files, FS_INO_SHARDS, name,
					       FS_INO_SHARDS, new_name, flags,
					       by);

	if (ret)
		return ret;
	ret = fs_draft_trigger(fs->drafts, r->s, err);
	if (other)
		fs_draft_tree_replaced(files, FS_INO_SHARDS, name, new_name,
				       &old, ret);
	else if (ret)
		fs_draft_tree_rename(files, FS_INO_SHARDS, new_name,
				     FS_INO_SHARDS, name, flags, NULL);
	return ret;
}

/* Within one step's shards/. */
static int rename_in(struct fs *fs, uint64_t parent, const char *name,
		     uint64_t new_parent, const char *new_name, unsigned flags,
		     const struct fs_draft_tree_who *by, struct ck_err *err)
{
	fs_auto_draft_ref r = { 0 };
	int ret = fs_draft_ref_find(fs, parent, &r);
	uint64_t to = new_parent & FS_INO_MASK;
	enum fs_draft_index index = FS_DRAFT_NO_INDEX;

	if (fs_ino_mounted(parent) != fs_ino_mounted(new_parent))
		return -EXDEV;
	if (!ret && fs_draft_is_file(to) != fs_draft_is_file(r.ino))
		ret = fs_slices_has(to) || fs_slices_has(r.ino) ? -EXDEV :
								  -EPERM;
	if (ret)
		return ret;
	if (!fs_draft_is_file(to))
		return fs_siblings_rename(&r, name, to, new_name, flags, by,
					  err);
	if (to == FS_INO_SHARDS && fs_drafts_by_rename(fs->drafts))
		index = fs_draft_index_of(name, parent == new_parent, new_name);
	if (index == FS_DRAFT_LAST)
		return rename_index(fs, &r, name, new_name, flags, by, err);
	ret = fs_draft_tree_rename(r.s->files, r.ino, name, to, new_name, flags,
				   by);
	if (!ret && index == FS_DRAFT_COPIED)
		ck_draft_publish_when_quiet(fs_draft_tree_draft(r.s->files));
	return ret;
}

/* A step that is being written, onto a name that nothing has. */
static int rename_step(struct fs *fs, const char *name, const char *new_name,
		       unsigned flags, struct ck_err *err)
{
	struct fuse_entry_param e = { 0 };
	struct fs_draft *s;

	if (fs_drafts_lookup(fs->drafts, name, &s))
		return -EPERM; /* published ones keep their names */
	fs_draft_unpin(fs->drafts, s);
	if (flags & ~1u)
		return -EINVAL;
	if (!fs_lookup(fs, FUSE_ROOT_ID, new_name, &e, NULL) && e.ino) {
		fs_forget(fs, e.ino, 1);
		return flags ? -EEXIST : -ENOTEMPTY;
	}
	return fs_drafts_rename(fs->drafts, name, new_name, err);
}

static void op_rename(fuse_req_t req, fuse_ino_t parent, const char *name,
		      fuse_ino_t new_parent, const char *new_name,
		      unsigned flags)
{
	const struct fs_draft_tree_who by = fs_draft_who(req);
	struct fs *fs = fs_of(req);
	struct ck_err err = { 0 };
	int ret = -EXDEV;

	if (!fs_ino_is_draft(parent) && !fs_ino_is_draft(new_parent))
		ret = rename_step(fs, name, new_name, flags, &err);
	else if (fs_ino_is_draft(parent) && fs_ino_is_draft(new_parent))
		ret = rename_in(fs, parent, name, new_parent, new_name, flags,
				&by, &err);
	fs_reply_end(req, ret, &err);
}

void fs_draft_ops_names(struct fuse_lowlevel_ops *ops)
{
	ops->readlink = op_readlink;
	ops->statfs = op_statfs;
	ops->mkdir = op_mkdir;
	ops->symlink = op_symlink;
	ops->mknod = op_mknod;
	ops->unlink = op_unlink;
	ops->rmdir = op_rmdir;
	ops->rename = op_rename;
}
