/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ops_slices.c - a step that is written as slices of tensors
 *
 *	MNT/step-N
 *	  unshard-layout.json	FS_DRAFT_LAYOUT; writing it begins all this
 *	  ranks/		FS_DRAFT_RANKS
 *	    R/			SLICE | RANK | number of the rank in the plan
 *	      NAME		SLICE | ENTRY | entry of the plan
 *	  tensors/		FS_DRAFT_TENSORS
 *	    NAME		SLICE | TENSOR | tensor of the catalog
 *
 * Every file has its full size from the beginning; what was not written of it
 * cannot be read.  Files of other names: ops_slices_siblings.c.
 */
#include "fs/draft/ops_draft.h"

#include "core/base/check.h"
#include "core/base/number.h"
#include "core/catalog/catalog.h"
#include "fs/kernel/reply.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <linux/falloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SLICE (UINT64_C(1) << 46)
#define KIND(k) ((uint64_t)(k) << 40)
#define KINDS KIND(3)
enum { RANK = 1, ENTRY, TENSOR };

static unsigned kind_of(uint64_t ino)
{
	return ino & SLICE ? (unsigned)((ino & KINDS) >> 40) : 0;
}

static uint64_t ino_of(unsigned kind, uint32_t nr)
{
	return SLICE | KIND(kind) | nr;
}

bool fs_slices_has(uint64_t ino)
{
	return (ino & SLICE && !(ino & FS_INO_SHARD)) ||
	       (ino >= FS_DRAFT_LAYOUT && ino <= FS_DRAFT_TENSORS);
}

static struct ck_slices *slices_of(const struct fs_draft_ref *r)
{
	return fs_draft_tree_slices(r->s->files);
}

/* The tensor of the catalog that one of the plan is. */
static uint32_t catalog_tensor(const struct ck_slices *sl, uint32_t t)
{
	const struct ck_slice_plan *p = ck_slices_plan(sl);
	const char *name = ck_slice_plan_str(p, p->tensors[t].name);

	return ck_catalog_find_name(ck_slices_catalog(sl), 0, name,
				    strlen(name));
}

static const char *file_name(const struct ck_slices *sl, uint32_t catalog)
{
	const struct ck_catalog *img = ck_slices_catalog(sl);

	return ck_catalog_str(img, img->tensors[catalog].file, NULL);
}

/* What bytes a file is of; false: it is none. */
static bool slice_of(const struct ck_slices *sl, uint64_t ino,
		     struct ck_slice *of)
{
	const struct ck_slice_plan *p = ck_slices_plan(sl);
	uint32_t nr = (uint32_t)ino;

	of->whole = kind_of(ino) == TENSOR;
	of->nr = nr;
	if (kind_of(ino) == ENTRY && nr < p->nr_entries)
		of->nr = p->entries[nr];
	else if (!of->whole || nr >= ck_slices_catalog(sl)->nr_tensors)
		return false;
	return true;
}

/* ---- names ---- */

static uint64_t find_rank(const struct ck_slices *sl, const char *name)
{
	char text[24];
	uint64_t rank;
	uint32_t nr;

	ck_digits(name, SIZE_MAX, &rank);
	nr = ck_slice_plan_find_rank(ck_slices_plan(sl), rank);
	snprintf(text, sizeof(text), "%" PRIu64, rank);
	return nr == CK_NONE || strcmp(text, name) != 0 ? 0 : ino_of(RANK, nr);
}

static uint64_t find_tensor(const struct ck_slices *sl, uint64_t dir,
			    const char *name)
{
	const struct ck_slice_plan *p = ck_slices_plan(sl);
	uint32_t t = ck_catalog_find_file(ck_slices_catalog(sl), 0, name,
					  strlen(name));
	uint32_t entry;

	if (t == CK_NONE || dir == FS_DRAFT_TENSORS)
		return t == CK_NONE ? 0 : ino_of(TENSOR, t);
	if ((uint32_t)dir >= p->nr_ranks)
		return 0;
	entry = ck_slice_plan_find_entry(p, (uint32_t)dir,
					 ck_slices_tensor(sl, t));
	return entry == CK_NONE ? 0 : ino_of(ENTRY, entry);
}

/* Entries, and then the tensors of the catalog; for files only. */
static size_t bit_of(const struct ck_slices *sl, uint64_t ino)
{
	return (uint32_t)ino +
	       (kind_of(ino) == TENSOR ? ck_slices_plan(sl)->nr_entries : 0);
}

static bool is_hidden(const struct fs_draft_ref *r, uint64_t ino)
{
	return (kind_of(ino) == ENTRY || kind_of(ino) == TENSOR) &&
	       fs_draft_tree_is_hidden(r->s->files, bit_of(slices_of(r), ino));
}

static int hide(const struct fs_draft_ref *r, uint64_t ino, bool hide)
{
	const struct ck_slices *sl = slices_of(r);
	size_t nr = (size_t)ck_slices_plan(sl)->nr_entries +
		    ck_slices_catalog(sl)->nr_tensors;

	return fs_draft_tree_hide(r->s->files, bit_of(sl, ino), nr, hide);
}

uint64_t fs_slices_find(const struct fs_draft_ref *r, const char *name)
{
	const struct ck_slices *sl = slices_of(r);

	if (!sl)
		return 0;
	if (r->ino == FS_INO_ROOT)
		return !strcmp(name, FS_LAYOUT_NAME) ? FS_DRAFT_LAYOUT :
		       !strcmp(name, "ranks")	     ? FS_DRAFT_RANKS :
		       !strcmp(name, "tensors")	     ? FS_DRAFT_TENSORS :
						       0;
	if (r->ino == FS_DRAFT_RANKS)
		return find_rank(sl, name);
	if (r->ino == FS_DRAFT_TENSORS || kind_of(r->ino) == RANK)
		return find_tensor(sl, r->ino, name);
	return 0;
}

bool fs_slices_key(const struct fs_draft_ref *r, char key[24])
{
	const struct ck_slices *sl = slices_of(r);
	const struct ck_slice_plan *p = sl ? ck_slices_plan(sl) : NULL;
	uint32_t rank = (uint32_t)r->ino;

	if (r->ino == FS_INO_ROOT)
		strcpy(key, CK_SLICES_SIBLING_STEP);
	else if (p && r->ino == FS_DRAFT_TENSORS)
		strcpy(key, CK_SLICES_SIBLING_TENSORS);
	else if (p && kind_of(r->ino) == RANK && rank < p->nr_ranks)
		snprintf(key, 24, "%" PRIu64, p->ranks[rank].rank);
	else
		return false;
	return true;
}

uint64_t fs_slices_lookup(const struct fs_draft_ref *r, const char *name)
{
	uint64_t ino = fs_slices_find(r, name);

	return is_hidden(r, ino) ? 0 : ino;
}

static void list_ranks(const struct ck_slices *sl, struct fs_shard_list *l)
{
	const struct ck_slice_plan *p = ck_slices_plan(sl);
	char text[24];

	for (uint32_t i = 0; i < p->nr_ranks; i++) {
		snprintf(text, sizeof(text), "%" PRIu64, p->ranks[i].rank);
		fs_shards_list_add(l, text, ino_of(RANK, i), S_IFDIR);
	}
}

static void add_slice(const struct fs_draft_ref *r, struct fs_shard_list *l,
		      uint32_t catalog, uint64_t ino)
{
	if (catalog != CK_NONE && !is_hidden(r, ino))
		fs_shards_list_add(l, file_name(slices_of(r), catalog), ino,
				   S_IFREG);
}

static int list_rank(const struct fs_draft_ref *at, struct fs_shard_list *l)
{
	const struct ck_slices *sl = slices_of(at);
	const struct ck_slice_plan *p = ck_slices_plan(sl);
	uint32_t nr = (uint32_t)at->ino, end;

	if (nr >= p->nr_ranks)
		return -ESTALE;
	end = p->ranks[nr].first + p->ranks[nr].nr;
	for (uint32_t i = p->ranks[nr].first; i < end; i++)
		add_slice(at, l,
			  catalog_tensor(sl, p->pieces[p->entries[i]].tensor),
			  ino_of(ENTRY, i));
	return 0;
}

static int list(const struct fs_draft_ref *r, struct fs_shard_list *l)
{
	const struct ck_slices *sl = slices_of(r);

	if (!sl)
		return fs_slices_has(r->ino) ? -ESTALE : 0;
	if (kind_of(r->ino) == RANK)
		return list_rank(r, l);
	if (r->ino == FS_INO_ROOT) {
		/* the layout last: rm -r may remove it once nothing is written */
		fs_shards_list_add(l, "ranks", FS_DRAFT_RANKS, S_IFDIR);
		fs_shards_list_add(l, "tensors", FS_DRAFT_TENSORS, S_IFDIR);
		fs_shards_list_add(l, FS_LAYOUT_NAME, FS_DRAFT_LAYOUT, S_IFREG);
	} else if (r->ino == FS_DRAFT_RANKS) {
		list_ranks(sl, l);
	} else if (r->ino == FS_DRAFT_TENSORS) {
		for (uint32_t i = 0; i < ck_slices_catalog(sl)->nr_tensors; i++)
			add_slice(r, l, i, ino_of(TENSOR, i));
	}
	return 0;
}

int fs_slices_list(const struct fs_draft_ref *r, struct fs_shard_list *l)
{
	int ret = list(r, l);

	return ret ? ret : fs_siblings_list(r, l);
}

/* ---- attributes ---- */

static int size_of_layout(struct ck_slices *sl, struct stat *st)
{
	char *bytes = NULL;
	size_t len = 0;
	int ret = sl ? ck_slices_given(sl, &bytes, &len, NULL) : 0;

	st->st_size = (off_t)len;
	free(bytes);
	return ret;
}

static int file_attr(const struct fs_draft_ref *r, struct ck_slices *sl,
		     struct stat *st)
{
	struct ck_slice of;
	uint64_t written;

	if (r->ino == FS_DRAFT_LAYOUT)
		return size_of_layout(sl, st);
	if (!slice_of(sl, r->ino, &of))
		return -ESTALE;
	written = ck_slice_written(sl, of);
	st->st_size = (off_t)ck_slice_size(sl, of);
	st->st_blocks = (blkcnt_t)CK_DIV_UP(written, 512);
	/* of its full size: rsync would take it for what it has */
	if (written < (uint64_t)st->st_size)
		st->st_mtim = (struct timespec){ 0 };
	return 0;
}

static bool is_dir(uint64_t ino)
{
	return ino == FS_DRAFT_RANKS || ino == FS_DRAFT_TENSORS ||
	       kind_of(ino) == RANK;
}

/* As the step's own folder is, where nothing else was said. */
static int plain_attr(const struct fs_draft_ref *r, struct stat *st)
{
	int ret = fs_draft_tree_stat(r->s->files, FS_INO_SHARDS, NULL, st);

	if (ret)
		return ret;
	if (!slices_of(r) && r->ino != FS_DRAFT_LAYOUT)
		return -ESTALE;
	st->st_size = 0;
	st->st_blocks = 0;
	st->st_nlink = is_dir(r->ino) ? 2 : 1;
	if (!is_dir(r->ino))
		st->st_mode = S_IFREG | (st->st_mode & 0666);
	return 0;
}

/* One number for all that has bytes of the same tensor. */
static uint64_t given_of(const struct fs_draft_ref *r)
{
	const struct ck_slices *sl = slices_of(r);
	struct ck_slice of;

	if (!sl || is_dir(r->ino) || r->ino == FS_DRAFT_LAYOUT ||
	    !slice_of(sl, r->ino, &of))
		return r->ino;
	return SLICE | (of.whole ? ck_slices_tensor(sl, of.nr) :
				   ck_slices_plan(sl)->pieces[of.nr].tensor);
}

int fs_slices_attr(const struct fs_draft_ref *r, struct stat *st)
{
	int ret = plain_attr(r, st);

	if (ret)
		return ret;
	fs_draft_tree_given(r->s->files, given_of(r), r->ino, st);
	return is_dir(r->ino) ? 0 : file_attr(r, slices_of(r), st);
}

int fs_slices_give(const struct fs_draft_ref *r, const struct stat *attr,
		   int to_set)
{
	struct stat before;
	int ret = plain_attr(r, &before);

	return ret ? ret :
		     fs_draft_tree_give(r->s->files, given_of(r), r->ino, attr,
					to_set, &before);
}

/* Another name of the same bytes may change what this one's mode is. */
double fs_slices_keep(uint64_t ino)
{
	return ino == FS_DRAFT_STATUS || kind_of(ino) == ENTRY ||
			       kind_of(ino) == TENSOR ?
		       FS_KEEP_NONE :
		       fs_keep_src;
}

/* ---- bytes ---- */

int fs_slices_open(const struct fs_draft_ref *r, int flags, struct fs_open *o)
{
	struct ck_slices *sl = slices_of(r);
	int ret;

	if (r->ino == FS_DRAFT_LAYOUT)
		return fs_layout_open(sl, flags, o);
	if (is_dir(r->ino))
		return -EISDIR;
	if (!sl || !slice_of(sl, r->ino, &o->of))
		return -ESTALE;
	o->slice = true;
	if ((flags & O_ACCMODE) == O_RDONLY)
		return 0;
	ret = fs_draft_tree_begin(r->s->files);
	o->writes = !ret;
	return ret;
}

static int empty(const struct fs_draft_ref *r, struct ck_slice of)
{
	struct ck_err err = { 0 };
	int ret = fs_draft_tree_begin(r->s->files);

	if (ret)
		return ret;
	ret = ck_slice_empty(slices_of(r), of, &err);
	fs_draft_tree_end(r->s->files);
	if (ret)
		fs_log("%s", err.msg);
	return ret;
}

/*
 * A name that was removed; others are there, or are no slices.  Another mount may
 * have written it since, and the kernel, which knows of none, asks nobody to
 * truncate it.
 */
int fs_slices_create(struct fs_draft_ref *r, const char *name, int flags,
		     struct fs_open *o)
{
	uint64_t ino = fs_slices_find(r, name);
	int ret;

	if (!ino)
		return -ENOENT;
	if (is_dir(ino) || ino == FS_DRAFT_LAYOUT)
		return -EPERM;
	if (!is_hidden(r, ino))
		return -EEXIST;
	r->ino = ino;
	ret = fs_slices_open(r, flags, o);
	if (!ret && flags & (O_TRUNC | O_EXCL))
		ret = empty(r, o->of);
	return ret ? ret : hide(r, ino, false);
}

bool fs_slices_of(const struct fs_draft_ref *r, uint64_t ino,
		  struct ck_slice *of)
{
	const struct ck_slices *sl = slices_of(r);

	return sl && ino && ino != FS_DRAFT_LAYOUT && !is_dir(ino) &&
	       slice_of(sl, ino, of);
}

int fs_slices_made(const struct fs_draft_ref *r, uint64_t ino,
		   const struct stat *st)
{
	const int all =
		FUSE_SET_ATTR_MODE | FUSE_SET_ATTR_UID | FUSE_SET_ATTR_GID;
	struct fs_draft_ref made = *r;
	int ret = hide(r, ino, false);

	made.ino = ino;
	return ret ? ret : fs_slices_give(&made, st, all);
}

int fs_slices_read(const struct fs_draft_ref *r, const struct fs_open *o,
		   void *buf, size_t len, uint64_t off, bool mapped,
		   size_t *got, struct ck_err *err)
{
	struct ck_slices *sl = slices_of(r);
	uint64_t size = ck_slice_size(sl, o->of);

	*got = off >= size ? 0 : CK_MIN(len, size - off);
	if (!*got)
		return 0;
	return ck_slice_read(sl, o->of, buf, *got, off, mapped, err);
}

int fs_slices_write(const struct fs_draft_ref *r, struct fs_open *o,
		    const char *buf, size_t len, uint64_t off, bool cached,
		    struct ck_err *err)
{
	struct ck_slices *sl = slices_of(r);
	uint64_t size;
	int ret;

	if (r->ino == FS_DRAFT_LAYOUT)
		return fs_layout_write(o, buf, len, off);
	if (!o->writes)
		return -EBADF;
	size = ck_slice_size(sl, o->of);
	/* the last page of a map is longer than the file */
	if (cached && off < size)
		len = CK_MIN(len, size - off);
	if (!ck_range_ok(off, len, size))
		return -EFBIG;
	fs_draft_tree_changed(r->s->files);
	ret = ck_slice_write(sl, o->of, buf, len, off, cached, err);
	/* whoever stored the bytes of a map is not told */
	if (ret && cached)
		ck_draft_poison(fs_draft_tree_draft(r->s->files), err->msg);
	return ret;
}

/* There is room for all of it from the beginning. */
int fs_slices_fallocate(const struct fs_draft_ref *r, const struct fs_open *o,
			int mode, uint64_t off, uint64_t len)
{
	if (!o->writes)
		return -EBADF;
	if (mode & ~FALLOC_FL_KEEP_SIZE)
		return -EOPNOTSUPP;
	return ck_range_ok(off, len, ck_slice_size(slices_of(r), o->of)) ?
		       0 :
		       -EFBIG;
}

/* To nothing: it is to be written anew.  Its size stays what it is. */
int fs_slices_resize(const struct fs_draft_ref *r, uint64_t size)
{
	struct ck_slices *sl = slices_of(r);
	struct ck_slice of;

	if (!sl || !slice_of(sl, r->ino, &of))
		return r->ino == FS_DRAFT_LAYOUT && !size ? 0 : -EPERM;
	if (size == ck_slice_size(sl, of))
		return 0;
	return size ? -EPERM : empty(r, of);
}

static int remove_dir(const struct fs_draft_ref *r, uint64_t ino)
{
	struct ck_slices *sl = slices_of(r);
	const struct ck_slice_plan *p = ck_slices_plan(sl);
	uint32_t rank = (uint32_t)ino;
	uint64_t written = 0;
	bool any = false;
	int ret = ck_slices_no_others(fs_draft_tree_draft(r->s->files), NULL);

	if (ret)
		return ret == -ENODATA ? -ENOTEMPTY : ret;
	if (kind_of(ino) != RANK) {
		ret = ck_slices_any(sl, &any, NULL);
		return ret ? ret : any ? -ENOTEMPTY : 0;
	}
	for (uint32_t i = 0; i < p->ranks[rank].nr && !written; i++)
		written = ck_slice_written(
			sl, (struct ck_slice){
				    .nr = p->entries[p->ranks[rank].first + i],
			    });
	return written ? -ENOTEMPTY : 0;
}

int fs_slices_remove(const struct fs_draft_ref *r, const char *name, bool dir,
		     const struct fs_draft_tree_who *who)
{
	struct ck_slices *sl = slices_of(r);
	uint64_t ino = fs_slices_lookup(r, name);
	struct ck_slice of;
	bool any = false;
	int ret;

	if (!ino)
		return dir ? -ENOENT : fs_siblings_remove(r, name, who);
	if (dir != is_dir(ino))
		return dir ? -ENOTDIR : -EISDIR;
	if (dir)
		return remove_dir(r, ino);
	if (ino != FS_DRAFT_LAYOUT && !slice_of(sl, ino, &of))
		return -ESTALE;
	if (ino != FS_DRAFT_LAYOUT) {
		ret = empty(r, of);
		return ret ? ret : hide(r, ino, true);
	}
	ret = ck_slices_any(sl, &any, NULL);
	return ret ? ret : any ? -EPERM : 0;
}
