/* SPDX-License-Identifier: Apache-2.0 */
/*
 * metadata.c - the __metadata__ of a merged safetensors file
 */
#include "core/view/metadata.h"

#include "core/base/auto.h"
#include "core/base/limits.h"
#include "core/parse/json.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define OBJECT_NAME "__metadata__"

/* Keys that PyTorch's writer of shards puts there; wrong for a whole file. */
static bool about_shards(const char *key)
{
	return !strcmp(key, "DCP_SHARDING_INFO") || !strcmp(key, "DCP_VERSION");
}

static void merge(json_t *into, const json_t *from)
{
	const char *key;
	json_t *value;

	json_object_foreach((json_t *)from, key,
			    value) if (json_is_string(value) &&
				       !about_shards(key) &&
				       !json_object_get(into, key))
		json_object_set(into, key, value);
}

/* Whether the file may be read the next time, as it is. */
static bool may_pass(int ret)
{
	return ret == -ENOMEM || ret == -EMFILE || ret == -ENFILE ||
	       ret == -EAGAIN || ret == -EINTR;
}

static int leave_out(const struct ck_view *v, const struct ck_object *o,
		     const struct ck_err *why, struct ck_err *err)
{
	ck_auto_str struct ck_str text = { 0 };

	ck_str_fmt(&text, "%s is left out of its __metadata__: %s",
		   ck_catalog_str(v->img, o->name, NULL), why->msg);
	if (text.failed)
		return ck_no_memory(err);
	ck_view_warn(v, text.v);
	return 0;
}

/* @v: who goes without what cannot be read; NULL: nobody does. */
static int merge_object(struct ck_ckpt *ck, uint32_t i, json_t *into,
			const struct ck_view *v, struct ck_err *err)
{
	const struct ck_object *o = &ck_ckpt_catalog(ck)->objects[i];
	ck_auto_free char *text = NULL;
	ck_auto_json json_t *from = NULL;
	struct ck_err why = { 0 };
	int ret;

	if (o->len > CK_MAX_HEADER)
		return 0;
	text = malloc(o->len + 1);
	if (!text)
		return ck_no_memory(err);
	ret = ck_ckpt_read_object(ck, i, text, o->len, 0, &why);
	if (ret)
		return v && !may_pass(ret) ? leave_out(v, o, &why, err) :
					     ck_fail(err, -ret, "%s", why.msg);
	if (!ck_json_parse(&from, text, o->len, NULL) && json_is_object(from))
		merge(into, from);
	return 0;
}

static bool is_metadata(const struct ck_catalog *img, const struct ck_object *o)
{
	size_t len;
	const char *name = ck_catalog_str(img, o->name, &len);
	const size_t want = sizeof(OBJECT_NAME) - 1;

	/* "__metadata__", or "FILE/__metadata__" where there are several */
	return o->enc == CK_ENC_JSON && len >= want &&
	       !memcmp(name + len - want, OBJECT_NAME, want) &&
	       (len == want || name[len - want - 1] == '/');
}

static int make(struct ck_ckpt *ck, uint32_t tree, const struct ck_view *v,
		struct ck_str *out, struct ck_err *err)
{
	const struct ck_catalog *img = ck_ckpt_catalog(ck);
	ck_auto_json json_t *all = json_object();
	ck_auto_free char *text = NULL;
	int ret = 0;

	for (uint32_t i = 0; all && i < img->nr_objects && !ret; i++)
		if (img->objects[i].tree == tree &&
		    is_metadata(img, &img->objects[i]))
			ret = merge_object(ck, i, all, v, err);
	if (ret)
		return ret;
	if (all && v && !json_object_get(all, "format"))
		json_object_set_new(all, "format", json_string("pt"));
	text = all ? json_dumps(all, JSON_COMPACT) : NULL;
	if (!text)
		return ck_no_memory(err);
	ck_str_puts(out, text);
	return out->failed ? ck_no_memory(err) : 0;
}

int ck_metadata_make(struct ck_ckpt *ck, uint32_t tree, struct ck_str *out,
		     struct ck_err *err)
{
	return make(ck, tree, NULL, out, err);
}

int ck_metadata_of_view(const struct ck_view *v, struct ck_str *out,
			struct ck_err *err)
{
	return make(v->ck, v->tree, v, out, err);
}
