/* SPDX-License-Identifier: Apache-2.0 */
/*
 * record.h - which publish was meant, for who comes after a crash; see
 * publish/commit.h
 */
#ifndef CK_RECORD_H
#define CK_RECORD_H

#include "core/base/err.h"
#include "core/root/root.h"

#include <limits.h>
#include <stdbool.h>
#include <stdint.h>

/* A publish that was begun: its record in the draft. */
struct ck_commit_record {
	char as[NAME_MAX + 1];
	bool replace, holes;
	uint64_t ranks;
	uint64_t ino; /* of files/, which keeps it as SRC/NAME */
};
/* @draft_fd: the draft's directory.  -ENOENT: none, or cut off. */
int ck_commit_record(int draft_fd, struct ck_commit_record *out);
/*
 * Whether @root's checkpoint @as was published from the draft @name: 0;
 * -ENOENT: not; -EOPNOTSUPP: its file system cannot say.
 */
int ck_commit_was(const struct ck_root *root, const char *as, const char *name);
/* fsync of a directory; a step, see root/fault_point.h. */
int ck_record_sync_dir(int fd, struct ck_err *err);
/* Written, and durable. */
int ck_record_write(int draft_fd, const struct ck_commit_record *r,
		    struct ck_err *err);

/* Said of the files themselves, for ck_commit_was(); as well as it goes. */
void ck_record_from(int files_fd, const char *name);

/*
 * After a crash: what is left of a draft whose files were published.  0: they
 * were, and it is gone now; -ENOENT: they were not.
 */
int ck_commit_finish(const struct ck_root *root, const char *name,
		     struct ck_err *err);

#endif
