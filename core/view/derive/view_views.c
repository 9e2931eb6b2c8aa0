/* SPDX-License-Identifier: Apache-2.0 */
/*
 * view_views.c - views/NAME/: what -o views=FILE describes
 *
 *	views/NAME/model.safetensors     the tensors, see derive.h
 *	views/NAME/config.json, ...      as in hf/
 *
 * Each is worked out when somebody first looks at it.
 */
#include "core/view/derive/derived_file.h"
#include "core/view/extras.h"
#include "core/view/lazy.h"

#include "core/base/auto.h"
#include "core/base/check.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define NAME "views"
#define FILE_NAME "model.safetensors"

struct folder {
	const struct views *view;
	char name[256];
	const json_t *spec; /* in the document of its option */
	const char *path; /* of that */
	struct ck_lazy lazy;
	struct ck_err why; /* it could not be made */
};

struct views {
	struct ck_view base;
	const struct ck_opts *opts;
	json_t *doc[CK_VIEW_FOLDERS];
	uint32_t nr_docs, nr;
	struct folder folder[CK_VIEW_FOLDERS];
	struct ck_extras extras;
};

static void report_unused(const struct folder *f, const char *which)
{
	ck_auto_str struct ck_str s = { 0 };

	ck_str_fmt(&s, "%s: views.%s: fits no tensor: %s", f->path, f->name,
		   which);
	if (s.v)
		ck_view_leave_out(&f->view->base, CK_NONE, s.v);
}

static int make(struct ck_compose *out, void *ctx, struct ck_err *err)
{
	struct folder *f = ctx;
	const struct views *v = f->view;
	struct ck_derivation d;
	struct ck_err why = { 0 };
	int ret = ck_derive(&d, &v->base, f->spec, v->opts, &why);

	if (!ret)
		ret = ck_preset_fits(&d, json_object_get(f->spec, "preset"),
				     &v->extras, &why);
	if (!ret && !d.v.nr)
		ret = ck_fail(&why, EINVAL, "no tensor is left");
	if (!ret)
		ret = ck_derived_sort(&d, v->base.img, &why);
	if (!ret)
		ret = ck_derived_file(out, v->base.img, &d, 0, d.v.nr, NULL,
				      &why);
	if (!ret && d.unused.len)
		report_unused(f, d.unused.v);
	ck_derivation_free(&d);
	if (!ret)
		return 0;
	ck_fail(&f->why, -ret, "%s: views.%s: %s", f->path, f->name, why.msg);
	ck_view_leave_out(&v->base, CK_NONE, f->why.msg);
	return ck_fail(err, -ret, "%s", f->why.msg);
}

/* ---- folders ---- */

static struct folder *folder_at(const struct ck_view *base, uint32_t d)
{
	struct views *v = (struct views *)base;

	return d < v->nr ? &v->folder[d] : NULL;
}

static const struct ck_compose *file_of(const struct ck_view *base, uint32_t d,
					struct ck_err *err)
{
	struct folder *f = folder_at(base, d);

	return f ? ck_lazy_get(&f->lazy, err) : NULL;
}

static uint32_t nr_folders(const struct ck_view *base)
{
	return ((const struct views *)base)->nr;
}

static bool folder_name(const struct ck_view *base, uint32_t d, char name[256])
{
	const struct folder *f = folder_at(base, d);

	if (!f || !file_of(base, d, NULL))
		return false;
	memcpy(name, f->name, sizeof(f->name));
	return true;
}

static int find_folder(const struct ck_view *base, const char *name,
		       uint32_t *d, struct ck_err *err)
{
	const struct views *v = (const struct views *)base;

	for (*d = 0; *d < v->nr; (*d)++)
		if (!strcmp(v->folder[*d].name, name))
			break;
	if (*d == v->nr)
		return -ENOENT;
	if (file_of(base, *d, err))
		return 0;
	return ck_fail(err, EINVAL, "%s", v->folder[*d].why.msg);
}

static uint32_t nr_files(const struct ck_view *base, uint32_t d)
{
	return file_of(base, d, NULL) ?
		       1 + ((const struct views *)base)->extras.nr :
		       0;
}

static bool v_file(const struct ck_view *base, uint32_t i, struct ck_vfile *out)
{
	const struct views *v = (const struct views *)base;
	uint32_t k = i & ((1u << CK_VIEW_FOLDER_SHIFT) - 1);
	const struct ck_compose *c =
		file_of(base, i >> CK_VIEW_FOLDER_SHIFT, NULL);

	if (!c)
		return false;
	return k ? ck_extras_file(&v->extras, k - 1, out) :
		   ck_compose_vfile(c, out);
}

static void v_label(const struct ck_view *base, uint32_t i,
		    char name[CK_VIEW_NAME])
{
	const struct views *v = (const struct views *)base;
	uint32_t k = i & ((1u << CK_VIEW_FOLDER_SHIFT) - 1);

	snprintf(name, CK_VIEW_NAME, "%s",
		 k ? v->extras.v[k - 1].name : FILE_NAME);
}

static uint32_t find_file(const struct ck_view *base, uint32_t d,
			  const char *name, size_t len)
{
	uint32_t nr = nr_files(base, d);
	char label[CK_VIEW_NAME];

	for (uint32_t k = 0; k < nr; k++) {
		uint32_t i = d << CK_VIEW_FOLDER_SHIFT | k;

		v_label(base, i, label);
		if (strlen(label) == len && !memcmp(label, name, len))
			return i;
	}
	return CK_NONE;
}

static const struct ck_view_folder_ops folder_ops = {
	.nr = nr_folders,
	.nr_listed = nr_folders,
	.name = folder_name,
	.find = find_folder,
	.nr_files = nr_files,
	.find_file = find_file,
};

/* ---- files ---- */

static uint32_t v_nr(const struct ck_view *base)
{
	return nr_folders(base) << CK_VIEW_FOLDER_SHIFT;
}

static void v_at(const struct ck_view *base, uint32_t i, uint64_t off,
		 struct ck_span *out)
{
	const struct views *v = (const struct views *)base;
	uint32_t k = i & ((1u << CK_VIEW_FOLDER_SHIFT) - 1);
	const struct ck_compose *c =
		file_of(base, i >> CK_VIEW_FOLDER_SHIFT, NULL);

	out->len = 0;
	if (c && k)
		ck_extras_at(&v->extras, k - 1, off, out);
	else if (c)
		ck_compose_at(c, off, out);
}

static int v_made(const struct ck_view *base, uint32_t i, void *buf,
		  uint64_t len, uint64_t off, struct ck_err *err)
{
	const struct views *v = (const struct views *)base;
	uint32_t k = i & ((1u << CK_VIEW_FOLDER_SHIFT) - 1);
	const struct ck_compose *c =
		file_of(base, i >> CK_VIEW_FOLDER_SHIFT, err);

	if (!c)
		return -EIO;
	return k ? ck_extras_made(&v->extras, k - 1, buf, len, off, err) :
		   ck_compose_made(c, buf, len, off, err);
}

/* ---- the view ---- */

static void v_close(struct ck_view *base)
{
	struct views *v = (struct views *)base;

	for (uint32_t i = 0; i < v->nr; i++)
		ck_lazy_free(&v->folder[i].lazy);
	for (uint32_t i = 0; i < v->nr_docs; i++)
		json_decref(v->doc[i]);
	ck_extras_free(&v->extras);
	free(v);
}

static int add_folder(struct views *v, const char *path, void *it,
		      struct ck_err *err)
{
	struct folder *f = &v->folder[v->nr];
	const char *name = json_object_iter_key(it);
	size_t len = json_object_iter_key_len(it);
	int ret;

	if (!len || len > 255 || strlen(name) != len || strchr(name, '/') ||
	    !strcmp(name, ".") || !strcmp(name, ".."))
		return ck_fail(err, EINVAL,
			       "%s: views: \"%.60s\" is no name for a folder",
			       path, name);
	for (uint32_t i = 0; i < v->nr; i++)
		if (!strcmp(v->folder[i].name, name))
			return ck_fail(err, EINVAL,
				       "%s: views: \"%.60s\" is there twice",
				       path, name);
	if (v->nr == CK_VIEW_FOLDERS)
		return ck_fail(err, EINVAL, "%s: views: more than %d", path,
			       CK_VIEW_FOLDERS);
	f->view = v;
	memcpy(f->name, name, len + 1);
	f->spec = json_object_iter_value(it);
	f->path = path;
	ck_lazy_init(&f->lazy, make, f);
	v->nr++;
	ret = ck_derive_check(f->spec, err);
	return ret ? ck_wrap(err, ret, "%s: views.%s", path, name) : 0;
}

static int take_doc(struct views *v, size_t i, const char *path,
		    struct ck_err *err)
{
	const char *bytes;
	char found[CK_JSON_WHAT];
	json_t *doc, *views;
	size_t len;
	int ret;

	bytes = ck_opts_bytes(v->opts, NAME, i, &len);
	if (!bytes)
		return ck_fail(err, ENOENT, "-o " NAME "=%s: no such file",
			       path);
	if (v->nr_docs == CK_VIEW_FOLDERS)
		return ck_fail(err, EINVAL, "-o " NAME "=: more than %d",
			       CK_VIEW_FOLDERS);
	ret = ck_json_parse(&v->doc[v->nr_docs], bytes, len, err);
	if (ret)
		return ck_wrap(err, ret, "%s", path);
	doc = v->doc[v->nr_docs++];
	views = json_object_get(doc, "views");
	if (!json_is_object(doc) || !views || json_object_size(doc) != 1)
		return ck_fail(
			err, EINVAL,
			"%s: expected {\"views\": {NAME: ...}}, found %s", path,
			json_is_object(doc) ? "other members" :
					      ck_json_what(doc, found));
	if (!json_is_object(views))
		return ck_fail(err, EINVAL,
			       "%s: \"views\": expected an object, found %s",
			       path, ck_json_what(views, found));
	for (void *it = json_object_iter(views); it && !ret;
	     it = json_object_iter_next(views, it))
		ret = add_folder(v, path, it, err);
	return ret;
}

static int v_open(struct ck_view **out, const struct ck_view *base,
		  const struct ck_opts *opts, struct ck_err *err)
{
	struct views *v;
	const char *path;
	int ret;

	if (!opts || !ck_opts_nth(opts, NAME, 0))
		return 0;
	v = calloc(1, sizeof(*v));
	if (!v)
		return ck_no_memory(err);
	v->base = *base;
	v->opts = opts;
	ret = ck_extras_take(&v->extras, ck_ckpt_root(base->ck), opts, err);
	for (size_t i = 0; !ret && (path = ck_opts_nth(opts, NAME, i)); i++)
		ret = take_doc(v, i, path, err);
	if (ret)
		v_close(&v->base);
	else
		*out = &v->base;
	return ret;
}

const struct ck_view_ops ck_view_views = {
	.name = NAME,
	.is_dir = true,
	.open = v_open,
	.close = v_close,
	.nr = v_nr,
	.file = v_file,
	.label = v_label,
	.find = ck_view_find_none,
	.at = v_at,
	.made = v_made,
	.folders = &folder_ops,
	.nests = true,
};
