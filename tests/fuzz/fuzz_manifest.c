/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fuzz_manifest.c - any bytes as a manifest, and again with a sum that fits,
 * without which hardly an input would get past the first check
 */
#include "core/manifest/manifest_priv.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void walk(const struct ck_manifest *m)
{
	struct ck_manifest_tensor t, found;
	struct ck_manifest_file f, same;
	uint64_t sum = 0;

	for (uint64_t i = 0; i < m->nr_files; i++) {
		ck_manifest_file(m, i, &f);
		if (strlen(f.name) != f.name_len ||
		    !ck_manifest_find_file(m, f.name, f.name_len, &same) ||
		    same.first != f.first)
			abort();
		for (uint64_t k = 0; k < f.nr; k++)
			sum += ck_manifest_block(m, f.first + k);
	}
	for (uint64_t i = 0; i < m->nr_tensors; i++) {
		ck_manifest_tensor(m, i, &t);
		if (!ck_manifest_find_tensor(m, t.tree, t.tree_len, t.name,
					     t.name_len, &found) ||
		    found.size != t.size || t.name[t.name_len])
			abort();
	}
	if (sum == 1) /* so that all are read */
		abort();
}

static void parse(const uint8_t *data, size_t size)
{
	struct ck_manifest m;
	struct ck_err err = { 0 };

	if (!ck_manifest_parse(&m, data, size, &err))
		walk(&m);
	else if (!err.code || !err.msg[0])
		abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct ck_digest sum;
	uint8_t *fixed;

	parse(data, size);
	if (size < CK_MF_HEAD + CK_MF_SUM)
		return 0;
	fixed = malloc(size);
	if (!fixed)
		return 0;
	memcpy(fixed, data, size);
	ck_le64_put(fixed + CK_MF_AT_LEN, size);
	sum = ck_digest_bytes(fixed, size - CK_MF_SUM);
	ck_mf_digest_put(fixed + size - CK_MF_SUM, &sum);
	parse(fixed, size);
	free(fixed);
	return 0;
}
