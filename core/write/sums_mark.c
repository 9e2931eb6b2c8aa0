/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sums_mark.c - names of files whose sums may be wrong, in an attribute
 *
 * An attribute of the directory and no file in it: nothing appears in a listing
 * and the directory's time stays.  One file's worth of names fits everywhere;
 * more than that many, and the mark says that it may be any.
 */
#include "core/write/sums_priv.h"

#include "core/base/auto.h"
#include "core/base/str.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/xattr.h>
#include <unistd.h>

/* Under the lock: what the mark should say. */
static void compose(const struct ck_sums *s, struct ck_str *out)
{
	const struct ck_catalog *img = s->r->in.img;

	for (size_t i = 0; i < s->marked.nr && !s->many; i++) {
		size_t len;
		const char *name = ck_catalog_str(
			img, img->srcs[s->marked.v[i]].name, &len);

		ck_str_add(out, name, len + 1);
	}
	if (s->many || out->len > CK_ROOT_MARK_MAX || out->failed) {
		out->len = 0;
		ck_str_add(out, "*", 2);
	}
}

/* Under the lock: makes the attribute of @fd say it, durably if it says more. */
static int put_attr(const struct ck_sums *s, int fd, bool more)
{
	ck_auto_str struct ck_str text = { 0 };
	int ret = 0;

	if (!s->marked.nr && !s->many)
		return fremovexattr(fd, CK_ROOT_MARK) ? -errno : 0;
	compose(s, &text);
	if (text.failed)
		return -ENOMEM;
	if (fsetxattr(fd, CK_ROOT_MARK, text.v, text.len, 0))
		ret = -errno;
	if (!ret && more && fsync(fd))
		ret = -errno;
	return ret;
}

/* Under the lock; of @src.  Where that is all there is, it has the attribute itself. */
static int put(const struct ck_sums *s, uint32_t src, bool more)
{
	struct ck_self_writes *w = s->r->self_writes;
	ck_auto_fd int fd = -1;
	bool ours;
	int ret;

	/* An overlay: the files are not being written, and stay unmarked. */
	if (s->r->in.over)
		return 0;
	fd = ck_root_open_marked(s->r->in.root);
	if (fd < 0)
		return -errno;
	ours = s->r->in.root->only &&
	       !ck_self_writes_begin(w, src, fd, 0, NULL);
	ret = put_attr(s, fd, more);
	if (ours)
		ck_self_writes_end(w, src, fd);
	return ret;
}

/* Filesystems without such attributes are written all the same. */
int ck_sum_mark(struct ck_sums *s, struct ck_sum_file *f, struct ck_err *err)
{
	uint32_t *src;
	int ret = 0;

	pthread_mutex_lock(&s->lock);
	src = s->unmarkable ? NULL : ck_vec_push(&s->marked);
	if (src) {
		*src = f->src;
		s->many |= s->marked.nr > CK_ROOT_MARK_MAX / 2;
		ret = put(s, f->src, true);
		if (ret == -EOPNOTSUPP || ret == -EPERM || ret == -EACCES) {
			s->unmarkable = true;
			ret = 0;
		}
	}
	f->marked = !ret;
	pthread_mutex_unlock(&s->lock);
	return ret ? ck_fail(err, -ret,
			     "%s: cannot note that it is being written: %s",
			     ck_bytes_name(s->r, f->src), strerror(-ret)) :
		     0;
}

void ck_sum_unmark(struct ck_sums *s, struct ck_sum_file *f)
{
	pthread_mutex_lock(&s->lock);
	for (size_t i = 0; i < s->marked.nr; i++)
		if (s->marked.v[i] == f->src) {
			s->marked.v[i] = s->marked.v[--s->marked.nr];
			break;
		}
	s->many &= s->marked.nr != 0;
	if (!s->unmarkable)
		put(s, f->src, false);
	f->marked = false;
	pthread_mutex_unlock(&s->lock);
}

/* The first source from @i on that @names holds; nr_srcs: none. */
static uint32_t next_named(const struct ck_catalog *img, uint32_t i,
			   const char *names, size_t len)
{
	for (; len && i < img->nr_srcs; i++)
		if (img->srcs[i].kind == CK_SRC_FILE &&
		    img->srcs[i].state != CK_MISSING &&
		    ck_root_mark_has(
			    names, len,
			    ck_catalog_str(img, img->srcs[i].name, NULL)))
			return i;
	return img->nr_srcs;
}

bool ck_sum_read_mark(struct ck_sums *s)
{
	const struct ck_catalog *img = s->r->in.img;
	char names[CK_ROOT_MARK_MAX + 1];
	size_t len = ck_root_mark(s->r->in.root, names);
	uint32_t named = next_named(img, 0, names, len);

	for (uint32_t i = 0; i < img->nr_srcs; i++) {
		bool unsure = s->found.unsure &&
			      img->srcs[i].kind == CK_SRC_FILE &&
			      img->srcs[i].state != CK_MISSING &&
			      s->found.unsure(s->found.ctx, i);
		struct ck_sum_file *f =
			i == named || unsure ? ck_sum_file(s, i) : NULL;

		/* also if somebody writes to it, and syncs, meanwhile */
		if (f && !ck_vec_put(&s->marked, NULL, i))
			f->marked = f->left = true;
		if (i == named)
			named = next_named(img, i + 1, names, len);
	}
	return s->marked.nr;
}

bool ck_sums_are_marked(const struct ck_root *root)
{
	char names[CK_ROOT_MARK_MAX + 1];

	return ck_root_mark(root, names);
}

void ck_sums_warn(const struct ck_catalog *img, const struct ck_root *root,
		  const struct ck_sums_found *found)
{
	char names[CK_ROOT_MARK_MAX + 1];
	size_t len = ck_root_mark(root, names);

	for (uint32_t i = 0;
	     (i = next_named(img, i, names, len)) < img->nr_srcs; i++)
		found->said(found->ctx, i,
			    "is being written, or its mount ended while it "
			    "was: its checksums may be wrong until it is "
			    "mounted with -o rw");
}
