/* SPDX-License-Identifier: Apache-2.0 */
/* test_image.c - a checkpoint that other processes of the node open too */
#include "tests/unit/lib/kit.h"

#include <errno.h>
#include <sys/wait.h>

/* By a context whose parser cannot even be started. */
Test(lib_image, who_has_the_memfd_parses_nothing)
{
	unshard_ctx *ctx = kit_ctx(NULL), *none = kit_ctx("/nowhere/at/all");
	unshard_open_opts oo = { .size = sizeof(oo) };
	char *dir = kit_copy(KIT_DCP), path[128];
	uint64_t digest[2], again[2];
	unshard_ckpt *ck, *other;
	unshard_error err;
	int fd, fd2, pipes[2];

	cr_expect_eq(unshard_open(none, dir, NULL, &ck, &err), -ENOEXEC);
	ck = kit_open(ctx, dir, NULL); /* the only one in it */
	cr_assert_eq(unshard_image(ck, &fd, digest, &err), 0, "%s", err.text);
	oo.image_fd = fd;
	other = kit_open(none, dir, &oo);
	cr_expect_eq(unshard_tensors(other), 3);
	cr_assert_eq(unshard_image(other, &fd2, again, &err), 0);
	cr_expect(digest[0] == again[0] && digest[1] == again[1]);
	close(fd2);
	unshard_unref(other);
	snprintf(path, sizeof(path), "%s/ck", dir);
	other = kit_open(none, path, &oo); /* by another path */
	unshard_unref(other);
	snprintf(path, sizeof(path), "cp -a %s/ck %s/same", dir, dir);
	cr_assert_eq(system(path), 0);
	snprintf(path, sizeof(path), "%s/same", dir);
	cr_expect_eq(unshard_open(none, path, &oo, &other, &err), -ESTALE,
		     "of another");
	cr_expect(strstr(err.text, "another checkpoint"), "%s", err.text);
	snprintf(path, sizeof(path), "touch -d @1 %s/ck/__*", dir);
	cr_assert_eq(system(path), 0);
	snprintf(path, sizeof(path), "%s/ck", dir);
	cr_expect_eq(unshard_open(none, path, &oo, &other, &err), -ESTALE,
		     "files of it are others");
	cr_expect(strstr(err.text, "__"), "%s", err.text);
	cr_assert_eq(pipe(pipes), 0);
	oo.image_fd = pipes[0];
	cr_expect_eq(unshard_open(none, dir, &oo, &other, &err), -EINVAL);
	close(pipes[0]);
	close(pipes[1]);
	close(fd);
	unshard_unref(ck);
	kit_remove(dir);
	unshard_ctx_free(ctx);
	unshard_ctx_free(none);
}

/*
 * The newest is not whole, so that the latest is another: whose image it is, not
 * which is newest, says where it is opened.
 */
Test(lib_image, the_latest_by_its_image)
{
	unshard_ctx *ctx = kit_ctx(NULL), *none = kit_ctx("/nowhere/at/all");
	unshard_open_opts oo = { .size = sizeof(oo), .step = "latest" };
	char *dir = kit_copy(KIT_DCP), cmd[256];
	unshard_ckpt *ck, *other;
	unshard_error err;

	snprintf(cmd, sizeof(cmd),
		 "cd %s && mv ck step-9 && cp -r step-9 step-10 && "
		 "cp -r step-9 step-11 && rm step-11/__1_0.distcp",
		 dir);
	cr_assert_eq(system(cmd), 0);
	ck = kit_open(ctx, dir, &oo);
	cr_assert_eq(unshard_image(ck, &oo.image_fd, NULL, &err), 0);
	other = kit_open(none, dir, &oo);
	cr_expect_eq(unshard_tensors(other), 3);
	unshard_unref(other);
	oo.step = "step-10";
	unshard_unref(kit_open(none, dir, &oo));
	oo.step = "step-11";
	cr_expect_eq(unshard_open(none, dir, &oo, &other, &err), -ESTALE);
	close(oo.image_fd);
	unshard_unref(ck);
	kit_remove(dir);
	unshard_ctx_free(ctx);
	unshard_ctx_free(none);
}

#define RANKS 8

/* A rank of a node: it has the descriptor, and no parser. */
static int be_a_rank(const char *path, int image_fd)
{
	unshard_open_opts oo = { .size = sizeof(oo),
				 .image_fd = image_fd,
				 .options = unconfined_options() };
	unshard_ctx_opts co = { .size = sizeof(co), .helper = "/nowhere" };
	unshard_error err;
	unshard_ctx *ctx;
	unshard_ckpt *ck;
	int ret, bad;

	if (unshard_ctx_new(&ctx, &co, &err) ||
	    unshard_open(ctx, path, &oo, &ck, &err))
		return 2;
	bad = unshard_tensors(ck) == 0;
	for (uint32_t i = 0; i < unshard_tensors(ck); i++) {
		free(kit_read(ck, i, &ret, &err));
		bad |= ret != 0;
	}
	unshard_unref(ck);
	unshard_ctx_free(ctx);
	return bad;
}

Test(lib_image, eight_ranks_parse_once, .timeout = 60)
{
	unshard_ctx *ctx = kit_ctx(NULL);
	unshard_ckpt *ck = kit_open(ctx, KIT_SAFETENSORS, NULL);
	pid_t pid[RANKS];
	unshard_error err;
	int fd, status;

	cr_assert_eq(unshard_image(ck, &fd, NULL, &err), 0, "%s", err.text);
	for (unsigned i = 0; i < RANKS; i++) {
		pid[i] = fork();
		if (!pid[i])
			_exit(be_a_rank(KIT_SAFETENSORS, fd));
	}
	for (unsigned i = 0; i < RANKS; i++) {
		cr_assert_eq(waitpid(pid[i], &status, 0), pid[i]);
		cr_expect(WIFEXITED(status) && !WEXITSTATUS(status), "%d",
			  status);
	}
	close(fd);
	unshard_unref(ck);
	unshard_ctx_free(ctx);
}
