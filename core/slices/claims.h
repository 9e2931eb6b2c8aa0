/* SPDX-License-Identifier: Apache-2.0 */
/*
 * claims.h - which bytes of the shards to be have been written
 *
 * Each mount that writes keeps a journal (core/root/journal.h) of its own in
 * the draft's slices/, w-0123456789abcdef.log, for at each write no lock of
 * others may be waited for.  What all of them say together is what was written:
 * stretches that were, and good while the machine runs, however their mount
 * ended; stretches that an fsync made durable, good after a loss of power, and
 * on other machines; and stretches that are to be written anew.
 *
 * Bytes come before their claim, so that no claim is of bytes that are not
 * there.  A journal whose mount has ended, which nobody has locked, is taken over
 * by the next that writes.
 *
 * Who wrote all of a file may say of it, last, what it holds, in digests, and
 * what file it was then.  That counts while nobody else claims bytes of it, also
 * when its journal is taken over, and goes with one that is written anew.
 *
 * Threads: any.
 */
#ifndef CK_CLAIMS_H
#define CK_CLAIMS_H

#include "core/base/err.h"
#include "core/base/vec.h"
#include "core/geom/file_id.h"
#include "core/manifest/manifest.h"
#include "core/slices/slices_plan.h"

#include <stdbool.h>
#include <stdint.h>

struct ck_claims;

/*
 * A journal that is longer than this, and of which over half does not count any
 * more, is written anew; tests: less.
 */
extern uint64_t ck_claims_slack;

/* Borrows @dir, a descriptor of slices/, and @plan.  Reads all journals. */
int ck_claims_open(struct ck_claims **out, int dir,
		   const struct ck_slice_plan *plan, struct ck_err *err);
void ck_claims_close(struct ck_claims *c);

/*
 * Before bytes change: there is a journal, and room in it to claim them, where the
 * file system promises such a thing.
 */
int ck_claims_begin(struct ck_claims *c, struct ck_err *err);
/* Bytes [off, off + len) of @file were written. */
int ck_claims_add(struct ck_claims *c, uint32_t file, uint64_t off,
		  uint64_t len, struct ck_err *err);
/*
 * They are to be written anew, whoever has claimed them up to now.  Where there
 * are many journals, what others claimed a moment ago may stay.
 */
int ck_claims_cut(struct ck_claims *c, uint32_t file, uint64_t off,
		  uint64_t len, struct ck_err *err);
/*
 * fdatasync of @fd, and then what was written of @file is safe.  *lost: it was
 * that which failed, so that bytes may be lost.
 */
int ck_claims_sync(struct ck_claims *c, uint32_t file, int fd, bool *lost,
		   struct ck_err *err);
/* Whether something of @file was written here that is not. */
bool ck_claims_unsafe(struct ck_claims *c, uint32_t file);

/* Reads the journals of others anew. */
int ck_claims_refresh(struct ck_claims *c, struct ck_err *err);
/*
 * Where the first stretch of [pos, end) that nobody wrote begins, and where
 * it ends; both @end: there is none.
 */
void ck_claims_gap(struct ck_claims *c, uint32_t file, uint64_t pos,
		   uint64_t end, uint64_t *from, uint64_t *to);
/* How many of [pos, end) were written. */
uint64_t ck_claims_bytes(struct ck_claims *c, uint32_t file, uint64_t pos,
			 uint64_t end);

/* ---- claims_sums.c: digests ---- */

struct ck_claims_digest {
	uint32_t piece, zero;
	uint64_t hi, lo; /* XXH3-128 of its bytes */
};

/* Of one file. */
struct ck_claims_sums {
	struct ck_id id;
	uint64_t *block; /* XXH3-64 of each, as a manifest has them */
	CK_VEC(struct ck_claims_digest) digest; /* of some pieces, by number */
	bool good;
	/* private */
	uint64_t nr; /* blocks that were read */
	uint32_t by; /* number of the journal; 0: none */
};
static inline uint64_t ck_claims_blocks(const struct ck_slice_plan_file *f)
{
	return (f->size + (1u << CK_MANIFEST_SHIFT) - 1) >> CK_MANIFEST_SHIFT;
}
/*
 * Says that @file, which is @fd, holds that, if nothing that is written to it
 * from now on could have the time that it has.  Else, and where nothing was
 * claimed here, nothing is said.
 */
int ck_claims_tell(struct ck_claims *c, uint32_t file, int fd,
		   struct ck_claims_sums *s, struct ck_err *err);
/* What others said, for each file of the plan; of who writes nothing himself. */
int ck_claims_told(struct ck_claims *c, struct ck_claims_sums **out,
		   struct ck_err *err);
void ck_claims_told_free(const struct ck_slice_plan *plan,
			 struct ck_claims_sums *told);

#endif
