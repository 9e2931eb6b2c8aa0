/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fmt.c - torch.distributed.checkpoint: a folder of
 *
 *   .metadata                       what there is, and where; written last
 *   __<rank>_<n>.distcp ...         items, one after the other
 *   __<rank>.metadata ...           instead of .metadata: each rank its own
 *   common.pt                       Megatron: what is not sharded
 *
 * Files that no entry names are of an older save and are left alone.
 */
#include "core/base/auto.h"
#include "core/base/check.h"
#include "core/base/number.h"
#include "core/base/suffix.h"
#include "core/container/container.h"
#include "core/format/dcp/dcp.h"
#include "core/layout/write.h"
#include "core/format/format.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ROOT_META ".metadata"
#define COMMON "common.pt"

/* __12.metadata; *len is that of "__12" */
static bool is_rank_meta(const char *name, size_t *len)
{
	uint64_t rank;
	size_t n = strncmp(name, "__", 2) ?
			   0 :
			   ck_digits(name + 2, SIZE_MAX, &rank);

	*len = 2 + n;
	return n && !strcmp(name + *len, ROOT_META);
}

/* [hint]__<rank>_<n>.distcp */
static bool is_data(const char *name)
{
	return ck_has_suffix(name, ".distcp") && strstr(name, "__");
}

struct seen {
	bool meta, tmp;
	size_t rank_metas, data;
};

static void look(const struct ck_dir_list *l, struct seen *s)
{
	size_t len;

	*s = (struct seen){ 0 };
	for (size_t i = 0; i < l->nr; i++) {
		const char *name = l->v[i].name;

		if (l->v[i].is_dir)
			continue;
		s->meta |= !strcmp(name, ROOT_META);
		s->tmp |= !strcmp(name, ROOT_META ".tmp");
		s->rank_metas += is_rank_meta(name, &len);
		s->data += is_data(name);
	}
}

/* Other programs call files .metadata too; PyTorch's is a pickle. */
static int is_pickle(const struct ck_dir *dir, const char *name, bool *yes,
		     struct ck_err *err)
{
	ck_auto_source struct ck_source *s = NULL;
	unsigned char first;
	int ret = ck_dir_open(dir, name, &s, err);

	*yes = !ret && !ck_source_read(s, &first, 1, 0, NULL) && first == 0x80;
	return ret;
}

static int probe(const struct ck_dir *dir, struct ck_err *err)
{
	ck_auto_dir_list struct ck_dir_list l = { 0 };
	struct seen s;
	bool yes;
	int ret;

	if (dir->only)
		return CK_MATCH_NONE;
	ret = ck_dir_list(dir, "", &l, err);
	if (ret)
		return ret;
	look(&l, &s);
	yes = s.data;
	if (s.meta && !yes)
		ret = is_pickle(dir, ROOT_META, &yes, err);
	if (ret)
		return ret;
	if (s.meta && yes)
		return CK_MATCH_INDEX;
	if (s.rank_metas)
		return CK_MATCH_INDEX;
	return s.data ? CK_MATCH_FILE : CK_MATCH_NONE;
}

static int fail_unfinished(const struct ck_dir *dir, const struct seen *s,
			   struct ck_err *err)
{
	if (!s->data)
		return ck_fail(err, EINVAL,
			       "%s: expected .metadata and "
			       ".distcp files",
			       dir->path);
	return ck_fail(err, EINVAL,
		       "%s: the save did not finish: no .metadata "
		       "beside %zu .distcp files%s",
		       dir->path, s->data,
		       s->tmp ? ", only .metadata.tmp" : "");
}

static int read_metas(struct ck_dcp *d, const struct ck_dir_list *l,
		      const struct seen *s, struct ck_err *err)
{
	int ret = 0;

	d->meta = ck_arena_alloc(&d->mem, (s->meta ? 1 : s->rank_metas) *
						  sizeof(*d->meta));
	if (!d->meta)
		return ck_no_memory(err);
	if (s->meta) {
		d->nr_meta = 1;
		return ck_dcp_meta_read(&d->meta[0], d->dir, ROOT_META, err);
	}
	for (size_t i = 0; i < l->nr && !ret; i++) {
		struct ck_dcp_meta *m = &d->meta[d->nr_meta];
		size_t len;

		if (l->v[i].is_dir || !is_rank_meta(l->v[i].name, &len))
			continue;
		d->nr_meta++;
		ret = ck_dcp_meta_read(m, d->dir, l->v[i].name, err);
		m->rank = l->v[i].name;
		m->rank_len = len;
	}
	return ret;
}

/* The highest rank that a file is of, plus 1. */
static uint64_t ranks_of(const struct ck_dir_list *l)
{
	uint64_t nr = 0;

	for (size_t i = 0; i < l->nr; i++) {
		const char *name = l->v[i].name;
		const char *end = name + 2;
		uint64_t rank;

		if (strncmp(name, "__", 2) || l->v[i].is_dir ||
		    !ck_digits(end, SIZE_MAX, &rank))
			continue;
		end += ck_digits(end, SIZE_MAX, &rank);
		if (strcmp(end, ROOT_META) && (*end != '_' || !is_data(name)))
			continue;
		nr = rank < UINT32_MAX ? CK_MAX(nr, rank + 1) : nr;
	}
	return nr;
}

/* Rank-local, every rank writes one, though it may have no part of its own. */
static int report_ranks(struct ck_dcp *d, const struct ck_dir_list *l,
			struct ck_err *err)
{
	struct ck_problem_in lost = { .severity = CK_ERROR };
	uint64_t nr = ranks_of(l);
	char name[48] = "";

	if (!d->meta[0].rank || nr <= d->nr_meta)
		return 0;
	for (size_t rank = 0; rank <= d->nr_meta; rank++) {
		snprintf(name, sizeof(name), "__%zu" ROOT_META, rank);
		if (!ck_dir_has(d->dir, name))
			break;
	}
	lost.file = name;
	return ck_builder_problem(
		d->b, &lost, err,
		"it is missing: %" PRIu64 " of %" PRIu64
		" ranks have no such file, and what they saved cannot be found",
		nr - d->nr_meta, nr);
}

/* Megatron keeps beside the shards what is the same on all ranks. */
static int add_common(struct ck_dcp *d, struct ck_err *err)
{
	ck_auto_source struct ck_source *s = NULL;
	struct ck_object_in o = {
		.name = COMMON,
		.name_len = strlen(COMMON),
		.enc = CK_ENC_TORCH_ZIP,
	};
	int ret;

	if (!ck_dir_has(d->dir, COMMON))
		return 0;
	ret = ck_dir_source(d->dir, d->b, COMMON, &o.src, &s, err);
	if (ret || !s)
		return ret;
	o.len = (uint64_t)s->st.st_size;
	return ck_builder_object(d->b, &o, err);
}

/* A text, or a Path, which is pickled as a call of one with its parts. */
static void add_path(const struct ck_pickle *p, ck_pv v, struct ck_str *out)
{
	const char *part;
	struct ck_piter it;
	ck_pv one;
	size_t len;

	if (ck_pv_str(p, v, &part, &len)) {
		ck_str_add(out, part, len);
		return;
	}
	if (!ck_pq_is(p, v, "pathlib", NULL))
		return;
	ck_piter_init(&it, p, ck_pv_args(p, v));
	while (out->len <= CK_MAX_NAME && ck_piter_next(&it, &one)) {
		if (out->len && out->v[out->len - 1] != '/')
			ck_str_puts(out, "/");
		if (ck_pv_str(p, one, &part, &len))
			ck_str_add(out, part, len);
	}
}

/* Of torch from 2.4 on. */
static int add_save(struct ck_dcp *d, struct ck_err *err)
{
	const struct ck_pickle *p = d->meta[0].p;
	ck_auto_str struct ck_str to = { 0 };
	const char *id;
	size_t len;
	ck_pv v;

	if (!ck_pq_str(p, ck_pickle_root(p), "storage_meta/save_id", &id,
		       &len) ||
	    len > CK_MAX_NAME)
		return 0;
	if (ck_pq(p, ck_pickle_root(p), "storage_meta/checkpoint_id", &v))
		add_path(p, v, &to);
	if (to.failed)
		return ck_no_memory(err);
	return ck_builder_save(d->b, id, len, to.v ? to.v : "",
			       to.len <= CK_MAX_NAME ? to.len : 0, err);
}

static int load_all(struct ck_dcp *d, struct ck_err *err)
{
	const struct ck_problem_in local = { .severity = CK_NOTE };
	int ret = 0;

	if (d->meta[0].rank)
		ret = ck_builder_problem(d->b, &local, err,
					 "rank-local: the "
					 "tensors are joined from %zu "
					 "__RANK.metadata files",
					 d->nr_meta);
	else
		ret = add_save(d, err);
	for (size_t i = 0; i < d->nr_meta && !ret; i++) {
		d->m = &d->meta[i];
		ret = ck_dcp_load_meta(d, err);
	}
	if (!ret)
		ret = ck_dcp_report_lost(d, err);
	if (!ret)
		ret = ck_dcp_flat_note(d, err);
	return ret ? ret : add_common(d, err);
}

static int load(const struct ck_dir *dir, struct ck_builder *b,
		struct ck_err *err)
{
	ck_auto_dir_list struct ck_dir_list l = { 0 };
	struct ck_dcp d = { .dir = dir, .b = b };
	struct seen s;
	int ret;

	ret = ck_dir_list(dir, "", &l, err);
	if (ret)
		return ret;
	look(&l, &s);
	if (!s.meta && !s.rank_metas)
		return fail_unfinished(dir, &s, err);
	d.unflatten = ck_opts_get(dir->opts, "unflatten") != NULL;
	ret = read_metas(&d, &l, &s, err);
	if (!ret)
		ret = load_all(&d, err);
	if (!ret)
		ret = report_ranks(&d, &l, err);
	ck_dcp_free(&d);
	return ret;
}

/* Megatron's, which is read as an object. */
static bool is_piece(const char *name)
{
	return !strcmp(name, "common.pt");
}

static const struct ck_option options[] = {
	{ .name = "unflatten",
	  .type = CK_OPTION_FLAG,
	  .open = true,
	  .help = "show Megatron's flattened optimizer tensors in the shape "
		  "that they had in training",
	  .place = 1 },
	{ .name = NULL },
};

static const struct ck_format_sign signs[] = {
	{ "*.metadata", CK_SIGN_STRONG },
	{ "*.distcp", CK_SIGN_STRONG },
	{ NULL, 0 },
};

static const struct ck_layout_form form = {
	.name = "dcp",
	.path = "__{rank}_0.distcp",
	.suffix = ".distcp",
	.indexed = true,
};

const struct ck_format ck_format_dcp = {
	.name = "dcp",
	.summary = "PyTorch distributed checkpoint (.metadata and .distcp)",
	.options = options,
	.is_piece = is_piece,
	.indexed = true,
	.signs = signs,
	.apart = true,
	.form = &form,
	.probe = probe,
	.load = load,
};
