/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ckpt_derived.c - a checkpoint whose files are made by a view of another
 *
 * What is described are headers that the view writes, of names and shapes
 * that were checked when the other checkpoint was opened: no process of its
 * own parses them.  Reads go through the view, a level deeper in the thread's
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

/* ---- its files, as readers see them ---- */

struct below_source {
	struct ck_source base;
	const struct ck_ckpt_derivation *below;
	uint32_t file;
};

static int read_at(struct ck_source *s, void *buf, size_t len, uint64_t off,
		   struct ck_err *err)
{
	const struct below_source *from = (struct below_source *)s;
	const struct ck_ckpt_derivation *b = from->below;
	const struct ck_derived_file *f = &b->file[from->file];

	if (!ck_range_ok(off, len, f->size))
		return ck_fail(err, EIO,
			       "%s: expected %zu bytes at byte %llu, but it "
			       "has %llu",
			       f->name, len, (unsigned long long)off,
			       (unsigned long long)f->size);
	return len ? b->read(b->ctx, from->file, buf, len, off, err) : 0;
}

static void close_source(struct ck_source *s)
{
	free(s);
}

static const struct ck_source_ops source_ops = { read_at, close_source };

/* CK_NONE: none has that name. */
static uint32_t find_file(const struct ck_ckpt_derivation *b, const char *name)
{
	uint32_t i = 0;

	while (i < b->nr && strcmp(b->file[i].name, name))
		i++;
	return i < b->nr ? i : CK_NONE;
}

static void set_stat(struct stat *st, const struct ck_src *like)
{
	int64_t ns = like->id.mtime_ns;

	st->st_mode = S_IFREG | (like->mode & 0444);
	st->st_uid = like->uid;
	st->st_gid = like->gid;
	st->st_mtim.tv_sec = ns / 1000000000;
	st->st_mtim.tv_nsec = ns % 1000000000;
}

static int open_file(const struct ck_dir *d, const char *name,
		     struct ck_source **out, struct ck_err *err)
{
	const struct ck_ckpt_derivation *b = d->ctx;
	uint32_t i = find_file(b, name);
	struct below_source *s;

	if (i == CK_NONE)
		return ck_fail(err, ENOENT, "%s: does not exist", name);
	s = calloc(1, sizeof(*s));
	if (!s)
		return ck_no_memory(err);
	s->below = b;
	s->file = i;
	s->base = (struct ck_source){ .ops = &source_ops,
				      .name = b->file[i].name };
	s->base.st.st_mode = S_IFREG | 0444;
	s->base.st.st_nlink = 1;
	s->base.st.st_ino = i + 1;
	if (b->file[i].like)
		set_stat(&s->base.st, b->file[i].like);
	s->base.st.st_size = (off_t)b->file[i].size;
	*out = &s->base;
	return 0;
}

static int list_files(const struct ck_dir *d, const char *sub,
		      struct ck_dir_list *out, struct ck_err *err)
{
	const struct ck_ckpt_derivation *b = d->ctx;
	int ret = 0;

	if (*sub)
		return ck_fail(err, ENOENT, "%s: does not exist", sub);
	for (uint32_t i = 0; i < b->nr && !ret; i++)
		ret = ck_dir_list_add(out, "", b->file[i].name, false,
				      b->file[i].size);
	return ret;
}

static bool is_beside(const struct ck_dir *d, const char *name)
{
	return find_file(d->ctx, name) != CK_NONE;
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

static int read_made(void *ctx, uint32_t src, void *buf, uint64_t len,
		     uint64_t off, struct ck_err *err)
{
	const struct ck_ckpt *ck = ctx;

	return ck->below.read(ck->below.ctx, ck->below_file[src], buf, len, off,
			      err);
}

static int number_files(struct ck_ckpt *ck, struct ck_err *err)
{
	const struct ck_catalog *img = &ck->img;

	ck->below_file = calloc(img->nr_srcs + 1u, sizeof(*ck->below_file));
	if (!ck->below_file)
		return ck_no_memory(err);
	for (uint32_t i = 0; i < img->nr_srcs; i++) {
		const struct ck_src *src = &img->srcs[i];

		if (src->kind != CK_SRC_FILE)
			continue;
		ck->below_file[i] = find_file(
			&ck->below, ck_catalog_str(img, src->name, NULL));
		if (ck->below_file[i] == CK_NONE)
			return ck_fail(err, EIO, "source %u: is no file", i);
	}
	return 0;
}

static int start(struct ck_ckpt *ck, int catalog_fd, struct ck_err *err)
{
	struct ck_reader_in in = {
		.img = &ck->img,
		.root = &ck->root,
		.engine = ck->engine,
		.resolve = ck_ckpt_resolve_chunk,
		.resolve_ctx = ck,
		.made = &ck->made,
		.unaided = true,
	};
	int ret = ck_catalog_map(&ck->img, catalog_fd, err);

	if (!ret)
		ret = number_files(ck, err);
	if (ret)
		return ret;
	ck->made = (struct ck_made){ ck, read_made };
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
