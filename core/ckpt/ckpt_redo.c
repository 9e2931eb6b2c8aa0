/* SPDX-License-Identifier: Apache-2.0 */
/* ckpt_redo.c - the part of the facade that replaces bytes all at once */
#include "core/ckpt/ckpt_priv.h"

#include "core/base/auto.h"
#include "core/base/check.h"
#include "core/base/whole.h"
#include "core/catalog/catalog.h"
#include "core/root/fault_point.h"
#include "core/redo/redo.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PIECE (UINT64_C(1) << 20)

int ck_ckpt_redo(struct ck_ckpt *ck, struct ck_redo **redo, int *fd,
		 struct ck_err *err)
{
	/* an overlay's own log is all or nothing */
	int ret = ck->overlay ? -EOPNOTSUPP : ck_redo_new(redo, &ck->root, err);

	if (ret == -EOPNOTSUPP) {
		*redo = NULL;
		return ck_ckpt_nameless_file(ck, fd, err);
	}
	if (!ret)
		*fd = ck_redo_fd(*redo);
	return ret;
}

int ck_ckpt_whole(const struct ck_ckpt *ck, struct ck_err *err)
{
	if (!atomic_load(&ck->broken))
		return 0;
	return ck_fail(err, EIO,
		       "a replacement broke off half-way; the next mount "
		       "ends it, and until then nothing else is written");
}

int ck_ckpt_redo_lock(struct ck_ckpt *ck, struct ck_err *err)
{
	int ret;

	pthread_mutex_lock(&ck->redo_lock);
	ret = ck_ckpt_whole(ck, err);
	if (ret)
		pthread_mutex_unlock(&ck->redo_lock);
	return ret;
}

void ck_ckpt_redo_unlock(struct ck_ckpt *ck)
{
	pthread_mutex_unlock(&ck->redo_lock);
}

int ck_ckpt_redo_add(struct ck_ckpt *ck, struct ck_redo *redo, uint32_t tensor,
		     uint64_t at, uint64_t len, uint64_t off,
		     struct ck_err *err)
{
	const struct ck_catalog *img = &ck->img;
	const struct ck_tensor *t = &img->tensors[tensor];
	struct ck_redo_part p = {
		.at = at, .off = off, .len = len, .size = t->size
	};

	p.tree = ck_catalog_str(img, img->trees[t->tree], &p.tree_len);
	p.name = ck_catalog_str(img, t->name, &p.name_len);
	return ck_redo_add(redo, &p, err);
}

int ck_ckpt_redo_commit(struct ck_ckpt *ck, struct ck_redo *redo, uint64_t len,
			struct ck_err *err)
{
	return ck_redo_commit(redo, len,
			      ck->fp32_master.how == CK_FP32_MASTER_ALSO, err);
}

int ck_ckpt_redo_step(struct ck_err *err)
{
	return ck_fault_point("a piece of the replacement", err);
}

int ck_ckpt_redo_end(struct ck_ckpt *ck, struct ck_redo *redo,
		     struct ck_edit *e, int ret, bool some, struct ck_err *err)
{
	bool left = some;

	if (!ret)
		ret = ck_fault_point("sync of what was replaced", err);
	if (!ret)
		ret = ck_ckpt_sync(ck, e, err);
	if (!ret) {
		ret = ck_redo_end(redo, err);
		left = ret;
	} else if (!some) {
		left = ck_redo_end(redo, NULL);
	}
	/* What came now would be overwritten when it is done again. */
	if (left)
		atomic_store(&ck->broken, true);
	return ret;
}

void ck_ckpt_redo_free(struct ck_redo *redo)
{
	ck_redo_free(redo);
}

/* ---- what was left ---- */

static uint32_t find(const struct ck_catalog *img, const struct ck_redo_part *p)
{
	for (uint32_t i = 0; i < img->nr_trees; i++) {
		size_t len;
		const char *tree = ck_catalog_str(img, img->trees[i], &len);

		if (len == p->tree_len && !memcmp(tree, p->tree, len))
			return ck_catalog_find_name(img, i, p->name,
						    p->name_len);
	}
	return CK_NONE;
}

static int copy(struct ck_ckpt *ck, struct ck_edit *e, int fd,
		const struct ck_redo_part *p, uint32_t t, struct ck_err *err)
{
	ck_auto_free void *buf = malloc(PIECE);
	int ret = buf ? 0 : ck_no_memory(err);

	for (uint64_t done = 0, n; !ret && done < p->len; done += n) {
		n = CK_MIN(PIECE, p->len - done);
		if (ck_pread_whole(fd, buf, n, p->at + done))
			ret = ck_fail(err, EIO, "cannot be read");
		if (!ret)
			ret = ck_fault_point("redo", err);
		if (!ret)
			ret = ck_ckpt_write(ck, e, t, buf, n, p->off + done,
					    err);
	}
	return ret;
}

/* Nothing is wrong with the tensor any more: a warning of its first file. */
static void said(struct ck_ckpt *ck, uint32_t tensor)
{
	const struct ck_tensor *t = &ck->img.tensors[tensor];
	struct ck_runtime_problem p = { .tensor = CK_NONE, .chunk = t->first };

	if (asprintf(&p.reason,
		     "the replacement of tensor %s had broken off half-way, "
		     "and was written to its end now",
		     ck_catalog_str(&ck->img, t->name, NULL)) < 0)
		return;
	ck_runtime_problems_add(&ck->problems_found, &p);
	free(p.reason);
}

static int write_parts(struct ck_ckpt *ck, struct ck_edit *e,
		       struct ck_redo_left *left, struct ck_err *err)
{
	struct ck_redo_part p;
	int ret = 0;

	while (!ret && ck_redo_part(left, &p)) {
		uint32_t t = find(&ck->img, &p);

		if (t == CK_NONE || ck->img.tensors[t].size != p.size)
			return ck_fail(err, ESTALE,
				       "%s: expected this tensor, with %llu "
				       "bytes, found another checkpoint",
				       p.name, (unsigned long long)p.size);
		ret = copy(ck, e, left->fd, &p, t, err);
		if (!ret)
			said(ck, t);
	}
	return ret;
}

static int write_left(void *ctx, struct ck_redo_left *left, struct ck_err *err)
{
	struct ck_ckpt *ck = ctx;
	struct ck_edit *e = ck_edit_new(ck->writer);
	const enum ck_fp32_master_how how = ck->fp32_master.how;
	char *unsealed = ck->unsealed;
	int ret = e ? 0 : ck_no_memory(err);

	/* as it was begun, whatever this mount was told */
	ck->fp32_master.how =
		left->also ? CK_FP32_MASTER_ALSO : CK_FP32_MASTER_IGNORE;
	ck->unsealed = NULL; /* it was begun when that could be read */
	if (!ret)
		ret = write_parts(ck, e, left, err);
	if (!ret)
		ret = ck_ckpt_sync(ck, e, err);
	ck->fp32_master.how = how;
	ck->unsealed = unsealed;
	ck_edit_free(e);
	return ret;
}

int ck_ckpt_redo_left(struct ck_ckpt *ck, struct ck_err *err)
{
	char name[NAME_MAX + 1];

	if (ck->writer && !ck->overlay)
		return ck_redo_each(&ck->root, true, write_left, ck, err);
	if (!ck_redo_is_left(&ck->root, name))
		return 0;
	return ck_fail(err, EBUSY,
		       "%s: the replacement of a tensor broke off half-way "
		       "(%s); unshard recover, or a mount with -o rw, writes "
		       "the rest",
		       ck->root.path, name);
}
