/* SPDX-License-Identifier: Apache-2.0 */
/*
 * files.c - what the files of the ranks hold, under which names
 *
 * torch.save keeps DTensors with a record of their own.  The one of
 * metadata.pkl counts, which safetensors files have alone.
 */
#include "core/format/torch_checkpointing/tc.h"

#include "core/container/torch_dist.h"
#include "core/geom/dtype.h"

#include <errno.h>
#include <string.h>

bool ck_tc_name(struct tc *s, uint32_t item, const char *rest, size_t len)
{
	s->name.len = 0;
	ck_str_add(&s->name, s->items.v[item].s, s->items.v[item].len);
	if (len) {
		ck_str_puts(&s->name, ".");
		ck_str_add(&s->name, rest, len);
	}
	return !s->name.failed;
}

int ck_tc_set_path(struct tc *s, struct ck_asm_tensor *t, uint32_t item,
		   const struct ck_path_part *rest, unsigned nr,
		   struct ck_err *err)
{
	struct ck_path_part *v =
		ck_arena_alloc(&s->a.mem, (nr + 1) * sizeof(*v));

	if (!v)
		return ck_no_memory(err);
	v[0] = (struct ck_path_part){ .key = s->items.v[item].s,
				      .key_len = s->items.v[item].len,
				      .index = -1 };
	for (unsigned i = 0; i < nr; i++) {
		v[i + 1] = rest[i];
		if (rest[i].index < 0)
			v[i + 1].key = ck_arena_copy(&s->a.mem, rest[i].key,
						     rest[i].key_len);
	}
	t->user = s->paths.nr + 1;
	return s->a.mem.failed ? ck_no_memory(err) :
				 ck_vec_put(&s->paths, err,
					    (struct tc_path){ v, nr + 1 });
}

/* One that the metadata does not know has the path of its file. */
static struct ck_asm_tensor *tensor_of(struct tc *s, uint32_t item,
				       const struct ck_found *f,
				       struct ck_err *err)
{
	const struct ck_path_part own = { .key = f->name,
					  .key_len = f->len,
					  .index = -1 };
	struct ck_asm_tensor *t = NULL;
	int ret = 0;

	if (ck_tc_name(s, item, f->name, f->len))
		t = ck_asm_tensor(&s->a, 0, s->name.v, s->name.len);
	if (!t)
		ck_no_memory(err);
	else if (!t->user)
		ret = ck_tc_set_path(s, t, item, f->leaf ? f->leaf->path : &own,
				     f->leaf ? f->leaf->depth : 1, err);
	return ret ? NULL : t;
}

static int add_object(struct tc *s, uint32_t file, const struct ck_found *f,
		      struct ck_err *err)
{
	uint32_t item = s->a.files.v[file].user;
	struct ck_path_part path[CK_TORCH_MAX_DEPTH + 1] = {
		{ .key = s->items.v[item].s,
		  .key_len = s->items.v[item].len,
		  .index = -1 }
	};
	struct ck_object_in o = { .src = f->torch->src,
				  .enc = CK_ENC_PICKLE,
				  .off = f->torch->ts.pickle_off,
				  .len = f->torch->ts.pickle_len };
	uint64_t *shown = &s->items.v[item].user;
	int ret;

	if (!*shown)
		*shown = file + 1;
	if (*shown != file + 1)
		return 0;
	if (!ck_tc_name(s, item, f->name, f->len))
		return ck_no_memory(err);
	o.name = s->name.v;
	o.name_len = s->name.len;
	memcpy(path + 1, f->leaf->path, f->leaf->depth * sizeof(*path));
	ret = ck_builder_object(s->a.b, &o, err);
	return ret ? ret :
		     ck_builder_path(s->a.b, 0, o.name, o.name_len, path,
				     f->leaf->depth + 1, err);
}

/* The box @p of a rank's local tensor, which is all of @whole. */
static int set_part(struct tc *s, struct ck_asm_piece *p,
		    const struct ck_extent *whole, struct ck_err *err)
{
	const uint64_t *local = s->locals.v[p->user - 1];
	uint64_t bytes, size = ck_dtype_info(whole->dtype)->size;
	struct ck_extent x = *whole;
	int64_t stride[CK_MAX_RANK], step = 1;
	bool fits = size && x.rank == p->box->rank &&
		    ck_extent_bytes(whole, &bytes);

	for (unsigned d = x.rank; fits && d-- > 0;) {
		stride[d] = whole->stride ? whole->stride[d] : step;
		step *= (int64_t)whole->shape[d];
		fits = local[d] <= whole->shape[d] &&
		       p->box->len[d] <= whole->shape[d] - local[d];
		x.off += local[d] * (uint64_t)stride[d] * size;
	}
	if (fits) {
		x.shape = p->box->len;
		x.stride = stride;
	} else if (!x.fault) {
		x.fault =
			"it does not hold the boxes that " TC_METADATA " says";
	}
	return ck_asm_set_extent(&s->a, p, &x) ? ck_no_memory(err) : 0;
}

static int give(struct tc *s, struct ck_asm_tensor *t, uint32_t file,
		const struct ck_extent *x, struct ck_err *err)
{
	int ret = ck_asm_give(&s->a, t, file, x, err);
	uint32_t at = t->hint;

	while (!ret && at != CK_NONE) {
		struct ck_asm_piece *p = &s->a.pieces.v[at];

		if (p->file != file || !p->user)
			break;
		ret = set_part(s, p, x, err);
		at = p->next;
	}
	return ret;
}

/* Where the bytes of a DTensor are, which wraps a tensor; @at has its shape. */
static int unwrap(const struct ck_found *f, struct ck_torch_place *at,
		  struct ck_extent *x, struct ck_err *why, struct ck_err *err)
{
	struct ck_torch_piece piece;
	int ret = ck_torch_dtensor(f->torch->ts.pickle, f->leaf->value, &piece,
				   why);

	if (ret > 0) {
		ret = ck_torch_extent(f->torch, piece.local, at, why, err);
		*x = at->x;
		return ret;
	}
	if (ret == -EINVAL)
		x->fault = why->msg;
	return ret && ret != -EINVAL ? ck_fail(err, -ret, "%s", why->msg) : 0;
}

int ck_tc_key(struct ck_asm *a, uint32_t file, const struct ck_found *f,
	      struct ck_err *err)
{
	struct tc *s = a->ctx;
	uint32_t item = a->files.v[file].user;
	struct ck_extent x = f->x;
	struct ck_torch_place local;
	struct ck_asm_tensor *t;
	struct ck_err why = { 0 };
	int ret;

	if (!f->is_tensor)
		return add_object(s, file, f, err);
	ret = f->leaf ? unwrap(f, &local, &x, &why, err) : 0;
	t = ret ? NULL : tensor_of(s, item, f, err);
	return t ? give(s, t, file, &x, err) : ret ? ret : -ENOMEM;
}
