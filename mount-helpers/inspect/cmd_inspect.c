/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cmd_inspect.c - a checkpoint, or one tensor of it, laid open
 *
 * Resolves the items inside the files, which mounting leaves for later, so
 * what is wrong with them is found here.
 */
#include "mount-helpers/choose.h"
#include "mount-helpers/inspect/inspect.h"
#include "mount-helpers/health.h"
#include "mount-helpers/subprocess.h"
#include "core/lib/target.h"
#include "mount-helpers/text.h"

#include "fs/sharding.h"

#include "core/base/auto.h"
#include "core/catalog/dump.h"
#include "core/geom/dtype.h"
#include "core/view/view.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

extern const struct cmd cmd_inspect;

struct inspect {
	struct ck_ckpt *ck;
	const struct ck_catalog *img;
	const char *path;
	const struct ck_opts *opts;
	bool ok;
	const char *html; /* the page to write, or NULL */
	int html_fd;
	struct ck_str out;
	struct ck_err err;
};

static void flush(struct inspect *in)
{
	in->ok = in->ok && text_flush(&in->out);
}

/* ---- problems ---- */

static bool is_about(const struct ck_catalog *img, const struct ck_problem *p,
		     const struct ck_tensor *t)
{
	return !t || p->tensor == t->name ||
	       (p->tensor != CK_NONE &&
		!text_compare(img, p->tensor, img, t->name));
}

/* Those about @t, or all; @t NULL says too that there are none. */
static void problems(struct inspect *in, const struct ck_tensor *t)
{
	ck_auto_free uint32_t *which =
		calloc(in->img->nr_problems + 1u, sizeof(*which));
	uint32_t nr = 0;
	bool any;

	in->ok = in->ok && which;
	for (uint32_t i = 0; i < in->img->nr_problems && in->ok; i++)
		if (is_about(in->img, &in->img->problems[i], t))
			which[nr++] = i;
	any = nr;
	ck_str_puts(&in->out, nr ? "problems\n" : "");
	flush(in);
	in->ok = in->ok &&
		 problems_put(in->img, which, nr, ck_opts_get(in->opts, "all"));
	if (ck_ckpt_runtime_problems_seq(in->ck)) {
		ck_str_puts(&in->out, "problems of files and views\n");
		ck_ckpt_runtime_problems(in->ck, false, &in->out);
		any = true;
	}
	if (!any && !t)
		ck_str_puts(&in->out, "problems  none\n");
	flush(in);
}

/* ---- one tensor ---- */

static void draw(struct inspect *in, const struct ck_tensor *t)
{
	unsigned width = text_columns(100);
	struct labels labels;
	bool drawn = false;

	if (labels_init(&labels, in->img, t)) {
		drawn = draw_tensor(in->img, t, &labels, width, &in->out);
		if (!drawn && labels.kind != LABELS_KEY) {
			labels.kind = LABELS_KEY;
			drawn = draw_tensor(in->img, t, &labels, width,
					    &in->out);
		}
		if (drawn && labels.kind == LABELS_KEY)
			labels_legend(&labels, &in->out);
	}
	labels_free(&labels);
	flush(in);
}

static void tensor_head(struct inspect *in, const struct ck_tensor *t)
{
	struct ck_str *o = &in->out;

	text_tree(o, in->img, t->tree);
	text_ref(o, in->img, t->name);
	ck_str_fmt(o, "\n  %s ", ck_dtype_info(t->dtype)->name);
	text_dims(o, in->img->dims + t->shape, t->rank);
	ck_str_puts(o, ", ");
	text_size(o, t->size);
	ck_str_puts(o, ", ");
	fs_sharding_text(in->img, t, o);
	if (t->grid_rank != t->rank) {
		ck_str_puts(o, ", seen as ");
		text_dims(o, in->img->dims + t->grid, t->grid_rank);
	}
	if (!health_tensor(in->img, t))
		ck_str_fmt(o, ", %s",
			   t->state == CK_OK   ? "WITH A HOLE" :
			   t->state == CK_TORN ? "TORN" :
						 "MISSING");
	ck_str_puts(o, "\n");
	if (t->file != t->name) {
		ck_str_puts(o, "  file name ");
		text_ref(o, in->img, t->file);
		ck_str_puts(o, "\n");
	}
	flush(in);
}

static int cannot_be_read(const struct inspect *in)
{
	return cmd_fail(&cmd_inspect, CMD_BAD_CKPT,
			"%s: some of the tensor's bytes cannot be read",
			in->path);
}

static int one_tensor(struct inspect *in, uint32_t i)
{
	const struct ck_tensor *t = &in->img->tensors[i];

	tensor_head(in, t);
	draw(in, t);
	in->ok = in->ok && pieces_print(in->img, ck_ckpt_resolved(in->ck), t,
					ck_opts_get(in->opts, "all"));
	problems(in, t);
	if (health_tensor(in->img, t) && !ck_ckpt_runtime_errors(in->ck))
		return CMD_OK;
	cmd_flush(&cmd_inspect);
	return cannot_be_read(in);
}

static int one_object(struct inspect *in, uint32_t i)
{
	const struct ck_object *o = &in->img->objects[i];

	text_tree(&in->out, in->img, o->tree);
	text_ref(&in->out, in->img, o->name);
	ck_str_fmt(&in->out, "\n  object, %s\n  ", text_enc(o->enc));
	text_ref(&in->out, in->img, ck_catalog_file_of(in->img, o->src));
	ck_str_fmt(&in->out, " offset %" PRIu64 ", %" PRIu64 " bytes\n", o->off,
		   o->len);
	flush(in);
	return CMD_OK;
}

/* ---- JSON: the catalog, of all or of some ---- */

/* Only which are listed differs; chunks are found by their index. */
static void json(struct inspect *in, const struct choice *only)
{
	struct ck_catalog img = *in->img;
	uint32_t nr = only ? only->nr_tensors : 0;
	uint32_t nr_objects = only ? only->nr_objects : 0;
	ck_auto_free struct ck_tensor *t = calloc(nr + 1u, sizeof(*t));
	ck_auto_free struct ck_object *o = calloc(nr_objects + 1u, sizeof(*o));
	struct ck_dump_pos pos = { 0 };

	in->ok = in->ok && t && o;
	for (uint32_t i = 0; i < nr && in->ok; i++)
		t[i] = img.tensors[only->tensor[i]];
	for (uint32_t i = 0; i < nr_objects && in->ok; i++)
		o[i] = img.objects[only->object[i]];
	if (only) {
		img.tensors = t;
		img.nr_tensors = nr;
		img.objects = o;
		img.nr_objects = nr_objects;
	}
	while (in->ok && ck_dump_next_resolved(&img, ck_ckpt_resolved(in->ck),
					       1, &pos, &in->out))
		flush(in);
}

/* ---- */

static int whole(struct inspect *in, bool as_json)
{
	/* A failure is a problem by now, or concerns what is torn anyway. */
	for (uint32_t i = 0; i < in->img->nr_tensors; i++)
		ck_ckpt_resolve(in->ck, i, &in->err);
	if (in->html) {
		in->ok = in->ok &&
			 html_put(in->img, ck_ckpt_resolved(in->ck), in->path);
	} else if (as_json) {
		json(in, NULL);
	} else {
		summary_put(in->img, in->path, &in->out);
		summary_model(in->img, ck_ckpt_root(in->ck), in->opts,
			      &in->out);
		problems(in, NULL);
	}
	if (in->html && (fflush(stdout) || ferror(stdout)))
		return cmd_fail(&cmd_inspect, CMD_SYSTEM, "%s: %s", in->html,
				strerror(errno));
	if (cmd_written(&cmd_inspect, in->ok))
		return CMD_SYSTEM;
	return health_report(&cmd_inspect, in->path, in->img,
			     ck_ckpt_runtime_errors(in->ck));
}

/* All that was chosen; an exit code. */
static int show(struct inspect *in, const struct choice *c, bool as_json)
{
	int ret = CMD_OK, one;

	for (uint32_t i = 0; i < c->nr_tensors; i++)
		ck_ckpt_resolve(in->ck, c->tensor[i], &in->err);
	if (as_json)
		json(in, c);
	for (uint32_t i = 0; i < c->nr_tensors && in->ok; i++) {
		const struct ck_tensor *t = &in->img->tensors[c->tensor[i]];

		one = !as_json			? one_tensor(in, c->tensor[i]) :
		      health_tensor(in->img, t) ? CMD_OK :
						  cannot_be_read(in);
		ret = ret ? ret : one;
	}
	for (uint32_t i = 0; i < c->nr_objects && in->ok && !as_json; i++)
		one_object(in, c->object[i]);
	return ret;
}

static int part(struct inspect *in, char *name, bool as_json)
{
	struct ck_target target;
	struct choice c;
	int ret;

	if (!ck_target_find(in->img, name, &target, &in->err)) {
		if (target.sliced)
			return cmd_fail(&cmd_inspect, CMD_USAGE,
					"%s: expected a whole tensor (unshard "
					"plan takes slices)",
					name);
		c = (struct choice){ &target.tensor, &target.object,
				     target.tensor != CK_NONE,
				     target.tensor == CK_NONE };
		return show(in, &c, as_json);
	}
	if (in->err.code == EBADMSG || !strpbrk(name, "*?["))
		return cmd_target_err(&cmd_inspect, &in->err);
	if (!choose(&c, in->img, &name, 1))
		return cmd_fail(&cmd_inspect, CMD_SYSTEM, "no memory");
	ret = c.nr_tensors || c.nr_objects ?
		      show(in, &c, as_json) :
		      cmd_fail(&cmd_inspect, CMD_USAGE,
			       "%s: no tensor or object has such a name", name);
	choice_free(&c);
	return ret;
}

static int inspect(struct inspect *in, int nr, char **argv,
		   const struct ck_opts *opts)
{
	bool as_json = ck_opts_get(opts, "json");
	int ret;

	in->path = argv[1];
	in->ok = true;
	in->opts = opts;
	if (cmd_open_shown(&in->ck, (const char *const *)argv + 1, 1,
			   nr <= 1 && !in->html, opts, &in->err))
		return nr > 1 || in->html ? cmd_err(&cmd_inspect, &in->err) :
					    run_dir_list(&cmd_inspect, argv[1],
							 opts, &in->err);
	in->img = ck_ckpt_catalog(in->ck);
	if (ck_views_find_problems(in->ck, opts, &in->err)) {
		ck_ckpt_close(in->ck);
		return cmd_err(&cmd_inspect, &in->err);
	}
	ret = nr > 1 ? part(in, argv[2], as_json) : whole(in, as_json);
	if (ret == CMD_OK)
		ret = cmd_written(&cmd_inspect, in->ok);
	ck_str_free(&in->out);
	ck_ckpt_close(in->ck);
	return ret;
}

struct call {
	struct inspect in;
	int nr;
	char **argv;
	const struct ck_opts *opts;
};

/* The page is what standard output would be. */
static int to_page(void *ctx)
{
	struct call *c = ctx;

	if (dup2(c->in.html_fd, STDOUT_FILENO) < 0)
		return cmd_fail(&cmd_inspect, CMD_SYSTEM, "%s: %s", c->in.html,
				strerror(errno));
	return inspect(&c->in, c->nr, c->argv, c->opts);
}

static int html(struct call *c)
{
	ck_auto_str struct ck_str what = { 0 };
	struct stat st;
	int ret;

	if (c->nr > 1 || ck_opts_get(c->opts, "json"))
		return cmd_fail(&cmd_inspect, CMD_USAGE,
				"--html: expected a checkpoint alone");
	c->in.html_fd =
		open(c->in.html, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
	if (c->in.html_fd < 0)
		return cmd_fail(
			&cmd_inspect, errno == EEXIST ? CMD_USAGE : CMD_SYSTEM,
			"%s: %s", c->in.html,
			errno == EEXIST ? "is there already" : strerror(errno));
	ck_str_fmt(&what, "%s: what wrote it", c->in.html);
	fflush(stdout);
	ret = cmd_subprocess(&cmd_inspect, what.v ? what.v : "", to_page, c);
	if (ret > CMD_BAD_CKPT || fstat(c->in.html_fd, &st) || !st.st_size)
		unlink(c->in.html);
	close(c->in.html_fd);
	return ret;
}

static int run(int argc, char **argv)
{
	struct ck_opts opts = { 0 };
	struct call c = { .nr = cmd_parse(&cmd_inspect, argc, argv, &opts),
			  .argv = argv,
			  .opts = &opts };
	int ret = CMD_USAGE;

	c.in.html = ck_opts_get(&opts, "html");
	if (c.nr >= 0)
		ret = c.in.html ? html(&c) : inspect(&c.in, c.nr, argv, &opts);
	ck_opts_free(&opts);
	return ret;
}

static const struct cmd_flag flags[] = {
	{ 'a', "all", "each problem and each piece, however many there are" },
	{ 0 },
};

static const struct cmd_valued valued[] = {
	{ "html", "FILE", "write a page for a browser instead, with drawings" },
	{ 0 },
};

const struct cmd cmd_inspect = {
	.name = "inspect",
	.group = CMD_LOOK,
	.args = "CKPT [NAME | GLOB]",
	.summary = "draw how tensors are cut, and say what is wrong",
	.help = "With NAME: that tensor, drawn, and where each piece of it "
		"is; with GLOB\n('*.q_proj.*') all that it chooses.\n",
	.flags = flags,
	.valued = valued,
	.min_words = 1,
	.max_words = 2,
	.run = run,
};
