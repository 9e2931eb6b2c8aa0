/* SPDX-License-Identifier: Apache-2.0 */
#include "core/lib/view_path.h"

#include "core/view/as_ckpt.h"

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

const char *ck_view_path_split(const char *path, char *ckpt)
{
	size_t len = strlen(path);
	struct stat st;

	if (len >= PATH_MAX)
		return NULL;
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

bool ck_view_path_name(const char *path, char *ckpt, char *name)
{
	const char *view = ck_view_path_split(path, ckpt);
	size_t skip = strlen(nesting()->name) + 1, len;

	if (!view || strncmp(view, nesting()->name, skip - 1) ||
	    view[skip - 1] != '/')
		return false;
	view += skip;
	len = strcspn(view, "/");
	if (!len || len > NAME_MAX ||
	    strspn(view + len, "/") != strlen(view + len))
		return false;
	memcpy(name, view, len);
	name[len] = '\0';
	return true;
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

int ck_view_path_enter(struct ck_ckpt **ck, const char *name,
		       const struct ck_opts *opts, struct ck_err *err)
{
	struct ck_view *v;
	int ret = ck_view_open(&v, nesting(), *ck, 0, opts, err);

	if (!ret && !v)
		ret = ck_fail(err, EINVAL,
			      "%s: has no views/%s without -o views=FILE",
			      ck_ckpt_root(*ck)->path, name);
	if (ret)
		return ret;
	ret = enter(ck, v, name, err);
	if (ret)
		ck_view_close(v);
	return ret;
}
