/* SPDX-License-Identifier: Apache-2.0 */
/* spawn.h - running a helper, and catching what is said on stderr */
#ifndef FS_SPAWN_H
#define FS_SPAWN_H

#include <stddef.h>

/*
 * Runs argv[0] from PATH and waits.  Returns its exit code,
 * or -errno where it could not be run; the first line of its stderr is in
 * @said, "" if none.
 */
int fs_spawn(const char *const argv[], char *said, size_t size);

/*
 * What this process and its children write on stderr goes to a memory file
 * until fs_catch_end() puts its first line into @said.  One thread.
 */
struct fs_catch {
	int saved, file;
};
void fs_catch_begin(struct fs_catch *c);
void fs_catch_end(struct fs_catch *c, char *said, size_t size);

#endif
