/* SPDX-License-Identifier: Apache-2.0 */
/*
 * opts.h - settings as names and values, in the order given
 *
 * The command's table (core/options/options.c) knows which names exist; readers look up
 * what they need by name and know nothing of command lines.
 */
#ifndef CK_OPTS_H
#define CK_OPTS_H

#include <stdbool.h>
#include <stddef.h>

struct ck_opt {
	char *name, *value; /* value "" for a bare word */
	char *bytes; /* of the file that the value names, or NULL */
	size_t len;
	_Atomic bool used; /* see ck_opts_use() */
};

struct ck_opts {
	struct ck_opt *v;
	size_t nr, room;
};

/* Copies both; 0 or -ENOMEM. */
int ck_opts_add(struct ck_opts *o, const char *name, const char *value);
/* The last value given, or NULL. */
const char *ck_opts_get(const struct ck_opts *o, const char *name);
/*
 * The same, by who does now what the option says, and not only asks whether it
 * was given: one that nobody uses is unused.
 */
const char *ck_opts_use(const struct ck_opts *o, const char *name);
bool ck_opts_used(const struct ck_opts *o, const char *name);
/* Before something else is read with the same options. */
void ck_opts_mark_unused(const struct ck_opts *o);
/* The @i-th value of a repeatable option, or NULL past the last. */
const char *ck_opts_nth(const struct ck_opts *o, const char *name, size_t i);
/*
 * Takes @bytes, from malloc(), as what is in the file that the option added
 * last names.  Who reads a checkpoint may open no other files, so that files
 * that options name are read when the option is given.
 */
void ck_opts_keep(struct ck_opts *o, char *bytes, size_t len);
/* Those bytes of the @i-th value; NULL: it names no file that exists. */
const char *ck_opts_bytes(const struct ck_opts *o, const char *name, size_t i,
			  size_t *len);
void ck_opts_free(struct ck_opts *o);
/*
 * All of @o, which may be NULL, but those called @name: borrows from @o, and
 * ck_opts_let_go() frees what it has itself.  0 or -ENOMEM.
 */
int ck_opts_without(struct ck_opts *out, const struct ck_opts *o,
		    const char *name);
void ck_opts_let_go(struct ck_opts *out);

/* Set by a command, not by users: see ck_dir_any_copy(). */
#define CK_ANY_COPY "any-copy"

#endif
