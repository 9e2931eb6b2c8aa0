/* SPDX-License-Identifier: Apache-2.0 */
/* Entries of directories of checkpoints, their order, and the markers. */
#include "core/run/run_dir.h"
#include "tests/unit/catalog/kit.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static char dir[] = "/tmp/steps-test.XXXXXX";
static const struct ck_opts opts;
static struct ck_root root;
static struct ck_run_dir s;
static struct ck_err err;

static void setup(void)
{
	cr_assert(mkdtemp(dir));
	cr_assert_eq(ck_root_open(&root, dir, &opts, &err), 0, "%s", err.msg);
}

static void teardown(void)
{
	char line[64];

	ck_run_dir_free(&s);
	ck_root_close(&root);
	snprintf(line, sizeof(line), "rm -rf %s", dir);
	cr_expect_eq(system(line), 0);
}
TestSuite(run_dir, .init = setup, .fini = teardown);

static void put(const char *name, const char *text)
{
	char path[256];
	FILE *f;

	snprintf(path, sizeof(path), "%s/%s", dir, name);
	for (char *at = strchr(path + strlen(dir) + 1, '/'); at;
	     at = strchr(at + 1, '/')) {
		*at = '\0';
		mkdir(path, 0700);
		*at = '/';
	}
	f = fopen(path, "w");
	cr_assert(f && fputs(text, f) >= 0 && !fclose(f), "%s", path);
}

static void age(const char *name, time_t sec)
{
	struct timespec t[2] = { { sec, 0 }, { sec, 0 } };

	cr_assert_eq(utimensat(root.fd, name, t, 0), 0);
}

/* The names in order, with a blank between. */
static void expect(const char *want)
{
	char got[512] = "";

	ck_run_dir_free(&s);
	cr_assert_eq(ck_run_dir_list(&s, &root, &err), 0, "%s", err.msg);
	for (size_t i = 0; i < s.nr; i++)
		strcat(strcat(got, i ? " " : ""), s.v[i].name);
	cr_expect_str_eq(got, want);
}

static void expect_newest(const char *want)
{
	char got[512] = "";
	const struct ck_run_dir_entry *step;

	for (size_t i = 0; (step = ck_run_dir_newest(&s, i)); i++)
		strcat(strcat(got, i ? " " : ""), step->name);
	cr_expect_str_eq(got, want);
}

Test(run_dir, numbers_are_compared_as_numbers)
{
	put("step-9/.metadata", "x");
	put("step-10/.metadata", "x");
	put("iter_0000100/a.distcp", "x");
	put("checkpoint-100000/model.safetensors", "x");
	put("global_step77/mp_rank_00_model_states.pt", "x");
	expect("step-9 step-10 global_step77 iter_0000100 checkpoint-100000");
	expect_newest(
		"checkpoint-100000 iter_0000100 global_step77 step-10 step-9");
	cr_expect_eq(ck_run_dir_find(&s, "iter_0000100")->number, 100);
	cr_expect_null(ck_run_dir_find(&s, "iter_100"));
}

Test(run_dir, what_is_no_checkpoint)
{
	put("logs/out.txt", "x");
	put("step-1/.metadata", "x");
	put(".cache/model.safetensors", "x");
	put("README.md", "x");
	put("notes.pt.txt", "x");
	put("deep/er/still/model.safetensors", "x");
	put("deep/er/a.bin", "x");
	cr_assert_eq(symlinkat("step-1", root.fd, "step-2"), 0);
	cr_assert_eq(symlinkat("/etc/passwd", root.fd, "passwd"), 0);
	expect("step-1");
}

/* They are not passed over; that nothing is read is said by who opens them. */
Test(run_dir, links_that_are_not_followed)
{
	static const char *const lost[] = { "out.pt", "step-2" };
	struct ck_opts none = { 0 };
	char path[256];

	put("step-1/.metadata", "x");
	put("a.pt", "x");
	snprintf(path, sizeof(path), "%s/step-1", root.real);
	cr_assert_eq(symlinkat(path, root.fd, "step-7"), 0);
	cr_assert_eq(symlinkat("./a.pt", root.fd, "b.pt"), 0);
	cr_assert_eq(symlinkat("/etc", root.fd, "logs-3"), 0);
	cr_assert_eq(symlinkat("/etc/passwd", root.fd, "out.pt"), 0);
	cr_assert_eq(symlinkat("/etc", root.fd, "step-2"), 0);
	expect("a.pt out.pt step-2 step-1");
	for (size_t i = 0; i < 2; i++) {
		struct ck_root in;

		cr_expect_eq(ck_run_dir_open(&in, &root, lost[i], &none, &err),
			     -ELOOP, "%s: %s", lost[i], err.msg);
		cr_expect(strstr(err.msg, "-o follow="));
	}
}

Test(run_dir, files_are_entries_but_never_the_newest)
{
	put("a.pt", "x");
	put("b99.safetensors", "x");
	put("step-1/.metadata", "x");
	expect("a.pt b99.safetensors step-1");
	cr_expect(ck_run_dir_find(&s, "a.pt")->is_file);
	cr_expect(!ck_run_dir_find(&s, "b99.safetensors")->numbered);
	expect_newest("step-1");
}

Test(run_dir, model_and_optimizer_of_one_save_are_no_newest)
{
	put("pytorch_model_fsdp_0/.metadata", "x");
	put("optimizer_0/.metadata", "x");
	expect("optimizer_0 pytorch_model_fsdp_0");
	expect_newest("");
	put("step-3/.metadata", "x");
	expect("optimizer_0 pytorch_model_fsdp_0 step-3");
	expect_newest("step-3");
}

Test(run_dir, time_decides_only_without_numbers)
{
	put("best/.metadata", "x");
	put("last/.metadata", "x");
	put("old/.metadata", "x");
	age("best", 2000);
	age("last", 3000);
	age("old", 1000);
	expect("best last old");
	expect_newest("last best old");
	age("best", 3000);
	expect("best last old");
	expect_newest("best last old");
	put("run-1/.metadata", "x");
	expect("best last old run-1");
	expect_newest("run-1");
}

Test(run_dir, digits_that_are_no_number)
{
	put("a1b/.metadata", "x");
	put("n99999999999999999999/.metadata", "x");
	put("7/.metadata", "x");
	expect("a1b n99999999999999999999 7");
	cr_expect(!ck_run_dir_find(&s, "n99999999999999999999")->numbered);
	expect_newest("7");
}

Test(run_dir, one_entry)
{
	struct ck_run_dir_entry step = { 0 };

	put("step-7/.metadata", "x");
	put("logs/x", "x");
	cr_assert(ck_run_dir_look(&step, &root, "step-7"));
	cr_expect_eq(step.number, 7);
	cr_expect_str_eq(step.name, "step-7");
	ck_run_dir_entry_free(&step);
	cr_expect(!ck_run_dir_look(&step, &root, "logs"));
	cr_expect(!ck_run_dir_look(&step, &root, "none"));
	cr_expect(!ck_run_dir_look(&step, &root, "."));
	cr_expect(!ck_run_dir_look(&step, &root, ".."));
	cr_expect(!ck_run_dir_look(&step, &root, "step-7/.metadata"));
}

static bool marked(const char *name)
{
	return ck_run_dir_is_marked(ck_run_dir_find(&s, name), s.marker);
}

Test(run_dir, deepspeed_marks_a_name)
{
	put("global_step10/a.pt", "x");
	put("global_step20/a.pt", "x");
	put("latest", "global_step10\n");
	expect("global_step10 global_step20");
	cr_expect_str_eq(s.marker, "global_step10");
	cr_expect(marked("global_step10"));
	cr_expect(!marked("global_step20"));
}

Test(run_dir, megatron_marks_a_number)
{
	put("iter_0000010/.metadata", "x");
	put("iter_0000020/.metadata", "x");
	put("latest_checkpointed_iteration.txt", "20");
	expect("iter_0000010 iter_0000020");
	cr_expect(marked("iter_0000020"));
	cr_expect(!marked("iter_0000010"));
}

Test(run_dir, markers_that_say_nothing)
{
	put("step-1/.metadata", "x");
	put("latest", "\n");
	expect("step-1");
	cr_expect_null(s.marker);
	put("latest", "release");
	expect("step-1");
	cr_expect(!marked("step-1"));
	cr_assert_eq(unlinkat(root.fd, "latest", 0), 0);
	cr_assert_eq(symlinkat("step-1", root.fd, "latest"), 0);
	expect("step-1");
	cr_expect_null(s.marker);
}

Test(run_dir, whole_is_every_tensor_and_no_error)
{
	struct kit k = kit_new();
	uint32_t src = kit_file(&k, "f", 4096);
	struct ck_part p = kit_part("a", src);

	kit_add(&k, &p);
	cr_expect(ck_run_dir_whole(kit_image(&k)));
	kit_free(&k);
	k = kit_new();
	p = kit_part("a", kit_file(&k, "f", 100));
	kit_add(&k, &p);
	cr_expect(!ck_run_dir_whole(kit_image(&k)));
	kit_free(&k);
}

Test(run_dir, paths)
{
	struct ck_str path = { 0 };

	ck_run_dir_path(&root, "step-1", &path);
	cr_expect_eq(memcmp(path.v, root.real, strlen(root.real)), 0);
	cr_expect_str_eq(path.v + strlen(root.real), "/step-1");
	ck_str_free(&path);
}

static void expect_in(const char *group, const char *want)
{
	char got[512] = "";

	ck_run_dir_free(&s);
	cr_assert_eq(ck_run_dir_list_in(&s, &root, group, &err), 0, "%s",
		     err.msg);
	for (size_t i = 0; i < s.nr; i++)
		strcat(strcat(got, i ? " " : ""), s.v[i].name);
	cr_expect_str_eq(got, want);
}

Test(run_dir, groups)
{
	struct ck_run_dir_entry step;
	char path[128];

	put("checkpoint-9/pytorch_model_fsdp_0/.metadata", "");
	put("checkpoint-9/optimizer_0/__0_0.distcp", "");
	put("checkpoint-9/logs/events", "");
	put("checkpoint-9/.hidden/.metadata", "");
	put("checkpoint-9/scheduler.pt", "");
	put("checkpoint-10/model/a.safetensors", "");
	put("runs/events/x.bin", "");
	put("deep/er/still/.metadata", "");
	snprintf(path, sizeof(path), "%s/linked", dir);
	cr_assert(!symlink("checkpoint-9", path));
	expect("checkpoint-9 checkpoint-10");
	expect_newest("checkpoint-10 checkpoint-9");
	expect_in("checkpoint-9",
		  "scheduler.pt optimizer_0 pytorch_model_fsdp_0");
	expect_in("checkpoint-10", "model");
	cr_expect(ck_run_dir_look(&step, &root, "checkpoint-9/optimizer_0"));
	cr_expect_str_eq(step.name, "optimizer_0");
	ck_run_dir_entry_free(&step);
	cr_expect_not(ck_run_dir_look(&step, &root, "checkpoint-9/logs"));
	cr_expect_not(ck_run_dir_look(&step, &root, "checkpoint-9/.hidden"));
	cr_expect_not(ck_run_dir_look(&step, &root, "linked/optimizer_0"));
	cr_expect_not(ck_run_dir_look(&step, &root, "../x/optimizer_0"));
	cr_expect_not(ck_run_dir_look(&step, &root, "deep/er/still"));
	ck_run_dir_free(&s);
	cr_expect_neq(ck_run_dir_list_in(&s, &root, "none", &err), 0);
}

/* A model, its optimizer and its scheduler, as ColossalAI's users name them. */
Test(run_dir, parts_of_a_save_without_their_suffix)
{
	struct ck_run_dir_entry step = { 0 };
	struct ck_str path = { 0 };

	put("model.safetensors", "");
	put("optimizer.bin", "");
	put("lr_scheduler", "");
	put("notes", "");
	expect("lr_scheduler model optimizer");
	expect_newest("");
	cr_assert(ck_run_dir_look(&step, &root, "optimizer"));
	cr_expect(step.is_file);
	cr_expect_str_eq(step.name, "optimizer");
	ck_run_dir_entry_free(&step);
	ck_run_dir_path(&root, "optimizer", &path);
	cr_expect(path.v && strstr(path.v, "/optimizer.bin"), "%s", path.v);
	ck_str_free(&path);
}

Test(run_dir, parts_that_are_folders)
{
	put("model/model-00001.safetensors", "");
	put("optimizer/pytorch_optim-00001.bin", "");
	age("model", 100);
	age("optimizer", 50);
	expect("model optimizer");
	expect_newest("");
	put("lr_scheduler", "");
	expect("lr_scheduler model optimizer");
	expect_newest("");
}

Test(run_dir, names_that_would_meet_keep_their_suffix)
{
	put("model.bin", "");
	put("model.safetensors", "");
	put("optimizer.bin", "");
	put("optimizer/pytorch_optim-00001.bin", "");
	put("lr_scheduler", "");
	expect("lr_scheduler model.bin model.safetensors optimizer "
	       "optimizer.bin");
}

Test(run_dir, a_trainers_files_are_no_parts)
{
	put("model.safetensors", "");
	put("optimizer.bin", "");
	put("random_states_0.pkl", "");
	expect("model.safetensors optimizer.bin");
	put("lr_scheduler", "");
	expect("model.safetensors optimizer.bin");
	put("custom_checkpoint_0.pkl", "");
	expect("custom_checkpoint_0.pkl model.safetensors optimizer.bin");
}

Test(run_dir, parts_in_each_of_several_groups)
{
	struct ck_run_dir_entry step = { 0 };
	struct ck_str path = { 0 };

	put("step-1/model.bin", "");
	put("step-1/optimizer.bin", "");
	put("step-1/lr_scheduler", "");
	put("step-2/model.bin", "");
	put("step-2/optimizer.bin", "");
	expect("step-1 step-2");
	expect_newest("step-2 step-1");
	expect_in("step-1", "lr_scheduler model optimizer");
	cr_assert(ck_run_dir_look(&step, &root, "step-2/optimizer"));
	cr_expect_str_eq(step.name, "optimizer");
	ck_run_dir_entry_free(&step);
	ck_run_dir_path(&root, "step-2/optimizer", &path);
	cr_expect(path.v && strstr(path.v, "/step-2/optimizer.bin"), "%s",
		  path.v);
	ck_str_free(&path);
}

static int first_byte(const char *entry, const char *name)
{
	struct ck_root in;
	struct stat st;
	char c = 0;
	int fd = -1, ret;

	cr_assert_eq(ck_run_dir_open(&in, &root, entry, &opts, &err), 0, "%s",
		     err.msg);
	ret = ck_root_open_file(&in, name, &fd, &st, &err);
	if (!ret)
		cr_expect_eq(read(fd, &c, 1), 1);
	close(fd);
	ck_root_close(&in);
	return ret ? ret : c;
}

Test(run_dir, links_lead_to_other_entries_and_no_further)
{
	put("0000-0004/0.ckpt", "four");
	put("last/1.ckpt", "one");
	cr_assert_eq(symlinkat("../0000-0004/0.ckpt", root.fd, "last/0.ckpt"),
		     0);
	cr_assert_eq(symlinkat("../../etc/passwd", root.fd, "last/2.ckpt"), 0);
	cr_expect_eq(first_byte("last", "0.ckpt"), 'f');
	cr_expect_eq(first_byte("last", "1.ckpt"), 'o');
	cr_expect_eq(first_byte("last", "2.ckpt"), -ELOOP);
}

Test(run_dir, an_entry_that_is_gone)
{
	struct ck_root in;

	cr_expect_eq(ck_run_dir_open(&in, &root, "last", &opts, &err), -ENOENT);
}

Test(run_dir, a_run_keeps_them_in_a_folder)
{
	char *path;

	put(".nnscaler/plan.pt", "x");
	cr_expect_null(ck_run_dir_of_run(&root));
	put("checkpoints/notes.txt", "x");
	cr_expect_null(ck_run_dir_of_run(&root));
	put("checkpoints/0000-0002/0.ckpt", "x");
	path = ck_run_dir_of_run(&root);
	cr_assert(path);
	cr_expect_str_eq(path + strlen(path) - 12, "/checkpoints");
	free(path);
	put("step-7/a.distcp", "x"); /* it is such a directory itself */
	cr_expect_null(ck_run_dir_of_run(&root));
}

/* One that lies beside a run does not hide what the run has. */
Test(run_dir, a_run_beside_a_checkpoint_is_a_group)
{
	struct ck_run_dir l;

	put("checkpoints/0000-0002/0.ckpt", "x");
	put("backup/0.ckpt", "x");
	cr_expect_null(ck_run_dir_of_run(&root));
	cr_assert_eq(ck_run_dir_list(&l, &root, &err), 0);
	cr_expect_eq(l.nr, 2);
	cr_expect(ck_run_dir_find(&l, "backup"));
	cr_expect(ck_run_dir_find(&l, "checkpoints"));
	ck_run_dir_free(&l);
}

Test(run_dir, a_checkpoint_that_is_called_so_is_no_run)
{
	put("checkpoints/0.ckpt", "x");
	put("checkpoints/0000-0002/0.ckpt", "x");
	cr_expect_null(ck_run_dir_of_run(&root));
}

Test(run_dir, saves_side_by_side_in_the_folders_of_ranks)
{
	struct ck_root in;
	struct stat before;
	struct ck_run_dir_entry step;

	put("rank_0/CKP-9_4.ckpt", "a");
	put("rank_1/CKP-9_4.ckpt", "b");
	put("strategy.ckpt", "x");
	expect("strategy.ckpt rank_0 rank_1"); /* one save: the reader's */
	put("rank_0/CKP-10_4.ckpt", "c");
	put("rank_1/CKP-10_4.ckpt", "d");
	put("rank_0/CKP-11_4_part0.ckpt", "e"); /* rank 1 lacks it */
	expect("CKP-9_4.ckpt CKP-10_4.ckpt CKP-11_4.ckpt");
	expect_newest("CKP-11_4.ckpt CKP-10_4.ckpt CKP-9_4.ckpt");
	cr_assert(ck_run_dir_look(&step, &root, "CKP-10_4.ckpt"));
	before = step.st;
	ck_run_dir_entry_free(&step);
	cr_assert(ck_run_dir_look(&step, &root, "CKP-11_4.ckpt"));
	ck_run_dir_entry_free(&step);
	cr_expect(!ck_run_dir_look(&step, &root, "CKP-12_4.ckpt"));
	put("rank_1/CKP-10_4.ckpt", "longer");
	cr_assert(ck_run_dir_look(&step, &root, "CKP-10_4.ckpt"));
	cr_expect_neq(step.st.st_ino, before.st_ino);
	ck_run_dir_entry_free(&step);

	cr_assert_eq(ck_run_dir_open(&in, &root, "CKP-9_4.ckpt", &opts, &err),
		     0, "%s", err.msg);
	cr_expect_str_eq(in.save, "CKP-9_4.ckpt");
	cr_expect(ck_run_dir_shows(&in, "rank_1/CKP-9_4.ckpt"));
	cr_expect(ck_run_dir_shows(&in, "strategy.ckpt"));
	cr_expect(!ck_run_dir_shows(&in, "rank_1/CKP-10_4.ckpt"));
	ck_root_close(&in);
}

Test(run_dir, saves_in_a_group)
{
	struct ck_root in;

	put("run/node0/net_0-1_4.ckpt", "a");
	put("run/node1/net_1-1_4.ckpt", "b");
	put("run/node0/net_0-2_4.ckpt", "c");
	put("run/node1/net_1-2_4.ckpt", "d");
	expect_in("run", "net_{r}-1_4.ckpt net_{r}-2_4.ckpt");
	cr_assert_eq(ck_run_dir_open(&in, &root, "run/net_{r}-2_4.ckpt", &opts,
				     &err),
		     0, "%s", err.msg);
	cr_expect_str_eq(strrchr(in.real, '/'), "/run");
	cr_expect(ck_run_dir_shows(&in, "node1/net_1-2_4.ckpt"));
	cr_expect(!ck_run_dir_shows(&in, "node1/net_1-1_4.ckpt"));
	ck_root_close(&in);
}

Test(run_dir, files_of_one_save_are_no_saves)
{
	put("rank_0/model.ckpt", "a");
	put("rank_0/optimizer.ckpt", "b");
	put("rank_1/model.ckpt", "c");
	put("rank_1/optimizer.ckpt", "d");
	expect("rank_0 rank_1");
}

Test(run_dir, saves_without_ranks)
{
	put("CKP-9_4.ckpt", "a");
	put("CKP-10_4.ckpt", "b");
	put("net.ckpt", "c");
	expect("net.ckpt CKP-9_4.ckpt CKP-10_4.ckpt");
	expect_newest("CKP-10_4.ckpt CKP-9_4.ckpt");
}
