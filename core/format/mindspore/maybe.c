/* SPDX-License-Identifier: Apache-2.0 */
/*
 * maybe.c - folders that are numbered from 0: of ranks, or saves
 *
 *	0/net.ckpt 1/net.ckpt		no word says which
 *	ckpt_0/net-3_90.ckpt ..		of one epoch and step in all: ranks
 *
 * What counts steps is alike in all ranks and in no two saves.
 */
#include "core/format/mindspore/find.h"

#include "core/base/auto.h"
#include "core/base/check.h"
#include "core/format/mindspore/keys.h"
#include "core/format/mindspore/set.h"

#include <ctype.h>
#include <errno.h>
#include <string.h>

static void builder_freep(struct ck_builder **b)
{
	if (*b)
		ck_builder_free(*b);
}

/* The first file that both folders have, in each. */
static void find_common(const struct ck_ms_found *f, const char *both[2])
{
	for (size_t i = 0; i < f->file.nr; i++)
		for (size_t k = i + 1; k < f->file.nr; k++)
			if (f->file.v[i].rank != f->file.v[k].rank &&
			    !strcmp(f->file.v[i].base, f->file.v[k].base)) {
				both[0] = f->file.v[i].name;
				both[1] = f->file.v[k].name;
				return;
			}
}

static const struct ck_ms_tensor *of_file(const struct ck_ms_set *s,
					  uint32_t name, uint32_t file)
{
	for (uint32_t i = s->name.v[name].first; i != CK_STRATEGY_NONE;
	     i = s->tensor.v[i].next)
		if (s->tensor.v[i].file == file)
			return &s->tensor.v[i];
	return NULL;
}

struct signs {
	bool same_names; /* both hold the same */
	bool counted; /* something counts steps, */
	bool differ; /* differently */
};

static void look(const struct ck_ms_set *s, struct signs *out)
{
	static const char *const counts[] = { "global_step", "epoch_num",
					      "step_num" };

	out->same_names = s->name.nr;
	for (uint32_t i = 0; i < s->name.nr; i++) {
		const struct ck_ms_tensor *a = of_file(s, i, 0);
		const struct ck_ms_tensor *b = of_file(s, i, 1);

		out->same_names = out->same_names && a && b;
		for (size_t k = 0; a && b && k < CK_ARRAY_LEN(counts); k++) {
			if (strcmp(s->names.v[i].s, counts[k]) != 0)
				continue;
			out->counted = true;
			out->differ = out->differ || a->hash != b->hash;
		}
	}
}

static int read_both(const struct ck_ms_found *f, const struct ck_dir *dir,
		     struct signs *out, struct ck_err *err)
{
	__attribute__((cleanup(builder_freep))) struct ck_builder *b =
		ck_builder_new(err);
	struct ck_ms_set s = { .dir = dir, .b = b, .compares = true };
	const char *both[2] = { f->file.v[0].name, f->file.v[0].name };
	int ret = b ? 0 : -ENOMEM;

	find_common(f, both);
	for (uint32_t i = 0; i < 2 && !ret; i++)
		ret = ck_ms_read_file(&s, both[i], i, err);
	if (!ret)
		look(&s, out);
	ck_ms_set_free(&s);
	return ret;
}

int ck_ms_maybe(const struct ck_ms_found *f, const struct ck_dir *dir,
		struct ck_err *err)
{
	const char *name = f->file.v[0].name;
	struct signs signs = { .counted = false };
	bool ranks;
	int ret = read_both(f, dir, &signs, err);

	if (ret)
		return ret;
	ranks = signs.counted ?
			!signs.differ && signs.same_names :
			signs.same_names && isdigit((unsigned char)*name);
	if (ck_ms_names_epoch(f->file.v[0].base))
		ranks = !signs.counted || !signs.differ;
	if (!ranks)
		return ck_fail(err, ENODATA,
			       "no checkpoint found in %s itself: it holds "
			       "folders of checkpoints, give one of them",
			       dir->path);
	return ck_fail(
		err, EINVAL,
		"%s: %.*s and %zu more like it hold the same tensors of the same step, so that they may be pieces of ranks: give the strategy file with -o strategy=FILE; if each holds all of each tensor (data parallel), say -o integrated=yes; else mount one of them by itself",
		dir->path, (int)strcspn(name, "/"), name, f->alike - 1);
}
