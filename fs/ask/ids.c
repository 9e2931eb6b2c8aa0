/* SPDX-License-Identifier: Apache-2.0 */
/* ids.c - who a process is, by /proc */
#include "fs/ask/ids.h"

#include "core/base/auto.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

ssize_t fs_ids_read(int proc, pid_t pid, const char *file, char *buf,
		    size_t room)
{
	char path[48];
	ck_auto_fd int fd = -1;
	size_t len = 0;
	ssize_t n = 0;

	snprintf(path, sizeof(path), "%d/%s", (int)pid, file);
	fd = openat(proc, path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return -errno;
	while (len < room - 1 && (n = read(fd, buf + len, room - 1 - len)) > 0)
		len += (size_t)n;
	buf[len] = '\0';
	return n || !len ? -EACCES : (ssize_t)len; /* cut off, or unreadable */
}

/* The text behind "\n@key:"; a process cannot put one into its name. */
static const char *field(const char *text, const char *key)
{
	const char *at = strstr(text, key);

	return at ? at + strlen(key) : NULL;
}

static bool parse_groups(const char *at, struct fs_ids *out)
{
	char *end;

	for (out->nr = 0;; at = end) {
		unsigned long id = strtoul(at, &end, 10);

		if (end == at || memchr(at, '\n', (size_t)(end - at)))
			return true;
		if (out->nr == FS_IDS_GROUPS)
			return false;
		out->groups[out->nr++] = (gid_t)id;
	}
}

static bool parse_ids(const char *text, struct fs_ids *out)
{
	const char *uid = field(text, "\nUid:"), *gid = field(text, "\nGid:");
	const char *groups = field(text, "\nGroups:");
	const char *caps = field(text, "\nCapEff:");
	const char *most = field(text, "\nCapPrm:");

	if (!uid || !gid || !groups || !caps || !most ||
	    sscanf(uid, "%u %*u %*u %u", &out->real_uid, &out->uid) != 2 ||
	    sscanf(gid, "%u %*u %*u %u", &out->real_gid, &out->gid) != 2)
		return false;
	out->caps = strtoull(caps, NULL, 16);
	out->permitted = strtoull(most, NULL, 16);
	return parse_groups(groups, out);
}

bool fs_ids_know(int proc, pid_t pid, char *room, struct fs_ids *out)
{
	return fs_ids_read(proc, pid, "status", room, FS_IDS_ROOM) > 0 &&
	       parse_ids(room, out);
}

bool fs_ids_are_ours(int proc, char *room)
{
	char self[16], seen[16] = "";
	const char *pids;
	char *end;

	snprintf(self, sizeof(self), "%d", (int)getpid());
	if (readlinkat(proc, "self", seen, sizeof(seen) - 1) < 0 ||
	    strcmp(self, seen) ||
	    fs_ids_read(proc, getpid(), "status", room, FS_IDS_ROOM) <= 0)
		return false;
	/* one number: there is no namespace between, if the kernel has any */
	pids = field(room, "\nNSpid:");
	return !pids || (strtol(pids, &end, 10) == getpid() && *end == '\n');
}

bool fs_ids_same_groups(const struct fs_ids *a, const struct fs_ids *b)
{
	return a->nr == b->nr &&
	       !memcmp(a->groups, b->groups, a->nr * sizeof(gid_t));
}

void fs_ids_take_groups(struct fs_ids *to, const struct fs_ids *from)
{
	to->nr = from->nr;
	memcpy(to->groups, from->groups, from->nr * sizeof(gid_t));
}
