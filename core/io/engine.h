/* SPDX-License-Identifier: Apache-2.0 */
/*
 * engine.h - moving bytes: one submission for all shards of a request
 *
 * An engine belongs to one thread.  run() returns when every request is
 * finished: each is done in full or has -errno in res; short reads and writes
 * are continued inside, the end of a file is -EIO.  engine_plain.c uses preadv
 * and pwritev; engine_uring.c takes warm pages with preadv2(RWF_NOWAIT) and
 * sends what has to wait for storage to an io_uring in one submission.  Chosen
 * at run time: io_uring may be forbidden.
 */
#ifndef CK_ENGINE_H
#define CK_ENGINE_H

#include "core/base/err.h"

#include <stdint.h>
#include <sys/uio.h>

enum ck_io_op {
	CK_IO_READ,
	CK_IO_WRITE,
	CK_IO_SYNC, /* fdatasync; no iovecs */
};

struct ck_io {
	uint8_t op; /* enum ck_io_op; the iovecs of a WRITE are not changed */
	int fd;
	uint32_t src; /* whose bytes they are; nothing to an engine */
	uint64_t off, len; /* len: sum of the iovecs */
	struct iovec *iov; /* may be changed by run() */
	unsigned nr_iov; /* any number; split at IOV_MAX inside */
	int res; /* out: 0 or -errno */
};

struct ck_engine;

struct ck_engine_ops {
	const char *name; /* -o engine=NAME and stats */
	struct ck_engine *(*open)(struct ck_err *err); /* NULL: not to be had */
	void (*run)(struct ck_engine *e, struct ck_io *io, unsigned nr);
	void (*close)(struct ck_engine *e);
};

struct ck_engine {
	const struct ck_engine_ops *ops;
};

extern const struct ck_engine_ops ck_engine_plain, ck_engine_uring;

/*
 * "auto" (the best that this machine allows), "plain" or "uring"; NULL and a
 * line for an unknown name or one that this machine does not allow.
 */
const struct ck_engine_ops *ck_engine_choose(const char *name,
					     struct ck_err *err);
/* The calling thread's engine of that kind, made at first use. */
struct ck_engine *ck_engine_mine(const struct ck_engine_ops *ops);

#endif
