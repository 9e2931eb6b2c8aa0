/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cmd_cat.c - a tensor, a slice of one, or an object to standard output
 *
 * In pieces of PIECE bytes, each a box that is one stretch of the output, so
 * memory does not grow with the tensor.  With --json its elements as text.
 */
#include "mount-helpers/cmd.h"
#include "core/lib/target.h"
#include "core/lib/view_path.h"
#include "mount-helpers/values.h"

#include "core/base/auto.h"
#include "core/base/check.h"
#include "core/base/whole.h"
#include "core/geom/dtype.h"
#include "core/view/as_ckpt.h"

#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <string.h>

#define PIECE (UINT64_C(4) << 20)

extern const struct cmd cmd_cat;

struct cat {
	struct ck_ckpt *ck;
	struct ck_target target;
	char *buf;
	struct values *json; /* NULL: the bytes themselves are written */
	struct ck_str text; /* of the JSON, not yet written */
	bool closed; /* nobody reads any more: no error, but no use either */
	struct ck_err err;
};

/* These return exit codes. */
static int put(struct cat *cat, const char *bytes, uint64_t len)
{
	int ret = ck_write_whole(STDOUT_FILENO, bytes, len);

	cat->closed = ret == -EPIPE;
	if (ret && !cat->closed)
		return cmd_fail(&cmd_cat, CMD_SYSTEM, "standard output: %s",
				strerror(-ret));
	return ret ? CMD_SYSTEM : CMD_OK;
}

static int put_text(struct cat *cat)
{
	int ret = cat->text.failed ?
			  cmd_fail(&cmd_cat, CMD_SYSTEM, "no memory") :
			  put(cat, cat->text.v, cat->text.len);

	cat->text.len = 0;
	return ret;
}

/* The next @len bytes of the tensor, which are in the buffer. */
static int put_elements(struct cat *cat, uint64_t len)
{
	uint64_t elem, n;
	int ret = CMD_OK;

	if (!cat->json)
		return put(cat, cat->buf, len);
	elem = ck_dtype_info(cat->json->dtype)->size;
	for (uint64_t at = 0; at < len && !ret; at += n * elem) {
		n = CK_MIN(UINT64_C(4096), (len - at) / elem);
		values_add(cat->json, cat->buf + at, n, &cat->text);
		ret = put_text(cat);
	}
	return ret;
}

static int cat_object(struct cat *cat)
{
	uint32_t i = cat->target.object;
	uint64_t len = ck_ckpt_catalog(cat->ck)->objects[i].len;
	int ret = CMD_OK;

	for (uint64_t at = 0, n; at < len && !ret; at += n) {
		n = CK_MIN(PIECE, len - at);
		if (ck_ckpt_read_object(cat->ck, i, cat->buf, n, at, &cat->err))
			return cmd_err(&cmd_cat, &cat->err);
		if (cat->json) {
			for (uint64_t j = 0; j < n; j++)
				ck_str_fmt(&cat->text, "%02x",
					   (unsigned char)cat->buf[j]);
			ret = put_text(cat);
		} else {
			ret = put(cat, cat->buf, n);
		}
	}
	return ret;
}

static int cat_tensor(struct cat *cat)
{
	uint32_t i = cat->target.tensor;
	uint64_t size = ck_ckpt_catalog(cat->ck)->tensors[i].size;
	int ret = CMD_OK;

	for (uint64_t at = 0, n; at < size && !ret; at += n) {
		n = CK_MIN(PIECE, size - at);
		if (ck_ckpt_read(cat->ck, i, cat->buf, n, at, &cat->err))
			return cmd_err(&cmd_cat, &cat->err);
		ret = put_elements(cat, n);
	}
	return ret;
}

/* The first box of each stretch of the slice is as long as a piece can be. */
static int cat_slice(struct cat *cat)
{
	const struct ck_box *all = &cat->target.slice.box;
	uint32_t i = cat->target.tensor;
	const struct ck_tensor *t = &ck_ckpt_catalog(cat->ck)->tensors[i];
	uint64_t elem = ck_dtype_info(t->dtype)->size, n;
	uint64_t volume = ck_box_volume(all);
	int ret = CMD_OK;

	for (uint64_t at = 0; at < volume && !ret; at += n) {
		struct ck_range r;
		struct ck_box box;

		ck_range_init(&r, all->len, all->rank, at,
			      CK_MIN(at + PIECE / elem, volume));
		ck_range_next(&r, &box);
		n = ck_box_volume(&box);
		for (unsigned d = 0; d < box.rank; d++)
			box.start[d] += all->start[d];
		if (ck_ckpt_read_box(cat->ck, i, &box, cat->buf, n * elem,
				     &cat->err))
			return cmd_err(&cmd_cat, &cat->err);
		ret = put_elements(cat, n * elem);
	}
	return ret;
}

static int cat_any(struct cat *cat)
{
	if (cat->target.tensor == CK_NONE)
		return cat_object(cat);
	return cat->target.sliced ? cat_slice(cat) : cat_tensor(cat);
}

/* {"name", "dtype", "shape", "values"} or {"name", "nbytes", "hex"} */
static int cat_json(struct cat *cat)
{
	const struct ck_catalog *img = ck_ckpt_catalog(cat->ck);
	const struct ck_target *t = &cat->target;
	bool object = t->tensor == CK_NONE;
	struct values v;
	size_t len;
	const char *name =
		ck_catalog_str(img,
			       object ? img->objects[t->object].name :
					img->tensors[t->tensor].name,
			       &len);
	int ret;

	ck_str_puts(&cat->text, "{\"name\": ");
	ck_str_json(&cat->text, name, len);
	if (object) {
		v = (struct values){ .nr = 1 };
		ck_str_fmt(&cat->text, ", \"nbytes\": %" PRIu64 ", \"hex\": \"",
			   img->objects[t->object].len);
	} else {
		values_init(&v, img->tensors[t->tensor].dtype, t->slice.shape,
			    t->slice.rank);
		ck_str_fmt(&cat->text, ", \"dtype\": \"%s\", \"shape\": ",
			   ck_dtype_info(v.dtype)->name);
		ck_str_json_u64(&cat->text, t->slice.shape, t->slice.rank);
		ck_str_puts(&cat->text, ", \"values\": ");
	}
	cat->json = &v;
	ret = put_text(cat);
	if (!ret && v.nr)
		ret = cat_any(cat);
	if (ret)
		return ret;
	ck_str_puts(&cat->text, object ? "\"}\n" : v.nr ? "}\n" : "[]}\n");
	return put_text(cat);
}

static int cat_target(struct cat *cat, bool json)
{
	ck_auto_free char *buf = NULL;
	int ret;

	if (posix_memalign((void **)&buf, 4096, PIECE))
		return cmd_fail(&cmd_cat, CMD_SYSTEM, "no memory");
	cat->buf = buf;
	ret = json ? cat_json(cat) : cat_any(cat);
	ck_str_free(&cat->text);
	return cat->closed ? CMD_OK : ret;
}

static int cat_open(struct cat *cat, char **argv, const struct ck_opts *opts)
{
	int ret;

	if (cmd_open_shown(&cat->ck, (const char *const *)argv + 1, 1, false,
			   opts, &cat->err))
		return cmd_err(&cmd_cat, &cat->err);
	if (ck_target_find(ck_ckpt_catalog(cat->ck), argv[2], &cat->target,
			   &cat->err))
		ret = cmd_target_err(&cmd_cat, &cat->err);
	else
		ret = cat_target(cat, ck_opts_get(opts, "json"));
	ck_ckpt_close(cat->ck);
	return ret;
}

static int cat_view_file(struct cat *cat, const struct ck_view *v,
			 uint32_t file)
{
	ck_auto_free char *buf = NULL;
	struct ck_vfile f;
	int ret = CMD_OK;

	if (!v->ops->file(v, file, &f))
		return cmd_fail(&cmd_cat, CMD_BAD_CKPT, "%s: has no such file",
				v->ops->name);
	if (posix_memalign((void **)&buf, 4096, PIECE))
		return cmd_fail(&cmd_cat, CMD_SYSTEM, "no memory");
	for (uint64_t at = 0, n; at < f.size && !ret; at += n) {
		n = CK_MIN(PIECE, f.size - at);
		if (ck_view_read(v, file, buf, n, at, &cat->err))
			return cmd_err(&cmd_cat, &cat->err);
		ret = put(cat, buf, n);
	}
	return cat->closed ? CMD_OK : ret;
}

static int cat_in_view(struct cat *cat, const struct ck_view_path *p,
		       const struct ck_opts *opts)
{
	struct ck_view *v = NULL;
	uint32_t file;
	int ret = ck_view_path_enter_through(&cat->ck, p, opts, &cat->err);

	if (!ret)
		ret = ck_view_open(&v, p->ops, cat->ck, 0, opts, &cat->err);
	if (!ret && !v)
		ret = ck_view_path_absent(cat->ck, p->ops, &cat->err);
	if (ret)
		return cmd_err(&cmd_cat, &cat->err);
	file = ck_view_file_called(v, p->file, &cat->err);
	ret = file == CK_NONE ? cmd_fail(&cmd_cat, CMD_USAGE, "%s: %s", p->ckpt,
					 cat->err.msg) :
				cat_view_file(cat, v, file);
	ck_view_close(v);
	return ret;
}

/* CKPT/VIEW/FILE, or CKPT/model.safetensors. */
static int cat_path(struct cat *cat, const char *path,
		    const struct ck_opts *opts)
{
	struct ck_view_path p;
	const char *ckpt = p.ckpt;
	int ret;

	ck_view_path_parse(&p, path);
	if (!p.ops)
		return cmd_fail(&cmd_cat, CMD_USAGE,
				"%s: expected CKPT NAME, or the file of a view "
				"of CKPT, such as CKPT/model.safetensors",
				path);
	if (ck_opts_get(opts, "json"))
		return cmd_fail(&cmd_cat, CMD_USAGE,
				"--json: expected CKPT NAME, found a file");
	if (cmd_open_several(&cat->ck, &ckpt, 1, NULL, opts, &cat->err))
		return cmd_err(&cmd_cat, &cat->err);
	ret = cat_in_view(cat, &p, opts);
	ck_ckpt_close(cat->ck);
	return ret;
}

static int run(int argc, char **argv)
{
	struct ck_opts opts = { 0 };
	struct cat cat = { 0 };
	int nr, ret = CMD_USAGE;

	signal(SIGPIPE, SIG_IGN);
	nr = cmd_parse(&cmd_cat, argc, argv, &opts);
	if (nr >= 0)
		ret = nr > 1 ? cat_open(&cat, argv, &opts) :
			       cat_path(&cat, argv[1], &opts);
	ck_opts_free(&opts);
	return ret;
}

const struct cmd cmd_cat = {
	.name = "cat",
	.group = CMD_LOOK,
	.args = "CKPT NAME | CKPT/VIEW[/FILE]",
	.summary = "write a tensor, a slice or a file to standard output",
	.help = "NAME is the name of a tensor or an object, of a tensor with "
		"a slice if\nwanted: 'NAME[2:5, :, -1]', as NumPy reads it.\n"
		"CKPT/model.safetensors, CKPT/hf/config.json: that file, as a "
		"mount shows it.\n",
	.min_words = 1,
	.max_words = 2,
	.run = run,
};
