/* SPDX-License-Identifier: Apache-2.0 */
/* help.h - what --help prints, and what was meant where a word is unknown */
#ifndef HELP_H
#define HELP_H

#include "mount-helpers/cmd.h"

#include "core/base/match.h"

#include <stdio.h>

/* @all: every -o option; else those that are used most. */
void help_cmd(const struct cmd *c, bool all);
/* All commands, group by group. */
void help_unshard(FILE *to);
/* "did you mean @before NAME? "; "" where nothing is near. */
const char *help_meant(const struct ck_nearest *n, const char *before,
		       char text[64]);

#endif
