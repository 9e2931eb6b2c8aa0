/* SPDX-License-Identifier: Apache-2.0 */
/*
 * asker.c - the process that becomes who asks, and has the kernel answer
 *
 * Only the ids by which files are judged are changed (setfsuid and its like, and
 * the supplementary groups), so that it can change them again.  What it still
 * has of root's rights opens no file.
 */
#include "fs/ask/ask_priv.h"
#include "fs/ask/everybody.h"
#include "fs/ask/ids.h"

#include "core/base/auto.h"
#include "core/base/clock.h"
#include "core/base/fds.h"
#include "core/sandbox/exchange.h"
#include "core/sandbox/sandbox.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/fsuid.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>

#ifndef SYS_faccessat2
#define SYS_faccessat2 439 /* one number on all machines */
#endif
#ifndef AT_EACCESS
#define AT_EACCESS 0x200
#endif

#define NAME "unshard-asker"
#define MAX_DIRS 64
#define MAX_KEPT 16
#define KEEP_LEN 2048 /* bytes of items; of fewer files each is asked for */
#define KEEP_MAX (1 << 20)
#define MAP_ROOM 4096

/* An answer that may be given again. */
struct kept {
	struct fs_ids who; /* its groups are its own */
	char *items; /* NULL: none */
	uint32_t len;
	int32_t answer;
	int64_t until_ms;
};

struct asker {
	struct kept kept[MAX_KEPT];
	unsigned next_kept; /* to be used again */
	int fd, proc;
	struct fs_ids own, who;
	struct fs_ids now; /* those that it has taken on */
	bool becomes; /* it may take on others' ids */
	char *status; /* FS_IDS_ROOM */
	char uid_map[MAP_ROOM], gid_map[MAP_ROOM]; /* of our user namespace */
};

/* ---- who it is ---- */

/*
 * Whether a request by @head is the process's.  access(2) asks by its real ids,
 * with the rights of root if these are root's, else with none; a process may take
 * them on at any time.
 */
static bool is_his(struct fs_ids *who, const struct fs_ask_head *head)
{
	if (who->uid == head->uid && who->gid == head->gid)
		return true;
	if (who->real_uid != head->uid || who->real_gid != head->gid)
		return false;
	who->uid = who->real_uid;
	who->gid = who->real_gid;
	who->caps = who->uid ? 0 : who->permitted;
	return true;
}

/* Rights count where they were given: those of a namespace below are others. */
static bool same_namespace(const struct asker *a, pid_t pid)
{
	char map[MAP_ROOM];

	return fs_ids_read(a->proc, pid, "uid_map", map, sizeof(map)) > 0 &&
	       !strcmp(map, a->uid_map) &&
	       fs_ids_read(a->proc, pid, "gid_map", map, sizeof(map)) > 0 &&
	       !strcmp(map, a->gid_map);
}

static bool has(uint64_t caps, int cap)
{
	return caps & UINT64_C(1) << cap;
}

/* Who has such rights in our namespace is let pass as root is. */
static int passing(uint64_t caps)
{
	return has(caps, CAP_DAC_OVERRIDE)    ? R_OK | W_OK | X_OK :
	       has(caps, CAP_DAC_READ_SEARCH) ? R_OK | X_OK :
						0;
}

static bool is_self(const struct asker *a)
{
	return a->who.uid == a->own.uid && a->who.gid == a->own.gid &&
	       fs_ids_same_groups(&a->who, &a->own);
}

/* Each call says who it was before. */
static bool take_uid(struct asker *a, uid_t uid)
{
	if (a->now.uid != uid) {
		setfsuid(uid);
		a->now.uid = (uid_t)setfsuid(uid);
	}
	return a->now.uid == uid;
}

static bool take_gid(struct asker *a, gid_t gid)
{
	if (a->now.gid != gid) {
		setfsgid(gid);
		a->now.gid = (gid_t)setfsgid(gid);
	}
	return a->now.gid == gid;
}

static bool become(struct asker *a)
{
	if (!take_uid(a, a->who.uid) || !take_gid(a, a->who.gid))
		return false;
	if (fs_ids_same_groups(&a->who, &a->now))
		return true;
	if (syscall(SYS_setgroups, (size_t)a->who.nr, a->who.groups))
		return false;
	fs_ids_take_groups(&a->now, &a->who);
	return true;
}

/* ---- what he may ---- */

struct question {
	const struct fs_ids *who;
	uint64_t caps; /* that count here */
	int passes; /* what of a mask needs no asking */
	bool everybody; /* what all may, instead */
	int dirs[MAX_DIRS]; /* -errno: he cannot go there; ESTALE: another */
	unsigned nr;
};

static void end_dirs(struct question *q)
{
	while (q->nr)
		if (q->dirs[--q->nr] >= 0)
			close(q->dirs[q->nr]);
}

static const char *name_of(const struct fs_ask_item *item)
{
	return (const char *)(item + 1);
}

static bool is_it(int fd, const struct fs_ask_item *item)
{
	struct stat st;

	return !item->ino || (!fstat(fd, &st) && st.st_ino == item->ino &&
			      st.st_dev == item->dev);
}

static int check_fd(const struct question *q, int fd, int mask)
{
	mask &= ~q->passes;
	if (q->everybody)
		return fs_everybody_may(fd, (mode_t)mask) ? 0 : -EACCES;
	if (!syscall(SYS_faccessat2, fd, "", mask, AT_EMPTY_PATH | AT_EACCESS))
		return 0;
	return errno == EROFS ? -EROFS : -EACCES;
}

static int go_to(const struct question *q, const struct fs_ask_item *dir)
{
	ck_auto_fd int fd =
		open(name_of(dir), O_PATH | O_DIRECTORY | O_CLOEXEC);

	if (fd < 0 ||
	    (q->everybody && (!fs_everybody_goes(AT_FDCWD, name_of(dir)) ||
			      !fs_everybody_may(fd, S_IXOTH))))
		return -ENOENT;
	return is_it(fd, dir) ? ck_steal_fd(fd) : -ESTALE;
}

/* -ENOENT: it is not in that directory; -ESTALE: another is. */
static int check_in(const struct question *q, int dir,
		    const struct fs_ask_item *file)
{
	ck_auto_fd int fd = -1;

	if (dir < 0)
		return dir;
	if (!*name_of(file))
		return check_fd(q, dir, file->mask);
	fd = openat(dir, name_of(file),
		    O_PATH | O_CLOEXEC | (q->everybody ? O_NOFOLLOW : 0));
	if (fd < 0 || (q->everybody && !fs_everybody_goes(dir, name_of(file))))
		return -ENOENT;
	return is_it(fd, file) ? check_fd(q, fd, file->mask) : -ESTALE;
}

static int check_file(const struct question *q, const struct fs_ask_item *file)
{
	int found = -EACCES;

	if (!(file->mask & ~q->passes))
		return 0;
	for (unsigned i = 0; i < q->nr; i++) {
		int ret = check_in(q, q->dirs[i], file);

		if (ret != -ENOENT && ret != -ESTALE)
			return ret;
		if (ret == -ESTALE)
			found = ret;
	}
	return found;
}

/* @back directories before the last; else why not. */
static int dir_at(const struct question *q, unsigned back)
{
	int dir = q->nr > back ? q->dirs[q->nr - 1 - back] : -EACCES;

	if (q->everybody || dir == -ENOENT)
		return -EACCES;
	return dir;
}

/* @from, which may be the same: the directory before. */
static int change(const struct fs_ask_item *item, int from, int dir)
{
	ck_auto_free char *name = strdup(name_of(item));
	char *other = name ? strchr(name, '/') : NULL;

	if (!name || (!other && item->kind != FS_ASK_REMOVE))
		return -EACCES;
	if (other)
		*other++ = '\0';
	switch (item->kind) {
	case FS_ASK_LINK:
		return symlinkat(other, dir, name) ? -errno : 0;
	case FS_ASK_REMOVE:
		return unlinkat(dir, name, item->mask) ? -errno : 0;
	default:
		return ck_fds_rename(from, name, dir, other, item->mask);
	}
}

/* By who asks: what is made is his, and what goes he may remove. */
static int change_name(const struct question *q, const struct fs_ask_item *item)
{
	int dir = dir_at(q, 0);
	int from = item->kind == FS_ASK_RENAME ? dir_at(q, 1) : dir;

	if (dir < 0 || from < 0)
		return dir < 0 ? dir : from;
	return change(item, from, dir);
}

static bool in_group(const struct fs_ids *who, gid_t gid)
{
	bool in = who->gid == gid;

	for (unsigned i = 0; i < who->nr && !in; i++)
		in = who->groups[i] == gid;
	return in;
}

static int check_owner(const struct question *q, const struct fs_ask_item *item)
{
	bool owns = q->who->uid == item->dev || has(q->caps, CAP_FOWNER);
	bool in =
		in_group(q->who, (gid_t)item->ino) || has(q->caps, CAP_FSETID);

	return (item->mask & FS_OWNS && !owns) ||
			       (item->mask & FS_IN_GROUP && !in) ||
			       (item->mask & FS_GIVES &&
				!has(q->caps, CAP_CHOWN)) ?
		       -EPERM :
		       0;
}

static int take_item(struct question *q, const struct fs_ask_item *item)
{
	switch (item->kind) {
	case FS_ASK_ANEW:
		end_dirs(q);
		return 0;
	case FS_ASK_DIR:
		if (q->nr < MAX_DIRS)
			q->dirs[q->nr++] = go_to(q, item);
		return 0;
	case FS_ASK_LINK:
	case FS_ASK_REMOVE:
	case FS_ASK_RENAME:
		return change_name(q, item);
	case FS_ASK_OWNER:
		return check_owner(q, item);
	case FS_ASK_WAY:
		return fs_everybody_sees(name_of(item)) ? 0 : -EACCES;
	default:
		return check_file(q, item);
	}
}

static int take_items(struct question *q, const char *buf, size_t len)
{
	int ret = 0;

	while (!ret && len) {
		const struct fs_ask_item *item = (const void *)buf;

		if (len < sizeof(*item) || len < fs_ask_size(item))
			return -EACCES;
		ret = take_item(q, item);
		len -= fs_ask_size(item);
		buf += fs_ask_size(item);
	}
	return ret;
}

/* ---- what was asked before ---- */

static bool same_ids(const struct fs_ids *a, const struct fs_ids *b)
{
	return a->uid == b->uid && a->gid == b->gid && fs_ids_same_groups(a, b);
}

static const struct kept *find_kept(const struct asker *a, const char *items,
				    uint32_t len)
{
	int64_t now = ck_now_ms();

	for (unsigned i = 0; i < MAX_KEPT; i++) {
		const struct kept *k = &a->kept[i];

		if (k->items && k->until_ms > now && k->len == len &&
		    same_ids(&k->who, &a->who) && !memcmp(k->items, items, len))
			return k;
	}
	return NULL;
}

static void keep(struct asker *a, const char *items, uint32_t len,
		 int64_t until_ms, int32_t said)
{
	struct kept *k = &a->kept[a->next_kept++ % MAX_KEPT];

	free(k->items);
	free(k->who.groups);
	*k = (struct kept){ .who = a->who,
			    .items = malloc(len),
			    .len = len,
			    .answer = said,
			    .until_ms = until_ms };
	k->who.groups = malloc((a->who.nr + (size_t)1) * sizeof(gid_t));
	if (k->items && k->who.groups) {
		memcpy(k->items, items, len);
		fs_ids_take_groups(&k->who, &a->who);
		return;
	}
	free(k->items);
	free(k->who.groups);
	*k = (struct kept){ 0 };
}

static bool may_keep(const struct asker *a, const struct fs_ask_head *head,
		     const struct question *q)
{
	return head->keep_ms && head->len > KEEP_LEN && head->len < KEEP_MAX &&
	       !q->passes && a->becomes;
}

static int answer(struct asker *a, const struct fs_ask_head *head,
		  const char *items)
{
	int64_t until = ck_now_ms() + head->keep_ms;
	const struct kept *k = NULL;
	struct question q = { .who = &a->who };
	int ret;

	/* some show /proc/PID to its own user only */
	take_uid(a, head->uid);
	if (!fs_ids_know(a->proc, head->pid, a->status, &a->who) ||
	    !is_his(&a->who, head))
		return -EACCES;
	if (a->who.caps && same_namespace(a, head->pid))
		q.caps = a->who.caps;
	q.passes = passing(q.caps);
	q.everybody = !a->becomes && !is_self(a);
	if (may_keep(a, head, &q))
		k = find_kept(a, items, head->len);
	if (k)
		return k->answer;
	if (a->becomes && !become(a))
		return -EACCES;
	ret = take_items(&q, items, head->len);
	end_dirs(&q);
	if (may_keep(a, head, &q))
		keep(a, items, head->len, until, ret);
	return ret;
}

/* ---- the process ---- */

static bool get(int fd, char *buf, size_t *have, size_t want, size_t room)
{
	while (*have < want) {
		ssize_t n = read(fd, buf + *have, room - *have);

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return false;
		*have += (size_t)n;
	}
	return true;
}

/* Room for @whole bytes; false: none. */
static bool grow(char **buf, size_t *room, size_t whole)
{
	char *grown = whole > *room ? realloc(*buf, whole) : *buf;

	if (!grown)
		return false;
	*buf = grown;
	if (whole > *room)
		*room = whole;
	return true;
}

/* 0 where the worker has ended, as which a broken pipe counts. */
static int serve(struct asker *a)
{
	size_t room = 65536;
	ck_auto_free char *buf = malloc(room);

	while (buf) {
		struct fs_ask_head head;
		size_t have = 0, whole;
		int32_t ret;

		if (!get(a->fd, buf, &have, sizeof(head), room))
			return 0;
		memcpy(&head, buf, sizeof(head));
		whole = sizeof(head) + head.len;
		if (head.len > FS_ASK_MAX || !grow(&buf, &room, whole))
			return 1;
		if (!get(a->fd, buf, &have, whole, room))
			return 0;
		ret = answer(a, &head, buf + sizeof(head));
		if (write(a->fd, &ret, sizeof(ret)) != sizeof(ret))
			return 0;
		ck_exchange_look(a->fd);
	}
	return 1;
}

static bool can_become(void)
{
	struct __user_cap_header_struct head = {
		.version = _LINUX_CAPABILITY_VERSION_3,
	};
	struct __user_cap_data_struct data[_LINUX_CAPABILITY_U32S_3];
	const uint32_t both = 1u << CAP_SETUID | 1u << CAP_SETGID;

	return !syscall(SYS_capget, &head, data) &&
	       (data[0].effective & both) == both;
}

static int prepare(struct asker *a, struct ck_err *err)
{
	a->proc = open("/proc", O_PATH | O_DIRECTORY | O_CLOEXEC);
	a->status = malloc(FS_IDS_ROOM);
	a->own.groups = malloc(FS_IDS_GROUPS * sizeof(gid_t));
	a->who.groups = malloc(FS_IDS_GROUPS * sizeof(gid_t));
	a->now.groups = malloc(FS_IDS_GROUPS * sizeof(gid_t));
	if (!a->status || !a->own.groups || !a->who.groups || !a->now.groups)
		return ck_no_memory(err);
	a->becomes = can_become();
	if (a->proc < 0 || !fs_ids_are_ours(a->proc, a->status) ||
	    !fs_ids_know(a->proc, getpid(), a->status, &a->own) ||
	    a->own.uid != geteuid() ||
	    fs_ids_read(a->proc, getpid(), "uid_map", a->uid_map, MAP_ROOM) <
		    0 ||
	    fs_ids_read(a->proc, getpid(), "gid_map", a->gid_map, MAP_ROOM) < 0)
		return ck_fail(err, EPERM,
			       "allow-other: /proc does not show this process, "
			       "and so not who asks");
	a->now.uid = a->own.uid;
	a->now.gid = a->own.gid;
	fs_ids_take_groups(&a->now, &a->own);
	if (syscall(SYS_faccessat2, a->proc, "", X_OK,
		    AT_EMPTY_PATH | AT_EACCESS))
		return ck_fail(err, EPERM,
			       "allow-other: this kernel cannot be asked "
			       "(faccessat2, Linux 5.8): %s",
			       strerror(errno));
	return 0;
}

static void run(struct asker *a, const struct fs_askers *s)
{
	const struct ck_sandbox_in in = { .role = CK_SANDBOX_ASKER,
					  .write_dir = s->names };
	struct ck_err err = { 0 };
	int keep[] = { 2, a->fd, a->proc };
	sigset_t none;

	prctl(PR_SET_NAME, NAME);
	for (int sig = SIGHUP; sig <= SIGTERM; sig++)
		if (sig == SIGHUP || sig == SIGINT || sig == SIGTERM)
			signal(sig, SIG_IGN); /* for the supervisor */
	signal(SIGPIPE, SIG_IGN);
	sigemptyset(&none);
	sigprocmask(SIG_SETMASK, &none, NULL);
	ck_fds_close_others(keep, sizeof(keep) / sizeof(keep[0]));
	/* with -o sandbox=off too: what it may itself is no answer */
	if (!prepare(a, &err) && !ck_sandbox_drop_caps(&in, &err) && s->sandbox)
		ck_sandbox_enter(&in, NULL, &err);
	if (write(a->fd, &err, sizeof(err)) != sizeof(err) || err.code)
		_exit(1);
	_exit(serve(a));
}

pid_t fs_ask_fork(const struct fs_askers *s, int *fd)
{
	struct asker a = { .proc = -1 };
	int ends[2];
	pid_t pid;

	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends))
		return -errno;
	pid = fork();
	if (!pid) {
		a.fd = ends[1];
		run(&a, s);
	}
	close(ends[1]);
	if (pid > 0) {
		*fd = ends[0];
		return pid;
	}
	close(ends[0]);
	return -EAGAIN;
}
