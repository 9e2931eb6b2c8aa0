/* SPDX-License-Identifier: Apache-2.0 */
/*
 * overlay_apply.c - a new checkpoint: the files, with the overlay over them
 *
 *	this process   makes the draft, and publishes it
 *	  └─fork──> reads both, in a sandbox, and copies into the draft
 */
#include "mount-helpers/subprocess.h"
#include "mount-helpers/overlay/overlay.h"
#include "mount-helpers/progress.h"

#include "core/base/auto.h"
#include "core/base/check.h"
#include "core/base/whole.h"
#include "core/publish/commit.h"
#include "core/manifest/hash.h"
#include "core/draft/draft.h"
#include "core/write/overlay.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PIECE (UINT64_C(4) << 20)

struct apply {
	struct overlay *o;
	struct overlay_sealed sealed;
	struct progress bar;
	uint64_t done, total;
	unsigned char *buf;
	int to; /* directory */
};

/* ---- the child: copies ---- */

static uint32_t source_of(const struct ck_catalog *img, const char *name)
{
	for (uint32_t i = 0; i < img->nr_srcs; i++)
		if (img->srcs[i].kind == CK_SRC_FILE &&
		    !strcmp(ck_catalog_str(img, img->srcs[i].name, NULL), name))
			return i;
	return CK_NONE;
}

static int read_piece(struct apply *a, int fd, uint32_t src, uint64_t off,
		      uint64_t len)
{
	const struct ck_file_layer *over =
		ck_overlay_layer(ck_ckpt_overlay(a->o->ck));
	struct iovec iov = { a->buf, len };
	int ret = ck_pread_whole(fd, a->buf, len, off);

	return ret || src == CK_NONE ?
		       ret :
		       over->patch(over->ctx, src, &iov, off, len);
}

static int make_dirs(int to, const char *name)
{
	char path[PATH_MAX];

	for (const char *at = strchr(name, '/'); at; at = strchr(at + 1, '/')) {
		if ((size_t)(at - name) >= sizeof(path))
			return -ENAMETOOLONG;
		memcpy(path, name, (size_t)(at - name));
		path[at - name] = '\0';
		if (mkdirat(to, path, 0777) && errno != EEXIST)
			return -errno;
	}
	return 0;
}

static int copy_piece(struct apply *a, int from, int to, const char *name,
		      uint32_t src, uint64_t off, uint64_t len)
{
	int ret = overlay_sealed_check(&a->sealed, name, src, from, off, len);

	if (ret)
		return ret;
	ret = read_piece(a, from, src, off, len);
	if (!ret)
		ret = ck_write_whole(to, a->buf, len);
	a->done += len;
	progress_at(&a->bar, a->done, a->total);
	return ret ? ck_fail(&a->o->err, -ret, "%s: %s", name, strerror(-ret)) :
		     0;
}

static int copy_bytes(struct apply *a, int from, int to,
		      const struct ck_hash_file *f)
{
	uint32_t src = source_of(a->o->img, f->name);
	int ret = overlay_sealed_size(&a->sealed, f->name, f->size);

	for (uint64_t off = 0, len; !ret && off < f->size; off += len) {
		len = CK_MIN(PIECE, f->size - off);
		ret = copy_piece(a, from, to, f->name, src, off, len);
	}
	return ret;
}

static int copy(struct apply *a, const struct ck_hash_file *f)
{
	ck_auto_fd int from = -1, to = -1;
	struct stat st;
	int ret = ck_root_open_file(ck_ckpt_root(a->o->ck), f->name, &from, &st,
				    &a->o->err);

	if (ret)
		return ret;
	ret = make_dirs(a->to, f->name);
	if (!ret) {
		to = openat(a->to, f->name,
			    O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC,
			    st.st_mode & 0777);
		ret = to < 0 ? -errno : 0;
	}
	return ret ? ck_fail(&a->o->err, -ret, "%s: %s", f->name,
			     strerror(-ret)) :
		     copy_bytes(a, from, to, f);
}

static int copy_all(struct apply *a)
{
	ck_auto_hash_list struct ck_hash_list list = { 0 };
	int ret = ck_hash_list(&list, ck_ckpt_root(a->o->ck), &a->o->err);

	a->buf = malloc(PIECE);
	if (!ret && !a->buf)
		ret = ck_no_memory(&a->o->err);
	for (size_t i = 0; i < list.nr; i++)
		a->total += list.v[i].size;
	progress_begin(&a->bar, "copying");
	for (size_t i = 0; !ret && i < list.nr; i++)
		ret = copy(a, &list.v[i]);
	progress_end(&a->bar);
	free(a->buf);
	return ret;
}

static int child(struct overlay *o, const struct ck_draft *s)
{
	struct apply a = { .o = o };
	int ret = overlay_open(o, s->path);

	if (ret)
		return ret;
	a.to = s->files_fd;
	ret = ck_ckpt_at_rest(o->ck, false, &o->err);
	if (!ret)
		ret = overlay_sealed_open(&a.sealed, o);
	if (!ret)
		ret = copy_all(&a);
	overlay_sealed_close(&a.sealed);
	if (!ret)
		ret = ck_ckpt_at_rest(o->ck, false, &o->err);
	if (ret)
		ret = cmd_err(o->cmd, &o->err);
	ck_ckpt_close(o->ck);
	return ret;
}

/* ---- the parent: publishes ---- */

struct job {
	struct overlay *o;
	const struct ck_draft *s;
};

static int run(void *ctx)
{
	const struct job *job = ctx;

	return child(job->o, job->s);
}

static int fill(struct overlay *o, struct ck_draft *s)
{
	/* a hole of the original is one of the copy */
	const struct ck_commit_in in = { .opts = o->opts, .holes = true };
	struct job job = { o, s };
	int ret;

	if (ck_draft_begin(s, &o->err))
		return cmd_err(o->cmd, &o->err);
	ret = cmd_subprocess(o->cmd, "what copied", run, &job);
	ck_draft_end(s);
	if (!ret && ck_commit(s, &in, &o->err))
		ret = cmd_err(o->cmd, &o->err);
	return ret;
}

/* DIR/NAME as the directory and the name; the directory must exist. */
static int open_parent(struct overlay *o, const char *to, struct ck_root *root,
		       char name[NAME_MAX + 1])
{
	const char *slash = strrchr(to, '/');
	ck_auto_free char *dir =
		slash ? strndup(to, (size_t)(slash - to) + 1) : strdup(".");

	if (!dir)
		return cmd_fail(o->cmd, CMD_SYSTEM, "no memory");
	if (strlen(slash ? slash + 1 : to) > NAME_MAX)
		return cmd_fail(o->cmd, CMD_USAGE, "%s: its name is too long",
				to);
	strcpy(name, slash ? slash + 1 : to);
	if (ck_root_open(root, dir, NULL, &o->err))
		return cmd_err(o->cmd, &o->err);
	return CMD_OK;
}

int overlay_apply(struct overlay *o, const char *to)
{
	char name[NAME_MAX + 1];
	struct ck_draft *s;
	struct ck_root root;
	int ret = open_parent(o, to, &root, name);

	if (ret)
		return ret;
	if (ck_draft_make(&s, &root, name, &o->err)) {
		ck_root_close(&root);
		return o->err.code == EEXIST || o->err.code == EINVAL ?
			       cmd_fail(o->cmd, CMD_USAGE, "%s", o->err.msg) :
			       cmd_err(o->cmd, &o->err);
	}
	ret = fill(o, s);
	if (ret && !ck_draft_lock(s, &o->err))
		ck_draft_remove(s, &o->err);
	ck_draft_close(s);
	ck_root_close(&root);
	if (ret)
		return ret;
	if (ck_opts_get(o->opts, "json"))
		puts("{\"published\": true}");
	else
		printf("%s: published\n", to);
	return cmd_flush(o->cmd);
}
