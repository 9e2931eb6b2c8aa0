/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cufile.h - files into memory of GPUs by cuFile, where that is there
 *
 * libcufile.so.0 is opened when it is first asked for, and never closed.  Its
 * compatibility mode, which reads by way of the host and does not say so, is off;
 * where it cannot be turned off cuFile is not used.  The context of the device is
 * current in who calls.
 */
#ifndef CK_CUFILE_H
#define CK_CUFILE_H

#include "core/base/err.h"

#include <stddef.h>
#include <stdint.h>

/* 0: it is there and reads; else why not. */
int ck_cufile_start(struct ck_err *err);
int ck_cufile_open(int fd, void **file, struct ck_err *err);
void ck_cufile_close(void *file);
/* Memory that is read into; until it is let go. */
int ck_cufile_register(uint64_t mem, size_t len, struct ck_err *err);
void ck_cufile_unregister(uint64_t mem);
/* How much was read to @at bytes behind @mem, which is registered. */
int64_t ck_cufile_read(void *file, uint64_t mem, uint64_t at, size_t len,
		       uint64_t off, struct ck_err *err);

#endif
