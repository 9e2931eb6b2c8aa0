/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Placement files and OneFlow's rules: random meshes against indices that are
 * dealt out one by one.
 */
#include "tests/unit/reshard/meshkit.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static unsigned seed;

static unsigned below(unsigned n)
{
	return (unsigned)rand_r(&seed) % n;
}

struct sample {
	unsigned rank, axes, size[3], devices, id[64];
	uint64_t shape[3];
	struct naive (*cut)(const struct sample *s, unsigned at, unsigned dim);
	unsigned nr_of[3], of[3][3]; /* of each dimension: axes that cut it */
	int place[3]; /* of each axis: the dimension, or -1 */
	unsigned factor[3]; /* of each axis: strided */
};

static void make_mesh(struct sample *s, struct ck_str *json)
{
	s->axes = 1 + below(3);
	s->devices = 1;
	ck_str_puts(json, "{\"mesh\": {\"axes\": [\"x\",\"y\",\"z\"");
	json->len -= 4 * (3 - s->axes);
	ck_str_puts(json, "], \"shape\": [");
	for (unsigned a = 0; a < s->axes; a++) {
		s->size[a] = 1 + below(4);
		s->devices *= s->size[a];
		ck_str_fmt(json, "%s%u", a ? "," : "", s->size[a]);
	}
	for (unsigned i = 0; i < s->devices; i++)
		s->id[i] = i;
	if (below(2))
		for (unsigned i = s->devices; i > 1; i--) {
			unsigned k = below(i), t = s->id[k];

			s->id[k] = s->id[i - 1];
			s->id[i - 1] = t;
		}
	ck_str_puts(json, "], \"device_ids\": [");
	for (unsigned i = 0; i < s->devices; i++)
		ck_str_fmt(json, "%s%u", i ? "," : "", s->id[i]);
	ck_str_puts(json, "]}");
}

static void make_shape(struct sample *s)
{
	s->rank = 1 + below(3);
	for (unsigned d = 0; d < s->rank; d++)
		s->shape[d] = below(8) ? 1 + below(9) : 0;
}

static unsigned coord(const struct sample *s, unsigned at, unsigned axis)
{
	for (unsigned a = s->axes; --a > axis;)
		at /= s->size[a];
	return at % s->size[axis];
}

/* One cut of a dimension into the product of its axes. */
static struct naive by_spec(const struct sample *s, unsigned at, unsigned dim)
{
	struct naive all = naive_all((unsigned)s->shape[dim]);
	unsigned parts = 1, i = 0;

	for (unsigned k = 0; k < s->nr_of[dim]; k++) {
		parts *= s->size[s->of[dim][k]];
		i = i * s->size[s->of[dim][k]] + coord(s, at, s->of[dim][k]);
	}
	return naive_chunk(&all, parts, i);
}

static void make_spec(struct sample *s, struct ck_str *json)
{
	unsigned left = (1u << s->axes) - 1;

	s->cut = by_spec;
	ck_str_puts(json, ", \"partition_spec\": {\"t*\": [");
	for (unsigned d = 0; d < s->rank; d++) {
		s->nr_of[d] = 0;
		while (left && below(2)) {
			unsigned a = below(s->axes);

			if (!(left >> a & 1))
				continue;
			left &= ~(1u << a);
			s->of[d][s->nr_of[d]++] = a;
		}
		ck_str_puts(json, d ? ", " : "");
		if (!s->nr_of[d] && below(2)) {
			ck_str_puts(json, "null");
			continue;
		}
		ck_str_puts(json, "[");
		for (unsigned k = 0; k < s->nr_of[d]; k++)
			ck_str_fmt(json, below(2) ? "%s\"%c\"" : "%s\"%c\"",
				   k ? "," : "", "xyz"[s->of[d][k]]);
		ck_str_puts(json, "]");
	}
	ck_str_puts(json, "]}}");
}

/* Axis after axis, each of what is left. */
static struct naive by_axis(const struct sample *s, unsigned at, unsigned dim)
{
	struct naive n = naive_all((unsigned)s->shape[dim]);

	for (unsigned a = 0; a < s->axes; a++)
		if (s->place[a] == (int)dim)
			n = s->factor[a] ?
				    naive_strided(&n, s->factor[a], s->size[a],
						  coord(s, at, a)) :
				    naive_chunk(&n, s->size[a],
						coord(s, at, a));
	return n;
}

static void make_placements(struct sample *s, struct ck_str *json)
{
	s->cut = by_axis;
	ck_str_puts(json, ", \"placements\": {\"t\": [");
	for (unsigned a = 0; a < s->axes; a++) {
		s->place[a] = (int)below(s->rank + 1) - 1;
		s->factor[a] = 0;
		ck_str_puts(json, a ? ", " : "");
		if (s->place[a] < 0) {
			ck_str_puts(json, "\"replicate\"");
			continue;
		}
		if (below(2)) {
			s->factor[a] = 1 + below(4);
			ck_str_fmt(json, "\"strided(%d, %u)\"", s->place[a],
				   s->factor[a]);
		} else {
			ck_str_fmt(json, "\"shard(%d)\"",
				   below(2) ? s->place[a] :
					      s->place[a] - (int)s->rank);
		}
	}
	ck_str_puts(json, "]}}");
}

static void image_of(const struct sample *s)
{
	mk_init();
	mk_part("t", s->rank, s->shape, NULL, NULL, 0);
	kit_image(&mk.kit);
}

static int try(const char *text, size_t len)
{
	return mk_try_file("f.json", text, len);
}

static void check_sample(const struct sample *s, const char *json)
{
	for (unsigned at = 0; at < s->devices; at++) {
		struct ck_reshard_part part;
		struct naive want[3];

		for (unsigned d = 0; d < s->rank; d++)
			want[d] = s->cut(s, at, d);
		cr_assert(ck_reshard_part(mk.rs, s->id[at], 0, &part), "%s",
			  json);
		cr_assert(!part.zeros);
		naive_compare(&part, s->shape, s->rank, want);
	}
}

static void run(void (*make)(struct sample *, struct ck_str *), unsigned rounds)
{
	if (getenv("UNSHARD_NIGHTLY"))
		rounds *= 50;
	for (seed = 1; seed <= rounds; seed++) {
		struct ck_str json = { 0 };
		struct sample s = { 0 };

		make_mesh(&s, &json);
		make_shape(&s);
		make(&s, &json);
		image_of(&s);
		cr_assert_eq(try(json.v, json.len), 0, "%s: %s", json.v,
			     mk.err.msg);
		cr_assert_eq(ck_reshard_ranks(mk.rs), s.devices);
		check_sample(&s, json.v);
		mk_free();
		ck_str_free(&json);
	}
}

Test(placement, partition_specs_of_random_meshes)
{
	run(make_spec, 400);
}

Test(placement, dtensor_placements_of_random_meshes)
{
	run(make_placements, 400);
}

/* ---- OneFlow ---- */

static struct naive by_sbp(const struct sample *s, unsigned at, unsigned dim)
{
	struct naive n = naive_all((unsigned)s->shape[dim]);

	for (unsigned a = 0; a < s->axes; a++)
		if (s->place[a] == (int)dim)
			n = naive_balanced(&n, s->size[a], coord(s, at, a));
	return n;
}

/* Ranks from @from on, nested as the mesh is. */
static void nested(const struct sample *s, unsigned axis, unsigned *next,
		   struct ck_str *json)
{
	if (axis == s->axes) {
		ck_str_fmt(json, "%u", (*next)++);
		return;
	}
	ck_str_puts(json, "[");
	for (unsigned i = 0; i < s->size[axis]; i++) {
		ck_str_puts(json, i ? "," : "");
		nested(s, axis + 1, next, json);
	}
	ck_str_puts(json, "]");
}

static bool leaves_none_empty(const struct sample *s)
{
	for (unsigned d = 0; d < s->rank; d++) {
		unsigned parts = 1;

		for (unsigned a = 0; a < s->axes; a++)
			parts *= s->place[a] == (int)d ? s->size[a] : 1;
		if (s->shape[d] && s->shape[d] < parts)
			return false;
	}
	return true;
}

Test(placement, sbp_of_random_meshes)
{
	for (seed = 1; seed <= 400; seed++) {
		struct ck_str json = { 0 }, unused = { 0 };
		struct sample s = { .cut = by_sbp };
		unsigned from = below(3), next = from;

		make_mesh(&s, &unused);
		make_shape(&s);
		ck_str_puts(&json, "{\"rules\": [{\"key\": \"t\", "
				   "\"placement\": {\"ranks\": ");
		nested(&s, 0, &next, &json);
		ck_str_puts(&json, "}, \"sbp\": [");
		for (unsigned a = 0; a < s.axes; a++) {
			s.place[a] = (int)below(s.rank + 1) - 1;
			ck_str_fmt(&json,
				   s.place[a] < 0 ? "%s\"broadcast\"" :
						    "%s\"split(%d)\"",
				   a ? "," : "", s.place[a]);
		}
		ck_str_puts(&json, "]}, {\"key\": \"no*\", \"placement\": "
				   "{\"ranks\": [0]}, \"sbp\": "
				   "[\"broadcast\"]}]}");
		for (unsigned i = 0; i < s.devices; i++)
			s.id[i] = from + i;
		image_of(&s);
		if (leaves_none_empty(&s)) {
			cr_assert_eq(try(json.v, json.len), 0, "%s: %s", json.v,
				     mk.err.msg);
			cr_assert_eq(ck_reshard_ranks(mk.rs), next);
			check_sample(&s, json.v);
			ck_str_free(&unused);
			ck_reshard_note(mk.rs, "f", &unused);
			cr_expect_str_eq(unused.v,
					 "f: fits no tensor: key \"no*\"");
		} else {
			cr_assert_eq(try(json.v, json.len), -EINVAL);
			cr_assert(strstr(mk.err.msg, "t: dimension"), "%s",
				  mk.err.msg);
		}
		mk_free();
		ck_str_free(&json);
		ck_str_free(&unused);
	}
}

static void reject(const char *text, const char *why)
{
	cr_assert_eq(try(text, strlen(text)), -EINVAL, "%s", text);
	cr_expect(strstr(mk.err.msg, why), "%s: %s", text, mk.err.msg);
}

Test(placement, what_is_wrong_is_said)
{
	const struct sample s = { .rank = 2, .shape = { 6, 5 } };
	static const char mesh[] = "{\"mesh\": {\"shape\": [2,2], "
				   "\"axes\": [\"x\",\"y\"]}, ";
	static const struct {
		const char *rest, *why;
	} bad[] = {
		{ "\"a\": 1}", "partition_spec" },
		{ "\"partition_spec\": []}", "expected an object" },
		{ "\"partition_spec\": {\"t\": 1}}", "t: partition_spec" },
		{ "\"partition_spec\": {\"t\": [\"w\"]}}", "w is no axis" },
		{ "\"partition_spec\": {\"t\": [2]}}", "no axis" },
		{ "\"partition_spec\": {\"t\": [\"x\",\"x\"]}}", "two dim" },
		{ "\"partition_spec\": {\"t\": [0,1,null]}}", "3 entries" },
		{ "\"placements\": {\"t\": [\"shard(0)\"]}}", "list of 2" },
		{ "\"placements\": {\"t\": [\"shard(2)\",\"R\"]}}",
		  "of 2 dim" },
		{ "\"placements\": {\"t\": [\"shard(\",\"R\"]}}", "expected" },
		{ "\"placements\": {\"t\": [\"shard(0, 2)\",\"R\"]}}",
		  "found shard(0, 2)" },
		{ "\"placements\": {\"t\": [\"strided(0)\",\"R\"]}}",
		  "factor" },
	};

	image_of(&s);
	for (size_t i = 0; i < CK_ARRAY_LEN(bad); i++) {
		char text[300];

		snprintf(text, sizeof(text), "%s%s", mesh, bad[i].rest);
		reject(text, bad[i].why);
	}
	reject("{}", "expected a placement file");
	reject("[]", "found a list of 0");
	reject("{\"mesh\": 1}", "mesh.shape");
	reject("{\"mesh\": {\"shape\": []}}", "mesh.shape");
	reject("{\"mesh\": {\"shape\": [0]}}", "1 to 65536 devices");
	reject("{\"mesh\": {\"shape\": [65536, 2]}}", "1 to 65536 devices");
	reject("{\"mesh\": {\"shape\": [2], \"axes\": [\"x\",\"y\"]}}",
	       "mesh.axes");
	reject("{\"mesh\": {\"shape\": [2,1], \"axes\": [\"x\",\"x\"]}}",
	       "twice");
	reject("{\"mesh\": {\"shape\": [2], \"device_ids\": [1,1]}}", "twice");
	reject("{\"mesh\": {\"shape\": [2], \"device_ids\": [1]}}",
	       "list of 2");
	reject("{\"mesh\": {\"shape\": [1], \"device_ids\": [65536]}}",
	       "0 to 65535");
	mk_free();
}

/* Every run of the one with every run of the other, in four dimensions at most. */
Test(placement, in_pieces_along_several_dimensions)
{
	static const char mesh[] = "{\"mesh\": {\"shape\": [2,2,2,2,2]}, "
				   "\"placements\": {\"t\": [";
	static const char two[] = "\"strided(3, 2)\", \"R\", \"R\", "
				  "\"strided(0, 2)\", \"R\"]}}";
	static const char five[] =
		"\"strided(3, 2)\", \"strided(1, 2)\", \"strided(4, 2)\", "
		"\"strided(0, 2)\", \"strided(2, 2)\"]}}";
	static const char many[] = "\"strided(3, 16)\", \"strided(1, 16)\", "
				   "\"strided(4, 32)\", \"R\", \"R\"]}}";
	static uint64_t shape[5] = { 8, 64, 4, 64, 64 };
	struct ck_part p;
	char text[300];

	mk_init();
	p = kit_part("t", kit_file(&mk.kit, "f", UINT64_C(1) << 30));
	p.rank = 5;
	p.shape = shape;
	kit_add(&mk.kit, &p);
	kit_image(&mk.kit);
	snprintf(text, sizeof(text), "%s%s", mesh, two);
	cr_assert_eq(try(text, strlen(text)), 0, "%s", mk.err.msg);
	naive_holds(mk.rs, 0, 0, "[0:2+4:6, 0:64, 0:4, 0:16+32:48, 0:64]");
	naive_holds(mk.rs, 18, 0, "[2:4+6:8, 0:64, 0:4, 16:32+48:64, 0:64]");
	snprintf(text, sizeof(text), "%s%s", mesh, five);
	reject(text, "t: over 4 dimensions would be in pieces");
	snprintf(text, sizeof(text), "%s%s", mesh, many);
	reject(text, "t: a rank would hold it in over 4096 pieces");
	mk_free();
}

Test(placement, what_is_misspelt_or_said_twice)
{
	const struct sample s = { .rank = 2, .shape = { 6, 5 } };

	image_of(&s);
	reject("{\"mesh\": {\"shape\": [2]}, \"partition_spec\": {},"
	       " \"partition_specs\": {}}",
	       "byte 47: \"partition_specs\" is no member");
	reject("{\"mesh\": {\"shape\": [2], \"device_id\": [0,1]},"
	       " \"partition_spec\": {\"device_id\": null}}",
	       "byte 24: mesh: \"device_id\" is no member: expected shape, "
	       "axes or device_ids");
	reject("{\"mesh\": {\"shape\": [2]}, \"partition_spec\": "
	       "{\"t\": [0]}, \"placements\": {\"t\": [\"S(1)\"]}}",
	       "byte 70: placements: \"t\" is in partition_spec too");
	reject("{\"mesh\": {\"shape\": [2]}, \"partition_spec\": "
	       "{\"t*\": [0]}, \"placements\": {\"*\": [\"S(1)\"]}}",
	       "t: both partition_spec and placements");
	reject("{\"mesh\": {\"shape\": [2]}, \"mesh\": {\"shape\": [2]},"
	       " \"partition_spec\": {}}",
	       "duplicate object key");
	reject("{\"mesh\": {\"shape\": [2]}, \"partition_spec\": "
	       "{\"t\": [0], \"t\": [1]}}",
	       "duplicate object key");
	mk_free();
}

Test(placement, a_name_wins_over_a_pattern_and_the_rest_is_whole)
{
	static const char text[] =
		"{\"mesh\": {\"shape\": [2]}, \"partition_spec\": "
		"{\"t*\": [null, 0], \"t\": [0]}}";
	static const char other[] =
		"{\"mesh\": {\"shape\": [2]}, \"partition_spec\": "
		"{\"t\": [0]}, \"placements\": {\"*\": [\"S(1)\"], "
		"\"t*\": [\"R\"], \"u*\": [\"R\"]}}";
	static const char turned[] =
		"{\"mesh\": {\"shape\": [4], \"device_ids\": [2, 3, 1, 0]}, "
		"\"partition_spec\": {\"t\": null}}";
	const struct sample s = { .rank = 2, .shape = { 6, 5 } };
	struct ck_reshard_part part;
	struct ck_str unused = { 0 };

	image_of(&s);
	cr_assert_eq(try(text, strlen(text)), 0, "%s", mk.err.msg);
	cr_assert(ck_reshard_part(mk.rs, 1, 0, &part));
	cr_expect_eq(part.shard.box.start[0], 3);
	cr_expect_eq(part.shard.box.len[1], 5);
	cr_expect(!ck_reshard_uncut(mk.rs, 0));
	/* of whichever table */
	cr_assert_eq(try(other, strlen(other)), 0, "%s", mk.err.msg);
	cr_assert(ck_reshard_part(mk.rs, 1, 0, &part));
	cr_expect_eq(part.shard.box.start[0], 3);
	ck_reshard_note(mk.rs, "f", &unused);
	cr_expect_str_eq(unused.v, "f: fits no tensor: placements \"u*\"");
	ck_str_free(&unused);
	cr_assert_eq(
		try("{\"mesh\": {\"shape\": [2]}, \"partition_spec\": {}}", 46),
		0, "%s", mk.err.msg);
	cr_expect(ck_reshard_uncut(mk.rs, 0));
	cr_expect_eq(ck_reshard_first(mk.rs, 0), 0);
	/* torch_xla reads what is whole for number 0, wherever that stands */
	cr_assert_eq(try(turned, strlen(turned)), 0, "%s", mk.err.msg);
	cr_expect(ck_reshard_uncut(mk.rs, 0));
	cr_expect_eq(ck_reshard_first(mk.rs, 0), 0);
	mk_free();
}

Test(placement, a_partial_sum_is_whole_once_and_zeros)
{
	static const char text[] =
		"{\"world_size\": 4, \"rules\": [{\"key\": \"*\", "
		"\"placement\": {\"ranks\": [[1,0],[3,2]]}, "
		"\"sbp\": [\"partial_sum\", \"split(0)\"]}]}";
	const struct sample s = { .rank = 2, .shape = { 6, 5 } };
	struct ck_reshard_part part;

	image_of(&s);
	cr_assert_eq(try(text, strlen(text)), 0, "%s", mk.err.msg);
	for (uint32_t r = 0; r < 4; r++) {
		cr_assert(ck_reshard_part(mk.rs, r, 0, &part));
		cr_expect_eq(part.zeros, r >= 2);
		cr_expect_eq(part.shard.box.start[0], r % 2 * 3);
	}
	cr_expect(!ck_reshard_part(mk.rs, 4, 0, &part));
	mk_free();
}
