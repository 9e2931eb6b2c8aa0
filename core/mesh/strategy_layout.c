/* SPDX-License-Identifier: Apache-2.0 */
/* strategy_layout.c - device grid, tensor map and shards, as a placement */
#include "core/mesh/strategy.h"

#include "core/base/check.h"

#include <errno.h>
#include <inttypes.h>

bool ck_strategy_devices(const struct ck_strategy_layout *l, uint64_t *nr)
{
	*nr = 1;
	for (unsigned i = 0; i < l->nr_dev; i++)
		if (!l->dev[i] || !ck_mul_ok(*nr, l->dev[i], nr))
			return false;
	return *nr <= UINT32_MAX;
}

static int check(const struct ck_strategy_layout *l, uint64_t *devices,
		 uint64_t *slices, struct ck_err *why)
{
	uint64_t used = 0;

	*slices = 1;
	if (!ck_strategy_devices(l, devices))
		return ck_fail(why, EINVAL, "its device matrix is none");
	for (unsigned i = 0; i < l->nr_map; i++) {
		if (l->axis[i] < 0)
			continue;
		if (l->axis[i] >= l->nr_dev)
			return ck_fail(
				why, EINVAL,
				"its tensor map names an axis that the device matrix of %u axes lacks",
				l->nr_dev);
		if (used >> l->axis[i] & 1)
			return ck_fail(
				why, EINVAL,
				"its tensor map uses axis %d of the device matrix twice",
				l->axis[i]);
		used |= UINT64_C(1) << l->axis[i];
		*slices *= l->dev[l->axis[i]];
	}
	return 0;
}

static int count_shards(const struct ck_strategy_layout *l, uint64_t copies,
			uint64_t *shards, struct ck_err *why)
{
	*shards = 1;
	if (!l->shards)
		return 0;
	if (l->shards < -1)
		return ck_fail(why, EINVAL,
			       "its opt_weight_shard_size is %" PRId64,
			       l->shards);
	*shards = l->shards < 0 || (uint64_t)l->shards > copies ?
			  copies :
			  (uint64_t)l->shards;
	if (copies % *shards)
		return ck_fail(why, EINVAL,
			       "%" PRIu64 " copies cannot be cut into %" PRIu64
			       " optimizer shards",
			       copies, *shards);
	return 0;
}

int ck_strategy_cuts(const struct ck_strategy_layout *l, uint64_t *slices,
		     uint64_t *shards, struct ck_err *why)
{
	uint64_t devices;
	int ret = check(l, &devices, slices, why);

	return ret ? ret : count_shards(l, devices / *slices, shards, why);
}

/* The step that cuts @dim, maybe into one part. */
static struct ck_mesh_step *step_for(struct ck_placement *p, unsigned dim)
{
	struct ck_mesh_step *s;

	for (unsigned i = 0; i < p->nr; i++)
		if (p->step[i].dim == dim)
			return &p->step[i];
	s = ck_placement_shard(p, dim, 0, CK_SIZES_EVEN);
	if (s) {
		s->split.nr = 1;
		s->nr_axes = 0;
	}
	return s;
}

static void cut_along(struct ck_mesh_step *s, const struct ck_mesh *m,
		      unsigned axis)
{
	s->split.nr *= m->size[axis];
	s->axis[s->nr_axes++] = (uint8_t)axis;
}

static bool cut_rows(const struct ck_strategy_layout *l, struct ck_placement *p)
{
	struct ck_mesh_step *s = step_for(p, 0);

	if (s && l->nr_rows && s->split.nr == l->nr_rows) {
		s->split.how = CK_SIZES_GIVEN;
		s->split.given = l->rows;
	}
	if (s && l->field)
		s->blocks = l->field;
	return s;
}

/* What devices would hold alike: the axes of all that @used lacks. */
static bool cut_shards(struct ck_placement *p, uint32_t used, uint64_t shards)
{
	struct ck_mesh_step *s = ck_placement_shard(p, 0, 0, CK_SIZES_EVEN);

	if (!s)
		return false;
	s->nr_axes = 0;
	for (unsigned i = 0; i < p->mesh.nr; i++)
		if (!(used >> i & 1))
			cut_along(s, &p->mesh, i);
	s->split.nr = shards;
	return true;
}

int ck_strategy_placement(const struct ck_strategy_layout *l,
			  const uint8_t *dim, unsigned rank, uint64_t shards,
			  struct ck_placement *out, struct ck_err *err)
{
	uint8_t axis[CK_STRATEGY_AXES] = { 0 };
	uint32_t used = 0;
	bool ok = true;

	_Static_assert(CK_STRATEGY_AXES <= CK_MESH_AXES, "axes fit");
	for (unsigned i = 0; i < l->nr_dev; i++)
		if (l->dev[i] > 1) /* none that does nothing */
			axis[i] = (uint8_t)ck_mesh_add_axis(
				&out->mesh, (uint32_t)l->dev[i], UINT32_MAX);
	if (!out->mesh.nr)
		ck_mesh_add_axis(&out->mesh, 1, 1);
	for (unsigned i = 0; i < l->nr_map && ok; i++) {
		struct ck_mesh_step *s;

		if (l->axis[i] < 0 || l->dev[l->axis[i]] == 1)
			continue;
		used |= 1u << axis[l->axis[i]];
		s = step_for(out, dim[i]);
		ok = s;
		if (s)
			cut_along(s, &out->mesh, axis[l->axis[i]]);
	}
	if (ok && rank && (l->nr_rows || l->field))
		ok = cut_rows(l, out);
	if (ok && shards > 1)
		ok = cut_shards(out, used, shards);
	return ok ? 0 :
		    ck_fail(err, EINVAL, "over %d dimensions", CK_MESH_STEPS);
}
