/* SPDX-License-Identifier: Apache-2.0 */
/*
 * run_dir_siblings.c - what lies in the folder of a model and is read by itself
 *
 *	model.safetensors config.json		the checkpoint
 *	latest global_step500/			DeepSpeed's, of the same save
 *	optimizer.pt scheduler.pt rng_state_0.pth
 *	checkpoint-500/				or saves of before
 */
#include "core/run/run_dir_priv.h"

#include "core/format/explain.h"

#include <string.h>

/* Whether the checkpoint itself is made of it, or of something in it. */
static bool is_used(const struct ck_catalog *img, const char *name)
{
	size_t len = strlen(name);

	for (uint32_t i = 0; i < img->nr_srcs; i++) {
		const struct ck_src *s = &img->srcs[i];
		const char *file;

		if (s->kind != CK_SRC_FILE)
			continue;
		file = ck_catalog_str(img, s->name, NULL);
		if (!strncmp(file, name, len) &&
		    (!file[len] || file[len] == '/'))
			return true;
	}
	return false;
}

/* Arguments are no state. */
static bool is_beside(const struct ck_run_dir_entry *s)
{
	return s->is_file ? ck_leftover_is_name(s->name) &&
				    strcmp(s->name, "training_args.bin") != 0 :
			    !s->is_save && !ck_format_is_inner(s->name);
}

static void keep_beside(struct ck_run_dir *s, const struct ck_catalog *img)
{
	size_t kept = 0;

	for (size_t i = 0; i < s->nr; i++)
		if (is_beside(&s->v[i]) &&
		    (!img || !is_used(img, s->v[i].name)))
			s->v[kept++] = s->v[i];
		else
			ck_run_dir_entry_free(&s->v[i]);
	s->nr = kept;
}

int ck_run_dir_list_siblings(struct ck_run_dir *out, const struct ck_root *root,
			     const char *group, const struct ck_catalog *img,
			     struct ck_err *err)
{
	const struct ck_format *f = img ? ck_format_of(img) : NULL;
	int ret;

	*out = (struct ck_run_dir){ 0 };
	if (img && !(f && f->flat))
		return 0;
	ret = ck_run_dir_list_in(out, root, group, err);
	if (!ret)
		keep_beside(out, img);
	return ret;
}
