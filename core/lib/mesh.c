/* SPDX-License-Identifier: Apache-2.0 */
/* mesh.c - which boxes of which tensors a rank of another mesh holds */
#include "core/lib/lib.h"

#include "core/base/auto.h"
#include "core/base/check.h"
#include "core/reshard/reshard.h"
#include "core/view/extras.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

struct unshard_mesh {
	unshard_ckpt *ck;
	struct ck_reshard *rs;
	uint32_t nr; /* tensors that it is of: the model's */
};

static int make(unshard_mesh *m, struct ck_reshard_in *in, struct ck_err *err)
{
	ck_auto_json json_t *config = NULL;
	bool of_spec;
	int ret = ck_model_config(&config, ck_ckpt_root(m->ck->ck),
				  &m->ck->opts, err);

	if (ret)
		return ret;
	in->config = config;
	return ck_reshard_new(&m->rs, in, &of_spec, err);
}

int unshard_mesh_new(unshard_ckpt *ck, const char *spec, const void *file,
		     size_t len, unshard_mesh **out, unshard_error *err)
{
	const struct ck_catalog *img = ck_ckpt_catalog(ck->ck);
	struct ck_reshard_in in = { .img = img,
				    .name = spec,
				    .bytes = file,
				    .len = len,
				    .opts = &ck->opts };
	struct ck_err why = { 0 };
	unshard_mesh *m;
	int ret = ck_lib_alive(ck->ctx, err);

	if (ret)
		return ret;
	m = calloc(1, sizeof(*m));
	if (!m)
		return ck_lib_fail(err, ENOMEM, "no memory");
	while (in.nr < img->nr_tensors && !img->tensors[in.nr].tree)
		in.nr++;
	m->nr = in.nr;
	m->ck = unshard_ref(ck);
	ret = make(m, &in, &why);
	if (ret) {
		unshard_mesh_free(m);
		return ck_lib_failed(err, ret, &why);
	}
	*out = m;
	return 0;
}

uint32_t unshard_mesh_ranks(const unshard_mesh *mesh)
{
	return ck_lib_is_child(mesh->ck->ctx) ? 0 : ck_reshard_ranks(mesh->rs);
}

/* The boxes of one shard, three times @rank numbers each. */
static void put_boxes(const struct ck_shard *s, unsigned nr, unsigned rank,
		      uint64_t *boxes)
{
	size_t bytes = rank * sizeof(*boxes);
	uint64_t to[CK_MAX_RANK];
	struct ck_box box;

	for (unsigned i = 0; i < nr; i++) {
		ck_shard_piece(s, i, &box, to);
		memcpy(boxes, box.start, bytes);
		memcpy(boxes + rank, box.len, bytes);
		memcpy(boxes + 2 * (size_t)rank, to, bytes);
		boxes += 3 * (size_t)rank;
	}
}

/* -ENOENT: nothing of it. */
static int part_of(const unshard_mesh *mesh, uint32_t rank, uint32_t tensor,
		   struct ck_reshard_part *part)
{
	if (ck_lib_is_child(mesh->ck->ctx))
		return -ECHILD;
	if (rank >= ck_reshard_ranks(mesh->rs) ||
	    tensor >= ck_ckpt_catalog(mesh->ck->ck)->nr_tensors)
		return -EINVAL;
	return tensor < mesh->nr &&
			       ck_reshard_part(mesh->rs, rank, tensor, part) ?
		       0 :
		       -ENOENT;
}

int unshard_mesh_boxes(const unshard_mesh *mesh, uint32_t rank, uint32_t tensor,
		       uint64_t *boxes, size_t room, unsigned *nr,
		       uint64_t *shape)
{
	const struct ck_catalog *img = ck_ckpt_catalog(mesh->ck->ck);
	struct ck_reshard_part part;
	unsigned dims;
	int ret = part_of(mesh, rank, tensor, &part);

	*nr = 0;
	if (ret)
		return ret == -ENOENT ? 0 : ret;
	dims = img->tensors[tensor].rank;
	*nr = part.zeros ? 0 : ck_shard_pieces(&part.shard);
	if (shape)
		memcpy(shape, part.shard.box.len, dims * sizeof(*shape));
	if (!boxes)
		return 0;
	if (room < 3 * (size_t)dims * *nr)
		return -ENOSPC;
	put_boxes(&part.shard, *nr, dims, boxes);
	return 0;
}

int unshard_mesh_zeros(const unshard_mesh *mesh, uint32_t rank, uint32_t tensor)
{
	struct ck_reshard_part part;
	int ret = part_of(mesh, rank, tensor, &part);

	return ret ? ret == -ENOENT ? 0 : ret : part.zeros;
}

void unshard_mesh_free(unshard_mesh *mesh)
{
	if (!mesh || ck_lib_is_child(mesh->ck->ctx))
		return;
	ck_reshard_free(mesh->rs);
	unshard_unref(mesh->ck);
	free(mesh);
}
