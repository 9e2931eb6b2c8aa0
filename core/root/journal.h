/* SPDX-License-Identifier: Apache-2.0 */
/*
 * journal.h - what happened, in a file to which records are only appended
 *
 *	head	"UNSHJRNL", version 4, kind 4, id 8, boot 40: of the machine
 *		when it was made
 *	record	length of the body 4, type 4, number 8 (1, 2, ...), known 8,
 *		sum of the body 8, sum of all that is before it 8; the body;
 *		zeros up to a multiple of 8
 *
 * Sums are XXH3-64, by the journal's id, which is its user's.  "known" is how
 * long the file was when it was last made durable.  So what is wrong with a
 * record tells itself: the last one was cut short, by a kill or by a loss of
 * power, and never happened; one before that is damage, and nothing that
 * follows is believed.  Little-endian hosts only, as catalogs.
 *
 * Threads: one at a time; of several processes only one may append, which its
 * users see to by a lock.  Reading needs none.
 */
#ifndef CK_JOURNAL_H
#define CK_JOURNAL_H

#include "core/base/err.h"

#include <stdbool.h>
#include <stdint.h>

#define CK_JOURNAL_BODY 4096u /* bytes, at most */

struct ck_journal {
	int fd; /* -1: not open */
	bool same_boot; /* as when it was made: power was not lost since */
	/* private */
	bool torn; /* there are bytes behind @end */
	bool unseen; /* and these may be records: a replay was ended */
	uint64_t id, end, number, known, room;
	char what[300]; /* for lines */
};

struct ck_journal_record {
	uint32_t type, len;
	uint64_t number;
	const void *body; /* at a multiple of 8 */
};

/* Reads which boot it is, once: to be called before a sandbox forbids that. */
void ck_journal_boot(void);
/* A new one; @in is put before its name in lines.  -EEXIST. */
int ck_journal_make(struct ck_journal *j, int dir, const char *name,
		    uint32_t kind, uint64_t id, const char *in,
		    struct ck_err *err);
/* From @from to @to, in place of what is called so; @in as above. */
int ck_journal_rename(struct ck_journal *j, int dir, const char *from,
		      const char *to, const char *in, struct ck_err *err);
/*
 * -ENOENT: there is none, or its maker was killed before it had a head.
 * -EINVAL: it is none, or of another kind, id or version.
 */
int ck_journal_open(struct ck_journal *j, int dir, const char *name, bool write,
		    uint32_t kind, uint64_t id, const char *in,
		    struct ck_err *err);
void ck_journal_close(struct ck_journal *j);
#define ck_auto_journal __attribute__((cleanup(ck_journal_close)))

/*
 * Calls @fn for each record that @j has not seen yet, while it gives 0.  -EIO:
 * it is damaged.
 */
int ck_journal_replay(struct ck_journal *j,
		      int (*fn)(void *ctx, const struct ck_journal_record *r,
				struct ck_err *err),
		      void *ctx, struct ck_err *err);
/* After all were seen, else -ESTALE: by one call, in full or not at all. */
int ck_journal_append(struct ck_journal *j, uint32_t type, const void *body,
		      uint32_t len, struct ck_err *err);
/*
 * A few thousand bytes more will find room on the disk, where its file system
 * promises such a thing.
 */
int ck_journal_reserve(struct ck_journal *j, struct ck_err *err);
/* All that was appended is durable; the file's name is its user's. */
int ck_journal_sync(struct ck_journal *j, struct ck_err *err);

#endif
