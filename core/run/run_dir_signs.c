/* SPDX-License-Identifier: Apache-2.0 */
/*
 * run_dir_signs.c - names in a folder that say it is a checkpoint
 *
 * By names alone, but where a name says that files are MindSpore's strategies:
 * those look like weights, and are none.
 */
#include "core/run/run_dir_priv.h"

#include "core/base/auto.h"
#include "core/base/check.h"
#include "core/base/suffix.h"
#include "core/root/dir.h"
#include "core/format/mindspore/names.h"
#include "core/format/mindspore/set.h"

#include <string.h>

#define GROUP_MAX 64 /* folders that are looked into for a sign */
#define STRATEGY "strategy"

/* A file that holds tensors by itself. */
bool ck_run_dir_is_weights(const char *name)
{
	static const char *const suffix[] = { ".safetensors", ".pt", ".pth",
					      ".bin", ".ckpt" };
	static const char custom[] = "custom_checkpoint_";

	for (size_t i = 0; i < CK_ARRAY_LEN(suffix); i++)
		if (ck_ends_in(name, suffix[i]))
			return true;
	/* accelerate's, of what a program registers: by torch.save too */
	return !strncmp(name, custom, sizeof(custom) - 1) &&
	       ck_ends_in(name, ".pkl");
}

/* It names weights: where they all are lost, that has to be said. */
static bool is_index(const char *name)
{
	return ck_ends_in(name, ".json") &&
	       (strstr(name, ".safetensors.index.") ||
		strstr(name, ".bin.index."));
}

/* What only lies in the folder of a checkpoint. */
static bool is_sign(const char *name)
{
	static const char *const begin[] = { "mp_rank_", "zero_pp_rank_",
					     "rank_" };

	if (ck_run_dir_is_weights(name) || is_index(name) ||
	    ck_ends_in(name, ".metadata") ||
	    !strcmp(name, "pickled_data") || /* OneFlow */
	    !strcmp(name, "snapshot_done") || ck_ends_in(name, ".distcp") ||
	    !strcmp(name, "unshard-layout.json") ||
	    !strcmp(name, CK_MANIFEST_NAME)) /* published, or sealed */
		return true;
	for (size_t i = 0; i < CK_ARRAY_LEN(begin); i++)
		if (!strncmp(name, begin[i], strlen(begin[i])))
			return true;
	return false;
}

/* What needs no look at its neighbours to be a checkpoint. */
static bool is_strong_sign(const char *name)
{
	return ck_ends_in(name, ".metadata") || ck_ends_in(name, ".distcp") ||
	       ck_ends_in(name, ".safetensors") || is_index(name) ||
	       !strcmp(name, "unshard-layout.json");
}

/* device0/net.ckpt: of ranks, if MindSpore's files are in them. */
static bool is_sign_of_rank(const char *name)
{
	return is_strong_sign(name) || ck_ends_in(name, ".ckpt");
}

static DIR *open_in(const struct ck_root *root, const char *name)
{
	DIR *d;

	ck_root_list(root, name, &d, NULL);
	return d;
}

bool ck_run_dir_is_strategy(const struct ck_root *root, const char *name)
{
	struct ck_dir dir;

	if (!strstr(ck_ms_base_of(name), STRATEGY))
		return false;
	ck_dir_root_init(&dir, root, NULL);
	return ck_ms_kind(&dir, name, NULL) == CK_MS_STRATEGY;
}

/* Of a folder that is called so, whatever @base is called. */
static bool is_strategy_in(const struct ck_root *root, const char *name,
			   const char *base)
{
	ck_auto_str struct ck_str path = { 0 };
	struct ck_dir dir;

	if (!strstr(ck_ms_base_of(name), STRATEGY))
		return false;
	ck_str_fmt(&path, "%s/%s", name, base);
	ck_dir_root_init(&dir, root, NULL);
	return !path.failed && ck_ms_kind(&dir, path.v, NULL) == CK_MS_STRATEGY;
}

static bool is_log(const char *name)
{
	return ck_ends_in(name, ".log") || ck_ends_in(name, ".txt");
}

/* rank_0.log, or rank_0/info.log and nothing else: what ranks printed. */
static bool is_log_in(const struct ck_root *root, const char *name,
		      const char *base)
{
	ck_auto_str struct ck_str path = { 0 };
	ck_auto_dir DIR *d = NULL;
	const struct dirent *e;
	bool any = false;

	if (is_log(base))
		return true;
	ck_str_fmt(&path, "%s/%s", name, base);
	d = path.failed ? NULL : open_in(root, path.v);
	while (d && (e = readdir(d))) {
		if (*e->d_name == '.')
			continue;
		if (!is_log(e->d_name))
			return false;
		any = true;
	}
	return any;
}

static bool has_in(const struct ck_root *root, const char *name,
		   bool (*is)(const char *name))
{
	ck_auto_dir DIR *d = open_in(root, name);
	const struct dirent *e;

	while (d && (e = readdir(d)))
		if (is(e->d_name) && !is_strategy_in(root, name, e->d_name) &&
		    !is_log_in(root, name, e->d_name))
			return true;
	return false;
}

/* What says it of the folder @name of @in. */
static bool (*sign_of(const char *in, const char *name))(const char *)
{
	struct ck_ms_number n;

	if (!strcmp(in, CK_RUN_DIR_RUN))
		return is_sign;
	if (ck_ms_number_in(name, &n) && n.word > CK_MS_NUMBER)
		return is_sign_of_rank;
	return is_strong_sign;
}

/* Whether a folder of it has a sign. */
static bool has_below(const struct ck_root *root, const char *name)
{
	ck_auto_dir DIR *d = open_in(root, name);
	const struct dirent *e;
	unsigned nr = 0;

	while (d && nr < GROUP_MAX && (e = readdir(d))) {
		ck_auto_str struct ck_str sub = { 0 };

		if (*e->d_name == '.' ||
		    (e->d_type != DT_DIR && e->d_type != DT_LNK &&
		     e->d_type != DT_UNKNOWN))
			continue;
		nr++;
		ck_str_fmt(&sub, "%s/%s", name, e->d_name);
		if (!sub.failed &&
		    has_in(root, sub.v, sign_of(name, e->d_name)))
			return true;
	}
	return false;
}

bool ck_run_dir_is_signed(const struct ck_root *root, const char *name)
{
	return has_in(root, name, is_sign);
}

bool ck_run_dir_has_sign(const struct ck_root *root, const char *name)
{
	for (; root; root = root->next)
		if (has_in(root, name, is_sign) ||
		    (!strchr(name, '/') && has_below(root, name)))
			return true;
	return false;
}
