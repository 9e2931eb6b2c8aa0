/* SPDX-License-Identifier: Apache-2.0 */
/*
 * overlay_diff.c - which elements of which tensors an overlay changes
 *
 * Blocks of the overlay are compared with the bytes of the files, and bytes
 * that differ go back to the elements that they are.
 */
#include "mount-helpers/overlay/overlay.h"
#include "mount-helpers/text.h"
#include "mount-helpers/seal/verify_show.h"

#include "core/base/auto.h"
#include "core/base/check.h"
#include "core/geom/dtype.h"
#include "core/geom/reverse_map.h"
#include "core/write/overlay.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define PIECE (UINT64_C(1) << 20)

struct diff {
	struct overlay *o;
	struct ck_element_ranges *gather; /* of each tensor */
	uint32_t tensor; /* that is being asked */
	unsigned char *was, *is;
};

static void each(void *ctx, uint32_t chunk, uint64_t off, uint64_t len)
{
	struct diff *d = ctx;

	(void)chunk;
	ck_element_ranges_add(&d->gather[d->tensor], off, len);
}

/* Bytes [lo, hi) of source @src are not what they were. */
static void changed(struct diff *d, uint32_t src, uint64_t lo, uint64_t hi)
{
	struct ck_reverse_map sp = { .img = d->o->img,
				     .resolved = ck_ckpt_resolved(d->o->ck),
				     .src = src,
				     .lo = lo,
				     .hi = hi,
				     .elements = true,
				     .ctx = d,
				     .each = each };

	for (d->tensor = 0; d->tensor < d->o->img->nr_tensors; d->tensor++)
		ck_reverse_map_tensor(&sp, d->tensor);
}

static void compare(struct diff *d, uint32_t src, uint64_t off, uint64_t len)
{
	for (uint64_t i = 0, from; i < len;) {
		while (i < len && d->was[i] == d->is[i])
			i++;
		for (from = i; i < len && d->was[i] != d->is[i];)
			i++;
		if (from < i)
			changed(d, src, off + from, off + i);
	}
}

static int read_file(const struct overlay *o, int fd, void *buf, uint64_t len,
		     uint64_t off, struct ck_err *err)
{
	uint64_t done = 0;

	(void)o;
	while (done < len) {
		ssize_t n = pread(fd, (char *)buf + done, len - done,
				  (off_t)(off + done));

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return ck_fail(err, n ? errno : EIO, "%s",
				       n ? strerror(errno) : "cut off");
		done += (uint64_t)n;
	}
	return 0;
}

static int one_range(struct diff *d, uint32_t src, int fd, uint64_t off,
		     uint64_t len)
{
	const struct ck_file_layer *over =
		ck_overlay_layer(ck_ckpt_overlay(d->o->ck));

	for (uint64_t end = off + len, n; off < end; off += n) {
		struct iovec iov;
		int ret;

		n = CK_MIN(PIECE, end - off);
		iov = (struct iovec){ d->is, n };
		ret = read_file(d->o, fd, d->was, n, off, &d->o->err);
		if (ret)
			return ret;
		memcpy(d->is, d->was, n);
		ret = over->patch(over->ctx, src, &iov, off, n);
		if (ret)
			return ck_fail(&d->o->err, -ret, "overlay: %s",
				       strerror(-ret));
		compare(d, src, off, n);
	}
	return 0;
}

static int one_source(struct diff *d, uint32_t src)
{
	struct ck_overlay *over = ck_ckpt_overlay(d->o->ck);
	ck_auto_fd int fd = -1;
	uint64_t off = 0, len;
	struct stat st;
	int ret = 0;

	if (!ck_overlay_next(over, src, &off, &len))
		return 0;
	ret = ck_root_open_file(
		ck_ckpt_root(d->o->ck),
		ck_catalog_str(d->o->img, d->o->img->srcs[src].name, NULL), &fd,
		&st, &d->o->err);
	for (off = 0; !ret && ck_overlay_next(over, src, &off, &len);
	     off += CK_DIV_UP(len, CK_OVERLAY_BLOCK) * CK_OVERLAY_BLOCK)
		ret = one_range(d, src, fd, off, len);
	return ret;
}

static int find(struct diff *d)
{
	const struct ck_catalog *img = d->o->img;
	struct ck_err err;
	int ret = 0;

	d->gather = calloc(img->nr_tensors + 1u, sizeof(*d->gather));
	d->was = malloc(PIECE);
	d->is = malloc(PIECE);
	if (!d->gather || !d->was || !d->is)
		return ck_no_memory(&d->o->err);
	for (uint32_t i = 0; i < img->nr_tensors; i++) {
		d->gather[i].elem = ck_dtype_info(img->tensors[i].dtype)->size;
		d->gather[i].elem += !d->gather[i].elem;
		ck_ckpt_resolve(d->o->ck, i, &err);
	}
	for (uint32_t i = 0; !ret && i < img->nr_srcs; i++)
		if (img->srcs[i].kind == CK_SRC_FILE)
			ret = one_source(d, i);
	return ret;
}

/* 0: all said. */
static int show(struct diff *d)
{
	const struct ck_catalog *img = d->o->img;
	ck_auto_str struct ck_str out = { 0 };
	struct verify_show s = { .img = img,
				 .json = ck_opts_get(d->o->opts, "json"),
				 .out = &out };
	bool ok = true;

	if (s.json)
		ck_str_puts(&out, "{\"tensors\": [");
	for (uint32_t i = 0; i < img->nr_tensors && ok; i++) {
		struct ck_corrupt_elements sp = { .tensor = i };

		ck_element_ranges_end(&d->gather[i], img, &img->tensors[i],
				      &sp);
		ok = !d->gather[i].failed;
		if (sp.nr_elements)
			verify_edit(&s, &sp);
		ok = ok && text_flush(&out);
	}
	if (s.json)
		ck_str_puts(&out, "]}\n");
	return ok && text_flush(&out) ? 0 : -ENOMEM;
}

int overlay_diff(struct overlay *o)
{
	struct diff d = { .o = o };
	int ret = find(&d);

	if (!ret && show(&d))
		ret = ck_no_memory(&o->err);
	for (uint32_t i = 0; d.gather && i < o->img->nr_tensors; i++)
		ck_element_ranges_free(&d.gather[i]);
	free(d.gather);
	free(d.was);
	free(d.is);
	return ret ? cmd_err(o->cmd, &o->err) : cmd_flush(o->cmd);
}

/* ---- status ---- */

static uint64_t edited_bytes(struct overlay *o, uint32_t src)
{
	uint64_t off = 0, len, all = 0;

	while (ck_overlay_next(ck_ckpt_overlay(o->ck), src, &off, &len)) {
		all += len;
		off += CK_DIV_UP(len, CK_OVERLAY_BLOCK) * CK_OVERLAY_BLOCK;
	}
	return all;
}

static void put_file(struct overlay *o, struct ck_str *out, uint32_t src,
		     uint64_t bytes, bool first)
{
	uint32_t ref = o->img->srcs[src].name;
	size_t len;
	const char *name = ck_catalog_str(o->img, ref, &len);

	if (ck_opts_get(o->opts, "json")) {
		ck_str_puts(out, first ? "{\"file\": " : ", {\"file\": ");
		ck_str_json(out, name, len);
		ck_str_fmt(out, ", \"nbytes\": %" PRIu64 "}", bytes);
		return;
	}
	ck_str_plain(out, name, len);
	ck_str_puts(out, ": ");
	text_size(out, bytes);
	ck_str_puts(out, " in edited blocks\n");
}

static void put_totals(struct overlay *o, struct ck_str *out, uint64_t bytes)
{
	struct ck_overlay_stats st;

	ck_overlay_stats(ck_ckpt_overlay(o->ck), &st);
	if (ck_opts_get(o->opts, "json")) {
		ck_str_fmt(out,
			   "], \"nbytes\": %" PRIu64 ", \"log\": %" PRIu64
			   ", \"commits\": %" PRIu64
			   ", \"uncommitted\": %" PRIu64
			   ", \"damaged\": %s, \"aside\": %" PRIu64 "}\n",
			   bytes, st.log_bytes, st.commits, st.lost,
			   st.damaged ? "true" : "false", st.aside);
		return;
	}
	ck_str_plain(out, o->dir, strlen(o->dir));
	ck_str_puts(out, ": ");
	text_size(out, bytes);
	ck_str_puts(out, " in edited blocks, ");
	text_size(out, st.log_bytes);
	ck_str_fmt(out, " of log, %" PRIu64 " commit%s\n", st.commits,
		   st.commits == 1 ? "" : "s");
	if (st.damaged)
		ck_str_fmt(out,
			   "%" PRIu64 " bytes behind the last whole commit are "
			   "damaged at byte %" PRIu64 " of the log: an edit "
			   "that was synced may be lost\n",
			   st.lost, st.damaged);
	else if (st.lost)
		ck_str_fmt(out,
			   "%" PRIu64 " bytes behind the last commit: a mount "
			   "is writing, or died\n",
			   st.lost);
	if (st.aside)
		ck_str_fmt(out,
			   "%" PRIu64 " bytes of a damaged end were put into "
			   "overlay.log.lost: an edit that was synced may be "
			   "lost\n",
			   st.aside);
}

int overlay_status(struct overlay *o)
{
	ck_auto_str struct ck_str out = { 0 };
	uint64_t all = 0;

	if (ck_opts_get(o->opts, "json"))
		ck_str_puts(&out, "{\"files\": [");
	for (uint32_t i = 0; i < o->img->nr_srcs; i++) {
		uint64_t n = 0;

		if (o->img->srcs[i].kind == CK_SRC_FILE)
			n = edited_bytes(o, i);
		if (n)
			put_file(o, &out, i, n, !all);
		all += n;
	}
	put_totals(o, &out, all);
	if (!text_flush(&out))
		return cmd_fail(o->cmd, CMD_SYSTEM, "no memory");
	return cmd_flush(o->cmd);
}
