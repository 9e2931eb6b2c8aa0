/* SPDX-License-Identifier: Apache-2.0 */
/*
 * twin.c - whether weights and optimizer files are of one save, by bytes
 *
 * After each step DeepSpeed rounds its master copy to the weights; so the
 * beginning of each group's vector, in the file of data-parallel rank 0, is in
 * full precision what the group's first parameter is in the model file.
 */
#include "core/format/deepspeed/priv.h"

#include "core/base/auto.h"
#include "core/base/check.h"
#include "core/geom/cast.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define MAX_COMPARED 65536 /* elements of a piece */
#define MAX_ALL (4u << 20) /* elements of all pieces of all ranks, about */
#define MIN_COMPARED 256
#define MAX_PIECES (1u << 20)

bool ck_ds_twin_is_plain(const struct ck_torch_place *out, uint64_t numel)
{
	uint64_t stride = 1;

	if (out->xform || (out->t.dtype != CK_DT_F32 &&
			   !ck_cast_has(CK_DT_F32, out->t.dtype)))
		return false;
	for (unsigned d = out->t.rank; d-- > 0;) {
		if (out->t.shape[d] > 1 && (uint64_t)out->t.stride[d] != stride)
			return false;
		if (!ck_mul_ok(stride, out->t.shape[d], &stride))
			return false;
	}
	return stride == numel;
}

/* 1: the weight @v is a run of @numel elements, at *out; 0 or -ENOMEM. */
static int place_weight(struct ck_torch_open *f, ck_pv v, uint64_t numel,
			struct ck_torch_place *out)
{
	int ret = ck_torch_place(f, v, out, NULL);

	if (ret)
		return ret == -ENOMEM ? ret : 0;
	return ck_ds_twin_is_plain(out, numel);
}

static int find_weight(struct ck_torch_open *f, const struct ck_ds_param *p,
		       struct ck_torch_place *out)
{
	const struct ck_pickle *pk = f->ts.pickle;
	struct ck_piter it;
	ck_pv module, key, v;
	const char *s;
	size_t len;

	if (!ck_pv_key(pk, ck_pickle_root(pk), "module", &module))
		return 0;
	ck_piter_init_pairs(&it, pk, module);
	while (ck_piter_next2(&it, &key, &v))
		if (ck_pv_str(pk, key, &s, &len) && len == p->name_len &&
		    !memcmp(s, p->name, len))
			return place_weight(f, v, p->numel, out);
	return 0;
}

/* Elements that differ; NaNs do not. */
static bool differ(enum ck_dtype dt, const float *full, const void *weights,
		   void *rounded, size_t nr)
{
	size_t size = ck_dtype_info(dt)->size;

	if (dt == CK_DT_F32)
		memcpy(rounded, full, nr * size);
	else
		ck_cast(CK_DT_F32, full, dt, rounded, nr);
	for (size_t i = 0; i < nr; i++)
		if (full[i] <= full[i] &&
		    memcmp((char *)rounded + i * size,
			   (const char *)weights + i * size, size) != 0)
			return true;
	return false;
}

int ck_ds_twin_compare(struct ck_source *model, struct ck_source *optim,
		       const struct ck_torch_place *w,
		       const struct ck_torch_place *full, size_t nr)
{
	size_t size = ck_dtype_info(w->t.dtype)->size;
	ck_auto_free float *a = malloc(nr * sizeof(*a));
	ck_auto_free char *b = malloc(nr * size), *c = malloc(nr * size);

	if (!a || !b || !c)
		return -ENOMEM;
	if (ck_source_read(optim, a, nr * sizeof(*a), full->off, NULL) ||
	    ck_source_read(model, b, nr * size, w->off, NULL))
		return 0;
	return differ(w->t.dtype, a, b, c, nr);
}

int ck_ds_twin_whole(struct ck_torch_open *f, ck_pv v, struct ck_source *s,
		     const struct ck_torch_place *full, uint64_t *left)
{
	struct ck_torch_place w;
	uint64_t numel = 1, len, nr;
	int ret = ck_torch_place(f, v, &w, NULL);

	if (ret)
		return ret == -ENOMEM ? ret : 0;
	if (w.t.rank != full->t.rank ||
	    memcmp(w.t.shape, full->t.shape, w.t.rank * sizeof(*w.t.shape)) !=
		    0)
		return -EINVAL;
	for (unsigned d = 0; d < w.t.rank; d++)
		numel *= w.t.shape[d];
	if (full->t.dtype != CK_DT_F32 || full->xform ||
	    !ck_ds_is_run(&full->t, &len))
		return 0;
	ret = place_weight(f, v, numel, &w);
	if (ret <= 0)
		return ret;
	nr = CK_MIN(CK_MIN(numel, MAX_COMPARED), *left);
	*left -= nr;
	return nr ? ck_ds_twin_compare(f->s, s, &w, full, (size_t)nr) : 0;
}

/* What a rank has of a parameter; of each group the two longest are compared. */
struct piece {
	const struct ck_ds_param *p;
	uint64_t lo, len, at; /* of the parameter; in the rank's vector */
};

/* Whether it differs; UNTOLD, or -ENOMEM. */
#define UNTOLD (-ENODATA)

static int compare_piece(struct ck_torch_open *f, const struct piece *pc,
			 struct ck_source *optim, const struct ck_ds_rank *r,
			 uint64_t most)
{
	struct ck_torch_place w, full;
	int ret;

	for (size_t i = 0; pc->p && i < r->flats.nr; i++) {
		const struct ck_ds_flat *flat = &r->flats.v[i];

		if (flat->state || flat->group != pc->p->group ||
		    flat->run.place.t.dtype != CK_DT_F32 ||
		    flat->run.place.xform || pc->at + pc->len > flat->run.len)
			continue;
		ret = find_weight(f, pc->p, &w);
		if (ret <= 0)
			return ret ? ret : UNTOLD;
		full = flat->run.place;
		full.off += pc->at * sizeof(float);
		w.off += pc->lo * ck_dtype_info(w.t.dtype)->size;
		return ck_ds_twin_compare(f->s, optim, &w, &full,
					  (size_t)CK_MIN(pc->len, most));
	}
	return UNTOLD;
}

static void keep(struct piece best[2], struct piece new)
{
	if (new.len > best[0].len) {
		best[1] = best[0];
		best[0] = new;
	} else if (new.len > best[1].len) {
		best[1] = new;
	}
}

/* Of each rank, for group @group: best[2 * rank], and the one after. */
static void find_pieces(const struct ck_ds_zero *z, uint32_t group,
			struct piece *best)
{
	uint64_t size = z->group_size[group], lo, hi, at;

	for (size_t i = 0; i < z->m->params.nr && size; i++) {
		const struct ck_ds_param *p = &z->m->params.v[i];

		for (uint64_t r = z->pos[i] / size;
		     p->group == group && r < z->count &&
		     ck_ds_piece12(z->pos[i], p->numel, size, r, &lo, &hi, &at);
		     r++)
			keep(&best[2 * r],
			     (struct piece){ p, lo, hi - lo, at });
	}
}

struct verdict {
	const struct ck_ds_param *differs; /* one of those that do */
	unsigned nr_differ, nr_agree;
};

static int judge_rank(const struct ck_ds_zero *z, struct ck_torch_open *f,
		      const struct piece *best, const struct ck_ds_rank *r,
		      struct verdict *v)
{
	ck_auto_source struct ck_source *optim = NULL;
	int ret = ck_dir_open(z->dir, r->file->name, &optim, NULL);
	uint64_t most = MAX_ALL / (2 * z->m->nr_groups * z->count + 1);

	if (ret)
		return ret == -ENOMEM ? ret : 0;
	most = CK_MIN(CK_MAX(most, MIN_COMPARED), MAX_COMPARED);
	for (uint64_t i = 0; i < 2 * z->m->nr_groups; i++) {
		const struct piece *pc =
			&best[2 * (i / 2 * z->count + r->dp) + i % 2];

		ret = compare_piece(f, pc, optim, r, most);
		if (ret == -ENOMEM)
			return ret;
		if (ret > 0 && !v->nr_differ++)
			v->differs = pc->p;
		v->nr_agree += !ret;
	}
	return 0;
}

/* The model file anew: nobody else's is changed by looking. */
static int judge(const struct ck_ds_zero *z, struct piece *best,
		 struct verdict *v)
{
	ck_auto_torch_open struct ck_torch_open f = { 0 };
	int ret = ck_dir_open(z->dir, z->m->f.s->name, &f.s, NULL);

	if (!ret)
		ret = ck_torch_save_open(&f.ts, f.s, NULL);
	if (ret)
		return ret == -ENOMEM ? ret : 0;
	for (uint32_t g = 0; g < z->m->nr_groups; g++)
		find_pieces(z, g, best + 2 * g * z->count);
	for (size_t i = 0; i < z->ranks.nr && !ret; i++)
		if (z->ranks.v[i].usable)
			ret = judge_rank(z, &f, best, &z->ranks.v[i], &v[i]);
	return ret;
}

/* An edit of one tensor is none of a save: @alone is of all that was compared. */
static int say_rank(struct ck_ds_zero *z, struct ck_ds_rank *r,
		    const struct ck_ds_param *p, bool alone, struct ck_err *err)
{
	const struct ck_problem_in bad = {
		.severity = alone ? CK_ERROR : CK_WARNING,
		.file = r->file->name,
	};

	if (alone) {
		r->usable = false;
		z->complete = false;
	}
	return ck_builder_problem(
		z->b, &bad, err,
		"its master copy of %.*s is not what %s has, rounded: %s",
		(int)CK_MIN(p->name_len, 200), p->name, z->m->f.s->name,
		alone ? "that of other ranks is, so it is of another save and is not read" :
			"they are of two saves, or the weights were changed by themselves");
}

int ck_ds_twin_say(struct ck_ds_zero *z, struct ck_err *err)
{
	ck_auto_free struct piece *best = NULL;
	ck_auto_free struct verdict *v = NULL;
	bool agrees = false;
	uint64_t nr;
	int ret;

	if (z->stage3 || z->m->stage3 || !z->m->f.s ||
	    !ck_mul_ok(z->m->nr_groups, z->count, &nr) || nr > MAX_PIECES)
		return 0;
	best = calloc(2 * nr + 1, sizeof(*best));
	v = calloc(z->ranks.nr + 1, sizeof(*v));
	ret = best && v ? judge(z, best, v) : -ENOMEM;
	if (ret)
		return ck_fail(err, ENOMEM, "no memory to compare weights");
	for (size_t i = 0; i < z->ranks.nr; i++)
		agrees |= v[i].nr_agree && !v[i].nr_differ;
	for (size_t i = 0; i < z->ranks.nr && !ret && !z->two_saves; i++)
		if (v[i].differs)
			ret = say_rank(z, &z->ranks.v[i], v[i].differs,
				       agrees && !v[i].nr_agree &&
					       v[i].nr_differ > 1,
				       err);
	return ret;
}

/* Before anything is placed: where a group's vector begins is known. */
static int compare_first(struct ck_torch_open *f, const struct ck_ds_param *p,
			 struct ck_source *optim, const struct ck_ds_rank *r)
{
	struct piece pc = { p, 0, p->numel, 0 };
	int ret;

	if (p->pos)
		return 0;
	for (size_t i = 0; i < r->flats.nr; i++)
		if (!r->flats.v[i].state && r->flats.v[i].group == p->group)
			pc.len = CK_MIN(pc.len, r->flats.v[i].run.len);
	ret = compare_piece(f, &pc, optim, r, MAX_COMPARED);
	return ret == UNTOLD ? 0 : ret;
}

static int compare_all(const struct ck_ds_zero *z, const struct ck_ds_rank *r)
{
	ck_auto_torch_open struct ck_torch_open f = { 0 };
	ck_auto_source struct ck_source *optim = NULL;
	const struct ck_ds_model *m = z->m;
	int ret = ck_dir_open(z->dir, m->f.s->name, &f.s, NULL);

	if (!ret)
		ret = ck_torch_save_open(&f.ts, f.s, NULL);
	if (!ret)
		ret = ck_dir_open(z->dir, r->file->name, &optim, NULL);
	if (ret)
		return ret == -ENOMEM ? ret : 0;
	for (size_t i = 0; i < m->params.nr && !ret; i++)
		ret = compare_first(&f, &m->params.v[i], optim, r);
	return ret;
}

int ck_ds_twin_differs(const struct ck_ds_zero *z)
{
	for (size_t i = 0; i < z->ranks.nr; i++) {
		const struct ck_ds_rank *r = &z->ranks.v[i];

		if (r->usable && !r->dp)
			return r->stage3 || z->m->stage3 ? 0 :
							   compare_all(z, r);
	}
	return 0;
}
