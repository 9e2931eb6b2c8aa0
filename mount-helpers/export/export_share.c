/* SPDX-License-Identifier: Apache-2.0 */
/*
 * export_share.c - bytes that the filesystem copies by itself, if it can
 *
 * Where a file of a view shows what lies in a source as it is, and both at the
 * same place of a block, FICLONERANGE shares the blocks (XFS, Btrfs, some NFS).
 * Their digests are of what was read of them, as ever.  All else, and all of
 * it elsewhere, is written: copy_file_range() would be a second copy there.
 */
#include "mount-helpers/export/export.h"

#include "core/base/auto.h"
#include "core/base/check.h"
#include "core/base/whole.h"
#include "core/root/root.h"

#include <errno.h>
#include <linux/fs.h>
#include <string.h>
#include <sys/ioctl.h>

#define BLOCK UINT64_C(4096)
#define LEAST (UINT64_C(64) << 10) /* less is not worth opening its source */

/* Bytes of the file that is written. */
struct range {
	uint64_t begin, end;
};

static bool is_as_it_was(const struct ck_src *src, int fd)
{
	struct ck_id now;
	struct stat st;

	if (fstat(fd, &st))
		return false;
	now = ck_id_of(&st);
	return ck_id_compare(&src->id, &now) <= CK_ID_TOUCHED;
}

/* All of @r, or none of it where the filesystem does not. */
static void share(struct export *x, const struct ck_raw_extent *from, int fd,
		  struct range *r)
{
	const struct ck_catalog *img = x->view->img;
	const struct ck_src *src = &img->srcs[from->src];
	ck_auto_fd int source = -1;
	struct file_clone_range range = { .src_offset = from->off,
					  .src_length = r->end - r->begin,
					  .dest_offset = r->begin };
	struct stat st;

	if (!ck_root_open_file(ck_ckpt_root(x->view->ck),
			       ck_catalog_str(img, src->name, NULL), &source,
			       &st, NULL) &&
	    is_as_it_was(src, source)) {
		range.src_fd = source;
		if (!ioctl(fd, FICLONERANGE, &range) &&
		    is_as_it_was(src, source))
			return;
	}
	x->no_share = true; /* it cannot: not asked again */
	r->end = r->begin;
}

/*
 * What of bytes [off, off + *len) of a file can be shared: a part in the
 * middle, maybe empty.  *len becomes how far that is said.
 */
static struct range find(struct export *x, uint32_t nr, uint64_t off,
			 uint64_t *len, struct ck_raw_extent *from)
{
	struct range none = { off, off }, r;
	struct ck_span span;

	x->view->ops->at(x->view, nr, off, &span);
	*len = CK_MIN(*len, span.len);
	if (x->no_share || span.kind != CK_SPAN_TENSOR ||
	    !ck_ckpt_raw_extent(x->view->ck, span.ref, span.off, *len, from))
		return none;
	*len = CK_MIN(*len, from->len);
	r.begin = CK_DIV_UP(off, BLOCK) * BLOCK;
	r.end = (off + *len) / BLOCK * BLOCK;
	if ((from->off - off) % BLOCK || r.end < r.begin + LEAST)
		return none;
	from->off += r.begin - off;
	return r;
}

int export_put(struct export *x, uint32_t nr, int fd, const unsigned char *buf,
	       uint64_t len, uint64_t off, uint64_t *shared)
{
	uint64_t end = off + len, at = off, n;
	int ret = 0;

	*shared = 0;
	if (x->no_share)
		return ck_pwrite_whole(fd, buf, len, off);
	for (; at < end && !ret; at += n) {
		struct ck_raw_extent from;
		struct range r;

		n = end - at;
		r = find(x, nr, at, &n, &from);
		if (!n)
			return -EIO;
		if (r.end > r.begin)
			share(x, &from, fd, &r);
		*shared += r.end - r.begin;
		ret = ck_pwrite_whole(fd, buf + (at - off), r.begin - at, at);
		if (!ret)
			ret = ck_pwrite_whole(fd, buf + (r.end - off),
					      at + n - r.end, r.end);
	}
	return ret;
}
