/* SPDX-License-Identifier: Apache-2.0 */
/* step.c - publishing by name, as often as one likes */
#include "core/publish/step.h"

#include "core/publish/recover.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <sys/stat.h>
#include <time.h>

#define BUSY_TRIES 40 /* two seconds */

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
