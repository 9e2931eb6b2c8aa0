/* SPDX-License-Identifier: Apache-2.0 */
/*
 * file.c - which of OneFlow's forms a save has, and its leaves
 */
#include "core/base/auto.h"
#include "core/base/check.h"
#include "core/container/container.h"
#include "core/format/oneflow/file_priv.h"
#include "core/format/oneflow/graph.h"
#include "core/format/oneflow/meta.h"
#include "core/container/torch_lost.h"
#include "core/container/torch_save.h"
#include "core/geom/catalog.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

#define META_MAX 65536 /* bytes of text; far more than any shape */
#define HEAD 4096
#define MLIR "model.mlir"
#define MLIR_MAX (UINT64_C(256) << 20)

struct reading {
	struct ck_of_save save;
	ck_of_leaf_fn fn;
	void *ctx;
	uint64_t pickle_len;
	const struct ck_of_graph *graph; /* NULL: it is none */
	struct ck_err fault; /* of the leaf at hand */
	char foreign[160];
};

/* These answer 1 for yes, 0 for no (what cannot be read too), or -ENOMEM. */
static int no_or_no_memory(int ret, struct ck_err *err)
{
	return ret == -ENOMEM ? ck_fail(err, ENOMEM, "no memory to look") : 0;
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
	ck_auto_free char *full = ck_of_join(path, name, strlen(name));
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
	ck_auto_free char *full = ck_of_join(path, "meta", 4);
	ck_auto_free char *text = NULL;
	struct ck_of_meta meta;
	size_t len;
	int ret = full ? ck_dir_slurp(dir, full, META_MAX, &text, &len, NULL) :
			 -ENOMEM;

	if (ret)
		return no_or_no_memory(ret, err);
	return !ck_of_meta_parse(&meta, text, len, NULL);
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

int ck_of_kind_of(const struct ck_dir *dir, const char *path,
		  struct ck_err *err)
{
	int ret;

	if (!*path && dir->only) {
		ret = is_single(dir, dir->only, err);
		return ret > 0 ? CK_OF_SINGLE : ret;
	}
	ret = has(dir, path, "pickled_data", err);
	if (ret)
		return ret > 0 ? CK_OF_DIRECTORY : ret;
	ret = *path ? is_single(dir, path, err) : 0;
	if (ret)
		return ret > 0 ? CK_OF_SINGLE : ret;
	ret = has_tensors(dir, path, err);
	if (ret <= 0)
		return ret;
	ret = has(dir, path, MLIR, err);
	return ret < 0 ? ret : ret ? CK_OF_GRAPH : CK_OF_LEGACY;
}

/*
 * A leaf that is no tensor and calls what neither OneFlow nor Python's own
 * containers have.  Nothing is ever called, but a person wants to know.
 */
static const char *foreign(struct reading *r, ck_pv v)
{
	static const char *const known[] = { "oneflow", "numpy", "collections",
					     "builtins", "_codecs" };
	const struct ck_pickle *p = r->save.p;
	const char *module, *name;
	size_t module_len, len;

	if (ck_pv_kind(v) != CK_P_CALL ||
	    !ck_pv_global(p, ck_pv_callee(p, v), &module, &module_len, &name,
			  &len))
		return NULL;
	for (size_t i = 0; i < CK_ARRAY_LEN(known); i++) {
		size_t n = strlen(known[i]);

		if (module_len >= n && !memcmp(module, known[i], n) &&
		    (module_len == n || module[n] == '.'))
			return NULL;
	}
	snprintf(r->foreign, sizeof(r->foreign), "%.*s.%.*s",
		 (int)CK_MIN(module_len, 70), module, (int)CK_MIN(len, 70),
		 name);
	return r->foreign;
}

static int take_leaf(void *ctx, const struct ck_torch_leaf *leaf,
		     struct ck_err *err)
{
	struct reading *r = ctx;
	struct ck_of_leaf out = {
		.name = leaf->name,
		.name_len = leaf->name_len,
		.path = leaf->depth ? leaf->path : NULL,
		.depth = leaf->depth,
		.is_tensor = ck_of_is_tensor(r->save.p, leaf->value),
	};
	int ret;

	if (!out.is_tensor) {
		out.src = r->save.nr;
		out.enc = CK_ENC_PICKLE;
		out.len = r->pickle_len;
		out.foreign = foreign(r, leaf->value);
		return r->fn(r->ctx, &out, err);
	}
	ret = ck_of_node(&r->save, leaf->value, &out, &r->fault);
	if (ret < 0 && ret != -EINVAL)
		return ck_fail(err, -ret, "%s", r->fault.msg);
	out.fault = ret < 0 ? r->fault.msg : NULL;
	return r->fn(r->ctx, &out, err);
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
	return ck_of_is_tensor(p, v);
}

static int read_source(void *ctx, void *buf, size_t len, uint64_t off,
		       struct ck_err *err)
{
	return ck_source_read(ctx, buf, len, off, err);
}

static int load_pickle(struct reading *r, const char *file, struct ck_err *err)
{
	ck_auto_source struct ck_source *s = NULL;
	ck_auto_pickle struct ck_pickle *p = NULL;
	struct ck_pickle_source in = { .read = read_source, .name = file };
	int ret = ck_dir_source(r->save.dir, r->save.b, file, &r->save.nr, &s,
				err);

	if (!ret && !s)
		ret = ck_fail(err, EINVAL, "%s: no such file", file);
	if (ret)
		return ret;
	in.ctx = s;
	in.size = (uint64_t)s->st.st_size;
	ret = ck_pickle_parse_source(&p, &in, &r->pickle_len, err);
	if (ret)
		return ret;
	r->save.p = p;
	r->save.src = s;
	ret = ck_of_walk(p, data_of(p), take_leaf, r, err);
	return ret ? ret :
		     ck_torch_lost_report(
			     &(struct ck_torch_lost_in){ .p = p,
							 .from = data_of(p),
							 .b = r->save.b,
							 .file = file,
							 .keys_only = true,
							 .is_tensor = is_node },
			     err);
}

/* Whether a graph's folder holds what model.mlir says of it. */
static int check_listed(struct reading *r, const struct ck_of_leaf *leaf,
			struct ck_err *err)
{
	const struct ck_problem_in extra = { .severity = CK_NOTE,
					     .tensor = leaf->name,
					     .tensor_len = leaf->name_len };
	const struct ck_of_variable *v =
		ck_of_graph_find(r->graph, leaf->name, leaf->name_len);
	int ret;

	if (!v && (!r->graph->whole || !r->graph->names.nr))
		return 0; /* which is said for all */
	if (!v) {
		ret = ck_builder_problem(r->save.b, &extra, err,
					 MLIR " does not list it");
		return ret ? ck_fail(&r->fault, -ret, "%s", err->msg) : 0;
	}
	if (v->shaped &&
	    (v->rank != leaf->rank ||
	     memcmp(v->shape, leaf->shape, v->rank * sizeof(*v->shape)) != 0))
		return ck_fail(&r->fault, EINVAL,
			       "its meta has another shape than " MLIR);
	if (v->type >= 0 && v->type != CK_OF_BFLOAT16 &&
	    ck_of_dtype(v->type) != leaf->dtype)
		return ck_fail(&r->fault, EINVAL,
			       "its meta has another type than %s in " MLIR,
			       ck_of_type_name(v->type));
	return 0;
}

static int take_folder(struct reading *r, const char *name, struct ck_err *err)
{
	struct ck_of_leaf leaf = { .is_tensor = true };
	size_t top = strlen(r->save.path);
	int ret, out;

	leaf.name = name + top + (top ? 1 : 0);
	leaf.name_len = strlen(leaf.name);
	out = has(r->save.dir, name, "out", err);
	if (out < 0)
		return out;
	ret = has(r->save.dir, name, "meta", err);
	if (ret < 0 || (!ret && !out))
		return ret; /* no tensor */
	/* OneFlow passes over one without its bytes; here they are missing */
	if (ret) {
		ret = ck_of_folder(&r->save, leaf.name, leaf.name_len, &leaf,
				   &r->fault);
	} else {
		ret = ck_fail(&r->fault, EINVAL,
			      "there is no meta beside its out: releases "
			      "before 0.3 did not store shape and type");
	}
	if (!ret && r->graph)
		ret = check_listed(r, &leaf, err);
	if (ret < 0 && ret != -EINVAL)
		return ck_fail(err, -ret, "%s", r->fault.msg);
	leaf.fault = ret < 0 ? r->fault.msg : NULL;
	return r->fn(r->ctx, &leaf, err);
}

/* "tensor_12": as flow.save() calls the folders that pickled_data names. */
static bool is_numbered(const char *path)
{
	const char *slash = strrchr(path, '/');
	const char *name = slash ? slash + 1 : path;

	return !strncmp(name, "tensor_", 7) && name[7] &&
	       !name[7 + strspn(name + 7, "0123456789")];
}

/* A variable of the graph that has no folder. */
static int take_lost(struct reading *r, size_t i, struct ck_err *err)
{
	const struct ck_strmap_key *name = &r->graph->names.v[i];
	const struct ck_of_leaf leaf = {
		.name = name->s,
		.name_len = name->len,
		.is_tensor = true,
		.fault = MLIR " lists it, and its folder is not there",
	};
	ck_auto_free char *folder =
		ck_of_join(r->save.path, name->s, name->len);
	int ret = 0;

	if (!folder)
		return ck_fail(err, ENOMEM, "no memory for a name");
	/* no folder has a name with a NUL, or one that leads out */
	if (!memchr(name->s, 0, name->len) &&
	    ck_dir_name_ok(folder, strlen(folder))) {
		ret = has(r->save.dir, folder, "meta", err);
		if (!ret)
			ret = has(r->save.dir, folder, "out", err);
	}
	return ret ? CK_MIN(ret, 0) : r->fn(r->ctx, &leaf, err);
}

static int say_graph(struct reading *r, struct ck_err *err)
{
	const struct ck_problem_in odd = { .severity = CK_WARNING,
					   .file = MLIR };
	const struct ck_of_graph *g = r->graph;
	int ret = 0;

	for (size_t i = 0; !ret && i < g->names.nr; i++)
		ret = take_lost(r, i, err);
	if (ret || (g->whole && g->names.nr))
		return ret;
	return ck_builder_problem(r->save.b, &odd, err,
				  "%s: whether a tensor is missing cannot be "
				  "told",
				  g->whole ? "it lists no variable" :
					     "it ends in the middle");
}

static int load_folders(struct reading *r, int kind, struct ck_err *err);

static int load_graph(struct reading *r, struct ck_err *err)
{
	ck_auto_free char *path = ck_of_join(r->save.path, MLIR, strlen(MLIR));
	ck_auto_free char *text = NULL;
	ck_auto_of_graph struct ck_of_graph g = { 0 };
	size_t len;
	int ret;

	if (!path)
		return ck_fail(err, ENOMEM, "no memory for a name");
	ret = ck_dir_slurp(r->save.dir, path, MLIR_MAX, &text, &len, err);
	if (!ret)
		ret = ck_of_graph_read(&g, text, len, err);
	if (ret)
		return ret;
	r->graph = &g;
	ret = load_folders(r, CK_OF_GRAPH, err);
	if (!ret)
		ret = say_graph(r, err);
	r->graph = NULL;
	return ret;
}

static int load_folders(struct reading *r, int kind, struct ck_err *err)
{
	const struct ck_problem_in p = { .severity = CK_WARNING };
	const struct ck_problem_in lost = { .severity = CK_ERROR };
	ck_auto_dir_list struct ck_dir_list l = { 0 };
	int ret = ck_dir_list(r->save.dir, r->save.path, &l, err);
	bool numbered = true;

	for (size_t i = 0; !ret && i < l.nr; i++) {
		if (!l.v[i].is_dir)
			continue;
		ret = take_folder(r, l.v[i].name, err);
		numbered &= is_numbered(l.v[i].name);
	}
	if (ret || kind != CK_OF_LEGACY)
		return ret;
	ret = has(r->save.dir, r->save.path, "snapshot_done", err);
	if (ret)
		return ret < 0 ? ret : 0;
	if (numbered)
		return ck_builder_problem(
			r->save.b, &lost, err,
			"%s%sno pickled_data, which has the tensors' names: they are shown by the names of their folders",
			r->save.path, *r->save.path ? ": " : "");
	return ck_builder_problem(r->save.b, &p, err,
				  "%s%sno snapshot_done: the save was not "
				  "finished",
				  r->save.path, *r->save.path ? ": " : "");
}

static int load(struct reading *r, int kind, struct ck_err *err)
{
	const struct ck_of_save *s = &r->save;
	ck_auto_free char *file = NULL;

	switch (kind) {
	case CK_OF_SINGLE:
		return load_pickle(r, *s->path ? s->path : s->dir->only, err);
	case CK_OF_DIRECTORY:
		file = ck_of_join(s->path, "pickled_data", 12);
		return file ? load_pickle(r, file, err) :
			      ck_fail(err, ENOMEM, "no memory for a name");
	case CK_OF_LEGACY:
		return load_folders(r, kind, err);
	case CK_OF_GRAPH:
		return load_graph(r, err);
	default:
		return ck_fail(err, EINVAL, "%s: no save by OneFlow",
			       *s->path ? s->path : s->dir->path);
	}
}

int ck_of_load(const struct ck_dir *dir, struct ck_builder *b, const char *path,
	       ck_of_leaf_fn fn, void *ctx, struct ck_err *err)
{
	struct reading r = { .save = { .dir = dir, .b = b, .path = path },
			     .fn = fn,
			     .ctx = ctx };
	int ret = ck_of_kind_of(dir, path, err);

	if (ret >= 0)
		ret = load(&r, ret, err);
	free(r.save.file);
	free(r.save.bytes);
	return ret;
}
