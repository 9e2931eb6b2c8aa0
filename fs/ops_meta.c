/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ops_meta.c - lookup, getattr, forget, statfs
 *
 * Attributes of a tensor are computed from the catalog each time: nothing is
 * kept, so nothing needs to be forgotten.
 */
#include "fs/ops.h"

#include "core/base/auto.h"
#include "core/base/check.h"
#include "core/base/str.h"
#include "fs/kernel/reply.h"
#include "fs/tree/behind.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>

#define NAME_MAX_BYTES 255
#define READABLE 0444u
#define WRITABLE 0666u
#define BLOCK 4096u

double fs_keep_src = 1;

static void set_size(struct stat *st, uint64_t size)
{
	st->st_size = (off_t)size;
	st->st_blocks = (blkcnt_t)CK_DIV_UP(size, 512);
	st->st_blksize = FS_MAX_IO;
}

static void set_times(struct stat *st, int64_t mtime_ns)
{
	int64_t sec = mtime_ns / 1000000000, ns = mtime_ns % 1000000000;

	if (ns < 0) {
		ns += 1000000000;
		sec--;
	}
	st->st_mtim.tv_sec = sec;
	st->st_mtim.tv_nsec = ns;
	st->st_atim = st->st_ctim = st->st_mtim;
}

/* The file that a source's bytes are in; NULL: none, or it is not there. */
static const struct ck_src *file_of(const struct ck_catalog *img, uint32_t src)
{
	const struct ck_src *s;

	if (src == CK_NONE)
		return NULL;
	s = &img->srcs[src];
	if (s->kind == CK_SRC_CODEC)
		s = &img->srcs[s->parent];
	return s->kind == CK_SRC_FILE && s->state != CK_MISSING ? s : NULL;
}

static void like_attr(const struct stat *like, mode_t type, mode_t mask,
		      struct stat *st)
{
	st->st_mode = type | (like->st_mode & mask);
	st->st_uid = like->st_uid;
	st->st_gid = like->st_gid;
	st->st_mtim = st->st_atim = st->st_ctim = like->st_mtim;
}

/* The owner and the times of @src; of the folder where there is none. */
static void owner_attr(const struct fs_ref *r, uint32_t src, mode_t mask,
		       struct stat *st)
{
	const struct ck_src *file = file_of(r->node.view->img, src);

	if (file) {
		st->st_mode = S_IFREG | (file->mode & mask);
		st->st_uid = file->uid;
		st->st_gid = file->gid;
		set_times(st, file->id.mtime_ns);
	} else {
		like_attr(&r->mounted->dir, S_IFREG, mask, st);
	}
}

/* What we wrote is newer than what the catalog says of the sources. */
static void written_attr(const struct fs_mounted *mounted, uint32_t tensor,
			 struct stat *st)
{
	int64_t ns = tensor == CK_NONE ? ck_ckpt_last_wrote_ns(mounted->ck) :
					 ck_ckpt_wrote_ns(mounted->ck, tensor);

	if (ns > st->st_mtim.tv_sec * INT64_C(1000000000) + st->st_mtim.tv_nsec)
		set_times(st, ns);
}

/* For others a tensor is what all its files allow. */
static int others_attr(const struct fs *fs, const struct fs_ref *r,
		       struct stat *st, struct ck_err *err)
{
	int ret = fs_behind_mode(fs->table, r->mounted, r->ino, &r->node,
				 fs_keep_src, st, err);

	st->st_mode &= S_IFMT | (fs->rw ? WRITABLE : READABLE);
	return ret;
}

static int file_attr(const struct fs *fs, const struct fs_ref *r,
		     struct stat *st, struct ck_err *err)
{
	struct ck_vfile file;

	if (!r->node.view->ops->file(r->node.view, r->node.nr, &file))
		return ck_fail(err, ESTALE, "a file that its view left out");
	st->st_nlink = 1;
	set_size(st, file.size);
	if (file.like)
		like_attr(file.like, S_IFREG, READABLE, st);
	else
		owner_attr(r, file.newest, fs->rw ? WRITABLE : READABLE, st);
	if (fs->rw)
		written_attr(r->mounted, file.tensor, st);
	return fs->asker ? others_attr(fs, r, st, err) : 0;
}

/* Before an entry is parsed, what is known of it is itself. */
static void dir_attr(const struct fs *fs, const struct fs_mounted *mounted,
		     struct stat *st)
{
	bool made = atomic_load(&mounted->state) != FS_MOUNTED_NEW;
	const struct stat *like = made ? &mounted->dir : &mounted->seen;
	struct stat now;

	if (fs->asker && made && !fs_behind_dir(fs->table, mounted, &now))
		like = &now;
	like_attr(like, S_IFDIR, fs->rw ? 01777 : 01555, st);
	if (!S_ISDIR(like->st_mode)) /* one file: who reads it may list it */
		st->st_mode |= (like->st_mode & 0444) >> 2;
	st->st_nlink = 2;
	set_size(st, BLOCK);
	st->st_blksize = BLOCK;
}

static int virt_attr(const struct fs *fs, const struct fs_ref *r,
		     struct stat *st, double *keep, struct ck_err *err)
{
	uint64_t size;
	int ret = fs_virt_size(r->mounted->virt, r->node.nr, &size, err);

	if (ret)
		return ret;
	dir_attr(fs, r->mounted, st);
	st->st_mode = S_IFREG | (st->st_mode & READABLE);
	st->st_nlink = 1;
	set_size(st, size);
	*keep = fs_virt_fixed(r->node.nr) ? fs->keep : FS_KEEP_NONE;
	return 0;
}

static void link_attr(const struct fs *fs, const struct fs_mounted *mounted,
		      const char *to, struct stat *st)
{
	dir_attr(fs, mounted, st);
	st->st_mode = S_IFLNK | 0777;
	st->st_nlink = 1;
	set_size(st, strlen(to));
}

static void shard_attr(struct stat *st)
{
	if (!S_ISLNK(st->st_mode))
		st->st_mode &= S_IFMT | 0555;
	st->st_nlink = S_ISDIR(st->st_mode) ? 2 : 1;
	st->st_dev = 0;
}

int fs_find(struct fs *fs, uint64_t ino, bool shallow, struct fs_ref *out,
	    struct ck_err *err)
{
	out->table = fs->table;
	out->mounted = fs_mounted_table_pin(fs->table, fs_ino_mounted(ino));
	out->ino = fs_ino_inner(ino);
	if (!out->mounted)
		return ck_fail(err, ESTALE, "the checkpoint is gone");
	if (!shallow || out->ino != FS_INO_ROOT) {
		fs_mounted_need(fs->table, out->mounted);
		if (!out->mounted->virt || !out->mounted->shards)
			return ck_fail(err, ESTALE, "the checkpoint is gone");
	}
	out->node = fs_tree_node(out->mounted, out->ino);
	if (out->node.kind == FS_NONE)
		return ck_fail(err, ESTALE, "unknown inode");
	return 0;
}

char *fs_hf_target(struct fs *fs, const struct fs_mounted *in)
{
	return fs->drafts && !in->name ? NULL :
					 fs_mounted_table_hf(fs->table, in);
}

/* To free(); NULL: it leads nowhere now, so it is not there. */
static char *link_target(struct fs *fs, const struct fs_ref *r)
{
	return r->ino == FS_INO_HF ? fs_hf_target(fs, r->mounted) :
				     fs_mounted_table_latest(fs->table);
}

static int moving_attr(struct fs *fs, const struct fs_ref *r, struct stat *st,
		       double *keep)
{
	ck_auto_free char *to = link_target(fs, r);

	*keep = FS_KEEP_NONE;
	if (!to)
		return -ENOENT;
	link_attr(fs, r->mounted, to, st);
	return 0;
}

static int ref_attr(struct fs *fs, const struct fs_ref *r, struct stat *st,
		    double *keep, struct ck_err *err)
{
	int ret = 0;

	*keep = fs->keep;
	switch (r->node.kind) {
	case FS_FILE:
		return file_attr(fs, r, st, err);
	case FS_VIRT:
		return virt_attr(fs, r, st, keep, err);
	case FS_LINK:
		return moving_attr(fs, r, st, keep);
	case FS_SHARD:
		if (r->ino != FS_INO_SHARDS) {
			*keep = fs_keep_src;
			ret = fs_shards_stat(r->mounted->shards, r->ino, st,
					     err);
			if (!ret && fs->asker)
				fs_behind_listed(r->mounted, r->ino, st);
			shard_attr(st);
			return ret;
		}
		/* fall through */
	default:
		dir_attr(fs, r->mounted, st);
		if (r->node.kind == FS_STEPS || r->mounted->name)
			*keep = fs_keep_src;
		return 0;
	}
}

int fs_attr(struct fs *fs, uint64_t ino, struct stat *st, double *keep,
	    struct ck_err *err)
{
	fs_auto_ref r = { 0 };
	int ret = fs_find(fs, ino, true, &r, err);

	*st = (struct stat){ 0 };
	if (!ret)
		ret = ref_attr(fs, &r, st, keep, err);
	st->st_ino = fs_ino(fs_ino_mounted(ino), fs_ino_inner(ino));
	return ret;
}

static int lookup_shard(const struct fs *fs, const struct fs_ref *dir,
			const char *name, struct fuse_entry_param *e,
			struct ck_err *err)
{
	int ret = fs_shards_lookup(dir->mounted->shards, dir->ino, name,
				   &e->ino, &e->attr, err);

	if (!ret && fs->asker)
		fs_behind_listed(dir->mounted, e->ino, &e->attr);
	shard_attr(&e->attr);
	e->attr_timeout = e->entry_timeout = fs_keep_src;
	return ret;
}

/* What @in has beside the checkpoints in it. */
static int lookup_own(struct fs *fs, struct fs_mounted *in, uint64_t ino,
		      struct fuse_entry_param *e, struct ck_err *err)
{
	int ret;

	e->ino = fs_ino(in->nr, ino);
	ret = fs_attr(fs, e->ino, &e->attr, &e->attr_timeout, err);
	if (!ret)
		fs_mounted_know(fs->table, in);
	return ret;
}

/* Megatron's own marker, a plain file beside the checkpoints. */
static bool found_marker(const struct fs *fs, struct fs_mounted *in,
			 struct fuse_entry_param *e)
{
	const struct fs_ref top = { .table = fs->table,
				    .mounted = in,
				    .ino = FS_INO_SHARDS };

	if (lookup_shard(fs, &top, FS_MARKER, e, NULL))
		return false;
	if (S_ISREG(e->attr.st_mode)) {
		e->attr_timeout = e->entry_timeout = FS_KEEP_NONE;
		return true;
	}
	fs_shards_forget(in->shards, e->ino, 1);
	*e = (struct fuse_entry_param){ .entry_timeout = FS_KEEP_NONE };
	return false;
}

/* What is there where no checkpoint has the name; 0: nothing. */
static uint64_t own_name(const struct fs_mounted *in, const char *name)
{
	if (!in->steps)
		return 0;
	if (!strcmp(name, in->name ? "shards" : "latest"))
		return in->name ? FS_INO_SHARDS : FS_INO_LATEST;
	return !strcmp(name, "hf") ? FS_INO_HF : 0;
}

/* An entry comes, goes and is replaced. */
static int lookup_entry(struct fs *fs, struct fs_mounted *in, const char *name,
			struct fuse_entry_param *e, struct ck_err *err)
{
	ck_auto_str struct ck_str full = { 0 };
	struct fs_mounted *mounted;
	int ret;

	e->entry_timeout = FS_KEEP_NONE;
	ck_str_fmt(&full, "%s%s%s", in->name ? in->name : "",
		   in->name ? "/" : "", name);
	if (full.failed)
		return ck_no_memory(err);
	ret = fs_mounted_table_entry(fs->table, full.v, &mounted);
	if (ret == -ENOENT && own_name(in, name))
		return lookup_own(fs, in, own_name(in, name), e, err);
	if (ret)
		return ck_fail(err, -ret, "%s: %s", name, strerror(-ret));
	e->ino = fs_ino(mounted->nr, FS_INO_ROOT);
	ret = fs_attr(fs, e->ino, &e->attr, &e->attr_timeout, err);
	if (!ret)
		fs_mounted_know(fs->table, mounted);
	fs_mounted_unpin(fs->table, mounted);
	return ret;
}

static int lookup_step(struct fs *fs, struct fs_mounted *in, const char *name,
		       struct fuse_entry_param *e, struct ck_err *err)
{
	e->entry_timeout = FS_KEEP_NONE;
	if (!in->name && !strcmp(name, ".unshard"))
		return lookup_own(fs, in, FS_INO_META, e, err);
	if (!in->name && !strcmp(name, FS_MARKER) && found_marker(fs, in, e))
		return 0;
	return lookup_entry(fs, in, name, e, err);
}

uint64_t fs_ino_known(const struct fs *fs, uint64_t ino)
{
	bool file = (ino & FS_INO_MASK) >= FS_INO_FILE;

	return fs->passed && file ? fs_passed_ino(fs->passed, ino) : ino;
}

int fs_lookup(struct fs *fs, uint64_t parent, const char *name,
	      struct fuse_entry_param *e, struct ck_err *err)
{
	fs_auto_ref dir = { 0 };
	int ret;

	*e = (struct fuse_entry_param){ .entry_timeout = fs->keep };
	if (strlen(name) > NAME_MAX_BYTES)
		return -ENAMETOOLONG;
	if (fs_is_draft(fs, parent))
		return fs_draft_ops.lookup(fs, parent, name, e);
	ret = fs_find(fs, parent, false, &dir, err);
	if (ret)
		return ret;
	if (dir.node.kind == FS_STEPS)
		return lookup_step(fs, dir.mounted, name, e, err);
	if (dir.node.kind == FS_SHARD)
		ret = lookup_shard(fs, &dir, name, e, err);
	else
		ret = fs_tree_find(dir.mounted, dir.ino, name, &e->ino, err);
	if (!ret && !e->ino && dir.ino == FS_INO_ROOT &&
	    ck_run_dir_find(&dir.mounted->beside, name))
		return lookup_entry(fs, dir.mounted, name, e, err);
	if (ret ||
	    !e->ino) /* not there, and will not be: the kernel keeps it */
		return ret;
	e->attr.st_ino = fs_ino(dir.mounted->nr, e->ino);
	e->ino = fs_ino_known(fs, e->attr.st_ino);
	if (dir.node.kind != FS_SHARD)
		ret = fs_attr(fs, e->ino, &e->attr, &e->attr_timeout, err);
	if (!ret)
		fs_mounted_know(fs->table, dir.mounted);
	return ret;
}

void fs_reply_lookup(fuse_req_t req, int ret, const struct fuse_entry_param *e,
		     const struct ck_err *err)
{
	if (ret)
		fs_reply_found(req, ret, err);
	else if (fuse_reply_entry(req, e) && e->ino)
		fs_forget(fs_of(req), e->ino, 1);
}

static void op_lookup(fuse_req_t req, fuse_ino_t parent, const char *name)
{
	struct fuse_entry_param e;
	struct ck_err err = { 0 };
	struct fs *fs = fs_of(req);
	int ret = fs_lookup(fs, parent, name, &e, &err);

	/* what is published has the name */
	if (fs->drafts && parent == FUSE_ROOT_ID &&
	    (ret ? ret == -ENOENT : !e.ino)) {
		err = (struct ck_err){ 0 };
		ret = fs_draft_ops.lookup(fs, parent, name, &e);
	}
	if (!ret)
		e.entry_timeout = fs_access_keep(fs, parent, e.entry_timeout);
	fs_reply_lookup(req, ret, &e, &err);
}

void fs_forget(struct fs *fs, uint64_t ino, uint64_t nr)
{
	struct fs_mounted *mounted;

	if (fs_is_draft(fs, ino)) {
		fs_draft_ops.forget(fs, ino, nr);
		return;
	}
	mounted = fs_mounted_table_pin(fs->table, fs_ino_mounted(ino));
	if (!mounted)
		return;
	if ((ino & FS_INO_SHARD) && mounted->shards)
		fs_shards_forget(mounted->shards, fs_ino_inner(ino), nr);
	fs_mounted_forget(fs->table, mounted, nr);
	fs_mounted_unpin(fs->table, mounted);
}

/* Also of each that comes with others. */
static void op_forget(fuse_req_t req, fuse_ino_t ino, uint64_t nlookup)
{
	fs_forget(fs_of(req), ino, nlookup);
	fuse_reply_none(req);
}

static void op_getattr(fuse_req_t req, fuse_ino_t ino,
		       struct fuse_file_info *fi)
{
	struct ck_err err = { 0 };
	struct stat st;
	double keep;
	int ret = fs_attr(fs_of(req), ino, &st, &keep, &err);

	(void)fi;
	if (ret == -ENOENT) /* a handle; who has a name looks it up again */
		fuse_reply_err(req, ESTALE);
	else if (ret)
		fs_reply_found(req, ret, &err);
	else
		fuse_reply_attr(req, &st, keep);
}

static void op_readlink(fuse_req_t req, fuse_ino_t ino)
{
	struct fs *fs = fs_of(req);
	ck_auto_free char *moving = NULL;
	fs_auto_ref r = { 0 };
	char to[PATH_MAX];
	int ret = fs_find(fs, ino, true, &r, NULL);

	if (!ret && r.node.kind == FS_SHARD) {
		ret = fs_shards_readlink(r.mounted->shards, r.ino, to);
	} else if (!ret && r.node.kind == FS_LINK) {
		moving = link_target(fs, &r);
		ret = moving ? 0 : -ENOENT;
	} else if (!ret) {
		ret = -EINVAL;
	}
	if (ret)
		fuse_reply_err(req, -ret);
	else
		fuse_reply_readlink(req, moving ? moving : to);
}

/* Of what is beneath a mount for writing. */
static bool room_below(struct fs *fs, struct statvfs *out)
{
	struct fs_mounted *mounted;
	int fd = -1;

	if (fs->drafts) {
		ck_root_fds(fs->steps, &fd, 1);
		return !fstatvfs(fd, out);
	}
	mounted = fs_mounted_table_pin(fs->table, 0);
	if (!mounted)
		return false;
	fd = mounted->ck ? ck_ckpt_room_fd(mounted->ck) : -1;
	fs_mounted_unpin(fs->table, mounted);
	return !fstatvfs(fd, out);
}

/* What there is room for, beside what is shown. */
static void add_room(struct fs *fs, struct statvfs *st)
{
	struct statvfs below;

	if (!room_below(fs, &below))
		return;
	st->f_bfree = below.f_bfree * (below.f_frsize / 512) / (BLOCK / 512);
	st->f_bavail = below.f_bavail * (below.f_frsize / 512) / (BLOCK / 512);
	st->f_ffree = below.f_ffree;
	st->f_favail = below.f_favail;
	st->f_blocks += st->f_bfree;
	st->f_files += st->f_ffree;
}

/* How much is shown: sizes are for who may list it. */
static uint64_t total_for(fuse_req_t req, uint64_t *files)
{
	*files = 0;
	return fs_access_ino(req, FUSE_ROOT_ID, O_RDONLY) ?
		       0 :
		       fs_mounted_table_total(fs_of(req)->table, files);
}

static void op_statfs(fuse_req_t req, fuse_ino_t ino)
{
	uint64_t files, total = total_for(req, &files);
	struct statvfs st = {
		.f_bsize = BLOCK,
		.f_frsize = BLOCK,
		.f_blocks = CK_DIV_UP(total, BLOCK),
		.f_files = files,
		.f_namemax = NAME_MAX_BYTES,
	};

	(void)ino;
	if (fs_of(req)->rw)
		add_room(fs_of(req), &st);
	fuse_reply_statfs(req, &st);
}

void fs_ops_meta(struct fuse_lowlevel_ops *ops)
{
	ops->lookup = op_lookup;
	ops->forget = op_forget;
	ops->getattr = op_getattr;
	ops->readlink = op_readlink;
	ops->statfs = op_statfs;
}
