/* SPDX-License-Identifier: Apache-2.0 */
/* find.c - folders of ranks, their files, and strategy files beside them */
#include "core/format/mindspore/find.h"

#include "core/base/auto.h"
#include "core/base/check.h"
#include "core/base/suffix.h"
#include "core/format/mindspore/folders.h"
#include "core/format/mindspore/keys.h"
#include "core/format/mindspore/set.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define MAX_STRATEGY (UINT64_C(64) << 20)

void ck_ms_found_free(struct ck_ms_found *f)
{
	for (size_t i = 0; i < f->lists.nr; i++)
		ck_dir_list_free(&f->lists.v[i]);
	ck_dir_list_free(&f->root);
	free(f->lists.v);
	free(f->ranks.v);
	free(f->file.v);
	free(f->strategy.v);
	free(f->dud.v);
	free(f->step);
	free(f->others);
	free(f->newer);
	free(f->partial);
	*f = (struct ck_ms_found){ .mode = CK_MS_NOTHING };
}

/* Those of another save are its own; the root's are seen by all readers. */
static void see_temporary(struct ck_ms_found *f, const struct ck_dir *dir,
			  const char *name)
{
	if (dir->save || !strchr(name, '/') || !ck_is_temporary(name))
		return;
	if (!f->nr_tmp++)
		f->tmp = name;
}

int ck_ms_add_file(struct ck_ms_found *f, const struct ck_dir *dir,
		   const char *name, uint32_t rank, struct ck_err *err)
{
	struct ck_ms_found_file *file;
	int kind = CK_MS_CKPT;

	see_temporary(f, dir, name);
	if (!ck_has_suffix(name, ".ckpt") &&
	    !ck_has_suffix(name, ".safetensors") && !dir->only)
		return 0;
	if (dir->save && !ck_ms_key_has(dir->save, ck_ms_base_of(name), rank)) {
		f->passed_over = true;
		return 0;
	}
	if (!f->names_only)
		kind = ck_ms_kind(dir, name, err);
	if (kind < 0)
		return kind;
	if (kind != CK_MS_CKPT && kind != CK_MS_ENCRYPTED &&
	    kind != CK_MS_SAFETENSORS)
		return 0;
	file = ck_vec_push(&f->file);
	if (!file)
		return ck_ms_no_memory(err);
	*file = (struct ck_ms_found_file){ .name = name,
					   .base = ck_ms_base_of(name),
					   .rank = rank };
	return 0;
}

int ck_ms_list(struct ck_ms_found *f, const struct ck_dir *dir, const char *in,
	       struct ck_dir_list *out, struct ck_err *err)
{
	struct ck_dir_list *slot = ck_vec_push(&f->lists);
	int ret;

	if (!slot)
		return ck_ms_no_memory(err);
	*slot = (struct ck_dir_list){ 0 };
	ret = ck_dir_list(dir, in, slot, err);
	*out = *slot;
	return ret;
}

/* ---- strategies ---- */

static int is_strategy(const struct ck_dir *dir, const char *name,
		       struct ck_err *err)
{
	ck_auto_free char *bytes = NULL;
	size_t len;
	int ret;

	if (!ck_has_suffix(name, ".json")) {
		ret = ck_ms_kind(dir, name, err);
		return ret < 0 ? ret : ret == CK_MS_STRATEGY;
	}
	ret = ck_dir_slurp(dir, name, MAX_STRATEGY, &bytes, &len, err);
	if (ret)
		return ret == -ENOMEM ? ret : 0;
	return ck_strategy_is(name, bytes, len);
}

/* Whether nothing else would be called so: operators' ones are whole JSON. */
static int is_dud(const struct ck_dir *dir, const char *name,
		  struct ck_err *err)
{
	bool json = ck_has_suffix(name, ".json");
	ck_auto_free char *bytes = NULL;
	size_t len;
	int ret;

	if (!strstr(name, "strategy") ||
	    (!json && !ck_has_suffix(name, ".ckpt")))
		return 0;
	if (!json) {
		ret = ck_ms_kind(dir, name, err);
		return ret < 0 ? ret : ret == CK_MS_OTHER;
	}
	ret = ck_dir_slurp(dir, name, MAX_STRATEGY, &bytes, &len, err);
	if (ret)
		return ret == -ENOMEM ? ret : 0;
	while (len && strchr(" \t\r\n", bytes[len - 1]))
		len--;
	return !len || bytes[len - 1] != '}';
}

static int take_strategies(struct ck_ms_found *f, const struct ck_dir *dir,
			   const struct ck_dir_list *list, struct ck_err *err)
{
	for (size_t i = 0; i < list->nr; i++) {
		const char *name = list->v[i].name, **slot;
		int ret, dud = 0;

		if (list->v[i].is_dir)
			continue;
		see_temporary(f, dir, name);
		if (ck_is_temporary(name))
			continue;
		ret = is_strategy(dir, name, err);
		if (!ret)
			ret = dud = is_dud(dir, name, err);
		if (ret < 0)
			return ret;
		if (!ret)
			continue;
		slot = dud ? ck_vec_push(&f->dud) : ck_vec_push(&f->strategy);
		if (!slot)
			return ck_ms_no_memory(err);
		*slot = name;
	}
	return 0;
}

/* Beside the ranks; only if there is none, in folders that are called so. */
static int find_strategies(struct ck_ms_found *f, const struct ck_dir *dir,
			   struct ck_err *err)
{
	int ret = take_strategies(f, dir, &f->root, err);

	for (size_t i = 0; i < f->root.nr && !ret && !f->strategy.nr; i++) {
		struct ck_dir_list list;

		if (!f->root.v[i].is_dir ||
		    !strstr(f->root.v[i].name, "strategy"))
			continue;
		ret = ck_ms_list(f, dir, f->root.v[i].name, &list, err);
		if (!ret)
			ret = take_strategies(f, dir, &list, err);
	}
	return ret;
}

/* What others pass over: "crc_num" in the header, as a rule at its beginning. */
static int has_sum(const struct ck_dir *dir, const char *name,
		   struct ck_err *err)
{
	ck_auto_source struct ck_source *in = NULL;
	static const char key[] = "\"crc_num\"";
	char head[4096];
	size_t len;
	int ret = ck_dir_open(dir, name, &in, err);

	if (ret)
		return ret == -ENOMEM ? ret : 0;
	len = (size_t)CK_MIN((uint64_t)in->st.st_size, sizeof(head));
	return !ck_source_read(in, head, len, 0, NULL) &&
	       memmem(head, len, key, sizeof(key) - 1);
}

/* Whether any is more than plain safetensors. */
static int find_own(struct ck_ms_found *f, const struct ck_dir *dir,
		    struct ck_err *err)
{
	for (size_t i = 0; i < f->file.nr; i++) {
		int ret;

		if (!ck_has_suffix(f->file.v[i].name, ".safetensors")) {
			f->has_ckpt = true;
			continue;
		}
		ret = f->names_only || f->sums ?
			      0 :
			      has_sum(dir, f->file.v[i].name, err);
		if (ret < 0)
			return ret;
		f->sums = f->sums || ret;
	}
	return 0;
}

static int find_plain(struct ck_ms_found *f, const struct ck_dir *dir,
		      struct ck_err *err)
{
	int ret = 0;

	for (size_t i = 0; i < f->root.nr && !ret; i++)
		if (!f->root.v[i].is_dir)
			ret = ck_ms_add_file(f, dir, f->root.v[i].name, 0, err);
	if (!ret)
		ret = find_own(f, dir, err);
	if (ret || !f->file.nr || !ck_vec_reserve(&f->ranks, 1))
		return ret || !f->file.nr ? ret : ck_ms_no_memory(err);
	f->mode = CK_MS_ONE;
	f->ranks.v[f->ranks.nr++] = 0;
	return 0;
}

static bool is_unified(const struct ck_dir_list *l)
{
	bool map = false, parts = false;

	for (size_t i = 0; i < l->nr; i++) {
		map = map || !strcmp(l->v[i].name, "param_name_map.json");
		parts = parts || ck_has_suffix(l->v[i].name, ".safetensors");
	}
	return map && parts;
}

int ck_ms_find_names(struct ck_ms_found *f, const struct ck_dir *dir,
		     const char *in, struct ck_err *err)
{
	int ret;

	*f = (struct ck_ms_found){ .names_only = true };
	ret = ck_dir_list(dir, in, &f->root, err);
	if (!ret)
		ret = ck_ms_find_folders(f, dir, err);
	return ret || f->mode == CK_MS_RANKS ? ret : find_plain(f, dir, err);
}

/* Folders that may as well be saves are ranks where a strategy is beside. */
static int find_beside(struct ck_ms_found *f, const struct ck_dir *dir,
		       struct ck_err *err)
{
	int ret = find_strategies(f, dir, err);

	if (ret || f->mode != CK_MS_MAYBE || !f->strategy.nr)
		return ret;
	f->mode = CK_MS_NOTHING;
	f->file.nr = f->ranks.nr = f->nr_tmp = 0;
	return ck_ms_find_folders(f, dir, err);
}

static int find_one(struct ck_ms_found *f, const struct ck_dir *dir,
		    struct ck_err *err)
{
	int ret = find_plain(f, dir, err);

	if (!ret && (f->has_ckpt || ck_ms_are_flat(f)))
		ret = find_strategies(f, dir, err);
	if (!ret && f->mode == CK_MS_ONE && !dir->save &&
	    (f->asked || f->strategy.nr))
		ret = ck_ms_find_flat(f, dir, err);
	return ret;
}

int ck_ms_find(struct ck_ms_found *f, const struct ck_dir *dir,
	       struct ck_err *err)
{
	const char *whole = ck_opts_get(dir->opts, "integrated");
	int ret;

	*f = (struct ck_ms_found){
		.mode = CK_MS_NOTHING,
		.asked = ck_opts_get(dir->opts, "strategy") ||
			 (whole && !strcmp(whole, "yes")),
	};
	ret = ck_dir_list(dir, "", &f->root, err);
	if (ret || dir->only)
		return ret ? ret : find_plain(f, dir, err);
	if (is_unified(&f->root)) {
		f->mode = CK_MS_UNIFIED;
		return 0;
	}
	ret = ck_ms_find_folders(f, dir, err);
	if (ret)
		return ret;
	return f->mode == CK_MS_NOTHING ? find_one(f, dir, err) :
					  find_beside(f, dir, err);
}
