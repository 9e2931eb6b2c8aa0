/* SPDX-License-Identifier: Apache-2.0 */
/* recover.c - what crashes, and trainers that died, left as drafts */
#include "core/publish/recover.h"

#include "core/base/auto.h"
#include "core/base/check.h"
#include "core/base/vec.h"
#include "core/root/openat_beneath.h"
#include "core/draft/dir_tree.h"
#include "core/draft/draft.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define BUSY_TRIES 40 /* two seconds */

const char *const ck_draft_words[] = {
	[CK_DRAFT_WRITING] = "being written",
	[CK_DRAFT_OPEN] = "open",
	[CK_DRAFT_LEFT] = "left",
	[CK_DRAFT_BEGUN] = "publish broke off",
	[CK_DRAFT_PUBLISHED] = "published, not tidied up",
	[CK_DRAFT_POISONED] = "doomed",
};

void ck_draft_list_free(struct ck_draft_list *l)
{
	for (size_t i = 0; i < l->nr; i++)
		free(l->v[i].lacks);
	free(l->v);
	*l = (struct ck_draft_list){ 0 };
}

static int64_t changed_last(int64_t last, const struct ck_dir_tree *f)
{
	for (size_t i = 0; i < f->nr; i++)
		last = CK_MAX(last, CK_MAX(f->v[i].st.st_mtim.tv_sec,
					   f->v[i].st.st_ctim.tv_sec));
	return last;
}

static int measure_dir(int dir, struct ck_draft_info *out, struct ck_err *err)
{
	ck_auto_dir_tree struct ck_dir_tree f = { 0 };
	int ret = ck_dir_tree_list(&f, dir, err);

	if (ret)
		return ret;
	for (size_t i = 0; i < f.nr; i++)
		out->files += !S_ISDIR(f.v[i].st.st_mode);
	out->bytes += f.bytes;
	out->changed = changed_last(out->changed, &f);
	return 0;
}

static int measure(const struct ck_draft *s, struct ck_draft_info *out,
		   struct ck_err *err)
{
	/* the first tells only when: shards to be count once, in its files/ */
	static const char *const dirs[] = { CK_SLICES_DIR,
					    CK_SLICES_DIR "/files",
					    CK_DRAFT_FILES, CK_SLICES_SIBLING };
	int ret = 0;

	out->changed = CK_MAX(s->st.st_mtim.tv_sec, s->files_st.st_mtim.tv_sec);
	for (size_t i = 0; i < CK_ARRAY_LEN(dirs) && !ret; i++) {
		ck_auto_fd int fd = ck_beneath_dir(s->fd, dirs[i]);

		if (fd >= 0)
			ret = measure_dir(fd, out, err);
		if (!i)
			out->files = out->bytes = 0;
	}
	return ret;
}

static enum ck_draft_state state_of(struct ck_draft *s, char *why, size_t room)
{
	struct ck_draft_said said;
	struct ck_draft_use use;

	ck_draft_used(s, &use);
	ck_draft_look(s, &said);
	snprintf(why, room, "%s", said.doomed_why);
	if (said.doomed)
		return CK_DRAFT_POISONED;
	if (use.writing)
		return CK_DRAFT_WRITING;
	if (said.begun)
		return CK_DRAFT_BEGUN;
	return use.open ? CK_DRAFT_OPEN : CK_DRAFT_LEFT;
}

static void check(struct ck_draft *s, const struct ck_opts *opts,
		  struct ck_draft_info *out)
{
	const struct ck_commit_in in = { .opts = opts };
	struct ck_err err = { 0 };
	const char *at;

	out->complete = !ck_commit_check(s, &in, &err);
	at = strstr(err.msg, ": not complete: ");
	snprintf(out->why, sizeof(out->why), "%.500s",
		 at ? at + strlen(": not complete: ") : err.msg);
}

static void find_lacks(struct ck_draft *s, struct ck_draft_info *out)
{
	struct ck_slices *sl;

	if (ck_slices_open(&sl, s, NULL))
		return;
	ck_slices_lacks(sl, &out->lacks, &out->nr_lacks, NULL);
	ck_slices_close(sl);
}

static int look(struct ck_draft_info *out, const struct ck_root *root,
		const char *name, const struct ck_opts *opts, bool checks,
		struct ck_err *err)
{
	struct ck_draft *s;
	int ret = ck_draft_open(&s, root, name, err);

	*out = (struct ck_draft_info){ 0 };
	snprintf(out->name, sizeof(out->name), "%s", name);
	if (ret == -ENOENT) {
		ret = ck_draft_open_published(&s, root, name, err);
		out->state = CK_DRAFT_PUBLISHED;
	} else if (!ret) {
		out->state = state_of(s, out->why, sizeof(out->why));
	}
	if (ret)
		return ret;
	ret = measure(s, out, err);
	if (!ret && checks && out->state != CK_DRAFT_PUBLISHED &&
	    out->state != CK_DRAFT_POISONED)
		check(s, opts, out);
	if (!ret && checks && !out->complete &&
	    out->state != CK_DRAFT_PUBLISHED)
		find_lacks(s, out);
	ck_draft_close(s);
	return ret;
}

static int by_name(const void *a, const void *b)
{
	return strcmp(((const struct ck_draft_info *)a)->name,
		      ((const struct ck_draft_info *)b)->name);
}

/* The part of a directory's name that is the draft's; NULL: it is none. */
static const char *name_of(const char *dir)
{
	const size_t n = strlen(CK_DRAFT_PREFIX);

	return !strncmp(dir, CK_DRAFT_PREFIX, n) && ck_draft_name_ok(dir + n) ?
		       dir + n :
		       NULL;
}

static int take(struct ck_draft_list *l, const struct ck_root *root,
		const char *dir, const struct ck_opts *opts, bool checks,
		struct ck_err *err)
{
	const char *name = name_of(dir);
	struct ck_draft_info one;
	int ret;

	if (!name)
		return 0;
	ret = look(&one, root, name, opts, checks, err);
	if (ret == -ENOENT)
		return 0; /* gone meanwhile */
	if (ret)
		return ret;
	return ck_vec_put(l, err, one);
}

int ck_draft_list(struct ck_draft_list *out, const struct ck_root *root,
		  const struct ck_opts *opts, bool checks, struct ck_err *err)
{
	ck_auto_dir DIR *d = NULL;
	const struct dirent *e;
	int ret = ck_root_list(root, "", &d, err);

	*out = (struct ck_draft_list){ 0 };
	if (ret)
		return ret;
	while (!ret && (e = readdir(d)))
		ret = take(out, root, e->d_name, opts, checks, err);
	if (out->nr)
		qsort(out->v, out->nr, sizeof(*out->v), by_name);
	if (ret)
		ck_draft_list_free(out);
	return ret;
}

static int again(struct ck_draft *s, const struct ck_opts *opts,
		 struct ck_err *err)
{
	struct ck_draft_said said;
	const struct ck_draft_commit *r = &said.commit;
	struct ck_commit_in in = { .opts = opts };
	int ret = ck_draft_read(s, &said, err);

	if (ret || !said.begun)
		return ret;
	in.as = r->as;
	in.ranks = r->ranks;
	in.replace = r->replace;
	in.holes = r->holes;
	ret = ck_commit(s, &in, err);
	return ret ? ret : 1;
}

int ck_recover(const struct ck_root *root, const char *name,
	       const struct ck_opts *opts, struct ck_err *err)
{
	struct ck_draft *s;
	int ret = ck_commit_finish(root, name, err);

	if (!ret)
		return 1;
	if (ret != -ENOENT)
		return ret;
	ret = ck_draft_open(&s, root, name, err);
	if (ret)
		return ret;
	ret = again(s, opts, err);
	ck_draft_close(s);
	return ret;
}

static int old_enough(const struct ck_draft *s, int64_t age, struct ck_err *err)
{
	struct ck_draft_info now = { 0 };
	int64_t since;
	int ret = measure(s, &now, err);

	/* The clock of who wrote may be ahead of ours, if by a tick only. */
	since = CK_MAX((int64_t)time(NULL) - now.changed, 0);
	if (ret || since >= age)
		return ret;
	return ck_fail(err, EAGAIN, "%s: changed %" PRId64 " s ago", s->name,
		       since);
}

int ck_recover_gc(const struct ck_root *root, const char *name, int64_t age,
		  struct ck_err *err)
{
	struct ck_draft *s;
	int ret = ck_draft_open(&s, root, name, err);

	if (ret == -ENOENT)
		ret = ck_draft_open_published(&s, root, name, err);
	if (ret)
		return ret;
	ret = old_enough(s, age, err);
	if (!ret)
		ret = ck_draft_only_ours(s, err);
	if (!ret)
		ret = ck_draft_lock(s, err);
	if (!ret) {
		ret = ck_draft_remove(s, err);
		ck_draft_unlock(s);
	}
	ck_draft_close(s);
	return ret;
}

void ck_recover_sweep(const struct ck_root *root)
{
	ck_auto_dir DIR *d = NULL;
	const struct dirent *e;

	ck_root_list(root, "", &d, NULL);
	while (d && (e = readdir(d)))
		if (!strncmp(e->d_name, CK_DRAFT_GONE, strlen(CK_DRAFT_GONE)))
			ck_dir_tree_remove(dirfd(d), e->d_name, NULL);
}

/* ---- publishing by name, as often as one likes ---- */

/*
 * 1 where step @name was published as @as, as the manifest of that tells; a
 * folder without one was made by somebody else, perhaps for want of a mount.
 * @tree: that there was a draft of it is known.
 */
static int published(const struct ck_root *root, const char *name,
		     const char *as, bool tree, int ret, struct ck_err *err)
{
	char path[NAME_MAX + sizeof("/" CK_MANIFEST_NAME)];
	struct stat st;
	int n = snprintf(path, sizeof(path), "%s/%s", as, CK_MANIFEST_NAME);
	int was;

	if (fstatat(root->fd, as, &st, AT_SYMLINK_NOFOLLOW))
		return ret;
	if (n >= (int)sizeof(path) ||
	    fstatat(root->fd, path, &st, AT_SYMLINK_NOFOLLOW))
		return ck_fail(err, EEXIST,
			       "%s: is there, but not as something that was "
			       "published: it has no %s",
			       as, CK_MANIFEST_NAME);
	was = ck_commit_was(root, as, name);
	if (!was || (tree && was == -EOPNOTSUPP))
		return 1;
	return ck_fail(err, ENOENT,
		       was == -ENOENT ?
			       "%s: there is no draft of that name, and %s "
			       "was not published from it" :
			       "%s: there is no draft of that name, and on "
			       "this file system nothing says what %s was "
			       "published from",
		       name, as);
}

/* The kernel tells a mount of a close only after close() has returned. */
static int commit(struct ck_draft *s, const struct ck_commit_in *in,
		  struct ck_err *err)
{
	const struct timespec pause = { .tv_nsec = 50000000 };
	int ret = ck_commit(s, in, err);

	for (int n = 0; n < BUSY_TRIES && ret == -EBUSY; n++) {
		nanosleep(&pause, NULL);
		ret = ck_commit(s, in, err);
	}
	return ret;
}

int ck_publish_step(const struct ck_root *root, const char *name,
		    const struct ck_commit_in *in, struct ck_err *err)
{
	const char *as = in->as ? in->as : name;
	struct ck_draft *s;
	bool tree;
	int ret = ck_draft_open(&s, root, name, err);

	if (ret == -ENOENT) {
		/* what a publisher that was killed left is tidied up */
		tree = !ck_commit_finish(root, name, NULL);
		ret = published(root, name, as, tree, ret, err);
	} else if (!ret) {
		ret = commit(s, in, err);
		ck_draft_close(s);
		if (ret == -ESTALE)
			ret = published(root, name, as, true, ret, err);
	}
	/* some can be removed once nothing of it is open (sshfs, bindfs) */
	ck_recover_sweep(root);
	return ret;
}
