/* SPDX-License-Identifier: Apache-2.0 */
/*
 * device.h - memory that the processor does not address, and copies to and from it
 *
 * One table a kind of device.  What is queued on a stream is done in order, and
 * later; an event that was put behind it tells when.
 *
 *	ck_device_open(&dev, "simulated:rate=1250M", &err);
 *	ck_device_alloc(dev, len, &mem, &err);
 *	ck_device_put(dev, mem, buf, len, &err);
 *	ck_device_close(dev);
 *
 * Threads: any, but for open and close of one device.  In a child of fork() none
 * of this may be called.
 */
#ifndef CK_DEVICE_H
#define CK_DEVICE_H

#include "core/base/err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/*
 * for each (i < ax[0].n) for each (j < ax[1].n):
 *	copy run bytes from src + i*ax[0].src + j*ax[1].src to dst likewise
 * Steps are positive, those of ax[0] the longer ones; runs do not overlap.
 */
struct ck_device_copy {
	uint64_t dst, src;
	uint64_t run;
	uint32_t nax, pad;
	struct {
		uint64_t n, dst, src;
	} ax[2];
};

enum ck_device_way { CK_DEVICE_IN, CK_DEVICE_OUT, CK_DEVICE_INSIDE };

/* Those that can fail return 0 or -errno with a line. */
struct ck_device_ops {
	const char *name;
	/* Why there is no such device here, without waking one up; 0: there may be. */
	int (*probe)(struct ck_err *err);
	/* @args: what follows "NAME:", or "". */
	int (*open)(const char *args, void **dev, struct ck_err *err);
	void (*close)(void *dev); /* no stream is left, but perhaps memory */
	/* Pages of the host that copies are from or to, and that stay. */
	int (*pin)(void *dev, void *mem, size_t len, struct ck_err *err);
	void (*unpin)(void *dev, void *mem);
	/* -ENOMEM: it has no room. */
	int (*alloc)(void *dev, size_t len, uint64_t *mem, struct ck_err *err);
	int (*free)(void *dev, uint64_t mem, struct ck_err *err);
	int (*stream)(void *dev, void **stream, struct ck_err *err);
	void (*stream_free)(void *dev, void *stream); /* waits for it */
	/* All of them, in any order. */
	int (*copy)(void *dev, const struct ck_device_copy *copy, size_t nr,
		    enum ck_device_way way, void *stream, struct ck_err *err);
	/* Of what is in the stream by now. */
	int (*event)(void *dev, void *stream, void **event, struct ck_err *err);
	int (*wait)(void *dev, void *event, struct ck_err *err);
	/* 1: it was; 0: not yet. */
	int (*is_done)(void *dev, void *event, struct ck_err *err);
	/* The stream goes on when the event was. */
	int (*after)(void *dev, void *stream, void *event, struct ck_err *err);
	void (*event_free)(void *dev, void *event);
	int (*node)(void *dev); /* NUMA node; -1: not known */
	/*
	 * Files that it reads itself.  NULL: no such kind does; files() says why
	 * this one does not.  The descriptor stays open until file_close().
	 */
	int (*files)(void *dev, struct ck_err *err);
	int (*file_open)(void *dev, int fd, void **file, struct ck_err *err);
	void (*file_close)(void *dev, void *file);
	/* Memory that files are read into, at a block. */
	int (*file_room)(void *dev, size_t len, uint64_t *mem,
			 struct ck_err *err);
	void (*file_room_free)(void *dev, uint64_t mem);
	/* How much was read to @at bytes behind @mem; whole blocks. */
	int64_t (*file_read)(void *dev, void *file, uint64_t mem, uint64_t at,
			     size_t len, uint64_t off, struct ck_err *err);
	/*
	 * For libraries of its vendor: the device is the calling thread's current
	 * one, until leave().  NULL: there are none.
	 */
	int (*enter)(void *dev, struct ck_err *err);
	void (*leave)(void *dev);
	uint8_t dlpack; /* DLPack's number of such memory */
};

extern const struct ck_device_ops ck_device_cuda, ck_device_host,
	ck_device_simulated;
/* All of them; NULL behind. */
extern const struct ck_device_ops *const ck_devices[];

struct ck_device {
	const struct ck_device_ops *ops;
	void *dev;
	int ordinal; /* of several of the kind: what follows the colon, or 0 */
	char name[64]; /* for messages: "cuda:0" */
};

/* "NAME" or "NAME:ARGS"; -ENODEV with why there is none. */
int ck_device_open(struct ck_device **out, const char *name,
		   struct ck_err *err);
/* NULL: nothing. */
void ck_device_close(struct ck_device *dev);

/* Whether both are one: the memory of either is the other's too. */
bool ck_device_is_same(const struct ck_device *a, const struct ck_device *b);

int ck_device_alloc(struct ck_device *dev, size_t len, uint64_t *mem,
		    struct ck_err *err);
int ck_device_free(struct ck_device *dev, uint64_t mem, struct ck_err *err);
/* @len bytes between memory of the device and of the host, now. */
int ck_device_put(struct ck_device *dev, uint64_t mem, const void *from,
		  size_t len, struct ck_err *err);
int ck_device_get(struct ck_device *dev, void *to, uint64_t mem, size_t len,
		  struct ck_err *err);

/*
 * @copy in runs of bytes: false once it is done.  For devices that have no
 * copies with steps, and for what checks them.
 */
struct ck_device_runs {
	const struct ck_device_copy *copy;
	uint64_t i, j;
};
bool ck_device_run(struct ck_device_runs *it, uint64_t *dst, uint64_t *src);
/* Bytes of it all. */
uint64_t ck_device_copy_bytes(const struct ck_device_copy *copy);

#endif
