/* SPDX-License-Identifier: Apache-2.0 */
/*
 * mesh.c - a socket to each other rank
 *
 * Each connects to the ranks before it and is connected to by those behind.  Who
 * connects says the key of him whom he connects to, and is answered with his
 * own: so both have read the same addresses.  A stranger is let go, and nobody
 * waits for him.
 */
#include "core/comm/comm_priv.h"

#include "core/base/auto.h"
#include "core/base/check.h"
#include "core/base/clock.h"
#include "core/base/str.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>

#define MAGIC UINT64_C(0x316d6f6364726873) /* "shrdcom1" */
#define STRANGERS 64 /* who have not said who they are, at a time */

struct hello {
	uint64_t magic, block;
	uint32_t rank, ranks;
	unsigned char key[CK_COMM_KEY];
};

struct guest {
	int fd; /* -1: none */
	uint64_t
		came; /* to the listener, as which; 0: it is connected to rank */
	bool said; /* its hello was sent */
	unsigned rank;
	size_t got;
	struct hello hello;
};

struct meeting {
	struct ck_comm *c;
	const struct ck_comm_place *places;
	unsigned nr, left; /* guests; ranks that are not there yet */
	uint64_t nr_came;
	struct guest *v;
};

static bool say(const struct meeting *m, int fd, unsigned to)
{
	struct hello h = { .magic = MAGIC,
			   .block = m->c->block,
			   .rank = m->c->rank,
			   .ranks = m->c->ranks };

	memcpy(h.key, m->places[to].key, sizeof(h.key));
	return send(fd, &h, sizeof(h), MSG_NOSIGNAL) == sizeof(h);
}

static void let_go(struct guest *g)
{
	if (g->fd >= 0)
		close(g->fd);
	*g = (struct guest){ .fd = -1 };
}

static bool is_good(const struct meeting *m, const struct guest *g)
{
	const struct hello *h = &g->hello;
	unsigned char differ = 0;

	for (unsigned i = 0; i < CK_COMM_KEY; i++)
		differ |= h->key[i] ^ m->c->key[i];
	if (differ || h->magic != MAGIC || h->ranks != m->c->ranks ||
	    h->block != m->c->block)
		return false;
	if (!g->came)
		return h->rank == g->rank;
	return h->rank > m->c->rank && h->rank < m->c->ranks &&
	       m->c->peer[h->rank].fd < 0;
}

/* There are bytes of a hello, or its end. */
static int hear(struct meeting *m, struct guest *g, struct ck_err *err)
{
	ssize_t n = recv(g->fd, (char *)&g->hello + g->got,
			 sizeof(g->hello) - g->got, 0);
	unsigned rank = g->rank;
	bool came = g->came;

	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return 0;
	if (n > 0 && (g->got += (size_t)n) < sizeof(g->hello))
		return 0;
	if (n <= 0 || !is_good(m, g) ||
	    (came && !say(m, g->fd, g->hello.rank))) {
		let_go(g);
		return came ? 0 :
			      ck_fail(err, ECONNREFUSED,
				      "rank %u of %u, to which this is rank "
				      "%u, does not know it: not the same "
				      "addresses, ranks or blocks",
				      rank, m->c->ranks, m->c->rank);
	}
	m->c->peer[g->hello.rank].fd = ck_steal_fd(g->fd);
	m->left--;
	return 0;
}

/* For one more; where all are taken, that of who is silent the longest. */
static struct guest *make_place(struct meeting *m)
{
	struct guest *first = NULL;

	for (unsigned i = 0; i < m->nr; i++) {
		struct guest *g = &m->v[i];

		if (g->fd < 0)
			return g;
		if (g->came && (!first || g->came < first->came))
			first = g;
	}
	if (first)
		let_go(first);
	return first;
}

static void let_in(struct meeting *m)
{
	int fd = accept4(m->c->listener, NULL, NULL,
			 SOCK_CLOEXEC | SOCK_NONBLOCK);
	struct guest *g = NULL;

	if (fd >= 0 && !m->c->ops->greet(fd))
		g = make_place(m);
	if (g)
		*g = (struct guest){ .fd = fd, .came = ++m->nr_came };
	else if (fd >= 0)
		close(fd);
}

static int gone(const struct meeting *m, unsigned rank, int code,
		struct ck_err *err)
{
	return ck_fail(err, code, "rank %u of %u cannot be reached: %s", rank,
		       m->c->ranks, strerror(code));
}

static int go_to(struct meeting *m, unsigned rank, struct ck_err *err)
{
	const struct ck_comm_place *to = &m->places[rank];
	struct guest *g = &m->v[rank];

	*g = (struct guest){ .rank = rank };
	g->fd = socket(to->addr.ss_family,
		       SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (g->fd < 0)
		return gone(m, rank, errno, err);
	if (connect(g->fd, (const void *)&to->addr, to->len) &&
	    errno != EINPROGRESS)
		return gone(m, rank, errno, err);
	return 0;
}

/* It is connected, or cannot be. */
static int arrive(struct meeting *m, struct guest *g, struct ck_err *err)
{
	int code = 0;
	socklen_t len = sizeof(code);

	if (getsockopt(g->fd, SOL_SOCKET, SO_ERROR, &code, &len))
		code = errno;
	if (!code && m->c->ops->greet(g->fd))
		code = EACCES;
	if (!code && !say(m, g->fd, g->rank))
		code = errno;
	g->said = true;
	return code ? gone(m, g->rank, code, err) : 0;
}

static int late(const struct meeting *m, struct ck_err *err)
{
	ck_auto_str struct ck_str who = { 0 };
	const struct ck_comm *c = m->c;

	for (unsigned i = 0, nr = 0; i < c->ranks; i++)
		if (i != c->rank && c->peer[i].fd < 0 && nr++ < 16)
			ck_str_fmt(&who, "%s%u", nr > 1 ? ", " : "", i);
	return ck_fail(err, ETIMEDOUT,
		       "rank %s%s of %u did not come within %d.%03d s",
		       who.v ? who.v : "?", m->left > 16 ? ", ..." : "",
		       c->ranks, c->timeout_ms / 1000, c->timeout_ms % 1000);
}

static int turn(struct meeting *m, struct pollfd *fds, int64_t until,
		struct ck_err *err)
{
	int64_t left = until - ck_now_ms();
	int ret = 0;

	if (left <= 0)
		return late(m, err);
	for (unsigned i = 0; i < m->nr; i++) {
		bool out = !m->v[i].came && !m->v[i].said;

		fds[i] = (struct pollfd){ m->v[i].fd, out ? POLLOUT : POLLIN,
					  0 };
	}
	fds[m->nr] = (struct pollfd){ m->c->listener, POLLIN, 0 };
	fds[m->nr + 1] = (struct pollfd){ m->c->event, POLLIN, 0 };
	if (poll(fds, m->nr + 2, (int)left) < 0 && errno != EINTR)
		return ck_fail(err, errno, "poll: %s", strerror(errno));
	if (m->c->aborted)
		return ck_fail(err, ECANCELED, "the communicator was ended");
	if (fds[m->nr].revents)
		let_in(m);
	for (unsigned i = 0; i < m->nr && !ret; i++) {
		if (m->v[i].fd < 0 || m->v[i].fd != fds[i].fd ||
		    !fds[i].revents)
			continue;
		ret = fds[i].events == POLLOUT ? arrive(m, &m->v[i], err) :
						 hear(m, &m->v[i], err);
	}
	return ret;
}

int ck_comm_mesh(struct ck_comm *c, const struct ck_comm_place *places,
		 struct ck_err *err)
{
	struct meeting m = { .c = c,
			     .places = places,
			     .nr = c->ranks + STRANGERS,
			     .left = c->ranks - 1 };
	ck_auto_free struct guest *v = calloc(m.nr, sizeof(*v));
	ck_auto_free struct pollfd *fds = calloc(m.nr + 2, sizeof(*fds));
	int64_t until = ck_now_ms() + c->timeout_ms;
	int ret = 0;

	if (!v || !fds)
		return ck_no_memory(err);
	m.v = v;
	for (unsigned i = 0; i < m.nr; i++)
		v[i].fd = -1;
	for (unsigned i = 0; i < c->rank && !ret; i++)
		ret = go_to(&m, i, err);
	while (!ret && m.left)
		ret = turn(&m, fds, until, err);
	for (unsigned i = 0; i < m.nr; i++)
		let_go(&v[i]);
	return ret;
}
