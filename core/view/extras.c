/* SPDX-License-Identifier: Apache-2.0 */
/* extras.c - which files they are, and their bytes */
#include "core/view/extras.h"

#include "core/base/auto.h"
#include "core/base/check.h"
#include "core/io/root.h"

#include <dirent.h>
#include <errno.h>
#include <fnmatch.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* What loaders look for beside the weights; never weights themselves. */
static bool is_extra(const char *name)
{
	static const char *const patterns[] = {
		"config.json",
		"generation_config.json",
		"tokenizer*",
		"vocab*",
		"merges.txt",
		"special_tokens_map.json",
		"added_tokens.json",
		"preprocessor_config.json",
		"processor_config.json",
		"chat_template*",
		"spiece.model",
		"sentencepiece*.model",
		"modules.json",
		"README.md",
	};

	for (size_t i = 0; i < CK_ARRAY_LEN(patterns); i++)
		if (!fnmatch(patterns[i], name, FNM_PERIOD))
			return true;
	return false;
}

static void take_extra(struct ck_extras *v, const struct ck_root *root,
		       const char *name)
{
	struct ck_extra *e = &v->v[v->nr];
	struct stat st;
	int fd;

	for (uint32_t i = 0; i < v->nr; i++)
		if (!strcmp(v->v[i].name, name))
			return; /* joined: the same file on another disk */
	if (v->nr == CK_MAX_EXTRAS || !is_extra(name) ||
	    ck_root_open_file(root, name, &fd, &st, NULL))
		return;
	e->name = strdup(name);
	e->fd = fd;
	e->st = st;
	if (e->name)
		v->nr++;
	else
		close(fd);
}

static int extra_order(const void *a, const void *b)
{
	return strcmp(((const struct ck_extra *)a)->name,
		      ((const struct ck_extra *)b)->name);
}

static int take_extras_of(struct ck_extras *v, const struct ck_root *root,
			  struct ck_err *err)
{
	ck_auto_dir DIR *d = NULL;
	struct dirent *entry;
	int fd, ret = ck_root_open_dir(root, "", &fd, err);

	if (ret)
		return ret;
	d = fdopendir(fd);
	if (!d) {
		close(fd);
		return ck_fail(err, errno, "%s: %m", root->path);
	}
	while ((entry = readdir(d)))
		take_extra(v, root, entry->d_name);
	qsort(v->v, v->nr, sizeof(v->v[0]), extra_order);
	return 0;
}

int ck_extras_take(struct ck_extras *e, const struct ck_root *r,
		   const struct ck_opts *opts, struct ck_err *err)
{
	const char *config = ck_opts_get(opts, "config");
	struct ck_root root;
	int ret = 0;

	if (!config) {
		/* one file was given: only that is ours */
		for (; !ret && r && !r->only; r = r->next)
			ret = take_extras_of(e, r, err);
		return ret;
	}
	ret = ck_root_open(&root, config, opts, err);
	if (ret)
		return ck_wrap(err, ret, "config=%s", config);
	ret = take_extras_of(e, &root, err);
	ck_root_close(&root);
	return ret;
}

void ck_extras_free(struct ck_extras *e)
{
	for (uint32_t i = 0; i < e->nr; i++) {
		free(e->v[i].name);
		close(e->v[i].fd);
	}
	e->nr = 0;
}

bool ck_extras_file(const struct ck_extras *e, uint32_t i, struct ck_vfile *out)
{
	if (i >= e->nr)
		return false;
	snprintf(out->name, sizeof(out->name), "%s", e->v[i].name);
	out->like = &e->v[i].st;
	out->size = (uint64_t)out->like->st_size;
	out->newest = out->tensor = CK_NONE;
	return true;
}

void ck_extras_at(const struct ck_extras *e, uint32_t i, uint64_t off,
		  struct ck_span *out)
{
	out->kind = CK_SPAN_MADE;
	out->ref = CK_NONE;
	out->off = off;
	out->len = (uint64_t)e->v[i].st.st_size - off;
}

int ck_extras_made(const struct ck_extras *e, uint32_t i, void *buf,
		   uint64_t len, uint64_t off, struct ck_err *err)
{
	ssize_t got = pread(e->v[i].fd, buf, len, (off_t)off);

	if (got >= 0 && (uint64_t)got == len)
		return 0;
	return ck_fail(err, EIO, "%s: %s", e->v[i].name,
		       got < 0 ? strerror(errno) : "shorter than it was");
}
