/* SPDX-License-Identifier: Apache-2.0 */
/*
 * comm_priv.h - a communicator and its parts
 *
 *	comm.c  the calls of comm.h; what is the same of all kinds
 *	mesh.c  who is who: a socket to each other rank
 *	swap.c  bytes by those sockets
 *	shm.c   processes of a node: memory that all see
 *	tcp.c   any that reach each other
 *	nccl.c  the same, whose slots lie in memory of CUDA devices
 */
#ifndef CK_COMM_PRIV_H
#define CK_COMM_PRIV_H

#include "core/comm/comm.h"

#include <stdatomic.h>
#include <stddef.h>
#include <sys/socket.h>

#define CK_COMM_KEY 16 /* bytes at random */

struct ck_comm_place {
	struct sockaddr_storage addr;
	socklen_t len;
	unsigned char key[CK_COMM_KEY];
};

struct ck_comm_ops {
	const char *kind;
	bool shared; /* slots are */
	/* What it needs besides sockets: c->far.  NULL: nothing. */
	int (*open)(struct ck_comm *c, const struct ck_comm_in *in,
		    struct ck_err *err);
	/* Makes c->listener and writes c->address, but for the key. */
	int (*listen)(struct ck_comm *c, const char *host, struct ck_err *err);
	/* Of what follows the kind, up to the key; false: it is none. */
	bool (*parse)(const char *text, size_t len, struct ck_comm_place *out);
	/* Of a socket to or from somebody: 0, or he may not. */
	int (*greet)(int fd);
	/* Makes the slots of all, when all are connected. */
	int (*slots)(struct ck_comm *c, struct ck_err *err);
	/* As comm.h has them; NULL: slots lie in memory of the host. */
	int (*put)(struct ck_comm *c, unsigned nr, uint64_t len,
		   struct ck_err *err);
	int (*get)(struct ck_comm *c, void *to, uint64_t from, uint64_t len,
		   struct ck_err *err);
	int (*move)(struct ck_comm *c, unsigned nr, struct ck_comm_bytes *send,
		    struct ck_comm_bytes *recv, bool whole, struct ck_err *err);
	/* Nothing more is moved, nor under way. */
	void (*end)(struct ck_comm *c);
	void (*close)(struct ck_comm *c); /* of c->far */
};

extern const struct ck_comm_ops ck_comm_shm, ck_comm_tcp, ck_comm_nccl;

/* tcp.c, as above */
int ck_comm_tcp_listen(struct ck_comm *c, const char *host, struct ck_err *err);
bool ck_comm_tcp_parse(const char *text, size_t len, struct ck_comm_place *out);
int ck_comm_tcp_greet(int fd);

struct ck_comm_far; /* of nccl.c */

struct ck_comm {
	const struct ck_comm_ops *ops;
	unsigned rank, ranks;
	int timeout_ms;
	uint64_t block, seq;
	int listener, event; /* event: abort() was called */
	unsigned char key[CK_COMM_KEY];
	char address[CK_COMM_ADDRESS];
	_Atomic bool aborted, taken;
	bool connected, ended;
	unsigned blamed; /* for what ends it now */
	struct ck_comm_far *far; /* or NULL */
	struct ck_comm_peer {
		int fd; /* -1: none */
		unsigned char *slots; /* NULL: none yet */
	} * peer; /* by rank; its own too, without a socket */
};

int ck_comm_mesh(struct ck_comm *c, const struct ck_comm_place *places,
		 struct ck_err *err);
/* No more of it; tells the others that it is because of @whom. */
void ck_comm_end(struct ck_comm *c, unsigned whom);
/*
 * Waits @ns, or until somebody is gone, or it is aborted: then -errno with a line,
 * and c->blamed.
 */
int ck_comm_watch(struct ck_comm *c, int64_t ns, struct ck_err *err);
/* Anonymous memory for slots; NULL with a line. */
unsigned char *ck_comm_room(const struct ck_comm *c, int fd, int prot,
			    struct ck_err *err);

#endif
