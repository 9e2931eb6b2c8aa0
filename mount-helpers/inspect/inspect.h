/* SPDX-License-Identifier: Apache-2.0 */
/* inspect.h - the parts of inspect, ls and layout */
#ifndef INSPECT_H
#define INSPECT_H

#include "mount-helpers/cmd.h"

#include "core/base/opts.h"
#include "core/base/str.h"
#include "core/geom/catalog.h"
#include "core/geom/resolved.h"

#include <stdbool.h>

/* ---- summary.c: a whole checkpoint in a screenful, for people ---- */

/* @path is as the user gave it. */
void summary_put(const struct ck_catalog *img, const char *path,
		 struct ck_str *out);

/*
 * How many tensors are the model's, what hf/ takes off their names, and which
 * names would collide.
 */
void summary_model(const struct ck_catalog *img, const struct ck_root *root,
		   const struct ck_opts *opts, struct ck_str *out);

/* ---- run_dir_list.c: a directory of checkpoints, a line each ---- */

/*
 * After cmd_open_itself() failed on @path with @why: lists the checkpoints in
 * it and returns the exit code, 1 where one is not whole; where there are none,
 * prints @why.
 */
int run_dir_list(const struct cmd *c, const char *path,
		 const struct ck_opts *opts, const struct ck_err *why);

/*
 * ---- labels.c: short words for the files behind one tensor ----
 *
 * The first of these that no two have alike: "rank 3" where the names of all of
 * them tell the rank that wrote them, the name without its folders, that of the
 * folder; A, B, ... where those are long.
 */

enum labels_kind { LABELS_RANK, LABELS_NAME, LABELS_FOLDER, LABELS_KEY };

struct labels {
	const struct ck_catalog *img;
	enum labels_kind kind;
	uint32_t *files; /* strings of the catalog, in order of appearance */
	uint32_t nr;
};

/* False: no memory, or files beyond counting. */
bool labels_init(struct labels *l, const struct ck_catalog *img,
		 const struct ck_tensor *t);
void labels_free(struct labels *l);
void labels_put(const struct labels *l, uint32_t src, struct ck_str *out);
/* "rank 3" and the like -> the file: what the labels leave out; or nothing. */
void labels_legend(const struct labels *l, struct ck_str *out);

/*
 * ---- draw.c: a tensor's pieces as a picture of boxes ----
 *
 *	       0        3584     7168
 *	     0 +--------+--------+
 *	       | rank 0 | rank 1 |
 *	       | rank 4 | rank 5 |     two copies
 *	  4096 +--------+--------+
 */

/*
 * Appends the picture, at most @width columns wide.  False, with @out as it
 * was: pieces are cut along more than two axes, or are too many.
 */
bool draw_tensor(const struct ck_catalog *img, const struct ck_tensor *t,
		 const struct labels *labels, unsigned width,
		 struct ck_str *out);

/* ---- problems.c: problems to stdout ---- */

/*
 * Those numbers of problems of @img, a line each; of many, unless @all, those of
 * tensors a line a file.  False: it did not take it, or no memory.
 */
bool problems_put(const struct ck_catalog *img, const uint32_t *which,
		  uint32_t nr, bool all);

/* ---- html.c: one page that shows all of it, to stdout ---- */

/* False: it did not take it, or no memory. */
bool html_put(const struct ck_catalog *img, const struct ck_resolved *resolved,
	      const char *path);

/* ---- pieces.c: a line for each stored piece of a tensor ---- */

/*
 * Prints to stdout: of many, unless @all, those of the same size in files that are
 * called alike in one line.  False: it did not take it, or no memory.
 */
bool pieces_print(const struct ck_catalog *img,
		  const struct ck_resolved *resolved, const struct ck_tensor *t,
		  bool all);

/* ---- layout_show.c: a checkpoint of any format as a layout ---- */

struct layout_show {
	const struct ck_catalog *img;
	const struct ck_resolved *resolved; /* all items of @img are resolved */
	uint64_t left_out; /* pieces and tensors that no layout can say */
	struct ck_str out;
};

/* Writes to stdout, a tensor at a time; false: it did not take it. */
bool layout_show(struct layout_show *s);

#endif
