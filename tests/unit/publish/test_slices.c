/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Checkpoints that are written as slices: every form of a layout, written by
 * rank and as whole tensors, published, and read again by our own reader; what
 * is known of them after deaths, and what is said of missing bytes.
 */
#include "core/ckpt.h"
#include "core/geom/dtype.h"
#include "core/io/fault.h"
#include "core/publish/claims.h"
#include "core/publish/commit.h"
#include "core/publish/recover.h"
#include "core/publish/slices.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <glob.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static char top[] = "/tmp/ck-slices-XXXXXX";
static struct ck_root root;
static struct ck_opts opts;

static int gone(const char *path, const struct stat *st, int type,
		struct FTW *ftw)
{
	(void)st, (void)type, (void)ftw;
	return remove(path);
}

static void setup(void)
{
	struct ck_err err = { 0 };

	ck_claims_boot();
	cr_assert(mkdtemp(top));
	cr_assert_eq(ck_root_open(&root, top, NULL, &err), 0, "%s", err.msg);
#ifdef __SANITIZE_ADDRESS__
	ck_opts_add(&opts, "sandbox", "off");
#endif
}

static void teardown(void)
{
	ck_root_close(&root);
	ck_opts_free(&opts);
	nftw(top, gone, 16, FTW_DEPTH | FTW_PHYS);
}

TestSuite(slices, .init = setup, .fini = teardown, .timeout = 120);

/* A stage of @layout, and its slices. */
struct job {
	struct ck_staging *s;
	struct ck_slices *sl;
};

static void open_job(struct job *j, const char *name, const char *layout)
{
	struct ck_err err = { 0 };
	int ret = ck_staging_make(&j->s, &root, name, &err);

	if (ret == -EEXIST)
		ret = ck_staging_open(&j->s, &root, name, &err);
	cr_assert_eq(ret, 0, "%s", err.msg);
	if (layout)
		cr_assert_eq(ck_slices_make(j->s, &root, &opts, layout,
					    strlen(layout), &err),
			     0, "%s", err.msg);
	cr_assert_eq(ck_slices_open(&j->sl, j->s, &err), 0, "%s", err.msg);
}

static void close_job(struct job *j)
{
	ck_slices_close(j->sl);
	ck_staging_close(j->s);
}

static int publish(const char *name, struct ck_err *err)
{
	const struct ck_commit_in in = { .opts = &opts };
	struct ck_staging *s;
	int ret = ck_staging_open(&s, &root, name, err);

	if (ret)
		return ret;
	ret = ck_commit(s, &in, err);
	ck_staging_close(s);
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
static unsigned char *expected(const struct ck_splan *plan, uint32_t piece)
{
	const struct ck_splan_piece *p = &plan->pieces[piece];
	const struct ck_splan_tensor *t = &plan->tensors[p->tensor];
	const uint64_t *start = plan->dims + p->dims;
	const uint64_t *len = start + t->grid_rank, *full = len + t->grid_rank;
	const uint64_t *grid = plan->dims + t->grid;
	uint64_t elem = ck_dtype_info(t->dtype)->size;
	const uint64_t *walk = p->flat ? len : full;
	unsigned char *v = malloc(p->len + 1);
	char c = *ck_splan_str(plan, t->name);
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

static void write_piece(struct ck_slices *sl, uint32_t piece, uint64_t at_once)
{
	const struct ck_splan *plan = ck_slices_plan(sl);
	const struct ck_slice of = { .nr = piece };
	unsigned char *v = expected(plan, piece);
	uint64_t len = ck_slice_size(sl, of);
	struct ck_err err = { 0 };

	/* from behind, so that each call is a stretch of its own at first */
	for (uint64_t end = len; end > 0;) {
		uint64_t n = end < at_once ? end : at_once;

		end -= n;
		cr_assert_eq(ck_slice_write(sl, of, v + end, n, end, &err), 0,
			     "%s", err.msg);
	}
	cr_assert_eq(ck_slice_written(sl, of), len);
	free(v);
}

static void write_ranks(struct ck_slices *sl)
{
	const struct ck_splan *plan = ck_slices_plan(sl);

	for (uint32_t r = 0; r < plan->nr_ranks; r++)
		for (uint32_t i = 0; i < plan->ranks[r].nr; i++)
			write_piece(sl, plan->entries[plan->ranks[r].first + i],
				    100);
}

static void write_tensors(struct ck_slices *sl)
{
	const struct ck_image *img = ck_slices_image(sl);
	struct ck_err err = { 0 };

	for (uint32_t t = 0; t < img->nr_tensors; t++) {
		const struct ck_slice of = { .whole = true, .nr = t };
		uint64_t size = ck_slice_size(sl, of);
		unsigned char *v = bytes_of(
			*ck_image_str(img, img->tensors[t].name, NULL), size);
		unsigned char *got = malloc(size + 1);

		for (uint64_t at = 0; at < size; at += 77)
			cr_assert_eq(
				ck_slice_write(sl, of, v + at,
					       size - at < 77 ? size - at : 77,
					       at, &err),
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
static void read_back(const char *name, unsigned tensors)
{
	char path[128];
	struct ck_root at;
	struct ck_ckpt *ck;
	const struct ck_image *img;
	struct ck_err err = { 0 };
	int fd;

	snprintf(path, sizeof(path), "%s/%s", top, name);
	cr_assert_eq(ck_root_open(&at, path, &opts, &err), 0, "%s", err.msg);
	cr_assert_eq(ck_ckpt_describe(&at, &opts, &fd, &err), 0, "%s", err.msg);
	cr_assert_eq(ck_ckpt_serve(&ck, &at, &opts, fd, &err), 0, "%s",
		     err.msg);
	close(fd);
	img = ck_ckpt_image(ck);
	cr_assert_eq(img->nr_tensors, tensors);
	cr_assert_eq(img->nr_problems, 0, "%s",
		     img->nr_problems ?
			     ck_image_str(img, img->problems[0].reason, NULL) :
			     "");
	for (uint32_t t = 0; t < img->nr_tensors; t++) {
		uint64_t size = img->tensors[t].size;
		unsigned char *got = malloc(size + 1);
		unsigned char *v = bytes_of(
			*ck_image_str(img, img->tensors[t].name, NULL), size);

		cr_assert_eq(ck_ckpt_read(ck, t, got, size, 0, &err), 0, "%s",
			     err.msg);
		cr_assert_eq(memcmp(got, v, size), 0, "%s differs",
			     ck_image_str(img, img->tensors[t].name, NULL));
		free(got);
		free(v);
	}
	ck_ckpt_close(ck);
}

/* ---- each form that a layout has ---- */

#define DOC(mesh, tensors, write)                                       \
	"{\"unshard_layout\":1,\"mesh\":" mesh ",\"tensors\":[" tensors \
	"],\"write\":{" write "}}"
#define TWO \
	"{\"axes\":[{\"name\":\"a\",\"size\":2},{\"name\":\"b\",\"size\":3}]}"
#define TENSOR(name, dtype, shape, more)                                       \
	"{\"name\":\"" name "\",\"dtype\":\"" dtype "\",\"shape\":" shape more \
	"}"
#define PLACE(p) ",\"placement\":" p

static const struct form {
	const char *what, *layout;
	unsigned tensors;
} forms[] = {
	{ "one rank, no mesh",
	  "{\"unshard_layout\":1,\"write\":{},\"tensors\":["
	  "{\"name\":\"w\",\"dtype\":\"float32\",\"shape\":[3,5]}]}",
	  1 },
	{ "rows and columns",
	  DOC(TWO,
	      TENSOR("r", "float32", "[8,6]", PLACE("{\"a\":{\"shard\":0},\"b\":{\"shard\":1}}")) "," TENSOR(
		      "c", "bfloat16", "[4,9]", PLACE("{\"b\":{\"shard\":1}}")),
	      ""),
	  2 },
	{ "copies",
	  DOC(TWO,
	      TENSOR("n", "float32", "[700]", PLACE("{\"a\":\"replicate\",\"b\":\"replicate\"}")) "," TENSOR(
		      "m", "float32", "[]",
		      "") "," TENSOR("o", "int64", "[6]",
				     PLACE("{\"a\":\"replicate\",\"b\":{\"shard\":0}}")),
	      ""),
	  3 },
	{ "ceil, with an empty last part",
	  DOC(TWO,
	      TENSOR("w", "float32", "[4,5]",
		     PLACE("{\"b\":{\"shard\":0,\"sizes\":\"ceil\"}}")),
	      ""),
	  1 },
	{ "balanced",
	  DOC(TWO,
	      TENSOR("w", "float16", "[11,5]",
		     PLACE("{\"a\":{\"shard\":1,\"sizes\":\"balanced\"},"
			   "\"b\":{\"shard\":0,\"sizes\":\"balanced\"}}")),
	      ""),
	  1 },
	{ "sizes one by one, one of them nothing",
	  DOC(TWO,
	      TENSOR("w", "float64", "[10,2]",
		     PLACE("{\"b\":{\"shard\":0,\"sizes\":[7,0,3]}}")),
	      ""),
	  1 },
	{ "one dimension twice, in an order of its own",
	  DOC(TWO,
	      TENSOR("w", "float32", "[12,3]",
		     PLACE("[{\"axis\":\"b\",\"shard\":0},"
			   "{\"axis\":\"a\",\"shard\":0}]")),
	      ""),
	  1 },
	{ "flat, padded",
	  DOC(TWO,
	      TENSOR("w", "float32", "[5,7]",
		     PLACE("{\"b\":{\"flat\":true,\"padded\":36},"
			   "\"a\":\"replicate\"}")),
	      ""),
	  1 },
	{ "flat behind a shard",
	  DOC(TWO,
	      TENSOR("w", "bfloat16", "[6,7]",
		     PLACE("{\"a\":{\"shard\":0},\"b\":{\"flat\":true}}")),
	      ""),
	  1 },
	{ "a padded dimension, outer and inner",
	  DOC(TWO,
	      TENSOR("w", "float32", "[7,4]", PLACE("{\"a\":{\"shard\":0,\"padded\":8}}")) "," TENSOR(
		      "x", "float32", "[3,2,7]",
		      PLACE("{\"b\":{\"shard\":2,\"padded\":9}}")),
	      ""),
	  2 },
	{ "fused, through a view",
	  DOC(TWO,
	      TENSOR("q", "float32", "[18,4]",
		     ",\"view\":[3,6,4]" PLACE("{\"a\":{\"shard\":1}}")),
	      ""),
	  1 },
	{ "boxes, some of them copies, some flat",
	  DOC(TWO,
	      TENSOR("w", "float32", "[4,6]",
		     ",\"boxes\":["
		     "{\"at\":{\"rank\":5},\"start\":[0,0],\"size\":[4,2]},"
		     "{\"at\":{\"b\":0},\"start\":[0,2],\"size\":[4,4],"
		     "\"flat\":[0,5]},"
		     "{\"at\":{\"rank\":1},\"start\":[0,2],\"size\":[4,4],"
		     "\"flat\":[5,16]},"
		     "{\"at\":{\"rank\":2},\"start\":[0,0],\"size\":[4,2]}]"),
	      ""),
	  1 },
	{ "stages of a pipeline, by pattern; ranks of other numbers",
	  "{\"unshard_layout\":1,\"mesh\":{\"axes\":["
	  "{\"name\":\"pp\",\"size\":2},{\"name\":\"tp\",\"size\":2}],"
	  "\"ranks\":[7,3,0,12]},\"tensors\":["
	  "{\"regex\":\"l([0-9]+)[.]w\",\"at\":{\"pp\":\"{$1/2}\"},"
	  "\"dtype\":\"float32\",\"placement\":{\"tp\":{\"shard\":0}}},"
	  "{\"glob\":\"l*.norm\",\"dtype\":\"bfloat16\"}],"
	  "\"write\":{\"path\":\"pp{pp}-tp{tp}.safetensors\",\"tensors\":["
	  "{\"name\":\"l0.w\",\"shape\":[4,3]},"
	  "{\"name\":\"l1.w\",\"shape\":[6,3]},"
	  "{\"name\":\"l2.w\",\"shape\":[4,3]},"
	  "{\"name\":\"l3.w\",\"shape\":[2,3]},"
	  "{\"name\":\"l3.norm\",\"shape\":[8]}]}}",
	  5 },
	{ "packed",
	  DOC(TWO,
	      TENSOR("a", "uint8", "[5]",
		     "") "," TENSOR("b", "float64", "[3]",
				    "") "," TENSOR("z", "float32", "[0,4]", ""),
	      "\"align\":1"),
	  3 },
};

Test(slices, every_form_by_rank)
{
	for (size_t i = 0; i < sizeof(forms) / sizeof(*forms); i++) {
		struct ck_err err = { 0 };
		char name[32];
		struct job j;

		snprintf(name, sizeof(name), "step-%zu", i);
		open_job(&j, name, forms[i].layout);
		write_ranks(j.sl);
		close_job(&j);
		cr_assert_eq(publish(name, &err), 0, "%s: %s", forms[i].what,
			     err.msg);
		read_back(name, forms[i].tensors);
	}
}

Test(slices, every_form_as_tensors)
{
	for (size_t i = 0; i < sizeof(forms) / sizeof(*forms); i++) {
		struct ck_err err = { 0 };
		char name[32];
		struct job j;

		snprintf(name, sizeof(name), "step-%zu", i);
		open_job(&j, name, forms[i].layout);
		write_tensors(j.sl);
		close_job(&j);
		cr_assert_eq(publish(name, &err), 0, "%s: %s", forms[i].what,
			     err.msg);
		read_back(name, forms[i].tensors);
	}
}

static const char plain[] =
	DOC(TWO,
	    TENSOR("r", "float32", "[8,600]",
		   PLACE("{\"a\":{\"shard\":0}}")) "," TENSOR("n", "float32",
							      "[900]", ""),
	    "");

Test(slices, tensors_are_aligned_and_copies_once)
{
	struct ck_err err = { 0 };
	uint64_t bytes = 0;
	struct job j;

	open_job(&j, "step", plain);
	for (uint32_t i = 0; i < ck_slices_plan(j.sl)->nr_pieces; i++) {
		cr_assert_eq(ck_slices_plan(j.sl)->pieces[i].off % 4096, 0);
		bytes += ck_slices_plan(j.sl)->pieces[i].len;
	}
	cr_assert_eq(bytes, 8 * 600 * 4 + 900 * 4);
	write_ranks(j.sl);
	close_job(&j);
	cr_assert_eq(publish("step", &err), 0, "%s", err.msg);
}

/* ---- what is missing ---- */

Test(slices, a_missing_byte_is_named)
{
	struct ck_err err = { 0 };
	struct ck_slices_lack *v;
	char c = 1;
	size_t nr;
	struct job j;
	const struct ck_splan *p;
	uint32_t piece;

	open_job(&j, "step", plain);
	p = ck_slices_plan(j.sl);
	write_ranks(j.sl);
	/* rank 4 is the second half of the rows */
	piece = p->entries[ck_splan_find_entry(p, 4,
					       ck_splan_find_tensor(p, "r"))];
	cr_assert_eq(
		ck_slice_empty(j.sl, (struct ck_slice){ .nr = piece }, &err),
		0);
	for (uint64_t i = 0; i < p->pieces[piece].len; i++)
		if (i != 77)
			cr_assert_eq(
				ck_slice_write(j.sl,
					       (struct ck_slice){ .nr = piece },
					       &c, 1, i, &err),
				0);
	cr_assert_eq(ck_slice_read(j.sl, (struct ck_slice){ .nr = piece }, &c,
				   1, 77, false, &err),
		     -EIO);
	cr_assert_eq(ck_slices_lacks(j.sl, &v, &nr, &err), 0);
	cr_assert_eq(nr, 3);
	cr_assert_eq(v[1].rank, 4);
	cr_assert_eq(v[1].bytes, 1);
	cr_assert_eq(v[1].whole, 1);
	cr_assert_str_eq(v[1].tensor, "r");
	cr_assert_eq(v[1].from, 77);
	free(v);
	close_job(&j);
	cr_assert_eq(publish("step", &err), -ENODATA);
	cr_assert_str_eq(err.msg, "step: not complete: r: bytes 77 to 78 of "
				  "9600 were not written (slice of ranks 3, 4, "
				  "5)");
}

Test(slices, a_write_that_fails_leaves_nothing_claimed)
{
	const struct ck_slice of = { .nr = 0 };
	struct ck_err err = { 0 };
	struct job j;
	char c = 1;

	open_job(&j, "step", plain);
	write_ranks(j.sl);
	ck_fault_set_kind(CK_FAULT_WRITE, 1, 1, ENOSPC);
	cr_assert_eq(ck_slice_write(j.sl, of, &c, 1, 9, &err), -ENOSPC);
	cr_assert_eq(ck_slice_read(j.sl, of, &c, 1, 8, false, &err), 0);
	cr_assert_eq(ck_slice_read(j.sl, of, &c, 1, 9, false, &err), -EIO);
	close_job(&j);
	cr_assert_eq(publish("step", &err), -ENODATA);
}

Test(slices, a_failed_fsync_dooms)
{
	const struct ck_slice of = { .nr = 0 };
	struct ck_err err = { 0 };
	struct job j;

	open_job(&j, "step", plain);
	write_ranks(j.sl);
	ck_fault_set_kind(CK_FAULT_SYNC, 1, 1, EIO);
	cr_assert_eq(ck_slice_sync(j.sl, of, &err), -EIO);
	close_job(&j);
	cr_assert_eq(publish("step", &err), -EIO, "%s", err.msg);
}

/* ---- several, and deaths ---- */

Test(slices, two_opened_at_once_are_combined)
{
	struct ck_err err = { 0 };
	const struct ck_splan *p;
	struct job a, b;
	char c;

	open_job(&a, "step", plain);
	open_job(&b, "step", plain);
	p = ck_slices_plan(a.sl);
	for (uint32_t i = 0; i < p->nr_pieces; i++)
		write_piece(i % 2 ? a.sl : b.sl, i, 1000);
	/* what the other wrote is read, too */
	for (uint32_t i = 0; i < p->nr_pieces; i++)
		cr_assert_eq(ck_slice_read(i % 2 ? b.sl : a.sl,
					   (struct ck_slice){ .nr = i }, &c, 1,
					   0, false, &err),
			     0, "%s", err.msg);
	cr_assert_eq(publish("step", &err), 0, "%s", err.msg);
	close_job(&a);
	close_job(&b);
	read_back("step", 2);
}

Test(slices, another_layout_is_refused_the_same_is_not)
{
	struct ck_err err = { 0 };
	struct job j;

	open_job(&j, "step", plain);
	cr_assert_eq(
		ck_slices_make(j.s, &root, &opts, plain, strlen(plain), &err),
		0);
	cr_assert_eq(ck_slices_make(j.s, &root, &opts, forms[0].layout,
				    strlen(forms[0].layout), &err),
		     -EEXIST);
	close_job(&j);
}

/* Dies after @nr calls; the next writes only what is not there. */
static void write_some(const char *name, long nr)
{
	pid_t pid = fork();
	int status;

	if (!pid) {
		struct job j;

		open_job(&j, name, plain);
		for (uint32_t i = 0; i < ck_slices_plan(j.sl)->nr_pieces; i++) {
			const struct ck_slice of = { .nr = i };
			unsigned char *v = expected(ck_slices_plan(j.sl), i);

			for (uint64_t at = 0; at < ck_slice_size(j.sl, of);
			     at += 100) {
				char c;

				if (!ck_slice_read(j.sl, of, &c, 1, at, false,
						   NULL))
					continue;
				if (!nr--)
					raise(SIGKILL);
				if (ck_slice_write(j.sl, of, v + at, 100, at,
						   NULL))
					_exit(1);
			}
			free(v);
		}
		_exit(0);
	}
	cr_assert_eq(waitpid(pid, &status, 0), pid);
	cr_assert(WIFSIGNALED(status) || !WEXITSTATUS(status));
}

static size_t logs(const char *name)
{
	char pattern[128];
	glob_t g = { 0 };
	size_t nr;

	snprintf(pattern, sizeof(pattern), "%s/.staging-%s/slices/w-*.log", top,
		 name);
	glob(pattern, 0, NULL, &g);
	nr = g.gl_pathc;
	globfree(&g);
	return nr;
}

Test(slices, what_was_written_outlives_its_writer)
{
	struct ck_err err = { 0 };

	for (long n = 1; n < 30; n += 7)
		write_some("step", n);
	cr_assert_eq(publish("step", &err), -ENODATA);
	write_some("step", 10000);
	/* whoever came took over what the one before had left */
	cr_assert_eq(logs("step"), 1);
	cr_assert_eq(publish("step", &err), 0, "%s", err.msg);
	read_back("step", 2);
}

/* As if the machine had lost its power: another boot reads the logs. */
static void forget_boot(const char *name)
{
	char pattern[128];
	glob_t g = { 0 };

	snprintf(pattern, sizeof(pattern), "%s/.staging-%s/slices/w-*", top,
		 name);
	cr_assert_eq(glob(pattern, 0, NULL, &g), 0);
	for (size_t i = 0; i < g.gl_pathc; i++) {
		int fd = open(g.gl_pathv[i], O_WRONLY);

		cr_assert_eq(pwrite(fd, "another boot", 13, 24), 13);
		close(fd);
	}
	globfree(&g);
}

Test(slices, after_a_loss_of_power_only_what_was_synced_counts)
{
	struct ck_err err = { 0 };
	const struct ck_splan *p;
	struct job j;
	char c;

	open_job(&j, "step", plain);
	p = ck_slices_plan(j.sl);
	cr_assert(p->nr_pieces >= 3);
	for (uint32_t i = 0; i < p->nr_pieces; i++)
		write_piece(j.sl, i, 1000);
	cr_assert_eq(ck_slice_sync(j.sl, (struct ck_slice){ .nr = 0 }, &err),
		     0);
	close_job(&j);
	forget_boot("step");
	cr_assert_eq(publish("step", &err), -ENODATA, "%s", err.msg);

	open_job(&j, "step", NULL);
	p = ck_slices_plan(j.sl);
	cr_assert_eq(ck_slice_read(j.sl, (struct ck_slice){ .nr = 0 }, &c, 1, 0,
				   false, &err),
		     0, "%s", err.msg);
	for (uint32_t i = 0; i < p->nr_pieces; i++)
		if (p->pieces[i].file != p->pieces[0].file)
			cr_assert_eq(ck_slice_read(j.sl,
						   (struct ck_slice){ .nr = i },
						   &c, 1, 0, false, &err),
				     -EIO);
	for (uint32_t i = 0; i < p->nr_pieces; i++)
		write_piece(j.sl, i, 1000);
	/* and once more: what was taken over is as safe as before */
	cr_assert_eq(ck_slices_sync(j.sl, &err), 0, "%s", err.msg);
	close_job(&j);
	forget_boot("step");
	cr_assert_eq(publish("step", &err), 0, "%s", err.msg);
	read_back("step", 2);
}

Test(slices, begun_anew_is_not_what_it_was_after_a_loss_of_power)
{
	const struct ck_slice of = { .nr = 0 };
	struct ck_err err = { 0 };
	struct job j;
	char c;

	open_job(&j, "step", plain);
	write_piece(j.sl, 0, 1000);
	cr_assert_eq(ck_slice_sync(j.sl, of, &err), 0);
	cr_assert_eq(ck_slice_empty(j.sl, of, &err), 0);
	close_job(&j);
	forget_boot("step");
	open_job(&j, "step", NULL);
	cr_assert_eq(ck_slice_read(j.sl, of, &c, 1, 0, false, &err), -EIO);
	close_job(&j);
}

/* In a process of its own, for steps are counted by process. */
static int apart(int (*call)(const char *name), const char *name,
		 const char *nth)
{
	pid_t pid = fork();
	int status;

	if (!pid) {
		if (nth)
			setenv("UNSHARD_PUBLISH_FAULT", nth, 1);
		_exit(call(name));
	}
	cr_assert_eq(waitpid(pid, &status, 0), pid);
	return status;
}

static int publish_once(const char *name)
{
	struct ck_err err = { 0 };
	int ret = publish(name, &err);

	if (ret)
		fprintf(stderr, "%s\n", err.msg);
	return ret != 0;
}

static int do_the_rest(const char *name)
{
	struct ck_err err = { 0 };
	int ret = ck_recover(&root, name, &opts, &err);

	/* the stage was out of the way already, and only to be removed */
	if (ret == -ENOENT)
		return 0;
	if (ret < 0)
		fprintf(stderr, "%s\n", err.msg);
	return ret < 0 || (!ret && publish_once(name));
}

/* A publish that dies at each of its steps, and is done again. */
Test(slices, killed_at_every_step_of_a_publish)
{
	int died = 0, status = SIGKILL;

	for (int point = 1; WIFSIGNALED(status) && point < 60; point++) {
		char name[32], nth[16];
		struct job j;

		snprintf(name, sizeof(name), "step-%d", point);
		open_job(&j, name, plain);
		write_ranks(j.sl);
		close_job(&j);
		snprintf(nth, sizeof(nth), "%d", point);
		status = apart(publish_once, name, nth);
		died += WIFSIGNALED(status);
		if (WIFSIGNALED(status))
			cr_assert_eq(apart(do_the_rest, name, NULL), 0,
				     "point %d", point);
		read_back(name, 2);
	}
	cr_assert(died > 15, "%d", died);
}

/* ---- what is refused ---- */

static void refused(const char *layout, const char *why)
{
	struct ck_err err = { 0 };
	struct ck_staging *s;

	cr_assert_eq(ck_staging_make(&s, &root, "bad", &err), 0, "%s", err.msg);
	cr_assert_neq(
		ck_slices_make(s, &root, &opts, layout, strlen(layout), &err),
		0, "%s", layout);
	cr_assert(strstr(err.msg, why), "%s\nexpected %s", err.msg, why);
	cr_assert(!ck_slices_look(s));
	cr_assert_eq(ck_staging_seize(s, &err), 0);
	cr_assert_eq(ck_staging_remove(s, &err), 0);
	ck_staging_close(s);
}

Test(slices, layouts_that_do_not_make_sense)
{
	refused("{", "unshard-layout.json");
	refused("{\"unshard_layout\":1,\"tensors\":[]}", "\"write\"");
	refused(DOC(TWO, "", ""), "no tensor to write");
	refused(DOC(TWO,
		    TENSOR("w", "float32", "[5]",
			   PLACE("{\"a\":{\"shard\":0}}")),
		    ""),
		"do not make 2 even parts");
	refused(DOC(TWO, "{\"name\":\"w\",\"shape\":[5]}", ""),
		"lacks \"dtype\"");
	refused(DOC(TWO, "{\"name\":\"w\",\"dtype\":\"float32\"}", ""),
		"lacks \"shape\"");
	refused(DOC(TWO, TENSOR("w", "float32", "[5]", ""),
		    "\"path\":\"x.safetensors\""),
		"would both be x.safetensors");
	refused(DOC(TWO, TENSOR("w", "float32", "[5]", ""),
		    "\"path\":\"../{rank}.safetensors\""),
		"name of a file");
	refused(DOC(TWO, TENSOR("w", "float32", "[5]", ""), "\"align\":3"),
		"power of 2");
	refused(DOC(TWO, TENSOR("w", "float32", "[5]", ""), "\"what\":3"),
		"unknown member");
	refused(DOC(TWO, TENSOR("w", "float32", "[5]", ""),
		    "\"tensors\":[{\"name\":\"v\"}]"),
		"no member of \"tensors\" matches v");
	refused(DOC(TWO, TENSOR("w", "float32", "[5]", ""),
		    "\"tensors\":[{\"name\":\"w\"},{\"name\":\"w\"}]"),
		"occurs twice");
	refused(DOC(TWO, TENSOR("w", "complex128", "[5]", ""), ""),
		"have no complex128");
	refused(DOC(TWO, TENSOR("w", "float32", "[4611686018427387903]", ""),
		    ""),
		"too large");
	refused(DOC(TWO,
		    TENSOR("w", "float32", "[4]",
			   ",\"boxes\":[{\"at\":{\"rank\":0},\"start\":[0],"
			   "\"size\":[3]}]"),
		    ""),
		"1 of 4 elements (4 bytes) are stored nowhere");
	refused(DOC(TWO,
		    TENSOR("w", "float32", "[4]",
			   ",\"boxes\":[{\"at\":{\"rank\":0},\"start\":[0],"
			   "\"size\":[3]},{\"at\":{\"rank\":1},\"start\":[2],"
			   "\"size\":[2]}]"),
		    ""),
		"w");
	refused(DOC(TWO,
		    TENSOR("w", "float32", "[4]",
			   ",\"boxes\":[{\"at\":{\"rank\":0},\"start\":[3],"
			   "\"size\":[9]}]"),
		    ""),
		"");
}

/* A plan comes from a directory that others write to. */
Test(slices, damaged_plans_and_logs)
{
	struct ck_err err = { 0 };
	struct ck_str bytes = { 0 };

	cr_assert_eq(ck_splan_make(&bytes, "x", plain, strlen(plain), &err), 0,
		     "%s", err.msg);
	for (size_t i = 0; i < bytes.len; i++) {
		char *copy = malloc(bytes.len);
		struct ck_splan p;

		memcpy(copy, bytes.v, bytes.len);
		copy[i] ^= 0x41;
		cr_assert_neq(ck_splan_take(&p, copy, bytes.len, &err), 0,
			      "byte %zu", i);
		copy = malloc(i + 1);
		memcpy(copy, bytes.v, i);
		cr_assert_neq(ck_splan_take(&p, copy, i, &err), 0);
	}
	ck_str_free(&bytes);
}
