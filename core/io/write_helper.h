/* SPDX-License-Identifier: Apache-2.0 */
/*
 * write_helper.h - a second thread for the writes of one request
 *
 * A writer waits for its answer, so that while its bytes are copied into the
 * files' pages every other processor is idle.  Who writes a lot, and writes
 * alone, is helped: a thread of this module's takes some of the requests.
 *
 * Threads: any.  The thread is made when it is needed first; it never holds a
 * request back, for its caller does whatever it has not begun.
 */
#ifndef CK_WRITE_HELPER_H
#define CK_WRITE_HELPER_H

#include "core/io/engine.h"

#include <stdbool.h>

struct ck_write_helper;

/* @may: else it never helps.  NULL: no memory. */
struct ck_write_helper *ck_write_helper_new(bool may);
void ck_write_helper_free(struct ck_write_helper *helper);

/* As the run() of @ops in the caller's thread, and when it is done. */
void ck_write_helper_run(struct ck_write_helper *helper,
			 const struct ck_engine_ops *ops, struct ck_io *io,
			 unsigned nr);

#endif
