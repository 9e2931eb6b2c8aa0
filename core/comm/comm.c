/* SPDX-License-Identifier: Apache-2.0 */
/* comm.c - communicators of all kinds */
#include "core/comm/comm_priv.h"

#include "core/base/auto.h"
#include "core/base/check.h"
#include "core/base/match.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/random.h>

#define MINUTE_MS 60000
#define MEMORY (UINT64_C(64) << 20) /* of slots, by a process */
#define SENT (UINT64_C(2) << 20) /* which the processor's cache still has */

static const struct ck_comm_ops *const kinds[] = { &ck_comm_shm, &ck_comm_tcp,
						   &ck_comm_nccl };

static const struct ck_comm_ops *find(const char *kind, size_t len)
{
	for (unsigned i = 0; i < CK_ARRAY_LEN(kinds); i++)
		if (ck_text_is(kind, len, kinds[i]->kind))
			return kinds[i];
	return NULL;
}

static uint64_t block_of(const struct ck_comm *c)
{
	uint64_t block = CK_COMM_BLOCK_MAX, each = CK_COMM_SLOTS;

	if (!c->ops->shared)
		each *= c->ranks;
	if (!c->ops->shared && !c->ops->move)
		block = SENT;
	while (block > CK_COMM_BLOCK_MIN && block * each > MEMORY)
		block /= 2;
	return block;
}

static int check(const struct ck_comm_in *in, struct ck_err *err)
{
	if (!in->kind || !find(in->kind, strlen(in->kind)))
		return ck_fail(err, EINVAL,
			       "a communicator of kind \"%s\": expected shm, "
			       "tcp or nccl",
			       in->kind ? in->kind : "");
	if (!in->ranks || in->ranks > CK_COMM_RANKS || in->rank >= in->ranks)
		return ck_fail(err, EINVAL,
			       "rank %u of %u: expected 1 to %d ranks, from 0 "
			       "on",
			       in->rank, in->ranks, CK_COMM_RANKS);
	if (in->timeout_ms < 0)
		return ck_fail(err, EINVAL, "a timeout of %d ms",
			       in->timeout_ms);
	if (in->block &&
	    (in->block < CK_COMM_BLOCK_MIN || in->block > CK_COMM_BLOCK_MAX ||
	     in->block & (in->block - 1)))
		return ck_fail(err, EINVAL,
			       "blocks of %llu bytes: expected a power of two, "
			       "64 KiB to 8 MiB",
			       (unsigned long long)in->block);
	return 0;
}

static int open_comm(struct ck_comm *c, const struct ck_comm_in *in,
		     struct ck_err *err)
{
	size_t len;
	int ret;

	c->event = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (c->event < 0)
		return ck_fail(err, errno, "eventfd: %s", strerror(errno));
	if (getrandom(c->key, sizeof(c->key), 0) != sizeof(c->key))
		return ck_fail(err, EIO, "getrandom: %s", strerror(errno));
	ret = c->ops->open ? c->ops->open(c, in, err) : 0;
	if (!ret)
		ret = c->ops->listen(c, in->host, err);
	if (ret)
		return ret;
	len = strlen(c->address);
	c->address[len++] = ' ';
	for (unsigned i = 0; i < CK_COMM_KEY; i++)
		len += (size_t)snprintf(c->address + len,
					sizeof(c->address) - len, "%02x",
					c->key[i]);
	return 0;
}

int ck_comm_new(struct ck_comm **out, const struct ck_comm_in *in,
		struct ck_err *err)
{
	int ret = check(in, err);
	struct ck_comm *c;

	if (ret)
		return ret;
	c = calloc(1, sizeof(*c));
	if (!c)
		return ck_no_memory(err);
	c->ops = find(in->kind, strlen(in->kind));
	c->rank = in->rank;
	c->ranks = in->ranks;
	c->timeout_ms = in->timeout_ms ? in->timeout_ms : MINUTE_MS;
	c->block = in->block ? in->block : block_of(c);
	c->listener = c->event = -1;
	c->peer = calloc(c->ranks, sizeof(*c->peer));
	for (unsigned i = 0; c->peer && i < c->ranks; i++)
		c->peer[i].fd = -1;
	ret = c->peer ? open_comm(c, in, err) : ck_no_memory(err);
	if (ret) {
		ck_comm_free(c);
		return ret;
	}
	*out = c;
	return 0;
}

/* ---- addresses ---- */

static bool read_key(const char *text, unsigned char *key)
{
	for (unsigned i = 0; i < CK_COMM_KEY; i++) {
		char two[3] = { text[2 * i], 0, 0 }, *end;

		if (!two[0])
			return false;
		two[1] = text[2 * i + 1];
		key[i] = (unsigned char)strtoul(two, &end, 16);
		if (end != two + 2)
			return false;
	}
	return !text[2 * CK_COMM_KEY];
}

static bool parse(const struct ck_comm *c, const char *text,
		  struct ck_comm_place *out)
{
	const char *colon = text ? strchr(text, ':') : NULL;
	const char *space = colon ? strchr(colon, ' ') : NULL;

	return space && find(text, (size_t)(colon - text)) == c->ops &&
	       c->ops->parse(colon + 1, (size_t)(space - colon - 1), out) &&
	       read_key(space + 1, out->key);
}

int ck_comm_connect(struct ck_comm *c, const char *const *addresses,
		    struct ck_err *err)
{
	ck_auto_free struct ck_comm_place *places =
		calloc(c->ranks, sizeof(*places));
	int ret;

	if (!places)
		return ck_no_memory(err);
	if (c->connected || c->ended)
		return ck_fail(err, EISCONN,
			       "this communicator was connected before");
	for (unsigned i = 0; i < c->ranks; i++)
		if (!parse(c, addresses[i], &places[i]))
			return ck_fail(
				err, EINVAL,
				"the address of rank %u of %u is \"%s\": "
				"expected one that its communicator of "
				"kind %s says",
				i, c->ranks, addresses[i] ? addresses[i] : "",
				c->ops->kind);
	ret = ck_comm_mesh(c, places, err);
	if (!ret)
		ret = c->ops->slots(c, err);
	if (c->listener >= 0)
		close(c->listener);
	c->listener = -1;
	c->connected = !ret;
	if (ret)
		ck_comm_end(c, c->rank);
	return ret;
}

unsigned char *ck_comm_room(const struct ck_comm *c, int fd, int prot,
			    struct ck_err *err)
{
	void *mem =
		mmap(NULL, c->block * CK_COMM_SLOTS, prot,
		     fd < 0 ? MAP_PRIVATE | MAP_ANONYMOUS : MAP_SHARED, fd, 0);

	if (mem != MAP_FAILED)
		return mem;
	ck_fail(err, errno, "memory for blocks: %s", strerror(errno));
	return NULL;
}

/* ---- what it is ---- */

const char *ck_comm_address(const struct ck_comm *c)
{
	return c->address;
}

unsigned ck_comm_rank(const struct ck_comm *c)
{
	return c->rank;
}

unsigned ck_comm_ranks(const struct ck_comm *c)
{
	return c->ranks;
}

uint64_t ck_comm_block(const struct ck_comm *c)
{
	return c->block;
}

unsigned char *ck_comm_slot(const struct ck_comm *c, unsigned rank, unsigned nr)
{
	return c->peer[rank].slots + nr * c->block;
}

int ck_comm_put(struct ck_comm *c, unsigned nr, uint64_t len,
		struct ck_err *err)
{
	return c->ops->put ? c->ops->put(c, nr, len, err) : 0;
}

int ck_comm_get(struct ck_comm *c, void *to, uint64_t from, uint64_t len,
		struct ck_err *err)
{
	return c->ops->get ? c->ops->get(c, to, from, len, err) : 0;
}

bool ck_comm_is_shared(const struct ck_comm *c)
{
	return c->ops->shared;
}

bool ck_comm_take(struct ck_comm *c)
{
	return !atomic_exchange(&c->taken, true);
}

void ck_comm_leave(struct ck_comm *c)
{
	c->taken = false;
}

void ck_comm_abort(struct ck_comm *c)
{
	uint64_t one = 1;

	c->aborted = true;
	if (write(c->event, &one, sizeof(one)) < 0)
		return; /* it is readable */
}

void ck_comm_free(struct ck_comm *c)
{
	if (!c)
		return;
	if (c->far)
		c->ops->close(c);
	for (unsigned i = 0; c->peer && i < c->ranks; i++) {
		if (c->peer[i].fd >= 0)
			close(c->peer[i].fd);
		if (c->peer[i].slots)
			munmap(c->peer[i].slots, c->block * CK_COMM_SLOTS);
	}
	free(c->peer);
	if (c->listener >= 0)
		close(c->listener);
	if (c->event >= 0)
		close(c->event);
	free(c);
}
