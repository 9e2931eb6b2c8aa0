/* SPDX-License-Identifier: Apache-2.0 */
/*
 * view_reshard.c - reshard/MESH/rank-00000.safetensors ...
 *
 * Or rank-00000.ckpt, with -o reshard-container=ckpt.
 *
 * The checkpoint cut for another mesh: a folder for each -o reshard=FILE, and
 * one for each mesh in words that somebody looks up.  Folders are numbered as
 * they are made and never go, so that inode numbers last; how many there may
 * be, and how much they may take, is bounded.
 */
#include "core/view/extras.h"
#include "core/view/reshard/rank_cache.h"
#include "core/view/reshard/rank_layout.h"
#include "core/view/metadata.h"
#include "core/emit/ckpt_records.h"

#include "core/base/auto.h"
#include "core/base/check.h"
#include "core/base/match.h"
#include "core/base/number.h"
#include "core/geom/dtype.h"

#include <errno.h>
#include <inttypes.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NAME "reshard"
#define OPTION CK_RESHARD_OPTION
#define CONTAINER "reshard-container"
#define LAYOUT \
	CK_RESHARD_MAX_RANKS /* the number in a folder of the layout's file */
#define IN_FOLDER ((1u << CK_VIEW_FOLDER_SHIFT) - 1)
#define MAX_WEIGHT (UINT64_C(64) << 20) /* bytes of those looked up */

struct folder {
	char name[256];
	size_t option; /* number of -o reshard=; SIZE_MAX: looked up */
	struct ck_reshard *rs; /* NULL: not made yet, or cannot be */
	_Atomic int state; /* 0: not made yet, 1: made, < 0: -errno, for good */
	_Atomic uint64_t *size; /* of each rank's file; 0: not known yet */
	struct ck_str layout;
	_Atomic int layout_state; /* as state */
	char *why; /* it cannot be made; before state says so */
};

struct reshard_view {
	struct ck_view base;
	const struct ck_opts *opts;
	pthread_mutex_t lock; /* making folders */
	struct folder *folder[CK_VIEW_FOLDERS];
	_Atomic uint32_t nr;
	uint32_t nr_options;
	uint64_t weight;
	enum ck_rank_form form;
	json_t *config; /* of the model, or NULL */
	/* made at first look: */
	bool ready;
	struct ck_merged_tensor *held;
	struct ck_merged_in in;
	struct ck_str metadata;
	uint32_t newest;
	struct ck_rank_cache cache;
};

/* ---- the tensors, once ---- */

static void take_newest(struct reshard_view *v, uint32_t src)
{
	const struct ck_src *srcs = v->base.img->srcs;

	if (src != CK_NONE &&
	    (v->newest == CK_NONE ||
	     srcs[src].id.mtime_ns > srcs[v->newest].id.mtime_ns))
		v->newest = src;
}

static const char *refuses(const struct reshard_view *v, uint32_t t,
			   const struct ck_merged_tensor *m)
{
	if (v->form == CK_RANK_SAFETENSORS)
		return ck_merged_refuses(v->base.img, t, m->name, m->name_len);
	if (v->base.img->tensors[t].dtype == CK_DT_STR)
		return "a text cannot be cut";
	return ck_ckpt_records_refuse(v->base.img, t, m->name, m->name_len);
}

static int hold_tensors(struct reshard_view *v, struct ck_err *err)
{
	const struct ck_catalog *img = v->base.img;

	v->held = calloc((size_t)v->base.nr + 1, sizeof(*v->held));
	if (!v->held)
		return ck_no_memory(err);
	v->in = (struct ck_merged_in){ .img = img, .v = v->held };
	for (uint32_t t = v->base.first; t < v->base.first + v->base.nr; t++) {
		struct ck_merged_tensor m = { .tensor = t };
		const char *why;

		m.name = ck_catalog_str(img, img->tensors[t].name, &m.name_len);
		why = refuses(v, t, &m);
		if (why) {
			ck_view_leave_out(&v->base, t, why);
			continue;
		}
		v->held[v->in.nr++] = m;
		take_newest(v, img->tensors[t].newest);
	}
	ck_merged_sort(&v->in);
	return 0;
}

/* Under the lock. */
static int get_ready(struct reshard_view *v, struct ck_err *err)
{
	int ret;

	if (v->ready)
		return 0;
	free(v->held);
	v->held = NULL;
	ck_str_free(&v->metadata);
	ret = ck_metadata_of_view(&v->base, &v->metadata, err);
	if (!ret)
		ret = hold_tensors(v, err);
	if (ret)
		return ret;
	v->in.metadata = v->metadata.v;
	v->in.metadata_len = v->metadata.len;
	v->ready = true;
	return 0;
}

/* ---- folders ---- */

static int make_reshard(struct reshard_view *v, struct folder *f, bool *of_spec,
			struct ck_err *err)
{
	ck_auto_str struct ck_str note = { 0 };
	struct ck_reshard_in in = { .img = v->base.img,
				    .first = v->base.first,
				    .nr = v->base.nr,
				    .name = f->name,
				    .opts = v->opts,
				    .config = v->config };
	int ret;

	if (f->option != SIZE_MAX) {
		in.name = ck_opts_nth(v->opts, OPTION, f->option);
		in.bytes = ck_opts_bytes(v->opts, OPTION, f->option, &in.len);
	}
	*of_spec = false;
	ret = get_ready(v, err);
	if (ret)
		return ret;
	ret = ck_reshard_new(&f->rs, &in, of_spec, err);
	if (ret) /* the spec's own line names it */
		return *of_spec ? ret : ck_wrap(err, ret, "%s", f->name);
	ck_reshard_note(f->rs, f->name, &note);
	if (note.v)
		ck_view_leave_out(&v->base, CK_NONE, note.v);
	f->size = calloc(ck_reshard_ranks(f->rs), sizeof(*f->size));
	if (f->size)
		return 0;
	ck_reshard_free(f->rs);
	f->rs = NULL;
	return ck_no_memory(err);
}

/* Of an option: makes it when it is first looked at.  NULL: it cannot be. */
static struct folder *need(const struct ck_view *base, uint32_t d)
{
	struct reshard_view *v = (struct reshard_view *)base;
	struct ck_err err = { 0 };
	struct folder *f;
	bool of_spec;
	int state;

	if (d >= atomic_load_explicit(&v->nr, memory_order_acquire))
		return NULL;
	f = v->folder[d];
	state = atomic_load_explicit(&f->state, memory_order_acquire);
	if (state)
		return state > 0 ? f : NULL;
	pthread_mutex_lock(&v->lock);
	state = atomic_load(&f->state);
	if (!state) {
		state = make_reshard(v, f, &of_spec, &err) ?: 1;
		if (state < 0) {
			ck_view_leave_out(&v->base, CK_NONE, err.msg);
			f->why = strdup(err.msg);
		}
		atomic_store_explicit(&f->state, state, memory_order_release);
	}
	pthread_mutex_unlock(&v->lock);
	return state > 0 ? f : NULL;
}

static uint32_t nr_folders(const struct ck_view *base)
{
	return atomic_load(&((const struct reshard_view *)base)->nr);
}

static uint32_t nr_listed(const struct ck_view *base)
{
	return ((const struct reshard_view *)base)->nr_options;
}

static bool folder_name(const struct ck_view *base, uint32_t d, char name[256])
{
	const struct folder *f = need(base, d);

	if (!f)
		return false;
	memcpy(name, f->name, sizeof(f->name));
	return true;
}

static uint32_t known(const struct reshard_view *v, const char *name)
{
	uint32_t nr = atomic_load(&v->nr);

	for (uint32_t d = 0; d < nr; d++)
		if (!strcmp(v->folder[d]->name, name))
			return d;
	return CK_NONE;
}

static uint64_t weight_of(const struct reshard_view *v, const struct folder *f)
{
	return sizeof(*f) + 8 * (uint64_t)v->base.nr +
	       8 * (uint64_t)ck_reshard_ranks(f->rs);
}

static void free_folder(struct folder *f)
{
	ck_reshard_free(f->rs);
	free((void *)f->size);
	ck_str_free(&f->layout);
	free(f->why);
	free(f);
}

/* Under the lock. */
static int keep(struct reshard_view *v, struct folder *f, uint32_t *d,
		struct ck_err *err)
{
	uint64_t weight = weight_of(v, f);

	*d = atomic_load(&v->nr);
	if (*d == CK_VIEW_FOLDERS ||
	    (*d > v->nr_options && v->weight + weight > MAX_WEIGHT))
		return ck_fail(err, ENOSPC,
			       NAME "/ has %" PRIu32
				    " folders already, which is the most it "
				    "makes for one mount",
			       *d);
	v->weight += weight;
	atomic_store(&f->state, 1);
	v->folder[*d] = f;
	atomic_store_explicit(&v->nr, *d + 1, memory_order_release);
	return 0;
}

/* Under the lock.  What are no words of a mesh is no name either; @err is set. */
static int look_up(struct reshard_view *v, const char *name, uint32_t *d,
		   struct ck_err *err)
{
	struct folder *f = calloc(1, sizeof(*f));
	bool of_spec;
	int ret;

	if (!f)
		return ck_no_memory(err);
	f->option = SIZE_MAX;
	snprintf(f->name, sizeof(f->name), "%s", name);
	ret = make_reshard(v, f, &of_spec, err);
	if (ret == -EINVAL && of_spec)
		ret = -ENOENT;
	if (!ret)
		ret = keep(v, f, d, err);
	if (ret && ret != -ENOMEM)
		ck_view_leave_out(&v->base, CK_NONE, err->msg);
	if (ret)
		free_folder(f);
	return ret;
}

static int find_folder(const struct ck_view *base, const char *name,
		       uint32_t *d, struct ck_err *err)
{
	struct reshard_view *v = (struct reshard_view *)base;
	struct ck_err local;
	int ret = 0;

	*d = known(v, name);
	if (*d == CK_NONE && (strlen(name) > 255 || !strchr(name, '=')))
		return ck_fail(err, ENOENT,
			       "%.60s: no -o " OPTION
			       "= file is called so, nor "
			       "is it a mesh in words, as dim0=4 or tp=2",
			       name);
	if (*d != CK_NONE && need(base, *d))
		return 0;
	if (*d != CK_NONE)
		return ck_fail(err, EINVAL, "%s",
			       v->folder[*d]->why ?: "no memory for " NAME);
	pthread_mutex_lock(&v->lock);
	*d = known(v, name);
	if (*d == CK_NONE)
		ret = look_up(v, name, d, err ? err : &local);
	pthread_mutex_unlock(&v->lock);
	return ret;
}

static uint32_t nr_files(const struct ck_view *base, uint32_t d)
{
	const struct folder *f = need(base, d);

	return f ? ck_reshard_ranks(f->rs) : 0;
}

/*
 * What makes the folder a checkpoint again.  It is not listed, for a folder of
 * ranks has nothing else.  NULL: it has none.
 */
static const struct ck_str *layout_of(const struct ck_view *base, uint32_t d)
{
	struct reshard_view *v = (struct reshard_view *)base;
	struct folder *f = need(base, d);
	int state;

	if (!f)
		return NULL;
	state = atomic_load_explicit(&f->layout_state, memory_order_acquire);
	if (!state) {
		pthread_mutex_lock(&v->lock);
		state = atomic_load(&f->layout_state);
		if (!state) {
			state = ck_rank_layout_make(&f->layout, v->form, f->rs,
						    &v->in, NULL);
			if (state < 0)
				ck_str_free(&f->layout);
			state = state ? state : 1;
			atomic_store_explicit(&f->layout_state, state,
					      memory_order_release);
		}
		pthread_mutex_unlock(&v->lock);
	}
	return state > 0 ? &f->layout : NULL;
}

static uint32_t find_file(const struct ck_view *base, uint32_t d,
			  const char *name, size_t len)
{
	const char *suffix =
		ck_rank_suffix(((const struct reshard_view *)base)->form);
	size_t n = len > strlen(suffix) ? len - strlen(suffix) : 0;
	uint64_t rank;

	if (ck_text_is(name, len, CK_RANK_LAYOUT_NAME))
		return layout_of(base, d) ? d << CK_VIEW_FOLDER_SHIFT | LAYOUT :
					    CK_NONE;
	_Static_assert(CK_RESHARD_MAX_RANKS <= IN_FOLDER, "numbers fit");
	/* "rank-" and five digits, which is enough for all ranks there are */
	if (n != 10 || memcmp(name, "rank-", 5) ||
	    memcmp(name + n, suffix, strlen(suffix)) ||
	    ck_digits(name + 5, 5, &rank) != 5 || rank >= nr_files(base, d))
		return CK_NONE;
	return d << CK_VIEW_FOLDER_SHIFT | (uint32_t)rank;
}

static const struct ck_view_folder_ops folder_ops = {
	.nr = nr_folders,
	.nr_listed = nr_listed,
	.name = folder_name,
	.find = find_folder,
	.nr_files = nr_files,
	.find_file = find_file,
	.unlisted = CK_RANK_LAYOUT_NAME,
};

/* ---- files ---- */

/* The text of file @i where that is a layout. */
static const struct ck_str *layout_file(const struct ck_view *base, uint32_t i)
{
	const struct folder *f = need(base, i >> CK_VIEW_FOLDER_SHIFT);

	if ((i & IN_FOLDER) != LAYOUT || !f)
		return NULL;
	return layout_of(base, i >> CK_VIEW_FOLDER_SHIFT);
}

static const struct ck_rank_entry *get(const struct ck_view *base, uint32_t i,
				       struct ck_err *err)
{
	struct reshard_view *v = (struct reshard_view *)base;
	uint32_t rank = i & IN_FOLDER;
	const struct folder *f = need(base, i >> CK_VIEW_FOLDER_SHIFT);

	if (f && rank < ck_reshard_ranks(f->rs))
		return ck_rank_cache_get(&v->cache, f->rs, rank, err);
	ck_fail(err, ESTALE, NAME ": no such rank");
	return NULL;
}

static void put(const struct ck_view *base, const struct ck_rank_entry *e)
{
	ck_rank_cache_put(&((struct reshard_view *)base)->cache, e);
}

static uint32_t rs_nr(const struct ck_view *base)
{
	return nr_folders(base) << CK_VIEW_FOLDER_SHIFT;
}

static bool rs_file(const struct ck_view *base, uint32_t i,
		    struct ck_vfile *out)
{
	const struct reshard_view *v = (const struct reshard_view *)base;
	uint32_t rank = i & IN_FOLDER;
	const struct folder *f = need(base, i >> CK_VIEW_FOLDER_SHIFT);
	const struct ck_rank_entry *e;
	const struct ck_str *layout = layout_file(base, i);
	struct ck_err err = { 0 };

	*out = (struct ck_vfile){ .newest = v->newest, .tensor = CK_NONE };
	if (layout) {
		out->size = layout->len;
		return true;
	}
	if (!f || rank >= ck_reshard_ranks(f->rs))
		return false;
	out->size = atomic_load_explicit(&f->size[rank], memory_order_relaxed);
	if (out->size)
		return true;
	e = get(base, i, &err);
	if (!e) {
		ck_wrap(&err, -EIO, "%s", f->name);
		ck_view_leave_out(&v->base, CK_NONE, err.msg);
		return false;
	}
	out->size = e->file.size;
	put(base, e);
	atomic_store_explicit(&f->size[rank], out->size, memory_order_relaxed);
	return true;
}

static void rs_label(const struct ck_view *base, uint32_t i,
		     char name[CK_VIEW_NAME])
{
	const struct reshard_view *v = (const struct reshard_view *)base;

	if (layout_file(base, i))
		snprintf(name, CK_VIEW_NAME, CK_RANK_LAYOUT_NAME);
	else
		snprintf(name, CK_VIEW_NAME, "rank-%05" PRIu32 "%s",
			 i & IN_FOLDER, ck_rank_suffix(v->form));
}

static void rs_at(const struct ck_view *base, uint32_t i, uint64_t off,
		  struct ck_span *out)
{
	const struct ck_str *layout = layout_file(base, i);
	const struct ck_rank_entry *e;

	if (layout) {
		out->kind = CK_SPAN_MADE;
		out->off = off;
		out->len = layout->len - off;
		return;
	}
	e = get(base, i, NULL);

	out->len = 0; /* no memory: EIO */
	if (!e)
		return;
	ck_rank_file_at(&e->file, base->img, off, out);
	put(base, e);
}

static int rs_made(const struct ck_view *base, uint32_t i, void *buf,
		   uint64_t len, uint64_t off, struct ck_err *err)
{
	const struct ck_str *own = layout_file(base, i);
	const struct ck_rank_entry *e = own ? NULL : get(base, i, err);
	int ret = 0;

	if (!own && !e)
		return -EIO;
	own = own ? own : &e->own;
	if (ck_range_ok(off, len, own->len))
		memcpy(buf, own->v + off, len);
	else
		ret = ck_fail(err, EIO, "a view's own bytes end at %zu",
			      own->len);
	if (e)
		put(base, e);
	return ret;
}

/* ---- the view ---- */

static void rs_close(struct ck_view *base)
{
	struct reshard_view *v = (struct reshard_view *)base;

	ck_rank_cache_free(&v->cache);
	for (uint32_t i = 0; i < v->nr; i++)
		free_folder(v->folder[i]);
	free(v->held);
	json_decref(v->config);
	ck_str_free(&v->metadata);
	pthread_mutex_destroy(&v->lock);
	free(v);
}

static int take_option(struct reshard_view *v, size_t i, const char *path,
		       struct ck_err *err)
{
	struct folder *f;
	size_t stem_len;
	const char *stem = ck_reshard_stem(path, &stem_len);

	if (!stem_len || i == CK_VIEW_FOLDERS / 2)
		return ck_fail(err, EINVAL,
			       "-o " OPTION "=%s: not a name for a folder, or "
			       "over %d of them",
			       path, CK_VIEW_FOLDERS / 2);
	f = calloc(1, sizeof(*f));
	if (!f)
		return ck_no_memory(err);
	f->option = i;
	memcpy(f->name, stem, stem_len);
	if (known(v, f->name) != CK_NONE) {
		free(f);
		return ck_fail(err, EINVAL,
			       "-o " OPTION "=%s: another file is called "
			       "%.*s too",
			       path, (int)stem_len, stem);
	}
	v->folder[v->nr++] = f;
	v->nr_options = v->nr;
	return 0;
}

static int rs_open(struct ck_view **out, const struct ck_view *base,
		   const struct ck_opts *opts, struct ck_err *err)
{
	struct reshard_view *v = calloc(1, sizeof(*v));
	const char *path;
	int ret;

	if (!v)
		return ck_no_memory(err);
	v->base = *base;
	v->opts = opts;
	v->newest = CK_NONE;
	pthread_mutex_init(&v->lock, NULL);
	if (opts && ck_opts_get(opts, CONTAINER) &&
	    !strcmp(ck_opts_get(opts, CONTAINER), "ckpt"))
		v->form = CK_RANK_CKPT;
	ck_rank_cache_init(&v->cache, &v->in, v->form);
	ret = ck_model_config(&v->config, ck_ckpt_root(base->ck), opts, err);
	for (size_t i = 0;
	     !ret && opts && (path = ck_opts_nth(opts, OPTION, i)); i++)
		ret = take_option(v, i, path, err);
	if (ret)
		rs_close(&v->base);
	else
		*out = &v->base;
	return ret;
}

const struct ck_view_ops ck_view_reshard = {
	.name = NAME,
	.is_dir = true,
	.open = rs_open,
	.close = rs_close,
	.nr = rs_nr,
	.file = rs_file,
	.label = rs_label,
	.find = ck_view_find_none,
	.at = rs_at,
	.made = rs_made,
	.folders = &folder_ops,
};
