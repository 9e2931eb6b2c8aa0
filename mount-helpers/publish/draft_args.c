/* SPDX-License-Identifier: Apache-2.0 */
#include "mount-helpers/publish/draft_args.h"

#include "core/base/auto.h"
#include "core/base/number.h"
#include "core/draft/draft.h"
#include "mount-helpers/text.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/xattr.h>

/* What a mount of a directory of checkpoints says of itself. */
#define SOURCE "user.unshard.source"

int draft_dir(struct draft_place *out, const char *path,
	      const struct ck_opts *opts, struct ck_err *err)
{
	char src[PATH_MAX];
	ssize_t n = getxattr(path, SOURCE, src, sizeof(src) - 1);
	int ret;

	out->name[0] = '\0';
	if (n > 0) {
		src[n] = '\0';
		path = src;
	}
	ret = ck_root_open(&out->root, path, opts, err);
	if (!ret && (out->root.only || out->root.next)) {
		ck_root_close(&out->root);
		ret = ck_fail(err, EINVAL,
			      "%s: expected a directory of checkpoints", path);
	}
	return ret;
}

int draft_step(struct draft_place *out, const char *path,
	       const struct ck_opts *opts, struct ck_err *err)
{
	ck_auto_free char *dir = strdup(path);
	size_t len = strlen(path);
	char *slash;
	int ret;

	if (!dir)
		return ck_no_memory(err);
	while (len > 1 && dir[len - 1] == '/')
		dir[--len] = '\0';
	slash = strrchr(dir, '/');
	if (!ck_draft_name_ok(slash ? slash + 1 : dir))
		return ck_fail(err, EINVAL,
			       "%s: expected DIR/NAME of a new checkpoint",
			       path);
	snprintf(out->name, sizeof(out->name), "%s", slash ? slash + 1 : dir);
	len = strlen(out->name);
	if (slash)
		*slash = '\0';
	{
		char name[NAME_MAX + 1];

		memcpy(name, out->name, len + 1);
		ret = draft_dir(out,
				!slash ? "." :
				*dir   ? dir :
					 "/",
				opts, err);
		memcpy(out->name, name, len + 1);
	}
	return ret;
}

bool draft_names(const struct cmd *c, char **name, int nr)
{
	for (int i = 0; i < nr; i++)
		if (!ck_draft_name_ok(name[i])) {
			cmd_fail(c, CMD_USAGE,
				 "%s: expected the name of a checkpoint",
				 name[i]);
			return false;
		}
	return true;
}

bool draft_wanted(char **words, int nr, const char *name)
{
	for (int i = 0; i < nr; i++)
		if (!strcmp(words[i], name))
			return true;
	return !nr;
}

static bool is_draft(const struct ck_draft_list *all, const char *name)
{
	for (size_t i = 0; i < all->nr; i++)
		if (!strcmp(all->v[i].name, name))
			return true;
	return false;
}

int draft_unknown(const struct cmd *c, const struct ck_root *root,
		  const struct ck_draft_list *all, char **words, int nr)
{
	struct stat st;
	int code = CMD_OK;

	for (int i = 0; i < nr; i++)
		if (!is_draft(all, words[i]) &&
		    fstatat(root->fd, words[i], &st, AT_SYMLINK_NOFOLLOW) &&
		    errno == ENOENT)
			code = cmd_fail(c, CMD_BAD_CKPT,
					"%s: is no draft of %s, nor a "
					"checkpoint in it",
					words[i], root->path);
	return code;
}

static int print(struct draft_walk *w)
{
	bool json = ck_opts_get(w->opts, "json");
	struct ck_str out = { 0 };

	if (json)
		ck_str_puts(&out, "[\n");
	ck_str_add(&out, w->out.v, w->out.len);
	if (json)
		ck_str_puts(&out, "\n]\n");
	out.failed |= w->out.failed;
	if (!text_flush(&out))
		w->code = CMD_SYSTEM;
	ck_str_free(&out);
	return w->code ? w->code : cmd_flush(w->cmd);
}

int draft_walk(struct draft_walk *w, const char *path, char **words, int nr)
{
	struct ck_draft_list all;
	struct draft_place p;
	struct ck_err err = { 0 };
	int ret;

	if (draft_dir(&p, path, w->opts, &err))
		return cmd_err(w->cmd, &err);
	ck_recover_sweep(&p.root);
	if (ck_draft_list(&all, &p.root, w->opts, false, &err)) {
		ck_root_close(&p.root);
		return cmd_err(w->cmd, &err);
	}
	ret = draft_unknown(w->cmd, &p.root, &all, words, nr);
	w->code = ret ? ret : w->code;
	for (size_t i = 0; i < all.nr; i++)
		if (draft_wanted(words, nr, all.v[i].name))
			w->each(w, &p.root, &all.v[i]);
	ret = print(w);
	ck_str_free(&w->out);
	ck_draft_list_free(&all);
	ck_root_close(&p.root);
	return ret;
}

void draft_json(struct draft_walk *w, const char *name)
{
	ck_str_puts(&w->out, w->out.len ? ",\n{\"name\": " : "{\"name\": ");
	ck_str_json(&w->out, name, strlen(name));
}

bool draft_number(const struct cmd *c, const struct ck_opts *opts,
		  const char *flag, int64_t fallback, int64_t *out)
{
	const char *text = ck_opts_get(opts, flag);
	uint64_t n;

	*out = fallback;
	if (!text)
		return true;
	if (ck_decimal(text, strlen(text), 1000000000, &n)) {
		*out = (int64_t)n;
		return true;
	}
	cmd_fail(c, CMD_USAGE, "--%s: expected a number, found \"%s\"", flag,
		 text);
	return false;
}
