/* SPDX-License-Identifier: Apache-2.0 */
#include "core/lib/room.h"

#include "core/base/auto.h"
#include "core/base/check.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ROOT "/sys/fs/cgroup"
#define DEPTH 64 /* of groups in each other */

/* The number behind @key of a file of lines; false: there is none. */
static bool read_key(const char *path, const char *key, uint64_t *out)
{
	ck_auto_file FILE *f = fopen(path, "re");
	size_t len = strlen(key);
	char line[256];

	while (f && fgets(line, sizeof(line), f))
		if (!strncmp(line, key, len) &&
		    sscanf(line + len, " %lu", out) == 1)
			return true;
	return false;
}

/* Of one group; false: it has no limit. */
static bool room_of(const char *dir, uint64_t *out)
{
	uint64_t max, used, cache = 0;
	char path[4200];

	snprintf(path, sizeof(path), "%s/memory.max", dir);
	if (!read_key(path, "", &max))
		return false;
	snprintf(path, sizeof(path), "%s/memory.current", dir);
	if (!read_key(path, "", &used))
		return false;
	snprintf(path, sizeof(path), "%s/memory.stat", dir);
	read_key(path, "file ", &cache);
	used -= CK_MIN(used, cache);
	*out = max - CK_MIN(max, used);
	return true;
}

/* "0::/a/b" of a process of cgroup v2. */
static bool own_group(char *dir, size_t room)
{
	ck_auto_file FILE *f = fopen("/proc/self/cgroup", "re");
	char line[4096];

	while (f && fgets(line, sizeof(line), f)) {
		if (strncmp(line, "0::/", 4))
			continue;
		line[strcspn(line, "\n")] = '\0';
		snprintf(dir, room, ROOT "%s", line + 3);
		return true;
	}
	return false;
}

uint64_t ck_lib_memory_room(void)
{
	uint64_t room = UINT64_C(1) << 40, got;
	char dir[4120];

	if (read_key("/proc/meminfo", "MemAvailable:", &got))
		room = got << 10;
	if (!own_group(dir, sizeof(dir)))
		return room;
	for (unsigned i = 0; i < DEPTH && strlen(dir) >= strlen(ROOT); i++) {
		char *end;

		if (room_of(dir, &got))
			room = CK_MIN(room, got);
		end = strrchr(dir, '/');
		if (!end)
			break;
		*end = '\0';
	}
	return room;
}
