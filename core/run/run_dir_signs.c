/* SPDX-License-Identifier: Apache-2.0 */
/*
 * run_dir_signs.c - names in a folder that say it is a checkpoint
 *
 * By names alone, but where a name says that files may be such as look like
 * weights and are none.
 */
#include "core/run/run_dir_priv.h"

#include "core/base/auto.h"
#include "core/base/match.h"
#include "core/base/suffix.h"

#include <string.h>

#define GROUP_MAX 64 /* folders that are looked into for a sign */

/* Whether a format has a sign that @name is, of the kinds @is; 0: of any. */
static bool has_sign(const char *name, unsigned is)
{
	size_t len = strlen(name);

	for (size_t i = 0; ck_formats[i]; i++) {
		const struct ck_format_sign *s = ck_formats[i]->signs;

		for (; s && s->pattern; s++)
			if ((!is || s->is & is) &&
			    ck_glob(s->pattern, strlen(s->pattern), name, len))
				return true;
	}
	return false;
}

bool ck_run_dir_is_weights(const char *name)
{
	return has_sign(name, CK_SIGN_WEIGHTS);
}

/* What lies in the folder of a checkpoint, published and sealed ones too. */
static bool is_sign(const char *name, unsigned is)
{
	return has_sign(name, is) || (!is && !strcmp(name, CK_MANIFEST_NAME));
}

static DIR *open_in(const struct ck_root *root, const char *name)
{
	DIR *d;

	ck_root_list(root, name, &d, NULL);
	return d;
}

/* By its name @base it may be one; @path says more. */
static bool is_aux(const struct ck_root *root, const char *path,
		   const char *base)
{
	struct ck_dir dir;

	ck_dir_root_init(&dir, root, NULL);
	for (size_t i = 0; ck_formats[i]; i++)
		if (ck_formats[i]->aux && strstr(base, ck_formats[i]->aux) &&
		    ck_formats[i]->aux_is(&dir, path))
			return true;
	return false;
}

bool ck_run_dir_is_aux(const struct ck_root *root, const char *name)
{
	return is_aux(root, name, ck_run_dir_base_of(name));
}

/* Of a folder that is called so, whatever @base is called. */
static bool is_aux_in(const struct ck_root *root, const char *name,
		      const char *base)
{
	ck_auto_str struct ck_str path = { 0 };

	ck_str_fmt(&path, "%s%s%s", name, *name ? "/" : "", base);
	return !path.failed && is_aux(root, path.v, ck_run_dir_base_of(name));
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
	ck_str_fmt(&path, "%s%s%s", name, *name ? "/" : "", base);
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

bool ck_run_dir_has_in(const struct ck_root *root, const char *name,
		       unsigned is)
{
	ck_auto_dir DIR *d = open_in(root, name);
	const struct dirent *e;

	while (d && (e = readdir(d)))
		if (is_sign(e->d_name, is) &&
		    !is_aux_in(root, name, e->d_name) &&
		    !is_log_in(root, name, e->d_name))
			return true;
	return false;
}

/* The kinds of signs that say it of the folder @name of @in. */
static unsigned sign_of(const char *in, const char *name)
{
	if (!strcmp(in, CK_RUN_DIR_RUN))
		return 0;
	for (size_t i = 0; ck_formats[i]; i++)
		if (ck_formats[i]->is_rank_dir &&
		    ck_formats[i]->is_rank_dir(name))
			return CK_SIGN_STRONG | CK_SIGN_RANK;
	return CK_SIGN_STRONG;
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
		    ck_run_dir_has_in(root, sub.v, sign_of(name, e->d_name)))
			return true;
	}
	return false;
}

bool ck_run_dir_is_signed(const struct ck_root *root, const char *name)
{
	return ck_run_dir_has_in(root, name, 0);
}

/* By a sign of its own, or of a folder in it that no group would show. */
bool ck_run_dir_has_own(const struct ck_root *root, const char *name)
{
	return ck_run_dir_has_in(root, name, 0) ||
	       (!strchr(name, '/') && has_below(root, name));
}

bool ck_run_dir_has_sign(const struct ck_root *root, const char *name)
{
	ck_auto_free char *inner = NULL;

	for (const struct ck_root *r = root; r; r = r->next)
		if (ck_run_dir_has_own(r, name))
			return true;
	inner = ck_run_dir_inner(root, name);
	return inner;
}

static bool is_rank_dir(const char *name)
{
	return sign_of("", name) & CK_SIGN_RANK;
}

bool ck_run_dir_is_sign(const char *name)
{
	return is_sign(name, 0) || is_rank_dir(name);
}

bool ck_run_dir_may_be_one(const struct ck_root *root, const char *name)
{
	ck_auto_dir DIR *d = NULL;
	const struct dirent *e;

	if (ck_run_dir_has_in(root, name, 0))
		return true;
	d = open_in(root, name);
	while (d && (e = readdir(d)))
		if (e->d_type == DT_DIR && is_rank_dir(e->d_name))
			return true;
	return false;
}
