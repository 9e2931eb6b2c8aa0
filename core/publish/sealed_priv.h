/* SPDX-License-Identifier: Apache-2.0 */
/* sealed_priv.h - the parts of sealed.h: opening and reading, and settling */
#ifndef CK_SEALED_PRIV_H
#define CK_SEALED_PRIV_H

#include "core/io/checked.h"
#include "core/publish/manifest_priv.h"
#include "core/publish/sealed.h"

#include <pthread.h>
#include <stdatomic.h>

#define CK_NO_FILE UINT64_MAX

struct ck_sealed {
	const struct ck_root *root;
	const struct ck_image *img;
	pthread_mutex_t lock; /* of all below */
	pthread_mutex_t settling;
	struct ck_manifest m;
	uint64_t *file_of; /* of each source: in the manifest, or CK_NO_FILE */
	_Atomic uint64_t *touched; /* a bit a block of the manifest */
	unsigned char *marked; /* by file: EDITED has its name */
	int edited_fd;
	bool edited; /* something was, and is not settled */
	unsigned writing; /* writes under way */
	struct ck_checked *checked;
	struct ck_watch watch;
};

/* The number of that file in the manifest, or CK_NO_FILE. */
uint64_t ck_sealed_number(const struct ck_manifest *m, const char *name,
			  size_t len);

#endif
