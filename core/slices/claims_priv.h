/* SPDX-License-Identifier: Apache-2.0 */
/* claims_priv.h - between claims*.c; claims_log.c and _move.c have the journals */
#ifndef CK_CLAIMS_PRIV_H
#define CK_CLAIMS_PRIV_H

#include "core/slices/claims.h"
#include "core/base/intervals.h"
#include "core/root/journal.h"

#include <pthread.h>

/* Types of records; on the disk. */
enum {
	CK_CLAIMS_WRITTEN = 1,
	CK_CLAIMS_SAFE,
	CK_CLAIMS_CUT,
	CK_CLAIMS_BLOCKS, /* these three: claims_sums.c */
	CK_CLAIMS_DIGESTS,
	CK_CLAIMS_ALL,
	CK_CLAIMS_OVER /* claims_over.c */
};
/* What the first three have. */
struct ck_claims_body {
	uint64_t off, len;
	uint32_t file, zero;
};
int ck_claims_bad_record(const struct ck_journal_record *r, struct ck_err *err);

/* What another journal had claimed of @b, by its byte @upto, is to be written anew. */
struct ck_claims_over {
	struct ck_claims_body b;
	uint64_t log, upto; /* which one; how long it was then */
};
/* Of the first three it has @b alone.  -EINVAL with a line: not so. */
int ck_claims_take(const struct ck_slice_plan *plan,
		   const struct ck_journal_record *r,
		   struct ck_claims_over *out, struct ck_err *err);

struct ck_claims_overs {
	struct ck_claims_over *v;
	size_t nr, room;
};

/* Of each file of the plan: what was written, and what of it is durable. */
struct ck_claims_sets {
	struct ck_intervals *written, *safe;
};

/* A journal of somebody else. */
struct ck_claims_other {
	uint64_t log;
	struct ck_claims_sets sets;
};

/* Of a file: bytes that were written once more, and not made durable since. */
struct ck_claims_again {
	uint64_t from, to; /* all of them lie in between; the same: none */
	uint64_t nr; /* how often that was */
};

struct ck_claims {
	int dir;
	const struct ck_slice_plan *plan;
	pthread_mutex_t lock; /* held by callers of all below */
	struct ck_claims_sets own;
	struct ck_intervals *others; /* what all of @other say was written */
	struct ck_claims_again *again; /* of each file of the plan */
	CK_VEC(struct ck_claims_other) other;
	struct ck_claims_overs over,
		said; /* that our journal, or others, say */
	size_t over_us; /* how many others said of ours when that was read */
	int64_t read_ns, reading_ns; /* when others were read; for how long */
	uint64_t cuts; /* how many there were of ours */
	uint64_t nr; /* stretches of ours */
	uint64_t look_at; /* length of the journal to look at it once more */
	struct ck_journal log;
	char name[24]; /* "w-0123456789abcdef.log"; "": none yet */
};

bool ck_claims_new_sets(const struct ck_claims *c, struct ck_claims_sets *s);
void ck_claims_free_sets(const struct ck_claims *c, struct ck_claims_sets *s);
/* Neither written nor durable: 0 or -ENOMEM. */
int ck_claims_cut_sets(struct ck_claims_sets *s,
		       const struct ck_claims_body *b);
/*
 * What all journals but our own say, into c->others; and what they say of ours,
 * which then has less.
 */
int ck_claims_read_others(struct ck_claims *c, struct ck_err *err);
void ck_claims_forget_others(struct ck_claims *c);
/* What the journal of that number is called, and the other way round. */
void ck_claims_log_name(char name[24], uint64_t log);
uint64_t ck_claims_log_id(const char *name);
/* Bytes of a journal, of which a lock (core/base/fds.h) says something. */
enum {
	CK_CLAIMS_OWNED, /* its mount lives */
	CK_CLAIMS_MOVED /* its claims go elsewhere; or, shared, somebody says what of
			   them is over */
};
/*
 * Locked, and by a name that nobody takes over: it gets its own afterwards, for
 * of one that is not locked yet others would think that its mount has ended.
 */
int ck_claims_make_log(const struct ck_claims *c, struct ck_journal *j,
		       char name[24], char temp[32], struct ck_err *err);
/* Applies what @c knows that others say of it.  @says: of others; or NULL. */
int ck_claims_read_log(struct ck_claims *c, struct ck_journal *j, uint64_t log,
		       struct ck_claims_sets *to, struct ck_claims_overs *says,
		       struct ck_err *err);
/* @call gets the name of each journal but our own. */
int ck_claims_each_log(struct ck_claims *c,
		       int (*call)(struct ck_claims *c, const char *name,
				   void *ctx, struct ck_err *err),
		       void *ctx, struct ck_err *err);
int ck_claims_open_log(const struct ck_claims *c, const char *name, bool write,
		       struct ck_journal *j, struct ck_err *err);
int ck_claims_put(struct ck_journal *j, uint32_t type, uint32_t file,
		  uint64_t off, uint64_t end, struct ck_err *err);
int ck_claims_put_all(struct ck_journal *j, uint32_t type, uint32_t file,
		      const struct ck_intervals *set, struct ck_err *err);
int ck_claims_log_sync(const struct ck_claims *c, struct ck_journal *j,
		       struct ck_err *err);

/* ---- claims_move.c ---- */

/* @file had @before stretches that were written. */
void ck_claims_count(struct ck_claims *c, uint32_t file, uint64_t before);
/* Where most of it does not count any more. */
void ck_claims_log_shorten(struct ck_claims *c);
/* Makes ours, and takes over those whose mounts are gone. */
int ck_claims_log_start(struct ck_claims *c, struct ck_err *err);

/* ---- claims_over.c ---- */

/* All that is known to be said of journal @log, by @upto; the caller's. */
int ck_claims_over_of(const struct ck_claims *c, uint64_t log,
		      struct ck_claims_over **v, size_t *nr,
		      struct ck_err *err);
/* ck_claims_read_others(), if that was not a moment ago. */
int ck_claims_keep_fresh(struct ck_claims *c, struct ck_err *err);
/* What others have claimed of it is to be written anew. */
int ck_claims_cut_others(struct ck_claims *c, const struct ck_claims_body *b,
			 struct ck_err *err);
/* In our journal, which is @j, what is said of those that are still there. */
int ck_claims_put_over(const struct ck_claims *c, struct ck_journal *j,
		       struct ck_err *err);
/* What a journal says of others, in ours too, for it goes. */
int ck_claims_take_over(struct ck_claims *c, const struct ck_claims_overs *over,
			struct ck_err *err);

/* ---- claims_sums.c ---- */

/* As ck_claims_told(). */
int ck_claims_read_told(struct ck_claims *c, struct ck_claims_sums **out,
			struct ck_err *err);
/* Of what @told has, in our journal, what only our journal claims by now. */
int ck_claims_tell_again(struct ck_claims *c, const struct ck_claims_sums *told,
			 struct ck_err *err);

#endif
