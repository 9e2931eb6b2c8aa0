/* SPDX-License-Identifier: Apache-2.0 */
/* dcp/, taken apart by the reader of DCP, its archives by that of torch's. */
#include "core/format/format.h"
#include "core/container/torch_item.h"
#include "core/geom/resolved.h"
#include "tests/lib/memdir.h"
#include "tests/unit/view/viewkit.h"
#include "tests/lib/memsource.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

extern const struct ck_view_ops ck_view_dcp;
extern const struct ck_format ck_format_dcp;

static struct viewkit k;
static struct ck_view *v;
static struct ck_opts opts;
static struct memdir mem;
static struct ck_catalog got;
static struct ck_err err;

static void setup(void)
{
	vk_init(&k);
	memdir_init(&mem);
}

static void teardown(void)
{
	if (got.base)
		ck_catalog_unmap(&got);
	memdir_free(&mem);
	ck_view_close(v);
	vk_free(&k);
	ck_opts_free(&opts);
}
TestSuite(view_dcp, .init = setup, .fini = teardown);

/* All files of the view, as the reader sees them. */
static void open_view(void)
{
	struct ck_vfile f;

	v = vk_open(&k, &ck_view_dcp, &opts);
	cr_assert(v);
	for (uint32_t i = 0; i < v->ops->nr(v); i++) {
		struct memdir_file *m;
		char name[CK_VIEW_NAME];
		unsigned char *bytes;
		uint64_t len;

		cr_assert(v->ops->file(v, i, &f));
		v->ops->label(v, i, name);
		cr_expect_eq(vk_file(v, name), i);
		bytes = vk_bytes(v, i, &len);
		cr_expect_eq(len, f.size);
		m = memdir_put(&mem, name, bytes, len);
		m->owned = bytes;
	}
}

static void load(void)
{
	struct ck_builder *b = ck_builder_new(&err);
	int fd = memfd_create("dcp", MFD_CLOEXEC);

	cr_assert_eq(ck_format_dcp.probe(&mem.dir, &err), CK_MATCH_INDEX);
	cr_assert_eq(ck_format_dcp.load(&mem.dir, b, &err), 0, "%s", err.msg);
	cr_assert_eq(ck_builder_finish(b, "dcp", fd, &err), 0, "%s", err.msg);
	ck_builder_free(b);
	cr_assert_eq(ck_catalog_map(&got, fd, &err), 0, "%s", err.msg);
	close(fd);
	cr_expect_eq(got.nr_problems, 0);
}

/* The bytes of one stored part, of tensor @want of the source from @at on. */
static void same_part(const struct ck_chunk *c, const uint64_t *len,
		      unsigned rank, uint32_t want, uint64_t at)
{
	const struct memdir_file *m = memdir_find(
		&mem, ck_catalog_str(&got, got.srcs[c->src].name, NULL));
	struct ck_source *src = memsource(m->bytes, m->len, m->name);
	uint64_t item_len = got.dims[c->corner + rank];
	struct ck_torch_item item;

	cr_assert_eq(ck_torch_item_read(src, c->off, item_len, &item, &err), 0,
		     "%s", err.msg);
	cr_expect_eq((item.payload_off - c->off) % 64, 0);
	cr_assert_eq(item.rank, rank);
	cr_expect_eq(memcmp(item.shape, len, rank * sizeof(*len)), 0);
	for (uint64_t b = 0; b < item.payload_len; b++)
		cr_assert_eq(
			((const unsigned char *)m->bytes)[item.payload_off + b],
			vk_byte(want, at + b));
	ck_source_close(src);
}

static void same_paths(const struct ck_tensor *a, const struct ck_tensor *b)
{
	const struct ck_catalog *img = &k.ck.img;

	cr_assert(a->path != CK_NONE || b->path == CK_NONE);
	if (b->path == CK_NONE)
		return; /* of what is said below */
	cr_assert_eq(img->dims[a->path], got.dims[b->path]);
	for (uint64_t i = 1; i <= img->dims[a->path]; i++) {
		uint64_t x = img->dims[a->path + i], y = got.dims[b->path + i];

		cr_assert_eq(x & CK_PATH_STR, y & CK_PATH_STR);
		if (x & CK_PATH_STR)
			cr_expect_str_eq(
				ck_catalog_str(img, (uint32_t)x, NULL),
				ck_catalog_str(&got, (uint32_t)y, NULL));
		else
			cr_expect_eq(x, y);
	}
}

static void same_tensor(uint32_t t)
{
	const struct ck_catalog *img = &k.ck.img;
	const struct ck_tensor *a = &img->tensors[t], *b;
	size_t len;
	const char *name = ck_catalog_str(img, a->name, &len);
	uint32_t n = ck_catalog_find_name(&got, 0, name, len);

	cr_assert_neq(n, CK_NONE, "%s", name);
	b = &got.tensors[n];
	cr_expect_eq(b->dtype, a->dtype, "%s", name);
	cr_assert_eq(b->rank, a->rank, "%s", name);
	cr_expect_eq(b->state, CK_OK, "%s", name);
	cr_expect_eq(
		memcmp(img->dims + a->shape, got.dims + b->shape, 8 * a->rank),
		0);
	same_paths(a, b);
	for (uint32_t i = 0; i < b->nr; i++) {
		const struct ck_chunk *c = &got.chunks[b->first + i];
		uint64_t row = a->rank && img->dims[a->shape] ?
				       a->size / img->dims[a->shape] :
				       0;

		same_part(c, got.dims + got.layouts[c->layout].len, b->rank, t,
			  b->rank ? got.dims[c->corner] * row : 0);
	}
}

static uint64_t rnd(uint64_t *seed, uint64_t below)
{
	*seed = *seed * 6364136223846793005u + 1442695040888963407u;
	return (*seed >> 33) % below;
}

static bool plain(enum ck_dtype dt)
{
	const struct ck_dtype_info *info = ck_dtype_info(dt);

	return info->size && info->torch && dt != CK_DT_QINT8 &&
	       dt != CK_DT_QUINT8 && dt != CK_DT_QINT32;
}

static void random_tensors(uint64_t seed)
{
	unsigned nr = 1 + (unsigned)rnd(&seed, 150);

	for (unsigned i = 0; i < nr; i++) {
		uint64_t shape[4];
		unsigned rank = (unsigned)rnd(&seed, 5);
		enum ck_dtype dt;
		char name[40];

		do
			dt = (enum ck_dtype)(1 + rnd(&seed, CK_DT_NR - 1));
		while (!plain(dt));
		for (unsigned d = 0; d < rank; d++)
			shape[d] = rnd(&seed, 20) ? 1 + rnd(&seed, 6) : 0;
		snprintf(name, sizeof(name), "l%u/#%u/n\xc3\xa9%u", i / 9,
			 i % 9, i);
		if (rnd(&seed, 2))
			vk_nested(&k, name);
		else
			vk_tensor(&k, name, dt, rank, shape);
	}
}

static void check_random(uint64_t seed, const char *shard_size)
{
	random_tensors(seed);
	ck_opts_add(&opts, "dcp-shard-size", shard_size);
	open_view();
	load();
	cr_expect_eq(got.nr_tensors, k.ck.img.nr_tensors);
	for (uint32_t t = 0; t < k.ck.img.nr_tensors; t++)
		same_tensor(t);
}

Test(view_dcp, our_reader_reads_it)
{
	static const char *const size[] = { "1", "5000", "20K", "1G" };

	for (uint64_t seed = 1; seed <= 12; seed++) {
		check_random(seed, size[seed % 4]);
		teardown();
		got = (struct ck_catalog){ 0 };
		opts = (struct ck_opts){ 0 };
		v = NULL;
		setup();
	}
}

/* A file is ended before the item with which it would be too large. */
Test(view_dcp, files_are_no_larger)
{
	struct ck_vfile f;

	for (unsigned i = 0; i < 40; i++) {
		char name[8];

		snprintf(name, sizeof(name), "t%u", i);
		vk_tensor(&k, name, CK_DT_U8, 1, (uint64_t[]){ i * 100 });
	}
	ck_opts_add(&opts, "dcp-shard-size", "9K");
	open_view();
	cr_assert_gt(v->ops->nr(v), 5);
	for (uint32_t i = 1; i < v->ops->nr(v); i++) {
		cr_assert(v->ops->file(v, i, &f));
		cr_expect_leq(f.size, 9 << 10, "%u", i);
		if (i + 1 < v->ops->nr(v))
			cr_expect_gt(f.size, 4 << 10, "%u", i);
	}
	cr_expect_eq(v->ops->find(v, "__99_0.distcp", 13), CK_NONE);
	cr_expect_eq(v->ops->find(v, "__1_0.distcp~", 13), CK_NONE);
	cr_expect_eq(v->ops->find(v, "__01_0.distcp", 13), CK_NONE);
	cr_expect_eq(v->ops->find(v, "__4294967295_0.distcp", 21), CK_NONE);
	cr_expect_eq(v->ops->find(v, "", 0), CK_NONE);
}

/* Large tensors are cut into rows, so that a rank need not read all of one. */
Test(view_dcp, large_tensors_are_several_items)
{
	const uint64_t mib = UINT64_C(1) << 20;
	struct ck_vfile f;
	uint64_t seen = 0;
	unsigned parts = 0;

	vk_tensor(&k, "w", CK_DT_U8, 2, (uint64_t[]){ 100, 3 * mib });
	vk_tensor(&k, "row", CK_DT_U8, 2, (uint64_t[]){ 1, 200 * mib });
	ck_opts_add(&opts, "dcp-shard-size", "100M");
	v = vk_open(&k, &ck_view_dcp, &opts);
	for (uint32_t i = 1; i < v->ops->nr(v); i++) {
		cr_assert(v->ops->file(v, i, &f));
		for (uint64_t off = 0; off < f.size;) {
			struct ck_span s;

			v->ops->at(v, i, off, &s);
			off += s.len;
			if (s.kind != CK_SPAN_TENSOR || s.ref != 1)
				continue;
			cr_expect_eq(s.off, seen);
			cr_expect_leq(s.len, 64 * mib);
			seen += s.len;
			parts++;
		}
	}
	cr_expect_eq(seen, 300 * mib);
	cr_expect_eq(parts, 5); /* 21 rows each but the last */
}

/* What says that it has exabytes is cut into larger parts, not into more. */
Test(view_dcp, absurd_sizes_take_no_memory)
{
	struct ck_vfile f;

	vk_tensor(&k, "w", CK_DT_U8, 2,
		  (uint64_t[]){ UINT64_C(1) << 40, UINT64_C(1) << 20 });
	v = vk_open(&k, &ck_view_dcp, &opts);
	cr_assert(v->ops->file(v, 0, &f));
	cr_expect_lt(f.size, UINT64_C(400) << 20);
	cr_expect_lt(v->ops->nr(v), 3 << 20);
}

Test(view_dcp, leaves_out_what_torch_has_not)
{
	char *problems;

	vk_tensor(&k, "i4", CK_DT_INT4, 1, DIMS(3));
	vk_tensor(&k, "\xff", CK_DT_F32, 1, DIMS(3));
	vk_tensor(&k, "ok", CK_DT_F32, 1, DIMS(3));
	open_view();
	load();
	cr_expect_eq(got.nr_tensors, 1);
	problems = vk_problems(&k);
	cr_expect(strstr(problems, "i4: left out of dcp: torch has no dtype"),
		  "%s", problems);
	cr_expect(strstr(problems, "its name is not UTF-8"), "%s", problems);
	free(problems);
}

Test(view_dcp, nothing_to_show)
{
	vk_tensor(&k, "i4", CK_DT_INT4, 1, DIMS(3));
	cr_expect_null(vk_open(&k, &ck_view_dcp, NULL));
}

static bool is_flat(const char *name)
{
	uint32_t n = ck_catalog_find_name(&got, 0, name, strlen(name));

	cr_assert_neq(n, CK_NONE, "%s", name);
	return got.tensors[n].path == CK_NONE;
}

/* A loader fills holes of lists, and asks for what was never there. */
Test(view_dcp, lists_with_holes_do_not_nest)
{
	vk_nested(&k, "whole/#0");
	vk_nested(&k, "whole/#1/a");
	vk_nested(&k, "whole/#1/b");
	vk_nested(&k, "whole/#2/#0");
	vk_nested(&k, "late/#1");
	vk_nested(&k, "late/#2/a");
	vk_nested(&k, "gap/x/#0");
	vk_nested(&k, "gap/x/#2/deep/#0");
	vk_nested(&k, "gap/y/#0");
	vk_nested(&k, "both/#0");
	vk_nested(&k, "both/key");
	vk_nested(&k, "leaf");
	vk_nested(&k, "leaf/below");
	open_view();
	load();
	cr_expect(!is_flat("whole.0") && !is_flat("whole.1.a") &&
		  !is_flat("whole.1.b") && !is_flat("whole.2.0"));
	cr_expect(is_flat("late.1") && is_flat("late.2.a"));
	cr_expect(is_flat("gap.x.0") && is_flat("gap.x.2.deep.0"));
	cr_expect(!is_flat("gap.y.0"));
	cr_expect(is_flat("both.0") && is_flat("both.key"));
	cr_expect(is_flat("leaf.below"));
}

static uint32_t order_of(const char *name)
{
	uint32_t t = ck_catalog_find_name(&got, 0, name, strlen(name));

	cr_assert_neq(t, CK_NONE, "%s", name);
	return got.tensors[t].order;
}

/* What has no place comes last; places of keys that are gone are closed up. */
Test(view_dcp, keys_keep_their_order)
{
	static const char *const name[] = { "b", "a", "c", "d" };
	static const uint32_t order[] = { 7, 9, 3, 0 };

	for (unsigned i = 0; i < 4; i++) {
		vk_tensor(&k, name[i], CK_DT_F32, 1, DIMS(2));
		if (order[i])
			cr_assert_eq(ck_builder_order(k.kit.b, 0, name[i], 1,
						      order[i], &err),
				     0);
	}
	open_view();
	load();
	cr_expect_eq(order_of("c"), 1);
	cr_expect_eq(order_of("b"), 2);
	cr_expect_eq(order_of("a"), 3);
	cr_expect_eq(order_of("d"), 4);
}
