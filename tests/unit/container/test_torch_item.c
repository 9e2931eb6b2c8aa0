/* SPDX-License-Identifier: Apache-2.0 */
/* Items of real checkpoints, and items whose pickle and bytes do not agree. */
#include "core/container/torch_item.h"
#include "core/geom/catalog.h"
#include "tests/unit/parse/data.h"
#include "tests/unit/parse/zip_make.h"

#include <criterion/criterion.h>
#include <string.h>

static struct ck_err err;
static struct ck_torch_item item;
static struct zip z;

/* A source that counts reads. */
struct counted {
	struct ck_source base;
	const uint8_t *v;
	size_t len;
	unsigned reads;
	size_t bytes;
};

static int read_counted(struct ck_source *s, void *buf, size_t len,
			uint64_t off, struct ck_err *e)
{
	struct counted *c = (struct counted *)s;

	if (off > c->len || len > c->len - off)
		return ck_fail(e, EIO, "past the end");
	memcpy(buf, c->v + off, len);
	c->reads++;
	c->bytes += len;
	return 0;
}

static const struct ck_source_ops counted_ops = { .read_at = read_counted };

static struct counted source(const void *v, size_t len)
{
	struct counted c = { .v = v, .len = len };

	c.base.ops = &counted_ops;
	c.base.name = "made";
	return c;
}

static int read_item(const void *v, size_t len)
{
	struct counted c = source(v, len);

	return ck_torch_item_read(&c.base, 0, len, &item, &err);
}

Test(torch_item, real)
{
	struct data d = data_read("item-2.14.zip");

	cr_assert_eq(read_item(d.bytes, d.len), 0, "%s", err.msg);
	cr_expect_eq(item.payload_off, 704);
	cr_expect_eq(item.payload_len, 48);
	cr_expect_eq(item.dtype, CK_DT_F32);
	cr_expect(item.rank == 2 && item.shape[0] == 4 && item.shape[1] == 3);
	cr_expect(item.stride[0] == 3 && item.stride[1] == 1);
	cr_expect(!item.storage_offset && item.xform == CK_XF_NONE);
	data_free(&d);
	d = data_read("item-1.13.zip");
	cr_assert_eq(read_item(d.bytes, d.len), 0, "%s", err.msg);
	cr_expect(item.payload_off == 320 && item.payload_len == 64);
	data_free(&d);
}

/* In the middle of a file, where nothing is aligned. */
Test(torch_item, among_others)
{
	struct data d = data_read("item-2.14.zip");
	char *file = malloc(3 * d.len + 5);
	struct counted c = source(file, 3 * d.len + 5);

	memset(file, 'P', 5);
	for (unsigned i = 0; i < 3; i++)
		memcpy(file + 5 + i * d.len, d.bytes, d.len);
	cr_assert_eq(ck_torch_item_read(&c.base, 5 + d.len, d.len, &item, &err),
		     0, "%s", err.msg);
	cr_expect_eq(item.payload_off, 5 + d.len + 704);
	cr_expect_eq(
		ck_torch_item_read(&c.base, 5 + d.len, d.len - 1, &item, &err),
		-EINVAL);
	cr_expect_eq(ck_torch_item_read(&c.base, 6 + d.len, d.len, &item, &err),
		     -EINVAL);
	cr_expect_eq(
		ck_torch_item_read(&c.base, 5 + 3 * d.len, d.len, &item, &err),
		-EIO);
	cr_expect_eq(
		ck_torch_item_read(&c.base, UINT64_MAX - 5, 100, &item, &err),
		-EINVAL);
	cr_expect_eq(ck_torch_item_read(&c.base, 5, 0, &item, &err), -EINVAL);
	free(file);
	data_free(&d);
}

/* What a rebuild call says; see make_pickle(). */
struct says {
	const char *func, *class, *key;
	int count, offset, rank;
	int size[3], stride[3];
	const char *after; /* more arguments, as opcodes */
	const char *wrap; /* opcodes around the call, "%" for itself */
};

static const struct says plain = {
	.func = "_rebuild_tensor_v2",
	.class = "FloatStorage",
	.key = "0",
	.count = 12,
	.rank = 2,
	.size = { 3, 4 },
	.stride = { 4, 1 },
	.after = "\x89)",
};

static struct says s;
static char pickle_bytes[4096];

static size_t put_ints(char *to, const int *v, int nr)
{
	size_t n = 0;

	to[n++] = '(';
	for (int i = 0; i < nr; i++)
		n += (size_t)sprintf(to + n, "I%d\n", v[i]);
	to[n++] = 't';
	return n;
}

static size_t make_pickle(void)
{
	char *to = pickle_bytes;
	const char *wrap = s.wrap ? s.wrap : "%";

	to += sprintf(to, "\x80\x02");
	for (; *wrap; wrap++) {
		if (*wrap != '%') {
			*to++ = *wrap;
			continue;
		}
		to += sprintf(to,
			      "ctorch._utils\n%s\n((S'storage'\nctorch\n"
			      "%s\nS'%s'\nS'cpu'\nI%d\ntQI%d\n",
			      s.func, s.class, s.key, s.count, s.offset);
		to += put_ints(to, s.size, s.rank);
		to += put_ints(to, s.stride, s.rank);
		to += sprintf(to, "%stR", s.after);
	}
	*to++ = '.';
	return (size_t)(to - pickle_bytes);
}

static const char payload[64] = "the bytes of the storage, 64 of them";

static int read_made(const char *order, size_t len)
{
	struct zip_member m[] = {
		{ .name = "a/data.pkl", .bytes = pickle_bytes, .padding = 9 },
		{ .name = "a/byteorder", .bytes = order, .len = strlen(order) },
		{ .name = "a/data/0", .bytes = payload, .len = len },
		{ .name = "a/version", .bytes = "3\n", .len = 2 },
	};

	m[0].len = make_pickle();
	zip_make(&z, m, 4);
	return read_item(z.v, z.len);
}

#define cr_item(change, text)                                         \
	do {                                                          \
		s = plain;                                            \
		change;                                               \
		cr_expect_eq(read_made("little", 48), -EINVAL);       \
		cr_expect(strstr(err.msg, text), "%s", err.msg);      \
		cr_expect(strstr(err.msg, "made: item at byte 0: ")); \
	} while (0)

Test(torch_item, made)
{
	s = plain;

	cr_assert_eq(read_made("little", 48), 0, "%s", err.msg);
	cr_expect_eq(item.payload_off, z.at[2].payload);
	cr_expect_eq(item.payload_len, 48);
	cr_expect(item.rank == 2 && item.stride[0] == 4);
	s.rank = 0;
	s.offset = 11;
	cr_assert_eq(read_made("little", 48), 0, "%s", err.msg);
	cr_expect(item.rank == 0 && item.storage_offset == 11);
	s = plain;
	s.size[0] = 0;
	s.stride[0] = 1 << 30;
	cr_expect_eq(read_made("little", 48), 0, "%s", err.msg);
	/* Expanded, transposed, part of a larger storage. */
	s = plain;
	s.stride[0] = 0;
	cr_expect_eq(read_made("little", 48), 0, "%s", err.msg);
	s = plain;
	s.stride[0] = 1;
	s.stride[1] = 3;
	cr_expect_eq(read_made("little", 48), 0, "%s", err.msg);
	s = plain;
	s.size[0] = 2;
	s.offset = 4;
	cr_expect_eq(read_made("little", 48), 0, "%s", err.msg);
	cr_expect_eq(item.storage_offset, 4);
}

Test(torch_item, outside_the_storage)
{
	cr_item(s.offset = 1, "reaches out of its storage of 12");
	cr_item(s.offset = -1, "malformed offset");
	cr_item(s.size[1] = 5, "reaches out");
	cr_item(s.stride[0] = 5, "reaches out");
	cr_item(s.stride[0] = 0x7fffffff, "reaches out");
	cr_item(s.stride[0] = -4, "reaches out");
	cr_item((s.rank = 0, s.offset = 12), "reaches out");
	cr_item((s.size[0] = 0, s.offset = 13), "reaches out");
	cr_item(s.size[0] = -3, "a size of -3");
	cr_item(s.count = 11, "reaches out");
	cr_item(s.count = 13, "52 bytes in a record of 48");
	cr_item(s.count = -12, "malformed storage");
	cr_item((s.rank = 3, s.size[0] = s.size[1] = s.size[2] = 0x7fffffff,
		 s.stride[0] = s.stride[1] = 0),
		"2^62");
	cr_item(s.key = "1", "no record data/1");
	cr_item(s.key = "../../../../../../../../../../../../../../../../"
			"../../../../x",
		"a storage's key of");
}

Test(torch_item, negative_strides_inside)
{
	s = plain;

	s.offset = 8;
	s.stride[0] = -4;
	cr_assert_eq(read_made("little", 48), 0, "%s", err.msg);
	cr_expect_eq(item.stride[0], -4);
	s.offset = 7;
	cr_expect_eq(read_made("little", 48), -EINVAL);
}

Test(torch_item, dtypes)
{
	s = plain;

	s.func = "_rebuild_tensor_v3";
	s.class = "UntypedStorage";
	s.count = 12;
	s.after = "\x89)ctorch\nfloat8_e4m3fn\n";
	cr_assert_eq(read_made("little", 12), 0, "%s", err.msg);
	cr_expect_eq(item.dtype, CK_DT_F8_E4M3FN);
	s.after = "\x89)ctorch\nuint16\n";
	s.count = 24;
	cr_assert_eq(read_made("little", 24), 0, "%s", err.msg);
	cr_expect_eq(item.dtype, CK_DT_U16);
	s = plain;
	s.func = "_rebuild_qtensor";
	s.class = "QInt8Storage";
	s.after = "(NG????????I0\nt\x89)";
	cr_assert_eq(read_made("little", 12), 0, "%s", err.msg);
	cr_expect_eq(item.dtype, CK_DT_QINT8);
	cr_item(s.class = "QUInt4x2Storage", "whole bytes");
	cr_item(s.class = "UntypedStorage", "whole bytes");
	cr_item(s.class = "NoStorage", "whole bytes");
	cr_item((s.func = "_rebuild_tensor_v3",
		 s.after = "\x89)ctorch\nint3\n"),
		"a dtype that is not known");
	cr_item((s.func = "_rebuild_tensor_v3", s.after = "\x89)"),
		"a dtype that is not known");
}

Test(torch_item, transforms)
{
	s = plain;

	cr_assert_eq(read_made("big", 48), 0, "%s", err.msg);
	cr_expect_eq(item.xform, CK_XF_BYTESWAP);
	s.after = "\x89)}S'conj'\nI01\ns";
	cr_assert_eq(read_made("little", 48), 0, "%s", err.msg);
	cr_expect_eq(item.xform, CK_XF_CONJ);
	cr_expect_eq(read_made("big", 48), -EINVAL);
	s.after = "\x89)}S'neg'\nI01\nsS'conj'\nI00\ns";
	cr_assert_eq(read_made("little", 48), 0, "%s", err.msg);
	cr_expect_eq(item.xform, CK_XF_NEG);
	s.after = "\x89)}S'neg'\nI01\nsS'conj'\nI01\ns";
	cr_expect_eq(read_made("little", 48), -EINVAL);
	s = plain;
	s.class = "CharStorage";
	cr_assert_eq(read_made("big", 12), 0, "%s", err.msg);
	cr_expect_eq(item.xform, CK_XF_NONE);
	cr_expect_eq(read_made("middle", 12), -EINVAL);
	cr_expect(strstr(err.msg, "found 'middle'"), "%s", err.msg);
}

Test(torch_item, wrapped)
{
	s = plain;

	s.wrap = "ctorch._utils\n_rebuild_parameter\n(%I01\n)tR";
	cr_assert_eq(read_made("little", 48), 0, "%s", err.msg);
	s.wrap = "ctorch._tensor\n_rebuild_from_type_v2\n"
		 "(ctorch._utils\n_rebuild_parameter\ncm\nMine\n(%I01\n)t}tR";
	cr_assert_eq(read_made("little", 48), 0, "%s", err.msg);
	cr_item(s.wrap = "(%t", "expected a tensor, found a tuple");
	cr_item(s.wrap = "cos\nsystem\n(%tR", "found os.system");
	cr_item(s.wrap = "cmy\n_rebuild_parameter\n(%tR",
		"found my._rebuild_parameter");
	cr_item(s.wrap = "ctorchvision\n_rebuild_parameter\n(%tR",
		"found torchvision._rebuild_parameter");
	cr_item(s.wrap = "ctorch._utils\n_rebuild_parameter\n(tR",
		"without its tensor");
	cr_item(s.func = "_rebuild_meta_tensor_no_storage",
		"a tensor of the meta device, without data: torch._utils._rebuild_meta");
}

Test(torch_item, wrapped_too_often)
{
	static char wrap[2048];

	for (int depth = 15; depth <= 16; depth++) {
		*wrap = '\0';
		for (int i = 0; i < depth; i++)
			strcat(wrap, "ctorch._utils\n_rebuild_parameter\n(");
		strcat(wrap, "%");
		for (int i = 0; i < depth; i++)
			strcat(wrap, "tR");
		s = plain;
		s.wrap = wrap;
		cr_expect_eq(read_made("little", 48), depth < 16 ? 0 : -EINVAL,
			     "%s", err.msg);
	}
	cr_expect(strstr(err.msg, "wrapped more than"), "%s", err.msg);
}

Test(torch_item, ambiguous_archives)
{
	s = plain;
	struct zip_member m[] = {
		{ .name = "a/data.pkl", .bytes = pickle_bytes },
		{ .name = "b/data.pkl", .bytes = pickle_bytes },
		{ .name = "a/data/0", .bytes = payload, .len = 48 },
	};

	m[0].len = m[1].len = make_pickle();
	zip_make(&z, m, 3);
	cr_expect_eq(read_item(z.v, z.len), -EINVAL);
	cr_expect(strstr(err.msg, "two records are data.pkl"), "%s", err.msg);
	m[1].name = "b/data.pk";
	zip_make(&z, m, 3);
	cr_expect_eq(read_item(z.v, z.len), 0, "%s", err.msg);
	m[0].name = "data.pkl";
	zip_make(&z, m, 3);
	cr_expect_eq(read_item(z.v, z.len), -EINVAL);
	cr_expect(strstr(err.msg, "no record data.pkl"), "%s", err.msg);
}

/* Two small reads, whatever the payload. */
Test(torch_item, reads_little)
{
	static uint8_t large[40000];
	s = plain;
	struct zip_member m[] = {
		{ .name = "a/data.pkl", .bytes = pickle_bytes },
		{ .name = "a/data/0", .bytes = large, .len = sizeof(large) },
		{ .name = "a/version", .bytes = "3\n", .len = 2 },
	};
	struct counted c;

	s.count = sizeof(large) / 4;
	m[0].len = make_pickle();
	zip_make(&z, m, 3);
	c = source(z.v, z.len);
	cr_assert_eq(ck_torch_item_read(&c.base, 0, z.len, &item, &err), 0,
		     "%s", err.msg);
	cr_expect(c.reads == 2 && c.bytes <= 2560, "%u reads, %zu bytes",
		  c.reads, c.bytes);
	/* A pickle behind the payload costs one read more for each piece. */
	m[1].len = 3000;
	s.count = 750;
	m[0].len = make_pickle();
	zip_make(&z,
		 (struct zip_member[]){
			 { .name = "a/x", .bytes = large, .len = 9000 },
			 m[0],
			 m[1],
			 m[2],
			 { .name = "a/y", .bytes = large, .len = 9000 } },
		 5);
	c = source(z.v, z.len);
	cr_assert_eq(ck_torch_item_read(&c.base, 0, z.len, &item, &err), 0,
		     "%s", err.msg);
	cr_expect_eq(item.payload_off, z.at[2].payload);
	cr_expect_leq(c.reads, 5);
}
