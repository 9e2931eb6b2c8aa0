/* SPDX-License-Identifier: Apache-2.0 */
/* ops_staged_priv.h - between ops_any.c and ops_staged*.c */
#ifndef FS_OPS_STAGED_PRIV_H
#define FS_OPS_STAGED_PRIV_H

#include "core/base/str.h"
#include "fs/ops.h"
#include "fs/ops_staged.h"
#include "fs/stages.h"

enum {
	FS_STAGED_STATUS = FS_INO_VIRT, /* step-N/.unshard/status */
};

/* What an inode of a stage is; fs_auto_sref ends it. */
struct fs_sref {
	struct fs_stages *stages;
	struct fs_stage *s; /* pinned; NULL: none */
	uint64_t ino; /* without the stage's number */
};
/* -ESTALE: it is gone. */
int fs_sref_find(struct fs *fs, uint64_t ino, struct fs_sref *out);
void fs_sref_end(const struct fs_sref *r);
#define fs_auto_sref __attribute__((cleanup(fs_sref_end))) struct fs_sref

/* Whether it is shards/, or below. */
static inline bool fs_sref_is_file(const struct fs_sref *r)
{
	return r->ino == FS_INO_SHARDS || (r->ino & FS_INO_SHARD);
}
/* 0, or the number with a line where the fault is not the caller's. */
void fs_sref_reply(fuse_req_t req, int ret, const struct ck_err *err);
/* Attributes of any inode of a stage. */
int fs_sref_attr(const struct fs_sref *r, const struct fs_staged_file *f,
		 struct stat *st);
/* The kernel's entry for inode @ino of the stage; counts it. */
void fs_sref_entry(const struct fs_sref *r, uint64_t ino, const struct stat *st,
		   struct fuse_entry_param *e);
/* Gives it back where the reply did not arrive. */
void fs_sref_forget(struct fs_stages *t, uint64_t ino, uint64_t nr);

/* ops_staged.c: in a stage or not */
void fs_any_lookup(fuse_req_t req, fuse_ino_t parent, const char *name);
void fs_any_forget(fuse_req_t req, fuse_ino_t ino, uint64_t nr);
void fs_any_forget_multi(fuse_req_t req, size_t count,
			 struct fuse_forget_data *v);
void fs_any_readlink(fuse_req_t req, fuse_ino_t ino);
void fs_any_statfs(fuse_req_t req, fuse_ino_t ino);
void fs_any_mkdir(fuse_req_t req, fuse_ino_t parent, const char *name,
		  mode_t mode);
void fs_any_symlink(fuse_req_t req, const char *to, fuse_ino_t parent,
		    const char *name);
void fs_any_mknod(fuse_req_t req, fuse_ino_t parent, const char *name,
		  mode_t mode, dev_t rdev);
void fs_any_link(fuse_req_t req, fuse_ino_t ino, fuse_ino_t parent,
		 const char *name);
void fs_any_unlink(fuse_req_t req, fuse_ino_t parent, const char *name);
void fs_any_rmdir(fuse_req_t req, fuse_ino_t parent, const char *name);
void fs_any_rename(fuse_req_t req, fuse_ino_t parent, const char *name,
		   fuse_ino_t new_parent, const char *new_name, unsigned flags);

/* ops_staged_files.c */
void fs_sop_open(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi);
void fs_sop_read(fuse_req_t req, fuse_ino_t ino, size_t size, off_t off,
		 struct fuse_file_info *fi);
void fs_sop_release(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi);
void fs_sop_lseek(fuse_req_t req, fuse_ino_t ino, off_t off, int whence,
		  struct fuse_file_info *fi);
void fs_sop_write(fuse_req_t req, fuse_ino_t ino, const char *buf, size_t size,
		  off_t off, struct fuse_file_info *fi);
void fs_sop_flush(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi);
void fs_sop_fsync(fuse_req_t req, fuse_ino_t ino, int datasync,
		  struct fuse_file_info *fi);
void fs_sop_fsyncdir(fuse_req_t req, fuse_ino_t ino, int datasync,
		     struct fuse_file_info *fi);
void fs_sop_fallocate(fuse_req_t req, fuse_ino_t ino, int mode, off_t off,
		      off_t len, struct fuse_file_info *fi);
void fs_sop_getattr(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi);
void fs_sop_setattr(fuse_req_t req, fuse_ino_t ino, struct stat *attr,
		    int to_set, struct fuse_file_info *fi);
void fs_sop_create(fuse_req_t req, fuse_ino_t parent, const char *name,
		   mode_t mode, struct fuse_file_info *fi);

/* ops_staged_dir.c */
void fs_sop_opendir(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi);
void fs_sop_readdir(fuse_req_t req, fuse_ino_t ino, size_t size, off_t off,
		    struct fuse_file_info *fi);
void fs_sop_readdirplus(fuse_req_t req, fuse_ino_t ino, size_t size, off_t off,
			struct fuse_file_info *fi);
void fs_sop_releasedir(fuse_req_t req, fuse_ino_t ino,
		       struct fuse_file_info *fi);

#endif
