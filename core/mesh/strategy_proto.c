/* SPDX-License-Identifier: Apache-2.0 */
/*
 * strategy_proto.c - a strategy file in protobuf form
 *
 *   1 varint   a counter
 *   2 item     1 operator | 2 { 1 stage | 2 { 1 cuts.. }.. }
 *   3 layout   1 parameter | 2 { 1 {1 devices..} | 2 {1 axes..}.. |
 *              3 {1 rows..} | 4 {1 offsets..} | 5 field | 6 step | 7 shards }
 */
#include "core/mesh/strategy_priv.h"

#include "core/base/check.h"
#include "core/base/limits.h"
#include "core/parse/protobuf.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>

struct list {
	CK_VEC(uint64_t) v;
};

/* All numbers in @f, a message of repeated field 1, packed or not. */
static int read_list(struct ck_pb *pb, const struct ck_pb_field *f,
		     struct list *l, struct ck_err *err)
{
	struct ck_pb_field at;
	uint64_t value;
	int ret = ck_pb_enter(pb, f, err);

	l->v.nr = 0;
	while (!ret && (ret = ck_pb_next(pb, &at, err)) > 0) {
		bool packed = at.wire == CK_PB_LEN;

		ret = 0;
		if (at.number != 1)
			continue;
		if (packed)
			ret = ck_pb_enter(pb, &at, err);
		for (value = at.value;
		     !ret &&
		     (!packed || (ret = ck_pb_packed(pb, &value, err)) > 0);) {
			if (l->v.nr == CK_STRATEGY_ROWS)
				return ck_fail(err, EINVAL,
					       "byte %" PRIu64
					       ": a list of more than %d",
					       at.off, CK_STRATEGY_ROWS);
			if (!ck_vec_reserve(&l->v, 1))
				return ck_no_memory(err);
			l->v.v[l->v.nr++] = value;
			ret = 0;
			if (!packed)
				break;
		}
		if (packed && !ret)
			ck_pb_leave(pb);
	}
	if (!ret)
		ck_pb_leave(pb);
	return ret;
}

static void set_devices(struct ck_strategy_said *said, const struct list *l)
{
	if (said->l.nr_dev || l->v.nr > CK_STRATEGY_AXES)
		said->why = "its device matrix is none that is known";
	for (size_t i = 0; i < l->v.nr && !said->why; i++)
		said->l.dev[said->l.nr_dev++] = l->v.v[i];
}

/* The axes of the next dimension, or, where it stays alone, of all. */
static void add_map(struct ck_strategy_said *said, const struct list *l,
		    unsigned dimension)
{
	for (size_t i = 0; i < l->v.nr; i++) {
		int64_t axis = (int32_t)(uint32_t)l->v.v[i];

		if (said->l.nr_map == CK_STRATEGY_AXES || axis < -1 ||
		    axis > INT8_MAX) {
			said->why = "its tensor map is none that is known";
			return;
		}
		said->l.dim[said->l.nr_map] = (uint8_t)dimension;
		said->l.axis[said->l.nr_map++] = (int8_t)axis;
	}
}

/* Axes were counted from the right, which needs their number. */
static void turn_map(struct ck_strategy_said *said, unsigned nr_maps)
{
	struct ck_strategy_layout *l = &said->l;

	l->nr_dims = 0;
	for (unsigned i = 0; i < l->nr_map; i++) {
		if (nr_maps <= 1)
			l->dim[i] = (uint8_t)i;
		l->nr_dims = (uint8_t)(l->dim[i] + 1);
		if (l->axis[i] >= (int)l->nr_dev)
			said->why =
				"its tensor map names an axis that the device matrix lacks";
		else if (l->axis[i] >= 0)
			l->axis[i] = (int8_t)(l->nr_dev - 1 - l->axis[i]);
	}
	if (!l->nr_dev)
		said->why = "it has no device matrix";
}

static int set_rows(struct ck_strategy_file *f, struct ck_strategy_said *said,
		    const struct list *l, struct ck_err *err)
{
	for (size_t i = 0; i < l->v.nr; i++)
		if (l->v.v[i] >= CK_SIZE_MAX)
			said->why = "its param_split_shape is none";
	if (!l->v.nr)
		return 0;
	said->l.rows =
		ck_arena_copy(&f->s->mem, l->v.v, l->v.nr * sizeof(uint64_t));
	said->l.nr_rows = (uint32_t)l->v.nr;
	return said->l.rows ? 0 : ck_no_memory(err);
}

static int read_layout(struct ck_strategy_file *f, struct ck_pb *pb,
		       const struct ck_pb_field *in,
		       struct ck_strategy_said *said, struct ck_err *err)
{
	struct ck_pb_field at;
	struct list l = { 0 };
	unsigned nr_maps = 0, nr_dims = 0;
	int ret = ck_pb_enter(pb, in, err);

	while (!ret && (ret = ck_pb_next(pb, &at, err)) > 0) {
		ret = 0;
		if (at.number <= 4 && at.wire == CK_PB_LEN)
			ret = read_list(pb, &at, &l, err);
		if (ret)
			break;
		if (at.number == 1) {
			set_devices(said, &l);
		} else if (at.number == 2) {
			/* An empty one beside others only keeps them apart. */
			add_map(said, &l, nr_dims);
			nr_maps++;
			nr_dims += l.v.nr > 0;
		} else if (at.number == 3) {
			ret = set_rows(f, said, &l, err);
		} else if (at.number == 5) {
			said->l.field = at.value;
			if (at.value > INT32_MAX)
				said->why = "its field is no number of rows";
		} else if (at.number == 7) {
			said->l.shards = (int32_t)(uint32_t)at.value;
		}
	}
	free(l.v.v);
	if (!ret)
		turn_map(said, nr_maps);
	if (!ret)
		ck_pb_leave(pb);
	return ret;
}

static int read_item(struct ck_strategy_file *f, struct ck_pb *pb,
		     const struct ck_pb_field *in, struct ck_err *err)
{
	struct ck_strategy_said *said = ck_vec_push(&f->said);
	struct ck_pb_field at;
	int ret;

	if (!said)
		return ck_no_memory(err);
	*said = (struct ck_strategy_said){ .why = NULL };
	ret = ck_pb_enter(pb, in, err);
	while (!ret && (ret = ck_pb_next(pb, &at, err)) > 0) {
		ret = 0;
		if (at.number == 1 && at.wire == CK_PB_LEN) {
			if (at.len > CK_MAX_NAME)
				return ck_fail(err, EINVAL,
					       "byte %" PRIu64
					       ": a name of %" PRIu64 " bytes",
					       at.off, at.len);
			said->len = at.len;
			said->name = ck_arena_copy(&f->s->mem,
						   (char *)pb->in.ctx + at.off,
						   at.len);
			if (!said->name)
				return ck_no_memory(err);
		} else if (at.number == 2 && at.wire == CK_PB_LEN) {
			ret = read_layout(f, pb, &at, said, err);
		}
	}
	if (!ret && !said->name)
		ret = ck_fail(err, EINVAL,
			      "byte %" PRIu64 ": a layout without a name",
			      in->off);
	if (!ret && !said->l.nr_dev && !said->why)
		said->why = "it has no device matrix";
	if (!ret)
		ck_pb_leave(pb);
	return ret;
}

/* Operators matter only for the stage that they are of. */
static int read_operator(struct ck_strategy_file *f, struct ck_pb *pb,
			 const struct ck_pb_field *in, struct ck_err *err)
{
	struct ck_pb_field at;
	int ret = ck_pb_enter(pb, in, err);

	while (!ret && (ret = ck_pb_next(pb, &at, err)) > 0) {
		ret = 0;
		if (at.number != 2 || at.wire != CK_PB_LEN)
			continue;
		ret = ck_pb_enter(pb, &at, err);
		while (!ret && (ret = ck_pb_next(pb, &at, err)) > 0) {
			ret = 0;
			if (at.number == 1 && at.wire == CK_PB_VARINT) {
				f->stage = at.value;
				f->has_stage = true;
			}
		}
		if (!ret)
			ck_pb_leave(pb);
	}
	if (!ret)
		ck_pb_leave(pb);
	return ret;
}

int ck_strategy_proto(struct ck_strategy_file *f, const void *bytes, size_t len,
		      struct ck_err *err)
{
	const struct ck_pb_in in = { .read = ck_pb_read_mem,
				     .ctx = (void *)bytes,
				     .size = len };
	struct ck_pb_field at;
	struct ck_pb pb;
	int ret;

	ck_pb_init(&pb, &in, len);
	while ((ret = ck_pb_next(&pb, &at, err)) > 0) {
		ret = 0;
		if (at.wire == CK_PB_LEN && at.number == 2)
			ret = read_operator(f, &pb, &at, err);
		else if (at.wire == CK_PB_LEN && at.number == 3)
			ret = read_item(f, &pb, &at, err);
		if (ret)
			break;
	}
	return ret;
}
