/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ops_slices_siblings.c - files in folders of slices that have names of none
 *
 * Tools write .NAME.XXXXXX, or NAME.tmp, and rename it.  Such a file is one of
 * the draft as those of shards/ are (draft_tree_siblings.c), kept apart.  When
 * it is renamed to a slice, and is as long, its bytes become the slice's, which
 * are copied, and it goes; the kernel, which thinks that it has moved, is told
 * ESTALE and looks again.  In the step's own folder only temporary names of the
 * layout are taken, for whatever else is meant for shards/.
 */
#include "fs/draft/ops_draft.h"

#include "core/base/auto.h"
#include "core/base/clock.h"
#include "fs/kernel/buf.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <stdlib.h>
#include <string.h>

/* The folder for other files of folder @r. */
static int folder(const struct fs_draft_ref *r, bool make, uint64_t *dir)
{
	char key[24];

	if (!fs_slices_key(r, key))
		return make ? -EPERM : -ENOENT;
	return fs_draft_tree_sibling(r->s->files, key, make, dir);
}

int fs_siblings_lookup(const struct fs_draft_ref *r, const char *name,
		       struct fs_draft_tree_node *out)
{
	uint64_t dir;
	int ret = folder(r, false, &dir);

	return ret ? ret : fs_draft_tree_lookup(r->s->files, dir, name, out);
}

int fs_siblings_list(const struct fs_draft_ref *r, struct fs_shard_list *l)
{
	struct fs_shard_list *own = NULL;
	uint64_t dir;
	int ret = folder(r, false, &dir);

	if (!ret)
		ret = fs_draft_tree_list(r->s->files, dir, &own);
	if (ret)
		return ret == -ENOENT ? 0 : ret;
	for (size_t i = 2; i < own->nr; i++) /* without . and .. */
		fs_shards_list_add(l, own->v[i].name, own->v[i].ino, S_IFREG);
	fs_shards_list_free(own);
	return 0;
}

static bool may_be_called(const struct fs_draft_ref *r, const char *name)
{
	return r->ino != FS_INO_ROOT || fs_draft_is_temp(name, FS_LAYOUT_NAME);
}

int fs_siblings_create(const struct fs_draft_ref *r, const char *name,
		       mode_t mode, int flags,
		       const struct fs_draft_tree_who *who,
		       struct fs_draft_tree_node *out,
		       struct fs_draft_tree_file **f)
{
	uint64_t dir;
	int ret = may_be_called(r, name) ? folder(r, true, &dir) : -EPERM;

	return ret ? ret :
		     fs_draft_tree_create(r->s->files, dir, name, mode, flags,
					  who, out, f);
}

int fs_siblings_remove(const struct fs_draft_ref *r, const char *name,
		       const struct fs_draft_tree_who *who)
{
	uint64_t dir;
	int ret = folder(r, false, &dir);

	return ret ? ret :
		     fs_draft_tree_unlink(r->s->files, dir, name, false, who);
}

/* ---- it becomes a slice, or the layout ---- */

/* One that waits: where it is, what it is called, and itself. */
struct waiting {
	const struct fs_draft_ref *r;
	struct fs_draft_tree *files;
	const char *name;
	uint64_t dir;
	struct fs_draft_tree_node node;
	struct fs_draft_tree_file *f; /* open for reading */
};

static int copy(const struct waiting *w, struct ck_slice of, char *buf,
		struct ck_err *err)
{
	struct ck_slices *sl = fs_draft_tree_slices(w->files);
	uint64_t size = (uint64_t)w->node.st.st_size;
	size_t got = 0;
	int ret = ck_slice_empty(sl, of, err);

	for (uint64_t at = 0; at < size && !ret; at += got) {
		ret = fs_draft_tree_read(w->f, buf, FS_MAX_IO, at, &got, err);
		if (!ret && !got)
			ret = ck_fail(err, EIO, "%s: became shorter", w->name);
		if (!ret)
			ret = ck_slice_write(sl, of, buf, got, at, false, err);
	}
	if (!ret)
		ret = fs_draft_tree_check_kept(w->files, w->f, err);
	return ret;
}

/* What is not there as a whole is not there at all. */
static int copy_whole(const struct waiting *w, struct ck_slice of,
		      struct ck_err *err)
{
	char *buf = fs_buf_get();
	int ret = buf ? fs_draft_tree_begin(w->files) : -ENOMEM;

	if (!ret) {
		ret = copy(w, of, buf, err);
		if (ret)
			ck_slice_empty(fs_draft_tree_slices(w->files), of,
				       NULL);
		fs_draft_tree_end(w->files);
	}
	fs_buf_put(buf);
	return ret;
}

static int to_slice(const struct waiting *w, uint64_t ino, const char *as,
		    struct ck_slice of, struct ck_err *err)
{
	uint64_t size = ck_slice_size(fs_draft_tree_slices(w->files), of);
	int ret;

	if ((uint64_t)w->node.st.st_size != size)
		return ck_fail(err, EINVAL,
			       "%s: %s has %lld bytes, and the slice %s has "
			       "%llu: it stays as it was",
			       CK_DRAFT_NAME(fs_draft_tree_draft(w->files)),
			       w->name, (long long)w->node.st.st_size, as,
			       (unsigned long long)size);
	ret = copy_whole(w, of, err);
	if (!ret)
		ret = fs_slices_made(w->r, ino, &w->node.st);
	if (!ret)
		atomic_store(&w->r->s->copied_s, ck_now_s());
	return ret;
}

static int to_layout(const struct waiting *w, struct ck_err *err)
{
	size_t len = (size_t)w->node.st.st_size, got = 0;
	ck_auto_free char *text = NULL;
	int ret;

	if (len > FS_LAYOUT_MAX)
		return -EFBIG;
	text = malloc(len + 1);
	if (!text)
		return -ENOMEM;
	ret = fs_draft_tree_read(w->f, text, len, 0, &got, err);
	if (!ret && got != len)
		ret = ck_fail(err, EIO, "%s: became shorter", w->name);
	return ret ? ret : fs_draft_cut(w->r->drafts, w->r->s, text, len, err);
}

static int close_off(const struct waiting *w, struct ck_err *err)
{
	if (fs_draft_tree_close_off(w->files, w->node.ino))
		return 0;
	return ck_fail(err, EBUSY,
		       "%s: %s is open for writing: it is to be closed before "
		       "it becomes a slice",
		       CK_DRAFT_NAME(fs_draft_tree_draft(w->files)), w->name);
}

static int become(struct waiting *w, uint64_t ino, const char *as,
		  struct ck_err *err)
{
	struct ck_slice of;
	bool slice = fs_slices_of(w->r, ino, &of);
	int ret = close_off(w, err);

	if (ret)
		return ret;
	/* what was written until it was closed */
	ret = fs_draft_tree_open(w->files, w->node.ino, O_RDONLY, &w->f);
	if (!ret) {
		ret = fs_draft_tree_stat(w->files, w->node.ino, w->f,
					 &w->node.st);
		if (!ret)
			ret = slice ? to_slice(w, ino, as, of, err) :
				      to_layout(w, err);
		fs_draft_tree_release(w->files, w->f);
	}
	if (!ret)
		ret = fs_draft_tree_unlink(w->files, w->dir, w->name, false,
					   NULL);
	fs_draft_tree_let_open(w->files, w->node.ino);
	return ret;
}

/* ---- renames ---- */

/* What @to is called there: a slice, the layout, or 0. */
static uint64_t meant(const struct fs_draft_ref *to, const char *name)
{
	if (to->ino == FS_INO_ROOT && !strcmp(name, FS_LAYOUT_NAME))
		return FS_DRAFT_LAYOUT;
	return fs_slices_find(to, name);
}

static int rename_onto(struct waiting *w, const struct fs_draft_ref *to,
		       const char *name, uint64_t ino, unsigned flags,
		       struct ck_err *err)
{
	struct ck_slice of;

	if (ino != FS_DRAFT_LAYOUT && !fs_slices_of(to, ino, &of))
		return -EISDIR;
	if (flags & ~(unsigned)RENAME_NOREPLACE)
		return -EINVAL;
	if (flags && fs_slices_lookup(to, name))
		return -EEXIST;
	return become(w, ino, name, err);
}

static int rename_it(struct waiting *w, const struct fs_draft_ref *to,
		     const char *new_name, unsigned flags,
		     const struct fs_draft_tree_who *who, struct ck_err *err)
{
	uint64_t ino = meant(to, new_name), dir;
	int ret;

	if (ino)
		return rename_onto(w, to, new_name, ino, flags, err);
	ret = may_be_called(to, new_name) ? folder(to, true, &dir) : -EPERM;
	return ret ? ret :
		     fs_draft_tree_rename(w->files, w->dir, w->name, dir,
					  new_name, flags, who);
}

int fs_siblings_rename(const struct fs_draft_ref *r, const char *name,
		       uint64_t to, const char *new_name, unsigned flags,
		       const struct fs_draft_tree_who *who, struct ck_err *err)
{
	const struct fs_draft_ref at = { r->drafts, r->s, to };
	struct waiting w = { .r = r, .files = r->s->files, .name = name };
	int ret = meant(r, name) ? -EPERM : folder(r, false, &w.dir);

	if (!ret)
		ret = fs_draft_tree_lookup(w.files, w.dir, name, &w.node);
	if (ret)
		return ret;
	ret = rename_it(&w, &at, new_name, flags, who, err);
	fs_draft_tree_forget(w.files, w.node.ino, 1);
	return ret;
}
