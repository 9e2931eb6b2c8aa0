/* SPDX-License-Identifier: Apache-2.0 */
/*
 * zip_records.c - writes zip records; the header has the picture
 */
#include "core/emit/zip_records.h"

#include "core/base/check.h"

#include <endian.h>
#include <string.h>

#define FULL32 UINT32_C(0xffffffff) /* "see the zip64 field" */

enum { FLAG_UTF8 = 0x0800, EXTRA_ZIP64 = 1, EXTRA_PAD = 0x4246 };

static void put16(struct ck_str *s, unsigned v)
{
	uint16_t le = htole16((uint16_t)v);

	ck_str_add(s, &le, sizeof(le));
}

static uint32_t in32(uint64_t v)
{
	return (uint32_t)CK_MIN(v, FULL32);
}

static bool large(uint64_t v)
{
	return v >= FULL32;
}

/* Version to flags, shared by local headers and the directory. */
static void put_common(struct ck_str *s, const struct ck_zip_member *m)
{
	put16(s, large(m->size) || large(m->local_off) ? 45 : 20);
	put16(s, FLAG_UTF8);
	put16(s, 0); /* stored */
	ck_str_le32(s, 0); /* no time, no date */
	ck_str_le32(s, m->crc);
	ck_str_le32(s, in32(m->size));
	ck_str_le32(s, in32(m->size));
	put16(s, (unsigned)strlen(m->name));
}

/* Of the zip64 field of a local header. */
static size_t zip64_len(const struct ck_zip_member *m)
{
	return large(m->size) ? 20 : 0;
}

/* Of a local header with its name and fields, but for the padding. */
static uint64_t local_len(const struct ck_zip_member *m)
{
	return 30 + strlen(m->name) + zip64_len(m) + 4;
}

uint64_t ck_zip_payload(const struct ck_zip_member *m)
{
	return CK_DIV_UP(m->local_off + local_len(m), CK_ZIP_OUT_ALIGN) *
	       CK_ZIP_OUT_ALIGN;
}

void ck_zip_put_local(struct ck_str *s, const struct ck_zip_member *m)
{
	size_t zip64 = zip64_len(m);
	size_t pad = ck_zip_payload(m) - m->local_off - local_len(m);

	ck_str_puts(s, "PK\x03\x04");
	put_common(s, m);
	put16(s, (unsigned)(zip64 + 4 + pad));
	ck_str_puts(s, m->name);
	if (zip64) {
		put16(s, EXTRA_ZIP64);
		put16(s, 16);
		ck_str_le64(s, m->size);
		ck_str_le64(s, m->size);
	}
	put16(s, EXTRA_PAD);
	put16(s, (unsigned)pad);
	while (pad--)
		ck_str_puts(s, "Z");
}

static void directory_entry(struct ck_str *s, const struct ck_zip_member *m)
{
	unsigned len =
		(large(m->size) ? 16u : 0) + (large(m->local_off) ? 8 : 0);

	ck_str_puts(s, "PK\x01\x02");
	put16(s, 45); /* made by: no particular system */
	put_common(s, m);
	put16(s, len ? len + 4 : 0);
	put16(s, 0); /* no comment */
	put16(s, 0); /* disk */
	put16(s, 0);
	ck_str_le32(s, 0); /* attributes */
	ck_str_le32(s, in32(m->local_off));
	ck_str_puts(s, m->name);
	if (!len)
		return;
	put16(s, EXTRA_ZIP64);
	put16(s, len);
	if (large(m->size)) {
		ck_str_le64(s, m->size);
		ck_str_le64(s, m->size);
	}
	if (large(m->local_off))
		ck_str_le64(s, m->local_off);
}

static void zip64_end(struct ck_str *s, uint64_t nr, uint64_t len, uint64_t off)
{
	ck_str_add(s, "PK\x06\x06", 4);
	ck_str_le64(s, 44); /* what follows of this record */
	put16(s, 45);
	put16(s, 45);
	ck_str_le32(s, 0);
	ck_str_le32(s, 0);
	ck_str_le64(s, nr);
	ck_str_le64(s, nr);
	ck_str_le64(s, len);
	ck_str_le64(s, off);
	ck_str_add(s, "PK\x06\x07", 4);
	ck_str_le32(s, 0);
	ck_str_le64(s, off + len); /* where the record above is */
	ck_str_le32(s, 1);
}

void ck_zip_put_end(struct ck_str *s, const struct ck_zip_member *m, size_t nr,
		    uint64_t off)
{
	size_t begin = s->len;
	uint64_t len;

	for (size_t i = 0; i < nr; i++)
		directory_entry(s, &m[i]);
	len = s->len - begin;
	zip64_end(s, nr, len, off);
	ck_str_add(s, "PK\x05\x06", 4);
	ck_str_le32(s, 0);
	put16(s, (unsigned)CK_MIN(nr, 0xffffu));
	put16(s, (unsigned)CK_MIN(nr, 0xffffu));
	ck_str_le32(s, in32(len));
	ck_str_le32(s, in32(off));
	put16(s, 0);
}
