/* SPDX-License-Identifier: Apache-2.0 */
/*
 * commit.c - from a draft to a checkpoint
 *
 * A failed fsync poisons the draft, because the kernel forgets what it could
 * not write: a second fsync would say 0 of bytes that are lost.
 */
#include "core/publish/commit.h"

#include "core/base/auto.h"
#include "core/base/check.h"
#include "core/base/fds.h"
#include "core/root/openat_beneath.h"
#include "core/root/writer_lock.h"
#include "core/publish/complete.h"
#include "core/draft/dir_tree.h"
#include "core/publish/imported_manifest.h"
#include "core/manifest/hash.h"
#include "core/publish/sparse_check.h"
#include "core/manifest/manifest.h"
#include "core/root/fault_point.h"
#include "core/seal/seal.h"
#include "core/slices/slices.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#define NOREPLACE 1
#define EXCHANGE 2
#define SYNC_THREADS 8

struct job {
	struct ck_draft *s;
	const struct ck_commit_in *in;
	struct ck_opts opts; /* @in's, as far as they are for a draft */
	const char *as;
	struct ck_draft_said said;
	struct ck_dir_tree files;
	struct ck_hash_known known; /* by who wrote them */
	int old_fd; /* of what is replaced; or -1 */
	struct ck_writer_lock *old;
};

static bool is_there(const struct job *j)
{
	return ck_fds_has(j->s->src_fd, j->as);
}

static int check_name(const struct job *j, struct ck_err *err)
{
	if (!ck_draft_name_ok(j->as))
		return ck_fail(err, EINVAL, "%s: not the name of a checkpoint",
			       j->as);
	if (!j->in->replace && is_there(j))
		return ck_fail(err, EEXIST,
			       "%s: there is a checkpoint of that name "
			       "already; --replace throws it away",
			       j->as);
	return 0;
}

static int check_poisoned(struct job *j, struct ck_err *err)
{
	ck_draft_look(j->s, &j->said);
	if (!j->said.doomed)
		return 0;
	return ck_fail(err, EIO,
		       "%s: bytes that were written to it may be lost (%s); "
		       "it can only be thrown away and written again",
		       j->s->name, j->said.doomed_why);
}

/* A folder may have been moved since its links were made. */
static int check_link(const struct job *j, const char *path, struct ck_err *err)
{
	char to[PATH_MAX];
	ssize_t n = readlinkat(j->s->files_fd, path, to, sizeof(to) - 1);
	unsigned depth = 0;

	for (const char *p = path; *p; p++)
		depth += *p == '/';
	to[n > 0 ? n : 0] = '\0';
	if (ck_dir_tree_link_ok(depth, to))
		return 0;
	return ck_fail(err, ENODATA,
		       "%s: expected a link to what lies in the checkpoint, "
		       "found one to %s",
		       path, to);
}

/* What is published holds nothing that a trainer could not have meant. */
static int check_kinds(const struct job *j, struct ck_err *err)
{
	int ret = 0;

	for (size_t i = 0; !ret && i < j->files.nr; i++) {
		mode_t mode = j->files.v[i].st.st_mode;

		if (S_ISLNK(mode))
			ret = check_link(j, j->files.v[i].path, err);
		else if (!S_ISREG(mode) && !S_ISDIR(mode))
			ret = ck_fail(err, ENODATA,
				      "%s: expected files, folders and links, "
				      "found a device, pipe or socket",
				      j->files.v[i].path);
	}
	return ret;
}

/*
 * Holes mean nothing where the file system makes some by itself.  Of slices it
 * is known otherwise what was written.
 */
static bool holes_are_meant(const struct job *j)
{
	return j->in->holes || !ck_sparse_any(&j->files, j->s->files_fd) ||
	       ck_sparse_from_zeros(j->s->fd);
}

/* With slices comes a layout of their own. */
static int read_all(const struct job *j, struct ck_err *err)
{
	struct ck_opts opts;
	int ret;

	if (!ck_slices_look(j->s))
		return ck_complete(j->s->path, &j->files, &j->opts,
				   j->in->ranks, holes_are_meant(j), err);
	ret = ck_opts_without(&opts, &j->opts, "layout");
	ret = ret ? ck_no_memory(err) :
		    ck_complete(j->s->path, &j->files, &opts, j->in->ranks,
				true, err);
	ck_opts_let_go(&opts);
	return ret;
}

static int nothing_yet(const struct job *j, struct ck_err *err)
{
	if (!ck_slices_look(j->s) && *j->said.refused)
		return ck_fail(err, ENODATA, "nothing was written, for: %s",
			       j->said.refused);
	return ck_fail(err, ENODATA, "nothing was written yet");
}

static int check_files(struct job *j, struct ck_err *err)
{
	int ret = ck_dir_tree_list(&j->files, j->s->files_fd, err);

	if (!ret)
		ret = check_kinds(j, err);
	if (!ret && !j->files.nr)
		ret = nothing_yet(j, err);
	return ret ? ret : read_all(j, err);
}

static int not_complete(const struct job *j, int ret, struct ck_err *err)
{
	return ret == -ENODATA ?
		       ck_wrap(err, ret, "%s: not complete", j->s->name) :
		       ret;
}

/* Of all that a publish reads; while it does, its own manifest comes. */
static uint64_t signature_of(const struct job *j)
{
	return j->files.signature + j->files.manifest;
}

static int check_what_is_there(struct job *j, struct ck_err *err)
{
	int ret = check_files(j, err);

	if (!ret && *j->said.bad && j->said.bad_signature == signature_of(j))
		ret = ck_fail(err, ENODATA, "%s", j->said.bad);
	return ret;
}

static int check(struct job *j, struct ck_err *err)
{
	int ret = check_poisoned(j, err);

	if (!ret)
		ret = check_name(j, err);
	if (!ret)
		ret = ck_slices_gather(j->s, &j->known, err);
	if (!ret)
		ret = check_what_is_there(j, err);
	return not_complete(j, ret, err);
}

/*
 * The shards to be are no checkpoint before they are gathered; behind a publish
 * that broke off they are, and may be what it broke off for.
 */
static int check_slices(struct job *j, struct ck_err *err)
{
	bool gathered = false;
	struct ck_slices *sl;
	int ret = check_poisoned(j, err);

	if (!ret)
		ret = check_name(j, err);
	if (!ret)
		ret = ck_slices_open(&sl, j->s, err);
	if (ret)
		return ret;
	ret = ck_slices_check(sl, err);
	if (!ret)
		ret = ck_slices_in_way(sl, &gathered, err);
	ck_slices_close(sl);
	if (!ret && gathered)
		ret = check_what_is_there(j, err);
	return not_complete(j, ret, err);
}

static int sync_all(struct job *j, struct ck_err *err)
{
	int ret =
		ck_dir_tree_sync(&j->files, j->s->files_fd, SYNC_THREADS, err);

	if (!ret)
		return 0;
	ck_draft_poison(j->s, err->msg);
	return ck_fail(err, EIO, "%s: %s; it can only be written again",
		       j->s->name, err->msg);
}

/* What no reader makes one checkpoint of has no tensors. */
static int make_manifest(const struct job *j, struct ck_root *root,
			 void **bytes, size_t *len, struct ck_err *err)
{
	struct ck_manifest_new *n;
	int ret =
		ck_seal_subprocess(root, &j->opts, &j->known, bytes, len, err);

	if (!ret || ret == -EBUSY || ret == -EBADMSG)
		return ret;
	ret = ck_manifest_new(&n, 0, err);
	if (ret)
		return ret;
	ret = ck_hash_manifest(n, root, &j->known, 0, NULL, NULL, err);
	if (!ret)
		ret = ck_manifest_bytes(n, bytes, len, err);
	ck_manifest_drop(n);
	return ret;
}

/* Remembered, for status, and until another file is written. */
static int is_bad(const struct job *j, struct ck_err *err)
{
	ck_draft_bad(j->s, signature_of(j), err->msg);
	return not_complete(j, ck_fail(err, ENODATA, "%s", err->msg), err);
}

/* After the fsync: what is read now is what the disk was given. */
static int write_manifest(const struct job *j, struct ck_err *err)
{
	ck_auto_free void *bytes = NULL;
	struct ck_root root;
	size_t len;
	int ret = ck_root_open(&root, j->s->path, &j->opts, err);

	if (ret)
		return ret;
	ret = make_manifest(j, &root, &bytes, &len, err);
	if (!ret)
		ret = ck_imported_manifest_check(j->s, &root, bytes, len, err);
	ck_root_close(&root);
	if (ret == -EBADMSG)
		return is_bad(j, err);
	if (!ret)
		ret = ck_imported_manifest_ours(j->s, bytes, len, err);
	if (!ret)
		ret = ck_fault_point("manifest", err);
	return ret ? ret :
		     ck_manifest_store(j->s->files_fd, CK_MANIFEST_NAME, bytes,
				       len, err);
}

/* Somebody without a lock, below the mount. */
static int check_unchanged(const struct job *j, struct ck_err *err)
{
	struct ck_dir_tree now;
	int ret = ck_dir_tree_list(&now, j->s->files_fd, err);

	if (ret)
		return ret;
	if (now.signature != j->files.signature)
		ret = ck_fail(err, EBUSY,
			      "%s: it was written to while it was published",
			      j->s->name);
	ck_dir_tree_free(&now);
	return ret;
}

static int rename_flags(const struct job *j, unsigned flags)
{
	return ck_fds_rename(j->s->fd, CK_DRAFT_FILES, j->s->src_fd, j->as,
			     flags);
}

/*
 * NFS knows no flags: there a rename onto a checkpoint fails anyway, for a
 * folder that is not empty is never replaced.
 */
static int rename_new(const struct job *j)
{
	int ret = rename_flags(j, NOREPLACE);

	if (ret != -EINVAL && ret != -ENOSYS)
		return ret;
	if (is_there(j))
		return -EEXIST;
	return renameat(j->s->fd, CK_DRAFT_FILES, j->s->src_fd, j->as) ?
		       -errno :
		       0;
}

static int rename_it(const struct job *j, struct ck_err *err)
{
	bool exchange = j->in->replace && is_there(j);
	int ret = ck_fault_point("rename", err);

	if (ret)
		return ret;
	ret = exchange ? rename_flags(j, EXCHANGE) : rename_new(j);
	if (ret == -EINVAL && exchange)
		return ck_fail(err, EOPNOTSUPP,
			       "%s: this file system cannot exchange two "
			       "folders; remove the old one first",
			       j->as);
	return ret ? ck_fail(err, -ret, "%s: rename: %s", j->as,
			     strerror(-ret)) :
		     0;
}

/* Both directories that the rename changed. */
static int sync_rename(const struct job *j, struct ck_err *err)
{
	int ret = ck_record_sync_dir(j->s->src_fd, err);

	if (!ret)
		ret = ck_record_sync_dir(j->s->fd, err);
	return ret ? ck_fail(err, EIO,
			     "%s: it is published, but might not outlast a "
			     "loss of power: %s",
			     j->as, err->msg) :
		     0;
}

static int file_at_rest(int dir, const struct ck_dir_tree_file *f,
			struct ck_err *err)
{
	ck_auto_fd int fd = -1;

	if (!S_ISREG(f->st.st_mode))
		return 0;
	fd = ck_beneath_file(dir, f->path, O_RDONLY);
	return fd < 0 ? 0 : ck_writer_lock_file_look(fd, f->path, err);
}

/* Of who came to one of its files by another root. */
static int files_at_rest(int dir, struct ck_err *err)
{
	struct ck_dir_tree files;
	int ret = ck_dir_tree_list(&files, dir, err);

	if (ret)
		return ret;
	for (size_t i = 0; !ret && i < files.nr; i++)
		ret = file_at_rest(dir, &files.v[i], err);
	ck_dir_tree_free(&files);
	return ret;
}

/*
 * What is thrown away may not be what somebody is editing: no writer until it
 * is gone.  A checkpoint that is one file has no lock but that file's.
 */
static int lock_old(struct job *j, struct ck_err *err)
{
	struct ck_root root = { .blobs_fd = -1, .path = (char *)j->as };
	struct stat st;
	int ret;

	if (!j->in->replace)
		return 0;
	j->old_fd = openat(j->s->src_fd, j->as,
			   O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
	if (j->old_fd < 0 || fstat(j->old_fd, &st))
		return 0;
	root.fd = j->old_fd;
	if (!S_ISDIR(st.st_mode))
		ret = ck_writer_lock_file_look(j->old_fd, j->as, err);
	else
		ret = ck_writer_lock_take(&j->old, &root, err);
	if (!ret && S_ISDIR(st.st_mode))
		ret = files_at_rest(j->old_fd, err);
	return ret;
}

static int publish(struct job *j, struct ck_err *err)
{
	struct ck_draft_commit r = {
		.replace = j->in->replace,
		.ranks = j->in->ranks,
		.ino = j->s->files_st.st_ino,
		.holes = j->in->holes,
	};
	int ret = lock_old(j, err);

	if (!ret)
		ret = check(j, err);
	if (!ret) {
		ck_record_from(j->s->files_fd, j->s->name);
		ret = sync_all(j, err);
	}
	if (!ret)
		ret = ck_slices_move_files(j->s, err);
	if (!ret)
		ret = write_manifest(j, err);
	if (!ret)
		ret = check_unchanged(j, err);
	if (ret)
		return ret;
	snprintf(r.as, sizeof(r.as), "%s", j->as);
	ret = ck_draft_commit(j->s, &r, err);
	if (!ret)
		ret = rename_it(j, err);
	if (!ret)
		ret = sync_rename(j, err);
	/* what remains is to tidy up, which anybody may do later */
	if (!ret && !ck_draft_remove(j->s, NULL))
		fsync(j->s->src_fd);
	return ret;
}

static int run(struct ck_draft *s, const struct ck_commit_in *in,
	       int (*what)(struct job *j, struct ck_err *err),
	       struct ck_err *err)
{
	struct job j = {
		.s = s, .in = in, .as = in->as ? in->as : s->name, .old_fd = -1
	};
	/* a draft has no manifest yet that its files could be compared with */
	int ret = ck_opts_without(&j.opts, in->opts, "verify") ?
			  ck_no_memory(err) :
			  what(&j, err);

	ck_writer_lock_drop(j.old);
	if (j.old_fd >= 0)
		close(j.old_fd);
	ck_arena_free(&j.known.mem);
	ck_dir_tree_free(&j.files);
	ck_opts_let_go(&j.opts);
	return ret;
}

int ck_commit(struct ck_draft *s, const struct ck_commit_in *in,
	      struct ck_err *err)
{
	int ret = ck_draft_lock(s, err);

	if (ret)
		return ret;
	ret = run(s, in, publish, err);
	ck_draft_unlock(s);
	return ret;
}

int ck_commit_check(struct ck_draft *s, const struct ck_commit_in *in,
		    struct ck_err *err)
{
	return run(s, in, ck_slices_look(s) ? check_slices : check, err);
}
