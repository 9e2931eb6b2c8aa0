/* SPDX-License-Identifier: Apache-2.0 */
/*
 * files.c - what the weight files say of their pieces
 */
#include "core/base/auto.h"
#include "core/base/check.h"
#include "core/container/container.h"
#include "core/format/colossalai/set.h"
#include "core/container/st_file.h"
#include "core/container/torch_save.h"
#include "core/container/torch_lost.h"
#include "core/container/torch_walk.h"
#include "core/geom/dtype.h"
#include "core/geom/catalog.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

struct bin {
	struct ck_ca_set *s;
	struct ck_torch_save ts;
	uint32_t file;
};

static int no_memory(struct ck_err *err)
{
	return ck_fail(err, ENOMEM, "no memory for pieces");
}

static struct ck_ca_entry *new_entry(struct ck_ca_set *s, unsigned rank)
{
	struct ck_ca_entry *e = calloc(1, sizeof(*e));

	if (e)
		e->dims = calloc(2 * rank + 1, sizeof(*e->dims));
	if (!e || !e->dims || !ck_vec_reserve(&s->entries, 1)) {
		if (e)
			free(e->dims);
		free(e);
		return NULL;
	}
	e->rank = rank;
	s->entries.v[s->entries.nr++] = e;
	return e;
}

/*
 * The record of the tensor in that file, which has no entry yet.  Files come
 * in about the order of their records, so it is often the one after the last.
 */
static struct ck_ca_piece *find_record(const struct ck_ca_set *s,
				       struct ck_ca_tensor *t, uint32_t file)
{
	uint32_t from = t->hint == CK_STRMAP_NONE ? t->first :
						    s->pieces.v[t->hint].next;

	for (int pass = 0; pass < 2; pass++, from = t->first)
		for (uint32_t i = from; i != CK_STRMAP_NONE;
		     i = s->pieces.v[i].next)
			if (s->pieces.v[i].file == file &&
			    !s->pieces.v[i].entry) {
				t->hint = i;
				return &s->pieces.v[i];
			}
	return NULL;
}

/* Gives the entry to its record, or makes a piece that has none. */
static int give(struct ck_ca_set *s, uint32_t file, const char *name,
		size_t len, struct ck_ca_entry *e, struct ck_err *err)
{
	struct ck_ca_tensor *t = ck_ca_tensor(s, name, len);
	struct ck_ca_piece *p;

	if (!t)
		return no_memory(err);
	/* records were read first: if the first piece has none, none has */
	p = t->first != CK_STRMAP_NONE && s->pieces.v[t->first].box ?
		    find_record(s, t, file) :
		    NULL;
	if (!p)
		p = ck_ca_piece(s, name, len, file);
	if (!p)
		return no_memory(err);
	if (!p->box)
		p->rank = e->rank;
	p->entry = e;
	return 0;
}

static void row_major(struct ck_ca_entry *e)
{
	uint64_t step = 1;

	for (unsigned d = e->rank; d-- > 0;) {
		e->dims[e->rank + d] = step;
		if (e->dims[d] && !ck_mul_ok(step, e->dims[d], &step))
			step = 1; /* the builder refuses such a shape */
	}
}

/* A piece of which no record can say where it belongs. */
static int mark_unboxed(const struct ck_ca_set *s, uint32_t file,
			struct ck_ca_entry *e)
{
	const struct ck_ca_file *f = &s->files.v[file];

	if (!f->unboxed || e->fault)
		return 0;
	return asprintf(&e->fault,
			"the pytorch_model-meta-dist- file of rank %" PRIu64
			", which says where its pieces belong, is not there",
			f->dist) < 0 ?
		       -ENOMEM :
		       0;
}

static int take_st(struct ck_ca_set *s, uint32_t file,
		   const struct ck_st_file *f, const struct ck_st_entry *in,
		   struct ck_err *err)
{
	struct ck_ca_entry *e = new_entry(s, in->rank);

	if (!e)
		return no_memory(err);
	e->dtype = in->dtype;
	e->off = in->begin;
	memcpy(e->dims, ck_st_file_shape(f, in), in->rank * sizeof(*e->dims));
	row_major(e);
	if (in->why) {
		e->fault = strdup(in->why);
		if (!e->fault)
			return no_memory(err);
	}
	if (mark_unboxed(s, file, e))
		return no_memory(err);
	return give(s, file, in->name, in->name_len, e, err);
}

static int read_st(struct ck_ca_set *s, uint32_t file, struct ck_source *src,
		   struct ck_err *err)
{
	struct ck_st_file f;
	int ret = ck_st_file_read(&f, s->files.v[file].name,
				  s->files.v[file].src, src, 0, err);

	for (size_t i = 0; !ret && i < f.tensors.nr; i++)
		ret = take_st(s, file, &f, &f.tensors.v[i], err);
	if (!ret)
		ret = ck_st_file_say_tail(&f, s->b, err);
	ck_st_file_free(&f);
	return ret;
}

static int place(struct bin *f, const struct ck_torch_tensor *t,
		 struct ck_ca_entry *e, struct ck_err *why)
{
	uint64_t size = ck_dtype_info(t->dtype)->size, skip;
	int ret = ck_torch_save_place(&f->ts, t, &e->storage, why);

	if (ret)
		return ret;
	if (t->conj || t->neg || (f->ts.big_endian && size > 1))
		return ck_fail(why, EINVAL,
			       "it is stored conjugated, negated "
			       "or big-endian");
	if (!ck_mul_ok(t->storage_offset, size, &skip) ||
	    !ck_add_ok(e->storage, skip, &e->off))
		return ck_fail(why, EINVAL, "its offset overflows");
	return 0;
}

static int take_bin(void *ctx, const struct ck_torch_leaf *leaf,
		    struct ck_err *err)
{
	struct bin *f = ctx;
	struct ck_torch_tensor t = { 0 };
	struct ck_err why = { 0 };
	struct ck_ca_entry *e;
	int ret;

	if (!ck_torch_is_rebuild(f->ts.pickle, leaf->value))
		return 0;
	ret = ck_torch_tensor_read(f->ts.pickle, leaf->value, &t, &why);
	e = new_entry(f->s, ret ? 0 : t.rank);
	if (!e)
		return no_memory(err);
	if (!ret) {
		e->dtype = (uint8_t)t.dtype;
		memcpy(e->dims, t.shape, t.rank * sizeof(*t.shape));
		memcpy(e->dims + t.rank, t.stride, t.rank * sizeof(*t.stride));
		ret = place(f, &t, e, &why);
	}
	if (ret && ret != -EINVAL)
		return ck_fail(err, -ret, "%s", why.msg);
	if (ret) {
		e->fault = strdup(why.msg);
		if (!e->fault)
			return no_memory(err);
	}
	if (mark_unboxed(f->s, f->file, e))
		return no_memory(err);
	return give(f->s, f->file, leaf->name, leaf->name_len, e, err);
}

/* Where the numbers begin in STEM-dist-00001[-shard-00000]; NULL: nowhere. */
static const char *numbers(const char *name)
{
	const char *at = NULL;

	while ((name = strstr(name, "-dist-")))
		at = name++;
	return at;
}

/*
 * A file of another rank under this one's name: torch.save keeps inside what
 * the file was called.  The stem may have been changed since.  *told: it is
 * this one's.
 */
static int check_name(const struct ck_torch_save *ts, const char *name,
		      bool *told, struct ck_err *err)
{
	char was[256];
	size_t len;
	const char *top = ck_torch_save_top(ts, &len);
	uint64_t dist;

	if (!top || len + sizeof(".bin") > sizeof(was) || !numbers(name))
		return 0;
	memcpy(was, top, len);
	memcpy(was + len, ".bin", sizeof(".bin"));
	if (strlen(was) != len + strlen(".bin") ||
	    !ck_ca_is_weights(was, &dist))
		return 0;
	*told = !strcmp(numbers(was), numbers(name));
	if (*told)
		return 0;
	return ck_fail(err, EINVAL,
		       "it was saved as %.*s: a file of another rank or "
		       "shard",
		       (int)len, top);
}

static int read_bin(struct ck_ca_set *s, uint32_t file, struct ck_source *src,
		    bool *told, struct ck_err *err)
{
	struct bin f = { .s = s, .file = file };
	int ret = ck_torch_save_open(&f.ts, src, err);

	if (!ret)
		ret = check_name(&f.ts, s->files.v[file].name, told, err);
	if (!ret)
		ret = ck_torch_walk(f.ts.pickle, ck_pickle_root(f.ts.pickle),
				    take_bin, &f, err);
	if (!ret)
		ret = ck_torch_lost_report(
			&(struct ck_torch_lost_in){
				.p = f.ts.pickle,
				.from = ck_pickle_root(f.ts.pickle),
				.b = s->b,
				.file = s->files.v[file].name,
				.any = true },
			err);
	ck_torch_save_close(&f.ts);
	return ret;
}

static int read_file(struct ck_ca_set *s, uint32_t file, struct ck_err *err)
{
	struct ck_ca_file *f = &s->files.v[file];
	const struct ck_problem_in bad = { .severity = CK_ERROR,
					   .file = f->name };
	ck_auto_source struct ck_source *src = NULL;
	struct ck_err why = { 0 };
	size_t len = strlen(f->name);
	bool told = f->dist == UINT64_MAX;
	int ret = ck_dir_source(s->dir, s->b, f->name, &f->src, &src, err);

	if (ret || !src)
		return ret;
	f->present = true;
	ret = len > 4 && !strcmp(f->name + len - 4, ".bin") ?
		      read_bin(s, file, src, &told, &why) :
		      read_st(s, file, src, &why);
	f = &s->files.v[file];
	f->usable = !ret;
	if (ret == -EINVAL)
		return ck_builder_problem(s->b, &bad, err, "%s", why.msg);
	if (ret)
		return ck_fail(err, -ret, "%s", why.msg);
	return told ? 0 :
		      ck_builder_unlabelled_rank(s->b, f->src, f->name, err);
}

static bool has_records(const struct ck_dir_list *l, uint64_t dist)
{
	uint64_t of;

	for (size_t i = 0; i < l->nr; i++)
		if (!l->v[i].is_dir && ck_ca_is_meta(l->v[i].name, &of) &&
		    of == dist)
			return true;
	return false;
}

int ck_ca_read_files(struct ck_ca_set *s, const struct ck_dir_list *l,
		     struct ck_err *err)
{
	uint64_t dist;
	int ret = 0;

	for (size_t i = 0; i < l->nr; i++)
		if (!l->v[i].is_dir && ck_ca_is_weights(l->v[i].name, &dist) &&
		    ck_ca_file(s, l->v[i].name) == CK_STRMAP_NONE)
			return no_memory(err);
	for (uint32_t i = 0; !ret && i < s->files.nr; i++) {
		struct ck_ca_file *f = &s->files.v[i];

		f->unboxed = f->dist != UINT64_MAX && !has_records(l, f->dist);
		ret = read_file(s, i, err);
	}
	return ret;
}
