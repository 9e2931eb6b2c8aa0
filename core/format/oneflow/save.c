/* SPDX-License-Identifier: Apache-2.0 */
/*
 * save.c - which of OneFlow's forms a save has, and its leaves
 */
#include "core/format/oneflow/oneflow.h"

#include "core/base/auto.h"
#include "core/base/check.h"
#include "core/base/suffix.h"
#include "core/container/torch_lost.h"
#include "core/container/torch_save.h"
#include "core/geom/catalog.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define META_MAX 65536 /* bytes of text; far more than any shape */
#define HEAD 4096
#define MLIR "model.mlir"
#define MLIR_MAX (UINT64_C(256) << 20)

/* These answer 1 for yes, 0 for no (what cannot be read too), or -ENOMEM. */
static int no_or_no_memory(int ret, struct ck_err *err)
{
	return ret == -ENOMEM ? ck_no_memory(err) : 0;
}

/* A pickle of OneFlow's: its envelope, or a class of OneFlow's near by. */
static int is_single(const struct ck_dir *dir, const char *path,
		     struct ck_err *err)
{
	ck_auto_source struct ck_source *s = NULL;
	unsigned char head[HEAD];
	size_t len;
	int ret = ck_dir_open(dir, path, &s, NULL);

	if (ret || s->st.st_size < 4)
		return no_or_no_memory(ret, err);
	len = (size_t)CK_MIN(s->st.st_size, (off_t)sizeof(head));
	ret = ck_source_read(s, head, len, 0, NULL);
	/* torch's old form speaks of its protocol_version too */
	if (ret || head[0] != 0x80 || head[1] < 2 || head[1] > 5 ||
	    ck_torch_save_magic(head, len))
		return no_or_no_memory(ret, err);
	return memmem(head, len, "oneflow", 7) ||
	       memmem(head, CK_MIN(len, (size_t)64), "protocol_version", 16);
}

/* A link to a folder that is not followed: whatever is asked for below it. */
static bool is_link(const struct ck_dir *dir, const char *path)
{
	ck_auto_source struct ck_source *s = NULL;

	return *path && ck_dir_open(dir, path, &s, NULL) == -ELOOP;
}

static int has(const struct ck_dir *dir, const char *path, const char *name,
	       struct ck_err *err)
{
	ck_auto_free char *full = ck_oneflow_below(path, name, strlen(name));
	ck_auto_source struct ck_source *s = NULL;
	int ret = full ? ck_dir_open(dir, full, &s, NULL) : -ENOMEM;

	if (ret == -ENOMEM)
		return no_or_no_memory(ret, err);
	return ret != -ENOENT && ret != -ENOTDIR &&
	       !(ret == -ELOOP && is_link(dir, path));
}

/* Whether @path/meta says a shape and a type as OneFlow's do. */
static int says_tensor(const struct ck_dir *dir, const char *path,
		       struct ck_err *err)
{
	ck_auto_free char *full = ck_oneflow_below(path, "meta", 4);
	ck_auto_free char *text = NULL;
	struct oneflow_meta meta;
	size_t len;
	int ret = full ? ck_dir_slurp(dir, full, META_MAX, &text, &len, NULL) :
			 -ENOMEM;

	if (ret)
		return no_or_no_memory(ret, err);
	return !ck_oneflow_meta_parse(&meta, text, len, NULL);
}

/* One whose bytes are lost is known by its meta; @done: by where it lies. */
static int is_tensor(const struct ck_dir *dir, const char *path, bool done,
		     struct ck_err *err)
{
	int meta = has(dir, path, "meta", err), out;

	if (meta < 0)
		return meta;
	out = has(dir, path, "out", err);
	if (out < 0)
		return out;
	return meta && !out ? says_tensor(dir, path, err) :
			      out && (meta || done);
}

/* What only a save by OneFlow has beside folders of tensors. */
static int is_done(const struct ck_dir *dir, const char *path,
		   struct ck_err *err)
{
	int ret = has(dir, path, "snapshot_done", err);

	return ret ? ret : has(dir, path, MLIR, err);
}

/* Folders of tensors, and none that is a save by itself. */
static int has_tensors(const struct ck_dir *dir, const char *path,
		       struct ck_err *err)
{
	ck_auto_dir_list struct ck_dir_list l = { 0 };
	int yes = 0, done, ret = ck_dir_list(dir, path, &l, NULL);

	if (ret)
		return no_or_no_memory(ret, err);
	done = is_done(dir, path, err);
	if (done < 0)
		return done;
	for (size_t i = 0; i < l.nr; i++) {
		if (!l.v[i].is_dir)
			continue;
		ret = has(dir, l.v[i].name, "pickled_data", err);
		if (ret)
			return ret < 0 ? ret : 0;
		if (!yes)
			yes = is_tensor(dir, l.v[i].name, done > 0, err);
		if (yes < 0)
			return yes;
	}
	return yes;
}

int ck_oneflow_kind_of(const struct ck_dir *dir, const char *path,
		       struct ck_err *err)
{
	int ret;

	if (!*path && dir->only) {
		ret = is_single(dir, dir->only, err);
		return ret > 0 ? ONEFLOW_SINGLE : ret;
	}
	ret = has(dir, path, "pickled_data", err);
	if (ret)
		return ret > 0 ? ONEFLOW_DIRECTORY : ret;
	ret = *path ? is_single(dir, path, err) : 0;
	if (ret)
		return ret > 0 ? ONEFLOW_SINGLE : ret;
	ret = has_tensors(dir, path, err);
	if (ret <= 0)
		return ret;
	ret = has(dir, path, MLIR, err);
	return ret < 0 ? ret : ret ? ONEFLOW_GRAPH : ONEFLOW_LEGACY;
}

/*
 * A leaf that is no tensor and calls what neither OneFlow nor Python's own
 * containers have.  Nothing is ever called, but a person wants to know.
 */
static const char *foreign(struct oneflow_save *s, ck_pv v)
{
	static const char *const known[] = { "oneflow", "numpy", "collections",
					     "builtins", "_codecs" };
	const char *module, *name;
	size_t module_len, len;

	if (ck_pv_kind(v) != CK_P_CALL ||
	    !ck_pv_global(s->p, ck_pv_callee(s->p, v), &module, &module_len,
			  &name, &len))
		return NULL;
	for (size_t i = 0; i < CK_ARRAY_LEN(known); i++)
		if (ck_pq_is(s->p, v, known[i], NULL))
			return NULL;
	snprintf(s->foreign, sizeof(s->foreign), "%.*s.%.*s",
		 (int)CK_MIN(module_len, 70), module, (int)CK_MIN(len, 70),
		 name);
	return s->foreign;
}

/* A tensor, or one that is refused where @ret is -EINVAL, for s->fault. */
static int give(struct oneflow_save *s, struct oneflow_leaf *leaf, int ret,
		struct ck_err *err)
{
	if (ret && ret != -EINVAL)
		return ck_fail(err, -ret, "%s", s->fault.msg);
	if (ret)
		leaf->x.fault = s->fault.msg;
	return ck_oneflow_tensor(s->ld, s->file, leaf, err);
}

/* ---- pickles ---- */

static int take_leaf(void *ctx, const struct ck_torch_leaf *leaf,
		     struct ck_err *err)
{
	struct oneflow_save *s = ctx;
	struct oneflow_leaf out = {
		.name = leaf->name,
		.name_len = leaf->name_len,
		.path = leaf->depth ? leaf->path : NULL,
		.depth = leaf->depth,
	};

	if (ck_oneflow_is_tensor(s->p, leaf->value))
		return give(s, &out,
			    ck_oneflow_node(s, leaf->value, &out, &s->fault),
			    err);
	out.x.src = s->src;
	out.len = s->pickle_len;
	out.foreign = foreign(s, leaf->value);
	return ck_oneflow_object(s->ld, &out, err);
}

/* What the user saved: under "data" of the envelope, else all of it. */
static ck_pv data_of(const struct ck_pickle *p)
{
	ck_pv root = ck_pickle_root(p), data, version;

	return ck_pv_key(p, root, "protocol_version", &version) &&
			       ck_pv_key(p, root, "data", &data) ?
		       data :
		       root;
}

static bool is_node(const void *ctx, const struct ck_pickle *p, ck_pv v)
{
	(void)ctx;
	return ck_oneflow_is_tensor(p, v);
}

static int read_source(void *ctx, void *buf, size_t len, uint64_t off,
		       struct ck_err *err)
{
	return ck_source_read(ctx, buf, len, off, err);
}

static int read_pickle(struct oneflow_save *s, const char *file,
		       struct ck_err *err)
{
	struct ck_builder *b = s->ld->a.b;
	ck_auto_source struct ck_source *src = NULL;
	ck_auto_pickle struct ck_pickle *p = NULL;
	struct ck_pickle_source in = { .read = read_source, .name = file };
	int ret = ck_dir_source(s->ld->a.dir, b, file, &s->src, &src, err);

	if (!ret && !src)
		ret = ck_fail(err, EINVAL, "%s: no such file", file);
	if (ret)
		return ret;
	in.ctx = src;
	in.size = (uint64_t)src->st.st_size;
	ret = ck_pickle_parse_source(&p, &in, &s->pickle_len, err);
	if (ret)
		return ret;
	s->p = p;
	ret = ck_oneflow_walk(p, data_of(p), take_leaf, s, err);
	return ret ? ret :
		     ck_torch_lost_report(
			     &(struct ck_torch_lost_in){ .p = p,
							 .from = data_of(p),
							 .b = b,
							 .file = file,
							 .keys_only = true,
							 .is_tensor = is_node },
			     err);
}

/* ---- folders ---- */

/* Whether a graph's folder holds what model.mlir says of it. */
static int check_listed(struct oneflow_save *s, const struct oneflow_leaf *leaf)
{
	const struct oneflow_variable *v =
		ck_oneflow_graph_find(s->graph, leaf->name, leaf->name_len);

	if (!v && (!s->graph->whole || !s->graph->names.nr))
		return 0; /* which is said for all */
	if (!v)
		return ck_builder_report_tensor(s->ld->a.b, CK_NOTE, leaf->name,
						leaf->name_len, NULL, &s->fault,
						MLIR " does not list it");
	if (v->shaped &&
	    (v->rank != leaf->x.rank ||
	     memcmp(v->shape, s->shape, v->rank * sizeof(*v->shape)) != 0))
		return ck_fail(&s->fault, EINVAL,
			       "its meta has another shape than " MLIR);
	if (v->type >= 0 && v->type != ONEFLOW_BFLOAT16 &&
	    ck_oneflow_dtype(v->type) != leaf->x.dtype)
		return ck_fail(&s->fault, EINVAL,
			       "its meta has another type than %s in " MLIR,
			       ck_oneflow_type_name(v->type));
	return 0;
}

static int take_folder(struct oneflow_save *s, const char *name,
		       struct ck_err *err)
{
	const struct ck_dir *dir = s->ld->a.dir;
	struct oneflow_leaf leaf = { 0 };
	size_t top = strlen(s->path);
	int meta, ret, out = has(dir, name, "out", err);

	if (out < 0)
		return out;
	meta = has(dir, name, "meta", err);
	if (meta < 0 || (!meta && !out))
		return meta; /* no tensor */
	leaf.name = name + top + (top ? 1 : 0);
	leaf.name_len = strlen(leaf.name);
	/* OneFlow passes over one without its bytes; here they are missing */
	ret = meta ? ck_oneflow_folder(s, leaf.name, leaf.name_len, &leaf,
				       &s->fault) :
		     ck_fail(&s->fault, EINVAL,
			     "there is no meta beside its out: releases "
			     "before 0.3 did not store shape and type");
	if (!ret && s->graph)
		ret = check_listed(s, &leaf);
	return give(s, &leaf, ret, err);
}

/* A variable of the graph that has no folder. */
static int take_lost(struct oneflow_save *s, size_t i, struct ck_err *err)
{
	const struct ck_dir *dir = s->ld->a.dir;
	const struct ck_strmap_key *name = &s->graph->names.v[i];
	const struct oneflow_leaf leaf = {
		.name = name->s,
		.name_len = name->len,
		.x.fault = MLIR " lists it, and its folder is not there",
	};
	ck_auto_free char *folder =
		ck_oneflow_below(s->path, name->s, name->len);
	int ret = 0;

	if (!folder)
		return ck_no_memory(err);
	/* no folder has a name with a NUL, or one that leads out */
	if (!memchr(name->s, 0, name->len) &&
	    ck_dir_name_ok(folder, strlen(folder))) {
		ret = has(dir, folder, "meta", err);
		if (!ret)
			ret = has(dir, folder, "out", err);
	}
	return ret ? CK_MIN(ret, 0) :
		     ck_oneflow_tensor(s->ld, s->file, &leaf, err);
}

static int report_graph(struct oneflow_save *s, struct ck_err *err)
{
	const struct oneflow_graph *g = s->graph;
	int ret = 0;

	for (size_t i = 0; !ret && i < g->names.nr; i++)
		ret = take_lost(s, i, err);
	if (ret || (g->whole && g->names.nr))
		return ret;
	return ck_builder_report_file(
		s->ld->a.b, CK_WARNING, MLIR, err,
		"%s: whether a tensor is missing cannot be "
		"told",
		g->whole ? "it lists no variable" : "it ends in the middle");
}

/* "tensor_12": as flow.save() calls the folders that pickled_data names. */
static bool is_numbered(const char *path)
{
	const char *name = ck_base_name(path);

	return !strncmp(name, "tensor_", 7) && name[7] &&
	       !name[7 + strspn(name + 7, "0123456789")];
}

/* *@numbered: all are called as those of which pickled_data has the names. */
static int read_folders(struct oneflow_save *s, bool *numbered,
			struct ck_err *err)
{
	ck_auto_dir_list struct ck_dir_list l = { 0 };
	int ret = ck_dir_list(s->ld->a.dir, s->path, &l, err);

	*numbered = true;
	for (size_t i = 0; !ret && i < l.nr; i++) {
		if (!l.v[i].is_dir)
			continue;
		ret = take_folder(s, l.v[i].name, err);
		*numbered &= is_numbered(l.v[i].name);
	}
	return ret;
}

static int read_legacy(struct oneflow_save *s, struct ck_err *err)
{
	bool numbered;
	int ret = read_folders(s, &numbered, err);

	if (!ret)
		ret = has(s->ld->a.dir, s->path, "snapshot_done", err);
	if (ret)
		return CK_MIN(ret, 0);
	return ck_builder_report_file(
		s->ld->a.b, numbered ? CK_ERROR : CK_WARNING, NULL, err,
		"%s%s%s", s->path, *s->path ? ": " : "",
		numbered ?
			"no pickled_data, which has the tensors' names: they are shown by the names of their folders" :
			"no snapshot_done: the save was not finished");
}

static int read_graph(struct oneflow_save *s, struct ck_err *err)
{
	ck_auto_free char *path = ck_oneflow_below(s->path, MLIR, strlen(MLIR));
	ck_auto_free char *text = NULL;
	ck_auto_oneflow_graph struct oneflow_graph g = { 0 };
	bool numbered;
	size_t len;
	int ret;

	if (!path)
		return ck_no_memory(err);
	ret = ck_dir_slurp(s->ld->a.dir, path, MLIR_MAX, &text, &len, err);
	if (!ret)
		ret = ck_oneflow_graph_read(&g, text, len, err);
	if (ret)
		return ret;
	s->graph = &g;
	ret = read_folders(s, &numbered, err);
	return ret ? ret : report_graph(s, err);
}

int ck_oneflow_save_read(struct oneflow_load *ld, uint32_t file,
			 const char *path, struct ck_err *err)
{
	const struct ck_dir *dir = ld->a.dir;
	struct oneflow_save s = { .ld = ld, .file = file, .path = path };
	ck_auto_free char *data = NULL;
	int kind = ck_oneflow_kind_of(dir, path, err);

	switch (kind) {
	case ONEFLOW_SINGLE:
		return read_pickle(&s, *path ? path : dir->only, err);
	case ONEFLOW_DIRECTORY:
		data = ck_oneflow_below(path, "pickled_data", 12);
		return data ? read_pickle(&s, data, err) : ck_no_memory(err);
	case ONEFLOW_LEGACY:
		return read_legacy(&s, err);
	case ONEFLOW_GRAPH:
		return read_graph(&s, err);
	case ONEFLOW_NONE:
		return ck_fail(err, EINVAL, "%s: no save by OneFlow",
			       *path ? path : dir->path);
	default:
		return kind;
	}
}
