/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fuzz_reshard.c - any bytes as a mesh: words, a file, or a file of rules
 *
 * The first byte says which.  What is accepted gives every rank parts that lie
 * in their tensor; what is not has a line.
 */
#include "core/base/check.h"
#include "core/reshard/reshard.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define NR 4
#define LOOK 64 /* ranks */

static const char *const names[NR] = { "w", "layers.1.mlp.up_proj.weight",
				       "fc.weight", "n" };
static const uint64_t dims[] = { 8, 6, 64, 48, 5, 3, 2 };
static const struct {
	unsigned at, rank;
} shapes[NR] = { { 0, 2 }, { 2, 2 }, { 4, 3 }, { 0, 0 } };

/* Whole tensors of one cell each, which is all that is looked at. */
static void make_catalog(struct ck_catalog *img, struct ck_tensor *t,
			 struct ck_chunk *c, char *strs)
{
	uint32_t at = 0;

	for (unsigned i = 0; i < NR; i++) {
		uint32_t len = (uint32_t)strlen(names[i]);

		t[i] = (struct ck_tensor){ .name = at,
					   .shape = shapes[i].at,
					   .grid = shapes[i].at,
					   .rank = (uint8_t)shapes[i].rank,
					   .grid_rank = (uint8_t)shapes[i].rank,
					   .first = i,
					   .nr = 1 };
		memcpy(strs + at, &len, sizeof(len));
		memcpy(strs + at + 4, names[i], len + 1);
		at += 4 + len + 1;
		c[i] = (struct ck_chunk){ 0 };
	}
	*img = (struct ck_catalog){ .tensors = t,
				    .nr_tensors = NR,
				    .chunks = c,
				    .nr_chunks = NR,
				    .dims = dims,
				    .strs = strs };
}

static void check_part(const struct ck_reshard_part *p, unsigned tensor)
{
	const uint64_t *shape = dims + shapes[tensor].at;
	uint64_t volume = ck_box_volume(&p->shard.box), skip, first;
	struct ck_box box;

	if (p->shard.box.rank != shapes[tensor].rank)
		abort();
	for (uint64_t e = 0; e < volume; e += 1 + e / 2) {
		ck_shard_at(&p->shard, e, &box, &skip);
		if (skip >= ck_box_volume(&box))
			abort();
		for (unsigned d = 0; d < box.rank; d++)
			if (!ck_range_ok(box.start[d], box.len[d], shape[d]))
				abort();
		ck_box_is_stretch(&box, shape, &first);
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct ck_tensor tensors[NR];
	struct ck_chunk chunks[NR];
	struct ck_opts opts = { 0 };
	struct ck_reshard *rs = NULL;
	struct ck_reshard_part part;
	struct ck_err err = { 0 };
	struct ck_catalog img;
	char strs[256], *text;
	struct ck_reshard_in in = { .img = &img, .nr = NR, .opts = &opts };
	bool of_spec;

	make_catalog(&img, tensors, chunks, strs);
	text = calloc(size + 1, 1);
	if (!size || !text) {
		free(text);
		return 0;
	}
	memcpy(text, data + 1, size - 1);
	in.name = text;
	if (data[0] % 4 == 2) {
		in.name = "f";
		in.bytes = text;
		in.len = size - 1;
	} else if (data[0] % 4 == 3) {
		in.name = "tp=2,if=no";
		if (ck_opts_add(&opts, "rules", "r"))
			abort();
		ck_opts_keep(&opts, strdup(text), strlen(text));
	}
	if (ck_reshard_new(&rs, &in, &of_spec, &err)) {
		if (!err.msg[0])
			abort();
	} else {
		for (uint32_t t = 0; t < NR; t++)
			for (uint32_t r = 0; r < LOOK; r++)
				if (ck_reshard_part(rs, r, t, &part))
					check_part(&part, t);
	}
	ck_reshard_free(rs);
	ck_opts_free(&opts);
	free(text);
	return 0;
}
