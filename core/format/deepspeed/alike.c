/* SPDX-License-Identifier: Apache-2.0 */
/*
 * alike.c - files that only their names tell apart, by what they hold
 *
 * torch.save() to a buffer, and the older container, leave no name inside; so
 * a copy of one rank's file in the place of another's fits in every way.  How
 * the tensors shown are cut does not give it away: in stages 1 and 2 two ranks
 * have hardly a parameter in common, and in stage 3 the last has less of each.
 * What is compared is what the files themselves hold, vector by vector.
 */
#include "core/format/deepspeed/priv.h"

#include "core/base/check.h"
#include "core/container/torch_lost.h"
#include "core/container/torch_walk.h"

#include <errno.h>

#define MOST 32 /* tensors of a file */

struct alike {
	struct ck_builder *b;
	struct ck_torch_open *f;
	struct ck_stretch s;
};

int ck_ds_lost(struct ck_builder *b, const struct ck_torch_open *f,
	       struct ck_err *err)
{
	const struct ck_torch_lost_in lost = { .p = f->ts.pickle,
					       .from = ck_pickle_root(
						       f->ts.pickle),
					       .b = b,
					       .file = f->s->name,
					       .any = true };

	return ck_torch_lost_report(&lost, err);
}

bool ck_ds_is_run(const struct ck_torch_tensor *t, uint64_t *len)
{
	uint64_t step = 1;

	for (unsigned d = t->rank; d-- > 0;)
		if ((t->shape[d] > 1 && (uint64_t)t->stride[d] != step) ||
		    !ck_mul_ok(step, t->shape[d], &step))
			return false;
	return ck_mul_ok(step, ck_dtype_info(t->dtype)->size, len);
}

int ck_ds_stretch(struct ck_builder *b, const char *unit, uint32_t nr,
		  const struct ck_torch_place *at, struct ck_err *err)
{
	struct ck_stretch s = { .unit = unit,
				.src = at->src,
				.nr = nr,
				.off = at->off,
				.elem = ck_dtype_info(at->t.dtype)->size };

	return ck_ds_is_run(&at->t, &s.len) ? ck_builder_stretch(b, &s, err) :
					      0;
}

/* 1: enough of them were seen. */
static int each(void *ctx, const struct ck_torch_leaf *leaf, struct ck_err *err)
{
	struct alike *a = ctx;
	struct ck_torch_place at;
	int ret;

	if (!ck_torch_is_rebuild(a->f->ts.pickle, leaf->value))
		return 0;
	ret = ck_torch_place(a->f, leaf->value, &at, NULL);
	if (ret)
		return ret == -ENOMEM ? ck_fail(err, ENOMEM, "no memory") : 0;
	ret = ck_ds_stretch(a->b, a->s.unit, a->s.nr++, &at, err);
	return ret ? ret : a->s.nr >= MOST;
}

int ck_ds_alike(struct ck_builder *b, struct ck_torch_open *f, const char *file,
		ck_pv from, struct ck_err *err)
{
	struct alike a = { .b = b, .f = f, .s.unit = file };
	int ret;

	if (ck_ds_says_name(f))
		return 0;
	ret = ck_torch_walk(f->ts.pickle, from, each, &a, err);
	return ret < 0 ? ret : 0;
}

int ck_ds_open_all(struct ck_torch_open *f, const struct ck_dir *dir,
		   struct ck_builder *b, const char *name, bool *ok,
		   struct ck_err *err)
{
	int ret = ck_ds_open(f, dir, b, name, ok, err);

	if (ret || !*ok)
		return ret;
	ret = ck_ds_alike(b, f, name, ck_pickle_root(f->ts.pickle), err);
	return ret ? ret : ck_ds_lost(b, f, err);
}
