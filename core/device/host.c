/* SPDX-License-Identifier: Apache-2.0 */
/*
 * host.c - memory of the host as a device: what is queued is done at once
 *
 * So that all that is done for devices can be done, and measured, without one.
 */
#include "core/device/device.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static int probe(struct ck_err *err)
{
	(void)err;
	return 0;
}

static int host_open(const char *args, void **dev, struct ck_err *err)
{
	if (*args)
		return ck_fail(err, ENODEV, "\"%.40s\": there is only one",
			       args);
	*dev = NULL;
	return 0;
}

static void host_close(void *dev)
{
	(void)dev;
}

static int pin(void *dev, void *mem, size_t len, struct ck_err *err)
{
	(void)dev, (void)mem, (void)len, (void)err;
	return 0;
}

static void unpin(void *dev, void *mem)
{
	(void)dev, (void)mem;
}

static int host_alloc(void *dev, size_t len, uint64_t *mem, struct ck_err *err)
{
	void *v = NULL;

	(void)dev;
	if (posix_memalign(&v, 256, len ? len : 1))
		return ck_no_memory(err);
	*mem = (uintptr_t)v;
	return 0;
}

static int host_free(void *dev, uint64_t mem, struct ck_err *err)
{
	(void)dev, (void)err;
	free((void *)(uintptr_t)mem);
	return 0;
}

static int stream(void *dev, void **out, struct ck_err *err)
{
	(void)dev, (void)err;
	*out = NULL;
	return 0;
}

static void free_nothing(void *dev, void *what)
{
	(void)dev, (void)what;
}

static int copy(void *dev, const struct ck_device_copy *copy, size_t nr,
		enum ck_device_way way, void *to, struct ck_err *err)
{
	(void)dev, (void)way, (void)to, (void)err;
	for (size_t i = 0; i < nr; i++) {
		struct ck_device_runs it = { &copy[i], 0, 0 };
		uint64_t dst, src;

		while (ck_device_run(&it, &dst, &src))
			memcpy((void *)(uintptr_t)dst,
			       (const void *)(uintptr_t)src, copy[i].run);
	}
	return 0;
}

static int event(void *dev, void *from, void **out, struct ck_err *err)
{
	(void)dev, (void)from, (void)err;
	*out = NULL;
	return 0;
}

static int wait_for(void *dev, void *ev, struct ck_err *err)
{
	(void)dev, (void)ev, (void)err;
	return 0;
}

static int is_done(void *dev, void *ev, struct ck_err *err)
{
	(void)dev, (void)ev, (void)err;
	return 1;
}

static int after(void *dev, void *of, void *ev, struct ck_err *err)
{
	(void)dev, (void)of, (void)ev, (void)err;
	return 0;
}

static int node(void *dev)
{
	(void)dev;
	return -1;
}

const struct ck_device_ops ck_device_host = {
	.name = "host",
	.probe = probe,
	.open = host_open,
	.close = host_close,
	.pin = pin,
	.unpin = unpin,
	.alloc = host_alloc,
	.free = host_free,
	.stream = stream,
	.stream_free = free_nothing,
	.copy = copy,
	.event = event,
	.wait = wait_for,
	.is_done = is_done,
	.after = after,
	.event_free = free_nothing,
	.node = node,
	.dlpack = 1, /* kDLCPU */
};
