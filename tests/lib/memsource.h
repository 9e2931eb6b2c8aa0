/* SPDX-License-Identifier: Apache-2.0 */
/* memsource.h - bytes in memory as a source */
#ifndef TEST_MEMSOURCE_H
#define TEST_MEMSOURCE_H

#include "core/root/source.h"

#include <stddef.h>

/* Borrows the bytes, copies @name; NULL: no memory. */
struct ck_source *memsource(const void *bytes, size_t len, const char *name);

#endif
