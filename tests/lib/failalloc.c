/* SPDX-License-Identifier: Apache-2.0 */
/* failalloc.c - what --wrap makes of malloc and its kin */
#include "tests/lib/failalloc.h"

#include "core/parse/json.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static unsigned long left;
static bool armed, happened;

/* json.c lets go of what jansson had: right, but a leak to a sanitizer. */
static bool lost_to_jansson(void)
{
#ifdef __SANITIZE_ADDRESS__
	return ck_json_loading();
#else
	return false;
#endif
}

static bool fails(void)
{
	if (!armed || lost_to_jansson() || --left)
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
