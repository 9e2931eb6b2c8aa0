/* SPDX-License-Identifier: Apache-2.0 */
/*
 * files.c - the files of a DeepSpeed checkpoint, by their names
 */
#include "core/format/deepspeed/priv.h"

#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

/*
 * Whether @name is @pattern, where '#' stands for a number, at most three of
 * them, which are put into @n.
 */
static bool fits(const char *name, const char *pattern, unsigned long *n)
{
	while (*pattern) {
		char *end;

		if (*pattern != '#') {
			if (*name++ != *pattern++)
				return false;
			continue;
		}
		if (!isdigit((unsigned char)*name))
			return false;
		*n = strtoul(name, &end, 10);
		if (end - name > 9 || *n++ >= CK_DS_MAX_RANKS)
			return false;
		name = end;
		pattern++;
	}
	return !*name;
}

bool ck_ds_is_name(const char *name, struct ck_ds_file *out)
{
	static const struct {
		const char *pattern;
		enum ck_ds_kind kind;
		signed char mp, dp; /* which number; -1: none */
	} t[] = {
		{ "mp_rank_#_model_states.pt", CK_DS_MODEL, 0, -1 },
		{ "zero_pp_rank_#_mp_rank_#_model_states.pt", CK_DS_MODEL3, 1,
		  0 },
		{ "zero_pp_rank_#_mp_rank_#_optim_states.pt", CK_DS_OPTIM, 1,
		  0 },
		{ "bf16_zero_pp_rank_#_mp_rank_#_optim_states.pt", CK_DS_OPTIM,
		  1, 0 },
		{ "fp16_zero_pp_rank_#_mp_rank_#_optim_states.pt", CK_DS_OPTIM,
		  1, 0 },
		{ "layer_#-model_states.pt", CK_DS_LAYER, -1, 0 },
		{ "layer_#-model_#-model_states.pt", CK_DS_LAYER, 1, 0 },
		{ "layer_#_expert_#_mp_rank_#_model_states.pt", CK_DS_EXPERT, 2,
		  1 },
		{ "expert_#_mp_rank_#_model_states.pt", CK_DS_EXPERT, 1, 0 },
		{ "expp_rank_#_mp_rank_#_optim_states.pt", CK_DS_EXPERT_OPTIM,
		  1, 0 },
	};

	for (size_t i = 0; i < sizeof(t) / sizeof(*t); i++) {
		unsigned long n[3] = { 0 };

		if (!fits(name, t[i].pattern, n))
			continue;
		out->kind = t[i].kind;
		out->mp = t[i].mp < 0 ? 0 : (unsigned)n[t[i].mp];
		out->dp = t[i].dp < 0 ? 0 : (unsigned)n[t[i].dp];
		return true;
	}
	return false;
}

static int order(const void *pa, const void *pb)
{
	const struct ck_ds_file *a = pa, *b = pb;

	if (a->kind != b->kind)
		return a->kind < b->kind ? -1 : 1;
	if (a->mp != b->mp)
		return a->mp < b->mp ? -1 : 1;
	if (a->dp != b->dp)
		return a->dp < b->dp ? -1 : 1;
	return strcmp(a->name, b->name);
}

int ck_ds_files_list(struct ck_ds_files *fs, const struct ck_dir *dir,
		     struct ck_err *err)
{
	ck_auto_dir_list struct ck_dir_list l = { 0 };
	int ret = ck_dir_list(dir, "", &l, err);

	for (size_t i = 0; i < l.nr && !ret; i++) {
		struct ck_ds_file f = { 0 }, *to;

		if (l.v[i].is_dir || !ck_ds_is_name(l.v[i].name, &f))
			continue;
		f.name = strdup(l.v[i].name);
		to = f.name ? ck_vec_push(&fs->v) : NULL;
		if (!to) {
			free(f.name);
			return ck_fail(err, ENOMEM, "no memory for names");
		}
		*to = f;
	}
	if (!ret && fs->v.nr)
		qsort(fs->v.v, fs->v.nr, sizeof(*fs->v.v), order);
	return ret;
}

void ck_ds_files_free(struct ck_ds_files *fs)
{
	for (size_t i = 0; i < fs->v.nr; i++)
		free(fs->v.v[i].name);
	free(fs->v.v);
	*fs = (struct ck_ds_files){ 0 };
}

const struct ck_ds_file *ck_ds_files_of(const struct ck_ds_files *fs,
					enum ck_ds_kind kind, unsigned mp,
					size_t *nr)
{
	const struct ck_ds_file *first = NULL;

	*nr = 0;
	for (size_t i = 0; i < fs->v.nr; i++) {
		const struct ck_ds_file *f = &fs->v.v[i];

		if (f->kind != kind || f->mp != mp)
			continue;
		if (!first)
			first = f;
		++*nr;
	}
	return first;
}
