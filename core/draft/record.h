/* SPDX-License-Identifier: Apache-2.0 */
/* record.h - writing what commit.h reads; for commit.c alone */
#ifndef CK_RECORD_H
#define CK_RECORD_H

#include "core/publish/commit.h"

/* Written, and durable. */
int ck_record_write(int stage_fd, const struct ck_commit_record *r,
		    struct ck_err *err);

/* Said of the files themselves, for ck_commit_was(); as well as it goes. */
void ck_record_from(int files_fd, const char *name);

#endif
