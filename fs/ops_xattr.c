/* SPDX-License-Identifier: Apache-2.0 */
/* ops_xattr.c - what a tensor is, as user.unshard.* of its file */
#include "fs/ops.h"

#include "core/base/check.h"
#include "core/base/str.h"
#include "core/geom/dtype.h"
#include "core/manifest/manifest.h"
#include "fs/mount_procs.h"
#include "fs/kernel/reply.h"
#include "fs/sharding.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>
#include <unistd.h>

#define PREFIX "user.unshard."
#define SOURCE PREFIX "source" /* a directory of checkpoints */

static void get_dtype(const struct ck_catalog *img, const struct ck_tensor *t,
		      struct ck_str *out)
{
	(void)img;
	ck_str_puts(out, ck_dtype_info(t->dtype)->name);
}

static void get_shape(const struct ck_catalog *img, const struct ck_tensor *t,
		      struct ck_str *out)
{
	ck_str_json_u64(out, img->dims + t->shape, t->rank);
}

static void get_sources(const struct ck_catalog *img, const struct ck_tensor *t,
			struct ck_str *out)
{
	ck_str_fmt(out, "%" PRIu32, fs_sharding_sources(img, t));
}

static void get_state(const struct ck_catalog *img, const struct ck_tensor *t,
		      struct ck_str *out)
{
	static const char *const words[] = {
		[CK_OK] = "ok", [CK_TORN] = "torn", [CK_MISSING] = "missing"
	};

	(void)img;
	ck_str_puts(out, words[CK_MIN(t->state, CK_MISSING)]);
}

static void get_name(const struct ck_catalog *img, const struct ck_tensor *t,
		     struct ck_str *out)
{
	size_t len;
	const char *name = ck_catalog_str(img, t->name, &len);

	ck_str_add(out, name, len);
}

static const struct {
	const char *name;
	void (*get)(const struct ck_catalog *img, const struct ck_tensor *t,
		    struct ck_str *out);
} xattrs[] = {
	{ PREFIX "dtype", get_dtype },
	{ PREFIX "shape", get_shape },
	{ PREFIX "sharding", fs_sharding_text },
	{ PREFIX "nr_sources", get_sources },
	{ PREFIX "state", get_state },
	{ PREFIX "name", get_name },
};

/* Only where it was sealed, and not edited since. */
#define DIGEST PREFIX "digest"

/*
 * The tensor that @ino is a file of; NULL: none, or of several.  @r holds it;
 * the caller drops that.
 */
static const struct ck_tensor *tensor_of(struct fs *fs, uint64_t ino,
					 struct fs_ref *r)
{
	struct ck_vfile file;

	if (fs_find(fs, ino, true, r, NULL) || r->node.kind != FS_FILE ||
	    !r->node.view->ops->file(r->node.view, r->node.nr, &file) ||
	    file.tensor == CK_NONE)
		return NULL;
	return &r->node.view->img->tensors[file.tensor];
}

static bool get_digest(const struct fs_ref *r, const struct ck_tensor *t,
		       struct ck_str *out)
{
	char text[CK_DIGEST_TEXT];
	struct ck_digest digest;
	uint32_t nr = (uint32_t)(t - r->node.view->img->tensors);

	if (!ck_ckpt_digest(r->node.view->ck, nr, &digest))
		return false;
	ck_digest_text(&digest, text);
	ck_str_fmt(out, "xxh3:%s", text);
	return true;
}

/* Of the mount.  Not listed: who copies attributes does not want it. */
static bool get_of_mount(const struct fs *fs, uint64_t ino, const char *name,
			 struct ck_str *out)
{
	if (ino == FUSE_ROOT_ID && !strcmp(name, FS_PID_XATTR))
		ck_str_fmt(out, "%d", (int)getpid());
	else if (ino == FUSE_ROOT_ID && fs->steps && !strcmp(name, SOURCE))
		ck_str_puts(out, fs->steps->real);
	return out->len;
}

/* False: @t has no such attribute. */
static bool get(const struct fs_ref *r, const struct ck_tensor *t,
		const char *name, struct ck_str *out)
{
	size_t i = 0;

	if (!strcmp(name, DIGEST))
		return get_digest(r, t, out);
	while (i < CK_ARRAY_LEN(xattrs) && strcmp(name, xattrs[i].name))
		i++;
	if (i == CK_ARRAY_LEN(xattrs))
		return false;
	xattrs[i].get(r->node.view->img, t, out);
	return true;
}

static void op_getxattr(fuse_req_t req, fuse_ino_t ino, const char *name,
			size_t size)
{
	fs_auto_ref r = { 0 };
	ck_auto_str struct ck_str out = { 0 };
	const struct ck_tensor *t = get_of_mount(fs_of(req), ino, name, &out) ?
					    NULL :
					    tensor_of(fs_of(req), ino, &r);

	/* ls asks for two others of every file, until it hears this once. */
	if (strncmp(name, "user.", 5))
		fuse_reply_err(req, EOPNOTSUPP);
	else if (!out.len && (!t || !get(&r, t, name, &out)))
		fuse_reply_err(req, ENODATA);
	else if (out.failed)
		fuse_reply_err(req, ENOMEM);
	else
		fs_reply_xattr(req, out.v, out.len, size);
}

static void op_listxattr(fuse_req_t req, fuse_ino_t ino, size_t size)
{
	fs_auto_ref r = { 0 };
	const struct ck_tensor *t = tensor_of(fs_of(req), ino, &r);
	ck_auto_str struct ck_str out = { 0 }, digest = { 0 };

	for (size_t i = 0; t && i < CK_ARRAY_LEN(xattrs); i++)
		ck_str_add(&out, xattrs[i].name, strlen(xattrs[i].name) + 1);
	if (t && get_digest(&r, t, &digest))
		ck_str_add(&out, DIGEST, sizeof(DIGEST));
	if (out.failed)
		fuse_reply_err(req, ENOMEM);
	else
		fs_reply_xattr(req, out.v, out.len, size);
}

void fs_ops_xattr(struct fuse_lowlevel_ops *ops)
{
	ops->getxattr = op_getxattr;
	ops->listxattr = op_listxattr;
}
