/* SPDX-License-Identifier: Apache-2.0 */
/*
 * text.h - what a checkpoint says, as text for people
 *
 * Names come from files that are not trusted: control characters, which a
 * terminal would obey, and bytes that are no UTF-8 are shown as \xNN.
 */
#ifndef TEXT_H
#define TEXT_H

#include "core/base/str.h"
#include "core/geom/catalog.h"

/* A string of the catalog; nothing for CK_NONE. */
void text_ref(struct ck_str *out, const struct ck_catalog *img, uint32_t ref);
/*
 * Of two names, by their bytes, as memcmp(): those of what was refused may
 * have NUL in them.
 */
int text_compare(const struct ck_catalog *a, uint32_t a_ref,
		 const struct ck_catalog *b, uint32_t b_ref);
/* "TREE/" where @tree is not the one that most checkpoints have. */
void text_tree(struct ck_str *out, const struct ck_catalog *img, uint32_t tree);
/* "[4096, 14336]" */
void text_dims(struct ck_str *out, const uint64_t *dims, unsigned rank);
/* "[0:4, 2:8]" */
void text_box(struct ck_str *out, const uint64_t *start, const uint64_t *len,
	      unsigned rank);
/* "112.0 MiB" */
void text_size(struct ck_str *out, uint64_t bytes);
/* "1 file", "2 files" */
void text_count(struct ck_str *out, uint64_t n, const char *one);
/* Adds blanks until @out is @width longer than it was at @from. */
void text_pad(struct ck_str *out, size_t from, size_t width);
const char *text_state(uint8_t state); /* "ok", "torn", "missing" */
const char *text_enc(uint8_t enc); /* of an object: "torch", "raw" */

/* What turns the colour on, and off; "" where standard output is to have none. */
#define TEXT_RED "31"
#define TEXT_GREEN "32"
#define TEXT_YELLOW "33"
#define TEXT_PLAIN "0"
const char *text_colour(const char *colour);
/* Columns of the terminal, or $COLUMNS; else @otherwise. */
unsigned text_columns(unsigned otherwise);
/*
 * Adds @text, which begins at column @at, a line after the other of at most
 * @columns; those that follow begin at column @indent.
 */
void text_wrap(struct ck_str *out, const char *text, unsigned at,
	       unsigned indent, unsigned columns);

/* Writes @s to stdout and empties it; false: no memory, or it did not take. */
bool text_flush(struct ck_str *s);

#endif
