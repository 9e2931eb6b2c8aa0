/* SPDX-License-Identifier: Apache-2.0 */
/* failalloc.c - what --wrap makes of malloc and its kin */
#include "tests/lib/failalloc.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

static _Atomic unsigned long left;
static _Atomic bool armed, happened;

#ifdef __SANITIZE_ADDRESS__
#define SEEN __attribute__((visibility("default"))) /* by the sanitizer */

/* json.c lets go of what jansson had: right, but a leak to a sanitizer. */
SEEN const char *__lsan_default_suppressions(void);
const char *__lsan_default_suppressions(void)
{
	return "leak:malloc_or_leave\n";
}

SEEN const char *__lsan_default_options(void);
const char *__lsan_default_options(void)
{
	return "print_suppressions=0";
}
#endif

_Thread_local bool failalloc_apart;

static bool fails(void)
{
	if (failalloc_apart || !armed || atomic_fetch_sub(&left, 1) != 1)
		return false;
	armed = false;
	happened = true;
	errno = ENOMEM;
	return true;
}

void *__real_malloc(size_t size);
void *__real_calloc(size_t nr, size_t size);
void *__real_realloc(void *p, size_t size);
void *__real_reallocarray(void *p, size_t nr, size_t size);
char *__real_strdup(const char *s);
char *__real_strndup(const char *s, size_t len);

void *__wrap_malloc(size_t size);
void *__wrap_calloc(size_t nr, size_t size);
void *__wrap_realloc(void *p, size_t size);
void *__wrap_reallocarray(void *p, size_t nr, size_t size);
char *__wrap_strdup(const char *s);
char *__wrap_strndup(const char *s, size_t len);

void *__wrap_malloc(size_t size)
{
	return fails() ? NULL : __real_malloc(size);
}

void *__wrap_calloc(size_t nr, size_t size)
{
	return fails() ? NULL : __real_calloc(nr, size);
}

void *__wrap_realloc(void *p, size_t size)
{
	return fails() ? NULL : __real_realloc(p, size);
}

void *__wrap_reallocarray(void *p, size_t nr, size_t size)
{
	return fails() ? NULL : __real_reallocarray(p, nr, size);
}

char *__wrap_strdup(const char *s)
{
	return fails() ? NULL : __real_strdup(s);
}

char *__wrap_strndup(const char *s, size_t len)
{
	return fails() ? NULL : __real_strndup(s, len);
}

void failalloc_arm(unsigned long nth)
{
	left = nth;
	armed = nth != 0;
	happened = false;
}

bool failalloc_happened(void)
{
	armed = false;
	return happened;
}
