/* SPDX-License-Identifier: Apache-2.0 */
/*
 * optim_state.h - which tensors are an optimizer's, whatever their keys
 *
 * Told by shape: "state" beside "param_groups", with a name in it that
 * optimizers give to what they keep; two such names of one parameter; or
 * state/PARAMETER/NAME where no model would use NAME.
 */
#ifndef CK_OPTIM_STATE_H
#define CK_OPTIM_STATE_H

#include "core/geom/catalog.h"

#include <stdbool.h>

/* *is[i], to free(): whether @held[i] is.  -ENOMEM, then *is is NULL. */
int ck_optim_state_find(const struct ck_catalog *img, const uint32_t *held,
			uint32_t nr, bool **is);

#endif
