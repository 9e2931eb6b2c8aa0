/* SPDX-License-Identifier: Apache-2.0 */
/* engine_priv.h - what the engines share; see engine.h */
#ifndef CK_ENGINE_PRIV_H
#define CK_ENGINE_PRIV_H

#include "core/io/engine.h"
#include "core/root/fault.h"

#include <limits.h>

/* Every request through the ring, warm or not: for tests/bench/engine.c. */
extern const struct ck_engine_ops ck_engine_ring;

/* Takes the first @n bytes off @io: they are done. */
void ck_io_advance(struct ck_io *io, size_t n);
/* Does what is left of @io with preadv, pwritev or fdatasync; sets res. */
void ck_io_finish(struct ck_io *io);

/* What to make of a completion of @io, for tests of failures. */
static inline int ck_io_fault(const struct ck_io *io, int res)
{
	return ck_fault_of(io->op == CK_IO_WRITE ? CK_FAULT_WRITE :
			   io->op == CK_IO_SYNC	 ? CK_FAULT_SYNC :
						   CK_FAULT_READ,
			   res);
}

static inline int ck_io_batch(const struct ck_io *io)
{
	return io->nr_iov < IOV_MAX ? (int)io->nr_iov : IOV_MAX;
}

#endif
