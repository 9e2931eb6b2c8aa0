/* SPDX-License-Identifier: Apache-2.0 */
/*
 * view_hf.c - hf/: a directory that from_pretrained opens
 *
 *   model.safetensors                        where one file holds it all, else
 *   model-00001-of-0000N.safetensors ...     at most -o hf-shard-size= each
 *   model.safetensors.index.json             which name is in which file; of one
 *                                            file where the source has one too
 *   config.json, tokenizer.json, ...         as found beside the checkpoint, or
 *                                            in -o config=DIR
 *
 * Only the model's tensors, under the model's own names: model_names.h.
 */
#include "core/view/derive/derived_file.h"
#include "core/view/extras.h"
#include "core/view/model_names.h"
#include "core/view/lazy.h"
#include "core/view/metadata.h"
#include "core/view/translate/translate.h"
#include "core/view/view.h"

#include "core/base/auto.h"
#include "core/base/check.h"
#include "core/base/number.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define INDEX "model.safetensors.index.json"
#define SHARD_SIZE UINT64_C(5000000000) /* what huggingface_hub writes */
struct hf_view {
	struct ck_view base;
	struct ck_model_names names;
	struct ck_translation made; /* where it has a rule: in place of names */
	uint64_t shard_size;
	struct ck_extras extras;
	/* made at first look: */
	struct ck_lazy lazy;
	struct ck_compose *file; /* shards, then the index */
	uint32_t nr_file, nr_shards;
};

static bool is_made(const struct hf_view *v)
{
	return v->made.rule.len;
}

/* How many tensors it shows. */
static uint32_t nr_shown(const struct hf_view *v)
{
	return is_made(v) ? (uint32_t)v->made.d.v.nr : v->names.nr;
}

/* The @i-th: its name, and its bytes. */
static const char *shown(const struct hf_view *v, uint32_t i, size_t *len,
			 uint64_t *size)
{
	const struct ck_merged_tensor *m = &v->names.v[i];

	if (is_made(v)) {
		const struct ck_derived *t = &v->made.d.v.v[i];

		*len = strlen(t->name);
		*size = ck_derived_size(t);
		return t->name;
	}
	*len = m->name_len;
	*size = v->base.img->tensors[m->tensor].size;
	return m->name;
}

/* At most how many bytes of header it takes, generously. */
static uint64_t header_of(const struct hf_view *v, uint32_t i)
{
	struct ck_merged_tensor m;

	if (!is_made(v))
		return ck_merged_entry_max(v->base.img, &v->names.v[i]);
	m.tensor = v->made.d.v.v[i].origin;
	m.name = v->made.d.v.v[i].name;
	m.name_len = strlen(m.name);
	return ck_merged_entry_max(v->base.img, &m);
}

/* How many of them from @from on go into one shard: at least one. */
static uint32_t shard_end(const struct hf_view *v, uint32_t from)
{
	uint64_t size = 0, header = 0;
	uint32_t i = from;

	for (; i < nr_shown(v); i++) {
		uint64_t own;
		size_t len;

		shown(v, i, &len, &own);
		header += header_of(v, i);
		if (i > from &&
		    (own > v->shard_size - size || header > CK_MERGED_ROOM))
			break;
		size = CK_MIN(size + own, v->shard_size);
	}
	return i;
}

static void shard_name(const struct hf_view *v, uint32_t i, char out[64])
{
	if (v->nr_shards == 1)
		snprintf(out, 64, "model.safetensors");
	else
		snprintf(out, 64, "model-%05u-of-%05u.safetensors", i + 1,
			 v->nr_shards);
}

static int make_shard(struct hf_view *v, struct ck_compose *out,
		      const struct ck_str *metadata, uint32_t from, uint32_t nr,
		      struct ck_err *err)
{
	struct ck_merged_in in = { .img = v->base.img,
				   .metadata = metadata->v,
				   .metadata_len = metadata->len,
				   .v = v->names.v + from,
				   .nr = nr };

	return is_made(v) ? ck_derived_file(out, v->base.img, &v->made.d, from,
					    nr, metadata, err) :
			    ck_merged_make(out, &in, err);
}

static int make_shards(struct hf_view *v, struct ck_str *map, uint64_t *total,
		       struct ck_err *err)
{
	ck_auto_str struct ck_str metadata = { 0 };
	int ret = ck_metadata_of_view(&v->base, &metadata, err);
	uint32_t from = 0;

	for (uint32_t i = 0; i < v->nr_shards && !ret; i++) {
		uint32_t end = shard_end(v, from);
		char file[64];

		ret = make_shard(v, &v->file[i], &metadata, from, end - from,
				 err);
		shard_name(v, i, file);
		for (; from < end; from++) {
			uint64_t size;
			size_t len;
			const char *name = shown(v, from, &len, &size);

			ck_str_puts(map, map->len ? ",\n    " : "    ");
			ck_str_json(map, name, len);
			ck_str_fmt(map, ": \"%s\"", file);
			*total += size;
		}
	}
	return ret;
}

/* Some loaders of one file, as torch's of quantized weights, look into it first. */
static bool source_has_index(const struct ck_catalog *img)
{
	for (uint32_t i = 0; i < img->nr_indexes; i++) {
		const char *name =
			ck_catalog_str(img, img->indexes[i].name, NULL);
		const char *slash = strrchr(name, '/');

		if (!strcmp(slash ? slash + 1 : name, INDEX))
			return true;
	}
	return false;
}

static int make_all(struct ck_compose *unused, void *ctx, struct ck_err *err)
{
	ck_auto_str struct ck_str map = { 0 }, index = { 0 };
	struct hf_view *v = ctx;
	struct ck_merged_in all = { .img = v->base.img,
				    .v = v->names.v,
				    .nr = v->names.nr };
	uint64_t total = 0;
	int ret = 0;

	(void)unused;
	if (is_made(v))
		ret = ck_derived_sort(&v->made.d, v->base.img, err);
	else
		ck_merged_sort(&all);
	if (ret)
		return ret;
	for (uint32_t from = 0; from < nr_shown(v); v->nr_shards++)
		from = shard_end(v, from);
	v->nr_file = v->nr_shards +
		     (v->nr_shards > 1 || source_has_index(v->base.img));
	v->file = calloc(v->nr_file, sizeof(*v->file));
	if (!v->file)
		return ck_no_memory(err);
	for (uint32_t i = 0; i < v->nr_file; i++)
		v->file[i] = (struct ck_compose)CK_COMPOSE_INIT;
	ret = make_shards(v, &map, &total, err);
	if (ret || v->nr_file == v->nr_shards)
		return ret;
	ck_str_fmt(&index,
		   "{\n  \"metadata\": {\"total_size\": %" PRIu64
		   "},\n  \"weight_map\": {\n",
		   total);
	ck_str_add(&index, map.v, map.len);
	ck_str_puts(&index, "\n  }\n}\n");
	v->file[v->nr_shards].failed = map.failed || index.failed;
	ck_compose_bytes(&v->file[v->nr_shards], index.v, index.len);
	return ck_compose_done(&v->file[v->nr_shards], err);
}

/* The shards and the index; 0 where they cannot be made. */
static uint32_t files(const struct ck_view *base)
{
	struct hf_view *v = (struct hf_view *)base;

	return ck_lazy_get(&v->lazy, NULL) ? v->nr_file : 0;
}

static void hf_close(struct ck_view *base)
{
	struct hf_view *v = (struct hf_view *)base;

	for (uint32_t i = 0; v->file && i < v->nr_file; i++)
		ck_compose_free(&v->file[i]);
	free(v->file);
	ck_extras_free(&v->extras);
	ck_lazy_free(&v->lazy);
	ck_model_names_free(&v->names);
	ck_translation_free(&v->made);
	free(v);
}

static void leave_out_clashes(struct hf_view *v)
{
	const struct ck_catalog *img = v->base.img;

	for (uint32_t i = 0; i < v->names.nr_clash; i++) {
		const struct ck_model_clash *c = &v->names.clash[i];
		char why[512];

		snprintf(
			why, sizeof(why),
			"%.200s would have the same name once prefixes are taken off",
			ck_catalog_str(img, img->tensors[c->other].name, NULL));
		ck_view_leave_out(&v->base, c->tensor, why);
	}
}

static void leave_out_unholdable(struct hf_view *v)
{
	uint32_t kept = 0;

	for (uint32_t i = 0; i < v->names.nr; i++) {
		const struct ck_merged_tensor *m = &v->names.v[i];
		const char *why = ck_merged_refuses(v->base.img, m->tensor,
						    m->name, m->name_len);

		if (why)
			ck_view_leave_out(&v->base, m->tensor, why);
		else
			v->names.v[kept++] = *m;
	}
	v->names.nr = kept;
}

/* Looked for in vain, it should say why it is not there. */
static void report_none(const struct hf_view *v)
{
	if (v->base.nr && !v->names.nr && !v->names.nr_clash)
		ck_view_not_meant(
			&v->base, CK_NONE,
			"none of its tensors is a model's: by their "
			"keys and names all are optimizer or trainer state");
}

/* Options that change nothing are more likely mistakes than wishes. */
static void report_idle(const struct hf_view *v, const struct ck_opts *opts)
{
	const char *config = ck_opts_get(opts, "config");
	char why[512];

	if (v->names.idle) {
		snprintf(why, sizeof(why),
			 "-o strip-prefix=%.200s: no tensor's name begins with "
			 "it, so nothing was taken off",
			 ck_opts_get(opts, "strip-prefix"));
		ck_view_leave_out(&v->base, CK_NONE, why);
	}
	if (config && !v->extras.nr) {
		snprintf(why, sizeof(why),
			 "-o config=%.400s: no config.json, tokenizer or other "
			 "file that loaders look for is there",
			 config);
		ck_view_leave_out(&v->base, CK_NONE, why);
	}
}

/* Names that are somebody else's load as noise: then there is no view. */
static int translate(struct hf_view *v, const struct ck_opts *opts,
		     struct ck_err *err)
{
	ck_auto_json json_t *config = ck_extras_config(&v->extras);
	int ret = ck_translate(&v->made, v->base.img, &v->names, config, opts,
			       err);

	if (!ret && v->made.why.len) {
		ck_view_warn(&v->base, v->made.why.v);
		v->names.nr = 0;
	} else if (!ret && v->made.unproven) {
		ck_view_warn(&v->base, "names of its tensors are translated by "
				       "rules that nobody has compared models "
				       "of this architecture by");
	}
	return ret;
}

static int fill(struct hf_view *v, const struct ck_opts *opts,
		struct ck_err *err)
{
	int ret = ck_model_names_make(&v->names, v->base.img, v->base.first,
				      v->base.nr, opts, err);

	if (ret)
		return ret;
	v->shard_size = ck_opts_size(opts, "hf-shard-size", SHARD_SIZE);
	report_none(v);
	leave_out_clashes(v);
	leave_out_unholdable(v);
	ret = ck_extras_take(&v->extras, ck_ckpt_root(v->base.ck), opts, err);
	if (!ret)
		ret = translate(v, opts, err);
	report_idle(v, opts);
	ck_extras_report(&v->extras, &v->base);
	return ret;
}

static int hf_open(struct ck_view **out, const struct ck_view *base,
		   const struct ck_opts *opts, struct ck_err *err)
{
	struct hf_view *v = calloc(1, sizeof(*v));
	int ret;

	if (!v)
		return ck_no_memory(err);
	v->base = *base;
	ck_lazy_init(&v->lazy, make_all, v);
	ret = fill(v, opts, err);
	if (ret || !nr_shown(v)) {
		hf_close(&v->base);
		return ret;
	}
	*out = &v->base;
	return 0;
}

static uint32_t hf_nr(const struct ck_view *base)
{
	return files(base) + ((const struct hf_view *)base)->extras.nr;
}

static bool hf_file(const struct ck_view *base, uint32_t i,
		    struct ck_vfile *out)
{
	const struct hf_view *v = (const struct hf_view *)base;
	uint32_t nr = files(base);

	return i < nr ? ck_compose_vfile(&v->file[i], out) :
			ck_extras_file(&v->extras, i - nr, out);
}

static void hf_label(const struct ck_view *base, uint32_t i,
		     char name[CK_VIEW_NAME])
{
	const struct hf_view *v = (const struct hf_view *)base;
	uint32_t nr = files(base);

	if (i < nr && i < v->nr_shards)
		shard_name(v, i, name);
	else
		snprintf(name, CK_VIEW_NAME, "%s",
			 i < nr ? INDEX : v->extras.v[i - nr].name);
}

static uint32_t hf_find(const struct ck_view *v, const char *name, size_t len)
{
	char label[CK_VIEW_NAME];

	for (uint32_t i = 0; i < hf_nr(v); i++) {
		hf_label(v, i, label);
		if (strlen(label) == len && !memcmp(label, name, len))
			return i;
	}
	return CK_NONE;
}

static void hf_at(const struct ck_view *base, uint32_t i, uint64_t off,
		  struct ck_span *out)
{
	const struct hf_view *v = (const struct hf_view *)base;
	uint32_t nr = files(base);

	if (i < nr)
		ck_compose_at(&v->file[i], off, out);
	else
		ck_extras_at(&v->extras, i - nr, off, out);
}

static int hf_made(const struct ck_view *base, uint32_t i, void *buf,
		   uint64_t len, uint64_t off, struct ck_err *err)
{
	const struct hf_view *v = (const struct hf_view *)base;
	uint32_t nr = files(base);

	if (i < nr)
		return ck_compose_made(&v->file[i], buf, len, off, err);
	return ck_extras_made(&v->extras, i - nr, buf, len, off, err);
}

const struct ck_view_ops ck_view_hf = {
	.name = "hf",
	.is_dir = true,
	.open = hf_open,
	.close = hf_close,
	.nr = hf_nr,
	.file = hf_file,
	.label = hf_label,
	.find = hf_find,
	.at = hf_at,
	.made = hf_made,
};
