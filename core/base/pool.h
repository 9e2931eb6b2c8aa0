/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pool.h - the same work by several threads, and a call now and then meanwhile
 */
#ifndef CK_POOL_H
#define CK_POOL_H

struct ck_pool_in {
	unsigned jobs; /* threads; 0: as many as this machine suggests */
	void *ctx;
	/* In each thread, once; in the caller's where not one can be had. */
	void (*work)(void *ctx);
	/* In the caller's thread, ten times a second and last; may be NULL. */
	void (*tick)(void *ctx);
};

/* Returns when all have ended. */
void ck_pool_run(const struct ck_pool_in *in);

#endif
