/* SPDX-License-Identifier: Apache-2.0 */
/*
 * lib_dlopen.c - the shared library as a plugin has it: loaded by dlopen(), by
 * several threads that open and load, closed, and loaded again; a fork between
 */
#include "core/lib/unshard.h"

#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define CKPT "tests/formats/dcp/1.13/in"
#define THREADS 4
#define ROUNDS 3

static struct {
	__typeof__(unshard_ctx_new) *ctx_new;
	__typeof__(unshard_ctx_free) *ctx_free;
	__typeof__(unshard_open) *open;
	__typeof__(unshard_unref) *unref;
	__typeof__(unshard_load) *load;
	__typeof__(unshard_wait) *wait;
	__typeof__(unshard_next) *next;
	__typeof__(unshard_req_free) *req_free;
} lib;

static void *find(void *in, const char *name)
{
	void *at = dlsym(in, name);

	if (at)
		return at;
	fprintf(stderr, "%s\n", dlerror());
	exit(1);
}

static void bind(void *in)
{
	*(void **)&lib.ctx_new = find(in, "unshard_ctx_new");
	*(void **)&lib.ctx_free = find(in, "unshard_ctx_free");
	*(void **)&lib.open = find(in, "unshard_open");
	*(void **)&lib.unref = find(in, "unshard_unref");
	*(void **)&lib.load = find(in, "unshard_load");
	*(void **)&lib.wait = find(in, "unshard_wait");
	*(void **)&lib.next = find(in, "unshard_next");
	*(void **)&lib.req_free = find(in, "unshard_req_free");
}

static void check(int ret, const unshard_error *err)
{
	if (!ret)
		return;
	fprintf(stderr, "%d: %s\n", ret, err->text);
	exit(1);
}

/* What the parent has under way is an error here, and nothing hangs. */
static void fork_beside(unshard_req *req)
{
	pid_t pid = fork();
	int status;

	if (!pid) {
		size_t i;
		int ret = lib.wait(req, -1, NULL) != -ECHILD ||
			  lib.next(req, -1, &i, NULL) != -ECHILD;

		lib.req_free(req);
		_exit(ret);
	}
	if (pid < 0 || waitpid(pid, &status, 0) != pid || status) {
		fprintf(stderr, "the child: %d\n", status);
		exit(1);
	}
}

static void *use(void *arg)
{
	unshard_open_opts oo = { .size = sizeof(oo), .options = "sandbox=off" };
	unshard_item item[3];
	unshard_error err;
	unshard_ckpt *ck;
	unshard_ctx *ctx;
	unshard_req *req;
	char buf[3][128];

	check(lib.ctx_new(&ctx, NULL, &err), &err);
	check(lib.open(ctx, CKPT, &oo, &ck, &err), &err);
	for (uint32_t i = 0; i < 3; i++)
		item[i] = (unshard_item){ .size = sizeof(*item),
					  .tensor = i,
					  .mem = (uintptr_t)buf[i] };
	check(lib.load(ck, item, 3, NULL, &req, &err), &err);
	lib.unref(ck); /* while it loads */
	lib.ctx_free(ctx);
	if (arg)
		fork_beside(req);
	check(lib.wait(req, -1, &err), &err);
	lib.req_free(req);
	return NULL;
}

int main(void)
{
	const char *path = getenv("UNSHARD_LIBRARY");

	if (!path || !strchr(path, '/'))
		path = "./build/libunshard.so";
	for (unsigned i = 0; i < ROUNDS; i++) {
		void *in = dlopen(path, RTLD_NOW | RTLD_LOCAL);
		pthread_t t[THREADS];

		if (!in) {
			fprintf(stderr, "%s\n", dlerror());
			return 1;
		}
		bind(in);
		for (size_t k = 0; k < THREADS; k++)
			if (pthread_create(&t[k], NULL, use, NULL))
				return 1;
		for (size_t k = 0; k < THREADS; k++)
			pthread_join(t[k], NULL);
		use(in);
		dlclose(in);
	}
	return 0;
}
