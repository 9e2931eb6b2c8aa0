/* SPDX-License-Identifier: Apache-2.0 */
/*
 * file_id.h - which file it was, and whether it still is
 *
 * A change of its bytes moves the time of the last change of bytes, which anybody may
 * set back, and that of the last change of its inode, which nobody can.  Where
 * the second alone is another, the file was "touched": by chmod, chown, link, rename
 * or an attribute, which leave its bytes, or by somebody who wrote and set the
 * first time back.  Nothing that was read of it before counts then.
 *
 * Threads: any; pure.
 */
#ifndef CK_FILE_ID_H
#define CK_FILE_ID_H

#include <stdint.h>
#include <sys/stat.h>

struct ck_id {
	uint64_t dev, ino, size;
	int64_t mtime_ns, ctime_ns;
};

enum ck_id_now { CK_ID_SAME, CK_ID_TOUCHED, CK_ID_CHANGED, CK_ID_ANOTHER };

static inline int64_t ck_ns(struct timespec t)
{
	return (int64_t)((uint64_t)t.tv_sec * 1000000000u +
			 (uint64_t)t.tv_nsec);
}

static inline struct ck_id ck_id_of(const struct stat *st)
{
	return (struct ck_id){
		.dev = st->st_dev,
		.ino = st->st_ino,
		.size = st->st_size < 0 ? 0 : (uint64_t)st->st_size,
		.mtime_ns = ck_ns(st->st_mtim),
		.ctime_ns = ck_ns(st->st_ctim),
	};
}

/* Of one that is reached by a way on which it has other numbers. */
static inline void ck_id_as(struct ck_id *now, const struct ck_id *was)
{
	now->dev = was->dev;
	now->ino = was->ino;
}

static inline enum ck_id_now ck_id_compare(const struct ck_id *was,
					   const struct ck_id *now)
{
	if (was->dev != now->dev || was->ino != now->ino)
		return CK_ID_ANOTHER;
	if (was->size != now->size || was->mtime_ns != now->mtime_ns)
		return CK_ID_CHANGED;
	return was->ctime_ns == now->ctime_ns ? CK_ID_SAME : CK_ID_TOUCHED;
}

#endif
