/* SPDX-License-Identifier: Apache-2.0 */
/* test_lib.c - opening, looking up, handing on, meshes, and the edges of each */
#include "core/base/check.h"
#include "tests/unit/lib/kit.h"

#include <errno.h>
#include <pthread.h>
#include <sys/wait.h>

Test(lib, looks_up_by_name)
{
	unshard_ctx *ctx = kit_ctx(NULL);
	unshard_ckpt *ck = kit_open(ctx, KIT_DCP, NULL);
	uint32_t t = unshard_find(ck, NULL, "st", 2);
	unshard_tensor of;
	size_t half = offsetof(unshard_tensor, nbytes);

	cr_assert_eq(unshard_tensors(ck), 3);
	cr_assert_eq(unshard_tensor_at(ck, t, &of, sizeof(of)), 0);
	cr_expect_eq(of.rank, 2);
	cr_expect(of.shape[0] == 8 && of.shape[1] == 4 && of.nbytes == 128);
	cr_expect_str_eq(of.dtype.p, "float32");
	cr_expect(of.pieces == 2 && of.itemsize == 4 && !of.state);
	of.nbytes = 77;
	cr_assert_eq(unshard_tensor_at(ck, t, &of, half), 0);
	cr_expect_eq(of.nbytes, 77, "what an older program has no room for");
	cr_expect_eq(unshard_tensor_at(ck, 3, &of, sizeof(of)), -EINVAL);
	cr_expect_eq(unshard_find(ck, NULL, "s", 1), UNSHARD_NONE);
	cr_expect_eq(unshard_find(ck, "x", "st", 2), UNSHARD_NONE);
	cr_expect_eq(unshard_find(ck, "", "st", 2), t);
	unshard_unref(ck);
	unshard_ctx_free(ctx);
}

Test(lib, objects_are_as_stored)
{
	unshard_ctx *ctx = kit_ctx(NULL);
	unshard_ckpt *ck = kit_open(ctx, KIT_DCP, NULL);
	unshard_error err;
	char buf[1024];
	size_t len;

	cr_expect_eq(unshard_object(ck, "obj", NULL, 0, &len, &err), -ENOSPC);
	cr_expect_eq(len, 431);
	cr_assert_eq(unshard_object(ck, "obj", buf, sizeof(buf), &len, &err), 0,
		     "%s", err.text);
	cr_expect_eq(memcmp(buf, "PK", 2), 0, "a torch.save archive");
	cr_expect_eq(unshard_object(ck, "st", buf, 9, &len, &err), -EINVAL);
	cr_expect_eq(unshard_object(ck, "no", buf, 9, &len, &err), -ENOENT);
	unshard_unref(ck);
	unshard_ctx_free(ctx);
}

Test(lib, what_json_knows)
{
	unshard_ctx *ctx = kit_ctx(NULL);
	unshard_ckpt *ck = kit_open(ctx, KIT_DCP, NULL);
	struct ck_str got = { 0 };
	unshard_error err;

	cr_assert_eq(unshard_json(ck, "plan st[1:2]", kit_put, &got, &err), 0,
		     "%s", err.text);
	cr_expect(strstr(got.v, "\"nbytes\": 16") &&
		  strstr(got.v, "__0_0.distcp"));
	cr_expect_eq(unshard_json(ck, "plan obj", kit_put, &got, &err),
		     -EINVAL);
	cr_expect_eq(unshard_json(ck, "plan st[9]", kit_put, &got, &err),
		     -EINVAL);
	cr_expect_eq(unshard_json(ck, "plan no", kit_put, &got, &err), -ENOENT);
	cr_expect_eq(unshard_json(ck, "plans", kit_put, &got, &err), -EINVAL);
	got.len = 0;
	cr_assert_eq(unshard_json(ck, "metadata", kit_put, &got, &err), 0);
	cr_expect_eq(got.v[0], '{');
	got.len = 0;
	cr_assert_eq(unshard_json(ck, "paths", kit_put, &got, &err), 0);
	cr_expect(strstr(got.v, "{\"name\": \"st\", \"path\": [\"st\"]}"), "%s",
		  got.v);
	got.len = 0;
	cr_assert_eq(unshard_json(ck, "hf", kit_put, &got, &err), 0);
	cr_expect(strstr(got.v, "{\"name\": \"T\", \"tensor\": 0}"), "%s",
		  got.v);
	ck_str_free(&got);
	unshard_unref(ck);
	unshard_ctx_free(ctx);
}

static int end_with(void *arg, const char *text, size_t len)
{
	(void)text;
	(void)len;
	return *(int *)arg;
}

Test(lib, who_is_given_text_may_end_it)
{
	static const char *const what[] = { "catalog", "problems", "paths",
					    "hf",      "metadata", "plan st" };
	unshard_ctx *ctx = kit_ctx(NULL);
	unshard_ckpt *ck = kit_open(ctx, KIT_DCP, NULL);

	for (size_t i = 0; i <= CK_ARRAY_LEN(what); i++)
		for (int with = -7; with <= 7; with += 14) {
			unshard_error err = { .code = 99 };
			int ret = i < CK_ARRAY_LEN(what) ?
					  unshard_json(ck, what[i], end_with,
						       &with, &err) :
					  unshard_steps(ctx, KIT_DCP, NULL,
							end_with, &with, &err);

			cr_expect_eq(ret, with, "%zu", i);
			cr_expect_eq(err.code, with < 0 ? 7 : ECANCELED,
				     "%zu: %d", i, err.code);
			cr_expect(strstr(err.text, "put()"), "%s", err.text);
		}
	unshard_unref(ck);
	unshard_ctx_free(ctx);
}

Test(lib, what_is_not_known_is_refused)
{
	unshard_ctx_opts co = { .size = sizeof(co), .engine = "nope" };
	unshard_ctx *ctx = kit_ctx(NULL), *none;
	unshard_open_opts oo = { .size = sizeof(oo), .flags = 8 };
	char buf[128];
	unshard_item item = { .size = sizeof(item),
			      .flags = 6,
			      .mem = (uintptr_t)buf };
	unshard_error err = { 0 };
	unshard_req *req;
	unshard_ckpt *ck;

	cr_expect_eq(unshard_ctx_new(&none, &co, &err), -EINVAL);
	cr_expect(strstr(err.text, "nope"), "%s", err.text);
	cr_expect_eq(unshard_open(ctx, KIT_DCP, &oo, &ck, &err), -EINVAL);
	cr_expect(strstr(err.text, "0x8"), "%s", err.text);
	oo.flags = 0;
	oo.isolation = 2;
	cr_expect_eq(unshard_open(ctx, KIT_DCP, &oo, &ck, &err), -EINVAL);
	ck = kit_open(ctx, KIT_DCP, NULL);
	cr_expect_eq(unshard_read(ck, &item, &err), -EINVAL);
	cr_expect(strstr(err.text, "0x6"), "%s", err.text);
	cr_expect_eq(unshard_load(ck, &item, 1, NULL, &req, &err), -EINVAL);
	cr_expect(strstr(err.text, "0x6"), "%s", err.text);
	unshard_unref(ck);
	unshard_ctx_free(ctx);
}

Test(lib, a_step_is_below_its_run)
{
	static const char *const out[] = { "../x/step-1", "..",	 ".",	"/",
					   "x/../../x",	  "x//", "",	"a/",
					   "./step-1",	  "/x",	 "a//b" };
	unshard_ctx *ctx = kit_ctx(NULL);
	char *dir = kit_copy(KIT_DCP), cmd[256], path[128];
	unshard_open_opts oo = { .size = sizeof(oo) };
	unshard_error err = { 0 };
	unshard_ckpt *ck;

	snprintf(cmd, sizeof(cmd),
		 "cd %s && mkdir run x && cp -r ck x/step-1 && "
		 "cp -r ck x/step-2 && mkdir run/part && "
		 "cp -r ck run/part/step-1 && mv ck run/step-3",
		 dir);
	cr_assert_eq(system(cmd), 0);
	snprintf(path, sizeof(path), "%s/run", dir);
	for (size_t i = 0; i < CK_ARRAY_LEN(out); i++) {
		oo.step = out[i];
		cr_expect_eq(unshard_open(ctx, path, &oo, &ck, &err), -EINVAL,
			     "\"%s\": %s", out[i], err.text);
	}
	oo.step = "part/step-1"; /* as unshard_steps() leads there */
	unshard_unref(kit_open(ctx, path, &oo));
	kit_remove(dir);
	unshard_ctx_free(ctx);
}

Test(lib, errors_have_a_line)
{
	unshard_ctx *ctx = kit_ctx(NULL);
	static const struct {
		const char *path, *options, *step;
		int ret;
	} all[] = {
		{ "tests/formats/none", NULL, NULL, -ENOENT },
		{ KIT_DCP, "format=none", NULL, -EINVAL },
		{ KIT_DCP, "rw", NULL, -EINVAL },
		{ KIT_DCP, NULL, "step-1", -ENOENT },
		{ KIT_DCP, NULL, "latest", -ENOENT },
		{ "tests/formats", NULL, NULL, -ENODATA },
	};

	for (size_t i = 0; i < CK_ARRAY_LEN(all); i++) {
		unshard_open_opts oo = { .size = sizeof(oo),
					 .options = all[i].options,
					 .step = all[i].step };
		unshard_error err = { 0 };
		unshard_ckpt *ck;
		int ret = unshard_open(ctx, all[i].path, &oo, &ck, &err);

		cr_expect_eq(ret, all[i].ret, "%zu: %d %s", i, ret, err.text);
		cr_expect_eq(err.code, -ret);
		cr_expect(err.text[0] && !strchr(err.text, '\n'), "%zu", i);
		cr_expect_eq(err.item, UNSHARD_NONE);
		cr_expect_eq(unshard_open(ctx, all[i].path, &oo, &ck, NULL),
			     ret);
	}
	unshard_ctx_free(ctx);
}

Test(lib, steps_of_a_run)
{
	unshard_ctx *ctx = kit_ctx(NULL);
	unshard_open_opts oo = { .size = sizeof(oo), .step = "latest" };
	char *dir = kit_copy(KIT_DCP), cmd[256];
	struct ck_str got = { 0 };
	unshard_error err;
	unshard_ckpt *ck;

	snprintf(cmd, sizeof(cmd),
		 "cd %s && mv ck step-9 && cp -r step-9 step-10 && "
		 "cp -r step-9 step-11 && rm step-11/__1_0.distcp",
		 dir);
	cr_assert_eq(system(cmd), 0);
	cr_assert_eq(unshard_steps(ctx, dir, NULL, kit_put, &got, &err), 0,
		     "%s", err.text);
	cr_expect_str_eq(got.v, "[{\"name\": \"step-9\", \"number\": 9, "
				"\"state\": \"complete\"},\n"
				" {\"name\": \"step-10\", \"number\": 10, "
				"\"state\": \"complete\", \"latest\": true},\n"
				" {\"name\": \"step-11\", \"number\": 11, "
				"\"state\": \"incomplete\"}]\n");
	cr_expect_eq(unshard_open(ctx, dir, NULL, &ck, &err), -ENODATA);
	cr_expect(strstr(err.text, "step-10"), "%s", err.text);
	unshard_unref(kit_open(ctx, dir, &oo));
	oo.step = "step-9";
	oo.flags = UNSHARD_WHOLE | UNSHARD_RESOLVE;
	unshard_unref(kit_open(ctx, dir, &oo));
	oo.step = "step-11";
	cr_expect_eq(unshard_open(ctx, dir, &oo, &ck, &err), -EIO, "%s",
		     err.text);
	got.len = 0;
	cr_assert_eq(unshard_steps(ctx, KIT_DCP, NULL, kit_put, &got, &err), 0);
	cr_expect_str_eq(got.v, "[]\n");
	ck_str_free(&got);
	kit_remove(dir);
	unshard_ctx_free(ctx);
}

/* For checkpoints of one's own: no other program is asked. */
Test(lib, in_this_process)
{
	unshard_ctx *ctx = kit_ctx("/nowhere/at/all");
	unshard_open_opts oo = { .size = sizeof(oo),
				 .isolation = UNSHARD_IN_PROCESS,
				 .flags = UNSHARD_RESOLVE | UNSHARD_WHOLE };
	unshard_ckpt *ck = kit_open(ctx, KIT_DCP, &oo);
	unshard_error err = { 0 };
	int ret;

	for (uint32_t i = 0; i < unshard_tensors(ck); i++) {
		free(kit_read(ck, i, &ret, &err));
		cr_expect_eq(ret, 0, "%s", err.text);
	}
	unshard_unref(ck);
	unshard_ctx_free(ctx);
}

Test(lib, a_view_is_a_checkpoint)
{
	unshard_ctx *ctx = kit_ctx(NULL);
	char *dir = kit_copy(KIT_DCP), path[128], opts[160];
	unshard_open_opts oo = { .size = sizeof(oo), .options = opts };
	unshard_error err = { 0 };
	unshard_ckpt *ck;
	FILE *f;
	void *got, *want;
	int ret;

	snprintf(path, sizeof(path), "%s/v.json", dir);
	f = fopen(path, "w");
	fputs("{\"views\": {\"only\": {\"include\": [\"st\"]}}}", f);
	fclose(f);
	snprintf(opts, sizeof(opts), "%sviews=%s", unconfined_options(), path);
	snprintf(path, sizeof(path), "%s/ck/views/only", dir);
	ret = unshard_open(ctx, path, &oo, &ck, &err);
	if (ret) {
		kit_remove(dir);
		cr_assert(0, "%s", err.text);
	}
	cr_assert_eq(unshard_tensors(ck), 1);
	got = kit_read(ck, 0, &ret, &err);
	cr_expect_eq(ret, 0, "%s", err.text);
	unshard_unref(ck);
	ck = kit_open(ctx, KIT_DCP, NULL);
	want = kit_read(ck, unshard_find(ck, NULL, "st", 2), &ret, &err);
	cr_expect_eq(memcmp(got, want, 128), 0);
	unshard_unref(ck);
	free(got);
	free(want);
	kit_remove(dir);
	unshard_ctx_free(ctx);
}

Test(lib, what_a_rank_holds)
{
	unshard_ctx *ctx = kit_ctx(NULL);
	unshard_ckpt *ck = kit_open(ctx, KIT_DCP, NULL);
	uint32_t st = unshard_find(ck, NULL, "st", 2);
	uint64_t boxes[64], shape[8];
	unshard_mesh *mesh;
	unshard_error err;
	unsigned nr;

	cr_assert_eq(unshard_mesh_new(ck, "dim0=2", NULL, 0, &mesh, &err), 0,
		     "%s", err.text);
	cr_expect_eq(unshard_mesh_ranks(mesh), 2);
	cr_assert_eq(unshard_mesh_boxes(mesh, 1, st, boxes, 64, &nr, shape), 0);
	cr_assert_eq(nr, 1);
	cr_expect(boxes[0] == 4 && boxes[1] == 0, "where it starts");
	cr_expect(boxes[2] == 4 && boxes[3] == 4, "its lengths");
	cr_expect(boxes[4] == 0 && boxes[5] == 0, "where it goes");
	cr_expect(shape[0] == 4 && shape[1] == 4);
	cr_expect_eq(unshard_mesh_boxes(mesh, 1, st, boxes, 5, &nr, NULL),
		     -ENOSPC);
	cr_expect_eq(nr, 1);
	cr_expect_eq(unshard_mesh_boxes(mesh, 2, st, boxes, 64, &nr, NULL),
		     -EINVAL);
	cr_expect_eq(unshard_mesh_zeros(mesh, 1, st), 0);
	cr_expect_eq(unshard_mesh_zeros(mesh, 2, st), -EINVAL);
	unshard_unref(ck); /* the mesh has a reference */
	cr_expect_eq(unshard_mesh_boxes(mesh, 0, st, NULL, 0, &nr, shape), 0);
	unshard_mesh_free(mesh);
	ck = kit_open(ctx, KIT_DCP, NULL);
	cr_expect_eq(unshard_mesh_new(ck, "up=2", NULL, 0, &mesh, &err),
		     -EINVAL);
	cr_expect(err.text[0]);
	unshard_unref(ck);
	unshard_ctx_free(ctx);
}

/* Of a partial sum the first rank holds all, and a rank outside nothing. */
Test(lib, what_a_rank_holds_of_a_sum)
{
	static const char sbp[] =
		"{\"world_size\":3,\"rules\":[{\"key\":\"*\",\"placement\":"
		"{\"ranks\":[0,1]},\"sbp\":\"partial_sum\"}]}";
	unshard_ctx *ctx = kit_ctx(NULL);
	unshard_ckpt *ck = kit_open(ctx, KIT_DCP, NULL);
	uint32_t st = unshard_find(ck, NULL, "st", 2);
	unshard_mesh *mesh;
	unshard_error err;

	cr_assert_eq(unshard_mesh_new(ck, "sbp.json", sbp, sizeof(sbp) - 1,
				      &mesh, &err),
		     0, "%s", err.text);
	for (uint32_t rank = 0; rank < 3; rank++) {
		uint64_t boxes[64], shape[8] = { 0 };
		unsigned nr;

		cr_assert_eq(unshard_mesh_boxes(mesh, rank, st, boxes, 64, &nr,
						shape),
			     0);
		cr_expect_eq(nr, rank == 0);
		cr_expect_eq(shape[0], rank < 2 ? 8 : 0);
		cr_expect_eq(unshard_mesh_zeros(mesh, rank, st), rank == 1);
	}
	unshard_mesh_free(mesh);
	unshard_unref(ck);
	unshard_ctx_free(ctx);
}

/* What the parent has is not the child's; it may make its own. */
static int in_child(unshard_ctx *ctx, unshard_ckpt *ck, unshard_mesh *old)
{
	unshard_tensor t;
	unsigned nr;
	char json[64];
	unshard_item item = { .size = sizeof(item) };
	unshard_error err = { 0 };
	struct ck_str text = { 0 };
	unshard_mesh *mesh;
	uint64_t sum[2];
	unshard_ckpt *c;
	unsigned bad = 0;
	size_t len;
	int fd, ret;
	void *got;

	bad |= unshard_open(ctx, KIT_DCP, NULL, &c, &err) != -ECHILD;
	bad |= !err.text[0];
	bad |= unshard_read(ck, &item, &err) != -ECHILD;
	bad |= unshard_image(ck, &fd, sum, &err) != -ECHILD;
	bad |= unshard_object(ck, "obj", NULL, 0, &len, &err) != -ECHILD;
	bad |= unshard_json(ck, "catalog", kit_put, &text, &err) != -ECHILD;
	bad |= unshard_steps(ctx, KIT_DCP, NULL, kit_put, &text, &err) !=
	       -ECHILD;
	bad |= unshard_mesh_new(ck, "dim0=2", NULL, 0, &mesh, &err) != -ECHILD;
	bad |= unshard_map(ck, &item, NULL, &err) != -ECHILD;
	bad |= unshard_tensor_at(ck, 0, &t, sizeof(t)) != -ECHILD;
	bad |= unshard_tensors(ck) != 0;
	bad |= unshard_find(ck, NULL, "st", 2) != UNSHARD_NONE;
	bad |= unshard_mesh_ranks(old) != 0;
	bad |= unshard_mesh_boxes(old, 0, 0, NULL, 0, &nr, NULL) != -ECHILD;
	bad |= unshard_mesh_zeros(old, 0, 0) != -ECHILD;
	bad |= unshard_ctx_caps(ctx, json, sizeof(json)) != -ECHILD;
	unshard_mesh_free(old);
	unshard_unref(ck);
	unshard_ctx_free(ctx);
	if (unshard_ctx_new(&ctx, NULL, &err) ||
	    unshard_open(ctx, KIT_DCP, NULL, &ck, &err))
		return 2;
	got = kit_read(ck, 0, &ret, &err);
	bad |= ret != 0;
	free(got);
	unshard_unref(ck);
	unshard_ctx_free(ctx);
	return (int)bad;
}

Test(lib, a_child_of_fork_is_told, .timeout = 30)
{
	unshard_ctx *ctx = kit_ctx(NULL);
	unshard_ckpt *ck = kit_open(ctx, KIT_DCP, NULL);
	unshard_mesh *mesh;
	unshard_error err;
	int status, ret;
	pid_t pid;

	cr_assert_eq(unshard_mesh_new(ck, "dim0=2", NULL, 0, &mesh, &err), 0);
	free(kit_read(ck, 0, &ret, &err)); /* this thread has its ring */
	pid = fork();
	if (!pid)
		_exit(in_child(ctx, ck, mesh));
	cr_assert_eq(waitpid(pid, &status, 0), pid);
	cr_expect(WIFEXITED(status) && !WEXITSTATUS(status), "%d", status);
	free(kit_read(ck, 1, &ret, &err));
	cr_expect_eq(ret, 0, "%s", err.text);
	unshard_mesh_free(mesh);
	unshard_unref(ck);
	unshard_ctx_free(ctx);
}

struct reading {
	unshard_ckpt *ck;
	unsigned failed;
};

static void *read_on(void *arg)
{
	struct reading *r = arg;

	for (unsigned i = 0; i < 300; i++) {
		unshard_error err;
		int ret;

		free(kit_read(r->ck, i % 3, &ret, &err));
		r->failed += ret != 0;
	}
	unshard_unref(r->ck);
	return NULL;
}

Test(lib, let_go_while_others_read, .timeout = 60)
{
	unshard_ctx *ctx = kit_ctx(NULL);
	unshard_ckpt *ck = kit_open(ctx, KIT_DCP, NULL);
	struct reading r[4];
	pthread_t t[4];

	for (unsigned i = 0; i < 4; i++) {
		r[i] = (struct reading){ .ck = unshard_ref(ck) };
		cr_assert_eq(pthread_create(&t[i], NULL, read_on, &r[i]), 0);
	}
	unshard_unref(ck);
	unshard_ctx_free(ctx); /* what is open stays */
	for (unsigned i = 0; i < 4; i++) {
		pthread_join(t[i], NULL);
		cr_expect_eq(r[i].failed, 0);
	}
}

Test(lib, versions_are_said)
{
	unshard_ctx *ctx = kit_ctx(NULL);
	char json[8192];
	int n = unshard_ctx_caps(ctx, json, sizeof(json));

	cr_expect_eq(unshard_abi(), UNSHARD_ABI);
	cr_expect_eq(unshard_version() >> 16, 0);
	cr_assert(n > 0 && n < (int)sizeof(json));
	cr_expect(strstr(json, "\"parser_found\": true"), "%s", json);
	cr_expect(strstr(json, "{\"name\": \"bfloat16\", \"size\": 2, "
			       "\"safetensors\": \"BF16\", "
			       "\"dlpack\": [4, 16], \"cast\": true}"),
		  "%s", json);
	cr_expect(strstr(json, "{\"name\": \"quint4x2\", \"size\": 0}"), "%s",
		  json);
	cr_expect_eq(unshard_ctx_caps(ctx, NULL, 0), n);
	unshard_ctx_free(ctx);
}
