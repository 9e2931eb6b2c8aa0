/* SPDX-License-Identifier: Apache-2.0 */
/*
 * access.c - operations of other users
 *
 * The kernel looks at the modes that are shown (default_permissions).  These
 * cannot say all, and may have been changed; so whatever it lets through is
 * asked of the files themselves here, at each open and each change of a name, as
 * for a plain file.  Reading and writing by an open descriptor is not asked
 * again.  A mount for its own user only does not come here.
 *
 * An answer may take long, where a file's server is away.  So that others are
 * served meanwhile, and that an interruption comes through, no more than half of
 * the loop's threads wait for answers; further calls get a thread of their own.
 */
#include "fs/ops.h"

#include "core/base/auto.h"
#include "core/base/check.h"
#include "fs/kernel/reply.h"
#include "fs/tree/behind.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MAX_OWN 256 /* threads; no user has more than half of them */

/* What they were; one mount a process. */
static struct fuse_lowlevel_ops next;

/* A request and what came with it. */
struct call {
	fuse_req_t req;
	void (*run)(struct call *c);
	fuse_ino_t ino, to_dir;
	const char *name, *to;
	mode_t mode;
	dev_t rdev;
	struct stat attr;
	int to_set;
	unsigned flags;
	size_t size;
	struct fuse_file_info *fi; /* or NULL */
	uid_t uid;
	/* of one with a thread of its own */
	struct call *other;
	struct fuse_file_info own_fi;
	char names[];
};

static struct {
	pthread_mutex_t lock;
	pthread_cond_t ended;
	unsigned here; /* calls that the loop's threads are at */
	unsigned nr; /* calls with a thread of their own */
	struct call *own; /* these */
} calls = { .lock = PTHREAD_MUTEX_INITIALIZER,
	    .ended = PTHREAD_COND_INITIALIZER };

static int ask(fuse_req_t req, struct fs_question *q)
{
	const struct fuse_ctx *ctx = fuse_req_ctx(req);
	const struct fs_caller who = { .pid = ctx->pid,
				       .uid = ctx->uid,
				       .gid = ctx->gid,
				       .stopped = fs_req_stopped,
				       .ctx = req };

	return fs_asker_ask(fs_of(req)->asker, &who, q);
}

static int gather(struct fs *fs, uint64_t ino, int mask, struct fs_question *q,
		  struct ck_err *err)
{
	fs_auto_ref r = { 0 };
	int ret;

	if (fs->drafts && fs_draft_ops.has(ino))
		return fs_draft_ops.ask(fs, ino, mask, q);
	ret = fs_find(fs, ino, false, &r, err);
	return ret ? ret :
		     fs_behind_ask(fs->table, r.mounted, r.ino, &r.node, mask,
				   q, err);
}

/* Whether the request was answered with no. */
static bool refused(fuse_req_t req, uint64_t ino, int mask)
{
	struct fs_question q = { 0 };
	struct ck_err err = { 0 };
	int ret = gather(fs_of(req), ino, mask, &q, &err);

	if (!ret)
		ret = ask(req, &q);
	ck_str_free(&q.text);
	if (ret)
		fs_reply_errno(req, -ret);
	return ret;
}

static bool changes_refused(fuse_req_t req, uint64_t dir)
{
	return refused(req, dir, W_OK | X_OK);
}

int fs_access_open(fuse_req_t req, const struct fs_ref *r, int fd)
{
	struct fs_question q = { 0 };
	int ret = 0;

	if (!fs_of(req)->asker)
		return 0;
	ret = fs_behind_ask_open(r->mounted, r->ino, fd, R_OK, &q, NULL);
	if (!ret)
		ret = ask(req, &q);
	ck_str_free(&q.text);
	return ret;
}

static int mask_of(int flags)
{
	switch (flags & O_ACCMODE) {
	case O_RDONLY:
		return R_OK;
	case O_WRONLY:
		return W_OK;
	default:
		return R_OK | W_OK;
	}
}

/* A file of shards/ is asked for when it is open, for names move. */
static bool asks_itself(const struct fs *fs, uint64_t ino)
{
	return ino & FS_INO_SHARD && !(fs->drafts && fs_draft_ops.has(ino));
}

/* ---- threads ---- */

static bool begin_here(unsigned threads)
{
	bool ok;

	pthread_mutex_lock(&calls.lock);
	ok = calls.here < threads / 2;
	calls.here += ok;
	pthread_mutex_unlock(&calls.lock);
	return ok;
}

static void end_here(void)
{
	pthread_mutex_lock(&calls.lock);
	calls.here--;
	pthread_mutex_unlock(&calls.lock);
}

/* A copy that is its own; NULL: no memory. */
static struct call *copy_of(const struct call *c)
{
	size_t name = c->name ? strlen(c->name) + 1 : 0;
	size_t to = c->to ? strlen(c->to) + 1 : 0;
	struct call *own = malloc(sizeof(*own) + name + to);

	if (!own)
		return NULL;
	*own = *c;
	if (c->fi) {
		own->own_fi = *c->fi;
		own->fi = &own->own_fi;
	}
	if (c->name)
		own->name = memcpy(own->names, c->name, name);
	if (c->to)
		own->to = memcpy(own->names + name, c->to, to);
	return own;
}

/* In the list while its thread runs. */
static bool add_own(struct call *c)
{
	unsigned his = 0;
	bool ok;

	pthread_mutex_lock(&calls.lock);
	for (struct call *i = calls.own; i; i = i->other)
		his += i->uid == c->uid;
	ok = calls.nr < MAX_OWN && his < MAX_OWN / 2;
	if (ok) {
		c->other = calls.own;
		calls.own = c;
		calls.nr++;
	}
	pthread_mutex_unlock(&calls.lock);
	return ok;
}

static void end_own(struct call *c)
{
	pthread_mutex_lock(&calls.lock);
	for (struct call **at = &calls.own; *at; at = &(*at)->other)
		if (*at == c) {
			*at = c->other;
			break;
		}
	calls.nr--;
	pthread_cond_signal(&calls.ended);
	pthread_mutex_unlock(&calls.lock);
	free(c);
}

static void *run_own(void *ctx)
{
	struct call *c = ctx;

	c->run(c);
	end_own(c);
	return NULL;
}

static bool start_own(struct call *c)
{
	pthread_t thread;

	if (!add_own(c)) {
		free(c);
		return false;
	}
	if (!pthread_create(&thread, NULL, run_own, c)) {
		pthread_detach(thread);
		return true;
	}
	end_own(c);
	return false;
}

static void take(struct call *c)
{
	struct call *own;

	c->uid = fuse_req_ctx(c->req)->uid;
	if (begin_here(fs_of(c->req)->kernel.threads)) {
		c->run(c);
		end_here();
		return;
	}
	own = copy_of(c);
	if (!own || !start_own(own))
		fs_reply_errno(c->req, EAGAIN);
}

void fs_access_end(void)
{
	pthread_mutex_lock(&calls.lock);
	while (calls.nr)
		pthread_cond_wait(&calls.ended, &calls.lock);
	pthread_mutex_unlock(&calls.lock);
}

/* ---- the operations ---- */

static void open_now(struct call *c)
{
	if (asks_itself(fs_of(c->req), c->ino) ||
	    !refused(c->req, c->ino, mask_of(c->fi->flags)))
		next.open(c->req, c->ino, c->fi);
}

static void open_asked(fuse_req_t req, fuse_ino_t ino,
		       struct fuse_file_info *fi)
{
	struct call c = { .req = req, .run = open_now, .ino = ino, .fi = fi };

	take(&c);
}

static void opendir_now(struct call *c)
{
	if (!refused(c->req, c->ino, R_OK))
		next.opendir(c->req, c->ino, c->fi);
}

static void opendir_asked(fuse_req_t req, fuse_ino_t ino,
			  struct fuse_file_info *fi)
{
	struct call c = {
		.req = req, .run = opendir_now, .ino = ino, .fi = fi
	};

	take(&c);
}

static void lookup_now(struct call *c)
{
	if (!refused(c->req, c->ino, X_OK))
		next.lookup(c->req, c->ino, c->name);
}

static void lookup_asked(fuse_req_t req, fuse_ino_t parent, const char *name)
{
	struct call c = {
		.req = req, .run = lookup_now, .ino = parent, .name = name
	};

	take(&c);
}

/*
 * With a file it is ftruncate(), which the kernel lets pass for who opened it for
 * writing; an open with O_TRUNC comes as an open and a setattr without one.
 * Owners are the kernel's to check.
 */
static void setattr_now(struct call *c)
{
	if (c->fi || !(c->to_set & FUSE_SET_ATTR_SIZE) ||
	    !refused(c->req, c->ino, W_OK))
		next.setattr(c->req, c->ino, &c->attr, c->to_set, c->fi);
}

static void setattr_asked(fuse_req_t req, fuse_ino_t ino, struct stat *attr,
			  int to_set, struct fuse_file_info *fi)
{
	struct call c = { .req = req,
			  .run = setattr_now,
			  .ino = ino,
			  .attr = *attr,
			  .to_set = to_set,
			  .fi = fi };

	take(&c);
}

static void getxattr_now(struct call *c)
{
	if (/* others there are not, which the kernel is to hear */ strncmp(
		    c->name, "user.", 5) ||
	    !refused(c->req, c->ino, R_OK))
		next.getxattr(c->req, c->ino, c->name, c->size);
}

static void getxattr_asked(fuse_req_t req, fuse_ino_t ino, const char *name,
			   size_t size)
{
	struct call c = { .req = req,
			  .run = getxattr_now,
			  .ino = ino,
			  .name = name,
			  .size = size };

	take(&c);
}

static void create_now(struct call *c)
{
	if (!changes_refused(c->req, c->ino))
		next.create(c->req, c->ino, c->name, c->mode, c->fi);
}

static void create_asked(fuse_req_t req, fuse_ino_t parent, const char *name,
			 mode_t mode, struct fuse_file_info *fi)
{
	struct call c = { .req = req,
			  .run = create_now,
			  .ino = parent,
			  .name = name,
			  .mode = mode,
			  .fi = fi };

	take(&c);
}

static void mknod_now(struct call *c)
{
	if (!changes_refused(c->req, c->ino))
		next.mknod(c->req, c->ino, c->name, c->mode, c->rdev);
}

static void mknod_asked(fuse_req_t req, fuse_ino_t parent, const char *name,
			mode_t mode, dev_t rdev)
{
	struct call c = { .req = req,
			  .run = mknod_now,
			  .ino = parent,
			  .name = name,
			  .mode = mode,
			  .rdev = rdev };

	take(&c);
}

static void mkdir_now(struct call *c)
{
	if (!changes_refused(c->req, c->ino))
		next.mkdir(c->req, c->ino, c->name, c->mode);
}

static void mkdir_asked(fuse_req_t req, fuse_ino_t parent, const char *name,
			mode_t mode)
{
	struct call c = { .req = req,
			  .run = mkdir_now,
			  .ino = parent,
			  .name = name,
			  .mode = mode };

	take(&c);
}

static void symlink_now(struct call *c)
{
	if (!changes_refused(c->req, c->ino))
		next.symlink(c->req, c->to, c->ino, c->name);
}

static void symlink_asked(fuse_req_t req, const char *to, fuse_ino_t parent,
			  const char *name)
{
	struct call c = { .req = req,
			  .run = symlink_now,
			  .ino = parent,
			  .name = name,
			  .to = to };

	take(&c);
}

static void unlink_now(struct call *c)
{
	if (!changes_refused(c->req, c->ino))
		next.unlink(c->req, c->ino, c->name);
}

static void unlink_asked(fuse_req_t req, fuse_ino_t parent, const char *name)
{
	struct call c = {
		.req = req, .run = unlink_now, .ino = parent, .name = name
	};

	take(&c);
}

static void rmdir_now(struct call *c)
{
	if (!changes_refused(c->req, c->ino))
		next.rmdir(c->req, c->ino, c->name);
}

static void rmdir_asked(fuse_req_t req, fuse_ino_t parent, const char *name)
{
	struct call c = {
		.req = req, .run = rmdir_now, .ino = parent, .name = name
	};

	take(&c);
}

static void rename_now(struct call *c)
{
	if (!changes_refused(c->req, c->ino) &&
	    (c->to_dir == c->ino || !changes_refused(c->req, c->to_dir)))
		next.rename(c->req, c->ino, c->name, c->to_dir, c->to,
			    c->flags);
}

static void rename_asked(fuse_req_t req, fuse_ino_t parent, const char *name,
			 fuse_ino_t new_parent, const char *new_name,
			 unsigned flags)
{
	struct call c = { .req = req,
			  .run = rename_now,
			  .ino = parent,
			  .name = name,
			  .to_dir = new_parent,
			  .to = new_name,
			  .flags = flags };

	take(&c);
}

void fs_access_add(struct fuse_lowlevel_ops *ops)
{
	next = *ops;
	ops->open = open_asked;
	ops->opendir = opendir_asked;
	ops->lookup = lookup_asked;
	ops->setattr = setattr_asked;
	ops->getxattr = getxattr_asked;
	ops->create = create_asked;
	ops->mknod = mknod_asked;
	ops->mkdir = mkdir_asked;
	ops->symlink = symlink_asked;
	ops->unlink = unlink_asked;
	ops->rmdir = rmdir_asked;
	ops->rename = rename_asked;
}
