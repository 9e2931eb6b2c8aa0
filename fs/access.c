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

#include "core/base/check.h"
#include "core/base/clock.h"
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

int fs_access_ask(fuse_req_t req, struct fs_question *q, int ret)
{
	const struct fuse_ctx *ctx = fuse_req_ctx(req);
	const struct fs_caller who = { .pid = ctx->pid,
				       .uid = ctx->uid,
				       .gid = ctx->gid,
				       .stopped = fs_req_stopped,
				       .ctx = req };

	if (!ret)
		ret = fs_asker_ask(fs_of(req)->asker, &who, q);
	ck_str_free(&q->text);
	return ret;
}

static int gather(struct fs *fs, uint64_t ino, int mask, struct fs_question *q,
		  struct ck_err *err)
{
	fs_auto_ref r = { 0 };
	int ret;

	if (fs_is_draft(fs, ino))
		return fs_draft_ops.ask(fs, ino, mask, q);
	ret = fs_find(fs, ino, false, &r, err);
	return ret ? ret :
		     fs_behind_ask(fs->table, r.mounted, r.ino, &r.node, mask,
				   q, err);
}

static int ask_ino(fuse_req_t req, uint64_t ino, int mask)
{
	struct fs_question q = { 0 };
	struct ck_err err = { 0 };

	return fs_access_ask(req, &q, gather(fs_of(req), ino, mask, &q, &err));
}

/* The checkpoint whose folders @ino is in; a draft is in those of all. */
static struct fs_mounted *pin_of(struct fs *fs, uint64_t ino)
{
	return fs_mounted_table_pin(
		fs->table, fs_is_draft(fs, ino) ? 0 : fs_ino_mounted(ino));
}

/* Whether all may go to @dir is asked anew, once a while. */
static void learn_way(fuse_req_t req, uint64_t dir)
{
	struct fs *fs = fs_of(req);
	struct fs_mounted *m = fs_keep_src > 0 ? pin_of(fs, dir) : NULL;
	int64_t now = ck_now_ms(), until = now + (int64_t)(fs_keep_src * 1000);
	struct fs_question q = { 0 };

	if (m && atomic_load(&m->open_until_ms) <= now &&
	    atomic_load(&m->closed_until_ms) <= now) {
		fs_behind_ask_way(fs->table, m, &q);
		if (fs_access_ask(req, &q, 0))
			atomic_store(&m->closed_until_ms, until);
		else
			atomic_store(&m->open_until_ms, until);
	}
	if (m)
		fs_mounted_unpin(fs->table, m);
}

/* No longer than what is known of the way holds; of a folder in shards/ nothing is. */
double fs_access_keep(struct fs *fs, uint64_t dir, double keep)
{
	struct fs_mounted *m = fs->asker ? pin_of(fs, dir) : NULL;
	double left;

	if (!m)
		return keep;
	left = (double)(atomic_load(&m->open_until_ms) - ck_now_ms()) / 1000;
	fs_mounted_unpin(fs->table, m);
	if (left <= 0 ||
	    (!fs_is_draft(fs, dir) && fs_ino_inner(dir) & FS_INO_SHARD))
		return FS_KEEP_NONE;
	return CK_MIN(keep, left);
}

/* Whether the request was answered with no. */
static bool refused(fuse_req_t req, uint64_t ino, int mask)
{
	int ret = ask_ino(req, ino, mask);

	if (ret)
		fuse_reply_err(req, -ret);
	return ret;
}

int fs_access_open(fuse_req_t req, const struct fs_ref *r, int fd)
{
	struct fs_question q = { 0 };

	if (!fs_of(req)->asker)
		return 0;
	return fs_access_ask(
		req, &q,
		fs_behind_ask_open(r->mounted, r->ino, fd, R_OK, &q, NULL));
}

bool fs_access_entry(void *req, struct fs_mounted_table *t, const char *name,
		     const struct stat *seen, bool read)
{
	struct fs_question q = { 0 };
	int ret = fs_behind_ask_entry(t, name, seen, read, &q, NULL);

	return !fs_access_ask(req, &q, ret);
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

int fs_access_ino(fuse_req_t req, uint64_t ino, int flags)
{
	int mask = mask_of(flags) | (flags & O_TRUNC ? W_OK : 0);

	return fs_of(req)->asker ? ask_ino(req, ino, mask) : 0;
}

/* A file of shards/ is asked for when it is open, for names move. */
static bool asks_itself(const struct fs *fs, uint64_t ino)
{
	return ino & FS_INO_SHARD && !fs_is_draft(fs, ino);
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
		fuse_reply_err(c->req, EAGAIN);
}

void fs_access_end(void)
{
	pthread_mutex_lock(&calls.lock);
	while (calls.nr)
		pthread_cond_wait(&calls.ended, &calls.lock);
	pthread_mutex_unlock(&calls.lock);
}

/* ---- the operations ---- */

static bool may_open(const struct call *c)
{
	return asks_itself(fs_of(c->req), c->ino) ||
	       !refused(c->req, c->ino, mask_of(c->fi->flags));
}

/*
 * With a file it is ftruncate(), which the kernel lets pass for who opened it for
 * writing; an open with O_TRUNC comes as an open and a setattr without one.
 * Owners are the kernel's to check.
 */
static bool may_set(const struct call *c)
{
	return c->fi || !(c->to_set & FUSE_SET_ATTR_SIZE) ||
	       !refused(c->req, c->ino, W_OK);
}

/* Others than user.* there are not, which the kernel is to hear. */
static bool may_get(const struct call *c)
{
	return strncmp(c->name, "user.", 5) || !refused(c->req, c->ino, R_OK);
}

/* What follows is what the kernel may keep of it. */
static bool may_see(const struct call *c, int mask)
{
	if (refused(c->req, c->ino, mask))
		return false;
	learn_way(c->req, c->ino);
	return true;
}

static bool may_list(const struct call *c)
{
	return may_see(c, R_OK);
}

static bool may_search(const struct call *c)
{
	return may_see(c, X_OK);
}

static bool may_change(const struct call *c)
{
	return !refused(c->req, c->ino, W_OK | X_OK);
}

static bool may_rename(const struct call *c)
{
	return may_change(c) && (c->to_dir == c->ino ||
				 !refused(c->req, c->to_dir, W_OK | X_OK));
}

/* It asks itself, and answers in any case. */
static bool may_any(const struct call *c)
{
	(void)c;
	return true;
}

/* The rest is what of a call is which argument. */
#define ASKED(op, may, use, decl, ...)                                        \
	static void op##_now(struct call *c)                                  \
	{                                                                     \
		if (may(c))                                                   \
			next.op use;                                          \
	}                                                                     \
	static void op##_asked decl                                           \
	{                                                                     \
		struct call c = { .req = req, .run = op##_now, __VA_ARGS__ }; \
                                                                              \
		take(&c);                                                     \
	}

ASKED(open, may_open, (c->req, c->ino, c->fi),
      (fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi), .ino = ino,
      .fi = fi)
ASKED(opendir, may_list, (c->req, c->ino, c->fi),
      (fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi), .ino = ino,
      .fi = fi)
ASKED(lookup, may_search, (c->req, c->ino, c->name),
      (fuse_req_t req, fuse_ino_t dir, const char *name), .ino = dir,
      .name = name)
ASKED(statfs, may_any, (c->req, c->ino), (fuse_req_t req, fuse_ino_t ino),
      .ino = ino)
ASKED(setattr, may_set, (c->req, c->ino, &c->attr, c->to_set, c->fi),
      (fuse_req_t req, fuse_ino_t ino, struct stat *attr, int to_set,
       struct fuse_file_info *fi),
      .ino = ino, .attr = *attr, .to_set = to_set, .fi = fi)
ASKED(getxattr, may_get, (c->req, c->ino, c->name, c->size),
      (fuse_req_t req, fuse_ino_t ino, const char *name, size_t size),
      .ino = ino, .name = name, .size = size)
ASKED(create, may_change, (c->req, c->ino, c->name, c->mode, c->fi),
      (fuse_req_t req, fuse_ino_t dir, const char *name, mode_t mode,
       struct fuse_file_info *fi),
      .ino = dir, .name = name, .mode = mode, .fi = fi)
ASKED(mknod, may_change, (c->req, c->ino, c->name, c->mode, c->rdev),
      (fuse_req_t req, fuse_ino_t dir, const char *name, mode_t mode,
       dev_t rdev),
      .ino = dir, .name = name, .mode = mode, .rdev = rdev)
ASKED(mkdir, may_change, (c->req, c->ino, c->name, c->mode),
      (fuse_req_t req, fuse_ino_t dir, const char *name, mode_t mode),
      .ino = dir, .name = name, .mode = mode)
ASKED(symlink, may_change, (c->req, c->to, c->ino, c->name),
      (fuse_req_t req, const char *to, fuse_ino_t dir, const char *name),
      .ino = dir, .name = name, .to = to)
ASKED(unlink, may_change, (c->req, c->ino, c->name),
      (fuse_req_t req, fuse_ino_t dir, const char *name), .ino = dir,
      .name = name)
ASKED(rmdir, may_change, (c->req, c->ino, c->name),
      (fuse_req_t req, fuse_ino_t dir, const char *name), .ino = dir,
      .name = name)
ASKED(rename, may_rename, (c->req, c->ino, c->name, c->to_dir, c->to, c->flags),
      (fuse_req_t req, fuse_ino_t dir, const char *name, fuse_ino_t to_dir,
       const char *to, unsigned flags),
      .ino = dir, .name = name, .to_dir = to_dir, .to = to, .flags = flags)

void fs_access_add(struct fuse_lowlevel_ops *ops)
{
	next = *ops;
	ops->open = open_asked;
	ops->opendir = opendir_asked;
	ops->lookup = lookup_asked;
	ops->statfs = statfs_asked;
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
