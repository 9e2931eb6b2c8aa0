/* SPDX-License-Identifier: Apache-2.0 */
/*
 * lifetimes - what is let go, left and forked while it loads
 *
 * By dlopen(), as Python does.  A file of 64 MiB, in one tensor of bytes that
 * count, is loaded in several ways of coming to an end.
 */
#include "core/lib/unshard.h"
#include "tests/lib/loadkit.h"

#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define BYTES (UINT64_C(64) << 20)

static char dir[] = "/tmp/lifetimes.XXXXXX", file[64], parser[4096];
static unsigned char *memory, *want;
static void *library;

#define CALL(name) ((__typeof__(&name))symbol(#name))

static void *symbol(const char *name)
{
	void *found = dlsym(library, name);

	LK_CHECK(found);
	return found;
}

static void make_file(void)
{
	char head[128];
	uint64_t len;
	FILE *f;

	LK_CHECK(mkdtemp(dir));
	snprintf(file, sizeof(file), "%s/model.safetensors", dir);
	len = (uint64_t)snprintf(head, sizeof(head),
				 "{\"t\":{\"dtype\":\"U8\",\"shape\":[%llu],"
				 "\"data_offsets\":[0,%llu]}}",
				 (unsigned long long)BYTES,
				 (unsigned long long)BYTES);
	want = malloc(BYTES);
	memory = malloc(BYTES);
	LK_CHECK(want && memory);
	for (uint64_t i = 0; i < BYTES; i++)
		want[i] = (unsigned char)(i * 2654435761u >> 13);
	f = fopen(file, "w");
	LK_CHECK(f && fwrite(&len, 8, 1, f) == 1 &&
		 fwrite(head, len, 1, f) == 1 &&
		 fwrite(want, BYTES, 1, f) == 1 && !fclose(f));
}

struct open {
	unshard_ctx *ctx;
	unshard_ckpt *ck;
	unshard_req *req;
};

/* Opens everything, and the load is under way. */
static void begin(struct open *o)
{
	unshard_ctx_opts opts = { .size = sizeof(opts), .threads = 2 };
	unshard_item item = { .size = sizeof(item), .mem = (uintptr_t)memory };
	unshard_error err;
	int ret;

	opts.helper = parser;
	memset(memory, 0, BYTES);
	ret = CALL(unshard_ctx_new)(&o->ctx, &opts, &err);
	if (!ret)
		ret = CALL(unshard_open)(o->ctx, dir, NULL, &o->ck, &err);
	if (!ret)
		ret = CALL(unshard_load)(o->ck, &item, 1, NULL, &o->req, &err);
	if (ret)
		fprintf(stderr, "%s\n", err.text);
	LK_CHECK(!ret);
}

static void is_whole(struct open *o)
{
	unshard_error err;

	LK_CHECK(!CALL(unshard_wait)(o->req, -1, &err));
	LK_CHECK(!memcmp(memory, want, BYTES));
}

static void end(struct open *o)
{
	CALL(unshard_req_free)(o->req);
	CALL(unshard_unref)(o->ck);
	CALL(unshard_ctx_free)(o->ctx);
}

/* The request holds what it needs. */
static void let_go_first(void)
{
	struct open o;

	begin(&o);
	CALL(unshard_unref)(o.ck);
	CALL(unshard_ctx_free)(o.ctx);
	is_whole(&o);
	CALL(unshard_req_free)(o.req);
}

static void left_while_loading(void)
{
	struct open o;

	for (unsigned i = 0; i < 10; i++) {
		struct timespec moment = { .tv_nsec = i * 500000 };

		begin(&o);
		nanosleep(&moment, NULL);
		end(&o);
	}
}

/* The child is told so, by every call, and what frees does nothing. */
static void forked(void)
{
	unshard_item item = { .size = sizeof(item), .mem = (uintptr_t)memory };
	unshard_error err;
	struct open o;
	int status;
	pid_t child;

	begin(&o);
	child = fork();
	LK_CHECK(child >= 0);
	if (!child) {
		size_t i;

		alarm(20);
		LK_CHECK(CALL(unshard_wait)(o.req, -1, &err) == -ECHILD);
		LK_CHECK(CALL(unshard_next)(o.req, -1, &i, &err) == -ECHILD);
		LK_CHECK(CALL(unshard_read)(o.ck, &item, &err) == -ECHILD);
		CALL(unshard_cancel)(o.req);
		end(&o);
		_exit(0);
	}
	LK_CHECK(waitpid(child, &status, 0) == child && !status);
	is_whole(&o);
	end(&o);
}

int main(void)
{
	const char *path = getenv("UNSHARD_LIBRARY");

	if (!path || !*path) {
		printf("UNSHARD_LIBRARY= is not set\n");
		return 77;
	}
	snprintf(parser, sizeof(parser), "%.*s/unshard-parser",
		 (int)(strrchr(path, '/') - path), path);
	library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
	if (!library)
		fprintf(stderr, "%s\n", dlerror());
	LK_CHECK(library);
	make_file();
	let_go_first();
	left_while_loading();
	forked();
	LK_CHECK(!unlink(file) && !rmdir(dir));
	free(want);
	free(memory);
	return 0;
}
