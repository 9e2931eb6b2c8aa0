/* SPDX-License-Identifier: Apache-2.0 */
/*
 * st.c - a rank's safetensors file; its sum runs over names and bytes
 *
 * __metadata__: "crc_num": decimal CRC-32 over, for each name in sorted order,
 * the name and the tensor's bytes.
 */
#include "core/format/mindspore/mindspore.h"

#include "core/base/auto.h"
#include "core/base/check.h"
#include "core/base/crc32.h"
#include "core/base/le.h"
#include "core/base/match.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define MAX_ZEROS (1 << 24) /* of an integer that went in as zeros */

/*
 * The writer takes bytes(array), which for one integer n is n zero bytes
 * instead of its own: @odd is that sum, unless @vast, n is too large for it.
 */
struct sums {
	uint32_t own, odd;
	bool vast;
};

int ck_mindspore_st_key(struct ck_asm *a, uint32_t file,
			const struct ck_found *f, struct ck_err *err)
{
	const struct ck_st_entry *e = f->entry;
	const struct mindspore_run run = { e->begin, e->end - e->begin };
	const struct mindspore_held h = {
		.bytes = run.len,
		.run = ck_arena_copy(&a->mem, &run, sizeof(run)),
		.nr_runs = 1,
	};
	struct ck_extent x = f->x;

	if (x.fault)
		x.fault = ck_arena_fmt(&a->mem, "%s: %s", a->files.v[file].name,
				       x.fault);
	return ck_mindspore_add(a->ctx, file, f->name, f->len, &x, &h, err);
}

static int by_name(const void *a, const void *b)
{
	const struct ck_st_entry *x = *(struct ck_st_entry *const *)a;
	const struct ck_st_entry *y = *(struct ck_st_entry *const *)b;

	return ck_text_order(x->name, x->name_len, y->name, y->name_len);
}

static int sum_entry(const struct ck_st_entry *e, struct ck_source *in,
		     struct sums *sums, struct ck_err *err)
{
	static const unsigned char zeros[4096];
	bool integer = e->dtype >= CK_DT_U8 && e->dtype <= CK_DT_I64;
	unsigned char value[8] = { 0 };
	uint64_t len = e->end - e->begin, n;
	int ret;

	sums->own = ck_crc32(sums->own, e->name, e->name_len);
	sums->odd = ck_crc32(sums->odd, e->name, e->name_len);
	if (e->rank || !integer || len > sizeof(value)) {
		ret = ck_mindspore_sum(in, e->begin, len, &sums->own, err);
		return ret ? ret :
			     ck_mindspore_sum(in, e->begin, len, &sums->odd,
					      err);
	}
	ret = ck_source_read(in, value, len, e->begin, err);
	sums->own = ck_crc32(sums->own, value, len);
	sums->vast |= ck_le64(value) > MAX_ZEROS;
	for (n = CK_MIN(ck_le64(value), (uint64_t)MAX_ZEROS); n;) {
		size_t k = (size_t)CK_MIN(n, sizeof(zeros));

		sums->odd = ck_crc32(sums->odd, zeros, k);
		n -= k;
	}
	return ret;
}

static int sum_all(const struct ck_st_file *f, struct ck_source *in,
		   struct sums *sums, struct ck_err *err)
{
	ck_auto_free const struct ck_st_entry **order = reallocarray(
		NULL, f->tensors.nr + 1, sizeof(struct ck_st_entry *));
	int ret = 0;

	if (!order)
		return ck_no_memory(err);
	for (size_t i = 0; i < f->tensors.nr; i++)
		order[i] = &f->tensors.v[i];
	if (f->tensors.nr)
		qsort(order, f->tensors.nr, sizeof(struct ck_st_entry *),
		      by_name);
	for (size_t i = 0; i < f->tensors.nr && !ret; i++)
		ret = order[i]->end > f->size ?
			      -EIO :
			      sum_entry(order[i], in, sums, err);
	return ret;
}

static int check_sum(struct mindspore_set *s, uint32_t file,
		     const struct ck_st_file *f, struct ck_source *in,
		     struct ck_err *err)
{
	const char *said =
		json_string_value(json_object_get(f->h.metadata, "crc_num"));
	struct sums sums = { .vast = false };
	uint64_t want;
	char *end;
	int ret;

	if (!said)
		return 0;
	want = strtoull(said, &end, 10);
	if (end == said || *end)
		return ck_builder_report_file(s->a.b, CK_WARNING, f->name, err,
					      "its crc_num is no number");
	ret = ck_mindspore_wants_sum(s, file, f->size, err);
	if (ret <= 0)
		return ret;
	ret = sum_all(f, in, &sums, err);
	if (ret || sums.own == want || sums.odd == want)
		return ret == -EIO ? 0 : ret; /* torn: the builder says so */
	return ck_mindspore_sum_wrong(
		s, file, sums.own, want,
		sums.vast ? "the writer sums single integers wrongly" : NULL,
		err);
}

int ck_mindspore_st_opened(struct ck_asm *a, uint32_t file,
			   const struct ck_container *c, struct ck_err *why,
			   struct ck_err *err)
{
	struct mindspore_set *s = a->ctx;
	const struct ck_asm_file *f = &a->files.v[file];
	int ret = s->compares ? ck_builder_unlabelled_rank(a->b, f->src,
							   f->name, err) :
				0;

	(void)why;
	s->in = c->t.s;
	return ret ? ret : check_sum(s, file, &c->st, c->t.s, err);
}
