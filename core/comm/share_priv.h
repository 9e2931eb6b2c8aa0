/* SPDX-License-Identifier: Apache-2.0 */
/*
 * share_priv.h - what a share's threads have in common
 *
 *	share.c  the calls of share.h; this rank's pieces, read
 *	talk.c   windows and rounds, agreed on with the others
 */
#ifndef CK_SHARE_PRIV_H
#define CK_SHARE_PRIV_H

#include "core/comm/comm_priv.h"
#include "core/comm/share.h"

#include <pthread.h>

#define CK_SHARE_RANGES ((size_t)16 << 10) /* that a rank says at a time */
#define CK_SHARE_PIECES (CK_COMM_BLOCK_MAX / CK_DEAL_PAGE) /* of a slot */
#define CK_SHARE_FETCHERS \
	2 /* so that storage has the next read before it asks */

struct ck_share_round {
	uint64_t round;
	uint8_t bad[CK_SHARE_PIECES /
		    8]; /* of the pieces that this rank read */
};

struct ck_share_list {
	struct ck_deal_range *v;
	size_t nr;
};

struct ck_share {
	struct ck_share_in in;
	struct ck_comm *comm;
	unsigned rank, ranks;
	pthread_t talker, fetcher[CK_SHARE_FETCHERS];
	pthread_mutex_t lock;
	pthread_cond_t cond;
	/* Under the lock: */
	struct ck_share_list next; /* posted, and not taken by the talker */
	bool posted; /* there is one */
	bool fresh; /* what was posted last is not dealt: at_* are of that */
	bool dealt, ended, quit, over;
	bool refused; /* all agree on that, and may talk of something else */
	bool copied; /* all that was posted */
	uint32_t at_src;
	uint64_t at_off;
	uint32_t nr_read, may_read; /* rounds */
	uint32_t nr_begun; /* to be read */
	bool is_read[CK_COMM_SLOTS]; /* of those behind nr_read */
	struct ck_share_round word[CK_COMM_SLOTS];
	struct ck_err why;

	/* Changes between windows only, while nobody is in one: */
	struct ck_deal deal;
	_Atomic uint32_t nr_ready; /* rounds */

	/* Of the talker: */
	struct ck_share_list *list; /* by rank */
	uint64_t *used;
	unsigned nr_windows;
	_Atomic uint64_t received, sent, ns;
};

/* Of the talker's thread; @share: struct ck_share. */
void *ck_share_talk(void *share);

#endif
