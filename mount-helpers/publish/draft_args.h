/* SPDX-License-Identifier: Apache-2.0 */
/*
 * draft_args.h - what the commands about new checkpoints share
 *
 * They work on SRC itself, so that no mount and no node is needed, and take a
 * mount's paths too: MNT/step-1 is SRC/step-1.
 */
#ifndef DRAFT_ARGS_H
#define DRAFT_ARGS_H

#include "mount-helpers/cmd.h"

#include "core/base/str.h"
#include "core/publish/recover.h"

#include <limits.h>
#include <stdint.h>

struct draft_place {
	struct ck_root root; /* SRC */
	char name[NAME_MAX + 1]; /* of the step; "" where none was said */
};

/* @path names a directory of checkpoints. */
int draft_dir(struct draft_place *out, const char *path,
	      const struct ck_opts *opts, struct ck_err *err);
/* @path names a step in one, which need not be there. */
int draft_step(struct draft_place *out, const char *path,
	       const struct ck_opts *opts, struct ck_err *err);
/*
 * The words of "DIR [NAME]...": their count from @nr on; false after a line
 * on stderr where one is no name.
 */
bool draft_names(const struct cmd *c, char **name, int nr);
/* Whether @name is one of @nr words, or there are none. */
bool draft_wanted(char **words, int nr, const char *name);
/* A line, and its exit code, where a word is nothing in the directory. */
int draft_unknown(const struct cmd *c, const struct ck_root *root,
		  const struct ck_draft_list *all, char **words, int nr);

struct draft_walk {
	const struct cmd *cmd;
	const struct ck_opts *opts;
	void (*each)(struct draft_walk *w, const struct ck_root *root,
		     const struct ck_draft_info *s);
	int64_t age; /* gc's */
	struct ck_str out; /* what is said of them; a JSON list's middle */
	int code; /* exit code of what failed; 0: nothing did */
};
/*
 * Sweeps directory @path, calls each() for the drafts of it that the words
 * want, and prints what was said.  An exit code.
 */
int draft_walk(struct draft_walk *w, const char *path, char **words, int nr);
/* Begins an entry of the JSON list: its name. */
void draft_json(struct draft_walk *w, const char *name);
/* A whole number; false after a line on stderr. */
bool draft_number(const struct cmd *c, const struct ck_opts *opts,
		  const char *flag, int64_t fallback, int64_t *out);

#endif
