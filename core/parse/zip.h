/* SPDX-License-Identifier: Apache-2.0 */
/*
 * zip.h - the zip container as torch.save writes it: stored members only
 *
 *   [local header, name, extra][payload][descriptor] ...
 *   [central directory] [zip64 end + locator] [end record]      <- the end
 *
 * Parsers take bytes; the caller does the reading, which is why finding a
 * member takes three steps: end record -> directory -> local header.  Anything
 * ambiguous is refused: two end records, members that overlap, a name twice,
 * deflate, encryption, a local header that disagrees with the directory.
 */
#ifndef CK_ZIP_H
#define CK_ZIP_H

#include "core/base/err.h"

#include <stddef.h>
#include <stdint.h>

#define CK_ZIP_TAIL (22 + 20 + 56) /* end record, locator, zip64 end */
#define CK_ZIP_LOCAL 30 /* fixed part of a local header */
#define CK_ZIP_LOCAL_EXTRA 20 /* its 64-bit sizes */

struct ck_zip_end {
	uint64_t dir_off, dir_len; /* in the archive */
	uint64_t nr;
};

/*
 * @tail: the last @len bytes of an archive of @size bytes.  torch's need
 * CK_ZIP_TAIL of them only; an end record may carry a comment, so give
 * min(size, CK_ZIP_TAIL + 65535) where that fails or doubt is unwelcome.  The
 * directory must end where the end records begin.
 */
int ck_zip_end(const void *tail, size_t len, uint64_t size,
	       struct ck_zip_end *out, struct ck_err *err);

struct ck_zip_entry {
	const char *name; /* into the directory's bytes */
	size_t name_len;
	uint64_t local_off, size;
	uint64_t limit; /* its header and bytes end at or before this offset */
	uint32_t crc; /* 0 may also mean that its writer kept none */
	uint16_t flags;
};

/*
 * Walks the directory's @len bytes from *@at; 1: an entry, 0: end, -errno.
 * Checks each entry alone, against @end; ck_zip_dir() checks all.
 */
int ck_zip_dir_next(const void *dir, size_t len, size_t *at,
		    const struct ck_zip_end *end, struct ck_zip_entry *out,
		    struct ck_err *err);
/*
 * All entries, checked against each other: as many as @end says, sorted by
 * local_off, no overlap, no name twice.  *out is an array to free() of
 * end->nr entries, NULL for none.
 */
int ck_zip_dir(const void *dir, size_t len, const struct ck_zip_end *end,
	       struct ck_zip_entry **out, struct ck_err *err);
/*
 * @bytes: CK_ZIP_LOCAL + name_len (or more) bytes of the archive from
 * e->local_off; CK_ZIP_LOCAL_EXTRA more where known, for writers that keep
 * true sizes there (torch does not).  *payload is the offset of the member's
 * bytes in the archive.  The CRC may be another than the directory's: a power
 * cut leaves that where it came between the two, and says nothing of the bytes.
 */
int ck_zip_local(const void *bytes, size_t len, const struct ck_zip_entry *e,
		 uint64_t *payload, struct ck_err *err);

#endif
