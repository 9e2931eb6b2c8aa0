/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cmd_export.c - a view of a checkpoint as ordinary files
 *
 * CKPT/hf is the view hf of CKPT, unless there is a file of that name.  OUT is
 * there when the command has ended well, and not before.
 */
#include "mount-helpers/cmd.h"
#include "mount-helpers/export/export.h"
#include "mount-helpers/export/export_place.h"
#include "mount-helpers/export/export_stop.h"
#include "mount-helpers/health.h"
#include "mount-helpers/progress.h"
#include "mount-helpers/text.h"
#include "core/lib/view_path.h"

#include "core/base/auto.h"
#include "core/base/check.h"

#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/wait.h>
#include <unistd.h>

extern const struct cmd cmd_export;

/* What the process that writes tells the one that waits. */
struct result {
	uint64_t files, bytes, kept, shared;
	uint64_t damaged; /* bytes from before, written again */
	uint64_t left_out; /* tensors that the form cannot hold */
	int partial; /* the exit code for that; 0: none */
	double seconds;
};

struct job {
	struct ck_view_path what;
	bool streams; /* to standard output */
	struct ck_opts *opts;
	struct export_place place;
	struct progress bar;
	struct result *result; /* shared */
	struct ck_err err;
};

/* The last part of the file's name, or the view's. */
static const char *own_name(const struct job *j)
{
	const char *slash = strrchr(j->what.file, '/');

	return slash	     ? slash + 1 :
	       *j->what.file ? j->what.file :
			       j->what.ops->name;
}

/* One file, which gets the name that OUT says; else a folder of them. */
static bool is_one(const struct job *j)
{
	return !j->what.ops->is_dir ||
	       (j->what.ops->folders ? strchr(j->what.file, '/') != NULL :
				       *j->what.file != '\0');
}

/* It would be one of the checkpoint's files from then on. */
static int check_apart(const struct job *j)
{
	struct ck_root root;
	bool inside = false;

	if (!j->place.one || ck_root_open(&root, j->what.ckpt, j->opts, NULL))
		return CMD_OK;
	for (const struct ck_root *r = &root; r && !inside; r = r->next)
		inside = !r->only && ck_root_is_at(r, j->place.parent_fd);
	ck_root_close(&root);
	if (!inside)
		return CMD_OK;
	return cmd_fail(&cmd_export, CMD_USAGE,
			"%s/%s: lies in the checkpoint itself", j->place.parent,
			j->place.name);
}

/* ---- what ---- */

/* --to safetensors is the view model.safetensors, --to npy the view npy. */
static bool find_form(struct job *j, const char *form)
{
	char name[NAME_MAX + 1];

	snprintf(name, sizeof(name), "model.%s", form);
	return !strchr(form, '/') && (ck_view_path_find(&j->what, form) ||
				      ck_view_path_find(&j->what, name));
}

/* views/NAME alone is all that it shows, as one file. */
static int what(struct job *j, const char *path)
{
	const char *to = ck_opts_get(j->opts, "to");

	if (!ck_view_path_parse(&j->what, path))
		return cmd_fail(&cmd_export, CMD_USAGE,
				"%s: there is no file, and no view, of that "
				"name",
				path);
	if (to && j->what.ops)
		return cmd_fail(&cmd_export, CMD_USAGE,
				"%s: names a view, and --to another", path);
	if (to && !find_form(j, to))
		return cmd_fail(&cmd_export, CMD_USAGE,
				"--to %s: there is no such view", to);
	if (!to && !j->what.ops && *j->what.through) {
		ck_view_path_find(&j->what, ck_view_path_view());
		strcpy(j->what.file, j->what.through);
		*j->what.through = '\0';
	} else if (!to && !j->what.ops) {
		find_form(j, "safetensors");
	}
	return CMD_OK;
}

/* ---- the child: reads and writes, in a sandbox ---- */

static void tick(void *ctx, uint64_t bytes, uint64_t total)
{
	progress_at(ctx, bytes, total);
}

/* Of the tensors that are in it. */
static int whole(struct job *j, const struct export *x)
{
	const struct ck_catalog *img = x->view->img;
	struct ck_vfile f = { .tensor = CK_NONE };

	if (*j->what.file && x->file.nr)
		x->view->ops->file(x->view, x->file.v[0].nr, &f);
	for (uint32_t i = 0; i < x->view->nr; i++) {
		uint32_t t = x->view->first + i;

		if (f.tensor != CK_NONE && f.tensor != t)
			continue;
		if (!health_tensor(img, &img->tensors[t]))
			return cmd_fail(
				&cmd_export, CMD_BAD_CKPT,
				"%s: incomplete: tensor %s is %s "
				"(unshard inspect says more)",
				j->what.ckpt,
				ck_catalog_str(img, img->tensors[t].file, NULL),
				img->tensors[t].state == CK_TORN ?
					"torn" :
					"missing, whole or in part");
	}
	return f.tensor == CK_NONE ?
		       health_refused(&cmd_export, j->what.ckpt, img) :
		       CMD_OK;
}

static int room(struct job *j, const struct export *x)
{
	struct statvfs fs;
	uint64_t need = x->bytes - x->kept, free_bytes;

	if (fstatvfs(j->place.temp_fd, &fs))
		return cmd_fail(&cmd_export, CMD_SYSTEM, "%s: %s",
				j->place.parent, strerror(errno));
	free_bytes = (uint64_t)fs.f_bavail * fs.f_frsize;
	if (free_bytes >= need)
		return CMD_OK;
	return cmd_fail(&cmd_export, CMD_SYSTEM,
			"%s: %" PRIu64 " bytes are needed, %" PRIu64
			" are free",
			j->place.parent, need, free_bytes);
}

static int write_files(struct job *j, struct export *x)
{
	int ret;

	export_stop_begin();
	x->stop = export_stop_asked;
	x->tick = tick;
	x->ctx = &j->bar;
	progress_begin(&j->bar, "writing");
	ret = export_write(x, &j->err);
	j->result->seconds = progress_end(&j->bar);
	j->result->shared = x->shared;
	if (ret)
		return cmd_err(&cmd_export, &j->err);
	x->check_all = ck_opts_get(j->opts, "--verify");
	if (!x->check_all && !x->kept)
		return CMD_OK;
	progress_begin(&j->bar, "reading back");
	ret = export_check(x, &j->err);
	progress_end(&j->bar);
	j->result->kept -= ret ? 0 : x->damaged;
	j->result->damaged = x->damaged;
	return ret ? cmd_fail(&cmd_export, CMD_SYSTEM, "%s: %s", j->place.path,
			      j->err.msg) :
		     CMD_OK;
}

/* One file of one tensor is all of what was asked for. */
static bool is_of_tensor(const struct export *x)
{
	struct ck_vfile f = { .tensor = CK_NONE };

	return x->file.nr == 1 &&
	       x->view->ops->file(x->view, x->file.v[0].nr, &f) &&
	       f.tensor != CK_NONE;
}

static int tell_of(struct job *j, struct ck_ckpt *ck, const char *view)
{
	const struct ck_catalog *img = ck_ckpt_catalog(ck);
	struct ck_left_out left;
	int ret = CMD_OK;

	ck_ckpt_left_out(ck, view, &left);
	if (left.other.len)
		cmd_fail(&cmd_export, 0, "%s: note: %s", j->what.ckpt,
			 left.other.v);
	if (left.nr)
		ret = cmd_fail(&cmd_export, CMD_BAD_CKPT,
			       "%s: %s cannot hold %s%" PRIu64
			       " tensor%s, which %s left out: %s%s: %s%s%s%s",
			       j->what.ckpt, view, left.more ? "at least " : "",
			       left.nr, left.nr == 1 ? "" : "s",
			       left.nr == 1 ? "is" : "are",
			       left.nr == 1 ? "" : "the first is ",
			       ck_catalog_str(img,
					      img->tensors[left.first].name,
					      NULL),
			       left.why.v ? left.why.v : "",
			       left.others.len ? "; then " : "",
			       left.others.len ? left.others.v : "",
			       left.nr > 101 ? " and more" : "");
	j->result->left_out += left.nr;
	ck_left_out_free(&left);
	return ret;
}

/*
 * The rest is there, and the exit code says that it is not all.  What a view
 * could not hold is not in the views of it either.
 */
static int tell_left_out(struct job *j, const struct ck_view *v)
{
	struct ck_ckpt *under = ck_ckpt_derived_from(v->ck);
	int below = under ? tell_of(j, under, ck_view_path_view()) : CMD_OK;
	int here = tell_of(j, v->ck, v->ops->name);

	return here ? here : below;
}

/* Of what has tensors, and none that the form can hold, nothing is written. */
static int holds_any(const struct job *j, const struct export *x)
{
	const struct ck_view *v = x->view;
	struct ck_left_out left;
	int ret = CMD_OK;

	ck_ckpt_left_out(v->ck, v->ops->name, &left);
	if (!x->file.nr || (v->nr && left.nr >= v->nr))
		ret = cmd_fail(&cmd_export, CMD_BAD_CKPT,
			       "%s: %s can hold none of its %" PRIu32
			       " tensors: %s",
			       j->what.ckpt, v->ops->name, v->nr,
			       left.why.v   ? left.why.v :
			       left.other.v ? left.other.v :
					      "unshard inspect says why");
	ck_left_out_free(&left);
	return ret;
}

static int to_place(struct job *j, struct export *x)
{
	int ret;

	if (export_state_load(x, &j->err))
		return cmd_fail(&cmd_export, CMD_USAGE,
				"%s: %s; remove it to begin anew",
				j->place.path, j->err.msg);
	ret = room(j, x);
	if (ret)
		return ret;
	j->result->files = x->file.nr;
	j->result->bytes = x->bytes;
	j->result->kept = x->kept;
	return write_files(j, x);
}

static int stream(struct job *j, struct export *x)
{
	int ret;

	x->tick = tick;
	x->ctx = &j->bar;
	progress_begin(&j->bar, "writing");
	ret = export_stream(x, is_one(j), &j->err);
	progress_end(&j->bar);
	return ret ? cmd_err(&cmd_export, &j->err) : CMD_OK;
}

static int with_view(struct job *j, const struct ck_view *v)
{
	struct export x;
	int ret =
		export_plan(&x, v, *j->what.file ? j->what.file : NULL,
			    is_one(j) ? j->place.name : NULL, j->opts, &j->err);

	if (ret == -ENOENT)
		ret = cmd_fail(&cmd_export, CMD_USAGE, "%s: %s", j->what.ckpt,
			       j->err.msg);
	else if (ret)
		ret = cmd_err(&cmd_export, &j->err);
	else
		ret = whole(j, &x) ?: holds_any(j, &x);
	if (!ret && j->streams) {
		ret = stream(j, &x);
	} else if (!ret) {
		x.dir = j->place.temp_fd;
		ret = to_place(j, &x);
	}
	if (!ret && x.no_layout)
		cmd_fail(&cmd_export, 0, "%s: note: " EXPORT_NO_LAYOUT,
			 j->what.ckpt);
	if (!ret && !is_of_tensor(&x))
		j->result->partial = tell_left_out(j, v);
	export_free(&x);
	return ret;
}

static int child(struct job *j)
{
	const char *path = j->what.ckpt;
	struct ck_ckpt *ck;
	struct ck_view *v = NULL;
	int ret;

	if (cmd_open_several(&ck, &path, 1, j->streams ? NULL : j->place.path,
			     j->opts, &j->err))
		return cmd_err(&cmd_export, &j->err);
	if (ck_view_path_enter_through(&ck, &j->what, j->opts, &j->err))
		ret = cmd_err(&cmd_export, &j->err);
	else if (ck_view_open(&v, j->what.ops, ck, 0, j->opts, &j->err))
		ret = cmd_err(&cmd_export, &j->err);
	else if (!v)
		ret = ck_view_path_absent(ck, j->what.ops, &j->err),
		ret = cmd_err(&cmd_export, &j->err);
	else
		ret = with_view(j, v);
	if (v)
		ck_view_close(v);
	ck_ckpt_close(ck);
	return ret;
}

/* ---- the parent: says what became of it ---- */

static int say(const struct job *j)
{
	ck_auto_str struct ck_str s = { 0 };
	const struct result *r = j->result;
	uint64_t moved = r->bytes - r->kept;

	if (ck_opts_get(j->opts, "json")) {
		ck_str_fmt(&s,
			   "{\"files\": %" PRIu64 ", \"nbytes\": %" PRIu64
			   ", \"resumed_nbytes\": %" PRIu64
			   ", \"rewritten_nbytes\": %" PRIu64
			   ", \"shared_nbytes\": %" PRIu64
			   ", \"left_out\": %" PRIu64
			   ", \"seconds\": %.3f, \"verified\": %s}\n",
			   r->files, r->bytes, r->kept, r->damaged, r->shared,
			   r->left_out, r->seconds,
			   ck_opts_get(j->opts, "--verify") ? "true" : "false");
	} else {
		ck_str_fmt(&s, "%s/%s: %" PRIu64 " file%s, ", j->place.parent,
			   j->place.name, r->files, r->files == 1 ? "" : "s");
		text_size(&s, r->bytes);
		if (r->kept) {
			ck_str_puts(&s, ", of which ");
			text_size(&s, r->kept);
			ck_str_puts(&s, " were there from before");
		}
		if (r->damaged) {
			ck_str_puts(&s, ", ");
			text_size(&s, r->damaged);
			ck_str_puts(&s, " from before were damaged and are "
					"written again");
		}
		if (r->shared) {
			ck_str_puts(&s, ", ");
			text_size(&s, r->shared);
			ck_str_puts(&s, " left to the filesystem");
		}
		ck_str_fmt(&s, ", %.1f s, %.2f GB/s%s\n", r->seconds,
			   r->seconds > 0 ? (double)moved / r->seconds / 1e9 :
					    0,
			   ck_opts_get(j->opts, "--verify") ?
				   ", read back and compared" :
				   "");
	}
	if (!text_flush(&s))
		return cmd_fail(&cmd_export, CMD_SYSTEM, "no memory");
	return cmd_flush(&cmd_export);
}

static int run_child(struct job *j)
{
	pid_t pid, self = getpid();
	int status, ret;

	fflush(stdout);
	pid = fork();
	if (pid < 0)
		return cmd_fail(&cmd_export, CMD_SYSTEM, "fork: %s",
				strerror(errno));
	if (!pid) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		if (getppid() != self)
			_exit(CMD_SYSTEM);
		_exit(child(j));
	}
	ret = export_stop_wait(pid, &status);
	if (ret)
		return cmd_fail(&cmd_export, CMD_SYSTEM, "wait: %s",
				strerror(-ret));
	if (WIFSIGNALED(status))
		return cmd_fail(&cmd_export, CMD_SYSTEM,
				"%s: what wrote it was killed: %s",
				j->place.path, strsignal(WTERMSIG(status)));
	return WEXITSTATUS(status);
}

static int to_stdout(struct job *j)
{
	int ret;

	if (ck_opts_get(j->opts, "json"))
		return cmd_fail(&cmd_export, CMD_USAGE,
				"--json: standard output is the files");
	if (isatty(STDOUT_FILENO))
		return cmd_fail(&cmd_export, CMD_USAGE,
				"-: standard output is a terminal");
	signal(SIGPIPE, SIG_IGN);
	ret = run_child(j);
	return ret ? ret : j->result->partial;
}

static int export(struct job *j, char **argv)
{
	int ret;

	j->streams = !strcmp(argv[2], "-");
	ret = what(j, argv[1]);
	if (!ret && j->streams)
		return to_stdout(j);
	if (!ret)
		ret = export_place_open(&cmd_export, &j->place, argv[2],
					is_one(j) ? own_name(j) : NULL);
	if (!ret)
		ret = check_apart(j);
	if (!ret)
		ret = run_child(j);
	if (!ret)
		ret = export_place_finish(&cmd_export, &j->place);
	else
		export_place_leave(&j->place);
	if (!ret)
		ret = say(j);
	return ret ? ret : j->result->partial;
}

static int run(int argc, char **argv)
{
	struct ck_opts opts = { 0 };
	struct job j = { .opts = &opts,
			 .place = { .parent_fd = -1, .temp_fd = -1 } };
	int ret = CMD_USAGE;

	j.result = mmap(NULL, sizeof(*j.result), PROT_READ | PROT_WRITE,
			MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (j.result == MAP_FAILED)
		ret = cmd_fail(&cmd_export, CMD_SYSTEM, "no memory");
	else if (cmd_parse(&cmd_export, argc, argv, &opts) >= 0)
		ret = export(&j, argv);
	ck_opts_free(&opts);
	if (ret)
		export_stop_end();
	return ret;
}

static const struct cmd_flag flags[] = {
	{ .name = "verify", .help = "read back and compare what was written" },
	{ 0 },
};

static const struct cmd_valued valued[] = {
	{ "to", "FORM",
	  "what to write: safetensors, pt, ckpt, npy, hf, dcp, tensors" },
	{ 0 },
};

const struct cmd cmd_export = {
	.name = "export",
	.group = CMD_KEEP,
	.args = "CKPT[/VIEW[/FILE]] OUT",
	.summary = "write a view of a checkpoint as ordinary files",
	.help = "OUT appears when all of it is written and on disk.  The "
		"same\ncommand again goes on where one was interrupted.  OUT "
		"is -: to standard\noutput, one file as it is, a folder as a "
		"tar:\n\n  unshard export run/step-1000/hf - | tar -x -C "
		"hf\n",
	.flags = flags,
	.valued = valued,
	.min_words = 2,
	.max_words = 2,
	.run = run,
};
