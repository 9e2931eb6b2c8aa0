/* SPDX-License-Identifier: Apache-2.0 */
/*
 * verify_priv.h - the parts of verify.h
 *
 *	verify.c        files against their manifest
 *	verify_again.c  blocks that were edited meanwhile
 */
#ifndef CK_VERIFY_PRIV_H
#define CK_VERIFY_PRIV_H

#include "core/seal/verify.h"

/*
 * Takes single blocks out of the damage of @v that are what the manifest of
 * now says of them.  Those of files that are being edited are marked already.
 */
void ck_verify_again(struct ck_verify *v);

#endif
