/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ckpt_apart.c - a checkpoint that a child process opens for one function
 *
 * What nobody has mounted is read as a mount would read it: the index by a
 * parser, the rest in a sandbox that allows no writing.
 */
#include "core/ckpt/ckpt.h"

#include "core/base/auto.h"
#include "core/sandbox/child.h"
#include "core/sandbox/sandbox.h"

#include <stdlib.h>
#include <string.h>

static int serve(void *ctx, struct ck_err *err)
{
	const struct ck_ckpt_apart *a = ctx;
	const char *how = ck_opts_get(a->opts, "sandbox");
	const struct ck_sandbox_in box = { .role = CK_SANDBOX_WORKER,
					   .root = a->root };
	struct ck_ckpt *ck;
	int ret = 0;

	if (!how || strcmp(how, "off"))
		ret = ck_sandbox_enter(&box, NULL, err);
	if (!ret)
		ret = ck_ckpt_serve(&ck, a->root, a->opts, a->catalog_fd, err);
	return ret ? ret : a->run(ck, a->ctx, err);
}

int ck_ckpt_run_apart(struct ck_ckpt_apart *a, struct ck_err *err)
{
	unsigned nr = ck_root_fds(a->root, NULL, 0);
	ck_auto_free int *keep = calloc(nr + 2, sizeof(*keep));
	const struct ck_child c = {
		.what = "the reader of it",
		.hint = "",
		.run = serve,
		.ctx = a,
		.keep = keep,
		.nr_keep = nr + 1 + (a->out >= 0),
		.seconds = a->seconds,
	};

	if (!keep)
		return ck_no_memory(err);
	ck_root_fds(a->root, keep, nr);
	keep[nr] = a->catalog_fd;
	keep[nr + 1] = a->out;
	return ck_child_call(&c, err);
}
