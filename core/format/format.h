/* SPDX-License-Identifier: Apache-2.0 */
/*
 * format.h - what the reader of a checkpoint format provides
 *
 * A reader turns names and headers into a catalog: which tensors there are,
 * and which bytes of which file hold each part.  It never reads tensor data,
 * never runs anything, and knows nothing of FUSE, io_uring or CUDA.
 *
 * To add a format, define ck_format_NAME in core/format/NAME/fmt.c and put an
 * example under tests/formats/NAME/; the Makefile finds both by their names.
 * docs/adding-a-format.md is the walk-through.
 */
#ifndef CK_FORMAT_H
#define CK_FORMAT_H

#include "core/base/err.h"
#include "core/base/option.h"
#include "core/base/str.h"
#include "core/catalog/builder.h"
#include "core/parse/json.h"
#include "core/parse/pickle.h"
#include "core/format/saves.h"
#include "core/root/dir.h"

/* How sure a probe is.  The surest reader wins; see detect.h for ties. */
enum ck_match {
	CK_MATCH_NONE, /* not this format */
	CK_MATCH_ASKED, /* only an option of this format says that it is */
	CK_MATCH_FILE, /* some file begins as this format's files do */
	CK_MATCH_INDEX, /* an index of this format names all the parts */
	CK_MATCH_OWN, /* others could read it, less well */
	CK_MATCH_USER, /* the user wrote down what it is */
	CK_MATCH_SAID, /* and gives that by an option, which decides */
};

/* Whether a file is what one of several ranks saved. */
enum ck_slice {
	CK_SLICE_NO,
	CK_SLICE_MAYBE, /* one rank may have all of a model */
	CK_SLICE_YES,
};

/* What tells how many ranks there were. */
enum ck_tells_ranks {
	CK_TELLS_RANKS, /* an index, or each file */
	CK_TELLS_BY_PIECES, /* the pieces of a tensor, where there are any */
	CK_TELLS_NOTHING,
};

/* Copies of a model's weights in one checkpoint, below a key each. */
struct ck_format_copies {
	const char *option; /* which of them views show */
	const char *usual, *other; /* keys; the other, if the usual is not */
};

/* An option that says how the ranks of a format join. */
struct ck_format_join {
	const char *option;
	const char *whose; /* "MindSpore's", for messages */
	/*
	 * Whether it is given as words, which fit whatever files and ranks there
	 * are; NULL: it names files only.
	 */
	bool (*is_words)(const struct ck_opts *opts);
};

struct ck_layout_form; /* core/layout/write.h */

struct ck_format {
	const char *name; /* for -o format=NAME, and the tests' folder */
	const char *summary; /* one line, for --formats and the manual */
	const struct ck_option *options; /* its own, up to a NULL name */
	/* Names of options that others read too: options.c has them; or NULL. */
	const char *reads;
	bool names_file; /* -o file= names a file of the folder itself */
	const char *files; /* else, of what it names one, in words */

	/* Which reader is chosen. */
	/* An option that, if it is given, says that this format is meant. */
	const char *asked_by;
	/* Where it and another describe the same tensors, this one reads. */
	bool preferred;
	/* Names of readers whose files this one reads too; NULL: none. */
	const char *covers;
	const struct ck_format_join *join; /* or NULL */
	/*
	 * Whether a folder holds several checkpoints of which none is meant by
	 * itself: -errno with a line of how to choose.  NULL: it never does.
	 */
	int (*check_one)(const struct ck_dir *dir, struct ck_err *err);
	/* Whether the folder's unshard-layout.json is not one, but its own. */
	int (*is_layout)(const struct ck_dir *dir, bool *yes,
			 struct ck_err *err);

	/* In directories of checkpoints. */
	const struct ck_format_sign *signs; /* up to a NULL pattern */
	/* A folder called so is a rank's, if files of this format are in it. */
	bool (*is_rank_dir)(const char *name);
	const struct ck_format_saves *saves; /* or NULL */
	const struct ck_format_parts *parts; /* or NULL */
	const char *marker; /* a file that says which is the newest; or NULL */

	/* Whether all of a save is there. */
	enum ck_tells_ranks ranks;
	/* A file whose path has this in it tells it, too; or NULL. */
	const char *ranks_file;
	bool ranks_are_files; /* a file a rank, with a number in its name */
	/*
	 * Files of which one is there once a save has ended, and the one that
	 * each of its folders has from the beginning; or NULL.
	 */
	const char *const *ends;
	const char *begun;
	bool indexed; /* an index tells what a file holds that is missing */

	/* What its files are. */
	bool sums; /* they hold checksums that a write has to keep right */
	const struct ck_format_copies *copies; /* or NULL */
	bool flat; /* none of them lies in a folder of its own, */
	const char
		*inner; /* but this, with another form of the same; or NULL */
	/* It reports torch.save files that are left aside by itself. */
	bool reports_aside;
	/* Whether only its files are called so: no other reader takes them. */
	bool (*claims)(const char *name);
	/* Whether a file called so is a piece of it, and none left aside. */
	bool (*is_piece)(const char *name);
	/* An entry of the folder from when a save begins until it has ended. */
	const char *unfinished;
	/*
	 * What a file is that may look like weights and is none, in words; NULL:
	 * it is no such.  Names of such files have @aux in them.
	 */
	const char *(*aux_is)(const struct ck_dir *dir, const char *name);
	const char *aux;
	/* Of the object of a torch.save file, wherever it lies. */
	enum ck_slice (*is_slice)(const struct ck_pickle *p);
	/* Of the __metadata__ of a safetensors file; 0 or -ENOMEM. */
	int (*is_slice_by)(const struct ck_dir *dir, const char *file,
			   const json_t *metadata, bool *yes,
			   struct ck_err *err);
	const char *slice; /* how either is reported */
	/* Reports what is wrong in @l, a folder that a flat format reads. */
	int (*check_beside)(const struct ck_dir *dir,
			    const struct ck_dir_list *l, struct ck_builder *b,
			    struct ck_err *err);

	/* How it is written by those who save into a mount; NULL: it is not. */
	const struct ck_layout_form *form;
	/*
	 * What a file with bytes of tensors says is of these bytes alone, and
	 * in its first block or its last: who uses none of them may believe
	 * nothing of it, and all of the others.
	 */
	bool apart;

	/* Returns an enum ck_match, or -errno if @dir could not be read. */
	int (*probe)(const struct ck_dir *dir, struct ck_err *err);

	/*
	 * Says all parts and objects to @b.  Returns 0, or -errno with @err
	 * set, and then the caller throws @b away.
	 */
	int (*load)(const struct ck_dir *dir, struct ck_builder *b,
		    struct ck_err *err);
};

/* All readers, by name, up to a NULL; generated from the folders there are. */
extern const struct ck_format *const ck_formats[];

/* The one that @img was made by. */
const struct ck_format *ck_format_of(const struct ck_catalog *img);
/* Whether the folder @name holds another form of what is beside it. */
bool ck_format_is_inner(const char *name);
/* What is there of a save that has not ended, by name; NULL: nothing. */
const char *ck_format_unfinished(const struct ck_dir *dir);
/* Whether some format claims a file called so. */
bool ck_format_is_claimed(const char *name);
/* What a file is that may look like weights and is none; NULL: no such. */
const char *ck_format_aux(const struct ck_dir *dir, const char *name);
/* All options that only some formats read, by name; NULL past the last. */
const struct ck_option *ck_format_option(size_t i);
/* The help of any option, with what formats say of it. */
void ck_option_help(const struct ck_option *o, struct ck_str *out);

#endif
