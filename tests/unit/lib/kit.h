/* SPDX-License-Identifier: Apache-2.0 */
/* kit.h - the library as a program uses it, for its tests */
#ifndef TEST_LIB_KIT_H
#define TEST_LIB_KIT_H

#include "core/base/str.h"
#include "core/lib/unshard.h"
#include "tests/lib/unconfined.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define KIT_DCP "tests/formats/dcp/1.13/in" /* T, plain, st, and obj */
#define KIT_SAFETENSORS \
	"tests/formats/dcp/beside-safetensors/in/model.safetensors"

static inline unshard_ctx *kit_ctx(const char *helper)
{
	unshard_ctx_opts opts = { .size = sizeof(opts), .helper = helper };
	unshard_error err;
	unshard_ctx *ctx;

	cr_assert_eq(unshard_ctx_new(&ctx, &opts, &err), 0, "%s", err.text);
	return ctx;
}

static inline unshard_ckpt *kit_open(unshard_ctx *ctx, const char *path,
				     const unshard_open_opts *opts)
{
	unshard_open_opts oo = { .options = unconfined_options() };
	unshard_error err;
	unshard_ckpt *ck;

	if (opts)
		memcpy(&oo, opts, opts->size);
	oo.size = sizeof(oo);
	if (!oo.options)
		oo.options = unconfined_options();
	cr_assert_eq(unshard_open(ctx, path, &oo, &ck, &err), 0, "%s",
		     err.text);
	return ck;
}

static inline int kit_put(void *arg, const char *text, size_t len)
{
	ck_str_add(arg, text, len);
	return 0;
}

/* All of a tensor, for free(). */
static inline void *kit_read(unshard_ckpt *ck, uint32_t tensor, int *ret,
			     unshard_error *err)
{
	unshard_tensor t;
	unshard_item item = { .size = sizeof(item), .tensor = tensor };
	char *buf;

	cr_assert_eq(unshard_tensor_at(ck, tensor, &t, sizeof(t)), 0);
	buf = malloc(t.nbytes + 1);
	item.mem = (uintptr_t)buf;
	*ret = unshard_read(ck, &item, err);
	return buf;
}

/* A folder of its own, below which is a copy of @from; returns it. */
static inline char *kit_copy(const char *from)
{
	static char dir[64];
	char cmd[512];

	strcpy(dir, "/tmp/lib-test-XXXXXX");
	cr_assert(mkdtemp(dir));
	snprintf(cmd, sizeof(cmd), "cp -r '%s' %s/ck", from, dir);
	cr_assert_eq(system(cmd), 0);
	return dir;
}

static inline void kit_remove(const char *dir)
{
	char cmd[512];

	snprintf(cmd, sizeof(cmd), "rm -rf '%s'", dir);
	cr_assert_eq(system(cmd), 0);
}

#endif
