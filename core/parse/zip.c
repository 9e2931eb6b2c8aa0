// SPDX-License-Identifier: Apache-2.0
/*
 * zip.c - end records, central directory, local headers
 *
 *   local  PK\3\4 need:2 flags:2 method:2 time:4 crc:4 csize:4 usize:4
 *          name_len:2 extra_len:2 | name | extra
 *   entry  PK\1\2 made:2 need:2 flags:2 method:2 time:4 crc:4 csize:4 usize:4
 *          name_len:2 extra_len:2 comment_len:2 disk:2 attr:6 local_off:4
 *          | name | extra | comment
 *   end64  PK\6\6 rest:8 made:2 need:2 disk:4 dir_disk:4 nr_here:8 nr:8
 *          dir_len:8 dir_off:8
 *   where  PK\6\7 disk:4 end64_off:8 disks:4
 *   end    PK\5\6 disk:2 dir_disk:2 nr_here:2 nr:2 dir_len:4 dir_off:4
 *          comment_len:2 | comment
 *
 * A 16- or 32-bit field that is all ones is to be found in its 64-bit
 * counterpart: end64, or extra block 1.  torch's local headers have zero for
 * CRC and sizes (flag bit 3), and a padding block "FB" that the directory has
 * not.
 */
#include "core/parse/zip.h"

#include "core/base/auto.h"
#include "core/base/check.h"
#include "core/base/le.h"
#include "core/base/limits.h"
#include "core/base/match.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define SIG_LOCAL UINT32_C(0x04034b50)
#define SIG_ENTRY UINT32_C(0x02014b50)
#define SIG_END UINT32_C(0x06054b50)
#define SIG_END64 UINT32_C(0x06064b50)
#define SIG_WHERE UINT32_C(0x07064b50)

#define END_LEN 22
#define WHERE_LEN 20
#define END64_LEN 56
#define ENTRY_LEN 46

#define FLAG_DESCRIPTOR 0x0008 /* CRC and sizes follow the payload */
#define FLAG_UTF8 0x0800
#define EXTRA_ZIP64 1
#define METHOD_STORED 0

/* An end record whose comment reaches the end of the archive exactly. */
static bool is_end(const uint8_t *at, size_t left)
{
	return ck_le32(at) == SIG_END &&
	       left == (size_t)END_LEN + ck_le16(at + 20);
}

/* The one end record in the tail: its place, or -EINVAL. */
static int find_end(const uint8_t *tail, size_t len, size_t *out,
		    struct ck_err *err)
{
	unsigned found = 0;

	for (size_t at = 0; len >= END_LEN && at <= len - END_LEN; at++) {
		if (tail[at] != 'P' || !is_end(tail + at, len - at))
			continue;
		*out = at;
		found++;
	}
	if (!found)
		return ck_fail(err, EINVAL, "zip: no end record");
	if (found > 1)
		return ck_fail(err, EINVAL, "zip: %u end records", found);
	return 0;
}

static int check_end(const struct ck_zip_end *e, uint64_t here,
		     uint64_t ends_at, struct ck_err *err)
{
	if (here != e->nr)
		return ck_fail(err, EINVAL, "zip: an archive of several parts");
	if (e->nr > CK_MAX_ZIP_ENTRIES)
		return ck_fail(err, EINVAL,
			       "zip: %" PRIu64 " entries; the limit is %u",
			       e->nr, CK_MAX_ZIP_ENTRIES);
	if (!ck_range_ok(e->dir_off, e->dir_len, ends_at) ||
	    e->dir_off + e->dir_len != ends_at)
		return ck_fail(err, EINVAL,
			       "zip: directory of %" PRIu64 " bytes at %" PRIu64
			       "; expected its end at %" PRIu64,
			       e->dir_len, e->dir_off, ends_at);
	if (e->nr * ENTRY_LEN > e->dir_len)
		return ck_fail(err, EINVAL,
			       "zip: %" PRIu64
			       " entries in a directory of %" PRIu64 " bytes",
			       e->nr, e->dir_len);
	return 0;
}

/*
 * A field of the end record and its counterpart agree, or it points to its
 * counterpart.
 */
static bool agrees(uint64_t narrow, uint64_t ones, uint64_t wide)
{
	return narrow == ones || narrow == wide;
}

/* @end: the end record, at @end_off; @where: the locator in front of it. */
static int read_end64(const uint8_t *end, const uint8_t *where,
		      uint64_t end_off, struct ck_zip_end *out,
		      struct ck_err *err)
{
	const uint8_t *e = where - END64_LEN;
	uint64_t off = end_off - WHERE_LEN - END64_LEN;

	if (ck_le64(where + 8) != off || ck_le32(e) != SIG_END64 ||
	    ck_le64(e + 4) != END64_LEN - 12)
		return ck_fail(err, EINVAL,
			       "zip: no 64-bit end record at byte %" PRIu64
			       ", where its locator follows",
			       off);
	if (ck_le32(where + 4) || ck_le32(where + 16) > 1 || ck_le32(e + 16) ||
	    ck_le32(e + 20))
		return ck_fail(err, EINVAL, "zip: an archive of several parts");
	out->nr = ck_le64(e + 32);
	out->dir_len = ck_le64(e + 40);
	out->dir_off = ck_le64(e + 48);
	if (!agrees(ck_le16(end + 8), UINT16_MAX, out->nr) ||
	    !agrees(ck_le16(end + 10), UINT16_MAX, out->nr) ||
	    !agrees(ck_le32(end + 12), UINT32_MAX, out->dir_len) ||
	    !agrees(ck_le32(end + 16), UINT32_MAX, out->dir_off))
		return ck_fail(err, EINVAL,
			       "zip: the two end records disagree");
	return check_end(out, ck_le64(e + 24), off, err);
}

int ck_zip_end(const void *tail, size_t len, uint64_t size,
	       struct ck_zip_end *out, struct ck_err *err)
{
	const uint8_t *end = tail;
	size_t at = 0;
	int ret = find_end(tail, len, &at, err);

	if (ret)
		return ret;
	end += at;
	if (ck_le16(end + 4) || ck_le16(end + 6))
		return ck_fail(err, EINVAL, "zip: an archive of several parts");
	if (at >= WHERE_LEN && ck_le32(end - WHERE_LEN) == SIG_WHERE) {
		if (at < WHERE_LEN + END64_LEN)
			return ck_fail(err, EINVAL,
				       "zip: the 64-bit end record is cut off");
		return read_end64(end, end - WHERE_LEN, size - (len - at), out,
				  err);
	}
	out->nr = ck_le16(end + 10);
	out->dir_len = ck_le32(end + 12);
	out->dir_off = ck_le32(end + 16);
	return check_end(out, ck_le16(end + 8), size - (len - at), err);
}

/*
 * Finds extra block 1.  *at is left at its data, *left is its length; both 0
 * where there is none.  False: a block runs past the field, or block 1 is
 * there twice.
 */
static bool find_zip64(const uint8_t *extra, size_t len, const uint8_t **at,
		       size_t *left)
{
	size_t size;

	*at = NULL;
	*left = 0;
	for (; len >= 4; extra += 4 + size, len -= 4 + size) {
		size = ck_le16(extra + 2);
		if (size > len - 4)
			return false;
		if (ck_le16(extra) != EXTRA_ZIP64)
			continue;
		if (*at)
			return false;
		*at = extra + 4;
		*left = size;
	}
	return true;
}

/* The 64-bit counterpart of a field of all ones; false: it is not there. */
static bool widen(uint64_t *field, const uint8_t **at, size_t *left)
{
	if (*field != UINT32_MAX)
		return true;
	if (*left < 8)
		return false;
	*field = ck_le64(*at);
	*at += 8;
	*left -= 8;
	return true;
}

static int check_method(uint16_t flags, uint16_t method, size_t at,
			struct ck_err *err)
{
	if (method != METHOD_STORED)
		return ck_fail(
			err, EINVAL,
			"zip: byte %zu of the directory: method %u; expected stored",
			at, method);
	if (flags & 1)
		return ck_fail(err, EINVAL,
			       "zip: byte %zu of the directory: encrypted", at);
	if (flags & ~(FLAG_DESCRIPTOR | FLAG_UTF8))
		return ck_fail(err, EINVAL,
			       "zip: byte %zu of the directory: flags 0x%04x",
			       at, flags);
	return 0;
}

static int check_place(struct ck_zip_entry *e, const struct ck_zip_end *end,
		       size_t at, struct ck_err *err)
{
	uint64_t len;

	e->limit = end->dir_off;
	if (!ck_add_ok(CK_ZIP_LOCAL + e->name_len, e->size, &len) ||
	    !ck_range_ok(e->local_off, len, end->dir_off))
		return ck_fail(err, EINVAL,
			       "zip: byte %zu of the directory: %" PRIu64
			       " bytes at %" PRIu64
			       " do not lie before %" PRIu64,
			       at, e->size, e->local_off, end->dir_off);
	if (!e->name_len || memchr(e->name, '\0', e->name_len))
		return ck_fail(
			err, EINVAL,
			"zip: byte %zu of the directory: a name that is empty or holds a NUL",
			at);
	return 0;
}

/* @d: an entry whose @len bytes (name, extra, comment too) are all there. */
static int read_entry(const uint8_t *d, struct ck_zip_entry *out, size_t at,
		      struct ck_err *err)
{
	const uint8_t *wide;
	uint64_t stored = ck_le32(d + 20);
	size_t left;

	*out = (struct ck_zip_entry){
		.name = (const char *)d + ENTRY_LEN,
		.name_len = ck_le16(d + 28),
		.flags = ck_le16(d + 8),
		.crc = ck_le32(d + 16),
		.size = ck_le32(d + 24),
		.local_off = ck_le32(d + 42),
	};
	if (!find_zip64(d + ENTRY_LEN + out->name_len, ck_le16(d + 30), &wide,
			&left) ||
	    !widen(&out->size, &wide, &left) || !widen(&stored, &wide, &left) ||
	    !widen(&out->local_off, &wide, &left))
		return ck_fail(
			err, EINVAL,
			"zip: byte %zu of the directory: malformed extra field",
			at);
	if (ck_le16(d + 34))
		return ck_fail(err, EINVAL, "zip: an archive of several parts");
	if (check_method(out->flags, ck_le16(d + 10), at, err))
		return -EINVAL;
	if (stored != out->size)
		return ck_fail(err, EINVAL,
			       "zip: byte %zu of the directory: %" PRIu64
			       " bytes stored as %" PRIu64,
			       at, out->size, stored);
	return 0;
}

int ck_zip_dir_next(const void *dir, size_t len, size_t *at,
		    const struct ck_zip_end *end, struct ck_zip_entry *out,
		    struct ck_err *err)
{
	const uint8_t *d = (const uint8_t *)dir + *at;
	size_t left = len - *at, size = ENTRY_LEN;
	int ret;

	if (!left)
		return 0;
	if (left >= size)
		size += (size_t)ck_le16(d + 28) + ck_le16(d + 30) +
			ck_le16(d + 32);
	if (left < size || ck_le32(d) != SIG_ENTRY)
		return ck_fail(
			err, EINVAL,
			"zip: byte %zu of the directory: expected an entry",
			*at);
	ret = read_entry(d, out, *at, err);
	if (!ret)
		ret = check_place(out, end, *at, err);
	if (ret)
		return ret;
	*at += size;
	return 1;
}

static int by_offset(const void *a, const void *b)
{
	const struct ck_zip_entry *x = a, *y = b;

	return (x->local_off > y->local_off) - (x->local_off < y->local_off);
}

static int by_name(const void *a, const void *b)
{
	const struct ck_zip_entry *x = *(const struct ck_zip_entry *const *)a;
	const struct ck_zip_entry *y = *(const struct ck_zip_entry *const *)b;

	return ck_text_order(x->name, x->name_len, y->name, y->name_len);
}

static int check_overlap(struct ck_zip_entry *v, size_t nr, struct ck_err *err)
{
	qsort(v, nr, sizeof(*v), by_offset);
	for (size_t i = 0; i + 1 < nr; i++) {
		v[i].limit = v[i + 1].local_off;
		if (v[i].local_off + CK_ZIP_LOCAL + v[i].name_len + v[i].size >
		    v[i].limit)
			return ck_fail(err, EINVAL,
				       "zip: %.*s at byte %" PRIu64
				       " overlaps %.*s at byte %" PRIu64,
				       (int)CK_MIN(v[i].name_len, 200),
				       v[i].name, v[i].local_off,
				       (int)CK_MIN(v[i + 1].name_len, 200),
				       v[i + 1].name, v[i + 1].local_off);
	}
	return 0;
}

static int check_names(const struct ck_zip_entry *v, size_t nr,
		       struct ck_err *err)
{
	ck_auto_free const struct ck_zip_entry **sorted =
		calloc(nr, sizeof(*sorted));

	if (!sorted)
		return ck_no_memory(err);
	for (size_t i = 0; i < nr; i++)
		sorted[i] = &v[i];
	qsort(sorted, nr, sizeof(*sorted), by_name);
	for (size_t i = 0; i + 1 < nr; i++)
		if (!by_name(&sorted[i], &sorted[i + 1]))
			return ck_fail(err, EINVAL, "zip: %.*s is there twice",
				       (int)CK_MIN(sorted[i]->name_len, 200),
				       sorted[i]->name);
	return 0;
}

int ck_zip_dir(const void *dir, size_t len, const struct ck_zip_end *end,
	       struct ck_zip_entry **out, struct ck_err *err)
{
	ck_auto_free struct ck_zip_entry *v = NULL;
	struct ck_zip_entry e;
	size_t at = 0, nr = 0;
	int ret;

	*out = NULL;
	if (len != end->dir_len || end->nr > len / ENTRY_LEN)
		return ck_fail(err, EINVAL,
			       "zip: %zu bytes of a directory of %" PRIu64, len,
			       end->dir_len);
	v = calloc(end->nr ? end->nr : 1, sizeof(*v));
	if (!v)
		return ck_no_memory(err);
	while ((ret = ck_zip_dir_next(dir, len, &at, end, &e, err)) > 0) {
		if (nr < end->nr)
			v[nr] = e;
		nr++;
	}
	if (!ret && nr != end->nr)
		ret = ck_fail(err, EINVAL,
			      "zip: %zu entries; the end record says %" PRIu64,
			      nr, end->nr);
	if (ret || !nr)
		return ret;
	ret = check_overlap(v, nr, err);
	if (!ret)
		ret = check_names(v, nr, err);
	if (!ret)
		*out = ck_steal(v);
	return ret;
}

static int disagrees(const struct ck_zip_entry *e, const char *what,
		     struct ck_err *err)
{
	return ck_fail(
		err, EINVAL,
		"zip: byte %" PRIu64
		": the local header of %.*s and the directory disagree about its %s",
		e->local_off, (int)CK_MIN(e->name_len, 200), e->name, what);
}

/* @b: the whole local header, as far as @have bytes reach. */
static bool same_sizes(const uint8_t *b, size_t have,
		       const struct ck_zip_entry *e)
{
	uint64_t stored = ck_le32(b + 18), size = ck_le32(b + 22);
	size_t extra_at = CK_ZIP_LOCAL + e->name_len;
	size_t extra = CK_MIN(ck_le16(b + 28), have - extra_at);
	const uint8_t *wide = b + extra_at + 4;

	if (stored == UINT32_MAX && size == UINT32_MAX) {
		if (extra < CK_ZIP_LOCAL_EXTRA ||
		    ck_le16(b + extra_at) != EXTRA_ZIP64)
			return false;
		size = ck_le64(wide);
		stored = ck_le64(wide + 8);
	}
	if (e->flags & FLAG_DESCRIPTOR && !stored && !size)
		return true;
	return stored == e->size && size == e->size;
}

int ck_zip_local(const void *bytes, size_t len, const struct ck_zip_entry *e,
		 uint64_t *payload, struct ck_err *err)
{
	const uint8_t *b = bytes;
	uint64_t at;

	if (len < CK_ZIP_LOCAL + e->name_len || ck_le32(b) != SIG_LOCAL)
		return ck_fail(err, EINVAL,
			       "zip: byte %" PRIu64
			       ": expected the local header of %.*s",
			       e->local_off, (int)CK_MIN(e->name_len, 200),
			       e->name);
	if (ck_le16(b + 26) != e->name_len ||
	    memcmp(b + CK_ZIP_LOCAL, e->name, e->name_len) != 0)
		return disagrees(e, "name", err);
	if (ck_le16(b + 6) != e->flags)
		return disagrees(e, "flags", err);
	if (ck_le16(b + 8) != METHOD_STORED)
		return disagrees(e, "method", err);
	if (!same_sizes(b, len, e))
		return disagrees(e, "size", err);
	at = e->local_off + CK_ZIP_LOCAL + e->name_len + ck_le16(b + 28);
	if (at > e->limit || e->size > e->limit - at)
		return ck_fail(err, EINVAL,
			       "zip: byte %" PRIu64
			       ": %.*s runs into what follows at byte %" PRIu64,
			       e->local_off, (int)CK_MIN(e->name_len, 200),
			       e->name, e->limit);
	*payload = at;
	return 0;
}
