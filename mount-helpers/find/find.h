/* SPDX-License-Identifier: Apache-2.0 */
/* find.h - every checkpoint below a folder */
#ifndef FIND_H
#define FIND_H

#include "mount-helpers/cmd.h"

#include "core/base/vec.h"

extern const struct cmd cmd_find;

enum find_state { FIND_COMPLETE, FIND_INCOMPLETE, FIND_UNREADABLE };

/* What one reader describes: a checkpoint, or a part of one. */
struct find_part {
	char *path; /* its folder or file, below what was given */
	char *open; /* what ck_root_open() takes, where it is no save in it */
	char *save; /* the step that it belongs to: a folder, or of ranks' files */
	enum find_state state;
	char format[32];
	uint32_t tensors, files;
	uint64_t model, optimizer; /* bytes of tensors */
	uint64_t stored; /* bytes of files */
	int64_t mtime; /* of the newest file, seconds */
	char *why; /* not complete */
};

/* The parts that are one step, as far as their folders say. */
struct find_save {
	const char *path;
	const struct find_part *first;
	size_t nr;
	bool numbered, has_epoch;
	uint64_t epoch, step; /* a step of that epoch */
	enum find_state state;
	uint32_t tensors;
	uint64_t model, optimizer, stored;
	int64_t mtime;
	const struct find_save
		*same; /* it holds the same, as far as samples tell */
};

/* A folder that was given. */
struct find_top {
	const char *path;
	char *real; /* absolute, no links in it; NULL: it is not there */
	bool done;
};

struct find {
	const struct ck_opts *opts;
	CK_VEC(struct find_top) top;
	CK_VEC(struct find_part) part;
	CK_VEC(struct find_save) save;
	uint64_t folders; /* that were looked into */
	struct ck_err err;
};

/* ---- find_walk.c ---- */

/* Another folder for find_walk(): 0 or -ENOMEM. */
int find_add_top(struct find *f, const char *path);
/*
 * All of them below what was added, each once, be it in several of these or given
 * by several names.  Folders that cannot be listed are a line on stderr.
 * -errno with f->err set: one was not looked at.
 */
int find_walk(struct find *f);
void find_free(struct find *f);

/* ---- find_saves.c ---- */

/* The step that the folder @path below @top belongs to; to free(). */
char *find_save_of(const char *top, const char *path);
/* f->save from f->part, in the order of @sort ("path", "size", "age"). */
int find_saves(struct find *f, const char *sort);

#endif
