/* SPDX-License-Identifier: Apache-2.0 */
/*
 * dump.h - the catalog and the problems as JSON text, in pieces
 *
 * A document is a sequence of records (opening, a tensor's head, a block of
 * its sources, ..., closing).  Any record can be made alone, so a file of any
 * size is served without keeping it: dump_file.h of fs/ indexes the offsets.
 */
#ifndef CK_DUMP_H
#define CK_DUMP_H

#include "core/base/str.h"
#include "core/geom/catalog.h"
#include "core/geom/resolved.h"

enum ck_dump_doc {
	CK_DUMP_CATALOG, /* with sources: catalog.json, inspect --json */
	CK_DUMP_LIST, /* without: ls --json */
	CK_DUMP_PROBLEMS, /* problems.json */
	CK_DUMP_PROBLEMS_TEXT, /* one line each, for people */
};

/* "note", "warning", "error". */
const char *ck_dump_severity(unsigned severity);

/* A position in a document; all zero is the beginning. */
struct ck_dump_pos {
	uint32_t section, item, chunk;
};

/*
 * Appends the record at *pos to @out and moves *pos on; false: *pos was the
 * end and nothing was appended.  @gen is the generation number shown.
 */
bool ck_dump_next(const struct ck_catalog *img, enum ck_dump_doc doc,
		  uint64_t gen, struct ck_dump_pos *pos, struct ck_str *out);

/*
 * The catalog, with the bytes themselves of those deferred items that @resolved
 * knows, instead of the items.
 */
bool ck_dump_next_resolved(const struct ck_catalog *img,
			   const struct ck_resolved *resolved, uint64_t gen,
			   struct ck_dump_pos *pos, struct ck_str *out);

#endif
