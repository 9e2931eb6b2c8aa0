/* SPDX-License-Identifier: Apache-2.0 */
/* savekit.c - see savekit.h */
#include "tests/lib/savekit.h"

#include "tests/lib/loadkit.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

char sv_dir[] = "/tmp/saves.XXXXXX", sv_parser[4096];
unsigned char sv_big[SV_BIG];
static const char *sv_options; /* of who publishes, or opens */

void sv_set_up(const char *program)
{
	const char *slash = strrchr(program, '/');

	snprintf(sv_parser, sizeof(sv_parser), "%.*s/../unshard-parser",
		 (int)(slash - program), program);
	if (getenv("SAN") && *getenv("SAN"))
		sv_options = "sandbox=off";
	LK_CHECK(mkdtemp(sv_dir));
	for (size_t i = 0; i < sizeof(sv_big); i++)
		sv_big[i] = (unsigned char)(i * 2654435761u >> 13);
}

void sv_tear_down(void)
{
	char command[100];

	snprintf(command, sizeof(command), "rm -r %s", sv_dir);
	LK_CHECK(!system(command));
}

void sv_ok(int ret, const unshard_error *err)
{
	if (ret)
		fprintf(stderr, "%d: %s\n", ret, err->text);
	LK_CHECK(!ret);
}

/* It failed so, and the line has all of these words. */
void sv_is(int ret, int code, const unshard_error *err, const char *a,
	   const char *b, const char *c)
{
	if (ret != -code || !strstr(err->text, a) || !strstr(err->text, b) ||
	    !strstr(err->text, c)) {
		fprintf(stderr, "%d, not %d: %s\n", ret, -code,
			ret ? err->text : "");
		abort();
	}
}

unshard_ctx *sv_new_ctx(void)
{
	unshard_ctx_opts opts = { .size = sizeof(opts), .threads = 2 };
	unshard_error err;
	unshard_ctx *ctx;

	opts.helper = sv_parser;
	sv_ok(unshard_ctx_new(&ctx, &opts, &err), &err);
	return ctx;
}

unshard_save_opts sv_opts_of(uint32_t ranks, uint32_t rank)
{
	return (unshard_save_opts){ .size = sizeof(unshard_save_opts),
				    .ranks = ranks,
				    .rank = rank,
				    .timeout = 60,
				    .options = sv_options };
}

unshard_slice sv_slice(const char *name, const char *dtype, uint32_t rank,
		       const uint64_t *shape, const uint64_t *start,
		       const uint64_t *len)
{
	return (unshard_slice){ .size = sizeof(unshard_slice),
				.name = name,
				.dtype = dtype,
				.rank = rank,
				.shape = shape,
				.start = start,
				.len = len };
}

unshard_item sv_item(uint32_t nr, const void *mem)
{
	return (unshard_item){ .size = sizeof(unshard_item),
			       .tensor = nr,
			       .mem = (uintptr_t)mem };
}

void sv_write_one(unshard_save *s, uint32_t nr, const void *mem)
{
	const unshard_item one = sv_item(nr, mem);
	unshard_error err;

	sv_ok(unshard_save_write(s, &one, 1, &err), &err);
}

unshard_save *sv_begin(unshard_ctx *ctx, const char *step,
		       const unshard_save_opts *opts)
{
	unshard_error err;
	unshard_save *s;

	sv_ok(unshard_save_new(ctx, sv_dir, step, opts, &s, &err), &err);
	return s;
}

static void holds(unshard_ctx *ctx, const char *step, const char *name,
		  const void *bytes, size_t len, const char *options)
{
	unshard_open_opts opts = { .size = sizeof(opts), .options = options };
	unshard_item one = { .size = sizeof(one) };
	unsigned char *mem = malloc(len + 1);
	unshard_error err;
	unshard_tensor t;
	unshard_ckpt *ck;
	char path[4096];

	snprintf(path, sizeof(path), "%s/%s", sv_dir, step);
	sv_ok(unshard_open(ctx, path, &opts, &ck, &err), &err);
	one.tensor = unshard_find(ck, NULL, name, strlen(name));
	LK_CHECK(mem && one.tensor != UNSHARD_NONE &&
		 !unshard_tensor_at(ck, one.tensor, &t, sizeof(t)) &&
		 t.nbytes == len);
	one.mem = (uintptr_t)mem;
	sv_ok(unshard_read(ck, &one, &err), &err);
	LK_CHECK(!memcmp(mem, bytes, len));
	free(mem);
	unshard_unref(ck);
}

void sv_holds_unsealed(unshard_ctx *ctx, const char *step, const char *name,
		       const void *bytes, size_t len)
{
	holds(ctx, step, name, bytes, len, sv_options);
}

/* And its sums are of these, too. */
void sv_holds(unshard_ctx *ctx, const char *step, const char *name,
	      const void *bytes, size_t len)
{
	char verify[80];

	snprintf(verify, sizeof(verify), "%s%sverify",
		 sv_options ? sv_options : "", sv_options ? "," : "");
	holds(ctx, step, name, bytes, len, sv_options);
	holds(ctx, step, name, bytes, len, verify);
}

bool sv_is_there(const char *step)
{
	char path[4096];
	struct stat st;

	snprintf(path, sizeof(path), "%s/%s", sv_dir, step);
	return !stat(path, &st);
}
