/* SPDX-License-Identifier: Apache-2.0 */
/* pickles.h - what a parsed pickle took */
#ifndef PICKLES_H
#define PICKLES_H

#include "core/parse/pickle_priv.h"

/* Bytes of the arena that parsing wrote, its memo included. */
static inline uint64_t pickle_memory(const struct ck_pickle *p)
{
	return (p->used + p->memo) * sizeof(uint64_t);
}

#endif
