/* SPDX-License-Identifier: Apache-2.0 */
/*
 * export_sums.c - the CRC-32 of each storage of an exported model.pt
 *
 * The view leaves them 0, for they stand before the bytes that they are of.
 * Here all bytes pass by: each piece adds the sums of what it has of members,
 * and when all are written the whole ones are put into the local headers and
 * the directory.  Digests of pieces are of the bytes as the view has them, so
 * that sums are taken out again of what is read back.
 */
#include "mount-helpers/export/export.h"

#include "core/base/auto.h"
#include "core/base/check.h"
#include "core/base/crc32.h"
#include "core/base/search.h"
#include "core/base/whole.h"
#include "core/parse/zip.h"

#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define LOCAL_CRC 14 /* bytes into a local header */
#define DIR_CRC 16 /* bytes into an entry of the directory */

static int read_end(struct export *x, struct ck_zip_end *end, char **dir,
		    struct ck_err *err)
{
	const struct export_file *f = &x->file.v[0];
	size_t len = CK_MIN(f->size, (uint64_t)CK_ZIP_TAIL);
	char tail[CK_ZIP_TAIL];
	int ret = ck_view_read(x->view, f->nr, tail, len, f->size - len, err);

	if (!ret)
		ret = ck_zip_end(tail, len, f->size, end, err);
	if (ret)
		return ret;
	*dir = malloc(end->dir_len + 1);
	return *dir ? ck_view_read(x->view, f->nr, *dir, end->dir_len,
				   end->dir_off, err) :
		      ck_no_memory(err);
}

/* One without a sum whose bytes are of a tensor. */
static int add(struct export *x, const struct ck_zip_entry *e, uint64_t dir_at,
	       struct ck_err *err)
{
	char local[CK_ZIP_LOCAL + 256];
	size_t len = CK_MIN(CK_ZIP_LOCAL + e->name_len, sizeof(local));
	struct export_sum *s;
	uint64_t payload;
	int ret;

	if (e->crc || !e->size)
		return 0;
	ret = ck_view_read(x->view, x->file.v[0].nr, local, len, e->local_off,
			   err);
	if (!ret)
		ret = ck_zip_local(local, len, e, &payload, err);
	if (ret)
		return ret;
	s = ck_vec_push(&x->sum);
	if (!s)
		return ck_no_memory(err);
	*s = (struct export_sum){ .off = payload,
				  .len = e->size,
				  .field = { e->local_off + LOCAL_CRC,
					     dir_at + DIR_CRC } };
	return 0;
}

static int by_place(const void *a, const void *b)
{
	uint64_t oa = ((const struct export_sum *)a)->off;
	uint64_t ob = ((const struct export_sum *)b)->off;

	return (oa > ob) - (oa < ob);
}

int export_sums_plan(struct export *x, struct ck_err *err)
{
	ck_auto_free char *dir = NULL;
	struct ck_zip_end end;
	struct ck_zip_entry e;
	size_t at = 0, from = 0;
	int ret;

	if (x->file.nr != 1 || strcmp(x->view->ops->name, "model.pt") != 0)
		return 0;
	ret = read_end(x, &end, &dir, err);
	while (!ret && (ret = ck_zip_dir_next(dir, end.dir_len, &at, &end, &e,
					      err)) == 1) {
		ret = add(x, &e, end.dir_off + from, err);
		from = at;
	}
	if (ret)
		return ret;
	if (x->sum.nr)
		qsort(x->sum.v, x->sum.nr, sizeof(*x->sum.v), by_place);
	x->part = calloc(x->pieces + x->sum.nr + 1, sizeof(*x->part));
	x->summed = calloc(x->pieces + 1, 1);
	return x->part && x->summed ? 0 : ck_no_memory(err);
}

/* The first member that ends behind @off. */
static size_t member_at(const struct export *x, uint64_t off)
{
	return CK_FIRST(i, 0, x->sum.nr,
			x->sum.v[i].off + x->sum.v[i].len > off);
}

/*
 * Where piece and member meet, the next meets a later piece or a later member:
 * the sum of both numbers is a number of its own.
 */
void export_sums_take(struct export *x, uint64_t piece, uint64_t off,
		      const unsigned char *buf, uint64_t len)
{
	for (size_t m = member_at(x, off);
	     m < x->sum.nr && x->sum.v[m].off < off + len; m++) {
		const struct export_sum *s = &x->sum.v[m];
		uint64_t from = CK_MAX(s->off, off);
		uint64_t to = CK_MIN(s->off + s->len, off + len);

		x->part[piece + m] = ck_crc32(0, buf + (from - off), to - from);
	}
	if (x->summed)
		x->summed[piece] = 1;
}

/* What was written by an export before. */
static int take_kept(struct export *x, int fd, struct ck_err *err)
{
	ck_auto_free unsigned char *buf = malloc(EXPORT_PIECE);

	if (!buf)
		return ck_no_memory(err);
	for (uint64_t p = 0; p < x->pieces; p++) {
		uint64_t off = p * EXPORT_PIECE;
		uint64_t len = CK_MIN(EXPORT_PIECE, x->file.v[0].size - off);
		ssize_t n;

		if (x->summed[p])
			continue;
		n = ck_pread_most(fd, buf, len, off);
		if (n < 0)
			return ck_fail(err, (int)-n, "%s: %s",
				       x->file.v[0].name, strerror((int)-n));
		/* short: found when it is read back, and written again */
		memset(buf + n, 0, len - (size_t)n);
		export_sums_take(x, p, off, buf, len);
		x->summed[p] = x->done[p] != EXPORT_KEPT;
	}
	return 0;
}

static void add_up(struct export *x, size_t m)
{
	struct export_sum *s = &x->sum.v[m];
	uint64_t end = s->off + s->len;

	s->crc = 0;
	for (uint64_t p = s->off / EXPORT_PIECE; p * EXPORT_PIECE < end; p++) {
		uint64_t from = CK_MAX(s->off, p * EXPORT_PIECE);
		uint64_t to = CK_MIN(end, (p + 1) * EXPORT_PIECE);

		s->crc = ck_crc32_join(s->crc, x->part[p + m], to - from);
	}
}

int export_sums_put(struct export *x, struct ck_err *err)
{
	ck_auto_fd int fd = -1;
	int ret = 0;

	if (!x->sum.nr)
		return 0;
	fd = openat(x->dir, x->file.v[0].name, O_RDWR | O_CLOEXEC | O_NOFOLLOW);
	if (fd < 0)
		return ck_fail(err, errno, "%s: %s", x->file.v[0].name,
			       strerror(errno));
	ret = take_kept(x, fd, err);
	if (ret)
		return ret;
	for (size_t m = 0; m < x->sum.nr && !ret; m++) {
		const struct export_sum *s = &x->sum.v[m];
		uint32_t crc;

		add_up(x, m);
		crc = htole32(s->crc);
		for (unsigned i = 0; i < 2 && !ret; i++)
			ret = ck_pwrite_whole(fd, (const char *)&crc,
					      sizeof(crc), s->field[i]);
	}
	if (!ret && fdatasync(fd))
		ret = -errno;
	return ret ? ck_fail(err, -ret, "%s: %s", x->file.v[0].name,
			     strerror(-ret)) :
		     0;
}

/* Zeros for bytes of a sum that are as they should be, and nowhere else. */
static void hide(const struct export_sum *s, unsigned field, unsigned char *buf,
		 uint64_t len, uint64_t off)
{
	uint32_t crc = htole32(s->crc);

	for (unsigned i = 0; i < sizeof(crc); i++) {
		uint64_t at = s->field[field] + i;

		if (at >= off && at - off < len)
			buf[at - off] = buf[at - off] !=
					((const unsigned char *)&crc)[i];
	}
}

void export_sums_hide(const struct export *x, unsigned char *buf, uint64_t len,
		      uint64_t off)
{
	/* the directory has all; of local headers those near this piece */
	bool dir = x->sum.nr && x->sum.v[0].field[1] < off + len;
	size_t m;

	for (m = 0; dir && m < x->sum.nr; m++)
		hide(&x->sum.v[m], 1, buf, len, off);
	for (m = member_at(x, off);
	     m < x->sum.nr && x->sum.v[m].field[0] < off + len; m++)
		hide(&x->sum.v[m], 0, buf, len, off);
}
