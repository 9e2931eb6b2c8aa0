/* SPDX-License-Identifier: Apache-2.0 */
/*
 * swap.c - bytes to and from all other ranks at once
 *
 * What is sent begins with a head that says the number of the swap and how much
 * follows, so that ranks that are not at the same place find out before a byte
 * is taken for another.  The last thing a rank says is who is to blame.
 */
#include "core/comm/comm_priv.h"

#include "core/base/auto.h"
#include "core/base/check.h"
#include "core/base/clock.h"

#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

#define LAST UINT64_MAX /* as a seq: len is the rank because of which */

struct head {
	uint64_t seq, len;
};

/* One way of one socket. */
struct flow {
	struct head head;
	uint64_t moved, total; /* bytes, the head's too; total 0: none */
	struct iovec *v;
	unsigned nr;
};

struct swap {
	struct ck_comm *c;
	struct flow *in, *out;
	struct pollfd *fds;
	unsigned left; /* flows */
	unsigned blamed;
};

void ck_comm_end(struct ck_comm *c, unsigned whom)
{
	const struct head last = { LAST, whom };

	c->ended = true;
	for (unsigned i = 0; i < c->ranks; i++) {
		int fd = ck_steal_fd(c->peer[i].fd);

		if (fd < 0)
			continue;
		/* Nobody waits for who does not take it. */
		if (send(fd, &last, sizeof(last), MSG_NOSIGNAL | MSG_DONTWAIT) <
		    0)
			shutdown(fd, SHUT_RDWR);
		close(fd);
	}
	if (c->ops->end)
		c->ops->end(c);
}

static void begin(struct swap *s, struct flow *f, struct ck_comm_bytes *b)
{
	if (!b || !b->len)
		return;
	*f = (struct flow){ { s->c->seq, b->len },
			    0,
			    b->len + sizeof(struct head),
			    b->v,
			    b->nr };
	s->left++;
}

/* What is to be moved next; how many of @to. */
static unsigned next(struct flow *f, struct iovec *to, unsigned room)
{
	unsigned nr = 0;

	if (f->moved < sizeof(f->head))
		to[nr++] = (struct iovec){ (char *)&f->head + f->moved,
					   sizeof(f->head) - f->moved };
	for (unsigned i = 0; i < f->nr && nr < room; i++)
		to[nr++] = f->v[i];
	return nr;
}

static void step(struct swap *s, struct flow *f, size_t n)
{
	size_t head = sizeof(f->head) - CK_MIN(f->moved, sizeof(f->head));

	f->moved += n;
	n -= CK_MIN(n, head);
	while (f->nr && n >= f->v->iov_len) {
		n -= f->v->iov_len;
		f->v++;
		f->nr--;
	}
	if (n) {
		f->v->iov_base = (char *)f->v->iov_base + n;
		f->v->iov_len -= n;
	}
	if (f->moved == f->total)
		s->left--;
}

static int lost(struct swap *s, unsigned rank, int code, struct ck_err *err)
{
	s->blamed = rank;
	return ck_fail(err, ECONNRESET, "rank %u of %u is gone: %s", rank,
		       s->c->ranks,
		       code ? strerror(code) : "its connection was closed");
}

/* The head of @rank is there. */
static int check(struct swap *s, unsigned rank, const struct head *want,
		 struct ck_err *err)
{
	const struct head *got = &s->in[rank].head;

	if (got->seq == LAST) {
		s->blamed = got->len < s->c->ranks ? (unsigned)got->len : rank;
		return ck_fail(err, ECONNRESET,
			       "rank %u of %u is gone: rank %u says so",
			       s->blamed, s->c->ranks, rank);
	}
	if (got->seq == want->seq && got->len == want->len)
		return 0;
	s->blamed = rank;
	return ck_fail(err, EPROTO,
		       "rank %u of %u sends %llu bytes as message %llu, "
		       "expected %llu as message %llu",
		       rank, s->c->ranks, (unsigned long long)got->len,
		       (unsigned long long)got->seq,
		       (unsigned long long)want->len,
		       (unsigned long long)want->seq);
}

static int pull(struct swap *s, unsigned rank, struct ck_err *err)
{
	struct flow *f = &s->in[rank];
	const struct head want = { s->c->seq, f->total - sizeof(struct head) };
	struct iovec iov[64];
	struct msghdr msg = { .msg_iov = iov };
	bool in_head = f->moved < sizeof(f->head);
	ssize_t n;

	/* The head alone first: what follows may not be what is expected. */
	msg.msg_iovlen = next(f, iov, in_head ? 1 : CK_ARRAY_LEN(iov));
	n = recvmsg(s->c->peer[rank].fd, &msg, 0);
	if (!n)
		return lost(s, rank, 0, err);
	if (n < 0)
		return errno == EAGAIN || errno == EINTR ?
			       0 :
			       lost(s, rank, errno, err);
	step(s, f, (size_t)n);
	return in_head && f->moved == sizeof(f->head) ?
		       check(s, rank, &want, err) :
		       0;
}

static bool is_open(const struct flow *f)
{
	return f->moved < f->total;
}

/* It takes no more; what it said last, behind all else, may tell why. */
static int refused(struct swap *s, unsigned rank, int code, struct ck_err *err)
{
	struct flow *f = &s->in[rank];
	const struct head want = { LAST, 0 };
	uint64_t moved = UINT64_MAX;
	int ret = 0;

	while (!ret && is_open(f) && f->moved != moved) {
		moved = f->moved;
		ret = pull(s, rank, err);
	}
	if (!ret && !is_open(f) &&
	    recv(s->c->peer[rank].fd, &f->head, sizeof(f->head), 0) ==
		    sizeof(f->head) &&
	    f->head.seq == LAST)
		ret = check(s, rank, &want, err);
	return ret ? ret : lost(s, rank, code, err);
}

static int push(struct swap *s, unsigned rank, struct ck_err *err)
{
	struct flow *f = &s->out[rank];
	struct iovec iov[64];
	struct msghdr msg = { .msg_iov = iov };
	ssize_t n;

	msg.msg_iovlen = next(f, iov, CK_ARRAY_LEN(iov));
	n = sendmsg(s->c->peer[rank].fd, &msg, MSG_NOSIGNAL);
	if (n >= 0)
		step(s, f, (size_t)n);
	else if (errno != EAGAIN && errno != EINTR)
		return refused(s, rank, errno, err);
	return 0;
}

static int late(struct swap *s, struct ck_err *err)
{
	for (unsigned i = 0; i < s->c->ranks; i++)
		if (is_open(&s->in[i]) || is_open(&s->out[i])) {
			s->blamed = i;
			break;
		}
	return ck_fail(err, ETIMEDOUT,
		       "rank %u of %u did not answer within %d.%03d s",
		       s->blamed, s->c->ranks, s->c->timeout_ms / 1000,
		       s->c->timeout_ms % 1000);
}

static int turn(struct swap *s, int64_t until, struct ck_err *err)
{
	struct ck_comm *c = s->c;
	int64_t left = until - ck_now_ms();
	int ret = 0;

	if (left <= 0)
		return late(s, err);
	for (unsigned i = 0; i < c->ranks; i++) {
		bool in = is_open(&s->in[i]), out = is_open(&s->out[i]);

		s->fds[i] = (struct pollfd){
			in || out ? c->peer[i].fd : -1,
			(short)((in ? POLLIN : 0) | (out ? POLLOUT : 0)), 0
		};
	}
	s->fds[c->ranks] = (struct pollfd){ c->event, POLLIN, 0 };
	if (poll(s->fds, c->ranks + 1, (int)left) < 0 && errno != EINTR)
		return ck_fail(err, errno, "poll: %s", strerror(errno));
	if (c->aborted)
		return ck_fail(err, ECANCELED, "the communicator was ended");
	for (unsigned i = 0; i < c->ranks && !ret; i++) {
		short got = s->fds[i].revents;

		/* What it said last comes before that it is gone. */
		if (is_open(&s->in[i]) && got & (POLLIN | POLLHUP | POLLERR))
			ret = pull(s, i, err);
		if (!ret && is_open(&s->out[i]) && got &&
		    !(got & POLLIN && is_open(&s->in[i]) && got & POLLHUP))
			ret = push(s, i, err);
	}
	return ret;
}

struct ck_comm_fault ck_comm_fault;

static int moment(struct ck_err *err)
{
	struct ck_comm_fault *f = &ck_comm_fault;

	f->passed++;
	if (!f->left || --f->left)
		return 0;
	if (f->how > 0)
		raise(f->how);
	return f->how >= 0 ? 0 : ck_fail(err, -f->how, "a fault");
}

int ck_comm_swap(struct ck_comm *c, struct ck_comm_bytes *send,
		 struct ck_comm_bytes *recv, struct ck_err *err)
{
	ck_auto_free struct flow *flows = calloc(c->ranks, 2 * sizeof(*flows));
	ck_auto_free struct pollfd *fds = calloc(c->ranks + 1, sizeof(*fds));
	struct swap s = { .c = c, .in = flows, .fds = fds, .blamed = c->rank };
	int64_t until = ck_now_ms() + c->timeout_ms;
	int ret;

	if (!c->connected || c->ended)
		return ck_fail(err, ENOTCONN, "the communicator %s",
			       c->ended ? "has ended" : "is not connected");
	ret = !flows || !fds ? ck_no_memory(err) : moment(err);
	s.out = flows + c->ranks;
	for (unsigned i = 0; i < c->ranks && !ret; i++) {
		if (i == c->rank)
			continue;
		begin(&s, &s.in[i], &recv[i]);
		begin(&s, &s.out[i], &send[i]);
		if (s.out[i].total)
			ret = push(&s, i, err);
	}
	if (!ret)
		ret = moment(err);
	while (!ret && s.left)
		ret = turn(&s, until, err);
	c->seq++;
	/* In the middle of a message nothing is said any more. */
	for (unsigned i = 0; ret && flows && i < c->ranks; i++)
		if (s.out[i].moved && is_open(&s.out[i]))
			shutdown(c->peer[i].fd, SHUT_WR);
	if (ret)
		ck_comm_end(c, s.blamed);
	return ret;
}

int ck_comm_move(struct ck_comm *c, unsigned nr, struct ck_comm_bytes *send,
		 struct ck_comm_bytes *recv, bool whole, struct ck_err *err)
{
	int ret;

	if (!c->ops->move)
		return ck_comm_swap(c, send, recv, err);
	if (!c->connected || c->ended)
		return ck_fail(err, ENOTCONN, "the communicator has ended");
	c->blamed = c->rank;
	ret = moment(err);
	if (!ret)
		ret = c->ops->move(c, nr, send, recv, whole, err);
	if (!ret)
		ret = moment(err);
	if (ret)
		ck_comm_end(c, c->blamed);
	return ret;
}

/* Its connection was closed; what it said last may tell why. */
static int hung_up(struct ck_comm *c, unsigned rank, struct ck_err *err)
{
	struct head last;

	c->blamed = rank;
	if (recv(c->peer[rank].fd, &last, sizeof(last),
		 MSG_PEEK | MSG_DONTWAIT) == sizeof(last) &&
	    last.seq == LAST && last.len < c->ranks && last.len != rank) {
		c->blamed = (unsigned)last.len;
		return ck_fail(err, ECONNRESET,
			       "rank %u of %u is gone: rank %u says so",
			       c->blamed, c->ranks, rank);
	}
	return ck_fail(err, ECONNRESET,
		       "rank %u of %u is gone: its connection was closed", rank,
		       c->ranks);
}

int ck_comm_watch(struct ck_comm *c, int64_t ns, struct ck_err *err)
{
	ck_auto_free struct pollfd *fds = calloc(c->ranks + 1, sizeof(*fds));
	const struct timespec time = { ns / 1000000000, ns % 1000000000 };

	if (!fds)
		return ck_no_memory(err);
	for (unsigned i = 0; i < c->ranks; i++)
		fds[i] = (struct pollfd){ c->peer[i].fd, POLLRDHUP, 0 };
	fds[c->ranks] = (struct pollfd){ c->event, POLLIN, 0 };
	if (ppoll(fds, c->ranks + 1, &time, NULL) < 0 && errno != EINTR)
		return ck_fail(err, errno, "poll: %s", strerror(errno));
	if (c->aborted)
		return ck_fail(err, ECANCELED, "the communicator was ended");
	for (unsigned i = 0; i < c->ranks; i++)
		if (fds[i].revents)
			return hung_up(c, i, err);
	return 0;
}

int ck_comm_gather(struct ck_comm *c, const void *mine, void *out, size_t each,
		   struct ck_err *err)
{
	ck_auto_free struct ck_comm_bytes *all =
		calloc(c->ranks, 2 * sizeof(*all));
	ck_auto_free struct iovec *iov = calloc(c->ranks, 2 * sizeof(*iov));

	if (!all || !iov)
		return ck_no_memory(err);
	for (unsigned i = 0; i < c->ranks; i++) {
		struct iovec *to = &iov[2 * i], *from = to + 1;

		*to = (struct iovec){ (void *)(uintptr_t)mine, each };
		*from = (struct iovec){ (char *)out + i * each, each };
		all[i] = (struct ck_comm_bytes){ to, 1, each };
		all[c->ranks + i] = (struct ck_comm_bytes){ from, 1, each };
	}
	memcpy((char *)out + c->rank * each, mine, each);
	return ck_comm_swap(c, all, all + c->ranks, err);
}
