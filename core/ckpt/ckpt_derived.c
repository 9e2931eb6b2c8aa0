/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ckpt_derived.c - a checkpoint whose one file is made by a view of another
 *
 * What is described is the header that the view writes, of names and shapes
 * that were checked when the other checkpoint was opened: no process of its
 * own parses it.  Reads go through the view, a level deeper in the thread's
 * working memory.
 */
#include "core/ckpt/ckpt_priv.h"

#include "core/base/auto.h"
#include "core/base/check.h"
#include "core/catalog/catalog.h"
#include "core/format/detect.h"
#include "core/root/dir.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* ---- its file, as readers see it ---- */

struct below_source {
	struct ck_source base;
	const struct ck_ckpt_derivation *below;
};

static int read_at(struct ck_source *s, void *buf, size_t len, uint64_t off,
		   struct ck_err *err)
{
	const struct ck_ckpt_derivation *b = ((struct below_source *)s)->below;

	if (!ck_range_ok(off, len, b->size))
		return ck_fail(err, EIO,
			       "%s: expected %zu bytes at byte %llu, but it "
			       "has %llu",
			       b->name, len, (unsigned long long)off,
			       (unsigned long long)b->size);
	return len ? b->made.read(b->made.ctx, buf, len, off, err) : 0;
}

static void close_source(struct ck_source *s)
{
	free(s);
}

static const struct ck_source_ops source_ops = { read_at, close_source };

static int open_file(const struct ck_dir *d, const char *name,
		     struct ck_source **out, struct ck_err *err)
{
	const struct ck_ckpt_derivation *b = d->ctx;
	struct below_source *s;

	if (strcmp(name, b->name))
		return ck_fail(err, ENOENT, "%s: does not exist", name);
	s = calloc(1, sizeof(*s));
	if (!s)
		return ck_no_memory(err);
	s->below = b;
	s->base = (struct ck_source){ .ops = &source_ops, .name = b->name };
	s->base.st.st_mode = S_IFREG | 0444;
	s->base.st.st_nlink = 1;
	s->base.st.st_ino = 1;
	if (b->like) {
		int64_t ns = b->like->id.mtime_ns;

		s->base.st.st_mode = S_IFREG | (b->like->mode & 0444);
		s->base.st.st_uid = b->like->uid;
		s->base.st.st_gid = b->like->gid;
		s->base.st.st_mtim.tv_sec = ns / 1000000000;
		s->base.st.st_mtim.tv_nsec = ns % 1000000000;
	}
	s->base.st.st_size = (off_t)b->size;
	*out = &s->base;
	return 0;
}

static int list_files(const struct ck_dir *d, const char *sub,
		      struct ck_dir_list *out, struct ck_err *err)
{
	const struct ck_ckpt_derivation *b = d->ctx;

	if (*sub)
		return ck_fail(err, ENOENT, "%s: does not exist", sub);
	return ck_dir_list_add(out, "", b->name, false, b->size);
}

static bool is_beside(const struct ck_dir *d, const char *name)
{
	return !strcmp(name, ((const struct ck_ckpt_derivation *)d->ctx)->name);
}

static const struct ck_dir_ops dir_ops = {
	.list = list_files,
	.open = open_file,
	.beside = is_beside,
};

static int describe(const struct ck_ckpt_derivation *b, int *catalog_fd,
		    struct ck_err *err)
{
	ck_auto_fd int fd = -1;
	const struct ck_dir dir = { .ops = &dir_ops,
				    .path = b->what,
				    .ctx = b };
	int ret = ck_catalog_file(&fd, err);

	if (!ret)
		ret = ck_detect_load(&dir, fd, err);
	if (ret)
		return ret;
	ret = ck_catalog_seal(fd, err);
	if (!ret)
		*catalog_fd = ck_steal_fd(fd);
	return ret;
}

/* ---- the whole ---- */

static int start(struct ck_ckpt *ck, int catalog_fd, struct ck_err *err)
{
	struct ck_reader_in in = {
		.img = &ck->img,
		.root = &ck->root,
		.engine = ck->engine,
		.made = &ck->below.made,
		.unaided = true,
	};
	int ret = ck_catalog_map(&ck->img, catalog_fd, err);

	if (ret)
		return ret;
	ck->resolved = ck_resolved_new(ck->img.nr_chunks);
	if (!ck->resolved)
		return ck_no_memory(err);
	in.resolved = ck->resolved;
	return ck_reader_new(&ck->reader, &in, err);
}

int ck_ckpt_derive(struct ck_ckpt **out, const struct ck_ckpt_derivation *b,
		   struct ck_err *err)
{
	struct ck_ckpt *ck = ck_ckpt_new();
	ck_auto_fd int catalog_fd = -1;
	struct ck_err local = { 0 };
	int ret;

	if (!ck)
		return ck_no_memory(err);
	ck->over = true;
	ck->sealed_sought = true; /* digests are of what is below */
	ck->root = *ck_ckpt_root(b->ck); /* borrowed */
	ck->engine = b->ck->engine;
	ck->below = *b;
	ck->below.free = NULL; /* nothing of it is ours before all is well */
	ret = describe(b, &catalog_fd, &local);
	if (!ret)
		ret = start(ck, catalog_fd, &local);
	if (ret) {
		ck_ckpt_close(ck);
		return ck_fail(err, local.code, "%s: %s", b->what, local.msg);
	}
	ck->below.free = b->free;
	*out = ck;
	return 0;
}

bool ck_ckpt_is_derived(const struct ck_ckpt *ck)
{
	return ck->over;
}

struct ck_ckpt *ck_ckpt_derived_from(const struct ck_ckpt *ck)
{
	return ck->over ? ck->below.ck : NULL;
}
