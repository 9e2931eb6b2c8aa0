/* SPDX-License-Identifier: Apache-2.0 */
/*
 * receive.c - readv of a header and a payload
 *
 *	[in_header 40][write_in 40] [ what is to be written ... ]
 *	libfuse's buffer            a buffer of the thread's, on a page
 */
#include "fs/kernel/receive.h"

#include "core/base/check.h"
#include "fs/kernel/buf.h"
#include "fs/kernel/throttle.h"
#include "fs/kernel/kernel.h"

#include <linux/fuse.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

#define HEAD (sizeof(struct fuse_in_header) + sizeof(struct fuse_write_in))
#define LARGE (HEAD + (256u << 10))

static _Thread_local char *payload;
static _Thread_local const char *stands_for; /* what libfuse takes it for */
static pthread_once_t once = PTHREAD_ONCE_INIT;
static pthread_key_t key;

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

/* Of @n bytes at @in, and from a writer: pages of maps come as others do. */
static bool is_large(const struct fuse_in_header *in, size_t n)
{
	const struct fuse_write_in *w = (const void *)(in + 1);

	return in->opcode == FUSE_WRITE && n >= LARGE &&
	       !(w->write_flags & FUSE_WRITE_CACHE);
}

ssize_t fs_receive(int fd, void *buf, size_t len)
{
	const struct fuse_in_header *in = buf;
	char *to = own_payload();
	struct iovec iov[2] = {
		{ buf, HEAD },
		{ to, len > HEAD ? CK_MIN(len - HEAD, FS_MAX_IO) : 0 },
	};
	bool pages = to && iov[1].iov_len;
	ssize_t n;

	stands_for = NULL;
	fs_throttle_enter();
	n = pages ? readv(fd, iov, 2) : read(fd, buf, len);
	if (n <= 0) {
		fs_throttle_none();
		return n;
	}
	fs_throttle_leave(is_large(in, (size_t)n));
	if (n <= (ssize_t)HEAD || !pages)
		return n;
	if (in->opcode != FUSE_WRITE) {
		memcpy((char *)buf + HEAD, to, (size_t)n - HEAD);
		return n;
	}
	stands_for = (char *)buf + HEAD;
	return n;
}
