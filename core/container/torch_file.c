/* SPDX-License-Identifier: Apache-2.0 */
/*
 * torch_file.c - from the leaves of a saved object to parts and objects
 */
#include "core/container/torch_file.h"

#include "core/base/auto.h"
#include "core/container/container.h"
#include "core/container/torch_dist.h"
#include "core/container/torch_lost.h"
#include "core/container/torch_save.h"
#include "core/container/torch_walk.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

struct file {
	struct ck_torch_load *ld;
	struct ck_torch_open *open;
	bool any; /* a tensor was met */
};

void ck_torch_load_free(struct ck_torch_load *ld)
{
	ck_strmap_free(&ld->seen);
	ck_arena_free(&ld->mem);
}

/*
 * Whether the name was given before; then the bytes are not one tensor's, and
 * the builder must not take them for replicas.
 */
static int is_repeat(struct ck_torch_load *ld, const struct ck_torch_leaf *leaf,
		     bool *repeat, struct ck_err *err)
{
	size_t before = ld->seen.nr;

	if (ck_strmap_keep(&ld->seen, &ld->mem, leaf->name, leaf->name_len) ==
	    CK_STRMAP_NONE)
		return ck_no_memory(err);
	*repeat = ld->seen.nr == before;
	return 0;
}

static int refuse(struct file *f, const struct ck_torch_leaf *leaf,
		  const char *why, struct ck_err *err)
{
	return ck_builder_refuse(f->ld->b, 0, leaf->name, leaf->name_len, err,
				 "%s: %s", f->open->s->name, why);
}

/*
 * Tensor @v, or the piece that it is.  Without one each rank's file may as well
 * have a part of it, of which nothing tells.
 */
static int add_box(struct file *f, const struct ck_torch_leaf *leaf, ck_pv v,
		   const struct ck_torch_piece *piece, struct ck_err *err)
{
	struct ck_torch_place at;
	const struct ck_extent *x = &at.x;
	struct ck_err why = { 0 };
	int ret = ck_torch_extent(f->open, v, &at, &why, err);
	struct ck_part part = ck_extent_part(x, leaf->name, leaf->name_len);

	part.unlabelled = f->ld->ranks && !piece;
	if (piece) {
		part.shape = piece->shape;
		part.start = piece->start;
		part.len = x->shape;
	}
	if (ret)
		return ret;
	if (x->fault)
		return refuse(f, leaf, x->fault, err);
	if (piece &&
	    (x->rank != piece->rank ||
	     memcmp(x->shape, piece->len, x->rank * sizeof(*x->shape))))
		return refuse(
			f, leaf,
			"the local tensor is not of the size that its placement gives",
			err);
	ret = ck_builder_add(f->ld->b, &part, err);
	return ret ? ret :
		     ck_builder_path(f->ld->b, 0, leaf->name, leaf->name_len,
				     leaf->path, leaf->depth, err);
}

/* 1: it was a distributed tensor, and was said; 0: it was none. */
static int add_distributed(struct file *f, const struct ck_torch_leaf *leaf,
			   struct ck_err *err)
{
	const struct ck_pickle *p = f->open->ts.pickle;
	struct ck_torch_piece piece;
	struct ck_err why = { 0 };
	uint64_t nr = 0;
	int ret = ck_torch_dtensor(p, leaf->value, &piece, &why);

	if (ret > 0)
		return add_box(f, leaf, piece.local, &piece, err) ?: 1;
	for (uint64_t i = 0; !ret; i++) {
		ret = ck_torch_sharded(p, leaf->value, i, &nr, &piece, &why);
		if (ret <= 0)
			break;
		if (i >= nr)
			return 1;
		ret = add_box(f, leaf, piece.local, &piece, err);
	}
	return ret == -EINVAL && why.code ? refuse(f, leaf, why.msg, err) ?: 1 :
					    ret;
}

static int add_object(struct file *f, const struct ck_torch_leaf *leaf,
		      struct ck_err *err)
{
	const struct ck_object_in o = {
		.name = leaf->name,
		.name_len = leaf->name_len,
		.src = f->open->src,
		.enc = CK_ENC_PICKLE,
		.off = f->open->ts.pickle_off,
		.len = f->open->ts.pickle_len,
	};
	int ret = ck_builder_object(f->ld->b, &o, err);

	return ret ? ret :
		     ck_builder_path(f->ld->b, 0, leaf->name, leaf->name_len,
				     leaf->path, leaf->depth, err);
}

static int take_leaf(struct file *f, const struct ck_torch_leaf *leaf,
		     struct ck_err *err)
{
	bool repeat = false;
	int ret;

	if (!ck_torch_is_rebuild(f->open->ts.pickle, leaf->value))
		return add_object(f, leaf, err);
	ret = add_distributed(f, leaf, err);
	if (ret)
		return ret < 0 ? ret : 0;
	if (!f->ld->ranks)
		ret = is_repeat(f->ld, leaf, &repeat, err);
	if (ret)
		return ret;
	if (repeat)
		return refuse(f, leaf, "two tensors have this name", err);
	return add_box(f, leaf, leaf->value, NULL, err);
}

static int pick_leaf(void *ctx, const struct ck_torch_leaf *leaf,
		     struct ck_err *err)
{
	struct file *f = ctx;
	struct ck_torch_leaf picked = *leaf;
	bool take = true;
	int ret;

	f->any |= ck_torch_is_rebuild(f->open->ts.pickle, leaf->value);
	ret = f->ld->pick ? f->ld->pick(f->ld->ctx, f->open->ts.pickle, &picked,
					&take, err) :
			    0;
	return ret || !take ? ret : take_leaf(f, &picked, err);
}

static int walk(struct ck_torch_load *ld, struct ck_torch_open *open,
		struct ck_err *err)
{
	const struct ck_pickle *p = open->ts.pickle;
	const char *name = open->s->name;
	struct file f = { .ld = ld, .open = open };
	int ret = ck_torch_walk(p, ck_pickle_root(p), pick_leaf, &f, err);
	const struct ck_torch_lost_in lost = { .p = p,
					       .from = ck_pickle_root(p),
					       .b = ld->b,
					       .file = name,
					       .any = f.any };

	if (!ret)
		ret = ld->check(ld->dir, ld->b, name, p, err);
	return ret ? ret : ck_torch_lost_report(&lost, err);
}

int ck_torch_file_load(struct ck_torch_load *ld, const char *name,
		       struct ck_err *err)
{
	ck_auto_container struct ck_container c;
	struct ck_err why;
	int ret = ck_container_open_as(&c, ld->dir, ld->b, name, false,
				       &ld->usable, &why, err);

	if (ret || ld->usable)
		return ret ? ret : walk(ld, &c.t, err);
	if (!c.t.s) /* if there is nothing else: why it is lost */
		return ld->dir->only ? ck_dir_open(ld->dir, name, &c.t.s, err) :
				       0;
	if (why.code == EINVAL && ld->several)
		return ck_builder_report_file(ld->b, CK_ERROR, name, err, "%s",
					      why.msg);
	return ck_fail(err, why.code, "%s", why.msg);
}
