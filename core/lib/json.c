/* SPDX-License-Identifier: Apache-2.0 */
/* json.c - what a checkpoint is, as JSON text */
#include "core/lib/lib.h"

#include "core/base/auto.h"
#include "core/catalog/dump.h"
#include "core/lib/plan.h"
#include "core/view/metadata.h"
#include "core/view/extras.h"
#include "core/view/model_names.h"
#include "core/view/translate/translate.h"
#include "core/view/nest.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

struct sink {
	unshard_put put;
	void *arg;
	int ended; /* what put() ended it with */
};

/* As put() of the caller, which is to be told from what fails here. */
static int pass_on(void *arg, const char *text, size_t len)
{
	struct sink *to = arg;

	to->ended = to->put(to->arg, text, len);
	return to->ended;
}

static int put_str(struct sink *to, struct ck_str *text)
{
	int ret = text->failed ? -ENOMEM :
		  text->len    ? pass_on(to, text->v, text->len) :
				 0;

	text->len = 0;
	return ret;
}

static int catalog(struct ck_ckpt *ck, struct sink *to)
{
	ck_auto_str struct ck_str out = { 0 };
	struct ck_dump_pos pos = { 0 };
	int ret = 0;

	while (!ret &&
	       ck_dump_next_resolved(ck_ckpt_catalog(ck), ck_ckpt_resolved(ck),
				     1, &pos, &out))
		ret = put_str(to, &out);
	return ret;
}

/* Of its catalog and, before the bracket that closes it, those found since. */
static int problems(struct ck_ckpt *ck, struct sink *to)
{
	const struct ck_catalog *img = ck_ckpt_catalog(ck);
	ck_auto_str struct ck_str out = { 0 }, end = { 0 };
	struct ck_dump_pos pos = { 0 };
	const char *close;

	while (ck_dump_next(img, CK_DUMP_PROBLEMS, 1, &pos, &out) &&
	       !out.failed)
		;
	if (out.failed)
		return -ENOMEM;
	close = memrchr(out.v, ']', out.len);
	if (close && ck_ckpt_runtime_problems_seq(ck)) {
		ck_str_puts(&end, close);
		out.len = (size_t)(close - out.v);
		ck_str_puts(&out, img->nr_problems ? ",\n" : "\n");
		ck_ckpt_runtime_problems(ck, true, &out);
		ck_str_puts(&out, end.v ? end.v : "]");
	}
	return end.failed ? -ENOMEM : put_str(to, &out);
}

static int metadata(struct ck_ckpt *ck, struct sink *to, struct ck_err *err)
{
	ck_auto_str struct ck_str out = { 0 };
	int ret = ck_metadata_make(ck, 0, &out, err);

	return ret ? ret : put_str(to, &out);
}

/*
 * Names by which a loader would find nothing are none of the model's; and those
 * that hf/ of a mount translates are no tensors of the checkpoint, but parts.
 */
static int check_names(const unshard_ckpt *ck,
		       const struct ck_model_names *names, struct ck_err *err)
{
	ck_auto_json json_t *config = NULL;
	struct ck_translation t;
	int ret =
		ck_model_config(&config, ck_ckpt_root(ck->ck), &ck->opts, err);

	if (ret)
		return ret;
	ret = ck_translate(&t, ck_ckpt_catalog(ck->ck), names, config,
			   &ck->opts, err);
	if (!ret && t.why.len)
		ret = ck_fail(err, EINVAL, "hf: %s", t.why.v);
	else if (!ret && t.rule.len)
		ret = ck_fail(err, EINVAL,
			      "hf: %s: by hf/ of a mount, or unshard export; "
			      "names=asis gives them as they are",
			      t.rule.v);
	ck_translation_free(&t);
	return ret;
}

/* As hf/ shows them; what it leaves out is left out. */
static int hf(const unshard_ckpt *ck, struct sink *to, struct ck_err *err)
{
	const struct ck_catalog *img = ck_ckpt_catalog(ck->ck);
	ck_auto_str struct ck_str out = { 0 };
	struct ck_model_names names = { 0 };
	uint32_t nr = 0;
	int ret;

	while (nr < img->nr_tensors && !img->tensors[nr].tree)
		nr++;
	ret = ck_model_names_make(&names, img, 0, nr, &ck->opts, err);
	if (!ret)
		ret = check_names(ck, &names, err);
	ck_str_puts(&out, "[");
	for (uint32_t i = 0; i < names.nr && !ret; i++) {
		const struct ck_merged_tensor *m = &names.v[i];

		if (ck_merged_refuses(img, m->tensor, m->name, m->name_len))
			continue;
		ck_str_puts(&out,
			    out.len > 1 ? ",\n {\"name\": " : "{\"name\": ");
		ck_str_json(&out, m->name, m->name_len);
		ck_str_fmt(&out, ", \"tensor\": %" PRIu32 "}", m->tensor);
	}
	ck_str_puts(&out, "]\n");
	ck_model_names_free(&names);
	return ret ? ret : put_str(to, &out);
}

static void add_path(struct ck_str *out, const struct ck_catalog *img,
		     uint32_t name, uint32_t path)
{
	unsigned depth = ck_nest_path_depth(img, path);
	const char *text = ck_catalog_str(img, name, NULL);

	ck_str_puts(out, out->len > 1 ? ",\n {\"name\": " : "{\"name\": ");
	ck_str_json(out, text, strlen(text));
	ck_str_puts(out, ", \"path\": [");
	for (unsigned i = 0; i < depth; i++) {
		struct ck_nest_part part =
			ck_nest_path_part(img, path, name, i);

		ck_str_puts(out, i ? ", " : "");
		if (part.key)
			ck_str_json(out, part.key, part.len);
		else
			ck_str_u64(out, part.index);
	}
	ck_str_puts(out, "]}");
}

/* Where they stood in the dicts and lists that were saved; else their names. */
static int paths(struct ck_ckpt *ck, struct sink *to)
{
	const struct ck_catalog *img = ck_ckpt_catalog(ck);
	ck_auto_str struct ck_str out = { 0 };

	ck_str_puts(&out, "[");
	for (uint32_t i = 0; i < img->nr_tensors; i++)
		add_path(&out, img, img->tensors[i].name, img->tensors[i].path);
	for (uint32_t i = 0; i < img->nr_objects; i++)
		add_path(&out, img, img->objects[i].name, img->objects[i].path);
	ck_str_puts(&out, "]\n");
	return put_str(to, &out);
}

static int save(struct ck_ckpt *ck, struct sink *to)
{
	const struct ck_catalog *img = ck_ckpt_catalog(ck);
	ck_auto_str struct ck_str out = { 0 };
	size_t len;
	const char *id = ck_catalog_str(img, img->save, &len);

	ck_str_puts(&out, "{\"id\": ");
	if (len)
		ck_str_json(&out, id, len);
	else
		ck_str_puts(&out, "null");
	ck_str_puts(&out, "}\n");
	return put_str(to, &out);
}

static int plan(struct ck_ckpt *ck, const char *name, struct sink *to,
		struct ck_err *err)
{
	struct ck_plan_sums sums;
	struct ck_target target;
	int ret = ck_target_find(ck_ckpt_catalog(ck), name, &target, err);

	if (!ret && target.tensor == CK_NONE)
		ret = ck_fail(err, EINVAL,
			      "%s: expected a tensor, found an object", name);
	return ret ? ret : ck_plan_json(ck, &target, pass_on, to, &sums, err);
}

int unshard_json(unshard_ckpt *ck, const char *what, unshard_put put, void *arg,
		 unshard_error *err)
{
	struct sink to = { put, arg, 0 };
	struct ck_err why = { 0 };
	int ret = ck_lib_alive(ck->ctx, err);

	if (ret)
		return ret;
	if (!strcmp(what, "catalog"))
		ret = catalog(ck->ck, &to);
	else if (!strcmp(what, "problems"))
		ret = problems(ck->ck, &to);
	else if (!strcmp(what, "metadata"))
		ret = metadata(ck->ck, &to, &why);
	else if (!strcmp(what, "hf"))
		ret = hf(ck, &to, &why);
	else if (!strcmp(what, "paths"))
		ret = paths(ck->ck, &to);
	else if (!strcmp(what, "save"))
		ret = save(ck->base, &to);
	else if (!strncmp(what, "plan ", 5))
		ret = plan(ck->ck, what + 5, &to, &why);
	else
		ret = ck_fail(&why, EINVAL,
			      "expected catalog, problems, metadata, hf, "
			      "paths, save or plan NAME, found \"%s\"",
			      what);
	if (to.ended)
		return ck_lib_put_ended(err, to.ended);
	if (ret < 0 && !why.code)
		ck_fail(&why, -ret, "%s: %s", what, strerror(-ret));
	return ret < 0 ? ck_lib_failed(err, ret, &why) : ret;
}
