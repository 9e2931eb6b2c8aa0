/* SPDX-License-Identifier: Apache-2.0 */
/*
 * brought.h - a manifest that was copied into a stage along with the files
 *
 * It says what they were when they were sealed, and the one that a publish
 * writes takes its place: first they are compared.  One that an earlier
 * publish of the stage wrote, and which broke off, says nothing new; the
 * stage's file "manifest" has its digest.
 *
 * Threads: the publisher's, who has the stage alone.
 */
#ifndef CK_BROUGHT_H
#define CK_BROUGHT_H

#include "core/base/err.h"
#include "core/draft/staging.h"

/*
 * @bytes: the manifest of the files as they are, @root: their folder.  0;
 * -EBADMSG: with the first that is not as it was brought to be.
 */
int ck_brought_check(const struct ck_staging *s, const struct ck_root *root,
		     const void *bytes, size_t len, struct ck_err *err);
/* These bytes are about to become its manifest. */
int ck_brought_ours(const struct ck_staging *s, const void *bytes, size_t len,
		    struct ck_err *err);

#endif
