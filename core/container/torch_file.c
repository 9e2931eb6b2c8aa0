/* SPDX-License-Identifier: Apache-2.0 */
/*
 * torch_file.c - from the leaves of a saved object to parts and objects
 */
#include "core/container/torch_file.h"

#include "core/base/auto.h"
#include "core/base/check.h"
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
	struct ck_torch_save ts;
	uint32_t src;
	bool any; /* a tensor was met */
};

void ck_torch_load_free(struct ck_torch_load *ld)
{
	for (size_t i = 0; i < ld->nr_kept; i++)
		free(ld->kept[i]);
	free(ld->kept);
	ck_strmap_free(&ld->seen);
}

/*
 * Whether the name was given before; then the bytes are not one tensor's, and
 * the builder must not take them for replicas.
 */
static int is_repeat(struct ck_torch_load *ld, const struct ck_torch_leaf *leaf,
		     bool *repeat, struct ck_err *err)
{
	char *copy;

	*repeat = ck_strmap_get(&ld->seen, leaf->name, leaf->name_len) !=
		  CK_STRMAP_NONE;
	if (*repeat)
		return 0;
	if (ld->nr_kept == ld->room) {
		size_t room = ld->room ? 2 * ld->room : 64;
		char **grown = reallocarray(ld->kept, room, sizeof(*grown));

		if (!grown)
			return ck_fail(err, ENOMEM, "no memory for names");
		ld->kept = grown;
		ld->room = room;
	}
	copy = malloc(leaf->name_len + 1);
	if (!copy)
		return ck_fail(err, ENOMEM, "no memory for a name");
	memcpy(copy, leaf->name, leaf->name_len);
	ld->kept[ld->nr_kept++] = copy;
	if (ck_strmap_put(&ld->seen, copy, leaf->name_len) == CK_STRMAP_NONE)
		return ck_fail(err, ENOMEM, "no memory for names");
	return 0;
}

static int refuse(struct file *f, const struct ck_torch_leaf *leaf,
		  const char *why, struct ck_err *err)
{
	return ck_builder_refuse(f->ld->b, 0, leaf->name, leaf->name_len, err,
				 "%s: %s", f->ts.src->name, why);
}

static int xform_of(const struct file *f, const struct ck_torch_tensor *t)
{
	bool swap = f->ts.big_endian && ck_dtype_info(t->dtype)->size > 1;

	if (swap + t->conj + t->neg > 1)
		return -EINVAL;
	return swap    ? CK_XF_BYTESWAP :
	       t->conj ? CK_XF_CONJ :
	       t->neg  ? CK_XF_NEG :
			 CK_XF_NONE;
}

/*
 * The box [start, start + t's own shape) of a tensor of @shape.  Without one each
 * rank's file may as well have a part of it, of which nothing tells.
 */
static int add_box(struct file *f, const struct ck_torch_leaf *leaf,
		   const struct ck_torch_tensor *t, const uint64_t *shape,
		   const uint64_t *start, struct ck_err *err)
{
	struct ck_part part = {
		.name = leaf->name,
		.name_len = leaf->name_len,
		.src = f->src,
		.dtype = (uint8_t)t->dtype,
		.rank = t->rank,
		.shape = shape,
		.start = start,
		.len = start ? t->shape : NULL,
		.stride = t->stride,
		.untold = f->ld->ranks && !start,
	};
	uint64_t size = ck_dtype_info(t->dtype)->size, skip;
	struct ck_err why = { 0 };
	int xform = xform_of(f, t);
	int ret = ck_torch_save_place(&f->ts, t, &part.off, &why);

	if (!ret && xform < 0)
		ret = ck_fail(&why, EINVAL,
			      "two of big-endian, conjugated and negated");
	if (!ret && (!ck_mul_ok(t->storage_offset, size, &skip) ||
		     !ck_add_ok(part.off, skip, &part.off)))
		ret = ck_fail(&why, EINVAL, "its offset overflows");
	if (ret == -EINVAL)
		return refuse(f, leaf, why.msg, err);
	if (ret)
		return ck_fail(err, -ret, "%s", why.msg);
	part.xform = (uint8_t)xform;
	ret = ck_builder_add(f->ld->b, &part, err);
	return ret ? ret :
		     ck_builder_path(f->ld->b, 0, leaf->name, leaf->name_len,
				     leaf->path, leaf->depth, err);
}

static int add_piece(struct file *f, const struct ck_torch_leaf *leaf,
		     const struct ck_torch_piece *piece, struct ck_err *err)
{
	struct ck_torch_tensor t;
	struct ck_err why = { 0 };

	if (ck_torch_tensor_read(f->ts.pickle, piece->local, &t, &why))
		return refuse(f, leaf, why.msg, err);
	if (t.rank != piece->rank ||
	    memcmp(t.shape, piece->len, t.rank * sizeof(*t.shape)) != 0)
		return refuse(
			f, leaf,
			"the local tensor is not of the size that its placement gives",
			err);
	return add_box(f, leaf, &t, piece->shape, piece->start, err);
}

/* 1: it was a distributed tensor, and was said; 0: it was none. */
static int add_distributed(struct file *f, const struct ck_torch_leaf *leaf,
			   struct ck_err *err)
{
	const struct ck_pickle *p = f->ts.pickle;
	struct ck_torch_piece piece;
	struct ck_err why = { 0 };
	uint64_t nr = 0;
	int ret = ck_torch_dtensor(p, leaf->value, &piece, &why);

	if (ret > 0)
		return add_piece(f, leaf, &piece, err) ?: 1;
	for (uint64_t i = 0; !ret; i++) {
		ret = ck_torch_sharded(p, leaf->value, i, &nr, &piece, &why);
		if (ret <= 0)
			break;
		if (i >= nr)
			return 1;
		ret = add_piece(f, leaf, &piece, err);
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
		.src = f->src,
		.enc = CK_ENC_PICKLE,
		.off = f->ts.pickle_off,
		.len = f->ts.pickle_len,
	};
	int ret = ck_builder_object(f->ld->b, &o, err);

	return ret ? ret :
		     ck_builder_path(f->ld->b, 0, leaf->name, leaf->name_len,
				     leaf->path, leaf->depth, err);
}

static int take_leaf(struct file *f, const struct ck_torch_leaf *leaf,
		     struct ck_err *err)
{
	struct ck_torch_tensor t;
	struct ck_err why = { 0 };
	bool repeat = false;
	int ret;

	if (!ck_torch_is_rebuild(f->ts.pickle, leaf->value))
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
	if (ck_torch_tensor_read(f->ts.pickle, leaf->value, &t, &why))
		return refuse(f, leaf, why.msg, err);
	return add_box(f, leaf, &t, t.shape, NULL, err);
}

static int pick_leaf(void *ctx, const struct ck_torch_leaf *leaf,
		     struct ck_err *err)
{
	struct file *f = ctx;
	struct ck_torch_leaf picked = *leaf;
	bool take = true;
	int ret;

	f->any |= ck_torch_is_rebuild(f->ts.pickle, leaf->value);
	ret = f->ld->pick ? f->ld->pick(f->ld->ctx, f->ts.pickle, &picked,
					&take, err) :
			    0;
	return ret || !take ? ret : take_leaf(f, &picked, err);
}

static int say_damaged(struct ck_torch_load *ld, const char *name,
		       const struct ck_err *why, struct ck_err *err)
{
	const struct ck_problem_in p = { .severity = CK_ERROR, .file = name };

	return ck_builder_problem(ld->b, &p, err, "%s", why->msg);
}

static int walk(struct file *f, const char *name, struct ck_err *err)
{
	const struct ck_pickle *p = f->ts.pickle;
	int ret = ck_torch_walk(p, ck_pickle_root(p), pick_leaf, f, err);
	const struct ck_torch_lost_in lost = { .p = p,
					       .from = ck_pickle_root(p),
					       .b = f->ld->b,
					       .file = name,
					       .any = f->any };

	if (!ret)
		ret = f->ld->check(f->ld->dir, f->ld->b, name, p, err);
	return ret ? ret : ck_torch_lost_report(&lost, err);
}

int ck_torch_file_load(struct ck_torch_load *ld, const char *name,
		       struct ck_err *err)
{
	ck_auto_source struct ck_source *s = NULL;
	struct file f = { .ld = ld };
	struct ck_err why = { 0 };
	int ret = ck_dir_source(ld->dir, ld->b, name, &f.src, &s, err);

	ld->usable = false;
	if (ret)
		return ret;
	if (!s && !ld->dir->only)
		return 0;
	if (!s) /* there is nothing else: why it is lost */
		ret = ck_dir_open(ld->dir, name, &s, err);
	if (ret)
		return ret;
	ret = ck_torch_save_open(&f.ts, s, &why);
	ld->usable = !ret;
	if (ret == -EINVAL && ld->several)
		ret = say_damaged(ld, name, &why, err);
	else if (ret)
		ret = ck_fail(err, -ret, "%s", why.msg);
	else
		ret = walk(&f, name, err);
	ck_torch_save_close(&f.ts);
	return ret;
}
