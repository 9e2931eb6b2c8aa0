/* SPDX-License-Identifier: Apache-2.0 */
/* ckpt.c - a catalog, its sources and its reader, as one thing */
#include "core/ckpt/ckpt.h"

#include "core/ckpt/ckpt_priv.h"

#include "core/base/auto.h"
#include "core/base/check.h"
#include "core/base/number.h"
#include "core/catalog/catalog.h"
#include "core/format/format.h"
#include "core/geom/chunk.h"
#include "core/root/writer_lock.h"
#include "core/write/overlay.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The search for a chunk's tensor relies on it; the builder keeps to it. */
static int check_order(const struct ck_catalog *img, struct ck_err *err)
{
	uint64_t end = 0;

	for (uint32_t i = 0; i < img->nr_tensors; i++) {
		const struct ck_tensor *t = &img->tensors[i];

		if (t->nr_all && t->first < end)
			return ck_fail(err, EINVAL,
				       "image: the chunks of "
				       "tensor %u lie before those of others",
				       i);
		if (t->nr_all)
			end = (uint64_t)t->first + t->nr_all;
	}
	return 0;
}

/* Bytes of the elements of a chunk; an item is counted as a whole. */
static uint64_t chunk_bytes(const struct ck_catalog *img, uint32_t tensor,
			    uint32_t chunk)
{
	struct ck_chunk_at at;

	ck_chunk_at(img, NULL, img->tensors[tensor].grid_rank,
		    &img->chunks[chunk], &at);
	return at.item ? at.item : at.bytes;
}

static void fault(void *ctx, uint32_t tensor, uint32_t chunk,
		  const struct ck_err *err)
{
	struct ck_ckpt *ck = ctx;
	const struct ck_chunk *c;
	struct ck_runtime_problem p = {
		.tensor = tensor,
		.chunk = chunk,
		.reason = (char *)err->msg,
	};

	if (chunk >= ck->img.nr_chunks || tensor >= ck->img.nr_tensors)
		return;
	c = &ck->img.chunks[chunk];
	if (c->state != CK_OK)
		return; /* a problem of the catalog says so */
	if (err->code == EFAULT)
		return; /* of the memory that it is read into */
	p.off = c->off;
	p.len = chunk_bytes(&ck->img, tensor, chunk);
	ck_runtime_problems_add(&ck->problems_found, &p);
}

static int start_reader(struct ck_ckpt *ck, const struct ck_opts *opts,
			struct ck_err *err)
{
	const char *engine = ck_opts_get(opts, "engine");
	const char *threads = ck_opts_get(opts, "threads");
	const char *spool = ck_opts_get(opts, "spool");
	const struct ck_format *format = ck_format_of(&ck->img);
	struct ck_reader_in in = {
		.img = &ck->img,
		.root = &ck->root,
		.resolved = ck->resolved,
		.resolve = ck_ckpt_resolve_chunk,
		.resolve_ctx = ck,
		.touched = ck_ckpt_file_touched,
		.touched_ctx = ck,
		.fault = fault,
		.fault_ctx = ck,
		.cache_mem = ck_opts_size(opts, "cache-mem", 0),
		.spool_max = ck_opts_size(opts, "spool-max", 0),
		.max_files = (unsigned)ck_opts_size(opts, "max-files", 0),
		.write = ck_opts_get(opts, "rw"),
		.sums = format && format->sums,
	};
	int ret;

	ck->engine = ck_engine_choose(engine ? engine : "auto", err);
	if (!ck->engine)
		return -err->code;
	ck->spool = spool ? strdup(spool) : NULL;
	if (spool && !ck->spool)
		return ck_no_memory(err);
	in.spool_dir = ck->spool;
	in.engine = ck->engine;
	in.unaided = threads && !strcmp(threads, "1");
	ret = ck_ckpt_overlay_open(ck, opts, &in, err);
	if (!ret)
		ret = ck_ckpt_seal_open(ck, opts, &in, err);
	if (ret)
		return ret;
	ret = ck_reader_new(&ck->reader, &in, err);
	return ret ? ret : ck_ckpt_start_writer(ck, opts, err);
}

static int start(struct ck_ckpt *ck, const struct ck_opts *opts,
		 struct ck_err *err)
{
	int ret = check_order(&ck->img, err);

	if (ret)
		return ret;
	ck->resolved = ck_resolved_new(ck->img.nr_chunks);
	if (!ck->resolved)
		return ck_no_memory(err);
	return start_reader(ck, opts, err);
}

struct ck_ckpt *ck_ckpt_new(void)
{
	struct ck_ckpt *ck = calloc(1, sizeof(*ck));

	if (!ck)
		return NULL;
	ck_runtime_problems_init(&ck->problems_found);
	pthread_mutex_init(&ck->sealed_lock, NULL);
	pthread_mutex_init(&ck->writer_lock_mutex, NULL);
	pthread_mutex_init(&ck->redo_lock, NULL);
	ck_partial_writes_init(&ck->partial_writes);
	pthread_mutex_init(&ck->newer_lock, NULL);
	return ck;
}

int ck_ckpt_serve_mapped(struct ck_ckpt **out, struct ck_root *root,
			 const struct ck_opts *opts, struct ck_catalog *img,
			 struct ck_err *err)
{
	struct ck_ckpt *ck = ck_ckpt_new();
	struct ck_root none = { .fd = -1, .blobs_fd = -1 };
	struct ck_err local;
	int ret;

	if (!ck)
		return ck_no_memory(err);
	ck->root = *root;
	ck->img = *img;
	ret = start(ck, opts, err ? err : &local);
	if (ret) { /* both are still the caller's */
		ck->root = none;
		ck->img = (struct ck_catalog){ 0 };
		ck_ckpt_close(ck);
		return ret;
	}
	*root = none;
	*img = (struct ck_catalog){ 0 };
	*out = ck;
	return 0;
}

int ck_ckpt_serve(struct ck_ckpt **out, struct ck_root *root,
		  const struct ck_opts *opts, int catalog_fd,
		  struct ck_err *err)
{
	struct ck_catalog img;
	int ret = ck_catalog_map(&img, catalog_fd, err);

	if (!ret)
		ret = ck_ckpt_serve_mapped(out, root, opts, &img, err);
	ck_catalog_unmap(&img);
	return ret;
}

void ck_ckpt_close(struct ck_ckpt *ck)
{
	if (!ck)
		return;
	ck_writer_free(ck->writer); /* may still write checksums */
	ck_ckpt_update_manifest(ck, true);
	if (ck->reader)
		ck_reader_free(ck->reader);
	ck_overlay_free(ck->overlay);
	ck_ckpt_seal_close(ck);
	ck_writer_lock_drop(
		ck->writer_lock); /* last: the files are closed by now */
	pthread_mutex_destroy(&ck->writer_lock_mutex);
	pthread_mutex_destroy(&ck->redo_lock);
	ck_partial_writes_destroy(&ck->partial_writes);
	pthread_mutex_destroy(&ck->newer_lock);
	if (ck->resolved)
		ck_resolved_free(ck->resolved);
	if (ck->img.base)
		ck_catalog_unmap(&ck->img);
	if (!ck->over)
		ck_root_close(&ck->root);
	ck_runtime_problems_free(&ck->problems_found);
	free(ck->spool);
	free(ck->below_file);
	if (ck->below.free)
		ck->below.free(ck->below.ctx);
	free(ck);
}

const struct ck_catalog *ck_ckpt_catalog(const struct ck_ckpt *ck)
{
	return &ck->img;
}

const struct ck_root *ck_ckpt_root(const struct ck_ckpt *ck)
{
	return &ck->root;
}

const struct ck_resolved *ck_ckpt_resolved(const struct ck_ckpt *ck)
{
	return ck->resolved;
}

const struct ck_read_stats *ck_ckpt_stats(const struct ck_ckpt *ck)
{
	return ck_reader_stats(ck->reader);
}

void ck_ckpt_count_cache(struct ck_ckpt *ck, uint64_t opens, uint64_t bytes,
			 uint64_t filled)
{
	ck_reader_count_cache(ck->reader, opens, bytes, filled);
}

const char *ck_ckpt_engine(const struct ck_ckpt *ck)
{
	return ck->engine->name;
}

struct ck_reader *ck_ckpt_reader(struct ck_ckpt *ck)
{
	return ck->reader;
}

int ck_ckpt_read(struct ck_ckpt *ck, uint32_t tensor, void *buf, uint64_t len,
		 uint64_t off, struct ck_err *err)
{
	return ck_reader_read(ck->reader, tensor, buf, len, off, err);
}

int ck_ckpt_read_box(struct ck_ckpt *ck, uint32_t tensor,
		     const struct ck_box *box, void *buf, uint64_t len,
		     struct ck_err *err)
{
	return ck_reader_read_box(ck->reader, tensor, box, buf, len, err);
}

int ck_ckpt_read_box_bytes(struct ck_ckpt *ck, uint32_t tensor,
			   const struct ck_box *box, void *buf, uint64_t len,
			   uint64_t off, struct ck_err *err)
{
	return ck_reader_read_box_bytes(ck->reader, tensor, box, buf, len, off,
					err);
}

int ck_ckpt_read_object(struct ck_ckpt *ck, uint32_t object, void *buf,
			uint64_t len, uint64_t off, struct ck_err *err)
{
	const struct ck_object *o = &ck->img.objects[object];

	if (!ck_range_ok(off, len, o->len))
		return ck_fail(err, EINVAL,
			       "bytes %llu..%llu are outside of "
			       "the item's %llu",
			       (unsigned long long)off,
			       (unsigned long long)(off + len),
			       (unsigned long long)o->len);
	return ck_reader_source(ck->reader, o->src, buf, len, o->off + off,
				err);
}

int ck_ckpt_replicas(struct ck_ckpt *ck, uint32_t tensor, ck_differ_fn differ,
		     void *ctx, struct ck_err *err)
{
	return ck_reader_replicas(ck->reader, tensor, differ, ctx, err);
}

int ck_ckpt_mend(struct ck_ckpt *ck, uint32_t tensor,
		 const struct ck_mend *mend, struct ck_err *err)
{
	if (ck->writer)
		ck_sums_doubt(ck->writer->sums);
	return ck_reader_mend(ck->reader, tensor, mend, err);
}

int ck_ckpt_resolve(struct ck_ckpt *ck, uint32_t tensor, struct ck_err *err)
{
	const struct ck_tensor *t = &ck->img.tensors[tensor];
	struct ck_place place;
	int first_bad = 0;

	for (uint32_t c = t->first; c < t->first + t->nr_all; c++) {
		struct ck_err local;

		if (!ck_ckpt_item_len(&ck->img, c) ||
		    ck->img.chunks[c].state != CK_OK ||
		    ck_resolved_find(ck->resolved, c, &place, &local) !=
			    CK_RESOLVED_UNKNOWN)
			continue;
		fault(ck, tensor, c, &local);
		if (!first_bad)
			first_bad = ck_fail_as(err, &local);
	}
	return first_bad;
}

void ck_ckpt_runtime_problems(struct ck_ckpt *ck, bool json, struct ck_str *out)
{
	ck_runtime_problems_dump(&ck->problems_found, &ck->img, json, out);
}

void ck_ckpt_view_problem(struct ck_ckpt *ck, const char *view, uint32_t tensor,
			  enum ck_view_says says, const char *reason)
{
	struct ck_runtime_problem p = {
		.view = view,
		.says = says,
		.tensor = tensor,
		.chunk = CK_NONE,
		.reason = (char *)reason,
	};
	char text[CK_ERR_MAX];

	ck_runtime_problems_add(&ck->problems_found, &p);
	if (!ck->over)
		return;
	/* the tensors of this one are not those that its notes are read of */
	snprintf(text, sizeof(text), "%s: %s%s%s", view,
		 tensor == CK_NONE ?
			 "" :
			 ck_catalog_str(&ck->img, ck->img.tensors[tensor].name,
					NULL),
		 tensor == CK_NONE ? "" : ": ", reason);
	ck_ckpt_view_problem(ck->below.ck, ck->below.what, CK_NONE, says, text);
}

uint64_t ck_ckpt_runtime_errors(struct ck_ckpt *ck)
{
	return ck_runtime_problems_errors(&ck->problems_found);
}

uint64_t ck_ckpt_runtime_problems_seq(const struct ck_ckpt *ck)
{
	return atomic_load(&ck->problems_found.seq);
}
