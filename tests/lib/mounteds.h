/* SPDX-License-Identifier: Apache-2.0 */
/* mounteds.h - how many checkpoints a table of mounted ones holds */
#ifndef MOUNTEDS_H
#define MOUNTEDS_H

#include "fs/tree/mounted.h"

static inline uint32_t mounteds_nr(struct fs_mounted_table *s)
{
	uint32_t nr = 0;

	for (uint32_t i = 1; i < FS_MAX_MOUNTED; i++) {
		struct fs_mounted *m = fs_mounted_table_pin(s, i);

		nr += m != NULL;
		if (m)
			fs_mounted_unpin(s, m);
	}
	return nr;
}

#endif
