/* SPDX-License-Identifier: Apache-2.0 */
/* subprocess.h - a part of a command in a process of its own */
#ifndef SUBPROCESS_H
#define SUBPROCESS_H

#include "mount-helpers/cmd.h"

/*
 * The exit code of @fn, called in a child that ends with it; or CMD_SYSTEM
 * with a line.  @what it does, for the line that says what killed it: "p: what
 * read it", say.
 */
int cmd_subprocess(const struct cmd *c, const char *what, int (*fn)(void *ctx),
		   void *ctx);

#endif
