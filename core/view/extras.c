/* SPDX-License-Identifier: Apache-2.0 */
/* extras.c - which files they are, and their bytes */
#include "core/view/extras.h"

#include "core/base/auto.h"
#include "core/base/check.h"
#include "core/base/match.h"
#include "core/root/root.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define TEMPLATES "additional_chat_templates"

/* What loaders look for beside the weights; never weights themselves. */
static bool is_extra(const char *name)
{
	static const char *const patterns[] = {
		/* config.json; of adapters, generation, processors ... */
		"config*.json",
		"*_config.json",
		"params.json", /* Mistral's own */
		/* tokenizers and what they are made of */
		"tokenizer*",
		"*vocab*.json",
		"vocab*",
		"merges.txt",
		"bpe.codes",
		"*.tiktoken",
		"tiktoken.model",
		"spiece.model",
		"spm*.model",
		"sentencepiece*.model",
		"tekken.json",
		"special_tokens_map.json",
		"added_tokens.json",
		"normalizer.json",
		"chat_template*",
		"*.jinja",
		/* a model's own code, which imports more of it by name */
		"*.py",
		/* sentence-transformers */
		"modules.json",
		"modelcard.json",
		"README.md",
	};

	for (size_t i = 0; i < CK_ARRAY_LEN(patterns); i++)
		if (*name != '.' && ck_glob(patterns[i], strlen(patterns[i]),
					    name, strlen(name)))
			return true;
	return false;
}

#define COMPARED (UINT64_C(64) << 20) /* bytes: longer than any tokenizer */

/* Whether two files begin alike, and are of one size. */
static bool are_alike(int a, const struct stat *as, int b,
		      const struct stat *bs)
{
	uint64_t end = CK_MIN((uint64_t)as->st_size, COMPARED);
	char x[8192], y[sizeof(x)];

	if (as->st_size != bs->st_size)
		return false;
	for (uint64_t off = 0; off < end;) {
		ssize_t n = pread(a, x, sizeof(x), (off_t)off);

		if (n <= 0 || pread(b, y, (size_t)n, (off_t)off) != n ||
		    memcmp(x, y, (size_t)n) != 0)
			return false;
		off += (uint64_t)n;
	}
	return true;
}

/* Joined: a file of a directory given before; that one is shown. */
static void compare_extra(struct ck_extra *e, const struct ck_root *root)
{
	struct ck_root own = *root;
	ck_auto_fd int fd = -1;
	struct stat st;

	own.next = NULL;
	if (e->root == root || e->other ||
	    ck_root_open_file(&own, e->name, &fd, &st, NULL))
		return;
	if (!are_alike(e->fd, &e->st, fd, &st))
		e->other = root;
}

static void take_extra(struct ck_extras *v, const struct ck_root *in,
		       const char *name)
{
	struct ck_extra *e = &v->v[v->nr];
	struct ck_root root = *in;
	struct stat st;
	int fd;

	root.next = NULL; /* this directory's own */
	for (uint32_t i = 0; i < v->nr; i++)
		if (!strcmp(v->v[i].name, name)) {
			compare_extra(&v->v[i], in);
			return;
		}
	if (!is_extra(name) || ck_root_open_file(&root, name, &fd, &st, NULL))
		return;
	if (v->nr == CK_MAX_EXTRAS) {
		v->more++;
		close(fd);
		return;
	}
	*e = (struct ck_extra){
		.name = strdup(name), .fd = fd, .st = st, .root = in
	};
	if (e->name)
		v->nr++;
	else
		close(fd);
}

void ck_extras_report(const struct ck_extras *e, const struct ck_view *v)
{
	char why[512];

	if (e->more) {
		snprintf(why, sizeof(why),
			 "%u files that loaders may look for are left out: "
			 "there are more than %d",
			 e->more, CK_MAX_EXTRAS);
		ck_view_leave_out(v, CK_NONE, why);
	}
	if (e->templates)
		ck_view_leave_out(v, CK_NONE,
				  "the folder " TEMPLATES "/ is left out, for "
				  "only files are shown: chat templates beside "
				  "the default one are missing");
	for (uint32_t i = 0; i < e->nr; i++) {
		if (!e->v[i].other)
			continue;
		snprintf(why, sizeof(why),
			 "%.200s is shown as %.100s has it; %.100s has another",
			 e->v[i].name, e->v[i].root->path, e->v[i].other->path);
		ck_view_leave_out(v, CK_NONE, why);
	}
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
	int ret = ck_root_list(root, "", &d, err);

	if (ret)
		return ret;
	while ((entry = readdir(d))) {
		v->templates |= !strcmp(entry->d_name, TEMPLATES);
		take_extra(v, root, entry->d_name);
	}
	qsort(v->v, v->nr, sizeof(v->v[0]), extra_order);
	return 0;
}

static bool has_config(const struct ck_root *root, const char *folder)
{
	char path[64];
	struct stat st;

	snprintf(path, sizeof(path), "%s%sconfig.json", folder,
		 *folder ? "/" : "");
	return !fstatat(root->fd, path, &st, 0) && S_ISREG(st.st_mode);
}

/*
 * The folder above the one that it lies in is the run's: torchtitan keeps all
 * steps in checkpoint/, transformers' trainer what it saves in checkpoint-100/.
 */
static bool is_in_run(const struct ck_root *root)
{
	const char *last = strrchr(root->real, '/'), *name = last;

	while (name && name > root->real && name[-1] != '/')
		name--;
	return name && name < last && !strncmp(name, "checkpoint", 10);
}

char *ck_extras_folder(const struct ck_root *root, const struct ck_opts *opts)
{
	/* where one is found first: trainers of reinforcement learning, NeMo */
	static const char *const beside[] = { "huggingface",
					      "context",
					      "model",
					      "hf",
					      "../huggingface",
					      "../context",
					      "../../huggingface",
					      "..",
					      "../.." };
	const char *config = ck_opts_get(opts, "config");
	char *path = NULL;

	if (config || !root || root->only || root->next || has_config(root, ""))
		return config ? strdup(config) : NULL;
	for (size_t i = 0; i < CK_ARRAY_LEN(beside); i++)
		if (has_config(root, beside[i]) &&
		    (strcmp(beside[i], "../..") || is_in_run(root)))
			return asprintf(&path, "%s/%s", root->real, beside[i]) <
					       0 ?
				       NULL :
				       path;
	return NULL;
}

/* A config.json of anything else may lie in any folder. */
static bool is_of_model(const struct ck_extras *e)
{
	ck_auto_json json_t *config = ck_extras_config(e);

	return json_object_get(config, "architectures") ||
	       json_object_get(config, "model_type");
}

static int take_extras_at(struct ck_extras *e, const char *path,
			  const struct ck_opts *opts, struct ck_err *err)
{
	struct ck_root root;
	int ret = ck_root_open(&root, path, opts, err);

	if (ret)
		return ret;
	ret = take_extras_of(e, &root, err);
	ck_root_close(&root);
	for (uint32_t i = 0; i < e->nr; i++)
		e->v[i].root = NULL;
	return ret;
}

int ck_extras_take(struct ck_extras *e, const struct ck_root *r,
		   const struct ck_opts *opts, struct ck_err *err)
{
	ck_auto_free char *folder = ck_extras_folder(r, opts);
	int ret = 0;

	if (ck_opts_get(opts, "config")) {
		ret = folder ? take_extras_at(e, folder, opts, err) : -ENOMEM;
		return ret ? ck_wrap(err, ret, "config=%s",
				     ck_opts_get(opts, "config")) :
			     0;
	}
	if (folder && !take_extras_at(e, folder, opts, NULL) && is_of_model(e))
		return 0;
	ck_extras_free(e);
	/* one file was given: only that is ours */
	for (; !ret && r && !r->only; r = r->next)
		ret = take_extras_of(e, r, err);
	return ret;
}

void ck_extras_free(struct ck_extras *e)
{
	for (uint32_t i = 0; i < e->nr; i++) {
		free(e->v[i].name);
		close(e->v[i].fd);
	}
	*e = (struct ck_extras){ 0 };
}

bool ck_extras_file(const struct ck_extras *e, uint32_t i, struct ck_vfile *out)
{
	if (i >= e->nr)
		return false;
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
