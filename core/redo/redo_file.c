/* SPDX-License-Identifier: Apache-2.0 */
/*
 * redo_file.c - the end of a redo file, little endian
 *
 *	[bytes][record]...[trailer]
 *
 *	record   at 8, off 8, len 8, size 8, tree 4, name 4, then both names,
 *	         each with a NUL
 *	trailer  "UNSHREDO", version 4, flags 4, bytes 8, records 8 (their
 *	         length), parts 8, XXH3-64 of all from the first record on
 */
#include "core/redo/redo.h"

#include "core/base/check.h"
#include "core/base/le.h"
#include "core/base/limits.h"

#include <errno.h>
#include <string.h>
#include <xxhash.h>

#define MAGIC "UNSHREDO"
#define VERSION 1
#define ALSO 1u
#define RECORD 40

void ck_redo_put_part(struct ck_str *tail, const struct ck_redo_part *part)
{
	ck_str_le64(tail, part->at);
	ck_str_le64(tail, part->off);
	ck_str_le64(tail, part->len);
	ck_str_le64(tail, part->size);
	ck_str_le32(tail, (uint32_t)part->tree_len);
	ck_str_le32(tail, (uint32_t)part->name_len);
	ck_str_add(tail, part->tree, part->tree_len);
	ck_str_add(tail, "", 1);
	ck_str_add(tail, part->name, part->name_len);
	ck_str_add(tail, "", 1);
}

void ck_redo_put_end(struct ck_str *tail, uint64_t len, uint64_t nr, bool also)
{
	uint64_t records = tail->len;

	ck_str_add(tail, MAGIC, 8);
	ck_str_le32(tail, VERSION);
	ck_str_le32(tail, also ? ALSO : 0);
	ck_str_le64(tail, len);
	ck_str_le64(tail, records);
	ck_str_le64(tail, nr);
	if (!tail->failed)
		ck_str_le64(tail, XXH3_64bits(tail->v, tail->len));
}

uint64_t ck_redo_tail_len(const unsigned char trailer[CK_REDO_TRAILER])
{
	uint64_t records = ck_le64(trailer + 24);

	if (memcmp(trailer, MAGIC, 8) != 0 || records > CK_MAX_INDEX)
		return 0;
	return records + CK_REDO_TRAILER;
}

static int not_ours(struct ck_err *err)
{
	return ck_fail(err, EINVAL, "is damaged, or none of ours");
}

bool ck_redo_part(struct ck_redo_left *left, struct ck_redo_part *out)
{
	const unsigned char *at = left->tail + left->at;
	size_t rest = left->tail_len - CK_REDO_TRAILER - left->at;
	uint64_t names;

	if (rest < RECORD)
		return false;
	*out = (struct ck_redo_part){
		.at = ck_le64(at),
		.off = ck_le64(at + 8),
		.len = ck_le64(at + 16),
		.size = ck_le64(at + 24),
		.tree_len = ck_le32(at + 32),
		.name_len = ck_le32(at + 36),
	};
	names = (uint64_t)out->tree_len + out->name_len + 2;
	if (names > rest - RECORD)
		return false;
	out->tree = (const char *)at + RECORD;
	out->name = out->tree + out->tree_len + 1;
	left->at += RECORD + names;
	return true;
}

/* Each record in its place, and nothing between or after them. */
static bool are_good(struct ck_redo_left *left)
{
	struct ck_redo_part p;
	uint64_t nr = 0;

	left->at = 0;
	for (; ck_redo_part(left, &p); nr++)
		if (!ck_range_ok(p.at, p.len, left->len) ||
		    !ck_range_ok(p.off, p.len, p.size) || p.tree[p.tree_len] ||
		    p.name[p.name_len])
			return false;
	if (left->at != left->tail_len - CK_REDO_TRAILER || nr != left->nr)
		return false;
	left->at = 0;
	return true;
}

int ck_redo_parse(struct ck_redo_left *left, const unsigned char *tail,
		  size_t len, uint64_t size, struct ck_err *err)
{
	const unsigned char *end = tail + len - CK_REDO_TRAILER;

	if (len < CK_REDO_TRAILER || len > size ||
	    ck_redo_tail_len(end) != len || ck_le32(end + 8) != VERSION ||
	    ck_le64(end + 16) != size - len ||
	    ck_le64(tail + len - 8) != XXH3_64bits(tail, len - 8))
		return not_ours(err);
	left->tail = (unsigned char *)tail; /* only read */
	left->tail_len = len;
	left->also = ck_le32(end + 12) & ALSO;
	left->len = size - len;
	left->nr = ck_le64(end + 32);
	return are_good(left) ? 0 : not_ours(err);
}
