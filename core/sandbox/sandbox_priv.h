/* SPDX-License-Identifier: Apache-2.0 */
/* sandbox_priv.h - the layers of sandbox.c */
#ifndef CK_SANDBOX_PRIV_H
#define CK_SANDBOX_PRIV_H

#include "core/sandbox/sandbox.h"

/* 1: in force, 0: this kernel lacks it, -errno with @err set: it failed. */
int ck_sandbox_landlock(const struct ck_sandbox_in *in, struct ck_err *err);
int ck_sandbox_seccomp(const struct ck_sandbox_in *in, struct ck_err *err);

#endif
