/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fuzz_mg_rules.c - any bytes as a file of tensor-parallel rules
 *
 * What is read is matched with a few names, and cut with every shape it takes.
 */
#include "core/base/check.h"
#include "core/base/match.h"
#include "core/assemble/cut.h"
#include "core/mesh/tp_rules.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void use(const struct ck_tp_rule *r)
{
	static const char *const names[] = {
		"", "embedding.word_embeddings.weight",
		"decoder.layers.0.mlp.linear_fc1.weight", "aaaaaaaaaaaaaaaab"
	};
	const uint64_t shape[] = { 12, 8 };
	struct ck_placement p = { 0 };
	struct ck_cut cut = { 0 };

	for (size_t i = 0; i < CK_ARRAY_LEN(names); i++)
		ck_glob(r->pattern.s, r->pattern.len, names[i],
			strlen(names[i]));
	if (r->axis >= CK_MAX_RANK || r->nr_parts > CK_TP_MAX_PARTS ||
	    r->nr_of > CK_TP_MAX_PARTS || r->nr_conds > CK_TP_MAX_PARTS)
		abort();
	if (r->how == CK_TP_SAME)
		return;
	ck_mesh_add_axis(&p.mesh, 2, 2);
	if (!ck_tp_step(r, &p, 0))
		abort();
	if (!ck_cut_placed(&cut, &p, 1, shape, 2, NULL) &&
	    r->how == CK_TP_PARTS && cut.pieces.nr != r->nr_parts)
		abort();
	ck_cut_free(&cut);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct ck_tp_rules r = { 0 };
	struct ck_err err = { 0 };
	char *copy = malloc(size + 1);
	int ret;

	if (size)
		memcpy(copy, data, size);
	ret = ck_tp_rules_parse(&r, "rules", copy, size, &err);
	if (ret && !err.msg[0])
		abort();
	for (size_t i = 0; i < r.v.nr; i++)
		use(&r.v.v[i]);
	ck_tp_rules_free(&r);
	free(copy);
	return 0;
}
