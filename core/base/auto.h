/* SPDX-License-Identifier: Apache-2.0 */
/*
 * auto.h - owned locals are released when they go out of scope
 *
 *	ck_auto_free char *text = NULL;
 *	ck_auto_fd int fd = open(...);
 *	ck_auto_lock(&table->lock);	(held until the scope ends)
 *	...
 *	*out = ck_steal(text);   (success takes the value away)
 */
#ifndef CK_AUTO_H
#define CK_AUTO_H

#include <dirent.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static inline void ck_cleanup_free(void *pp)
{
	free(*(void **)pp);
}

static inline void ck_cleanup_fd(const int *fd)
{
	if (*fd >= 0)
		close(*fd);
}

static inline void ck_cleanup_file(FILE **f)
{
	if (*f)
		fclose(*f);
}

static inline void ck_cleanup_dir(DIR **d)
{
	if (*d)
		closedir(*d);
}

static inline pthread_mutex_t *ck_locked(pthread_mutex_t *lock)
{
	pthread_mutex_lock(lock);
	return lock;
}

static inline void ck_cleanup_lock(pthread_mutex_t **lock)
{
	pthread_mutex_unlock(*lock);
}

#define ck_auto_free __attribute__((cleanup(ck_cleanup_free)))
#define ck_auto_fd __attribute__((cleanup(ck_cleanup_fd)))
#define ck_auto_file __attribute__((cleanup(ck_cleanup_file)))
#define ck_auto_dir __attribute__((cleanup(ck_cleanup_dir)))
/* Held from here to the end of the scope. */
#define ck_auto_lock(lock)                                          \
	pthread_mutex_t *locked_                                    \
		__attribute__((cleanup(ck_cleanup_lock), unused)) = \
			ck_locked(lock)

/* The value of @var, which is left NULL (for pointers) or -1 (descriptors). */
#define ck_steal(var)                           \
	({                                      \
		__typeof__(var) taken_ = (var); \
		(var) = NULL;                   \
		taken_;                         \
	})
#define ck_steal_fd(var)            \
	({                          \
		int taken_ = (var); \
		(var) = -1;         \
		taken_;             \
	})

#endif
