/* SPDX-License-Identifier: Apache-2.0 */
/*
 * dir.h - the checkpoint's folder as readers see it, read-only
 *
 * dir_root.c is the real one (over root/root.h); tests/lib/memdir.c keeps files
 * in memory.
 */
#ifndef CK_DIR_H
#define CK_DIR_H

#include "core/base/err.h"
#include "core/base/opts.h"
#include "core/root/source.h"

#include <stdbool.h>
#include <stddef.h>

struct ck_arena;
struct ck_root;

struct ck_dir_entry {
	char *name; /* relative to the root, "a/b" below it */
	bool is_dir;
	uint64_t size; /* of regular files; links: 0 */
};

struct ck_dir_list {
	struct ck_dir_entry *v; /* sorted by name */
	size_t nr, room;
};

/* What is read of files goes through sources that this makes of theirs. */
struct ck_dir_wrap {
	/* Takes @s, and may be it; NULL: no memory, @s closed. */
	struct ck_source *(*call)(void *ctx, struct ck_source *s);
	void *ctx;
};

struct ck_dir {
	const struct ck_dir_ops *ops;
	const struct ck_opts *opts; /* the user's settings; may be NULL */
	const char *path; /* for messages */
	const char *only; /* a single file was given: its name; else NULL */
	const char *save; /* of several saves in it, this one; else NULL */
	/* Whether a file is of another than @save, and not shown; or NULL. */
	bool (*hides)(const char *save, const char *name);
	bool entry; /* one of several checkpoints in a folder (run_dir.h) */
	const void *ctx; /* whatever @ops needs */
	const struct ck_dir_wrap *wrap; /* or NULL */
};

struct ck_dir_ops {
	/* In any order; ck_dir_list() sorts. */
	int (*list)(const struct ck_dir *d, const char *sub,
		    struct ck_dir_list *out, struct ck_err *err);
	int (*open)(const struct ck_dir *d, const char *name,
		    struct ck_source **out, struct ck_err *err);
	/* Whether an entry of that name is directly there, of any kind. */
	bool (*beside)(const struct ck_dir *d, const char *name);
	/* NULL: none is. */
	bool (*written)(const struct ck_dir *d, const char *name);
};

/*
 * What is directly in @sub ("": the root).  All that is no directory is
 * listed, links and devices too: opening is what refuses them.  A link that
 * is only a second name of a file beside it is not; one to a folder elsewhere
 * that may be followed is a folder.
 */
int ck_dir_list(const struct ck_dir *d, const char *sub,
		struct ck_dir_list *out, struct ck_err *err);
/* For ops->list: copies @name, under @sub. */
int ck_dir_list_add(struct ck_dir_list *l, const char *sub, const char *name,
		    bool is_dir, uint64_t size);
void ck_dir_list_free(struct ck_dir_list *l);
#define ck_auto_dir_list __attribute__((cleanup(ck_dir_list_free)))

/* Neither absolute nor upwards; links are the business of who opens. */
bool ck_dir_name_ok(const char *name, size_t len);
/* -ENOENT where it does not exist (@err set too). */
int ck_dir_open(const struct ck_dir *d, const char *name,
		struct ck_source **out, struct ck_err *err);
/*
 * Whether the file is being written, or its mount ended while it was, so that
 * sums of it may be of before or after what its bytes are of.
 */
bool ck_dir_is_written(const struct ck_dir *d, const char *name);
/* Whether there is such a name, openable or not. */
bool ck_dir_has(const struct ck_dir *d, const char *name);
/*
 * Whether the folder has an entry of that name, be it a folder, and be it
 * beside the file that was given.  Tells names only.
 */
bool ck_dir_siblings(const struct ck_dir *d, const char *name);
/*
 * The whole file, at most @max bytes, in memory to free(); one NUL follows.
 */
int ck_dir_slurp(const struct ck_dir *d, const char *name, uint64_t max,
		 char **bytes, size_t *len, struct ck_err *err);
/*
 * What value @i of -o @option= names, at most @max bytes, in @mem: a file where
 * the command ran, read when it was given, or one of the checkpoint.  -EINVAL
 * with a line where there is neither.
 */
int ck_dir_option(const struct ck_dir *d, const char *option, size_t i,
		  uint64_t max, struct ck_arena *mem, const char **bytes,
		  size_t *len, struct ck_err *err);
/* Borrows both for the life of @d; nothing to release. */
void ck_dir_root_init(struct ck_dir *d, const struct ck_root *root,
		      const struct ck_opts *opts);
/*
 * Whether replicas that differ are replicas all the same, where other things than
 * their bytes say that they are: with -o verify the manifest tells which of
 * them is right, and unshard heal (CK_ANY_COPY among the settings) is about
 * them.
 */
bool ck_dir_any_copy(const struct ck_dir *dir);

#endif
