/* SPDX-License-Identifier: Apache-2.0 */
/*
 * draft_state.c - what was said of a draft: its journal, and the link "doomed"
 *
 * The journal is made with the draft, while there is room, so that its first
 * records need none.  Whoever appends holds a lock, so that it is one journal
 * of all mounts and commands.  That bytes were lost has to be said where no
 * lock and no block is to be had, so it is a link of its own, which fits into
 * an inode.
 */
#include "core/draft/draft.h"

#include "core/base/auto.h"
#include "core/base/check.h"
#include "core/root/fault_point.h"
#include "core/root/journal.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#define JOURNAL "journal"
#define KIND 1
#define DOOMED "doomed"
#define WHY_INLINE 59 /* bytes of a link that take no block, on ext4 */

/* Numbers are on the disk. */
enum said {
	WHEN_COMPLETE = 1, /* no body */
	WHEN_QUIET = 2, /* no body */
	REFUSED = 3, /* a line */
	BAD = 4, /* u64, a line */
	COMMIT = 5, /* struct commit, a name */
};

struct commit {
	uint64_t ranks, ino;
	uint32_t replace, holes;
};

/* ---- reading ---- */

static bool get_text(char *to, size_t room, const char *from, size_t len)
{
	if (len >= room || memchr(from, '\0', len))
		return false;
	memcpy(to, from, len);
	to[len] = '\0';
	return true;
}

static bool get_commit(struct ck_draft_said *out,
		       const struct ck_journal_record *r)
{
	struct commit c;

	if (r->len < sizeof(c))
		return false;
	memcpy(&c, r->body, sizeof(c));
	out->commit.ranks = c.ranks;
	out->commit.ino = c.ino;
	out->commit.replace = c.replace;
	out->commit.holes = c.holes;
	out->begun = get_text(out->commit.as, sizeof(out->commit.as),
			      (const char *)r->body + sizeof(c),
			      r->len - sizeof(c)) &&
		     ck_draft_name_ok(out->commit.as);
	return out->begun;
}

static bool get_bad(struct ck_draft_said *out,
		    const struct ck_journal_record *r)
{
	const size_t key = sizeof(out->bad_signature);

	if (r->len < key)
		return false;
	memcpy(&out->bad_signature, r->body, key);
	return get_text(out->bad, sizeof(out->bad), (const char *)r->body + key,
			r->len - key);
}

static int take(void *ctx, const struct ck_journal_record *r,
		struct ck_err *err)
{
	struct ck_draft_said *out = ctx;
	bool ok = false;

	if (r->type == WHEN_COMPLETE)
		ok = out->when_complete = !r->len;
	else if (r->type == WHEN_QUIET)
		ok = out->when_quiet = !r->len;
	else if (r->type == REFUSED)
		ok = get_text(out->refused, sizeof(out->refused), r->body,
			      r->len);
	else if (r->type == BAD)
		ok = get_bad(out, r);
	else if (r->type == COMMIT)
		ok = get_commit(out, r);
	return ok ? 0 :
		    ck_fail(err, EINVAL,
			    JOURNAL ": record %llu: expected one of this "
				    "version of unshard, found type %u of %u "
				    "bytes",
			    (unsigned long long)r->number, r->type, r->len);
}

static int open_journal(const struct ck_draft *s, struct ck_journal *j,
			bool write, struct ck_err *err)
{
	return ck_journal_open(j, s->fd, JOURNAL, write, KIND, 0, "", err);
}

static int replay(struct ck_journal *j, struct ck_draft_said *out,
		  struct ck_err *err)
{
	*out = (struct ck_draft_said){ 0 };
	return ck_journal_replay(j, take, out, err);
}

/* A link, or where there are none a file. */
static bool read_doomed(const struct ck_draft *s, char *why, size_t room)
{
	ck_auto_fd int fd = -1;
	ssize_t n = readlinkat(s->fd, DOOMED, why, room - 1);

	if (n < 0 && errno == ENOENT)
		return false;
	if (n < 0) {
		fd = openat(s->fd, DOOMED,
			    O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK);
		n = fd < 0 ? 0 : read(fd, why, room - 1);
	}
	why[n > 0 ? n : 0] = '\0';
	why[strcspn(why, "\n")] = '\0';
	return true;
}

/* Where what is there was said before there was a journal, it is not read. */
static bool is_older(const struct ck_draft *s, char *why, size_t room)
{
	static const char *const marks[] = { "armed", "bad", "commit", "copied",
					     "refused" };
	struct stat st;

	for (size_t i = 0; i < CK_ARRAY_LEN(marks); i++)
		if (!fstatat(s->fd, marks[i], &st, AT_SYMLINK_NOFOLLOW)) {
			snprintf(why, room,
				 "\"%s\" is of an older version of unshard, "
				 "which alone can publish it",
				 marks[i]);
			return true;
		}
	return false;
}

int ck_draft_read(const struct ck_draft *s, struct ck_draft_said *out,
		  struct ck_err *err)
{
	ck_auto_journal struct ck_journal j = { .fd = -1 };
	int ret = open_journal(s, &j, false, err);

	*out = (struct ck_draft_said){ 0 };
	return ret ? ret == -ENOENT ? 0 : ret : replay(&j, out, err);
}

void ck_draft_look(struct ck_draft *s, struct ck_draft_said *out)
{
	struct ck_err err = { 0 };
	int ret = ck_draft_read(s, out, &err);
	char *why = out->doomed_why;
	const size_t room = sizeof(out->doomed_why);

	out->doomed = read_doomed(s, why, room);
	pthread_mutex_lock(&s->lock);
	if (!*why && *s->poisoned) {
		snprintf(why, room, "%s", s->poisoned);
		out->doomed = true;
	}
	pthread_mutex_unlock(&s->lock);
	if (!out->doomed && ret) {
		snprintf(why, room, "%.*s", (int)room - 1, err.msg);
		out->doomed = true;
	}
	if (!out->doomed)
		out->doomed = is_older(s, why, room);
}

/* ---- writing ---- */

static bool is_known(const struct ck_draft_said *now,
		     const struct ck_draft_said *then)
{
	return now->when_complete == then->when_complete &&
	       now->when_quiet == then->when_quiet &&
	       now->bad_signature == then->bad_signature &&
	       !strcmp(now->bad, then->bad) &&
	       !strcmp(now->refused, then->refused);
}

static int append(struct ck_journal *j, enum said type, const void *body,
		  size_t len, struct ck_err *err)
{
	const struct ck_journal_record r = { .type = type,
					     .len = (uint32_t)len,
					     .body = body };
	struct ck_draft_said now, then;
	int ret = replay(j, &now, err);

	then = now;
	if (!ret)
		ret = take(&then, &r, err);
	if (ret || (type != COMMIT && is_known(&now, &then)))
		return ret;
	return ck_journal_append(j, type, body, (uint32_t)len, err);
}

/* Under the lock: who made it without a head was killed. */
static int open_to_append(struct ck_draft *s, struct ck_journal *j,
			  struct ck_err *err)
{
	int ret = open_journal(s, j, true, err);

	if (ret != -ENOENT)
		return ret;
	if (unlinkat(s->fd, JOURNAL, 0) && errno != ENOENT)
		return ck_fail(err, errno, JOURNAL ": %s", strerror(errno));
	return ck_journal_make(j, s->fd, JOURNAL, KIND, 0, "", err);
}

static int sync_commit(const struct ck_draft *s, struct ck_journal *j,
		       struct ck_err *err)
{
	int ret = ck_fault_point("fsync of the record", err);

	if (!ret)
		ret = ck_journal_sync(j, err);
	if (!ret && fsync(s->fd))
		ret = ck_fail(err, errno, "fsync of the record: %s",
			      strerror(errno));
	return ret;
}

/* @type 0: only the journal is made. */
static int say(struct ck_draft *s, enum said type, const void *body, size_t len,
	       struct ck_err *err)
{
	ck_auto_journal struct ck_journal j = { .fd = -1 };
	int ret;

	ck_draft_journal_lock(s, true);
	ret = open_to_append(s, &j, err);
	if (!ret && type)
		ret = append(&j, type, body, len, err);
	if (!ret && type == COMMIT)
		ret = sync_commit(s, &j, err);
	ck_draft_journal_lock(s, false);
	return ck_wrap(err, ret, "%s", CK_DRAFT_NAME(s));
}

void ck_draft_journal_begin(struct ck_draft *s)
{
	say(s, 0, NULL, 0, NULL);
}

int ck_draft_commit(struct ck_draft *s, const struct ck_draft_commit *r,
		    struct ck_err *err)
{
	const struct commit c = { .ranks = r->ranks,
				  .ino = r->ino,
				  .replace = r->replace,
				  .holes = r->holes };
	char v[sizeof(c) + NAME_MAX + 1];
	int ret = ck_fault_point("record", err);

	memcpy(v, &c, sizeof(c));
	memcpy(v + sizeof(c), r->as, strlen(r->as));
	return ret ? ret : say(s, COMMIT, v, sizeof(c) + strlen(r->as), err);
}

void ck_draft_reject_layout(struct ck_draft *s, const char *why)
{
	say(s, REFUSED, why, strlen(why), NULL);
}

void ck_draft_bad(struct ck_draft *s, uint64_t signature, const char *why)
{
	char v[sizeof(signature) + CK_ERR_MAX];
	size_t len = CK_MIN(strlen(why), CK_ERR_MAX - 1);

	memcpy(v, &signature, sizeof(signature));
	memcpy(v + sizeof(signature), why, len);
	say(s, BAD, v, sizeof(signature) + len, NULL);
}

void ck_draft_publish_when_complete(struct ck_draft *s)
{
	say(s, WHEN_COMPLETE, NULL, 0, NULL);
}

void ck_draft_publish_when_quiet(struct ck_draft *s)
{
	say(s, WHEN_QUIET, NULL, 0, NULL);
}

/* Where the disk is full, a short link still finds room in its inode. */
void ck_draft_poison(struct ck_draft *s, const char *why)
{
	char cut[WHY_INLINE + 1];
	int fd = -1;

	pthread_mutex_lock(&s->lock);
	if (!*s->poisoned)
		snprintf(s->poisoned, sizeof(s->poisoned), "%s", why);
	pthread_mutex_unlock(&s->lock);
	snprintf(cut, sizeof(cut), "%s", why);
	if (symlinkat(why, s->fd, DOOMED) && errno != EEXIST &&
	    symlinkat(cut, s->fd, DOOMED) && errno != EEXIST)
		fd = openat(s->fd, DOOMED,
			    O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW |
				    O_CLOEXEC,
			    0666);
	if (fd >= 0) {
		/* an empty one says it too */
		if (dprintf(fd, "%s\n", why) > 0)
			fsync(fd);
		close(fd);
	}
	fsync(s->fd);
}
