/* SPDX-License-Identifier: Apache-2.0 */
/*
 * st.c - a rank's safetensors file; its sum runs over names and bytes
 *
 * __metadata__: "crc_num": decimal CRC-32 over, for each name in sorted order,
 * the name and the tensor's bytes.
 */
#include "core/format/mindspore/set.h"

#include "core/base/auto.h"
#include "core/base/check.h"
#include "core/base/crc32.h"
#include "core/base/le.h"
#include "core/container/container.h"
#include "core/container/st_file.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define MAX_ZEROS (1 << 24) /* of an integer that went in as zeros */

static int add_entry(struct ck_ms_set *s, const struct ck_st_file *f,
		     const struct ck_st_entry *e, struct ck_source *in,
		     uint32_t file, struct ck_err *err)
{
	struct ck_ms_tensor t = {
		.bytes = e->end - e->begin,
		.file = file,
		.seg = (uint32_t)s->seg.nr,
		.nr_segs = 1,
		.dtype = e->dtype,
		.rank = e->rank,
	};

	if (e->why) {
		t.why = ck_ms_say(s, "%s: %s (dtype %s)", f->name, e->why,
				  e->dtype_name);
		if (!t.why)
			return ck_mindspore_no_memory(err);
	}
	if (!ck_vec_reserve(&s->seg, 1))
		return ck_mindspore_no_memory(err);
	s->seg.v[s->seg.nr++] = (struct ck_ms_seg){ e->begin, t.bytes };
	return ck_ms_add(s, &t, e->name, e->name_len, ck_st_file_shape(f, e),
			 in, err);
}

static int by_name(const void *a, const void *b)
{
	const struct ck_st_entry *x = *(struct ck_st_entry *const *)a;
	const struct ck_st_entry *y = *(struct ck_st_entry *const *)b;
	int way = memcmp(x->name, y->name, CK_MIN(x->name_len, y->name_len));

	return way ? way :
		     (x->name_len > y->name_len) - (x->name_len < y->name_len);
}

static bool is_integer(uint8_t dtype)
{
	return dtype >= CK_DT_U8 && dtype <= CK_DT_I64;
}

/*
 * The writer takes bytes(array), which for one integer n is n zero bytes
 * instead of its own: *odd is that sum, unless *vast, n is too large for it.
 */
static int sum_entry(const struct ck_st_entry *e, struct ck_source *in,
		     uint32_t *own, uint32_t *odd, bool *vast,
		     struct ck_err *err)
{
	static const unsigned char zeros[4096];
	unsigned char value[8] = { 0 };
	uint64_t len = e->end - e->begin, n;
	int ret;

	*own = ck_crc32(*own, e->name, e->name_len);
	*odd = ck_crc32(*odd, e->name, e->name_len);
	if (e->rank || !is_integer(e->dtype) || len > sizeof(value)) {
		ret = ck_ms_crc_of(in, e->begin, len, own, err);
		return ret ? ret : ck_ms_crc_of(in, e->begin, len, odd, err);
	}
	ret = ck_source_read(in, value, len, e->begin, err);
	*own = ck_crc32(*own, value, len);
	*vast |= ck_le64(value) > MAX_ZEROS;
	for (n = CK_MIN(ck_le64(value), (uint64_t)MAX_ZEROS); n;) {
		size_t k = (size_t)CK_MIN(n, sizeof(zeros));

		*odd = ck_crc32(*odd, zeros, k);
		n -= k;
	}
	return ret;
}

static int sum(const struct ck_st_file *f, struct ck_source *in, uint32_t *own,
	       uint32_t *odd, bool *vast, struct ck_err *err)
{
	ck_auto_free const struct ck_st_entry **order = NULL;
	int ret = 0;

	*own = *odd = 0;
	order = reallocarray(NULL, f->tensors.nr + 1,
			     sizeof(struct ck_st_entry *));
	if (!order)
		return ck_mindspore_no_memory(err);
	for (size_t i = 0; i < f->tensors.nr; i++)
		order[i] = &f->tensors.v[i];
	if (f->tensors.nr)
		qsort(order, f->tensors.nr, sizeof(struct ck_st_entry *),
		      by_name);
	for (size_t i = 0; i < f->tensors.nr && !ret; i++) {
		if (order[i]->end > f->size)
			return -EIO;
		ret = sum_entry(order[i], in, own, odd, vast, err);
	}
	return ret;
}

static int check_sum(struct ck_ms_set *s, const struct ck_st_file *f,
		     struct ck_source *in, uint32_t file, size_t first,
		     struct ck_err *err)
{
	const char *said =
		json_string_value(json_object_get(f->h.metadata, "crc_num"));
	uint32_t own, odd;
	uint64_t want;
	bool vast = false;
	char *end;
	int ret;

	if (!said)
		return 0;
	want = strtoull(said, &end, 10);
	if (end == said || *end)
		return ck_ms_problem(s, CK_WARNING, file, 0, 0,
				     "its crc_num is no number", err);
	if (!ck_ms_wants_crc(s, f->size))
		return ck_ms_crc_unchecked(s, file, err);
	ret = sum(f, in, &own, &odd, &vast, err);
	if (ret == -EIO)
		return 0; /* torn: the builder says so */
	if (ret || own == want || odd == want)
		return ret;
	ret = ck_ms_crc_wrong(
		s, file, own, want,
		vast ? "the writer sums single integers wrongly" : NULL, err);
	if (vast)
		return ret;
	for (size_t i = first; i < s->tensor.nr; i++)
		s->tensor.v[i].flags |= CK_MS_SPOILED;
	return ret;
}

int ck_ms_read_safetensors(struct ck_ms_set *s, struct ck_source *in,
			   uint32_t file, struct ck_err *err)
{
	const char *name = s->file.v[file].name;
	size_t first = s->tensor.nr;
	struct ck_st_file f;
	struct ck_err why = { 0 };
	int ret = ck_st_file_read(&f, name, s->file.v[file].src, in, 0, &why);

	if (ret == -EINVAL) {
		ck_st_file_free(&f);
		return ck_ms_problem(s, CK_ERROR, file, 0, 0, why.msg, err);
	}
	if (ret && err)
		*err = why;
	for (size_t i = 0; i < f.tensors.nr && !ret; i++)
		ret = add_entry(s, &f, &f.tensors.v[i], in, file, err);
	if (!ret)
		ret = ck_st_file_say_tail(&f, s->b, err);
	if (!ret)
		ret = check_sum(s, &f, in, file, first, err);
	ck_st_file_free(&f);
	return ret;
}

int ck_ms_read_file(struct ck_ms_set *s, const char *name, uint32_t rank,
		    struct ck_err *err)
{
	ck_auto_source struct ck_source *in = NULL;
	struct ck_ms_part_file f = { .rank = rank };
	int kind = ck_ms_kind(s->dir, name, err), ret;
	uint32_t at = (uint32_t)s->file.nr;

	if (kind < 0)
		return kind;
	if (kind == CK_MS_ENCRYPTED)
		return ck_fail(
			err, EINVAL,
			"%s: it is encrypted (AES-GCM, AES-CBC or SM4-CBC, by MindSpore's enc_key): load it with the key and save it again without",
			name);
	ret = ck_dir_source(s->dir, s->b, name, &f.src, &in, err);
	if (!ret && s->compares)
		ret = ck_builder_unlabelled_rank(s->b, f.src, name, err);
	if (ret)
		return ret;
	f.name = ck_ms_say(s, "%s", name);
	if (!f.name || !ck_vec_reserve(&s->file, 1))
		return ck_mindspore_no_memory(err);
	s->file.v[s->file.nr++] = f;
	if (!in) {
		s->missing = true;
		return 0;
	}
	if (kind == CK_MS_SAFETENSORS)
		return ck_ms_read_safetensors(s, in, at, err);
	if (kind == CK_MS_CKPT)
		return ck_ms_read_ckpt(s, in, at, err);
	return ck_ms_problem(
		s, CK_ERROR, at, 0, (uint64_t)in->st.st_size,
		"expected a checkpoint of MindSpore, which begins with a record",
		err);
}
