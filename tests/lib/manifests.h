/* SPDX-License-Identifier: Apache-2.0 */
/* manifests.h - a manifest that was made, written */
#ifndef TEST_MANIFESTS_H
#define TEST_MANIFESTS_H

#include "core/base/auto.h"
#include "core/manifest/manifest.h"

static inline int manifest_save(struct ck_manifest_new *n, int dir,
				const char *name, struct ck_err *err)
{
	ck_auto_free void *bytes = NULL;
	size_t len;
	int ret = ck_manifest_bytes(n, &bytes, &len, err);

	return ret ? ret : ck_manifest_store(dir, name, bytes, len, err);
}

#endif
