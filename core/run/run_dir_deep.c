/* SPDX-License-Identifier: Apache-2.0 */
/*
 * run_dir_deep.c - checkpoints that lie folders below what is listed
 *
 *	step_10/policy/weights/.metadata	step_10 shows it
 *	outputs/checkpoint/step-10/.metadata	outputs shows what checkpoint has
 */
#include "core/run/run_dir_priv.h"

#include "core/base/auto.h"
#include "core/base/check.h"

#include <stdlib.h>
#include <string.h>

#define FOLDERS_MAX 512
#define GROUP_MAX 64 /* folders of a folder that are looked at */
#define DEPTH_MAX 6 /* folders, one in another */

/* Folders below one, DEPTH_MAX deep: those by which names tell are checkpoints. */
struct deep {
	char *v[FOLDERS_MAX]; /* paths in the root */
	bool is[FOLDERS_MAX]; /* it is one; what is in it is not here */
	size_t nr;
};

static unsigned depth_of(const char *path)
{
	unsigned nr = *path != '\0';

	for (; *path; path++)
		nr += *path == '/';
	return nr;
}

/* Folders of @path: what is a checkpoint is found, others are looked into. */
static void add_folders(struct deep *f, const struct ck_root *root,
			const char *path)
{
	ck_auto_dir DIR *d = NULL;
	const struct dirent *e;
	unsigned nr = 0;

	ck_root_list(root, path, &d, NULL);
	while (d && nr < GROUP_MAX && f->nr < FOLDERS_MAX && (e = readdir(d))) {
		ck_auto_str struct ck_str sub = { 0 };

		if (*e->d_name == '.' ||
		    (e->d_type != DT_DIR && e->d_type != DT_UNKNOWN))
			continue;
		nr++;
		ck_str_fmt(&sub, "%s%s%s", path, *path ? "/" : "", e->d_name);
		if (sub.failed)
			return;
		f->is[f->nr] = ck_run_dir_has_in(root, sub.v, CK_SIGN_STRONG);
		f->v[f->nr++] = ck_steal(sub.v);
	}
}

/* Those below @in ("": the root); NULL: no memory. */
static struct deep *look(const struct ck_root *root, const char *in)
{
	struct deep *f = calloc(1, sizeof(*f));
	unsigned base = depth_of(in);

	if (f)
		add_folders(f, root, in);
	for (size_t i = 0; f && i < f->nr; i++)
		if (!f->is[i] && depth_of(f->v[i]) < base + DEPTH_MAX)
			add_folders(f, root, f->v[i]);
	return f;
}

static void deep_free(struct deep *f)
{
	for (size_t i = 0; f && i < f->nr; i++)
		free(f->v[i]);
	free(f);
}

/* The number that ends the folder at @path, or its name without a suffix. */
static bool numbered(const char *path, uint64_t *out)
{
	ck_auto_free char *one = strndup(path, strcspn(path, "/"));
	char *dot = one ? strrchr(one, '.') : NULL;

	if (one && ck_run_dir_number_of(one, out))
		return true;
	if (dot)
		*dot = '\0';
	return dot && ck_run_dir_number_of(one, out);
}

/* Of several the one that holds no optimizer. */
static char *only_model(const struct deep *f)
{
	const char *only = NULL;

	for (size_t i = 0; f && i < f->nr; i++) {
		if (!f->is[i] ||
		    !strncmp(ck_run_dir_base_of(f->v[i]), "optim", 5))
			continue;
		if (only)
			return NULL;
		only = f->v[i];
	}
	return only ? strdup(only) : NULL;
}

char *ck_run_dir_inner(const struct ck_root *root, const char *name)
{
	struct deep *f;
	uint64_t number;
	char *path;

	if (!strchr(name, '/') && !numbered(name, &number))
		return NULL; /* no step, nor a part of one */
	for (const struct ck_root *r = root; r; r = r->next)
		if (ck_run_dir_has_own(r, name))
			return NULL;
	if (root->next)
		return NULL;
	f = look(root, name);
	path = only_model(f);
	deep_free(f);
	return path;
}

char *ck_run_dir_folder(const struct ck_root *root, const char *name)
{
	char *inner = ck_run_dir_inner(root, name);

	return inner ? inner : strdup(name);
}

/* How much of @path the folder is that lies before its first step. */
static size_t before_step(const char *path)
{
	uint64_t number;

	for (size_t from = 0;; from++) {
		if (numbered(path + from, &number))
			return from ? from - 1 : 0;
		from += strcspn(path + from, "/");
		if (!path[from])
			return 0;
	}
}

/* The length of the folder that both lie in. */
static size_t in_common(const char *a, const char *b)
{
	size_t len = 0;

	for (size_t i = 0; a[i] && a[i] == b[i]; i++)
		if (a[i] == '/')
			len = i;
	return len;
}

/*
 * The folder of @root that all steps below it lie in, which all that was found
 * have in common, if they have numbers there, and each its own; of one alone,
 * and of the parts of one, what is before the first number.  0: @root itself.
 */
static size_t steps_in(const struct deep *f, const char *first)
{
	uint64_t one, other;
	size_t len = strlen(first), at;
	bool apart = false;

	for (size_t i = 0; i < f->nr; i++)
		if (f->is[i] && f->v[i] != first)
			len = CK_MIN(len, in_common(first, f->v[i]));
	at = len + (first[len] == '/' && len);
	for (size_t i = 0; i < f->nr; i++)
		apart |= f->is[i] && f->v[i] != first &&
			 numbered(first + at, &one) &&
			 numbered(f->v[i] + at, &other) && one != other;
	return apart ? len : before_step(first);
}

/* Its path, to free(); NULL: it is @root, or there is no step. */
static char *folder_of_steps(const struct ck_root *root)
{
	struct deep *f = look(root, "");
	const char *first = NULL;
	char *path = NULL;
	size_t len;

	for (size_t i = 0; f && i < f->nr && !first; i++)
		first = f->is[i] ? f->v[i] : NULL;
	len = first ? steps_in(f, first) : 0;
	if (len)
		path = strndup(first, len);
	deep_free(f);
	return path;
}

/* The folder called as runs call it, beside logs and plans. */
static bool has_run(const struct ck_root *root)
{
	struct ck_run_dir steps;
	bool any;

	if (ck_run_dir_is_signed(root, CK_RUN_DIR_RUN) ||
	    ck_run_dir_list_in(&steps, root, CK_RUN_DIR_RUN, NULL))
		return false;
	any = steps.nr;
	ck_run_dir_free(&steps);
	return any;
}

char *ck_run_dir_of_run(const struct ck_root *root)
{
	ck_auto_str struct ck_str path = { 0 };
	ck_auto_free char *deep = NULL;
	struct ck_run_dir steps;
	bool none, only;

	if (root->only || root->next || ck_run_dir_list(&steps, root, NULL))
		return NULL;
	none = !steps.nr;
	only = steps.nr == 1 && !steps.v->is_file && !steps.v->is_save;
	if (only && strcmp(steps.v->name, CK_RUN_DIR_RUN) != 0)
		only = !ck_run_dir_is_signed(root, steps.v->name) &&
		       (deep = folder_of_steps(root));
	else if (none || only)
		deep = has_run(root) ? strdup(CK_RUN_DIR_RUN) :
				       folder_of_steps(root);
	ck_run_dir_free(&steps);
	if (deep)
		ck_run_dir_path(root, deep, &path);
	return path.failed ? NULL : ck_steal(path.v);
}
