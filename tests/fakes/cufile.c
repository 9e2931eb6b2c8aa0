/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cufile.c - a libcufile.so.0 beside the libcuda.so.1 of cuda.c, with scripted faults
 *
 * FAKE_CUFILE="driver=5001,old=1,compat=1,register=5008,room=5036,eio=6,fail=6,
 * short=65536,slow=1": what the driver, files and memory are refused with; a release
 * whose compatibility mode cannot be turned off, or was on before; the read that fails,
 * with errno or a code of its own; bytes that a read has at most; microseconds that
 * each takes.  What is not as cuFile wants it is refused: no current context, a file
 * without O_DIRECT, memory that is not registered, places that are not of whole blocks.
 */
#include "core/device/cufile_abi.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define API __attribute__((visibility("default")))
#define DECLARE(ret, name, args) API ret name args;
CK_CUFILE_CALLS(DECLARE)
CK_CUFILE_NEW_CALLS(DECLARE)

/* Of the fake libcuda. */
int fake_cuda_put(uint64_t mem, const void *from, size_t len);
/* For tests. */
API long fake_cufile_count(const char *what);

#define MAX 64
#define REFUSED 5022

static struct {
	pthread_mutex_t lock;
	bool started, compat;
	long reads, files, rooms;
	struct {
		uint64_t mem;
		size_t len;
	} room[MAX];
} fake = { .lock = PTHREAD_MUTEX_INITIALIZER, .compat = true };

static long told(const char *name)
{
	const char *at = getenv("FAKE_CUFILE");
	size_t len = strlen(name);

	for (; at && *at; at += strcspn(at, ","), at += *at == ',')
		if (!strncmp(at, name, len) && at[len] == '=')
			return strtol(at + len + 1, NULL, 10);
	return 0;
}

static struct ck_cufile_error result(long code)
{
	return (struct ck_cufile_error){ (unsigned)code, 0 };
}

long fake_cufile_count(const char *what)
{
	long n;

	pthread_mutex_lock(&fake.lock);
	n = !strcmp(what, "reads") ? fake.reads :
	    !strcmp(what, "files") ? fake.files :
				     fake.rooms;
	pthread_mutex_unlock(&fake.lock);
	return n;
}

struct ck_cufile_error cuFileGetVersion(int *version)
{
	*version = 1140;
	return result(0);
}

struct ck_cufile_error cuFileSetParameterBool(unsigned what, bool value)
{
	if (what != CK_CUFILE_ALLOW_COMPAT || fake.started || told("compat"))
		return result(REFUSED);
	fake.compat = value;
	return result(0);
}

struct ck_cufile_error cuFileDriverOpen(void)
{
	if (told("driver"))
		return result(told("driver"));
	if (fake.started)
		return result(CK_CUFILE_ALREADY_OPEN);
	fake.started = true;
	return result(0);
}

struct ck_cufile_error cuFileDriverGetProperties(struct ck_cufile_props *props)
{
	memset(props, 0, sizeof(*props));
	if (fake.compat)
		props->fs.control = 1u << CK_CUFILE_ALLOW_COMPAT;
	return result(fake.started ? 0 : CK_CUFILE_NOT_INITIALIZED);
}

struct ck_cufile_error cuFileHandleRegister(void **handle,
					    struct ck_cufile_descr *descr)
{
	int fd = descr->handle.fd;

	if (told("register"))
		return result(told("register"));
	if (descr->type != CK_CUFILE_FD || !(fcntl(fd, F_GETFL) & O_DIRECT))
		return result(REFUSED);
	pthread_mutex_lock(&fake.lock);
	fake.files++;
	pthread_mutex_unlock(&fake.lock);
	*handle = (void *)(intptr_t)(fd + 1);
	return result(0);
}

void cuFileHandleDeregister(void *handle)
{
	if (fcntl((int)(intptr_t)handle - 1, F_GETFL) < 0)
		abort(); /* it was closed before */
	pthread_mutex_lock(&fake.lock);
	fake.files--;
	pthread_mutex_unlock(&fake.lock);
}

struct ck_cufile_error cuFileBufRegister(const void *mem, size_t len, int flags)
{
	long code = flags ? REFUSED : told("room");

	if (code)
		return result(code);
	pthread_mutex_lock(&fake.lock);
	code = fake.rooms == MAX ? REFUSED : 0;
	if (!code) {
		fake.room[fake.rooms].mem = (uintptr_t)mem;
		fake.room[fake.rooms++].len = len;
	}
	pthread_mutex_unlock(&fake.lock);
	return result(code);
}

struct ck_cufile_error cuFileBufDeregister(const void *mem)
{
	long code = REFUSED;

	pthread_mutex_lock(&fake.lock);
	for (long i = 0; i < fake.rooms; i++)
		if (fake.room[i].mem == (uintptr_t)mem) {
			fake.room[i] = fake.room[--fake.rooms];
			code = 0;
		}
	pthread_mutex_unlock(&fake.lock);
	return result(code);
}

static bool in_room(uint64_t mem, uint64_t end)
{
	bool in = false;

	for (long i = 0; i < fake.rooms; i++)
		in |= fake.room[i].mem == mem && end <= fake.room[i].len;
	return in;
}

/* Whether it is to be done; else its answer. */
static bool allowed(const void *mem, size_t len, off_t off, off_t mem_off,
		    ssize_t *answer)
{
	long nth;
	bool in;

	pthread_mutex_lock(&fake.lock);
	nth = ++fake.reads;
	in = in_room((uintptr_t)mem, (uint64_t)mem_off + len);
	pthread_mutex_unlock(&fake.lock);
	*answer = -REFUSED;
	if (!in || len % 4096 || off % 4096 || mem_off % 4096)
		return false;
	if (told("eio") == nth) {
		errno = EIO;
		*answer = -1;
		return false;
	}
	*answer = -CK_CUFILE_INTERNAL;
	return !told("fail") || nth < told("fail");
}

ssize_t cuFileRead(void *handle, void *mem, size_t len, off_t off,
		   off_t mem_off)
{
	long most = told("short");
	ssize_t n;
	void *buf;

	if (!allowed(mem, len, off, mem_off, &n))
		return n;
	if (most && len > (size_t)most)
		len = (size_t)most;
	if (posix_memalign(&buf, 4096, len))
		return -REFUSED;
	if (told("slow"))
		usleep((useconds_t)told("slow"));
	n = pread((int)(intptr_t)handle - 1, buf, len, off);
	if (n > 0 &&
	    fake_cuda_put((uintptr_t)mem + (uint64_t)mem_off, buf, (size_t)n))
		n = -REFUSED;
	free(buf);
	return n;
}
