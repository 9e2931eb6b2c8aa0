/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sums_find.c - where a zip, and a MindSpore file, keep their sums
 *
 *   zip        local +14 crc | payload | PK\7\8 crc size size   (flag bit 3)
 *              entry +16 crc
 *   MindSpore  all of the file but 17 bytes | "crc_num" 6 zeros, crc big-endian
 */
#include "core/write/sums_priv.h"

#include "core/base/auto.h"
#include "core/base/check.h"
#include "core/base/le.h"
#include "core/base/limits.h"
#include "core/base/search.h"
#include "core/parse/zip.h"

#include <errno.h>
#include <string.h>

#define LOCAL_CRC 14
#define ENTRY_CRC 16
#define DESCRIPTOR UINT32_C(0x08074b50)
#define FLAG_DESCRIPTOR 8
#define TRAILER 17
#define MAX_COMMENT 65535

/* ---- zip ---- */

static int find_end(struct ck_reader *r, uint32_t src,
		    const struct ck_sum_unit *u, struct ck_zip_end *end,
		    struct ck_err *err)
{
	uint64_t len = CK_MIN(u->len, (uint64_t)CK_ZIP_TAIL + MAX_COMMENT);
	ck_auto_free unsigned char *tail = malloc(len);
	int ret;

	if (!tail)
		return ck_no_memory(err);
	ret = ck_reader_source(r, src, tail, len, u->off + u->len - len, err);
	return ret ? ret : ck_zip_end(tail, len, u->len, end, err);
}

static int add_entry(struct ck_sum_unit *u, const struct ck_zip_entry *e,
		     uint64_t entry_off, struct ck_err *err)
{
	const struct ck_sum sum = {
		.from = u->off + e->local_off,
		.to = u->off + e->limit,
		.local = u->off + e->local_off,
		.len = e->size,
		.name_len = (uint16_t)e->name_len,
		.described = e->flags & FLAG_DESCRIPTOR,
		.kept = e->crc != 0,
		.crc = e->crc,
		.nr_places = 1,
		.place = { { u->off + entry_off + ENTRY_CRC, false } },
	};

	return e->size ? ck_vec_put(&u->sums, err, sum) : 0;
}

static int by_place(const void *a, const void *b)
{
	const struct ck_sum *x = a, *y = b;

	return ck_order(x->from, y->from);
}

static int find_zip(struct ck_reader *r, uint32_t src, struct ck_sum_unit *u,
		    struct ck_err *err)
{
	ck_auto_free unsigned char *dir = NULL;
	struct ck_zip_entry e;
	struct ck_zip_end end;
	size_t at = 0;
	int ret = find_end(r, src, u, &end, err);

	/* a file of items, of which the first is an archive, is none as a whole */
	if (ret == -EINVAL && u->len == r->in.img->srcs[src].id.size)
		return 0;
	if (ret)
		return ret;
	if (end.dir_len > CK_MAX_INDEX)
		return ck_fail(err, EINVAL, "zip: a directory of %llu bytes",
			       (unsigned long long)end.dir_len);
	dir = malloc(end.dir_len + 1);
	if (!dir)
		return ck_no_memory(err);
	ret = ck_reader_source(r, src, dir, end.dir_len, u->off + end.dir_off,
			       err);
	while (!ret) {
		uint64_t entry = end.dir_off + at;

		ret = ck_zip_dir_next(dir, end.dir_len, &at, &end, &e, err);
		if (ret <= 0)
			break;
		ret = add_entry(u, &e, entry, err);
	}
	if (!ret && u->sums.nr)
		qsort(u->sums.v, u->sums.nr, sizeof(*u->sums.v), by_place);
	/* An entry alone knows no limit but the directory's beginning. */
	for (size_t i = 1; !ret && i < u->sums.nr; i++)
		u->sums.v[i - 1].to =
			CK_MIN(u->sums.v[i - 1].to, u->sums.v[i].from);
	return ret;
}

/* @crc is what stands at @off. */
static void add_place(struct ck_sum *sum, uint64_t off, uint32_t crc)
{
	sum->torn |= crc != sum->crc;
	sum->place[sum->nr_places++] = (struct ck_sum_place){ off, false };
}

/* A writer may keep the sum in the local header, behind the bytes, or both. */
int ck_sum_locate(struct ck_reader *r, uint32_t src,
		  const struct ck_sum_unit *u, struct ck_sum *sum, bool torn,
		  struct ck_err *err)
{
	uint32_t crc;
	size_t len = CK_ZIP_LOCAL + (size_t)sum->name_len;
	ck_auto_free unsigned char *head = malloc(len);
	unsigned char after[8];
	uint64_t extra, end;
	int ret;

	if (!head)
		return ck_no_memory(err);
	ret = ck_reader_source(r, src, head, len, sum->local, err);
	if (ret)
		return ret;
	extra = ck_le16(head + 28);
	sum->off = sum->local + len + extra;
	end = sum->off + sum->len;
	if (ck_le32(head) != UINT32_C(0x04034b50) ||
	    ck_le16(head + 26) != sum->name_len || end > u->off + u->len)
		return ck_fail(err, EIO,
			       "zip: the header at byte %llu is not "
			       "what the directory says",
			       (unsigned long long)sum->local);
	crc = ck_le32(head + LOCAL_CRC);
	sum->nr_places = 1;
	sum->torn = false;
	if (crc && sum->crc && (torn || crc == sum->crc))
		add_place(sum, sum->local + LOCAL_CRC, crc);
	if (sum->described && end + sizeof(after) <= sum->to) {
		ret = ck_reader_source(r, src, after, sizeof(after), end, err);
		if (ret)
			return ret;
		crc = ck_le32(after + 4);
		if (ck_le32(after) == DESCRIPTOR && (torn || crc == sum->crc))
			add_place(sum, end + 4, crc);
		else if (ck_le32(after) == sum->crc)
			add_place(sum, end, sum->crc);
	}
	sum->found = true;
	return 0;
}

/* ---- MindSpore ---- */

/* The sum is kept only if it is right now: some writers leave bytes out. */
static int add_trailer(struct ck_reader *r, uint32_t src, struct ck_sum_unit *u,
		       struct ck_err *err)
{
	unsigned char t[TRAILER];
	int ret;

	if (u->len < TRAILER)
		return 0;
	ret = ck_reader_source(r, src, t, TRAILER, u->off + u->len - TRAILER,
			       err);
	if (ret || memcmp(t, "crc_num\0\0\0\0\0\0", 13) != 0)
		return ret;
	return ck_vec_put(&u->sums, err,
			  (struct ck_sum){
				  .from = u->off,
				  .to = u->off + u->len - TRAILER,
				  .off = u->off,
				  .len = u->len - TRAILER,
				  .found = true,
				  .kept = true,
				  .crc = (uint32_t)t[13] << 24 |
					 (uint32_t)t[14] << 16 |
					 (uint32_t)t[15] << 8 | t[16],
				  .nr_places = 1,
				  .place = { { u->off + u->len - 4, true } },
			  });
}

/* Its sum is a decimal number in the header, which may grow. */
static int check_safetensors(struct ck_reader *r, uint32_t src,
			     const struct ck_sum_unit *u,
			     const unsigned char *head, struct ck_err *err)
{
	uint64_t len = ck_le64(head);
	ck_auto_free unsigned char *text = NULL;
	int ret;

	if (len > CK_MAX_HEADER || len + 8 > u->len || head[8] != '{')
		return 0;
	text = malloc(len);
	if (!text)
		return ck_no_memory(err);
	ret = ck_reader_source(r, src, text, len, u->off + 8, err);
	if (ret || !memmem(text, len, "\"crc_num\"", 9))
		return ret;
	return ck_fail(err, EROFS,
		       "%s: its header holds a checksum as a decimal number, "
		       "which may not fit after a write; it is not written",
		       ck_bytes_name(r, src));
}

void ck_chunk_archive(const struct ck_catalog *img, const struct ck_tensor *t,
		      uint32_t chunk, uint64_t *off, uint64_t *len)
{
	const struct ck_chunk *c = &img->chunks[chunk];

	*len = ck_chunk_item(img, t->grid_rank, c);
	*off = *len ? c->off : 0;
}

int ck_sum_find(struct ck_reader *r, uint32_t src, struct ck_sum_unit *u,
		struct ck_err *err)
{
	unsigned char head[16];
	int ret;

	if (u->len < sizeof(head))
		return 0;
	ret = ck_reader_source(r, src, head, sizeof(head), u->off, err);
	if (ret)
		return ret;
	if (!memcmp(head, "PK\3\4", 4)) {
		struct ck_err why = { 0 };

		ret = find_zip(r, src, u, &why);
		return !ret ? 0 :
			      ck_fail(err, ret == -EINVAL ? EROFS : -ret,
				      "%s: its checksums could not be kept "
				      "right: %s",
				      ck_bytes_name(r, src), why.msg);
	}
	if (!r->in.sums)
		return 0;
	ret = check_safetensors(r, src, u, head, err);
	return ret ? ret : add_trailer(r, src, u, err);
}

int ck_sums_list(struct ck_reader *r, uint32_t src, uint64_t off, uint64_t len,
		 ck_sums_each_fn each, void *ctx, struct ck_err *err)
{
	struct ck_sum_unit u = { .off = off, .len = len };
	int ret;

	if (!len)
		u.len = r->in.img->srcs[src].id.size;
	ret = ck_sum_find(r, src, &u, err);
	for (size_t i = 0; !ret && i < u.sums.nr; i++) {
		struct ck_sum *sum = &u.sums.v[i];

		if (!sum->kept)
			continue;
		if (!sum->found)
			ret = ck_sum_locate(r, src, &u, sum, false, err);
		if (!ret)
			ret = each(ctx, src, sum->off, sum->len, sum->crc, err);
	}
	free(u.sums.v);
	return ret;
}
