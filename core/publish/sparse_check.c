/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sparse_check.c - where nobody wrote, by SEEK_HOLE
 *
 * Blocks that were only reserved (fallocate) are holes until they are written;
 * pages that were written and are not on storage yet are none.  What is less
 * than a block of the file system is not seen.
 */
#include "core/publish/sparse_check.h"

#include "core/base/auto.h"
#include "core/base/check.h"
#include "core/base/fds.h"
#include "core/base/whole.h"
#include "core/ckpt/ckpt.h"
#include "core/root/openat_beneath.h"
#include "core/manifest/hash.h"
#include "core/seal/verify.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define PROBE \
	((size_t)1 << 20) /* a record of ZFS, unless somebody chose more */

static bool next_hole(int fd, uint64_t size, uint64_t *off, uint64_t *len)
{
	off_t hole = lseek(fd, (off_t)*off, SEEK_HOLE), end;

	if (hole < 0 || (uint64_t)hole >= size)
		return false;
	end = lseek(fd, hole, SEEK_DATA);
	if (end < 0 && errno != ENXIO)
		return false;
	*off = (uint64_t)hole;
	*len = (end < 0 ? size : CK_MIN(size, (uint64_t)end)) - *off;
	return *len;
}

bool ck_sparse_any(const struct ck_dir_tree *files, int dir)
{
	for (size_t i = 0; i < files->nr; i++) {
		const struct ck_dir_tree_file *f = &files->v[i];
		ck_auto_fd int fd = -1;
		uint64_t off = 0, len;

		if (!S_ISREG(f->st.st_mode) || !f->st.st_size)
			continue;
		fd = ck_beneath_file(dir, f->path, O_RDONLY);
		if (fd >= 0 &&
		    next_hole(fd, (uint64_t)f->st.st_size, &off, &len))
			return true;
	}
	return false;
}

bool ck_sparse_from_zeros(int dir)
{
	ck_auto_free void *zeros = calloc(1, PROBE);
	ck_auto_fd int fd = ck_fds_nameless(dir);
	uint64_t off = 0, len;

	return zeros && fd >= 0 && !ck_pwrite_whole(fd, zeros, PROBE, 0) &&
	       !fsync(fd) && next_hole(fd, PROBE, &off, &len);
}

/* ---- whose they are ---- */

struct look {
	const struct ck_ckpt *ck;
	struct ck_corrupt_finder finder;
	uint32_t tensor; /* the first that has bytes there, or CK_NONE */
};

static void found(void *ctx, const struct ck_corrupt_elements *s)
{
	struct look *l = ctx;

	l->tensor = CK_MIN(l->tensor, s->tensor);
}

/* Sets whose it is.  False: nobody's, padding between what is known. */
static bool counts(struct look *l, struct ck_hole *h, int *ret,
		   struct ck_err *err)
{
	const struct ck_catalog *img = l->finder.img;
	uint32_t i = 0;

	l->tensor = CK_NONE;
	h->of = NULL;
	*ret = ck_corrupt_finder_find(&l->finder, h->file, h->off, h->len, err);
	if (*ret)
		return false;
	if (l->tensor != CK_NONE) {
		h->of = ck_catalog_str(img, img->tensors[l->tensor].name, NULL);
		return true;
	}
	while (i < img->nr_objects &&
	       !ck_corrupt_finder_object(img, i, h->file, h->off, h->len))
		i++;
	if (i < img->nr_objects)
		h->of = ck_catalog_str(img, img->objects[i].name, NULL);
	return h->of || l->finder.src == CK_NONE;
}

static int look_at(struct look *l, const char *file, ck_hole_fn each, void *ctx,
		   struct ck_err *err)
{
	const struct ck_root *root = ck_ckpt_root(l->ck);
	struct ck_hole h = { .file = file };
	ck_auto_fd int fd = -1;
	struct stat st;
	int ret = 0;

	/* what cannot be read is said by who needs it */
	if (ck_root_open_file(root, file, &fd, &st, NULL))
		return 0;
	while (!ret && next_hole(fd, (uint64_t)st.st_size, &h.off, &h.len)) {
		if (counts(l, &h, &ret, err))
			ret = each(ctx, &h, err);
		h.off += h.len;
	}
	return ret > 0 ? 0 : ret;
}

int ck_sparse_each(struct ck_ckpt *ck, ck_hole_fn each, void *ctx,
		   struct ck_err *err)
{
	ck_auto_hash_list struct ck_hash_list all = { 0 };
	struct look l = {
		.ck = ck,
		.finder = { .img = ck_ckpt_catalog(ck),
			    .resolved = ck_ckpt_resolved(ck),
			    .ctx = &l,
			    .each = found,
			    .elements = true },
	};
	int ret = ck_hash_list(&all, ck_ckpt_root(ck), err);

	for (size_t i = 0; !ret && i < all.nr; i++)
		ret = look_at(&l, all.v[i].name, each, ctx, err);
	ck_corrupt_finder_free(&l.finder);
	return ret;
}

static int refuse(void *ctx, const struct ck_hole *h, struct ck_err *err)
{
	(void)ctx;
	return ck_fail(err, ENODATA,
		       "%s: bytes %" PRIu64 " to %" PRIu64 "%s%s%s are a hole: "
		       "zeros that perhaps nobody wrote; if they are meant: "
		       "unshard publish --allow-holes",
		       h->file, h->off, h->off + h->len, h->of ? ", of " : "",
		       h->of ? h->of : "", h->of ? "," : "");
}

int ck_sparse_check(struct ck_ckpt *ck, struct ck_err *err)
{
	return ck_sparse_each(ck, refuse, NULL, err);
}
