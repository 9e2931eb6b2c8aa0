/* SPDX-License-Identifier: Apache-2.0 */
/* ops_xattr.c - what a tensor is, as user.unshard.* of its file */
#include "fs/ops.h"

#include "core/base/check.h"
#include "core/base/str.h"
#include "core/geom/dtype.h"
#include "fs/reply.h"
#include "fs/sharding.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

#define PREFIX "user.unshard."

static void get_dtype(const struct ck_image *img, const struct ck_tensor *t,
		      struct ck_str *out)
{
	(void)img;
	ck_str_puts(out, ck_dtype_info(t->dtype)->name);
}

static void get_shape(const struct ck_image *img, const struct ck_tensor *t,
		      struct ck_str *out)
{
	ck_str_json_u64(out, img->dims + t->shape, t->rank);
}

static void get_sources(const struct ck_image *img, const struct ck_tensor *t,
			struct ck_str *out)
{
	ck_str_fmt(out, "%" PRIu32, fs_sharding_sources(img, t));
}

static void get_state(const struct ck_image *img, const struct ck_tensor *t,
		      struct ck_str *out)
{
	static const char *const words[] = {
		[CK_OK] = "ok", [CK_TORN] = "torn", [CK_MISSING] = "missing"
	};

	(void)img;
	ck_str_puts(out, words[CK_MIN(t->state, CK_MISSING)]);
}

static void get_name(const struct ck_image *img, const struct ck_tensor *t,
		     struct ck_str *out)
{
	size_t len;
	const char *name = ck_image_str(img, t->name, &len);

	ck_str_add(out, name, len);
}

static const struct {
	const char *name;
	void (*get)(const struct ck_image *img, const struct ck_tensor *t,
		    struct ck_str *out);
} xattrs[] = {
	{ PREFIX "dtype", get_dtype },
	{ PREFIX "shape", get_shape },
	{ PREFIX "sharding", fs_sharding_text },
	{ PREFIX "nr_sources", get_sources },
	{ PREFIX "state", get_state },
	{ PREFIX "name", get_name },
};

/* The tensor that @ino is a file of; NULL: none, or of several. */
static const struct ck_tensor *tensor_of(struct fs *fs, uint64_t ino,
					 const struct ck_image **img)
{
	struct ck_vfile file;
	fs_auto_ref r = { 0 };

	if (fs_find(fs, ino, true, &r, NULL) || r.node.kind != FS_FILE ||
	    !r.node.view->ops->file(r.node.view, r.node.nr, &file) ||
	    file.tensor == CK_NONE)
		return NULL;
	*img = r.slot->img;
	return &r.slot->img->tensors[file.tensor];
}

void fs_op_getxattr(fuse_req_t req, fuse_ino_t ino, const char *name,
		    size_t size)
{
	const struct ck_image *img = NULL;
	const struct ck_tensor *t = tensor_of(fs_of(req), ino, &img);
	ck_auto_str struct ck_str out = { 0 };
	size_t i = 0;

	/* ls asks for two others of every file, until it hears this once. */
	if (strncmp(name, "user.", 5)) {
		fs_reply_errno(req, EOPNOTSUPP);
		return;
	}
	while (i < CK_ARRAY_LEN(xattrs) && strcmp(name, xattrs[i].name))
		i++;
	if (!t || i == CK_ARRAY_LEN(xattrs)) {
		fs_reply_errno(req, ENODATA);
		return;
	}
	xattrs[i].get(img, t, &out);
	if (out.failed)
		fs_reply_errno(req, ENOMEM);
	else
		fs_reply_xattr(req, out.v, out.len, size);
}

void fs_op_listxattr(fuse_req_t req, fuse_ino_t ino, size_t size)
{
	const struct ck_image *img;
	bool any = tensor_of(fs_of(req), ino, &img);
	ck_auto_str struct ck_str out = { 0 };

	for (size_t i = 0; i < CK_ARRAY_LEN(xattrs); i++)
		if (any)
			ck_str_add(&out, xattrs[i].name,
				   strlen(xattrs[i].name) + 1);
	if (out.failed)
		fs_reply_errno(req, ENOMEM);
	else
		fs_reply_xattr(req, out.v, out.len, size);
}
