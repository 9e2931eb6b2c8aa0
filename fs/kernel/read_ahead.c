/* SPDX-License-Identifier: Apache-2.0 */
#include "fs/kernel/read_ahead.h"

#include "fs/kernel/reply.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

unsigned fs_read_ahead_kib(const struct fs_read_ahead *a)
{
	char text[32] = "";

	if (a->fd < 0 || pread(a->fd, text, sizeof(text) - 1, 0) <= 0)
		return 0;
	return (unsigned)strtoul(text, NULL, 10);
}

/* Who may not is not told: who maps a file is. */
static void raise_it(const struct fs_read_ahead *a, const char *path)
{
	int fd;

	if (fs_read_ahead_kib(a) >= FS_READ_AHEAD_KIB)
		return;
	fd = open(path, O_WRONLY | O_CLOEXEC);
	if (fd < 0)
		return;
	dprintf(fd, "%u\n", FS_READ_AHEAD_KIB);
	close(fd);
}

void fs_read_ahead_open(struct fs_read_ahead *a, const char *dev, bool raise)
{
	char path[80];

	snprintf(a->dev, sizeof(a->dev), "%s", dev);
	snprintf(path, sizeof(path), "/sys/class/bdi/%s/read_ahead_kb", dev);
	a->fd = open(path, O_RDONLY | O_CLOEXEC);
	if (a->fd >= 0 && raise)
		raise_it(a, path);
}

void fs_read_ahead_close(struct fs_read_ahead *a)
{
	if (a->fd >= 0)
		close(a->fd);
	a->fd = -1;
}

void fs_read_ahead_mapped(struct fs_read_ahead *a)
{
	unsigned kib;

	if (atomic_load_explicit(&a->said, memory_order_relaxed) ||
	    atomic_exchange(&a->said, true))
		return;
	kib = fs_read_ahead_kib(a);
	if (kib && kib < FS_READ_AHEAD_KIB)
		fs_log("maps are slow: the kernel reads %u KiB ahead here; root "
		       "raises it by echo %u >/sys/class/bdi/%s/read_ahead_kb, "
		       "the packages' udev rule for every mount",
		       kib, FS_READ_AHEAD_KIB, a->dev);
}
