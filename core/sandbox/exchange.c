/* SPDX-License-Identifier: Apache-2.0 */
#include "core/sandbox/exchange.h"

#include "core/base/check.h"
#include "core/base/clock.h"

#include <errno.h>
#include <poll.h>
#include <sched.h>
#include <sys/socket.h>
#include <unistd.h>

struct ck_patience ck_patience(unsigned seconds)
{
	return (struct ck_patience){ .until_ms = ck_now_ms() +
						 (int64_t)seconds * 1000 };
}

int ck_exchange_wait(int fd, short events, const struct ck_patience *p)
{
	struct pollfd at = { .fd = fd, .events = events };

	for (;;) {
		int64_t left = p->until_ms - ck_now_ms();
		int n;

		if (left <= 0)
			return -ETIMEDOUT;
		n = poll(&at, 1, (int)CK_MIN(left, CK_EXCHANGE_LOOK_MS));
		if (n > 0)
			return 0;
		if (n < 0 && errno != EINTR)
			return -errno;
		if (!n && p->stopped && p->stopped(p->ctx))
			return -EINTR;
	}
}

void ck_exchange_look(int fd)
{
	struct pollfd at = { .fd = fd, .events = POLLIN };
	int64_t until = ck_now_ns() + CK_EXCHANGE_AWAKE_NS;

	while (!poll(&at, 1, 0) && ck_now_ns() < until)
		sched_yield();
}

static bool again(ssize_t n)
{
	return n < 0 && (errno == EINTR || errno == EAGAIN);
}

int ck_exchange_put(int fd, const void *buf, size_t len,
		    const struct ck_patience *p)
{
	while (len) {
		ssize_t n =
			p ? send(fd, buf, len, MSG_NOSIGNAL | MSG_DONTWAIT) :
			    write(fd, buf, len);
		int ret = 0;

		if (p && again(n))
			ret = ck_exchange_wait(fd, POLLOUT, p);
		else if (n < 0 && !again(n))
			ret = -errno;
		if (ret)
			return ret;
		if (n < 0)
			continue;
		buf = (const char *)buf + n;
		len -= (size_t)n;
	}
	return 0;
}

int ck_exchange_get(int fd, void *buf, size_t len, const struct ck_patience *p)
{
	while (len) {
		/* who is alone at it does not wait for what is there */
		int ret = p ? ck_exchange_wait(fd, POLLIN, p) : 0;
		ssize_t n;

		if (ret)
			return ret;
		n = read(fd, buf, len);
		if (again(n))
			continue;
		if (n <= 0)
			return n ? -errno : -EPIPE;
		buf = (char *)buf + n;
		len -= (size_t)n;
	}
	return 0;
}
