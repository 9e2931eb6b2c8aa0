/* SPDX-License-Identifier: Apache-2.0 */
/*
 * option.h - what is said of one -o option: by the general table, or a format
 *
 * --help, the manual's list and the parser of the command line all come from
 * these rows; what was given is in opts.h.
 */
#ifndef CK_OPTION_H
#define CK_OPTION_H

#include <stdbool.h>
#include <stdint.h>

enum ck_option_type {
	CK_OPTION_FLAG, /* a bare word */
	CK_OPTION_STRING, /* any text without a comma */
	CK_OPTION_CHOICE, /* one of @choices, separated by | */
	CK_OPTION_FORMAT, /* the name of a reader, core/format/format.h */
	CK_OPTION_SIZE, /* bytes, with K M G T */
	CK_OPTION_NUMBER, /* 1 .. @max */
	CK_OPTION_PATH, /* "\," and "\:" escape; a path that exists wins */
	CK_OPTION_PATHS, /* several, with ":" between them or by repeating */
	CK_OPTION_FILES, /* the same, of files that are read at once */
};

/* What it is about, in --help and the manual. */
enum ck_option_group {
	CK_OPTION_READ, /* what is read, and how it is joined */
	CK_OPTION_SHOW,
	CK_OPTION_WRITE,
	CK_OPTION_GUARD, /* who may, and what is checked */
	CK_OPTION_TUNE,
	CK_OPTION_GROUPS,
};

struct ck_option {
	const char *name;
	enum ck_option_type type;
	enum ck_option_group group;
	bool common; /* in the short --help too */
	const char *choices;
	uint64_t max;
	const char *value; /* what the value stands for, in --help */
	const char *fallback; /* default, in words; NULL: none */
	const char *help; /* one line */
	bool open; /* also taken by ls, inspect, plan, cat */
	bool folder; /* FILES: of a folder the .ckpt and .json files in it */
	/*
	 * FILES, @folder: where that folder is looked for, from a checkpoint that
	 * has folders of ranks, if nobody says it; or NULL.
	 */
	const char *beside;
	bool how; /* of those: never changes which bytes are shown */

	/* Of those that only some formats read. */
	const char *also; /* what else reads it; NULL: nothing */
	bool in_views; /* it chooses what views show: the reader leaves it */
	/* Its place behind the general ones of its group, the lowest first, 0 last. */
	unsigned place;
};

#endif
