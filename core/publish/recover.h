/* SPDX-License-Identifier: Apache-2.0 */
/*
 * recover.h - the drafts of a directory, by name: what they are, and what to do
 * of them
 *
 * Threads: any.
 */
#ifndef CK_RECOVER_H
#define CK_RECOVER_H

#include "core/base/err.h"
#include "core/base/opts.h"
#include "core/publish/commit.h"
#include "core/root/root.h"
#include "core/slices/slices.h"

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum ck_draft_state {
	CK_DRAFT_WRITING, /* files of it are open for writing */
	CK_DRAFT_OPEN, /* a mount has it */
	CK_DRAFT_LEFT, /* nobody has it: its writers are gone */
	CK_DRAFT_BEGUN, /* a publish was begun and broke off before its end */
	CK_DRAFT_PUBLISHED, /* published; what is left is to be tidied up */
	CK_DRAFT_POISONED, /* bytes may be lost */
};
extern const char *const ck_draft_words[];

struct ck_draft_info {
	char name[NAME_MAX + 1];
	enum ck_draft_state state;
	uint64_t files, bytes;
	int64_t changed; /* seconds since 1970, the last time */
	bool complete; /* it could be published now */
	char why[512]; /* if not; or why it is poisoned */
	struct ck_slices_missing *lacks; /* of slices: ranks that lack some */
	size_t nr_lacks;
};

struct ck_draft_list {
	struct ck_draft_info *v; /* by name */
	size_t nr, room;
};

/*
 * All drafts of @root.  @check: looks whether each is complete, which reads
 * its index and takes a process.
 */
int ck_draft_list(struct ck_draft_list *out, const struct ck_root *root,
		  const struct ck_opts *opts, bool check, struct ck_err *err);
void ck_draft_list_free(struct ck_draft_list *l);

/*
 * Ends what a publish of @name that broke off began.  1: it is published now;
 * 0: nothing was begun; or what ck_commit() says.
 */
int ck_recover(const struct ck_root *root, const char *name,
	       const struct ck_opts *opts, struct ck_err *err);
/*
 * Throws the draft @name away unless somebody has it (-EBUSY), or it changed
 * in the last @age seconds (-EAGAIN).
 */
int ck_recover_gc(const struct ck_root *root, const char *name, int64_t age,
		  struct ck_err *err);
/* Removes what others began to remove, but did not. */
void ck_recover_sweep(const struct ck_root *root);

/*
 * The draft @name of @root by ck_commit(), which is tried again for two seconds
 * where files of it are open.  0: now; 1: it was published before.
 */
int ck_publish_step(const struct ck_root *root, const char *name,
		    const struct ck_commit_in *in, struct ck_err *err);

#endif
