/* SPDX-License-Identifier: Apache-2.0 */
#include "core/lib/view_path.h"

#include "core/view/as_ckpt.h"

#include "core/ckpt/ckpt.h"

#include <errno.h>
#include <string.h>
#include <sys/stat.h>

static const struct ck_view_ops *nesting(void)
{
	size_t i = 0;

	while (!ck_views[i]->nests)
		i++;
	return ck_views[i];
}

const char *ck_view_path_view(void)
{
	return nesting()->name;
}

/*
 * The longest beginning of @path that exists, into @ckpt, and what follows it;
 * NULL: nothing does, or nothing of it exists.
 */
static const char *split(const char *path, char *ckpt)
{
	size_t len = strlen(path);
	struct stat st;

	while (len && path[len - 1] == '/')
		len--;
	for (size_t n = len; n; n--) {
		if (n < len && path[n] != '/')
			continue;
		memcpy(ckpt, path, n);
		ckpt[n] = '\0';
		if (!stat(ckpt, &st))
			return n < len ? path + n + 1 : NULL;
	}
	strcpy(ckpt, path);
	return NULL;
}

bool ck_view_path_find(struct ck_view_path *p, const char *text)
{
	for (size_t i = 0; ck_views[i]; i++) {
		const char *name = ck_views[i]->name;
		size_t len = strlen(name);

		if (strncmp(text, name, len))
			continue;
		if (text[len] && (text[len] != '/' || !ck_views[i]->is_dir ||
				  strlen(text + len + 1) >= sizeof(p->file)))
			continue;
		p->ops = ck_views[i];
		strcpy(p->file, text[len] ? text + len + 1 : "");
		for (size_t n = strlen(p->file); n && p->file[n - 1] == '/';)
			p->file[--n] = '\0';
		return true;
	}
	return false;
}

/*
 * views/NAME/dcp is the view dcp of what views/NAME shows; but a file of its
 * own first.  A mount has one level of them (fs/tree/nested.c), and so has this.
 */
static void go_through(struct ck_view_path *p)
{
	size_t len = strcspn(p->file, "/");
	char own[sizeof(p->file)];
	const struct ck_view_ops *ops = p->ops;

	if (!ops->nests || !len || len > NAME_MAX)
		return;
	strcpy(own, p->file);
	if (own[len] &&
	    (!strcmp(own + len + 1, "model.safetensors") ||
	     !ck_view_path_find(p, own + len + 1) || p->ops->nests)) {
		p->ops = ops;
		strcpy(p->file, own);
		return;
	}
	memcpy(p->through, own, len);
	p->through[len] = '\0';
	if (!own[len])
		p->ops = NULL;
}

bool ck_view_path_parse(struct ck_view_path *p, const char *path)
{
	const char *view;

	p->through[0] = p->file[0] = '\0';
	p->ops = NULL;
	if (strlen(path) >= sizeof(p->ckpt)) {
		memcpy(p->ckpt, path, sizeof(p->ckpt) - 1);
		p->ckpt[sizeof(p->ckpt) - 1] = '\0';
		return false;
	}
	view = split(path, p->ckpt);
	if (view && ck_view_path_find(p, view)) {
		go_through(p);
		return true;
	}
	strcpy(p->ckpt, path);
	return !view;
}

bool ck_view_path_is_view(const struct ck_view_path *p)
{
	return p->ops || *p->through;
}

static int enter(struct ck_ckpt **ck, struct ck_view *v, const char *name,
		 struct ck_err *err)
{
	uint32_t d;
	int ret = v->ops->folders->find(v, name, &d, err);

	if (ret == -ENOENT)
		return ck_fail(err, EINVAL,
			       "%s: -o views= describes no view \"%s\"",
			       ck_ckpt_root(*ck)->path, name);
	return ret ? ret : ck_view_as_ckpt(ck, v, d, true, err);
}

int ck_view_path_absent(struct ck_ckpt *ck, const struct ck_view_ops *ops,
			struct ck_err *err)
{
	struct ck_left_out left;
	int ret;

	ck_ckpt_left_out(ck, ops->name, &left);
	ret = ck_fail(err, ENOENT, "%s: has no view %s%s%s",
		      ck_ckpt_root(ck)->path, ops->name,
		      left.other.len ? ": " : "",
		      left.other.len ? left.other.v : "");
	ck_left_out_free(&left);
	return ret;
}

int ck_view_path_enter_through(struct ck_ckpt **ck,
			       const struct ck_view_path *p,
			       const struct ck_opts *opts, struct ck_err *err)
{
	struct ck_view *v;
	int ret;

	if (!*p->through)
		return 0;
	ret = ck_view_open(&v, nesting(), *ck, 0, opts, err);
	if (!ret && !v)
		ret = ck_fail(err, EINVAL,
			      "%s: has no views/%s without -o views=FILE",
			      ck_ckpt_root(*ck)->path, p->through);
	if (ret)
		return ret;
	ret = enter(ck, v, p->through, err);
	if (ret)
		ck_view_close(v);
	return ret;
}

int ck_view_path_enter(struct ck_ckpt **ck, const struct ck_view_path *p,
		       const struct ck_opts *opts, struct ck_err *err)
{
	struct ck_view *v = NULL;
	int ret = ck_view_path_enter_through(ck, p, opts, err);

	if (ret || !p->ops)
		return ret;
	ret = ck_view_open(&v, p->ops, *ck, 0, opts, err);
	if (!ret && !v)
		ret = ck_view_path_absent(*ck, p->ops, err);
	if (!ret)
		ret = ck_view_shown_as_ckpt(ck, v, p->file, err);
	if (ret && v)
		ck_view_close(v);
	return ret;
}
