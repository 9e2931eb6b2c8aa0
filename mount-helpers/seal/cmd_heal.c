/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cmd_heal.c - replicas that differ, and making them alike
 *
 *	child          looks, in a sandbox that allows no writing, and prints
 *	this process   opens the checkpoint for writing, where something is to be
 *	               written: whoever does so begins to take what a mount left
 *	               that died for what is meant, so that only the child knows
 *	               what was sealed if nothing can be decided
 */
#include "mount-helpers/subprocess.h"
#include "mount-helpers/health.h"
#include "mount-helpers/progress.h"
#include "core/lib/target.h"
#include "mount-helpers/text.h"
#include "mount-helpers/seal/verify_show.h"

#include "core/base/auto.h"
#include "core/seal/heal.h"

#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define GO_ON 64 /* exit code of the child: there is something to write */

extern const struct cmd cmd_heal;

struct heal {
	const char *path;
	char **words;
	int nr_words;
	struct ck_opts *opts;
	struct ck_ckpt *ck;
	const struct ck_catalog *img;
	struct ck_heal *h;
	bool *wanted, *differs; /* of each tensor; wanted NULL: all */
	struct ck_str out;
	struct verify_show show;
	struct progress bar;
	bool quiet; /* what differs was printed before */
	uint64_t nr_places, nr_healed, nr_left;
	struct ck_err err;
};

static bool json(const struct heal *x)
{
	return ck_opts_get(x->opts, "json");
}

static bool is_asked(const struct heal *x)
{
	return ck_opts_get(x->opts, "from") || ck_opts_get(x->opts, "sealed");
}

/* ---- opening ---- */

static int find_wanted(struct heal *x)
{
	if (!x->nr_words)
		return CMD_OK;
	x->wanted = calloc(x->img->nr_tensors + 1u, sizeof(*x->wanted));
	if (!x->wanted)
		return cmd_fail(&cmd_heal, CMD_SYSTEM, "no memory");
	for (int i = 0; i < x->nr_words; i++) {
		struct ck_target t;

		if (ck_target_find(x->img, x->words[i], &t, &x->err))
			return cmd_target_err(&cmd_heal, &x->err);
		if (t.tensor == CK_NONE || t.sliced)
			return cmd_fail(&cmd_heal, CMD_USAGE,
					"%s: expected a tensor, as a whole",
					x->words[i]);
		x->wanted[t.tensor] = true;
	}
	return CMD_OK;
}

static int open_all(struct heal *x)
{
	int ret;

	if (cmd_open(&x->ck, x->path, x->opts, &x->err))
		return cmd_err(&cmd_heal, &x->err);
	x->img = ck_ckpt_catalog(x->ck);
	x->show = (struct verify_show){ .img = x->img,
					.json = json(x),
					.out = &x->out };
	x->differs = calloc(x->img->nr_tensors + 1u, sizeof(*x->differs));
	if (!x->differs)
		return cmd_fail(&cmd_heal, CMD_SYSTEM, "no memory");
	ret = ck_heal_new(&x->h, x->ck, x->opts, &x->err);
	if (ret == -ENOENT)
		return cmd_fail(&cmd_heal, CMD_USAGE, "%s", x->err.msg);
	if (ret)
		return cmd_err(&cmd_heal, &x->err);
	if (ck_opts_get(x->opts, "sealed") && !ck_heal_has_manifest(x->h))
		return cmd_fail(&cmd_heal, CMD_USAGE,
				"%s: is not sealed, and --sealed has nothing "
				"to go by",
				x->path);
	return find_wanted(x);
}

static void close_all(struct heal *x)
{
	ck_heal_free(x->h);
	ck_ckpt_close(x->ck);
	ck_str_free(&x->out);
	free(x->wanted);
	free(x->differs);
}

/* ---- looking ---- */

static void quarrel(void *ctx, const struct ck_quarrel *q)
{
	struct heal *x = ctx;

	x->differs[q->where.tensor] = true;
	if (x->quiet)
		return;
	x->nr_places++;
	verify_quarrel(&x->show, q);
	text_flush(&x->out);
}

static enum ck_as_sealed sealed(void *ctx, uint32_t t, uint32_t chunk,
				uint64_t off, uint64_t len)
{
	struct heal *x = ctx;

	return ck_heal_sealed(x->h, t, chunk, off, len);
}

static void tick(void *ctx, uint64_t bytes, uint64_t total)
{
	struct heal *x = ctx;

	progress_at(&x->bar, bytes, total);
}

static int look(struct heal *x)
{
	struct ck_replicas in = { .ck = x->ck,
				  .ctx = x,
				  .each = quarrel,
				  .tick = tick,
				  .wanted = x->wanted };
	int ret;

	if (ck_heal_has_manifest(x->h) && !x->quiet)
		in.sealed = sealed;
	for (uint32_t i = 0; i < x->img->nr_tensors; i++)
		if (!x->wanted || x->wanted[i])
			ck_ckpt_resolve(x->ck, i, &x->err);
	progress_begin(&x->bar, "replicas");
	ret = ck_replicas_compare(&in, &x->err);
	progress_end(&x->bar);
	return ret ? cmd_err(&cmd_heal, &x->err) : CMD_OK;
}

/* ---- one tensor ---- */

static void put_name(struct heal *x, uint32_t t)
{
	const struct ck_tensor *ten = &x->img->tensors[t];
	size_t len;
	const char *name = ck_catalog_str(x->img, ten->name, &len);

	if (json(x)) {
		ck_str_json(&x->out, name, len);
		return;
	}
	text_tree(&x->out, x->img, ten->tree);
	ck_str_plain(&x->out, name, len);
}

static void begin_left(struct heal *x)
{
	if (json(x))
		ck_str_puts(&x->out,
			    x->nr_left ? ", {\"name\": " : "{\"name\": ");
	x->nr_left++;
}

static void end_left(struct heal *x, const char *why)
{
	if (!json(x)) {
		ck_str_fmt(&x->out, ": left as it is: %s\n", why);
		return;
	}
	ck_str_puts(&x->out, ", \"reason\": ");
	ck_str_json(&x->out, why, strlen(why));
	ck_str_puts(&x->out, "}");
}

/* One that is not alike now, and why. */
static void report_left(struct heal *x, uint32_t t, const char *why)
{
	begin_left(x);
	put_name(x, t);
	end_left(x, why);
}

/*
 * Those of which the reader does not know what is a copy: it refused them, so
 * that they are no tensors here.
 */
static void report_refused(struct heal *x)
{
	for (uint32_t i = 0; i < x->img->nr_problems; i++) {
		const struct ck_problem *p = &x->img->problems[i];
		const char *name;
		size_t len;

		if (p->severity != CK_ERROR || p->tensor == CK_NONE)
			continue;
		name = ck_catalog_str(x->img, p->tensor, &len);
		begin_left(x);
		if (json(x))
			ck_str_json(&x->out, name, len);
		else
			ck_str_plain(&x->out, name, len);
		end_left(x, ck_catalog_str(x->img, p->reason, NULL));
	}
}

static const char *why_undecided(const struct heal *x,
				 const struct ck_healed *d)
{
	bool from = ck_opts_get(x->opts, "from");

	if (d->several)
		return from ? "--from names several of its copies, and they "
			      "differ" :
			      "several of its copies are as they were sealed, "
			      "and they differ";
	return from ? "some of it is in no file that --from names" :
		      "some of it is as it was sealed in none of its copies";
}

static bool left(struct heal *x, uint32_t t, int ret, const struct ck_healed *d)
{
	if (ret)
		report_left(x, t, x->err.msg);
	else if (d->none || d->several)
		report_left(x, t, why_undecided(x, d));
	else
		return false;
	return true;
}

/* ---- the child: looks ---- */

/* Whether anything is to be written; what is not is said if it is all. */
static int decide(struct heal *x)
{
	uint64_t decided = 0;

	for (int say = 0; say < 2 && !decided; say++) {
		for (uint32_t t = 0; t < x->img->nr_tensors; t++) {
			struct ck_healed d;
			int ret;

			if (!x->differs[t])
				continue;
			x->err = (struct ck_err){ 0 };
			ret = ck_heal_tensor(x->h, t, NULL, &d, &x->err);
			decided += ret ? 0 : d.decided;
			if (say)
				left(x, t, ret, &d);
		}
		if (!say && !decided && json(x))
			ck_str_puts(&x->out, ", \"healed\": [], \"left\": [");
	}
	if (decided)
		return GO_ON;
	ck_str_puts(&x->out, json(x) ? "]}\n" : "");
	text_flush(&x->out);
	return cmd_fail(&cmd_heal, CMD_BAD_CKPT,
			"%s: nothing was healed: %" PRIu64
			" tensor%s left as %s",
			x->path, x->nr_left, x->nr_left == 1 ? "" : "s",
			x->nr_left == 1 ? "it is" : "they are");
}

static int ended(struct heal *x)
{
	ck_str_puts(&x->out, json(x) ? ", \"left\": [" : "");
	if (!x->wanted)
		report_refused(x);
	ck_str_puts(&x->out, json(x) ? "]}\n" : "");
	if (!x->nr_places && !json(x)) {
		ck_str_plain(&x->out, x->path, strlen(x->path));
		ck_str_puts(&x->out,
			    x->nr_left ?
				    ": all copies of the others are alike\n" :
				    ": all copies are alike\n");
	}
	text_flush(&x->out);
	if (!x->nr_places)
		return health_report(&cmd_heal, x->path, x->img,
				     ck_ckpt_runtime_errors(x->ck));
	return cmd_fail(
		&cmd_heal, CMD_BAD_CKPT,
		"%s: copies differ in %" PRIu64 " place%s; --from FILE "
		"says whose bytes count%s",
		x->path, x->nr_places, x->nr_places == 1 ? "" : "s",
		ck_heal_has_manifest(x->h) ?
			", --sealed those that are as they were sealed" :
			"");
}

static int child(void *ctx)
{
	struct heal *x = ctx;
	int ret = open_all(x);

	if (!ret) {
		if (json(x))
			ck_str_fmt(&x->out, "{\"sealed\": %s",
				   ck_heal_has_manifest(x->h) ? "true" :
								"false");
		verify_list_begin(&x->show, "replicas");
		ret = look(x);
		verify_list_end(&x->show);
	}
	if (!ret)
		ret = is_asked(x) && x->nr_places ? decide(x) : ended(x);
	text_flush(&x->out);
	close_all(x);
	if (cmd_flush(&cmd_heal))
		return CMD_SYSTEM;
	return ret;
}

/* ---- this process: writes ---- */

static int heal_all(struct heal *x, struct ck_edit *e, bool *whole)
{
	for (uint32_t t = 0; t < x->img->nr_tensors; t++) {
		struct ck_healed d;
		int ret;

		if (!x->differs[t])
			continue;
		x->err = (struct ck_err){ 0 };
		ret = ck_heal_tensor(x->h, t, e, &d, &x->err);
		/* nothing of it was written, nor will be of the next */
		if (ret == -EBUSY)
			return ret;
		whole[t] = !ret && !d.none && !d.several;
		x->nr_healed += whole[t];
		if (!whole[t])
			left(x, t, ret, &d);
	}
	return 0;
}

static void report_healed(struct heal *x, const bool *whole)
{
	uint64_t nr = 0;

	if (!json(x)) {
		ck_str_plain(&x->out, x->path, strlen(x->path));
		ck_str_fmt(&x->out,
			   ": %" PRIu64 " tensor%s healed: all copies of %s "
			   "are alike\n",
			   x->nr_healed, x->nr_healed == 1 ? "" : "s",
			   x->nr_healed == 1 ? "it" : "them");
		ck_ckpt_runtime_problems(x->ck, false, &x->out);
		return;
	}
	ck_str_puts(&x->out, "], \"healed\": [");
	for (uint32_t t = 0; t < x->img->nr_tensors; t++) {
		if (!whole[t])
			continue;
		ck_str_puts(&x->out, nr++ ? ", " : "");
		put_name(x, t);
	}
	ck_str_puts(&x->out, "]}\n");
}

static int write_all(struct heal *x)
{
	ck_auto_free bool *whole =
		calloc(x->img->nr_tensors + 1u, sizeof(*whole));
	struct ck_edit *e = ck_ckpt_edit(x->ck);
	uint64_t differ;
	int ret = e && whole ? 0 : ck_no_memory(&x->err);

	ck_str_puts(&x->out, json(x) ? ", \"left\": [" : "");
	if (!ret)
		ret = heal_all(x, e, whole);
	if (!ret)
		ret = ck_ckpt_sync(x->ck, e, &x->err);
	if (e)
		ck_ckpt_edit_end(e);
	if (ret)
		return cmd_err(&cmd_heal, &x->err);
	differ = x->nr_left;
	if (!x->wanted)
		report_refused(x);
	report_healed(x, whole);
	text_flush(&x->out);
	if (!differ)
		return CMD_OK;
	return cmd_fail(&cmd_heal, CMD_BAD_CKPT,
			"%s: the copies of %" PRIu64 " tensor%s still differ",
			x->path, differ, differ == 1 ? "" : "s");
}

static int parent(struct heal *x)
{
	const char *master = ck_opts_get(x->opts, "master");
	char what[PATH_MAX + 32];
	int ret;

	if (master && strcmp(master, "also") && strcmp(master, "ignore"))
		return cmd_fail(&cmd_heal, CMD_USAGE,
				"--master %s: expected also or ignore", master);
	snprintf(what, sizeof(what), "%s: what read it", x->path);
	ret = cmd_subprocess(&cmd_heal, what, child, x);
	if (ret != GO_ON)
		return ret;
	if (ck_opts_add(x->opts, "rw", ""))
		return cmd_fail(&cmd_heal, CMD_SYSTEM, "no memory");
	x->quiet = true;
	ret = open_all(x);
	if (!ret)
		ret = look(x);
	if (!ret)
		ret = write_all(x);
	close_all(x);
	return cmd_flush(&cmd_heal) ? CMD_SYSTEM : ret;
}

static int run(int argc, char **argv)
{
	struct ck_opts opts = { 0 };
	struct heal x = { .opts = &opts };
	int nr = cmd_parse(&cmd_heal, argc, argv, &opts);
	int ret = CMD_USAGE;

	if (nr > 0) {
		x.path = argv[1];
		x.words = argv + 2;
		x.nr_words = nr - 1;
		if (ck_opts_get(&opts, "from") && ck_opts_get(&opts, "sealed"))
			ret = cmd_fail(&cmd_heal, CMD_USAGE,
				       "--from or --sealed, not both");
		else if (ck_opts_add(&opts, CK_ANY_COPY, ""))
			ret = cmd_fail(&cmd_heal, CMD_SYSTEM, "no memory");
		else
			ret = parent(&x);
	}
	ck_opts_free(&opts);
	return ret;
}

static const struct cmd_flag flags[] = {
	{ 0, "sealed", "the copies count that are as they were sealed" },
	{ 0, NULL, NULL },
};

static const struct cmd_valued valued[] = {
	{ "from", "FILE", "the copies in FILE count (* for any characters)" },
	{ "master", "HOW", "the optimizer's float32 copies: also or ignore" },
	{ NULL, NULL, NULL },
};

const struct cmd cmd_heal = {
	.name = "heal",
	.group = CMD_KEEP,
	.args = "CKPT [TENSOR]...",
	.summary = "make copies of the same part alike that differ",
	.help = "Says which copies differ, and where. With --from or --sealed "
		"writes those that\ncount over the others.\n",
	.flags = flags,
	.valued = valued,
	.min_words = 1,
	.max_words = 1000,
	.run = run,
};
