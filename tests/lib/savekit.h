/* SPDX-License-Identifier: Apache-2.0 */
/*
 * savekit.h - new checkpoints by the library, in a directory of the test's
 *
 * What should not fail ends the test, with its line.
 */
#ifndef SAVEKIT_H
#define SAVEKIT_H

#include "core/lib/unshard.h"

#include <stdbool.h>

#define SV_BIG (1 << 20)
extern char sv_dir[], sv_parser[4096];
extern unsigned char sv_big[SV_BIG]; /* bytes that count */
#define DIMS(...) ((const uint64_t[]){ __VA_ARGS__ })

void sv_set_up(const char *program);
void sv_tear_down(void);

void sv_ok(int ret, const unshard_error *err);
/* It failed so, and the line has all of these words. */
void sv_is(int ret, int code, const unshard_error *err, const char *a,
	   const char *b, const char *c);
unshard_ctx *sv_new_ctx(void);
unshard_save_opts sv_opts_of(uint32_t ranks, uint32_t rank);
unshard_slice sv_slice(const char *name, const char *dtype, uint32_t rank,
		       const uint64_t *shape, const uint64_t *start,
		       const uint64_t *len);
unshard_item sv_item(uint32_t nr, const void *mem);
unshard_save *sv_begin(unshard_ctx *ctx, const char *step,
		       const unshard_save_opts *opts);
void sv_write_one(unshard_save *s, uint32_t nr, const void *mem);
/* That tensor of a published step, as @len bytes; with verify too. */
void sv_holds(unshard_ctx *ctx, const char *step, const char *name,
	      const void *bytes, size_t len);
void sv_holds_unsealed(unshard_ctx *ctx, const char *step, const char *name,
		       const void *bytes, size_t len); /* without verify */
bool sv_is_there(const char *step);

#endif
