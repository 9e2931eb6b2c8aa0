/* SPDX-License-Identifier: Apache-2.0 */
/* slicekit.c - drafts of slices for tests: made, written, published, read */
#include "tests/lib/slicekit.h"
#include "tests/lib/unconfined.h"

#include "core/base/crc32.h"
#include "core/ckpt/ckpt.h"
#include "core/geom/dtype.h"
#include "core/root/journal.h"
#include "core/publish/commit.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <ftw.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

char slicekit_top[] = "/tmp/ck-slices-XXXXXX";
struct ck_root slicekit_root;
struct ck_opts slicekit_opts;

static int gone(const char *path, const struct stat *st, int type,
		struct FTW *ftw)
{
	(void)st, (void)type, (void)ftw;
	return remove(path);
}

void slicekit_setup(void)
{
	struct ck_err err = { 0 };

	ck_journal_boot();
	cr_assert(mkdtemp(slicekit_top));
	cr_assert_eq(ck_root_open(&slicekit_root, slicekit_top, NULL, &err), 0,
		     "%s", err.msg);
	unconfined(&slicekit_opts);
}

void slicekit_teardown(void)
{
	ck_root_close(&slicekit_root);
	ck_opts_free(&slicekit_opts);
	nftw(slicekit_top, gone, 16, FTW_DEPTH | FTW_PHYS);
}

void slicekit_open(struct slicekit *j, const char *name, const char *layout)
{
	struct ck_err err = { 0 };
	int ret = ck_draft_make(&j->s, &slicekit_root, name, &err);

	if (ret == -EEXIST)
		ret = ck_draft_open(&j->s, &slicekit_root, name, &err);
	cr_assert_eq(ret, 0, "%s", err.msg);
	if (layout)
		cr_assert_eq(ck_slices_make(j->s, &slicekit_root,
					    &slicekit_opts, layout,
					    strlen(layout), &err),
			     0, "%s", err.msg);
	cr_assert_eq(ck_slices_open(&j->sl, j->s, &err), 0, "%s", err.msg);
}

void slicekit_close(struct slicekit *j)
{
	ck_slices_close(j->sl);
	ck_draft_close(j->s);
}

int slicekit_publish(const char *name, struct ck_err *err)
{
	const struct ck_commit_in in = { .opts = &slicekit_opts };
	struct ck_draft *s;
	int ret = ck_draft_open(&s, &slicekit_root, name, err);

	if (ret)
		return ret;
	ret = ck_commit(s, &in, err);
	ck_draft_close(s);
	return ret;
}

/* Byte @i of a tensor whose name begins with @c. */
static unsigned char byte_at(char c, uint64_t i)
{
	return (unsigned char)(i * 31 + i / 251 + (unsigned char)c);
}

static unsigned char *bytes_of(char c, uint64_t size)
{
	unsigned char *v = malloc(size + 1);

	for (uint64_t i = 0; i < size; i++)
		v[i] = byte_at(c, i);
	return v;
}

/* What piece @p should hold, by the definition of a box; 0xEE for padding. */
unsigned char *slicekit_expected(const struct ck_slice_plan *plan,
				 uint32_t piece)
{
	const struct ck_slice_plan_piece *p = &plan->pieces[piece];
	const struct ck_slice_plan_tensor *t = &plan->tensors[p->tensor];
	const uint64_t *start = plan->dims + p->dims;
	const uint64_t *len = start + t->grid_rank, *full = len + t->grid_rank;
	const uint64_t *grid = plan->dims + t->grid;
	uint64_t elem = ck_dtype_info(t->dtype)->size;
	const uint64_t *walk = p->flat ? len : full;
	unsigned char *v = malloc(p->len + 1);
	char c = *ck_slice_plan_str(plan, t->name);
	uint64_t nr = 1;

	memset(v, 0xee, p->len);
	for (unsigned d = 0; d < t->grid_rank; d++)
		nr *= walk[d];
	for (uint64_t i = p->flat ? p->lo : 0; i < (p->flat ? p->hi : nr);
	     i++) {
		uint64_t left = i, place = 0, step = 1, to = i - p->lo;
		bool in = true;

		for (unsigned d = t->grid_rank; d-- > 0; left /= walk[d]) {
			uint64_t at = left % walk[d];

			in &= at < len[d];
			place += (start[d] + at) * step;
			step *= grid[d];
		}
		for (uint64_t b = 0; b < elem && in; b++)
			v[to * elem + b] = byte_at(c, place * elem + b);
	}
	return v;
}

void slicekit_write_piece(struct ck_slices *sl, uint32_t piece,
			  uint64_t at_once)
{
	const struct ck_slice_plan *plan = ck_slices_plan(sl);
	const struct ck_slice of = { .nr = piece };
	unsigned char *v = slicekit_expected(plan, piece);
	uint64_t len = ck_slice_size(sl, of);
	struct ck_err err = { 0 };

	/* from behind, so that each call is a stretch of its own at first */
	for (uint64_t end = len; end > 0;) {
		uint64_t n = end < at_once ? end : at_once;

		end -= n;
		cr_assert_eq(
			ck_slice_write(sl, of, v + end, n, end, false, &err), 0,
			"%s", err.msg);
	}
	cr_assert_eq(ck_slice_written(sl, of), len);
	free(v);
}

void slicekit_write_ranks(struct ck_slices *sl)
{
	const struct ck_slice_plan *plan = ck_slices_plan(sl);

	for (uint32_t r = 0; r < plan->nr_ranks; r++)
		for (uint32_t i = 0; i < plan->ranks[r].nr; i++)
			slicekit_write_piece(
				sl, plan->entries[plan->ranks[r].first + i],
				100);
}

void slicekit_write_tensors(struct ck_slices *sl)
{
	const struct ck_catalog *img = ck_slices_catalog(sl);
	struct ck_err err = { 0 };

	for (uint32_t t = 0; t < img->nr_tensors; t++) {
		const struct ck_slice of = { .whole = true, .nr = t };
		uint64_t size = ck_slice_size(sl, of);
		unsigned char *v = bytes_of(
			*ck_catalog_str(img, img->tensors[t].name, NULL), size);
		unsigned char *got = malloc(size + 1);

		for (uint64_t at = 0; at < size; at += 77)
			cr_assert_eq(
				ck_slice_write(sl, of, v + at,
					       size - at < 77 ? size - at : 77,
					       at, false, &err),
				0, "%s", err.msg);
		cr_assert_eq(ck_slice_written(sl, of), size);
		cr_assert_eq(ck_slice_read(sl, of, got, size, 0, false, &err),
			     0, "%s", err.msg);
		cr_assert_eq(memcmp(got, v, size), 0);
		free(got);
		free(v);
	}
}

/* What was published, as a reader sees it. */
struct sums {
	struct ck_ckpt *ck;
	uint64_t nr;
};

/* A CRC-32 is of the bytes that it stands for. */
static int check_sum(void *ctx, uint32_t src, uint64_t off, uint64_t len,
		     uint32_t crc, struct ck_err *err)
{
	struct ck_ckpt *ck = ((struct sums *)ctx)->ck;
	const struct ck_catalog *img = ck_ckpt_catalog(ck);
	unsigned char *buf = malloc(len + 1);
	struct stat st;
	int fd;

	cr_assert_eq(ck_root_open_file(
			     ck_ckpt_root(ck),
			     ck_catalog_str(img, img->srcs[src].name, NULL),
			     &fd, &st, err),
		     0);
	cr_assert_eq(pread(fd, buf, len, (off_t)off), (ssize_t)len);
	cr_assert_eq(ck_crc32(0, buf, len), crc);
	((struct sums *)ctx)->nr++;
	close(fd);
	free(buf);
	return 0;
}

/* All members of all archives of DCP have one, their elements too. */
static void check_sums(const char *path, struct ck_ckpt *ck)
{
	const struct ck_catalog *img = ck_ckpt_catalog(ck);
	struct sums sums = { .ck = ck };
	struct ck_err err = { 0 };
	char index[160];

	snprintf(index, sizeof(index), "%s/.metadata", path);
	if (access(index, F_OK))
		return;
	cr_assert_eq(ck_ckpt_sums(ck, check_sum, &sums, &err), 0, "%s",
		     err.msg);
	cr_assert_eq(sums.nr, 4 * img->nr_chunks, "%" PRIu64 " of 4 * %u",
		     sums.nr, img->nr_chunks);
}

void slicekit_read_back(const char *name, unsigned tensors)
{
	char path[128];
	struct ck_root at;
	struct ck_ckpt *ck;
	const struct ck_catalog *img;
	struct ck_err err = { 0 };
	int fd;

	snprintf(path, sizeof(path), "%s/%s", slicekit_top, name);
	cr_assert_eq(ck_root_open(&at, path, &slicekit_opts, &err), 0, "%s",
		     err.msg);
	cr_assert_eq(ck_ckpt_describe(&at, &slicekit_opts, &fd, &err), 0, "%s",
		     err.msg);
	cr_assert_eq(ck_ckpt_serve(&ck, &at, &slicekit_opts, fd, &err), 0, "%s",
		     err.msg);
	close(fd);
	img = ck_ckpt_catalog(ck);
	cr_assert_eq(img->nr_tensors, tensors);
	cr_assert_eq(
		img->nr_problems, 0, "%s",
		img->nr_problems ?
			ck_catalog_str(img, img->problems[0].reason, NULL) :
			"");
	for (uint32_t t = 0; t < img->nr_tensors; t++) {
		uint64_t size = img->tensors[t].size;
		unsigned char *got = malloc(size + 1);
		unsigned char *v = bytes_of(
			*ck_catalog_str(img, img->tensors[t].name, NULL), size);

		cr_assert_eq(ck_ckpt_read(ck, t, got, size, 0, &err), 0, "%s",
			     err.msg);
		cr_assert_eq(memcmp(got, v, size), 0, "%s differs",
			     ck_catalog_str(img, img->tensors[t].name, NULL));
		free(got);
		free(v);
	}
	check_sums(path, ck);
	ck_ckpt_close(ck);
}
