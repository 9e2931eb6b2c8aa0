/* SPDX-License-Identifier: Apache-2.0 */
/*
 * names.h - what words in the names of tensors mean
 *
 * The words of each class are in names.rules.  Pure; any thread.
 */
#ifndef CK_NAMES_H
#define CK_NAMES_H

#include <stdbool.h>
#include <stddef.h>

/* Up to a NULL.  Anywhere in a name: */
extern const char *const ck_names_first[], *const ck_names_last[];
extern const char *const ck_names_embedding[], *const ck_names_vocabulary[];
extern const char *const ck_names_last_norm[];
/* As all of a word, those being parted by dots and slashes: */
extern const char *const ck_names_first_word[], *const ck_names_last_word[];
extern const char *const ck_names_after[], *const ck_names_state[];
extern const char *const ck_names_head[], *const ck_names_table[];
extern const char *const ck_names_fused[]; /* the last before weight or bias */
/* At the end of a word, in letters of any case: */
extern const char *const ck_names_list[];
/* Behind "layers.": */
extern const char *const ck_names_stacked[];

bool ck_name_has(const char *name, size_t len, const char *const *words);
bool ck_name_has_word(const char *name, size_t len, const char *const *words);
/* Whether @s is one of them. */
bool ck_name_is(const char *s, size_t len, const char *const *words);

#endif
