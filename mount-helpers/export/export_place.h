/* SPDX-License-Identifier: Apache-2.0 */
/*
 * export_place.h - where an export goes: PARENT/NAME, and until it is whole
 * PARENT/STAGING, which one export at a time has
 */
#ifndef EXPORT_PLACE_H
#define EXPORT_PLACE_H

#include "mount-helpers/cmd.h"

#include <limits.h>
#include <stdbool.h>

struct export_place {
	char parent[PATH_MAX];
	char name[NAME_MAX + 1];
	char temp_dir[NAME_MAX + 1];
	char path[PATH_MAX + NAME_MAX + 2]; /* of the temporary folder */
	int parent_fd, temp_fd; /* -1 at first */
	bool one; /* a file, not a folder of them */
};

/*
 * Opens what @out says, which must not be there.  @file: the name of the one
 * file that is written, if @out is a folder; NULL: @out becomes a folder.
 * Exit codes, with a line.
 */
int export_place_open(const struct cmd *c, struct export_place *p,
		      const char *out, const char *file);
/* Makes visible what is in the temporary folder. */
int export_place_finish(const struct cmd *c, struct export_place *p);
/* After a failure: keeps what there is to go on with, if anything. */
void export_place_leave(const struct export_place *p);

#endif
