/* SPDX-License-Identifier: Apache-2.0 */
/* Random checkpoints, written as DCP and opened by our own reader. */
#include "core/ckpt/ckpt.h"
#include "core/catalog/catalog.h"
#include "core/emit/dcp_out.h"
#include "core/emit/pickle_out.h"
#include "core/emit/torch_blob.h"
#include "core/geom/dtype.h"
#include "tests/lib/openckpt.h"
#include "tests/lib/unconfined.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define ENTRIES 40
#define MAX_CHUNKS 6

struct chunk {
	uint64_t start, nr; /* rows */
	unsigned file;
	uint64_t off, size;
};

struct entry {
	char name[64];
	bool object;
	uint8_t dtype;
	unsigned rank;
	uint64_t shape[4];
	unsigned nr_chunks;
	struct chunk chunk[MAX_CHUNKS];
	unsigned depth;
};

static struct entry entry[ENTRIES];
static uint64_t nr_entries;
static char dir[] = "/tmp/unshard-dcp-out-XXXXXX";
static char file_name[2][32] = { "__0_0.distcp", "sub/__1_0.distcp" };
static int data_fd[2];
static uint64_t data_len[2];
static uint64_t seed = 1;
static struct ck_opts opts;
static struct ck_err err;

static uint64_t rnd(uint64_t below)
{
	seed = seed * 6364136223846793005u + 1442695040888963407u;
	return (seed >> 33) % below;
}

static void path_of(const char *name, char out[256])
{
	snprintf(out, 256, "%s/%s", dir, name);
}

static unsigned char byte_of(uint64_t i, uint64_t off)
{
	return (unsigned char)(i * 91 + off * 13 + off / 256);
}

static void put(unsigned f, const void *bytes, size_t len)
{
	cr_assert_eq(pwrite(data_fd[f], bytes, len, (off_t)data_len[f]),
		     (ssize_t)len);
	data_len[f] += len;
}

/* ---- what there is ---- */

static uint64_t row_bytes(const struct entry *e)
{
	uint64_t n = ck_dtype_info(e->dtype)->size;

	for (unsigned d = 1; d < e->rank; d++)
		n *= e->shape[d];
	return n;
}

static void write_chunk(uint64_t i, struct chunk *c)
{
	const struct entry *e = &entry[i];
	struct ck_torch_blob b = { 0 };
	uint64_t shape[4], row = row_bytes(e);
	unsigned char *bytes;

	memcpy(shape, e->shape, sizeof(shape));
	if (e->rank)
		shape[0] = c->nr;
	cr_assert_eq(ck_torch_blob_make(&b, e->dtype, shape, e->rank), 0);
	cr_expect_eq(b.head.len % 64, 0);
	bytes = malloc(b.payload + 1);
	for (uint64_t k = 0; k < b.payload; k++)
		bytes[k] = byte_of(i, c->start * row + k);
	c->file = (unsigned)rnd(2);
	c->off = data_len[c->file];
	c->size = b.size;
	put(c->file, b.head.v, b.head.len);
	put(c->file, bytes, b.payload);
	put(c->file, b.tail.v, b.tail.len);
	cr_expect_eq(data_len[c->file], c->off + c->size);
	free(bytes);
	ck_torch_blob_free(&b);
}

static void make_tensor(uint64_t i)
{
	struct entry *e = &entry[i];
	uint64_t row = 0, left;

	do
		e->dtype = (uint8_t)(1 + rnd(CK_DT_NR - 1));
	while (!ck_torch_has_dtype(e->dtype));
	e->rank = (unsigned)rnd(5);
	for (unsigned d = 0; d < e->rank; d++)
		e->shape[d] = rnd(12) ? 1 + rnd(7) : 0;
	left = e->rank ? e->shape[0] : 1;
	do {
		struct chunk *c = &e->chunk[e->nr_chunks++];

		c->start = row;
		c->nr = e->nr_chunks == MAX_CHUNKS ? left :
			left			   ? 1 + rnd(left) :
						     0;
		row += c->nr;
		left -= c->nr;
		write_chunk(i, c);
	} while (left);
}

static void make_object(uint64_t i)
{
	ck_auto_str struct ck_str pickle = { 0 }, zip = { 0 };
	struct chunk *c = &entry[i].chunk[0];

	entry[i].object = true;
	ck_po_begin(&pickle);
	ck_po_int(&pickle, i);
	ck_po_end(&pickle);
	ck_torch_blob_pickle(&zip, pickle.v, pickle.len);
	c->off = data_len[0];
	c->size = zip.len;
	put(0, zip.v, zip.len);
}

static void make_all(void)
{
	memset(entry, 0, sizeof(entry));
	nr_entries = rnd(ENTRIES + 1);
	for (uint64_t i = 0; i < nr_entries; i++) {
		entry[i].depth = (unsigned)rnd(4);
		if (entry[i].depth)
			snprintf(entry[i].name, sizeof(entry[i].name),
				 "a.%" PRIu64 ".b%s", i,
				 entry[i].depth > 2 ? ".c" : "");
		else
			snprintf(entry[i].name, sizeof(entry[i].name),
				 "t\xc3\xa9.%" PRIu64, i);
		if (rnd(5))
			make_tensor(i);
		else
			make_object(i);
	}
}

/* ---- and how it is told ---- */

static int tell_entry(void *ctx, uint64_t i, struct ck_dcp_out_entry *out,
		      struct ck_err *e)
{
	(void)ctx;
	(void)e;
	*out = (struct ck_dcp_out_entry){
		.name = entry[i].name,
		.len = strlen(entry[i].name),
		.object = entry[i].object,
		.dtype = entry[i].dtype,
		.rank = entry[i].rank,
		.shape = entry[i].shape,
		.nr_chunks = entry[i].nr_chunks,
		.depth = entry[i].depth ? entry[i].depth > 2 ? 4 : 3 : 0,
	};
	return 0;
}

static int tell_chunk(void *ctx, uint64_t i, uint64_t k,
		      struct ck_dcp_out_chunk *out, struct ck_err *e)
{
	const struct chunk *c = &entry[i].chunk[k];

	(void)ctx;
	(void)e;
	memset(out->start, 0, sizeof(out->start));
	memcpy(out->shape, entry[i].shape, sizeof(entry[i].shape));
	out->start[0] = c->start;
	if (entry[i].rank)
		out->shape[0] = c->nr;
	out->file = file_name[c->file];
	out->off = c->off;
	out->size = c->size;
	return 0;
}

static void tell_part(void *ctx, uint64_t i, unsigned level,
		      struct ck_dcp_out_part *out)
{
	static const char *const key[] = { "a", NULL, "b", "c" };

	(void)ctx;
	*out = (struct ck_dcp_out_part){ .key = key[level],
					 .len = 1,
					 .index = i };
}

/* As if a program had the keys the other way round. */
static uint64_t tell_planned(void *ctx, uint64_t i)
{
	(void)ctx;
	return nr_entries - 1 - i;
}

static const struct ck_dcp_out out = {
	.entry = tell_entry,
	.chunk = tell_chunk,
	.planned = tell_planned,
	.part = tell_part,
};

static int to_fd(void *ctx, const void *bytes, size_t len, struct ck_err *e)
{
	(void)e;
	return write(*(int *)ctx, bytes, len) == (ssize_t)len ? 0 : -EIO;
}

static void write_all(void)
{
	struct ck_dcp_out o = out;
	char path[256];
	int fd;

	path_of("sub", path);
	mkdir(path, 0777);
	for (unsigned f = 0; f < 2; f++) {
		path_of(file_name[f], path);
		data_fd[f] = open(path, O_CREAT | O_TRUNC | O_WRONLY, 0666);
		cr_assert(data_fd[f] >= 0);
		data_len[f] = 0;
	}
	make_all();
	close(data_fd[0]);
	close(data_fd[1]);
	o.nr = nr_entries;
	path_of(".metadata", path);
	fd = open(path, O_CREAT | O_TRUNC | O_WRONLY, 0666);
	cr_assert_eq(ck_dcp_out_write(&o, to_fd, &fd, &err), 0, "%s", err.msg);
	close(fd);
}

static void remove_all(void)
{
	static const char *const names[] = { ".metadata", "__0_0.distcp",
					     "sub/__1_0.distcp", "sub", "" };
	char path[256];

	for (unsigned i = 0; i < sizeof(names) / sizeof(*names); i++) {
		path_of(names[i], path);
		remove(path);
	}
	ck_opts_free(&opts);
}

static void setup(void)
{
	cr_assert(mkdtemp(dir));
	unconfined(&opts);
}
TestSuite(dcp_out, .init = setup, .fini = remove_all);

/* ---- and what is read ---- */

static void same_path(const struct ck_catalog *img, uint32_t path, uint64_t i)
{
	const struct entry *e = &entry[i];
	unsigned depth = e->depth > 2 ? 4 : 3;

	if (!e->depth) {
		cr_expect_eq(path, CK_NONE, "%s", e->name);
		return;
	}
	cr_assert_neq(path, CK_NONE, "%s", e->name);
	cr_assert_eq(img->dims[path], depth, "%s", e->name);
	for (unsigned d = 0; d < depth; d++) {
		uint64_t raw = img->dims[path + 1 + d];
		struct ck_dcp_out_part want;

		tell_part(NULL, i, d, &want);
		if (want.key)
			cr_expect_str_eq(
				ck_catalog_str(img, (uint32_t)raw, NULL),
				want.key);
		else
			cr_expect_eq(raw, i);
	}
}

static void same_tensor(struct ck_ckpt *ck, uint64_t i)
{
	const struct ck_catalog *img = ck_ckpt_catalog(ck);
	const struct entry *e = &entry[i];
	uint32_t n = ck_catalog_find_name(img, 0, e->name, strlen(e->name));
	const struct ck_tensor *t;
	unsigned char *bytes;

	cr_assert_neq(n, CK_NONE, "%s", e->name);
	t = &img->tensors[n];
	cr_expect_eq(t->dtype, ck_torch_plain_dtype(e->dtype), "%s", e->name);
	cr_assert_eq(t->rank, e->rank, "%s", e->name);
	cr_expect_eq(memcmp(img->dims + t->shape, e->shape, 8 * e->rank), 0);
	cr_expect_eq(t->state, CK_OK, "%s", e->name);
	cr_expect_eq(t->order, nr_entries - i, "%s", e->name);
	same_path(img, t->path, i);
	bytes = malloc(t->size + 1);
	cr_assert_eq(ck_ckpt_read(ck, n, bytes, t->size, 0, &err), 0, "%s: %s",
		     e->name, err.msg);
	for (uint64_t k = 0; k < t->size; k++)
		cr_assert_eq(bytes[k], byte_of(i, k), "%s at %d", e->name,
			     (int)k);
	free(bytes);
}

static void same_object(const struct ck_catalog *img, uint64_t i)
{
	const struct entry *e = &entry[i];
	const struct ck_object *o = NULL;

	for (uint32_t k = 0; k < img->nr_objects; k++)
		if (!strcmp(ck_catalog_str(img, img->objects[k].name, NULL),
			    e->name))
			o = &img->objects[k];
	cr_assert(o, "%s", e->name);
	cr_expect_eq(o->off, e->chunk[0].off);
	cr_expect_eq(o->len, e->chunk[0].size);
	cr_expect_eq(o->enc, CK_ENC_TORCH_ZIP);
	cr_expect_eq(o->order, nr_entries - i, "%s", e->name);
	same_path(img, o->path, i);
}

Test(dcp_out, our_reader_reads_it)
{
	for (int round = 0; round < 12; round++) {
		struct ck_ckpt *ck;
		uint64_t objects = 0;

		write_all();
		cr_assert_eq(open_ckpt(&ck, dir, &opts, &err), 0, "%s",
			     err.msg);
		for (uint64_t i = 0; i < nr_entries; i++)
			if (entry[i].object)
				same_object(ck_ckpt_catalog(ck), i);
			else
				same_tensor(ck, i);
		for (uint64_t i = 0; i < nr_entries; i++)
			objects += entry[i].object;
		cr_expect_eq(ck_ckpt_catalog(ck)->nr_objects, objects);
		cr_expect_eq(ck_ckpt_catalog(ck)->nr_tensors,
			     nr_entries - objects);
		cr_expect_eq(ck_ckpt_catalog(ck)->nr_problems, 0);
		ck_ckpt_close(ck);
	}
}

/* What is read somewhere in the middle is what was written there. */
Test(dcp_out, pieces_are_the_same_again)
{
	ck_auto_str struct ck_str first = { 0 }, again = { 0 };
	struct ck_dcp_out o = out;
	uint64_t nr;

	write_all();
	o.nr = nr_entries;
	nr = ck_dcp_out_pieces(&o);
	for (uint64_t p = 0; p < nr; p++) {
		size_t at = first.len;

		cr_assert_eq(ck_dcp_out_piece(&o, p, &first, &err), 0);
		again.len = 0;
		cr_assert_eq(ck_dcp_out_piece(&o, p, &again, &err), 0);
		cr_assert_eq(again.len, first.len - at);
		cr_expect_eq(memcmp(again.v, first.v + at, again.len), 0);
	}
}

static int refuse_chunk(void *ctx, uint64_t i, uint64_t k,
			struct ck_dcp_out_chunk *c, struct ck_err *e)
{
	(void)ctx;
	(void)k;
	(void)c;
	return ck_fail(e, EIO, "no chunk of %d", (int)i);
}

static int count_bytes(void *ctx, const void *bytes, size_t len,
		       struct ck_err *e)
{
	(void)bytes;
	(void)e;
	*(size_t *)ctx += len;
	return 0;
}

static int refuse_bytes(void *ctx, const void *bytes, size_t len,
			struct ck_err *e)
{
	(void)ctx;
	(void)bytes;
	return ck_fail(e, ENOSPC, "no room for %d bytes", (int)len);
}

Test(dcp_out, says_what_went_wrong)
{
	struct ck_dcp_out o = out;
	size_t got = 0;

	memset(entry, 0, sizeof(entry));
	strcpy(entry[0].name, "w");
	entry[0].dtype = CK_DT_F32;
	entry[0].nr_chunks = 1;
	o.nr = 1;
	o.planned = NULL; /* in the order of the entries */
	o.chunk = refuse_chunk;
	cr_expect_eq(ck_dcp_out_write(&o, count_bytes, &got, &err), -EIO);
	cr_expect_str_eq(err.msg, "no chunk of 0");
	o.chunk = tell_chunk;
	cr_expect_eq(ck_dcp_out_write(&o, refuse_bytes, NULL, &err), -ENOSPC);
	cr_expect_eq(ck_dcp_out_write(&o, count_bytes, &got, &err), 0);
	cr_expect_gt(got, 500);
}
