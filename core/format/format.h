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
#include "core/catalog/builder.h"
#include "core/assemble/dir.h"

/* How sure a probe is.  The surest reader wins; see detect.h for ties. */
enum ck_match {
	CK_MATCH_NONE, /* not this format */
	CK_MATCH_ASKED, /* only an option of this format says that it is */
	CK_MATCH_FILE, /* some file begins as this format's files do */
	CK_MATCH_INDEX, /* an index of this format names all the parts */
	CK_MATCH_OWN, /* others could read it, less well */
	CK_MATCH_USER, /* the user wrote down what it is */
};

struct ck_format {
	const char *name; /* for -o format=NAME, and the tests' folder */
	const char *summary; /* one line, for --formats and the manual */
	const struct ck_option *options; /* its own, up to a NULL name */
	/* Names of options that others read too: options.c has them; or NULL. */
	const char *reads;
	bool names_file; /* -o file= names a file of the folder itself */
	bool flat; /* none of its files lies in a folder of its own */
	/* Names of readers whose files this one reads too; NULL: none. */
	const char *covers;
	/*
	 * It compares replicas as it reads, for it must tell copies from parts
	 * by their bytes; else they are compared for it.
	 */
	bool compares;
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

/* NULL: there is no such reader. */
const struct ck_format *ck_format_named(const char *name);
/* All options that only some formats read, by name; NULL past the last. */
const struct ck_option *ck_format_option(size_t i);

#endif
