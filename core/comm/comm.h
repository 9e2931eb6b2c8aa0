/* SPDX-License-Identifier: Apache-2.0 */
/*
 * comm.h - what the processes of a job say to each other
 *
 *	ck_comm_new(&comm, &in, &err);
 *	... each gives ck_comm_address() to all others, by whatever way ...
 *	ck_comm_connect(comm, addresses, &err);
 *	ck_comm_swap(comm, send, recv, &err);
 *	ck_comm_free(comm);
 *
 * Each rank has a socket to each other one, so that a death is seen at once, and
 * some slots of memory: what lies in those of another is seen where memory is
 * shared (shm), and else has to be moved: by the sockets (tcp), or, where slots lie
 * in memory of devices, between these (nccl).  What goes wrong once ends the
 * communicator for all of its ranks.
 *
 * Threads: connect(), swap() and move() one at a time; abort(), put() and get() any.
 */
#ifndef CK_COMM_H
#define CK_COMM_H

#include "core/base/err.h"

#include <stdbool.h>
#include <stdint.h>
#include <sys/uio.h>

#define CK_COMM_SLOTS 5
#define CK_COMM_RANKS 1024
#define CK_COMM_ADDRESS 160 /* bytes, with the NUL */
#define CK_COMM_BLOCK_MIN (UINT64_C(64) << 10)
#define CK_COMM_BLOCK_MAX (UINT64_C(8) << 20)

struct ck_comm;
struct ck_device;

struct ck_comm_in {
	/* "shm": processes of one node; "tcp"; "nccl": and a device each */
	const char *kind;
	const char *host; /* not shm: the number of this node: 127.0.0.1, ::1 */
	const char *device; /* nccl: "cuda:0" */
	/* nccl: ncclUniqueId, 128 bytes, the same for all; NULL: rank 0 makes one. */
	const void *id;
	unsigned rank, ranks;
	/* How long any one answer may take; 0: a minute. */
	int timeout_ms;
	/*
	 * Bytes of a slot, a power of two; 0: what keeps all within 64 MiB, and of tcp
	 * no more than 2 MiB.
	 */
	uint64_t block;
};

/* Listens. */
int ck_comm_new(struct ck_comm **out, const struct ck_comm_in *in,
		struct ck_err *err);
/* Who has it may connect: it holds a number at random that says so. */
const char *ck_comm_address(const struct ck_comm *c);
/*
 * To all others, by their addresses in the order of ranks.  -ETIMEDOUT: the line
 * names who did not come.
 */
int ck_comm_connect(struct ck_comm *c, const char *const *addresses,
		    struct ck_err *err);

unsigned ck_comm_rank(const struct ck_comm *c);
unsigned ck_comm_ranks(const struct ck_comm *c);
uint64_t ck_comm_block(const struct ck_comm *c);
/*
 * Slot @nr of @rank in memory of the host; of another one it is only read, or
 * received into.  Of nccl this rank's alone are there.
 */
unsigned char *ck_comm_slot(const struct ck_comm *c, unsigned rank,
			    unsigned nr);
/* In memory of which bytes are moved; NULL: the host's. */
const struct ck_device *ck_comm_device(const struct ck_comm *c);
/* Where the slot is in that memory. */
uint64_t ck_comm_place(const struct ck_comm *c, unsigned rank, unsigned nr);
/* NCCL's version, as it counts; -errno with why there is none. */
int ck_comm_nccl_version(struct ck_err *err);
/* Whether what a rank puts into its slot lies in that of the others too. */
bool ck_comm_is_shared(const struct ck_comm *c);

struct ck_comm_bytes {
	struct iovec *v; /* changed by swap() */
	unsigned nr;
	uint64_t len; /* of all of them; 0: nothing, and nobody waits for it */
};
/*
 * Sends to each rank and receives from each, by their numbers; those of its own
 * are left alone.  Who is sent to knows how much that is.  -ECONNRESET,
 * -ETIMEDOUT: the line names the rank; -ECANCELED: abort(); the communicator has
 * ended then.
 */
int ck_comm_swap(struct ck_comm *c, struct ck_comm_bytes *send,
		 struct ck_comm_bytes *recv, struct ck_err *err);
/*
 * The same of bytes in slots, at their places there.  @whole: everybody wants all of
 * the slots @nr of all, which may be moved so.
 */
int ck_comm_move(struct ck_comm *c, unsigned nr, struct ck_comm_bytes *send,
		 struct ck_comm_bytes *recv, bool whole, struct ck_err *err);
/*
 * This rank's slot @nr holds @len bytes that move() is to find; and bytes of a slot
 * to memory of the host, now.  Where slots lie there both do nothing.
 */
int ck_comm_put(struct ck_comm *c, unsigned nr, uint64_t len,
		struct ck_err *err);
int ck_comm_get(struct ck_comm *c, void *to, uint64_t from, uint64_t len,
		struct ck_err *err);
/* @each bytes of every rank, in their order, into @out. */
int ck_comm_gather(struct ck_comm *c, const void *mine, void *out, size_t each,
		   struct ck_err *err);
/* swap() returns, now and from now on, and the others learn of it. */
void ck_comm_abort(struct ck_comm *c);
/* One user at a time: false, there is one. */
bool ck_comm_take(struct ck_comm *c);
void ck_comm_leave(struct ck_comm *c);
/* NULL: nothing. */
void ck_comm_free(struct ck_comm *c);

/*
 * For tests: the @left-th moment from now, of which each swap() and move() has two,
 * before it and in its middle; there signal @how is raised, or it fails with -@how.
 */
extern struct ck_comm_fault {
	_Atomic long left, passed;
	_Atomic int how;
} ck_comm_fault;

#endif
