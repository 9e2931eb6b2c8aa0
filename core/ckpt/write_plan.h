/* SPDX-License-Identifier: Apache-2.0 */
/*
 * write_plan.h - one write of a file, from the request to the shards
 *
 *	made     by the view that shows the file: it goes over its spans once, and
 *	         gives the parts, which are bytes of tensors
 *	checked  each part: may it be written; of a page of a map, what of it
 *	run      all parts are locked, their segments resolved and looked at, and
 *	         then written to each copy; the float32 masters follow
 *	told     who shows the bytes elsewhere forgets them, by the same parts
 *
 * Threads: one a plan; ck_wplan_newer() and ck_wplan_free() any.
 */
#ifndef CK_WRITE_PLAN_H
#define CK_WRITE_PLAN_H

#include "core/base/err.h"
#include "core/base/vec.h"

#include <stdbool.h>
#include <stdint.h>

struct ck_ckpt;
struct ck_edit;

/* Bytes [off, off+len) of a tensor; in the request's buffer they begin at @at. */
struct ck_wpart {
	uint32_t tensor;
	uint32_t copy; /* the float32 master that follows it; CK_NONE */
	uint32_t same; /* the first tensor that is the same elements */
	uint32_t key; /* ck_ckpt_bytes_key() */
	int may; /* 0, or what it is refused with */
	uint64_t off, len, at;
	unsigned char *was; /* what is there, where that has to be known */
};

struct ck_wplan {
	struct ck_ckpt *ck;
	const unsigned char *buf; /* NULL: @get has the bytes of the file */
	int (*get)(void *ctx, void *buf, uint64_t len, uint64_t off,
		   struct ck_err *err);
	void *ctx;
	/*
	 * In pages of a map; which of their bytes a program stored is not known,
	 * and those that are as they were it did not.
	 */
	bool page;
	bool several; /* the file shows several tensors */
	CK_VEC(struct ck_wpart) parts;

	/* in the checkpoint's list */
	bool newer;
	struct ck_wplan *next;
};

/* For who makes it: 0 or -ENOMEM. */
int ck_wplan_add(struct ck_wplan *p, uint32_t tensor, uint64_t off,
		 uint64_t len, uint64_t at, struct ck_err *err);
/* All are added: those that a master follows come last, for it may be among them. */
void ck_wplan_made(struct ck_wplan *p);
/*
 * What pages of maps have of its bytes is older from now on until
 * ck_wplan_free(), and is not written.
 */
void ck_wplan_newer(struct ck_wplan *p);
/* All or, where some of it is refused, nothing; see ck_ckpt_may_write(). */
int ck_wplan_run(struct ck_wplan *p, struct ck_edit *e, struct ck_err *err);
/* Whether after @ret of ck_wplan_run() some of it may have been written. */
bool ck_wplan_wrote(int ret);
void ck_wplan_free(struct ck_wplan *p); /* or NULL; and what it was kept in */

#endif
