/* SPDX-License-Identifier: Apache-2.0 */
/*
 * self_writes.h - which changes of source files do not make them others
 *
 * A source that changed since it was described is not read any more (files.h),
 * unless the change is a write of ours.  Who writes says so before and after;
 * in between the times of the last change mean nothing, and when the last of
 * several writers is done, the times that the file then has are those to be
 * expected.  What somebody else changed before the first of them is found.
 *
 * One that was touched (geom/file_id.h) is read on, but what was read of it before
 * counts no more: who keeps any of it, or is just reading, compares the number of
 * touches, which moves on as the clock does.
 *
 * Threads: any; a short lock for who writes, none for who looks.
 */
#ifndef CK_SELF_WRITES_H
#define CK_SELF_WRITES_H

#include "core/base/err.h"
#include "core/geom/catalog.h"

struct ck_self_writes;

struct ck_self_writes *ck_self_writes_new(
	const struct ck_catalog *img); /* NULL: no memory */
void ck_self_writes_free(struct ck_self_writes *self_writes);

/*
 * A write to @src, open as @fd, begins; @since: the clock before its file was
 * last compared with what is known of it.  -ESTALE where somebody else changed
 * it, and then it must not be ended.
 */
int ck_self_writes_begin(struct ck_self_writes *self_writes, uint32_t src,
			 int fd, uint64_t since, struct ck_err *err);
void ck_self_writes_end(struct ck_self_writes *self_writes, uint32_t src,
			int fd);

/* What @src is to be, its times those of the last change that we know of. */
struct ck_id ck_self_writes_id(const struct ck_self_writes *self_writes,
			       uint32_t src);
/* @src, open as @fd, seems to have been touched. */
void ck_self_writes_touch(struct ck_self_writes *self_writes, uint32_t src,
			  int fd);
/* How often that was found, of any. */
uint64_t ck_self_writes_touches(const struct ck_self_writes *self_writes);
/* Whether it was found of @src since this was asked last. */
bool ck_self_writes_take_touch(struct ck_self_writes *self_writes,
			       uint32_t src);
/*
 * A clock that every begin and end moves on.  What was read of @src since
 * @since is what it holds now if nothing was written later.
 */
uint64_t ck_self_writes_clock(const struct ck_self_writes *self_writes);
bool ck_self_writes_still(const struct ck_self_writes *self_writes,
			  uint32_t src, uint64_t since);
/* Whether @src is being written. */
bool ck_self_writes_busy(const struct ck_self_writes *self_writes,
			 uint32_t src);

#endif
