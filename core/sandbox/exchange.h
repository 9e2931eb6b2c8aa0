/* SPDX-License-Identifier: Apache-2.0 */
/*
 * exchange.h - all of some bytes over a stream, with somebody who may hang
 */
#ifndef CK_EXCHANGE_H
#define CK_EXCHANGE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define CK_EXCHANGE_LOOK_MS 100

/*
 * How long is waited.  @stopped is looked at after CK_EXCHANGE_LOOK_MS without a
 * byte, and so often from then on: what comes at once is never interrupted.
 */
struct ck_patience {
	int64_t until_ms; /* by ck_now_ms() */
	bool (*stopped)(void *ctx); /* NULL: never */
	void *ctx;
};
struct ck_patience ck_patience(unsigned seconds); /* that nobody stops */

/*
 * 0, -ETIMEDOUT, -EINTR where it was stopped, -EPIPE where the other has ended,
 * another -errno; after each of these it is not known what is on the way.  With
 * NULL for @p it is waited for ever; else who puts has a socket.
 */
int ck_exchange_put(int fd, const void *buf, size_t len,
		    const struct ck_patience *p);
int ck_exchange_get(int fd, void *buf, size_t len, const struct ck_patience *p);
/* Waits until @events of poll() are there; the same. */
int ck_exchange_wait(int fd, short events, const struct ck_patience *p);
/*
 * Looks for bytes for CK_EXCHANGE_AWAKE_NS without a sleep, and lets others run
 * between the looks: to wake up takes longer than a question of a few files.
 */
#define CK_EXCHANGE_AWAKE_NS 50000
void ck_exchange_look(int fd);

#endif
