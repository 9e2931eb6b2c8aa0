/* SPDX-License-Identifier: Apache-2.0 */
/*
 * audit.h - whether files that lie together are of one save
 *
 * Each file says what all files of one save have alike: how many ranks there
 * were, the step, a hash of the arguments.  A reader fills in a row for each
 * file, one vote counts them, and the reader picks which verdict it believes:
 * an outside word, a whole set, more than half.  Files that are of another
 * save are said in the reader's own words.  Whether weights are the master
 * copy, rounded, is told by their bytes, within a budget.
 *
 * One thread.
 */
#ifndef CK_AUDIT_H
#define CK_AUDIT_H

#include "core/base/err.h"
#include "core/base/str.h"
#include "core/catalog/builder.h"
#include "core/root/source.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define CK_AUDIT_FACTS 6
#define CK_AUDIT_NONE SIZE_MAX

/* ---- who is of which save ---- */

struct ck_audit_file {
	const char *name; /* for messages */
	bool counts; /* it is there and says all of the facts */
	uint64_t rank; /* its own, where there is a fact @world */
	int64_t fact[CK_AUDIT_FACTS];
};

struct ck_audit {
	struct ck_audit_file *v;
	size_t nr;
	unsigned facts; /* that each says */
	int world; /* which of them is the number of ranks; -1: none */
	size_t all; /* "most": of so many; 0: of those that count */
	/* Fact 0 as something else says it (a folder's name); or NULL. */
	const int64_t *named;
};

/* Numbers of files; CK_AUDIT_NONE: there is none. */
struct ck_audit_vote {
	size_t first; /* that counts */
	size_t other; /* the first that says otherwise than @first */
	size_t named; /* says what @named says */
	/* Of the set of which all ranks below @world are there, if only one. */
	size_t whole;
	size_t most; /* of more than half, of its @world too */
};

void ck_audit_vote(const struct ck_audit *a, struct ck_audit_vote *out);
/*
 * Whether file @i counts and is of another save than file @meant: facts differ,
 * or there were not as many ranks.
 */
bool ck_audit_is_other(const struct ck_audit *a, size_t i, size_t meant);

/*
 * In all of these {mine} and {meant} are the values, in the file at hand and
 * in the one that is meant, of the first fact that differs; {file} is the
 * meant one's name; {difference} is what @fact has for that fact, or for the
 * last one before it that has any.
 */
struct ck_audit_words {
	const char *other;
	const char *unclear; /* where nothing says which is meant */
	const char *fact[CK_AUDIT_FACTS];
	enum ck_severity severity, beyond; /* beyond: of a rank there was not */
};

/* Says of file @i that it is of another save, or with CK_AUDIT_NONE unclear. */
int ck_audit_say(const struct ck_audit *a, size_t i, size_t meant,
		 const struct ck_audit_words *w, struct ck_builder *b,
		 struct ck_err *err);
/*
 * Says it of each that is of another save than @meant, with CK_AUDIT_NONE of all
 * that count; they count no longer.
 */
int ck_audit_report(struct ck_audit *a, size_t meant,
		    const struct ck_audit_words *w, struct ck_builder *b,
		    struct ck_err *err);
/* @words of file @i, for an error that ends the load. */
void ck_audit_text(struct ck_str *out, const char *words,
		   const struct ck_audit *a, size_t i, size_t meant,
		   const struct ck_audit_words *w);

/* ---- weights and their master copy ---- */

/* Elements that follow each other in a file. */
struct ck_audit_run {
	struct ck_source *s;
	uint64_t off;
	uint8_t dtype, xform; /* enum ck_dtype, ck_xform */
};

struct ck_audit_budget {
	uint64_t each; /* elements that are compared of one run, at most */
	uint64_t left; /* of all runs */
};

/*
 * 1: of the first @nr elements some of @weights are not those of @master,
 * rounded; 0: none, or it cannot be told; or -ENOMEM.  NaNs of the master copy,
 * which is float32, are passed over.
 */
int ck_audit_rounded(const struct ck_audit_run *master,
		     const struct ck_audit_run *weights, uint64_t nr,
		     struct ck_audit_budget *b);
/* Whether that can be told of runs like these. */
bool ck_audit_can_round(const struct ck_audit_run *master,
			const struct ck_audit_run *weights);

#endif
