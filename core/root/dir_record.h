/* SPDX-License-Identifier: Apache-2.0 */
/*
 * dir_record.h - all that a reader asked of a folder, and what it was told
 *
 * A reader makes the same of the same answers, so what it made once can be used
 * again where each question of the record has the answer that it had: names
 * in folders, identities of files, and the bytes that were read of them, of
 * which the record has digests.
 *
 * Threads: one.
 */
#ifndef CK_DIR_RECORD_H
#define CK_DIR_RECORD_H

#include "core/base/str.h"
#include "core/root/dir.h"

struct ck_dir_record;

/* Borrows @below, which is asked; NULL: no memory. */
struct ck_dir_record *ck_dir_record_new(const struct ck_dir *below);
void ck_dir_record_free(struct ck_dir_record *r);
/* For the reader; lasts as long as @r, and its sources do not last longer. */
struct ck_dir *ck_dir_record_dir(struct ck_dir_record *r);
/* When all sources are closed.  False: something failed, so there is none. */
bool ck_dir_record_text(const struct ck_dir_record *r, const char **text,
			size_t *len);
/* Asks @d all of it again.  Any bytes may be given as @text. */
bool ck_dir_record_holds(const struct ck_dir *d, const char *text, size_t len);

#endif
