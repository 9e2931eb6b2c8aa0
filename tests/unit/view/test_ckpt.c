/* SPDX-License-Identifier: Apache-2.0 */
/* model.ckpt: its records, parsed as the reader of such files parses them. */
#include "core/base/auto.h"
#include "core/base/check.h"
#include "core/geom/dtype.h"
#include "core/parse/protobuf.h"
#include "core/emit/ckpt_records.h"
#include "tests/unit/view/viewkit.h"

#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

extern const struct ck_view_ops ck_view_ckpt;

static struct viewkit k;
static struct ck_view *v;
static unsigned char *bytes;
static uint64_t len;
static struct ck_err err;

static void setup(void)
{
	vk_init(&k);
}

static void teardown(void)
{
	free(bytes);
	ck_view_close(v);
	vk_free(&k);
}
TestSuite(ckpt_view, .init = setup, .fini = teardown);

static void open_view(void)
{
	v = vk_open(&k, &ck_view_ckpt, NULL);
	cr_assert(v);
	bytes = vk_bytes(v, vk_file(v, "model.ckpt"), &len);
}

/* What a record says. */
struct record {
	char name[128], type[32];
	unsigned rank;
	uint64_t dims[CK_MAX_RANK], off, len;
};

static void copy(char *to, size_t room, const struct ck_pb_field *f)
{
	cr_assert_lt(f->len, room);
	memcpy(to, bytes + f->off, f->len);
	to[f->len] = '\0';
}

static void tensor(struct ck_pb *pb, struct record *r)
{
	struct ck_pb_field f;

	while (ck_pb_next(pb, &f, &err) > 0) {
		if (f.number == 1) {
			cr_assert_eq(f.wire, CK_PB_VARINT);
			r->dims[r->rank++] = f.value;
		} else if (f.number == 2) {
			copy(r->type, sizeof(r->type), &f);
		} else {
			cr_assert_eq(f.number, 3);
			r->off = f.off;
			r->len = f.len;
		}
	}
	ck_pb_leave(pb);
}

/* The next record; false: it was the last. */
static bool next(struct ck_pb *pb, struct record *r)
{
	struct ck_pb_field f;

	*r = (struct record){ 0 };
	if (ck_pb_next(pb, &f, &err) <= 0)
		return false;
	cr_assert_eq(f.number, 1);
	cr_assert_eq(ck_pb_enter(pb, &f, &err), 0);
	while (ck_pb_next(pb, &f, &err) > 0) {
		if (f.number == 1) {
			copy(r->name, sizeof(r->name), &f);
		} else {
			cr_assert_eq(f.number, 2);
			cr_assert_eq(ck_pb_enter(pb, &f, &err), 0);
			tensor(pb, r);
		}
	}
	ck_pb_leave(pb);
	return true;
}

/* Every record's bytes are its tensor's: how many there are. */
static unsigned check_records(void)
{
	const struct ck_pb_in in = { .read = ck_pb_read_mem,
				     .ctx = bytes,
				     .size = len };
	struct ck_pb pb;
	struct record r;
	unsigned nr = 0;

	ck_pb_init(&pb, &in, len);
	while (next(&pb, &r)) {
		uint32_t t = ck_catalog_find_name(&k.ck.img, 0, r.name,
						  strlen(r.name));
		const struct ck_tensor *want = &k.ck.img.tensors[t];

		cr_assert_neq(t, CK_NONE, "%s", r.name);
		cr_expect_str_eq(r.type, ck_dtype_info(want->dtype)->mindspore);
		cr_expect_eq(r.rank, want->rank);
		cr_expect_eq(memcmp(r.dims, k.ck.img.dims + want->shape,
				    r.rank * sizeof(*r.dims)),
			     0, "%s", r.name);
		cr_expect_eq(r.len, want->size);
		for (uint64_t b = 0; b < r.len; b++)
			cr_assert_eq(bytes[r.off + b], vk_byte(t, b), "%s",
				     r.name);
		nr++;
	}
	cr_expect_eq(pb.pos, len, "%s", err.msg);
	return nr;
}

Test(ckpt_view, dtypes_shapes_and_names)
{
	static const enum ck_dtype types[] = {
		CK_DT_BOOL, CK_DT_U8,  CK_DT_I16,  CK_DT_U32, CK_DT_I64,
		CK_DT_F16,  CK_DT_F32, CK_DT_BF16, CK_DT_F64, CK_DT_INT4,
	};

	for (unsigned i = 0; i < CK_ARRAY_LEN(types); i++)
		vk_tensor(&k, ck_dtype_info(types[i])->name, types[i], 2,
			  DIMS(2, 129));
	vk_tensor(&k, "scalar", CK_DT_F32, 0, NULL);
	vk_tensor(&k, "empty", CK_DT_F32, 2, DIMS(0, 3));
	vk_tensor(&k, "\xc3\xa9/b", CK_DT_F32, 1, DIMS(300));
	open_view();
	cr_expect_eq(check_records(), CK_ARRAY_LEN(types) + 3);
}

Test(ckpt_view, a_text_has_any_length)
{
	static const char want[] = "\x0a\x15\x0a\x04note\x12\x0d\x08\x00\x12"
				   "\x03str\x1a\x04";

	vk_tensor(&k, "note", CK_DT_STR, 1, DIMS(4));
	open_view();
	cr_assert_eq(len, sizeof(want) - 1 + 4);
	cr_expect_eq(memcmp(bytes, want, sizeof(want) - 1), 0);
}

Test(ckpt_view, what_mindspore_does_not_load_is_left_out)
{
	char *problems;

	vk_tensor(&k, "complex", CK_DT_C64, 1, DIMS(2));
	vk_tensor(&k, "fp8", CK_DT_F8_E5M2, 1, DIMS(2));
	vk_tensor(&k, "fnuz", CK_DT_F8_E4M3FNUZ, 1, DIMS(2));
	vk_tensor(&k, "nothing", CK_DT_F32, 1, DIMS(0));
	vk_tensor(&k, "w\xff", CK_DT_F32, 1, DIMS(2));
	vk_tensor(&k, "w", CK_DT_F32, 1, DIMS(2));
	vk_tensor(&k, "exabytes", CK_DT_BF16, 2, DIMS(1ull << 40, 1 << 20));
	open_view();
	cr_expect_eq(check_records(), 1);
	problems = vk_problems(&k);
	cr_expect(strstr(problems, "exabytes"));
	cr_expect(strstr(problems, "over 65536 records of 512 MiB"));
	cr_expect(strstr(problems, "complex"));
	cr_expect(strstr(problems, "fp8"));
	cr_expect(strstr(problems, "fnuz"));
	cr_expect(strstr(problems, "nothing"));
	cr_expect(strstr(problems, "UTF-8"));
	free(problems);
}

Test(ckpt_view, as_many_records_as_memory_is_not_spent_on)
{
	struct ck_vfile f;

	for (unsigned i = 0; i < 17; i++) {
		char name[8];

		snprintf(name, sizeof(name), "t%u", i);
		vk_tensor(&k, name, CK_DT_U8, 1, DIMS(CK_CKPT_TENSOR_MAX));
	}
	v = vk_open(&k, &ck_view_ckpt, NULL);
	cr_assert(v);
	cr_expect(!v->ops->file(v, 0, &f));
}

/* As MindSpore cuts: 512 MiB, 512 MiB, the rest; each with all dimensions. */
Test(ckpt_view, a_large_tensor_is_several_records)
{
	const uint64_t size = 2 * CK_CKPT_RECORD_MAX + 12;
	struct ck_vfile f;
	struct ck_span s;
	uint64_t off = 0;

	vk_tensor(&k, "large", CK_DT_F32, 1, DIMS(size / 4));
	v = vk_open(&k, &ck_view_ckpt, NULL);
	cr_assert(v->ops->file(v, 0, &f));
	for (unsigned i = 0; i < 3; i++) {
		uint64_t want = i < 2 ? CK_CKPT_RECORD_MAX : 12;

		v->ops->at(v, 0, off, &s);
		cr_expect_eq(s.kind, CK_SPAN_MADE);
		cr_expect_lt(s.len, 64);
		off += s.len;
		v->ops->at(v, 0, off, &s);
		cr_expect_eq(s.kind, CK_SPAN_TENSOR);
		cr_expect_eq(s.off, i * CK_CKPT_RECORD_MAX);
		cr_expect_eq(s.len, want);
		v->ops->at(v, 0, off + want - 1, &s);
		cr_expect_eq(s.off, i * CK_CKPT_RECORD_MAX + want - 1);
		cr_expect_eq(s.len, 1);
		off += want;
	}
	cr_expect_eq(off, f.size);
}
