/* SPDX-License-Identifier: Apache-2.0 */
/*
 * container_mark.c - names of files whose sums may be wrong, in an attribute
 *
 * An attribute of the directory and no file in it: nothing appears in a listing
 * and the directory's time stays.  One file's worth of names fits everywhere;
 * more than that many, and the mark says that it may be any.
 */
#include "core/write/container_priv.h"

#include "core/base/auto.h"
#include "core/base/str.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/xattr.h>
#include <unistd.h>

#define MAX_MARK 2000

static int open_marked(const struct ck_root *root)
{
	struct stat st;
	int fd;

	if (!root->only)
		return openat(root->fd, ".",
			      O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	return ck_root_open_file(root, root->only, &fd, &st, NULL) ? -1 : fd;
}

/* Under the lock: what the mark should say. */
static void compose(const struct ck_sums *s, struct ck_str *out)
{
	const struct ck_image *img = s->r->in.img;

	for (size_t i = 0; i < s->marked.nr && !s->many; i++) {
		size_t len;
		const char *name =
			ck_image_str(img, img->srcs[s->marked.v[i]].name, &len);

		ck_str_add(out, name, len + 1);
	}
	if (s->many || out->len > MAX_MARK || out->failed) {
		out->len = 0;
		ck_str_add(out, "*", 2);
	}
}

/* Under the lock: makes the attribute say it, durably if it says more. */
static int put(struct ck_sums *s, bool more)
{
	ck_auto_str struct ck_str text = { 0 };
	ck_auto_fd int fd = -1;
	int ret = 0;

	/* An overlay: the files are not being written, and stay unmarked. */
	if (s->r->in.over)
		return 0;
	fd = open_marked(s->r->in.root);
	if (fd < 0)
		return -errno;
	if (!s->marked.nr && !s->many)
		return fremovexattr(fd, CK_SUMS_MARK) ? -errno : 0;
	compose(s, &text);
	if (text.failed)
		return -ENOMEM;
	if (fsetxattr(fd, CK_SUMS_MARK, text.v, text.len, 0))
		ret = -errno;
	if (!ret && more && fsync(fd))
		ret = -errno;
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
		s->many |= s->marked.nr > MAX_MARK / 2;
		ret = put(s, true);
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
		put(s, false);
	f->marked = false;
	pthread_mutex_unlock(&s->lock);
}

static bool named(const char *names, size_t len, const char *name)
{
	if (len == 2 && names[0] == '*')
		return true;
	for (size_t at = 0; at < len; at += strlen(names + at) + 1)
		if (!strcmp(names + at, name))
			return true;
	return false;
}

static int names_of(const struct ck_root *root, char names[MAX_MARK + 1])
{
	ck_auto_fd int fd = open_marked(root);
	ssize_t len =
		fd < 0 ? -1 : fgetxattr(fd, CK_SUMS_MARK, names, MAX_MARK);

	if (len < 0)
		return 0;
	names[len] = '\0';
	return (int)len;
}

/* The first source from @i on that @names holds; nr_srcs: none. */
static uint32_t next_named(const struct ck_image *img, uint32_t i,
			   const char *names, int len)
{
	for (; len && i < img->nr_srcs; i++)
		if (img->srcs[i].kind == CK_SRC_FILE &&
		    img->srcs[i].state != CK_MISSING &&
		    named(names, (size_t)len,
			  ck_image_str(img, img->srcs[i].name, NULL)))
			return i;
	return img->nr_srcs;
}

void ck_sum_read_mark(struct ck_sums *s)
{
	const struct ck_image *img = s->r->in.img;
	char names[MAX_MARK + 1];
	int len = names_of(s->r->in.root, names);

	for (uint32_t i = 0;
	     (i = next_named(img, i, names, len)) < img->nr_srcs; i++)
		if (ck_vec_reserve(&s->damaged, 1) &&
		    ck_vec_reserve(&s->marked, 1)) {
			s->damaged.v[s->damaged.nr++] = i;
			s->marked.v[s->marked.nr++] = i;
		}
}

bool ck_sums_are_marked(const struct ck_root *root)
{
	char names[MAX_MARK + 1];

	return names_of(root, names);
}

void ck_sums_warn(const struct ck_image *img, const struct ck_root *root,
		  const struct ck_sums_found *found)
{
	char names[MAX_MARK + 1];
	int len = names_of(root, names);

	for (uint32_t i = 0;
	     (i = next_named(img, i, names, len)) < img->nr_srcs; i++)
		found->said(found->ctx, i,
			    "is being written, or its mount ended while it "
			    "was: its checksums may be wrong until it is "
			    "mounted with -o rw");
}
