/* SPDX-License-Identifier: Apache-2.0 */
/*
 * mounted_priv.h - between mounted_table.c (the table), mounted.c (one of
 * them) and mounted_same.c (whether it is still the same)
 */
#ifndef FS_MOUNTED_PRIV_H
#define FS_MOUNTED_PRIV_H

#include "fs/tree/mounted.h"

#include <pthread.h>
#include <semaphore.h>

struct fs_mounted_table {
	struct fs_mounted_table_in in;
	const struct ck_root *root; /* of what is mounted */
	pthread_mutex_t lock; /* the table, and what mounted.h says of them */
	pthread_mutex_t making; /* one parse at a time */
	struct fs_mounted **v; /* FS_MAX_MOUNTED, most of it never touched */
	struct fs_mounted *first; /* all but number 0; @nr of them */
	uint32_t nr;
	uint32_t last; /* where to look for a free number first */
	uint32_t made; /* mounted checkpoints of the list that are parsed */
	uint32_t most; /* of these, where nobody uses them */
	uint64_t clock;
	_Atomic uint64_t serial; /* the last one given */
	sem_t crowded; /* posted when there are too many, or at the end */
	_Atomic bool ending;
};

/*
 * Views, shards and documents of a mounted checkpoint whose ck or root is set.
 */
int fs_mounted_fill(struct fs_mounted_table *s, struct fs_mounted *mounted,
		    struct ck_err *err);
/*
 * Parses entry slot->name, the first time or again; READY, FAILED with @why,
 * or ASLEEP.
 */
enum fs_mounted_state fs_mounted_make(struct fs_mounted_table *s,
				      struct fs_mounted *mounted,
				      struct ck_err *why);
/* Under the lock: moves what it was made of to @evicted, which is empty. */
void fs_mounted_sleep(struct fs_mounted *mounted, struct fs_mounted *evicted);
/* Ends what a mounted checkpoint was made of, and no more. */
void fs_mounted_end(struct fs_mounted_table *s, struct fs_mounted *mounted);
/* Also what the documents of a directory or of a FAILED entry say. */
void fs_mounted_text(struct fs_mounted_table *s, struct fs_mounted *mounted,
		     const struct fs_virt_reader *by, unsigned id,
		     struct ck_str *out);
/* What views cannot show is known once they were looked at. */
void fs_mounted_settle(const struct fs_mounted *mounted);
void fs_mounted_free(struct fs_mounted_table *s, struct fs_mounted *mounted);
/*
 * Whether @now is the same folder or file, and nothing came or went in it; what
 * we wrote to it ourselves is no change.  The mounted checkpoint is pinned, or
 * asleep under the lock of making.
 */
bool fs_mounted_same(struct fs_mounted_table *s, struct fs_mounted *mounted,
		     const struct ck_run_dir_entry *now);
/* The same of one that sleeps, of which each name in the entry is compared. */
bool fs_mounted_is_still(struct fs_mounted_table *s,
			 struct fs_mounted *mounted);
/* Takes down what was parsed. */
void fs_mounted_learn_identity(struct fs_mounted_table *s,
			       struct fs_mounted *mounted);
/* Whether what slept was parsed to the same, @state, of the same files. */
bool fs_mounted_is_as_before(struct fs_mounted_table *s,
			     struct fs_mounted *mounted,
			     enum fs_mounted_state state);
/* Takes down what is there, before it is parsed first. */
void fs_mounted_look_first(struct fs_mounted_table *s,
			   struct fs_mounted *mounted);
/*
 * Once it sleeps, nobody knows which changes were ours: takes down what is
 * there now.  The mounted checkpoint is pinned.
 */
void fs_mounted_look_anew(struct fs_mounted_table *s,
			  struct fs_mounted *mounted);
/*
 * Whether the entry @now is still what @mounted was made of.  One that was
 * whole is, until its folder changes; one that was not, or is doubted, is looked
 * at more closely, and all below it once a second.
 */
bool fs_mounted_current(struct fs_mounted_table *s, struct fs_mounted *mounted,
			const struct ck_run_dir_entry *now);

#endif
