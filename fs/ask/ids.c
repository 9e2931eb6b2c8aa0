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

/* ---- who acts for a ring of io_uring ---- */

/* The kernel's threads that do so block all signals that can be blocked. */
#define RING_BLOCKS UINT64_C(0xfffffffffffbfeff)
#define RING_FLAG 0x10u /* PF_IO_WORKER */

static bool may_be_ring(const char *status)
{
	const char *blocks = field(status, "\nSigBlk:");

	return blocks && strtoull(blocks, NULL, 16) == RING_BLOCKS;
}

static bool is_ring(int proc, pid_t pid, char *room)
{
	unsigned flags = RING_FLAG;
	const char *at;

	if (fs_ids_read(proc, pid, "stat", room, FS_IDS_ROOM) <= 0)
		return true;
	at = strrchr(room, ')'); /* its name may have some, too */
	return !at || sscanf(at, ") %*c %*d %*d %*d %*d %*d %u", &flags) != 1 ||
	       flags & RING_FLAG;
}

/* Both lists are sorted, as the kernel keeps them. */
static void keep_common_groups(const char *at, struct fs_ids *ids)
{
	unsigned nr = ids->nr, i = 0;
	char *end;

	for (ids->nr = 0;; at = end) {
		unsigned long id = strtoul(at, &end, 10);

		if (end == at || memchr(at, '\n', (size_t)(end - at)))
			return;
		while (i < nr && ids->groups[i] < id)
			i++;
		if (i < nr && ids->groups[i] == id)
			ids->groups[ids->nr++] = ids->groups[i++];
	}
}

/*
 * Such a thread has the groups and rights of when it was begun, and acts with those
 * of whoever gave the work to the ring, which nobody shows: what the process has
 * laid down since it has not.
 */
static bool as_process(int proc, pid_t leader, char *room, struct fs_ids *ids)
{
	const char *groups, *caps, *most;

	if (leader <= 0 ||
	    fs_ids_read(proc, leader, "status", room, FS_IDS_ROOM) <= 0)
		return false;
	groups = field(room, "\nGroups:");
	caps = field(room, "\nCapEff:");
	most = field(room, "\nCapPrm:");
	if (!groups || !caps || !most)
		return false;
	keep_common_groups(groups, ids);
	ids->caps &= strtoull(caps, NULL, 16);
	ids->permitted &= strtoull(most, NULL, 16);
	return true;
}

bool fs_ids_know(int proc, pid_t pid, char *room, struct fs_ids *out)
{
	const char *tgid;
	pid_t leader;

	if (fs_ids_read(proc, pid, "status", room, FS_IDS_ROOM) <= 0 ||
	    !parse_ids(room, out))
		return false;
	if (!may_be_ring(room))
		return true;
	tgid = field(room, "\nTgid:");
	leader = tgid ? (pid_t)strtol(tgid, NULL, 10) : 0;
	return !is_ring(proc, pid, room) || as_process(proc, leader, room, out);
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
