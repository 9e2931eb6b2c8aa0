/* SPDX-License-Identifier: Apache-2.0 */
/*
 * save_refusals - what unshard_save_* refuses, with its line
 *
 * What is missing, what was written twice, what does not fit together, who does
 * not come, and what lies there already.
 */
#include "tests/lib/loadkit.h"
#include "tests/lib/savekit.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Rank @rank of two has half of w, and all of b. */
static unshard_save *half(unshard_ctx *ctx, const char *step, uint32_t rank)
{
	unshard_save_opts opts = sv_opts_of(2, rank);
	unshard_save *s = sv_begin(ctx, step, &opts);
	const unshard_slice v[] = {
		sv_slice("w", "float32", 1, DIMS(2000), DIMS(rank * 1000),
			 DIMS(1000)),
		sv_slice("b", "float32", 1, DIMS(10), NULL, NULL),
	};
	unshard_error err;

	sv_ok(unshard_save_declare(s, v, 2, &err), &err);
	return s;
}

/* Both declare, which only one that waits can see. */
static void *begin_other(void *arg)
{
	unshard_error err;

	sv_ok(unshard_save_sync(arg, &err), &err);
	return NULL;
}

static void both(unshard_ctx *ctx, const char *step, unshard_save *s[2])
{
	pthread_t other;
	unshard_error err;

	s[0] = half(ctx, step, 0);
	s[1] = half(ctx, step, 1);
	LK_CHECK(!pthread_create(&other, NULL, begin_other, s[1]));
	sv_ok(unshard_save_sync(s[0], &err), &err);
	pthread_join(other, NULL);
}

static void missing(void)
{
	unshard_ctx *ctx = sv_new_ctx();
	unshard_item part = sv_item(0, sv_big + 4000);
	unshard_save *s[2];
	unshard_error err;

	both(ctx, "missing", s);
	sv_write_one(s[0], 0, sv_big);
	sv_write_one(s[0], 1, sv_big + 9);
	sv_write_one(s[1], 1, sv_big + 9);
	part.start = DIMS(1000);
	part.len = DIMS(400);
	sv_ok(unshard_save_write(s[1], &part, 1, &err), &err);
	sv_is(unshard_save_publish(s[0], &err), ENODATA, &err,
	      "w: ", "bytes 1600 to 4000 of 4000 were not written",
	      "slice of rank 1");
	LK_CHECK(!sv_is_there("missing"));
	part = sv_item(0, sv_big + 4000);
	sv_ok(unshard_save_write(s[1], &part, 1, &err), &err);
	sv_ok(unshard_save_publish(s[0], &err), &err);
	sv_holds(ctx, "missing", "w", sv_big, 8000);
	unshard_save_free(s[0]);
	unshard_save_free(s[1]);
	unshard_ctx_free(ctx);
}

static void twice(void)
{
	unshard_ctx *ctx = sv_new_ctx();
	unsigned char changed[4000];
	unshard_item again = sv_item(0, changed);
	unshard_save *s[2];
	unshard_error err;

	both(ctx, "twice", s);
	sv_write_one(s[1], 0, sv_big + 4000);
	sv_write_one(s[1], 0, sv_big + 4000);
	memcpy(changed, sv_big + 4000, 4000);
	changed[3000] ^= 1;
	sv_is(unshard_save_write(s[1], &again, 1, &err), EBADMSG, &err,
	      "w: bytes 3000 to 4000 of 4000 differ", "written before",
	      "slice of rank 1");
	LK_CHECK(err.item == 0 && !strcmp(err.name, "w"));
	/* copies: whichever writes it, the other's are other bytes */
	sv_write_one(s[0], 0, sv_big);
	sv_write_one(s[0], 1, sv_big);
	sv_write_one(s[1], 1, sv_big + 1);
	sv_is(unshard_save_publish(s[0], &err), EBADMSG, &err,
	      "b: bytes 0 to 40", "are other ones at rank",
	      "slice of ranks 0, 1");
	LK_CHECK(!sv_is_there("twice"));
	unshard_save_free(s[0]);
	unshard_save_free(s[1]);
	unshard_ctx_free(ctx);
}

static void bad_arguments(void)
{
	const unshard_save_opts opts = sv_opts_of(0, 0);
	unshard_ctx *ctx = sv_new_ctx();
	unshard_save *s = sv_begin(ctx, "bad", &opts), *other;
	unshard_slice v =
		sv_slice("w", "float32", 1, DIMS(10), DIMS(5), DIMS(6));
	unshard_item one = sv_item(0, sv_big);
	unshard_save_opts how = sv_opts_of(2, 2);
	unshard_error err;

	sv_is(unshard_save_declare(s, &v, 1, &err), EINVAL, &err,
	      "w: dimension 0", "5 to 11 of 10", "");
	v = sv_slice("w", "float33", 1, DIMS(10), NULL, NULL);
	sv_is(unshard_save_declare(s, &v, 1, &err), EINVAL, &err, "float33", "",
	      "");
	v = sv_slice("w", "float32", 1, DIMS(10), NULL, NULL);
	v.path = "{}";
	sv_is(unshard_save_declare(s, &v, 1, &err), EINVAL, &err, "w: path",
	      "list", "");
	v.path = NULL;
	sv_ok(unshard_save_declare(s, &v, 1, &err), &err);
	one.start = DIMS(8);
	one.len = DIMS(3);
	sv_is(unshard_save_write(s, &one, 1, &err), EINVAL, &err,
	      "w: dimension 0", "8 to 11", "0 to 10");
	sv_is(unshard_save_declare(s, &v, 1, &err), EBUSY, &err, "bad", "", "");
	one = sv_item(0, sv_big);
	one.dtype = "float64";
	sv_is(unshard_save_write(s, &one, 1, &err), EINVAL, &err, "float64", "",
	      "");
	one = sv_item(7, sv_big);
	sv_is(unshard_save_write(s, &one, 1, &err), EINVAL, &err,
	      "slice 7 of 1", "", "");
	unshard_save_free(s);
	sv_is(unshard_save_new(ctx, sv_dir, "x", &how, &other, &err), EINVAL,
	      &err, "rank 2 of 2", "", "");
	sv_is(unshard_save_new(ctx, sv_dir, "../x", &opts, &other, &err),
	      EINVAL, &err, "../x", "not the name", "");
	sv_is(unshard_save_new(ctx, "/none", "x", &opts, &other, &err), ENOENT,
	      &err, "/none", "", "");
	how = sv_opts_of(0, 0);
	how.format = "zarr";
	sv_is(unshard_save_new(ctx, sv_dir, "x", &how, &other, &err), EINVAL,
	      &err, "zarr", "safetensors", "");
	unshard_ctx_free(ctx);
}

/* A hole, another dtype, and a rank that is not there. */
static void do_not_fit(void)
{
	unshard_ctx *ctx = sv_new_ctx();
	unshard_save_opts opts = sv_opts_of(0, 0);
	unshard_save *s = sv_begin(ctx, "hole", &opts), *other;
	unshard_slice v =
		sv_slice("w", "float32", 1, DIMS(10), DIMS(0), DIMS(6));
	unshard_error err;

	sv_ok(unshard_save_declare(s, &v, 1, &err), &err);
	sv_is(unshard_save_sync(s, &err), EINVAL, &err,
	      "w: ", "4 of 10 elements", "");
	unshard_save_free(s);
	opts = sv_opts_of(2, 0);
	opts.timeout = 1;
	s = sv_begin(ctx, "dtypes", &opts);
	sv_ok(unshard_save_declare(s, &v, 1, &err), &err);
	sv_is(unshard_save_sync(s, &err), ETIMEDOUT, &err, "rank 1 of 2",
	      "within 1 s", "");
	opts.rank = 1;
	other = sv_begin(ctx, "dtypes", &opts);
	v = sv_slice("w", "float64", 1, DIMS(10), DIMS(6), DIMS(4));
	sv_ok(unshard_save_declare(other, &v, 1, &err), &err);
	sv_is(unshard_save_sync(other, &err), ETIMEDOUT, &err, "rank 0 has not",
	      "", "");
	sv_is(unshard_save_sync(s, &err), EINVAL, &err, "w: has another dtype",
	      "at rank 1", "");
	sv_is(unshard_save_sync(other, &err), EINVAL, &err,
	      "w: has another dtype", "at rank 1", "");
	unshard_save_free(s);
	unshard_save_free(other);
	unshard_ctx_free(ctx);
}

/* What an earlier try left, and what is replaced. */
static void anew(void)
{
	unshard_ctx *ctx = sv_new_ctx();
	unshard_save_opts opts = sv_opts_of(0, 0);
	unshard_slice v = sv_slice("w", "uint8", 1, DIMS(1000), NULL, NULL);
	unshard_error err;
	unshard_save *s;

	for (unsigned i = 0; i < 3; i++) {
		s = sv_begin(ctx, "anew", &opts);
		sv_ok(unshard_save_declare(s, &v, 1, &err), &err);
		sv_write_one(s, 0, sv_big);
		if (i == 2)
			sv_ok(unshard_save_publish(s, &err), &err);
		unshard_save_free(s);
		opts.flags = i ? 0 : UNSHARD_ANEW;
	}
	opts.flags = UNSHARD_REPLACE;
	s = sv_begin(ctx, "anew", &opts);
	v = sv_slice("w", "uint8", 1, DIMS(2000), NULL, NULL);
	sv_ok(unshard_save_declare(s, &v, 1, &err), &err);
	sv_is(unshard_save_publish(s, &err), ENODATA, &err, "w: ", "0 to 2000",
	      "rank 0");
	sv_holds(ctx, "anew", "w", sv_big, 1000);
	sv_write_one(s, 0, sv_big + 1);
	sv_ok(unshard_save_publish(s, &err), &err);
	unshard_save_free(s);
	sv_holds(ctx, "anew", "w", sv_big + 1, 2000);
	/* another plan than what lies there */
	opts.flags = 0;
	for (unsigned i = 0; i < 2; i++) {
		s = sv_begin(ctx, "other", &opts);
		v = sv_slice("w", "uint8", 1, DIMS(1000 + i), NULL, NULL);
		sv_ok(unshard_save_declare(s, &v, 1, &err), &err);
		if (!i)
			sv_write_one(s, 0, sv_big);
		else
			sv_is(unshard_save_sync(s, &err), EEXIST, &err,
			      "rank 0", "begin it anew", "");
		unshard_save_free(s);
	}
	unshard_ctx_free(ctx);
}

int main(int argc, char **argv)
{
	(void)argc;
	sv_set_up(argv[0]);
	missing();
	twice();
	bad_arguments();
	do_not_fit();
	anew();
	sv_tear_down();
	return 0;
}
