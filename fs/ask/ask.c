/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ask.c - the worker's side: questions, and seats of askers that answer them
 *
 * A seat has an asker, or may have one, and one question at a time.  Whoever gave
 * up, or had no answer in time, does not know what is on the way: the seat is left
 * without that asker.
 */
#include "fs/ask/ask_priv.h"

#include "core/base/check.h"
#include "core/base/clock.h"
#include "core/base/fds.h"
#include "core/sandbox/exchange.h"
#include "fs/kernel/reply.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define MAX_KEEP 3600.0
#define MAX_SEATS (FS_ASKERS_MAX / 2) /* the others may not have ended yet */
#define BUSY_MS 20 /* then another asker is started */
#define FILES_PER_MS 0.1 /* so many at least */
#define MAX_MS 120000

struct seat {
	int fd; /* -1: no asker */
	pid_t pid;
	bool busy;
	uid_t uid; /* of whom that is for */
};

struct fs_asker {
	int more; /* to who starts askers */
	uint32_t keep_ms;
	int64_t limit_ms;
	pthread_mutex_t lock; /* of what follows */
	pthread_cond_t freed;
	struct seat seats[MAX_SEATS]; /* who has one busy has it alone */
};

static void add(struct fs_question *q, unsigned kind, const char *name,
		int mask, dev_t dev, ino_t ino)
{
	static const struct fs_ask_head later;
	static const char pad[8];
	const struct fs_ask_item item = {
		.dev = dev,
		.ino = ino,
		.name_len = (uint32_t)strlen(name),
		.kind = (uint16_t)kind,
		.mask = (uint16_t)mask,
	};

	if (!q->text.len)
		ck_str_add(&q->text, &later, sizeof(later));
	ck_str_add(&q->text, &item, sizeof(item));
	ck_str_add(&q->text, name, item.name_len);
	ck_str_add(&q->text, pad,
		   fs_ask_size(&item) - sizeof(item) - item.name_len);
}

void fs_question_dir(struct fs_question *q, const char *path,
		     const struct stat *st)
{
	add(q, FS_ASK_DIR, path, 0, st ? st->st_dev : 0, st ? st->st_ino : 0);
}

void fs_question_file(struct fs_question *q, const char *name, int mask,
		      dev_t dev, ino_t ino)
{
	add(q, FS_ASK_FILE, name, mask, dev, ino);
}

void fs_question_anew(struct fs_question *q)
{
	add(q, FS_ASK_ANEW, "", 0, 0, 0);
}

void fs_question_change(struct fs_question *q, enum fs_ask_kind what,
			const char *name, const char *other, int flags)
{
	ck_auto_str struct ck_str text = { 0 };

	ck_str_fmt(&text, "%s%s%s", name, other ? "/" : "", other ? other : "");
	q->changes = true;
	q->text.failed |= text.failed;
	if (!text.failed)
		add(q, what, text.v, flags, 0, 0);
}

void fs_question_owner(struct fs_question *q, uid_t uid, gid_t gid, int rights)
{
	add(q, FS_ASK_OWNER, "", rights, uid, gid);
}

void fs_question_way(struct fs_question *q, const char *path)
{
	add(q, FS_ASK_WAY, path, 0, 0, 0);
}

static bool put_more(struct fs_asker *a, const struct fs_ask_order *order)
{
	return send(a->more, order, sizeof(*order),
		    MSG_NOSIGNAL | MSG_DONTWAIT) == sizeof(*order);
}

/* ---- an asker more ---- */

/* A message of who starts them, which may be for one who gave up. */
static int receive(int from, struct seat *out)
{
	struct fs_ask_started said = { 0 };
	unsigned nr = 1;
	ssize_t n = ck_fds_receive(from, &said, sizeof(said), &out->fd, &nr,
				   MSG_DONTWAIT);

	if (n < 0)
		return (int)n;
	if (n != sizeof(said))
		return -EPIPE;
	if (!nr)
		return said.pid < 0 ? said.pid : -EPROTO;
	out->pid = said.pid;
	return 0;
}

/* Ends what the seat holds: it ends by itself when it is free to. */
static void leave(struct fs_asker *a, struct seat *seat)
{
	const struct fs_ask_order order = { .end = seat->pid };

	close(seat->fd);
	put_more(a, &order);
}

static int start(struct fs_asker *a, struct seat *out,
		 const struct ck_patience *p, struct ck_err *err)
{
	const struct fs_ask_order order = { .start = 1 };
	struct ck_err said = { 0 };
	int ret = put_more(a, &order) ? -EAGAIN : -EPIPE;

	while (ret == -EAGAIN) {
		ret = ck_exchange_wait(a->more, POLLIN, p);
		if (!ret)
			ret = receive(a->more, out);
	}
	if (ret)
		return ck_fail(err, -ret,
			       "allow-other: no process that asks for other "
			       "users could be started: %s",
			       strerror(-ret));
	ret = ck_exchange_get(out->fd, &said, sizeof(said), p);
	if (!ret && !said.code)
		return 0;
	leave(a, out);
	if (!ret) {
		*err = said;
		return -said.code;
	}
	return ck_fail(err, -ret,
		       "allow-other: the process that asks for other users "
		       "%s",
		       ret == -EPIPE ? "ended at once" : "did not begin");
}

/* ---- seats ---- */

static unsigned held_by(const struct fs_asker *a, uid_t uid)
{
	unsigned nr = 0;

	for (unsigned i = 0; i < MAX_SEATS; i++)
		nr += a->seats[i].busy && a->seats[i].uid == uid;
	return nr;
}

/* One that waits for work; else where another might sit; or NULL. */
static struct seat *free_seat(struct fs_asker *a, bool more)
{
	struct seat *empty = NULL;

	for (unsigned i = 0; i < MAX_SEATS; i++) {
		struct seat *s = &a->seats[i];

		if (!s->busy && s->fd >= 0)
			return s;
		if (!s->busy && !empty)
			empty = s;
	}
	return more ? empty : NULL;
}

static void wait_ms(struct fs_asker *a, int64_t ms)
{
	struct timespec t = ck_deadline(CLOCK_MONOTONIC, ms * 1000000);

	pthread_cond_timedwait(&a->freed, &a->lock, &t);
}

/* A seat that nobody else has, with or without an asker. */
static int take(struct fs_asker *a, uid_t uid, const struct ck_patience *p,
		struct seat **out)
{
	bool more = true, waited = false;
	int ret = 0;

	pthread_mutex_lock(&a->lock);
	for (unsigned i = 0; i < MAX_SEATS; i++)
		more &= a->seats[i].fd < 0;
	for (;; more = true) {
		*out = held_by(a, uid) < MAX_SEATS / 2 ? free_seat(a, more) :
							 NULL;
		if (*out)
			break;
		if (waited && p->stopped && p->stopped(p->ctx))
			ret = -EINTR;
		else if (ck_now_ms() >= p->until_ms)
			ret = -ETIMEDOUT;
		if (ret)
			break;
		wait_ms(a, more ? CK_EXCHANGE_LOOK_MS : BUSY_MS);
		waited = more;
	}
	if (*out) {
		(*out)->busy = true;
		(*out)->uid = uid;
	}
	pthread_mutex_unlock(&a->lock);
	return ret;
}

static void give(struct fs_asker *a, struct seat *seat, bool usable)
{
	if (!usable && seat->fd >= 0)
		leave(a, seat);
	pthread_mutex_lock(&a->lock);
	if (!usable)
		seat->fd = -1;
	seat->busy = false;
	pthread_cond_broadcast(&a->freed);
	pthread_mutex_unlock(&a->lock);
}

/* ---- the calls ---- */

static int first(struct fs_asker *a, struct ck_err *err)
{
	const struct ck_patience p = ck_patience(FS_ASK_SECONDS);

	return start(a, &a->seats[0], &p, err);
}

int fs_asker_new(struct fs_asker **out, int fd, double keep, struct ck_err *err)
{
	struct fs_asker *a = calloc(1, sizeof(*a));
	double seconds = FS_ASK_SECONDS;
	pthread_condattr_t attr;
	int ret;

	if (!a) {
		close(fd);
		return ck_no_memory(err);
	}
	a->more = fd;
	a->keep_ms = (uint32_t)(CK_MIN(keep, MAX_KEEP) * 1000);
	for (unsigned i = 0; i < MAX_SEATS; i++)
		a->seats[i].fd = -1;
	pthread_mutex_init(&a->lock, NULL);
	pthread_condattr_init(&attr);
	pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	pthread_cond_init(&a->freed, &attr);
	pthread_condattr_destroy(&attr);
	ret = fs_seconds_from_env("UNSHARD_ASK", &seconds, err);
	a->limit_ms = (int64_t)(CK_MIN(seconds, MAX_MS / 1000) * 1000);
	if (!ret)
		ret = first(a, err);
	if (ret)
		fs_asker_free(a);
	else
		*out = a;
	return ret;
}

void fs_asker_free(struct fs_asker *a)
{
	if (!a)
		return;
	for (unsigned i = 0; i < MAX_SEATS; i++)
		if (a->seats[i].fd >= 0)
			close(a->seats[i].fd);
	close(a->more);
	pthread_cond_destroy(&a->freed);
	pthread_mutex_destroy(&a->lock);
	free(a);
}

static struct ck_patience patience_of(const struct fs_asker *a,
				      const struct fs_caller *who, size_t len)
{
	double files = (double)(len / sizeof(struct fs_ask_item));
	int64_t ms = a->limit_ms + (int64_t)(files / FILES_PER_MS);

	return (struct ck_patience){ .until_ms =
					     ck_now_ms() + CK_MIN(ms, MAX_MS),
				     .stopped = who->stopped,
				     .ctx = who->ctx };
}

/* 0 and the answer, or the seat's asker is of no use any more. */
static int ask(struct fs_asker *a, const struct fs_caller *who,
	       struct seat *seat, const struct fs_question *q, int32_t *answer)
{
	const struct ck_patience p = patience_of(a, who, q->text.len);
	struct ck_err err;
	int ret = seat->fd < 0 ? start(a, seat, &p, &err) : 0;

	if (ret) {
		if (ret != -EINTR)
			fs_log("%s", err.msg);
		return ret == -EINTR || ret == -ETIMEDOUT ? ret : -EACCES;
	}
	ret = ck_exchange_put(seat->fd, q->text.v, q->text.len, &p);
	if (ret)
		return ret;
	ck_exchange_look(seat->fd);
	ret = ck_exchange_get(seat->fd, answer, sizeof(*answer), &p);
	/* it may have been done, and is not to be done twice */
	return ret == -EPIPE && q->changes ? -EIO : ret;
}

/* -EPIPE: the asker was gone; -EIO: before it said whether it did it. */
static int ask_once(struct fs_asker *a, const struct fs_caller *who,
		    const struct fs_question *q, int32_t *answer)
{
	const struct ck_patience p = patience_of(a, who, 0);
	struct seat *seat;
	int ret = take(a, who->uid, &p, &seat);

	if (ret)
		return ret;
	ret = ask(a, who, seat, q, answer);
	give(a, seat, !ret);
	return !ret || ret == -EINTR || ret == -ETIMEDOUT || ret == -EACCES ||
			       ret == -EIO ?
		       ret :
		       -EPIPE;
}

int fs_asker_ask(struct fs_asker *a, const struct fs_caller *who,
		 struct fs_question *q)
{
	struct fs_ask_head head = {
		.pid = who->pid,
		.uid = who->uid,
		.gid = who->gid,
		.keep_ms = q->changes ? 0 : a->keep_ms,
	};
	int32_t answer = -EACCES;
	int ret = -EPIPE;

	if (q->text.failed)
		return -ENOMEM;
	if (who->pid <= 0 || q->text.len <= sizeof(head) ||
	    q->text.len > FS_ASK_MAX)
		return -EACCES;
	head.len = (uint32_t)(q->text.len - sizeof(head));
	memcpy(q->text.v, &head, sizeof(head));
	for (unsigned i = 0; ret == -EPIPE && i <= MAX_SEATS; i++)
		ret = ask_once(a, who, q, &answer);
	if (!ret)
		return answer;
	if (ret == -EINTR)
		return ret;
	if (ret == -ETIMEDOUT) {
		fs_log("allow-other: no answer in time to what user %u may do, "
		       "of files below %s",
		       (unsigned)who->uid,
		       q->text.v + sizeof(head) + sizeof(struct fs_ask_item));
		return -EIO;
	}
	if (ret == -EIO)
		fs_log("allow-other: a process that asks ended before it said "
		       "whether it did what user %u wanted, below %s",
		       (unsigned)who->uid,
		       q->text.v + sizeof(head) + sizeof(struct fs_ask_item));
	return ret == -EIO ? ret : -EACCES;
}
