/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ckpt_writer_lock.c - the part of the facade that keeps a second writer out
 *
 * The locks (root/writer_lock.h) are taken when the first file is opened for
 * writing, so that mounts which could write, and do not, are in nobody's way.
 */
#include "core/ckpt/ckpt_priv.h"

#include "core/base/auto.h"
#include "core/base/fds.h"
#include "core/root/writer_lock.h"
#include "core/redo/redo.h"
#include "core/manifest/sealed.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

/* A file given alone has no lock but its own. */
static int try_only(struct ck_ckpt *ck, struct ck_err *err)
{
	int ret = 0;

	for (uint32_t i = 0; ck->root.only && !ret && i < ck->img.nr_srcs; i++)
		ret = ck_writer_try(ck->writer, i, err);
	return ret;
}

/* The manifest that a file has by itself; too long a name has none. */
static bool is_sealed_alone(const struct ck_root *root, const char *name)
{
	const char *slash = strrchr(name, '/');
	int dir = slash ? (int)(slash + 1 - name) : 0;
	char path[PATH_MAX];
	int n = snprintf(path, sizeof(path), "%.*s" CK_MANIFEST_OURS "%s%s",
			 dir, name, name + dir, CK_MANIFEST_ALONE);

	return n >= 0 && (size_t)n < sizeof(path) && ck_fds_has(root->fd, path);
}

/* A manifest of another checkpoint that has the same file would not follow. */
static int no_other_seal(const struct ck_ckpt *ck, struct ck_err *err)
{
	if (ck->root.only && ck_fds_has(ck->root.fd, CK_MANIFEST_NAME))
		return ck_fail(err, EROFS,
			       "%s/%s: is sealed as a part of its directory: "
			       "mount that for writing",
			       ck->root.path, ck->root.only);
	for (uint32_t i = 0; !ck->root.only && i < ck->img.nr_srcs; i++) {
		const struct ck_src *src = &ck->img.srcs[i];
		const char *name = ck_catalog_str(&ck->img, src->name, NULL);

		if (src->kind == CK_SRC_FILE &&
		    is_sealed_alone(&ck->root, name))
			return ck_fail(err, EROFS,
				       "%s/%s: is sealed by itself, which a "
				       "write would make untrue: remove "
				       "its " CK_MANIFEST_OURS
				       "*" CK_MANIFEST_ALONE
				       ", and seal the directory",
				       ck->root.path, name);
	}
	return 0;
}

/* It would be ended by who holds the checkpoint, over what we write now. */
static int no_redo(struct ck_ckpt *ck, struct ck_err *err)
{
	char name[NAME_MAX + 1];

	if (!ck->serves || !ck_redo_is_left(&ck->root, name))
		return 0;
	return ck_fail(err, EBUSY,
		       "%s: the replacement of a tensor by another mount broke "
		       "off half-way (%s); unmount and mount again",
		       ck->root.path, name);
}

static int take(struct ck_ckpt *ck, struct ck_err *err)
{
	const struct ck_sums_found found = { .said = ck_ckpt_said,
					     .corrupt = ck_ckpt_is_corrupt,
					     .ctx = ck };
	int ret = ck_writer_lock_take(&ck->writer_lock, &ck->root, err);

	if (!ret)
		ret = try_only(ck, err);
	if (!ret)
		ret = no_other_seal(ck, err);
	if (!ret)
		ret = no_redo(ck, err);
	if (!ret)
		ret = ck_ckpt_seal_lock(ck, err);
	if (ret) {
		ck_writer_lock_drop(ck->writer_lock);
		ck->writer_lock = NULL;
		return ret;
	}
	ck_sums_repair(ck->writer->sums, &found);
	atomic_store(&ck->held, true);
	return 0;
}

int ck_ckpt_lock_writer(struct ck_ckpt *ck, struct ck_err *err)
{
	int ret = 0;

	if (!ck->writer || ck->overlay || atomic_load(&ck->held))
		return 0;
	pthread_mutex_lock(&ck->writer_lock_mutex);
	if (!atomic_load(&ck->held))
		ret = take(ck, err);
	pthread_mutex_unlock(&ck->writer_lock_mutex);
	if (ret == -EBUSY)
		ck_ckpt_view_problem(ck, "-o rw", CK_NONE, CK_VIEW_NOT_MEANT,
				     err->msg);
	return ret;
}

int ck_ckpt_recover_killed(struct ck_ckpt *ck, struct ck_err *err)
{
	struct ck_sums_found found = { .said = ck_ckpt_said, .ctx = ck };
	char name[NAME_MAX + 1];
	bool redo;
	int ret;

	if (!ck->writer)
		return 0;
	if (ck->overlay) {
		found.unsure = ck_ckpt_overlay_unsure;
		ck_sums_repair(ck->writer->sums, &found);
		return 0;
	}
	redo = ck_redo_is_left(&ck->root, name);
	if (!redo && !ck_sums_are_marked(&ck->root) &&
	    !ck_sealed_is_edited(&ck->root)) {
		ck_writer_lock_sweep(&ck->root);
		return 0;
	}
	if (ck->unsealed && redo)
		return 0; /* it is tried, and what is refused is said */
	ret = ck->unsealed ? -EROFS : ck_ckpt_lock_writer(ck, err);
	if (!ret || redo)
		return ret;
	/* for reading it will do */
	ck_sums_warn(&ck->img, &ck->root, &found);
	return 0;
}

/* ---- for who reads all of it, and wants it to be of one moment ---- */

/* @most: what it may be at most. */
static int compare(const struct ck_root *root, const struct ck_src *src,
		   const char *name, const struct stat *st, enum ck_id_now most,
		   struct ck_err *err)
{
	struct ck_id now = ck_id_of(st);

	if (root->served)
		ck_id_as(&now, &src->id);
	if (ck_id_compare(&src->id, &now) <= most)
		return 0;
	return ck_fail_at(err, ESTALE, name, CK_NOWHERE,
			  "%s: was changed meanwhile", name);
}

static int file_at_rest(struct ck_ckpt *ck, const struct ck_src *src,
			struct ck_err *err)
{
	const char *name = ck_catalog_str(&ck->img, src->name, NULL);
	ck_auto_fd int fd = -1;
	struct stat st;
	int ret;

	/* what cannot be read is said by who needs it */
	if (ck_root_open_file(&ck->root, name, &fd, &st, NULL))
		return 0;
	ret = ck_writer_lock_file_look(fd, name, err);
	if (ret)
		return ret;
	return compare(&ck->root, src, name, &st, CK_ID_SAME, err);
}

int ck_ckpt_same_files(struct ck_ckpt *ck, uint32_t most, struct ck_err *err)
{
	uint32_t step = ck->img.nr_srcs / most + 1;

	for (uint32_t i = 0; i < ck->img.nr_srcs; i += step) {
		const struct ck_src *src = &ck->img.srcs[i];
		const char *name = ck_catalog_str(&ck->img, src->name, NULL);
		ck_auto_fd int fd = -1;
		struct stat st;
		int ret;

		if (src->kind != CK_SRC_FILE || src->state == CK_MISSING ||
		    ck_root_open_file(&ck->root, name, &fd, &st, NULL))
			continue;
		/* whoever reads one that was touched finds that himself */
		ret = compare(&ck->root, src, name, &st, CK_ID_TOUCHED, err);
		if (ret)
			return ck_wrap(err, ret, "%s", ck->root.path);
	}
	return 0;
}

int ck_ckpt_unchanged(struct ck_ckpt *ck, const unsigned char *srcs,
		      uint64_t *touch, struct ck_err *err)
{
	int ret = 0;

	*touch = 0;
	for (uint32_t i = 0; !ret && i < ck->img.nr_srcs; i++) {
		const struct ck_src *src = &ck->img.srcs[i];
		const char *name = ck_catalog_str(&ck->img, src->name, NULL);
		struct stat st;

		if (!(srcs[i / 8] & 1u << i % 8) || src->kind != CK_SRC_FILE)
			continue;
		ret = ck_root_stat_file(&ck->root, name, &st, err);
		if (ret ||
		    !compare(&ck->root, src, name, &st, CK_ID_SAME, NULL))
			continue;
		ret = compare(&ck->root, src, name, &st, CK_ID_TOUCHED, err);
		*touch = *touch * 31 + (uint64_t)ck_ns(st.st_ctim);
	}
	return ret;
}

bool ck_ckpt_settled(const struct ck_ckpt *ck, double seconds)
{
	struct timespec now;
	double before;

	clock_gettime(CLOCK_REALTIME, &now);
	before = (double)ck_ns(now) - seconds * 1e9;
	for (uint32_t i = 0; seconds > 0 && i < ck->img.nr_srcs; i++) {
		const struct ck_src *src = &ck->img.srcs[i];

		if (src->kind == CK_SRC_FILE && src->state != CK_MISSING &&
		    (double)src->id.mtime_ns > before)
			return false;
	}
	return true;
}

int ck_ckpt_open_src(struct ck_ckpt *ck, uint32_t src, int *fd)
{
	const struct ck_src *s = &ck->img.srcs[src];
	const char *name = ck_catalog_str(&ck->img, s->name, NULL);
	ck_auto_fd int own = -1;
	struct stat st;
	int ret = ck_root_open_file(&ck->root, name, &own, &st, NULL);

	if (!ret)
		ret = compare(&ck->root, s, name, &st, CK_ID_SAME, NULL);
	if (!ret)
		*fd = ck_steal_fd(own);
	return ret;
}

int ck_ckpt_at_rest(struct ck_ckpt *ck, bool held, struct ck_err *err)
{
	int ret = held ? 0 : ck_writer_lock_look(&ck->root, err);

	for (uint32_t i = 0; !ret && i < ck->img.nr_srcs; i++) {
		const struct ck_src *src = &ck->img.srcs[i];

		if (src->kind == CK_SRC_FILE && src->state != CK_MISSING)
			ret = file_at_rest(ck, src, err);
	}
	return ret;
}
