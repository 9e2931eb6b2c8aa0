/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fuzz_ms_ckpt.c - any bytes as a .ckpt file of MindSpore
 *
 * Of what is accepted, the runs of a tensor add up to its size.
 */
#include "core/base/check.h"
#include "core/format/mindspore/mindspore.h"
#include "tests/lib/memdir.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(const struct mindspore_tensor *t)
{
	uint64_t sum = 0, nr = 1;
	unsigned elem = ck_dtype_info(t->dtype)->size;

	for (uint32_t i = 0; i < t->nr_runs; i++)
		sum += t->run[i].len;
	if (sum != t->bytes || t->rank > CK_MAX_RANK)
		abort();
	if (t->fault || t->flags & MINDSPORE_OPAQUE)
		return;
	for (unsigned d = 0; d < t->rank; d++)
		if (!ck_mul_ok(nr, t->dims[d], &nr))
			abort();
	if (nr * elem * (t->flags & MINDSPORE_WIDE ? 2 : 1) != sum)
		abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct ck_err err = { 0 };
	struct mindspore_set s = { .compares = true };
	struct memdir m;
	int ret;

	memdir_init(&m);
	s.dir = &m.dir;
	s.b = ck_builder_new(&err);
	if (!s.b || !memdir_put(&m, "a.ckpt", data, size))
		abort();
	ret = ck_mindspore_read(&s, "a.ckpt", 0, &err);
	if (ret && !err.msg[0])
		abort();
	for (size_t i = 0; i < s.name.nr; i++)
		for (const struct mindspore_tensor *t = s.name.v[i].first; t;
		     t = t->next)
			check(t);
	if (!ret && ck_mindspore_merge(&s, &err) && !err.msg[0])
		abort();
	ck_builder_free(s.b);
	ck_mindspore_set_free(&s);
	memdir_free(&m);
	return 0;
}
