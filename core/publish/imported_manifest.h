/* SPDX-License-Identifier: Apache-2.0 */
/*
 * imported_manifest.h - a manifest that was copied into a draft along with the
 * files
 *
 * It says what they were when they were sealed, and the one that a publish
 * writes takes its place: first they are compared.  One that an earlier
 * publish of the draft wrote, and which broke off, says nothing new; the
 * draft's file "manifest" has its digest.
 *
 * Threads: the publisher's, who has the draft alone.
 */
#ifndef CK_IMPORTED_MANIFEST_H
#define CK_IMPORTED_MANIFEST_H

#include "core/base/err.h"
#include "core/draft/draft.h"

/*
 * @bytes: the manifest of the files as they are, @root: their folder.  0;
 * -EBADMSG: with the first that is not as it was imported.
 */
int ck_imported_manifest_check(const struct ck_draft *s,
			       const struct ck_root *root, const void *bytes,
			       size_t len, struct ck_err *err);
/* These bytes are about to become its manifest. */
int ck_imported_manifest_ours(const struct ck_draft *s, const void *bytes,
			      size_t len, struct ck_err *err);

#endif
