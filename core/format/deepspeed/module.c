/* SPDX-License-Identifier: Apache-2.0 */
/*
 * module.c - the weights in a model file, and what is frozen or a buffer
 *
 * Stages 0 to 2 keep the weights themselves; stage 3 keeps buffers, empty
 * places for the weights, and of frozen parameters ceil(n / ranks) elements in
 * each rank's file.
 */
#include "core/format/deepspeed/priv.h"

#include "core/base/check.h"
#include "core/container/container.h"
#include "core/container/torch_walk.h"
#include "core/geom/range.h"

#include <errno.h>
#include <string.h>

int ck_ds_refuse(struct ck_ds_load *ld, const char *kind, const char *name,
		 size_t len, const char *why, struct ck_err *err)
{
	ck_auto_str struct ck_str full = { 0 };

	ck_str_fmt(&full, "%s.", kind);
	ck_str_add(&full, name, len);
	if (full.failed)
		return ck_fail(err, ENOMEM, "no memory for a name");
	return ck_builder_refuse(ld->b, 0, full.v, full.len, err, "%s", why);
}

int ck_ds_tensor(struct ck_ds_load *ld, const struct ck_ds_model *m,
		 struct ck_torch_open *f, const char *kind, const char *name,
		 size_t name_len, ck_pv v, struct ck_err *err)
{
	ck_auto_str struct ck_str full = { 0 };
	ck_auto_cut struct ck_cut cut = { 0 };
	struct ck_torch_place at;
	struct ck_err why = { 0 };
	int ret = ck_torch_place(f, v, &at, &why);

	if (!ret)
		ret = m ? ck_ds_cut(m, name, name_len, at.t.shape, at.t.rank,
				    &cut, &why) :
			  ck_cut_whole(&cut, at.t.shape, at.t.rank, &why);
	if (ret == -EINVAL)
		return ck_ds_refuse(ld, kind, name, name_len, why.msg, err);
	if (ret)
		return ck_fail(err, -ret, "%s", why.msg);
	ck_str_fmt(&full, "%s.", kind);
	ck_str_add(&full, name, name_len);
	if (full.failed)
		return ck_fail(err, ENOMEM, "no memory for a name");
	ret = ck_cut_add_tensor(&cut, ld->b, full.v, full.len, &at, err);
	return ret ? ret : ck_ds_path(ld->b, kind, name, name_len, &full, err);
}

static bool has_key(const struct ck_pickle *p, ck_pv dict, const char *name,
		    size_t len)
{
	struct ck_piter it;
	ck_pv key, v;
	const char *s;
	size_t s_len;

	ck_piter_init_pairs(&it, p, dict);
	while (ck_piter_next2(&it, &key, &v))
		if (ck_pv_str(p, key, &s, &s_len) && s_len == len &&
		    !memcmp(s, name, len))
			return true;
	return false;
}

/*
 * Whether the optimizer files, or frozen pieces, have it in full precision; so
 * may they where nothing names what is trained (experts, files of 2020).
 */
static bool is_elsewhere(const struct ck_ds_model *m, const char *name,
			 size_t len)
{
	if (!m->names && !ck_ds_is_buffer(m, name, len))
		return true;
	if (ck_strmap_get(&m->by_name, name, len) != CK_STRMAP_NONE)
		return true;
	for (size_t i = 0; i < m->aliases.nr; i++) {
		const struct ck_ds_alias *a = &m->aliases.v[i];

		if (a->name_len == len && !memcmp(a->name, name, len))
			return m->stage3 ||
			       ck_strmap_get(&m->by_name, a->holder,
					     a->holder_len) != CK_STRMAP_NONE;
	}
	return m->stage3 &&
	       has_key(m->f.ts.pickle, m->frozen_shapes, name, len);
}

/* Where stage 3 leaves a place for a weight, and no file says its name. */
static bool is_empty_place(const struct ck_ds_model *m, const char *name,
			   size_t len, ck_pv v)
{
	struct ck_torch_tensor t;

	return m->stage3 &&
	       !ck_torch_tensor_read(m->f.ts.pickle, v, &t, NULL) &&
	       t.rank == 1 && !t.shape[0] && !ck_ds_is_buffer(m, name, len);
}

static int say_weight(struct ck_ds_load *ld, struct ck_ds_model *m,
		      const char *name, size_t len, ck_pv v, struct ck_err *err)
{
	int ret = 0;

	if (!m->stage3)
		ret = ck_ds_tensor(ld, m, &m->f, "module", name, len, v, err);
	if (ret || !ld->zero || ld->universal || is_elsewhere(m, name, len))
		return ret;
	if (is_empty_place(m, name, len, v))
		return ck_ds_refuse(
			ld, "fp32", name, len,
			"an empty place for it is all there is; who has its weights the first rank's model file says",
			err);
	return ck_ds_tensor(ld, m, &m->f, "fp32", name, len, v, err);
}

/* One rank's piece of a frozen parameter. */
static int say_frozen_piece(struct ck_ds_load *ld, const struct ck_ds_model *m,
			    struct ck_torch_open *f, const char *name,
			    size_t len, ck_pv fragment, uint64_t dp,
			    uint64_t nr_dp, const struct ck_cut *cut,
			    uint64_t numel, struct ck_err *err)
{
	ck_auto_str struct ck_str full = { 0 };
	struct ck_cut_run run = { 0 };
	struct ck_err why = { 0 };
	uint64_t lo, hi;
	int ret = ck_torch_place(f, fragment, &run.place, &why);

	(void)m;
	if (ret == -ENOMEM)
		return ck_fail(err, ENOMEM, "%s", why.msg);
	if (ret || run.place.t.rank != 1 ||
	    run.place.t.shape[0] != CK_DIV_UP(numel, nr_dp) ||
	    (run.place.t.shape[0] > 1 && run.place.t.stride[0] != 1))
		return ck_ds_refuse(
			ld, "fp32", name, len,
			ret ? why.msg :
			      "its frozen pieces are not of equal size",
			err);
	run.len = run.place.t.shape[0];
	ck_ds_piece3(numel, dp, nr_dp, &lo, &hi);
	ck_str_puts(&full, "fp32.");
	ck_str_add(&full, name, len);
	if (full.failed)
		return ck_fail(err, ENOMEM, "no memory for a name");
	ret = ck_cut_add_run(cut, ld->b, full.v, full.len, lo, hi, 0, &run,
			     err);
	return ret ? ret : ck_ds_path(ld->b, "fp32", name, len, &full, err);
}

/* The pieces that one rank's file has of all frozen parameters. */
static int say_frozen(struct ck_ds_load *ld, const struct ck_ds_model *m,
		      struct ck_torch_open *f, uint64_t dp, uint64_t nr_dp,
		      struct ck_err *err)
{
	const struct ck_pickle *p = f->ts.pickle;
	ck_pv root = ck_pickle_root(p), shapes, parts, key, v;
	struct ck_piter it;
	int ret = 0;

	if (!ck_pv_key(p, root, "frozen_param_shapes", &shapes) ||
	    !ck_pv_key(p, root, "frozen_param_fragments", &parts))
		return 0;
	ck_piter_init_pairs(&it, p, parts);
	while (!ret && ck_piter_next2(&it, &key, &v)) {
		ck_auto_cut struct ck_cut cut = { 0 };
		uint64_t shape[CK_MAX_RANK], numel;
		struct ck_err why = { 0 };
		char text[512];
		const char *name;
		size_t len;
		unsigned rank;
		ck_pv size;

		if (!ck_pv_str(p, key, &name, &len) || len >= sizeof(text))
			continue;
		memcpy(text, name, len);
		text[len] = '\0';
		if (!ck_pv_key(p, shapes, text, &size) ||
		    !ck_torch_size(p, size, shape, &rank) ||
		    !ck_dims_volume(shape, rank, &numel)) {
			ret = ck_ds_refuse(
				ld, "fp32", name, len,
				"frozen_param_shapes has no shape of it", err);
			continue;
		}
		ret = ck_ds_cut(m, name, len, shape, rank, &cut, &why);
		if (ret == -EINVAL)
			ret = ck_ds_refuse(ld, "fp32", name, len, why.msg, err);
		else if (!ret)
			ret = say_frozen_piece(ld, m, f, name, len, v, dp,
					       nr_dp, &cut, numel, err);
	}
	return ret;
}

static int say_frozen_all(struct ck_ds_load *ld, const struct ck_ds_model *m,
			  uint64_t nr_dp, struct ck_err *err)
{
	size_t nr;
	const struct ck_ds_file *file =
		ck_ds_files_of(&ld->fs, CK_DS_MODEL3, m->mp, &nr);
	int ret = 0;

	for (size_t i = 0; i < nr && !ret; i++) {
		ck_auto_torch_open struct ck_torch_open f = { 0 };
		ck_pv parts;
		bool ok;

		if (file[i].dp >= nr_dp)
			continue;
		ret = ck_ds_open(&f, ld->dir, ld->b, file[i].name, &ok, err);
		if (!ret && ok)
			ret = ck_ds_check_beside(ld, m, &f, &ok, err);
		if (!ret && ok &&
		    ck_pv_key(f.ts.pickle, ck_pickle_root(f.ts.pickle),
			      "frozen_param_fragments", &parts))
			ret = ck_ds_alike(ld->b, &f, file[i].name, parts, err);
		if (!ret && ok)
			ret = say_frozen(ld, m, &f, file[i].dp, nr_dp, err);
	}
	return ret;
}

/*
 * Without frozen parameters the other ranks' model files say what the first
 * one says: they are no files that nobody knows.
 */
static int know_others(struct ck_ds_load *ld, const struct ck_ds_model *m,
		       uint64_t nr_dp, struct ck_err *err)
{
	size_t nr;
	const struct ck_ds_file *file =
		ck_ds_files_of(&ld->fs, CK_DS_MODEL3, m->mp, &nr);
	int ret = 0;

	for (size_t i = 0; i < nr && !ret; i++) {
		uint32_t src;

		if (!nr_dp || file[i].dp < nr_dp)
			ret = ck_dir_source(ld->dir, ld->b, file[i].name, &src,
					    NULL, err);
	}
	return ret;
}

int ck_ds_module_say(struct ck_ds_load *ld, struct ck_ds_model *m,
		     uint64_t nr_dp, struct ck_err *err)
{
	const struct ck_pickle *p = m->f.ts.pickle;
	struct ck_piter it, any;
	ck_pv key, v;
	int ret = 0;

	ck_piter_init_pairs(&it, p, m->module);
	while (!ret && ck_piter_next2(&it, &key, &v)) {
		char number[24];
		const char *name;
		size_t len;

		if (ck_pv_key_text(p, key, number, &name, &len) &&
		    ck_torch_is_rebuild(p, v))
			ret = say_weight(ld, m, name, len, v, err);
	}
	if (ret || !m->stage3)
		return ret;
	ck_piter_init_pairs(&any, p, m->frozen_parts);
	if (nr_dp && !ld->universal && ck_piter_next2(&any, &key, &v))
		return say_frozen_all(ld, m, nr_dp, err);
	return know_others(ld, m, nr_dp, err);
}
