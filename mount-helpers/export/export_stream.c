/* SPDX-License-Identifier: Apache-2.0 */
/*
 * export_stream.c - to standard output: one file as it is, several as a tar
 *
 * In order and in pieces, so memory does not grow with them.  Nothing is read
 * back: what went into a pipe is gone.  The headers are those of POSIX ustar,
 * with a pax record for a name that is longer or a file that is larger than
 * these can say; owners are nobody's, and times the stored files'.
 */
#include "mount-helpers/export/export.h"

#include "core/base/auto.h"
#include "core/base/check.h"
#include "core/base/whole.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define BLOCK 512
#define MAX_OCTAL (UINT64_C(1) << 33) /* 11 octal digits */

struct ustar {
	char name[100], mode[8], uid[8], gid[8], size[12], mtime[12], sum[8];
	char type, link[100], magic[6], version[2], user[32], group[32];
	char major[8], minor[8], prefix[155], pad[12];
};
_Static_assert(sizeof(struct ustar) == BLOCK, "a header is a block");

/* Whatever is wrong with standard output (EIO, EBADF), the checkpoint is not. */
static int put(const void *bytes, size_t len, struct ck_err *err)
{
	int ret = ck_write_whole(STDOUT_FILENO, bytes, len);

	return ret ? ck_fail(err, EPIPE, "standard output: %s",
			     strerror(-ret)) :
		     0;
}

static int pad(uint64_t size, struct ck_err *err)
{
	static const char zeros[BLOCK];

	return put(zeros, (size_t)(-size % BLOCK), err);
}

static int put_header(const char *name, char type, uint64_t size, int64_t mtime,
		      struct ck_err *err)
{
	struct ustar h = { .type = type, .magic = "ustar", .version = "00" };
	const unsigned char *at = (const unsigned char *)&h;
	unsigned sum = 0;

	memcpy(h.name, name, strnlen(name, sizeof(h.name)));
	strcpy(h.mode, "0000644");
	strcpy(h.uid, "0000000");
	strcpy(h.gid, "0000000");
	snprintf(h.size, sizeof(h.size), "%011" PRIo64, size % MAX_OCTAL);
	snprintf(h.mtime, sizeof(h.mtime), "%011" PRIo64,
		 (uint64_t)CK_MAX(mtime, 0) % MAX_OCTAL);
	memset(h.sum, ' ', sizeof(h.sum));
	for (size_t i = 0; i < sizeof(h); i++)
		sum += at[i];
	snprintf(h.sum, sizeof(h.sum), "%06o", sum);
	return put(&h, sizeof(h), err);
}

/* "LEN KEY=VALUE\n", LEN with all of it */
static void add_record(struct ck_str *out, const char *key, const char *value)
{
	size_t len = strlen(key) + strlen(value) + 3, all = len + 1;

	while (all != len + (size_t)snprintf(NULL, 0, "%zu", all))
		all = len + (size_t)snprintf(NULL, 0, "%zu", all);
	ck_str_fmt(out, "%zu %s=%s\n", all, key, value);
}

static int put_member(const struct export_file *f, int64_t mtime,
		      struct ck_err *err)
{
	ck_auto_str struct ck_str pax = { 0 };
	char number[24];
	int ret = 0;

	snprintf(number, sizeof(number), "%" PRIu64, f->size);
	if (strlen(f->name) > sizeof(((struct ustar *)0)->name))
		add_record(&pax, "path", f->name);
	if (f->size >= MAX_OCTAL)
		add_record(&pax, "size", number);
	if (pax.failed)
		return ck_no_memory(err);
	if (pax.len)
		ret = put_header("././@PaxHeader", 'x', pax.len, mtime, err);
	if (pax.len && !ret)
		ret = put(pax.v, pax.len, err) ?: pad(pax.len, err);
	return ret ? ret : put_header(f->name, '0', f->size, mtime, err);
}

static int put_file(struct export *x, const struct export_file *f, char *buf,
		    struct ck_err *err)
{
	uint64_t n;
	int ret = 0;

	for (uint64_t at = 0; at < f->size && !ret; at += n) {
		n = CK_MIN(EXPORT_PIECE, f->size - at);
		ret = ck_view_read(x->view, f->nr, buf, n, at, err);
		if (!ret)
			ret = put(buf, n, err);
		x->moved += n;
		if (x->tick)
			x->tick(x->ctx, x->moved, x->bytes);
	}
	return ret;
}

static int64_t mtime_of(const struct export *x, const struct export_file *f)
{
	struct ck_vfile v = { .newest = CK_NONE };

	x->view->ops->file(x->view, f->nr, &v);
	return v.newest == CK_NONE ?
		       0 :
		       x->view->img->srcs[v.newest].id.mtime_ns / 1000000000;
}

int export_stream(struct export *x, bool one, struct ck_err *err)
{
	static const char end[2 * BLOCK];
	ck_auto_free char *buf = aligned_alloc(4096, EXPORT_PIECE);
	int ret = buf ? 0 : ck_no_memory(err);

	for (size_t i = 0; i < x->file.nr && !ret; i++) {
		const struct export_file *f = &x->file.v[i];

		if (!one)
			ret = put_member(f, mtime_of(x, f), err);
		if (!ret)
			ret = put_file(x, f, buf, err);
		if (!ret && !one)
			ret = pad(f->size, err);
	}
	return ret || one ? ret : put(end, sizeof(end), err);
}
