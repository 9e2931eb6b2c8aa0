/* SPDX-License-Identifier: Apache-2.0 */
/*
 * dir_tree.h - all that lies below a directory: listed, made durable, removed
 *
 * Links are not followed, and no other file system is entered.  Without
 * recursion: what is on the disk may be as deep as its paths can be long.
 *
 * Threads: a list belongs to one thread; the calls may run in any.
 */
#ifndef CK_DIR_TREE_H
#define CK_DIR_TREE_H

#include "core/base/err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>

struct ck_dir_tree_file {
	char *path; /* relative, "a/b" */
	struct stat st; /* of itself, where it is a link too */
};

struct ck_dir_tree {
	struct ck_dir_tree_file *v; /* a directory before what is in it */
	size_t nr, room;
	uint64_t bytes; /* of regular files */
	uint64_t signature; /* names, sizes, times, identities; not our own */
	uint64_t manifest; /* the same of CK_MANIFEST_NAME; 0: there is none */
};

/* Everything below @dir, but not itself.  What vanishes meanwhile is left out. */
int ck_dir_tree_list(struct ck_dir_tree *out, int dir, struct ck_err *err);
void ck_dir_tree_free(struct ck_dir_tree *f);
#define ck_auto_dir_tree __attribute__((cleanup(ck_dir_tree_free)))

/*
 * fsync of every file, by several threads, then of every directory, the
 * deepest first, and of @dir.  The first failure, which names the file.
 */
int ck_dir_tree_sync(const struct ck_dir_tree *f, int dir, unsigned threads,
		     struct ck_err *err);
/* Directory @name in @at, with all that is in it. */
int ck_dir_tree_remove(int at, const char *name, struct ck_err *err);
/*
 * Whether a link in a directory @depth levels below the top may say @to: not
 * absolute, upwards only at its beginning, and never out of the top.
 */
bool ck_dir_tree_link_ok(unsigned depth, const char *to);

#endif
