/* SPDX-License-Identifier: Apache-2.0 */
/* reshard/: folders, files of ranks, and every byte of them. */
#include "core/base/auto.h"
#include "core/base/check.h"
#include "core/geom/dtype.h"
#include "core/parse/safetensors.h"
#include "tests/unit/reshard/naive.h"
#include "tests/unit/view/viewkit.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

extern const struct ck_view_ops ck_view_reshard;

static struct viewkit k;
static struct ck_view *v;
static struct ck_opts opts;
static struct ck_err err;

static void setup(void)
{
	vk_init(&k);
	vk_tensor(&k, "bytes", CK_DT_U8, 1, DIMS(5));
	vk_tensor(&k, "floats", CK_DT_F32, 2, DIMS(7, 4));
	vk_tensor(&k, "halves", CK_DT_F16, 3, DIMS(2, 5, 6));
	vk_tensor(&k, "scalar", CK_DT_I64, 0, DIMS(0));
}

static void teardown(void)
{
	ck_view_close(v);
	ck_opts_free(&opts);
	vk_free(&k);
}
TestSuite(reshard_view, .init = setup, .fini = teardown);

static void option(const char *path, const char *text)
{
	ck_opts_add(&opts, "reshard", path);
	ck_opts_keep(&opts, strdup(text), strlen(text));
}

static uint32_t folder(const char *name)
{
	uint32_t d = CK_NONE;

	cr_assert_eq(v->ops->folders->find(v, name, &d, &err), 0, "%s: %s",
		     name, err.msg);
	return d;
}

static unsigned char *file_of(uint32_t d, uint32_t rank, uint64_t *len)
{
	char name[64];
	uint32_t i;

	snprintf(name, sizeof(name), "rank-%05u.safetensors", rank);
	i = v->ops->folders->find_file(v, d, name, strlen(name));
	cr_assert_eq(i, d << CK_VIEW_FOLDER_SHIFT | rank);
	return vk_bytes(v, i, len);
}

/* The entry's bytes are those of the indices in @want. */
static void compare(const struct ck_st_tensor *t, const unsigned char *bytes,
		    uint32_t tensor, const struct naive *want)
{
	const struct ck_tensor *full = &k.ck.img.tensors[tensor];
	const uint64_t *shape = k.ck.img.dims + full->shape;
	uint64_t elem = ck_dtype_info(full->dtype)->size, volume = 1;

	cr_assert_eq(t->rank, full->rank);
	for (unsigned d = 0; d < t->rank; d++)
		volume *= want[d].nr;
	for (unsigned d = 0; d < t->rank; d++)
		cr_assert_eq(t->shape[d], want[d].nr);
	for (uint64_t e = 0; e < volume; e++) {
		uint64_t left = e, index = 0, step = 1;

		for (unsigned d = t->rank; d-- > 0; left /= want[d].nr) {
			index += want[d].v[left % want[d].nr] * step;
			step *= shape[d];
		}
		for (uint64_t b = 0; b < elem; b++)
			cr_assert_eq(bytes[e * elem + b],
				     vk_byte(tensor, index * elem + b));
	}
}

/* How each dimension of the tensors is cut over four ranks. */
static struct naive cut(const char *name, unsigned d, unsigned rank)
{
	uint32_t t = kit_find(&k.kit, name);
	const struct ck_tensor *full = &k.ck.img.tensors[t];
	struct naive all = naive_all((unsigned)k.ck.img.dims[full->shape + d]);

	if (!strcmp(name, "bytes"))
		return naive_chunk(&all, 4, rank);
	if (!strcmp(name, "floats"))
		return naive_chunk(&all, 2, d ? rank % 2 : rank / 2);
	if (d == 1) /* in pieces, of a dimension that is not the first */
		return naive_strided(&all, 2, 2, rank % 2);
	return all;
}

static void check_rank(uint32_t d, uint32_t rank)
{
	uint64_t len, n, sum = 0;
	struct ck_st_tensor t;
	unsigned nr = 0;
	ck_auto_free unsigned char *bytes = file_of(d, rank, &len);
	struct ck_st_header h;

	cr_assert_eq(ck_st_header_len(bytes, len, &n, &err), 0, "%s", err.msg);
	cr_expect_eq(n % 8, 0);
	cr_assert_eq(ck_st_header_parse(&h, (char *)bytes + 8, n, &err), 0,
		     "%s", err.msg);
	while (ck_st_next(&h, &t)) {
		struct naive want[3];

		cr_assert_null(t.why, "%s", t.why);
		for (unsigned x = 0; x < t.rank; x++)
			want[x] = cut(t.name, x, rank);
		compare(&t, bytes + t.begin, kit_find(&k.kit, t.name), want);
		sum += t.end - t.begin;
		nr++;
	}
	cr_expect_eq(nr, 4);
	cr_expect_eq(8 + n + sum, len);
	ck_st_header_free(&h);
}

static const char mesh[] =
	"{\"mesh\": {\"shape\": [2, 2], \"axes\": [\"x\", \"y\"]},"
	" \"partition_spec\": {\"bytes\": [[\"x\", \"y\"]],"
	" \"floats\": [\"x\", \"y\"]},"
	" \"placements\": {\"halves\": [\"replicate\", \"strided(1, 2)\"]}}";

Test(reshard_view, every_byte_of_every_rank)
{
	uint32_t d;
	char name[256];

	option("/x/two.by.two.json", mesh);
	v = vk_open(&k, &ck_view_reshard, &opts);
	cr_assert_eq(v->ops->folders->nr_listed(v), 1);
	cr_assert(v->ops->folders->name(v, 0, name));
	cr_expect_str_eq(name, "two.by.two");
	d = folder("two.by.two");
	cr_assert_eq(v->ops->folders->nr_files(v, d), 4);
	for (uint32_t rank = 0; rank < 4; rank++)
		check_rank(d, rank);
}

Test(reshard_view, names_that_are_looked_up)
{
	static const char *const none[] = { "x", "", "dim0", "dim0=x", "=" };
	uint32_t d;

	v = vk_open(&k, &ck_view_reshard, NULL);
	cr_expect_eq(v->ops->folders->nr_listed(v), 0);
	d = folder("dim0=3");
	cr_expect_eq(folder("dim0=3"), d);
	cr_expect_neq(folder("dim1=3"), d);
	cr_expect_eq(v->ops->folders->nr_files(v, d), 3);
	for (size_t i = 0; i < CK_ARRAY_LEN(none); i++)
		cr_expect_eq(v->ops->folders->find(v, none[i], &d, &err),
			     -ENOENT, "%s", none[i]);
	cr_expect_eq(v->ops->folders->nr_listed(v), 0, "looked up, not listed");
	cr_expect_eq(v->ops->find(v, "rank-00000.safetensors", 22), CK_NONE);
}

Test(reshard_view, files_are_ranks)
{
	static const char *const none[] = {
		"rank-00003.safetensors",
		"rank-0000.safetensors",
		"rank-000000.safetensors",
		"rank-0000x.safetensors",
		"rank-00000.safetensor",
		"rank-00000.safetensorsx",
		"",
	};
	struct ck_vfile f;
	uint32_t d;

	v = vk_open(&k, &ck_view_reshard, NULL);
	d = folder("dim0=3");
	for (size_t i = 0; i < CK_ARRAY_LEN(none); i++)
		cr_expect_eq(v->ops->folders->find_file(v, d, none[i],
							strlen(none[i])),
			     CK_NONE, "%s", none[i]);
	cr_expect(!v->ops->file(v, d << CK_VIEW_FOLDER_SHIFT | 3, &f));
	cr_expect(!v->ops->file(v, (d + 1) << CK_VIEW_FOLDER_SHIFT, &f));
}

static uint32_t layout_of(uint32_t d)
{
	return v->ops->folders->find_file(v, d, "unshard-layout.json", 19);
}

/* The most ranks: the last one's number is not the layout's. */
Test(reshard_view, as_many_ranks_as_there_may_be)
{
	struct ck_vfile layout, last;
	char name[CK_VIEW_NAME];
	uint32_t d, i;

	v = vk_open(&k, &ck_view_reshard, NULL);
	d = folder("dim0=65536");
	i = v->ops->folders->find_file(v, d, "rank-65535.safetensors", 22);
	cr_assert(v->ops->file(v, i, &last));
	v->ops->label(v, i, name);
	cr_expect_str_eq(name, "rank-65535.safetensors");
	cr_assert_neq(layout_of(d), CK_NONE);
	cr_assert(v->ops->file(v, layout_of(d), &layout));
	v->ops->label(v, layout_of(d), name);
	cr_expect_str_eq(name, "unshard-layout.json");
	cr_expect_gt(layout.size, 65536);
}

Test(reshard_view, no_layout_of_too_many_parts)
{
	vk_tensor(&k, "the fifth", CK_DT_U8, 1, DIMS(1));
	v = vk_open(&k, &ck_view_reshard, NULL);
	cr_expect_eq(layout_of(folder("dim0=65536")), CK_NONE);
	cr_expect_neq(layout_of(folder("dim0=32768")), CK_NONE);
}

/* More files than are kept, two of each: what fell out is made again. */
Test(reshard_view, files_that_fell_out_are_made_again)
{
	static uint64_t size[2][5000];

	v = vk_open(&k, &ck_view_reshard, NULL);
	for (unsigned round = 0; round < 2; round++) {
		uint32_t a = folder("dim0=5000"), b = folder("dim1=5000");

		for (uint32_t rank = 0; rank < 5000; rank++) {
			ck_auto_free unsigned char *one = NULL, *two = NULL;
			uint64_t len;

			one = file_of(a, rank, &len);
			size[0][rank] += round ? -len : len;
			two = file_of(b, rank, &len);
			size[1][rank] += round ? -len : len;
		}
	}
	for (uint32_t rank = 0; rank < 5000; rank++)
		cr_assert(!size[0][rank] && !size[1][rank]);
}

/* Whoever asks for ever more names gets no more memory for it. */
Test(reshard_view, names_are_bounded)
{
	char name[32];
	uint32_t d, made = 0;
	int ret = 0;

	v = vk_open(&k, &ck_view_reshard, NULL);
	for (unsigned i = 1; !ret && i < 2000; i++) {
		snprintf(name, sizeof(name), "dim0=%u", i);
		ret = v->ops->folders->find(v, name, &d, &err);
		made += !ret;
	}
	cr_expect_eq(ret, -ENOSPC, "%d", ret);
	cr_expect_eq(made, 256);
	cr_expect_eq(folder("dim0=7"), 6);
}

Test(reshard_view, what_cannot_be_cut_is_a_problem_and_not_listed)
{
	ck_auto_free char *said = NULL;
	char name[256];
	uint32_t d;

	option("bad.json", "{\"mesh\": {\"shape\": [2]}, "
			   "\"partition_spec\": {\"floats\": [0, 1]}}");
	v = vk_open(&k, &ck_view_reshard, &opts);
	cr_expect_eq(v->ops->folders->nr_listed(v), 1);
	cr_expect(!v->ops->folders->name(v, 0, name));
	cr_expect_eq(v->ops->folders->find(v, "bad", &d, &err), -EINVAL);
	cr_expect_eq(v->ops->folders->find(v, "tp=2", &d, &err), -EINVAL);
	said = vk_problems(&k);
	cr_expect(strstr(said, "bad: floats: partition_spec"), "%s", said);
	cr_expect(strstr(said, "tp=2: bytes: no rule says"), "%s", said);
}

static void refused(const char *why)
{
	struct ck_view *none = NULL;

	cr_expect_neq(
		ck_view_open(&none, &ck_view_reshard, &k.ck, 0, &opts, &err),
		0);
	cr_expect(strstr(err.msg, why), "%s", err.msg);
	cr_expect_null(none);
	ck_opts_free(&opts);
	opts = (struct ck_opts){ 0 };
}

Test(reshard_view, options_that_refuse_the_mount)
{
	vk_image(&k);
	option("a.json", mesh);
	option("b/a.txt", mesh);
	refused("another file is called a");
	option(".json", mesh);
	refused("not a name for a folder");
}

Test(reshard_view, options_that_the_parser_refuses)
{
	vk_image(&k);
	cr_expect_eq(ck_reshard_check(NULL, &err), 0);
	option("a.json", mesh);
	cr_expect_eq(ck_reshard_check(&opts, &err), 0, "%s", err.msg);
	option("b.json", "{");
	cr_expect_eq(ck_reshard_check(&opts, &err), -EINVAL);
	cr_expect(strstr(err.msg, "-o reshard: b.json: "), "%s", err.msg);
	ck_opts_free(&opts);
	opts = (struct ck_opts){ 0 };
	ck_opts_add(&opts, "reshard", "nowhere.json");
	cr_expect_eq(ck_reshard_check(&opts, &err), -ENOENT);
}
