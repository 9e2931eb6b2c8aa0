/* SPDX-License-Identifier: Apache-2.0 */
/* Boxes of DTensors and ShardedTensors, from pickles that are written here. */
#include "core/container/torch_dist.h"

#include "core/base/str.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

static struct ck_err err;
static struct ck_torch_piece piece;

/* What a saved DTensor says; text of protocol 0 for each part. */
struct made {
	const char *size, *mesh, *at, *places;
	bool axes; /* the mesh's sizes as torch since 2.10 writes them */
};

#define CALL(module, name) "c" module "\n" name "\n(t"
#define REPLICATE \
	CALL("torch.distributed.tensor.placement_types", "Replicate") "R"
#define SHARD(dim)                                                \
	CALL("torch.distributed.tensor.placement_types", "Shard") \
	"R(Vdim\nI" #dim "\ndb"
#define STRIDED(dim, factor)                                              \
	CALL("torch.distributed.tensor.placement_types", "_StridedShard") \
	"R(Vdim\nI" #dim "\nVsplit_factor\nI" #factor "\ndb"
#define PARTIAL CALL("torch.distributed.tensor.placement_types", "Partial") "R"
#define WRAPPER(class)                               \
	"ctorch._tensor\n_rebuild_from_type_v2\n("   \
	"ctorch._utils\n_rebuild_wrapper_subclass\n" \
	"ctorch.distributed\n" class "\n(ctorch.distributed\n" class "\nN"

static void put_mesh(const struct made *m, struct ck_str *out)
{
	ck_str_puts(out,
		    CALL("torch.distributed.device_mesh", "DeviceMesh") "R(");
	if (m->axes)
		ck_str_fmt(out,
			   "V_layout\n" CALL("torch",
					     "_MeshLayout") "R(Vaxes\n%sdb",
			   m->mesh);
	else
		ck_str_fmt(
			out,
			"Vmesh\nctorch._utils\n_rebuild_tensor_v2\n(NI0\n%stR",
			m->mesh);
	ck_str_fmt(out, "V_coordinate_on_dim\n%sdb", m->at);
}

static int dtensor(const struct made *m)
{
	ck_auto_pickle struct ck_pickle *p = NULL;
	ck_auto_str struct ck_str out = { 0 };

	ck_str_fmt(&out,
		   WRAPPER("DTensor") "%st(N(V_local_tensor\nI7\nV_spec\n",
		   m->size);
	ck_str_puts(&out, CALL("torch.distributed.tensor", "DTensorSpec") "R(");
	ck_str_puts(&out, "Vmesh\n");
	put_mesh(m, &out);
	ck_str_fmt(&out, "Vplacements\n(%stdbdttR.", m->places);
	cr_assert_eq(ck_pickle_parse(&p, out.v, out.len, NULL, NULL, &err), 0,
		     "%s", err.msg);
	memset(&piece, 0, sizeof(piece));
	return ck_torch_dtensor(p, ck_pickle_root(p), &piece, &err);
}

static void expect_box(const uint64_t *start, const uint64_t *len)
{
	cr_expect_arr_eq(piece.start, start, piece.rank * sizeof(*start));
	cr_expect_arr_eq(piece.len, len, piece.rank * sizeof(*len));
}
#define BOX(...) ((const uint64_t[]){ __VA_ARGS__ })

Test(torch_dist, cut_as_chunk_cuts)
{
	struct made m = { .size = "(I7\nI4\nt",
			  .mesh = "(I3\nt",
			  .places = SHARD(0) };

	m.at = "(I0\nt";
	cr_assert_eq(dtensor(&m), 1, "%s", err.msg);
	cr_expect_eq(piece.rank, 2);
	cr_expect_arr_eq(piece.shape, BOX(7, 4), 16);
	expect_box(BOX(0, 0), BOX(3, 4));
	m.at = "(I2\nl";
	cr_assert_eq(dtensor(&m), 1);
	expect_box(BOX(6, 0), BOX(1, 4));
	m.axes = true;
	m.mesh = "(" CALL("torch", "_Axis") "R(Vshape\n(I3\ntdbl";
	cr_assert_eq(dtensor(&m), 1, "%s", err.msg);
	expect_box(BOX(6, 0), BOX(1, 4));
}

Test(torch_dist, ranks_past_the_end_hold_nothing)
{
	struct made m = { .size = "(I5\nt",
			  .mesh = "(I4\nt",
			  .at = "(I3\nt",
			  .places = SHARD(0) };

	cr_assert_eq(dtensor(&m), 1);
	expect_box(BOX(5), BOX(0));
}

Test(torch_dist, two_axes)
{
	struct made m = { .size = "(I8\nI6\nt",
			  .mesh = "(I2\nI3\nt",
			  .at = "(I1\nI2\nt" };

	m.places = SHARD(0) SHARD(1);
	cr_assert_eq(dtensor(&m), 1);
	expect_box(BOX(4, 4), BOX(4, 2));
	m.places = REPLICATE SHARD(0);
	cr_assert_eq(dtensor(&m), 1);
	expect_box(BOX(6, 0), BOX(2, 6));
	m.places = SHARD(0) SHARD(0);
	cr_assert_eq(dtensor(&m), 1);
	expect_box(BOX(8, 0), BOX(0, 6)); /* 4 rows by 3: 2, 2, none */
	/* FSDP over tensor parallelism: the right axis cuts first */
	m.size = "(I12\nI6\nt";
	m.places = STRIDED(0, 3) SHARD(0);
	cr_assert_eq(dtensor(&m), 1);
	expect_box(BOX(10, 0), BOX(2, 6));
	m.size = "(t";
	m.places = REPLICATE REPLICATE;
	cr_assert_eq(dtensor(&m), 1);
	cr_expect_eq(piece.rank, 0);
}

/* All ranks of a strided cut, by dealing out the rows one by one. */
Test(torch_dist, strided_boxes_tile)
{
	unsigned seen[13] = { 0 };
	char at[16];

	for (unsigned i = 0; i < 2; i++) {
		for (unsigned k = 0; k < 3; k++) {
			struct made m = { .size = "(I13\nt",
					  .mesh = "(I2\nI3\nt",
					  .places = STRIDED(0, 3) SHARD(0) };

			snprintf(at, sizeof(at), "(I%u\nI%u\nt", i, k);
			m.at = at;
			cr_assert_eq(dtensor(&m), 1, "%s", err.msg);
			for (uint64_t n = 0; n < piece.len[0]; n++)
				seen[piece.start[0] + n]++;
			cr_expect(piece.start[0] >= 5 * k,
				  "of the right chunk");
		}
	}
	for (unsigned i = 0; i < 13; i++)
		cr_expect_eq(seen[i], 1, "row %u", i);
}

static void refuse(const struct made *m)
{
	err.msg[0] = '\0';
	cr_expect_eq(dtensor(m), -EINVAL, "%s | %s | %s", m->size, m->mesh,
		     m->places);
	cr_expect(err.msg[0]);
}

Test(torch_dist, bad)
{
	const struct made good = { .size = "(I8\nt",
				   .mesh = "(I2\nt",
				   .at = "(I1\nt",
				   .places = SHARD(0) };
	struct made m = good;
	ck_auto_str struct ck_str many = { 0 };

	cr_assert_eq(dtensor(&m), 1);
	m.size = "(I-8\nt";
	refuse(&m);
	m.size = "(I9223372036854775807\nt";
	refuse(&m);
	m.size = "N";
	refuse(&m);
	m = good;
	m.places = PARTIAL; /* no rank has the value */
	refuse(&m);
	m.places = SHARD(1);
	refuse(&m);
	m.places = SHARD(-1);
	refuse(&m);
	m.places = "";
	refuse(&m);
	m.places = SHARD(0) SHARD(0);
	refuse(&m);
	m.places = STRIDED(0, 2); /* nothing to its right */
	refuse(&m);
	m = good;
	m.at = "(I2\nt";
	refuse(&m);
	m.at = "(t";
	refuse(&m);
	m = good;
	m.mesh = "(I0\nt";
	m.at = "(I0\nt";
	refuse(&m);
	ck_str_puts(&many, "(");
	for (unsigned i = 0; i < 100; i++)
		ck_str_puts(&many, "I1\n");
	ck_str_puts(&many, "t");
	m = good;
	m.mesh = many.v;
	refuse(&m);
	m = good;
	m.size = many.v;
	refuse(&m);
}

static int sharded(const char *shards, uint64_t i, uint64_t *nr)
{
	ck_auto_pickle struct ck_pickle *p = NULL;
	ck_auto_str struct ck_str out = { 0 };

	ck_str_fmt(&out, WRAPPER("ShardedTensor") "(I6\nI4\ntt(%sttR.", shards);
	cr_assert_eq(ck_pickle_parse(&p, out.v, out.len, NULL, NULL, &err), 0,
		     "%s", err.msg);
	return ck_torch_sharded(p, ck_pickle_root(p), i, nr, &piece, &err);
}

#define PART(offsets, sizes)                                           \
	CALL("torch", "Shard")                                         \
	"R(Vtensor\nI7\nVmetadata\n" CALL(                             \
		"torch", "ShardMetadata") "R(Vshard_offsets\n" offsets \
					  "Vshard_sizes\n" sizes "dbdb"

Test(torch_dist, shards)
{
	uint64_t nr = 9;

	cr_assert_eq(sharded("(" PART("(I2\nI0\nl", "(I3\nI4\nl") "l", 0, &nr),
		     1, "%s", err.msg);
	cr_expect_eq(nr, 1);
	expect_box(BOX(2, 0), BOX(3, 4));
	cr_expect_eq(sharded("(l", 0, &nr), 1, "a rank without any");
	cr_expect_eq(nr, 0);
	cr_expect_eq(sharded("N", 0, &nr), -EINVAL);
	cr_expect_eq(sharded("(I1\nl", 0, &nr), -EINVAL);
	cr_expect_eq(sharded("(" PART("(I2\nl", "(I3\nI4\nl") "l", 0, &nr),
		     -EINVAL);
	cr_expect_eq(sharded("(" PART("(I-2\nI0\nl", "(I3\nI4\nl") "l", 0, &nr),
		     -EINVAL);
}

Test(torch_dist, others_are_none)
{
	static const char text[] = "(I1\nt.";
	ck_auto_pickle struct ck_pickle *p = NULL;
	uint64_t nr;

	cr_assert_eq(
		ck_pickle_parse(&p, text, sizeof(text) - 1, NULL, NULL, &err),
		0);
	cr_expect_eq(ck_torch_dtensor(p, ck_pickle_root(p), &piece, &err), 0);
	cr_expect_eq(
		ck_torch_sharded(p, ck_pickle_root(p), 0, &nr, &piece, &err),
		0);
}
