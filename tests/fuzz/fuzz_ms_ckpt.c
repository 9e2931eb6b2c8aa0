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

static void check(const struct ck_asm_piece *p, const struct mindspore_held *h)
{
	uint64_t sum = 0, nr = 1;
	unsigned elem = ck_dtype_info(p->x.dtype)->size;

	for (uint32_t i = 0; i < h->nr_runs; i++)
		sum += h->run[i].len;
	if (sum != h->bytes || p->x.rank > CK_MAX_RANK)
		abort();
	if (p->x.fault || h->flags & MINDSPORE_OPAQUE)
		return;
	for (unsigned d = 0; d < p->x.rank; d++)
		if (!ck_mul_ok(nr, p->x.shape[d], &nr))
			abort();
	if (nr * elem * (h->flags & MINDSPORE_WIDE ? 2 : 1) != sum)
		abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct ck_err err = { 0 };
	struct ck_builder *b = ck_builder_new(&err);
	struct mindspore_file file = { .name = "a.ckpt" };
	struct mindspore_set s;
	struct memdir m;
	int ret;

	memdir_init(&m);
	ck_mindspore_begin(&s, &m.dir, NULL, b);
	s.compares = true;
	if (!b || !memdir_put(&m, "a.ckpt", data, size))
		abort();
	ret = ck_mindspore_kind(&m.dir, file.name, &err);
	file.kind = (enum mindspore_kind)CK_MAX(ret, 0);
	ret = ck_mindspore_read(&s, &file, &err);
	if (ret && !err.msg[0])
		abort();
	for (size_t i = 0; i < s.a.pieces.nr; i++)
		check(&s.a.pieces.v[i], &s.held.v[i]);
	if (!ret && ck_mindspore_merge(&s, &err) && !err.msg[0])
		abort();
	ck_builder_free(b);
	ck_mindspore_end(&s);
	memdir_free(&m);
	return 0;
}
