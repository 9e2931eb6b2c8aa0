/* SPDX-License-Identifier: Apache-2.0 */
/*
 * handover.c - one thread, one message from each caller and one to him
 *
 * A caller that says nothing keeps nobody waiting: all of them are polled, and
 * of too many the one that came first is let go.
 */
#include "fs/handover.h"

#include "core/base/fds.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#define MAX_CALLERS 32
#define MAX_TOKENS 256

enum { STOP, LISTEN, FIRST_CALLER };

struct entry {
	unsigned char token[CK_MAP_TOKEN_LEN];
	int fd; /* -1: none */
};

struct fs_handover {
	struct ck_map_token name;
	int listen_fd, stop_fd;
	bool started;
	pthread_t thread;
	struct pollfd poll[FIRST_CALLER + MAX_CALLERS]; /* of the thread */
	unsigned next_caller;
	pthread_mutex_t lock; /* of what follows */
	struct entry entry[MAX_TOKENS];
	unsigned next;
};

/* A name that nobody can have had before. */
static int name_it(struct fs_handover *h)
{
	struct sockaddr_un at = { .sun_family = AF_UNIX };
	unsigned char random[16];
	size_t n;

	if (getrandom(random, sizeof(random), 0) != sizeof(random))
		return -errno;
	n = (size_t)snprintf(h->name.socket, sizeof(h->name.socket),
			     "unshard-");
	for (size_t i = 0; i < sizeof(random); i++)
		n += (size_t)snprintf(h->name.socket + n,
				      sizeof(h->name.socket) - n, "%02x",
				      random[i]);
	memcpy(at.sun_path + 1, h->name.socket, n);
	if (bind(h->listen_fd, (struct sockaddr *)&at,
		 (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + n)) ||
	    listen(h->listen_fd, MAX_CALLERS))
		return -errno;
	return 0;
}

struct fs_handover *fs_handover_open(void)
{
	struct fs_handover *h = calloc(1, sizeof(*h));

	if (!h)
		return NULL;
	h->stop_fd = -1;
	h->listen_fd = socket(AF_UNIX,
			      SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	pthread_mutex_init(&h->lock, NULL);
	for (unsigned i = 0; i < MAX_TOKENS; i++)
		h->entry[i].fd = -1;
	for (unsigned i = 0; i < FIRST_CALLER + MAX_CALLERS; i++)
		h->poll[i] = (struct pollfd){ -1, POLLIN, 0 };
	if (h->listen_fd >= 0 && !name_it(h))
		return h;
	fs_handover_close(h);
	return NULL;
}

int fs_handover_fd(const struct fs_handover *h)
{
	return h ? h->listen_fd : -1;
}

/* The descriptor of the token, which is good no more; -1: there is none. */
static int take(struct fs_handover *h, const unsigned char *token)
{
	int fd = -1;

	pthread_mutex_lock(&h->lock);
	for (unsigned i = 0; fd < 0 && i < MAX_TOKENS; i++) {
		struct entry *e = &h->entry[i];

		if (e->fd < 0 || memcmp(e->token, token, sizeof(e->token)))
			continue;
		fd = e->fd;
		e->fd = -1;
	}
	pthread_mutex_unlock(&h->lock);
	return fd;
}

static void answer(struct fs_handover *h, struct pollfd *caller)
{
	unsigned char token[CK_MAP_TOKEN_LEN];
	ssize_t n = recv(caller->fd, token, sizeof(token), MSG_DONTWAIT);
	int fd = n == sizeof(token) ? take(h, token) : -1;

	if (fd >= 0) {
		ck_fds_send(caller->fd, "", 1, &fd, 1, MSG_DONTWAIT);
		close(fd);
	}
	close(caller->fd);
	caller->fd = -1;
}

static void let_in(struct fs_handover *h)
{
	int fd = accept4(h->listen_fd, NULL, NULL, SOCK_CLOEXEC);
	struct pollfd *at =
		&h->poll[FIRST_CALLER + h->next_caller++ % MAX_CALLERS];

	if (fd < 0)
		return;
	if (at->fd >= 0)
		close(at->fd);
	at->fd = fd;
	at->revents = 0;
}

static void *run(void *ctx)
{
	struct fs_handover *h = ctx;

	for (;;) {
		if (poll(h->poll, FIRST_CALLER + MAX_CALLERS, -1) < 0) {
			if (errno != EINTR)
				return NULL;
			continue;
		}
		if (h->poll[STOP].revents)
			return NULL;
		for (unsigned i = FIRST_CALLER; i < FIRST_CALLER + MAX_CALLERS;
		     i++)
			if (h->poll[i].revents)
				answer(h, &h->poll[i]);
		if (h->poll[LISTEN].revents)
			let_in(h);
	}
}

void fs_handover_start(struct fs_handover *h)
{
	if (!h)
		return;
	h->stop_fd = eventfd(0, EFD_CLOEXEC);
	h->poll[STOP].fd = h->stop_fd;
	h->poll[LISTEN].fd = h->listen_fd;
	h->started =
		h->stop_fd >= 0 && !pthread_create(&h->thread, NULL, run, h);
}

int fs_handover_add(struct fs_handover *h, int fd, struct ck_map_token *out)
{
	struct entry *e;

	*out = h->name;
	if (!h->started || getrandom(out->token, sizeof(out->token),
				     GRND_NONBLOCK) != sizeof(out->token)) {
		close(fd);
		return -ENOTTY;
	}
	pthread_mutex_lock(&h->lock);
	e = &h->entry[h->next++ % MAX_TOKENS];
	if (e->fd >= 0)
		close(e->fd);
	e->fd = fd;
	memcpy(e->token, out->token, sizeof(e->token));
	pthread_mutex_unlock(&h->lock);
	return 0;
}

static void stop(struct fs_handover *h)
{
	static const uint64_t one = 1;

	if (write(h->stop_fd, &one, sizeof(one)) == sizeof(one))
		pthread_join(h->thread, NULL);
}

void fs_handover_close(struct fs_handover *h)
{
	if (!h)
		return;
	if (h->started)
		stop(h);
	for (unsigned i = FIRST_CALLER; i < FIRST_CALLER + MAX_CALLERS; i++)
		if (h->poll[i].fd >= 0)
			close(h->poll[i].fd);
	for (unsigned i = 0; i < MAX_TOKENS; i++)
		if (h->entry[i].fd >= 0)
			close(h->entry[i].fd);
	if (h->stop_fd >= 0)
		close(h->stop_fd);
	if (h->listen_fd >= 0)
		close(h->listen_fd);
	pthread_mutex_destroy(&h->lock);
	free(h);
}
