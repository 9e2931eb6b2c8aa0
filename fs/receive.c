/* SPDX-License-Identifier: Apache-2.0 */
/*
 * receive.c - readv of a header and a payload; and when not to sleep
 *
 *	[in_header 40][write_in 40] [ what is to be written ... ]
 *	libfuse's buffer            a buffer of the thread's, on a page
 *
 * Two writers at once and the two workers that serve them have more to do
 * than two processors can.  A worker that sleeps is woken wherever it ran
 * last, often behind the other one, while the writer's processor has nothing
 * left to do.  One that looks again and again, and lets everybody else run in
 * between, goes on wherever there is room (docs/performance.md, "Write
 * path").  It gives up soon, and is not done for one writer; and no more of
 * them look than there are writers that nobody is serving.
 */
#include "fs/receive.h"

#include "core/base/check.h"
#include "core/base/clock.h"
#include "fs/buf.h"
#include "fs/kernel.h"

#include <errno.h>
#include <linux/fuse.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

#define HEAD (sizeof(struct fuse_in_header) + sizeof(struct fuse_write_in))
#define LARGE (HEAD + (256u << 10)) /* what is waited for */
#define LOOK_NS INT64_C(1000000)
#define CALM_NS INT64_C(50000000) /* after two writers met */

static _Thread_local char *payload;
static _Thread_local const char *stands_for; /* what libfuse takes it for */
static _Thread_local bool writing; /* counted in writers */
static pthread_once_t once = PTHREAD_ONCE_INIT;
static pthread_key_t key;

static _Atomic unsigned writers;
static _Atomic unsigned most; /* that met */
static _Atomic unsigned lookers; /* workers that look for a request */
static _Atomic int64_t met_ns = INT64_MIN / 2; /* when there were two */

static void make_key(void)
{
	if (pthread_key_create(&key, fs_buf_put))
		abort();
}

static char *own_payload(void)
{
	if (payload)
		return payload;
	pthread_once(&once, make_key);
	payload = fs_buf_get();
	pthread_setspecific(key, payload);
	return payload;
}

const char *fs_receive_payload(const char *buf)
{
	return buf == stands_for ? payload : buf;
}

/* Whether there may be a writer whom neither a worker serves nor one awaits. */
static bool may_come(void)
{
	return atomic_load(&lookers) + atomic_load(&writers) <=
	       atomic_load(&most);
}

/* Until there is a request, but not for long. */
static void look(int fd)
{
	struct pollfd p = { .fd = fd, .events = POLLIN };
	int64_t now = ck_now_ns(), end = now + LOOK_NS;

	if (now - atomic_load(&met_ns) > CALM_NS)
		return;
	atomic_fetch_add(&lookers, 1);
	while (may_come() && !poll(&p, 1, 0)) {
		if (ck_now_ns() > end) {
			atomic_store(&met_ns, INT64_MIN / 2);
			break;
		}
		sched_yield();
	}
	atomic_fetch_sub(&lookers, 1);
}

static void begin(void)
{
	unsigned nr = atomic_fetch_add(&writers, 1) + 1;
	int64_t now;

	writing = true;
	if (nr == 1)
		return;
	now = ck_now_ns();
	if (now - atomic_load(&met_ns) > CALM_NS || nr > atomic_load(&most))
		atomic_store(&most, nr);
	atomic_store(&met_ns, now);
}

static void end(int fd)
{
	writing = false;
	atomic_fetch_sub(&writers, 1);
	look(fd);
}

ssize_t fs_receive(int fd, void *buf, size_t len)
{
	const struct fuse_in_header *in = buf;
	char *to = own_payload();
	struct iovec iov[2] = {
		{ buf, HEAD },
		{ to, len > HEAD ? CK_MIN(len - HEAD, FS_MAX_IO) : 0 },
	};
	ssize_t n;

	stands_for = NULL;
	if (writing)
		end(fd);
	if (!to || !iov[1].iov_len)
		return read(fd, buf, len);
	n = readv(fd, iov, 2);
	if (n <= (ssize_t)HEAD)
		return n;
	if (in->opcode != FUSE_WRITE) {
		memcpy((char *)buf + HEAD, to, (size_t)n - HEAD);
		return n;
	}
	stands_for = (char *)buf + HEAD;
	if ((size_t)n >= LARGE)
		begin();
	return n;
}
