/* SPDX-License-Identifier: Apache-2.0 */
/*
 * parser.h - the program that parses, from the library's side
 *
 * Whatever it does - dies, hangs, lies - is an error of who asked.  Nothing of
 * the caller's process is copied to start it.
 */
#ifndef CK_PARSER_H
#define CK_PARSER_H

#include "core/base/err.h"
#include "core/base/opts.h"
#include "core/ckpt/ckpt.h"

#include <stdbool.h>

/*
 * Which program: @given, $UNSHARD_PARSER, or the one that lies beside the
 * library or where it is installed.  To free(); NULL: no memory.
 */
char *ck_parser_path(const char *given);

/* A process of it. */
struct ck_parser_proc;
void ck_parser_proc_free(struct ck_parser_proc *proc); /* ends it; or NULL */

/* Who parses, and until when. */
struct ck_parser_by {
	const char *program;
	/* Readable: it is killed, -ECANCELED.  0: there is none. */
	int cancel_fd;
	/*
	 * The process that described stays here, to find the items of what it
	 * described; NULL: it ends.
	 */
	struct ck_parser_proc **stays;
};
bool ck_parser_is_cancelled(int cancel_fd);

/* ck_ckpt_describe() by a process of its own. */
int ck_parser_describe(const struct ck_parser_by *by,
		       const struct ck_root *root, const struct ck_opts *opts,
		       int *catalog_fd, struct ck_err *err);

/*
 * Publishes draft @name of @root, as @as, which replaces what is called so, or
 * (NULL) by its own name.
 */
int ck_parser_publish(const struct ck_parser_by *by, const struct ck_root *root,
		      const struct ck_opts *opts, const char *name,
		      const char *as, struct ck_err *err);

/* Finds items of one checkpoint: any thread. */
struct ck_parser;
/*
 * By @by->stays, which it takes, or who is started when the first item is to be
 * found; what is passed here must last as long.  NULL: no memory.
 */
struct ck_parser *ck_parser_new(const struct ck_parser_by *by,
				struct ck_ckpt *ck, const struct ck_opts *opts,
				int catalog_fd);
/* What can be cancelled is over: loads are, one by one. */
void ck_parser_opened(struct ck_parser *p);
void ck_parser_free(struct ck_parser *p);
/* All items that are not known yet; the first failure. */
int ck_parser_find_all(struct ck_parser *p, struct ck_err *err);
/* find() of struct ck_item_finder: with it the others of its tensor. */
int ck_parser_find_chunk(void *ctx, uint32_t chunk, struct ck_err *err);

#endif
