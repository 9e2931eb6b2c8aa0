/* SPDX-License-Identifier: Apache-2.0 */
/*
 * journal.c - records appended, and read again
 *
 * Nothing of a file is believed before its sums are, which are computed over
 * lengths that are bounded first.
 */
#include "core/root/journal.h"

#include "core/base/auto.h"
#include "core/base/check.h"
#include "core/base/whole.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#define MAGIC "UNSHJRNL"
#define VERSION 1
#define CHUNK (UINT32_C(64) << 10) /* read at once: several records */

struct head {
	char magic[8];
	uint32_t version, kind;
	uint64_t id;
	char boot[40]; /* as /proc says it; "": not known */
};

struct record {
	uint32_t len, type;
	uint64_t number, known, body, sum;
};

static char boot_id[40];
static pthread_once_t boot_once = PTHREAD_ONCE_INIT;

static void read_boot(void)
{
	ck_auto_fd int fd =
		open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);
	ssize_t n = fd < 0 ? -1 : read(fd, boot_id, sizeof(boot_id) - 1);

	boot_id[n > 0 ? n : 0] = '\0';
}

void ck_journal_boot(void)
{
	pthread_once(&boot_once, read_boot);
}

static int fail(const struct ck_journal *j, int code, struct ck_err *err)
{
	return ck_fail(err, code, "%s: %s", j->what, strerror(code));
}

static void begin(struct ck_journal *j, uint64_t id, const char *in,
		  const char *name)
{
	ck_journal_boot();
	*j = (struct ck_journal){ .fd = -1,
				  .id = id,
				  .end = sizeof(struct head) };
	snprintf(j->what, sizeof(j->what), "%s%s", in, name);
}

int ck_journal_make(struct ck_journal *j, int dir, const char *name,
		    uint32_t kind, uint64_t id, const char *in,
		    struct ck_err *err)
{
	struct head h = { .version = VERSION, .kind = kind, .id = id };
	int ret;

	begin(j, id, in, name);
	memcpy(h.magic, MAGIC, sizeof(h.magic));
	memcpy(h.boot, boot_id, sizeof(h.boot));
	j->same_boot = *h.boot;
	j->fd = openat(dir, name,
		       O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC,
		       0666);
	if (j->fd < 0)
		return fail(j, errno, err);
	ret = ck_pwrite_whole(j->fd, &h, sizeof(h), 0);
	if (!ret)
		return 0;
	/* without its head nobody would believe what is written to it later */
	ck_journal_close(j);
	unlinkat(dir, name, 0);
	return fail(j, -ret, err);
}

int ck_journal_rename(struct ck_journal *j, int dir, const char *from,
		      const char *to, const char *in, struct ck_err *err)
{
	if (renameat(dir, from, dir, to))
		return fail(j, errno, err);
	snprintf(j->what, sizeof(j->what), "%s%s", in, to);
	return 0;
}

static int read_head(struct ck_journal *j, uint32_t kind, struct ck_err *err)
{
	static const struct head none;
	struct head h;
	struct stat st;
	ssize_t n;

	if (fstat(j->fd, &st))
		return fail(j, errno, err);
	if (!S_ISREG(st.st_mode))
		return fail(j, EINVAL, err);
	n = ck_pread_most(j->fd, &h, sizeof(h), 0);
	if (n < 0)
		return fail(j, (int)-n, err);
	if ((size_t)n < sizeof(h) || !memcmp(&h, &none, sizeof(h)))
		return -ENOENT;
	if (memcmp(h.magic, MAGIC, sizeof(h.magic)) != 0 ||
	    h.version != VERSION || h.kind != kind || h.id != j->id)
		return ck_fail(err, EINVAL,
			       "%s: byte 0: expected the head of a journal of "
			       "this version of unshard, found another",
			       j->what);
	h.boot[sizeof(h.boot) - 1] = '\0';
	j->same_boot = *h.boot && !strcmp(h.boot, boot_id);
	return 0;
}

int ck_journal_open(struct ck_journal *j, int dir, const char *name, bool write,
		    uint32_t kind, uint64_t id, const char *in,
		    struct ck_err *err)
{
	int ret;

	begin(j, id, in, name);
	j->fd = openat(dir, name,
		       (write ? O_RDWR : O_RDONLY) | O_NOFOLLOW | O_CLOEXEC |
			       O_NONBLOCK | O_NOCTTY);
	if (j->fd < 0)
		return errno == ENOENT ? -ENOENT : fail(j, errno, err);
	ret = read_head(j, kind, err);
	if (ret)
		ck_journal_close(j);
	return ret;
}

void ck_journal_close(struct ck_journal *j)
{
	if (j->fd >= 0)
		close(j->fd);
	j->fd = -1;
}

/* ---- reading ---- */

static uint64_t sum_of(const struct ck_journal *j, const void *v, size_t len)
{
	return XXH3_64bits_withSeed(v, len, j->id);
}

static bool head_ok(const struct ck_journal *j, const struct record *r)
{
	return r->len <= CK_JOURNAL_BODY &&
	       r->sum == sum_of(j, r, offsetof(struct record, sum));
}

static size_t room_of(uint32_t len)
{
	return sizeof(struct record) + ((len + 7u) & ~7u);
}

/* The next record, whole, at @v; 0: it is not. */
static size_t good(const struct ck_journal *j, const unsigned char *v, size_t n,
		   struct record *r)
{
	if (n < sizeof(*r))
		return 0;
	memcpy(r, v, sizeof(*r));
	if (!head_ok(j, r) || r->number != j->number + 1 || r->known > j->end ||
	    room_of(r->len) > n || r->body != sum_of(j, v + sizeof(*r), r->len))
		return 0;
	return room_of(r->len);
}

static int take(struct ck_journal *j, const unsigned char *v, size_t n,
		size_t *used,
		int (*fn)(void *ctx, const struct ck_journal_record *r,
			  struct ck_err *err),
		void *ctx, struct ck_err *err)
{
	struct record r;
	size_t len;
	int ret = 0;

	*used = 0;
	while (!ret && (len = good(j, v + *used, n - *used, &r))) {
		const struct ck_journal_record out = {
			.type = r.type,
			.len = r.len,
			.number = r.number,
			.body = v + *used + sizeof(r),
		};

		ret = fn(ctx, &out, err);
		j->number = r.number;
		j->known = CK_MAX(j->known, r.known);
		j->end += len;
		*used += len;
	}
	return ret;
}

/*
 * A record at @at, behind the one that is expected at the end, shows that this
 * one was there: where no power was lost, or it was durable by then.
 */
static bool is_later(const struct ck_journal *j, const struct record *r,
		     uint64_t at)
{
	if (!head_ok(j, r))
		return false;
	if (at == j->end)
		return r->number != j->number + 1;
	return r->number > j->number && (j->same_boot || r->known > j->end);
}

/* What is behind the last good record: torn, or -EIO. */
static int check_rest(struct ck_journal *j, unsigned char *buf,
		      struct ck_err *err)
{
	uint64_t at = j->end;
	ssize_t n;

	while ((n = ck_pread_most(j->fd, buf, CHUNK, at)) >=
	       (ssize_t)sizeof(struct record)) {
		size_t i = 0;

		for (; i + sizeof(struct record) <= (size_t)n; i += 8) {
			struct record r;

			memcpy(&r, buf + i, sizeof(r));
			if (is_later(j, &r, at + i))
				return ck_fail(err, EIO,
					       "%s: byte %" PRIu64
					       ": expected record %" PRIu64
					       ", found bytes that do not fit "
					       "their sum, and record %" PRIu64
					       " behind them: it is damaged",
					       j->what, j->end, j->number + 1,
					       r.number);
		}
		at += i;
	}
	return n < 0 ? fail(j, (int)-n, err) : 0;
}

static int read_on(struct ck_journal *j, unsigned char *buf,
		   int (*fn)(void *ctx, const struct ck_journal_record *r,
			     struct ck_err *err),
		   void *ctx, struct ck_err *err)
{
	size_t used;
	ssize_t n;
	int ret;

	do {
		n = ck_pread_most(j->fd, buf, CHUNK, j->end);
		if (n < 0)
			return fail(j, (int)-n, err);
		ret = take(j, buf, (size_t)n, &used, fn, ctx, err);
	} while (!ret && used);
	j->unseen = ret;
	j->torn = !ret && n;
	return ret;
}

int ck_journal_replay(struct ck_journal *j,
		      int (*fn)(void *ctx, const struct ck_journal_record *r,
				struct ck_err *err),
		      void *ctx, struct ck_err *err)
{
	ck_auto_free unsigned char *buf = malloc(CHUNK);
	uint64_t end;
	int ret;

	if (!buf)
		return ck_no_memory(err);
	do {
		ret = read_on(j, buf, fn, ctx, err);
		end = j->end;
		if (ret || !j->torn)
			return ret;
		ret = check_rest(j, buf, err);
		if (!ret)
			return 0;
		/* or it was being written just then */
		ret = read_on(j, buf, fn, ctx, err);
	} while (!ret && j->end != end);
	return ret ? ret : check_rest(j, buf, err);
}

/* ---- appending ---- */

int ck_journal_append(struct ck_journal *j, uint32_t type, const void *body,
		      uint32_t len, struct ck_err *err)
{
	unsigned char v[sizeof(struct record) + CK_JOURNAL_BODY] = { 0 };
	struct record r = { .len = len,
			    .type = type,
			    .number = j->number + 1,
			    .known = j->known };
	int ret;

	if (len > CK_JOURNAL_BODY || j->unseen)
		return fail(j, j->unseen ? ESTALE : EMSGSIZE, err);
	if (j->torn && ftruncate(j->fd, (off_t)j->end))
		return fail(j, errno, err);
	j->torn = false;
	r.body = sum_of(j, body, len);
	r.sum = sum_of(j, &r, offsetof(struct record, sum));
	memcpy(v, &r, sizeof(r));
	if (len)
		memcpy(v + sizeof(r), body, len);
	ret = ck_pwrite_whole(j->fd, v, room_of(len), j->end);
	if (ret) {
		j->torn = ftruncate(j->fd, (off_t)j->end);
		return fail(j, -ret, err);
	}
	j->number++;
	j->end += room_of(len);
	return 0;
}

int ck_journal_reserve(struct ck_journal *j, struct ck_err *err)
{
	if (j->end + room_of(CK_JOURNAL_BODY) <= j->room)
		return 0;
	if (fallocate(j->fd, FALLOC_FL_KEEP_SIZE, (off_t)j->end, CHUNK) &&
	    (errno == ENOSPC || errno == EDQUOT || errno == EFBIG))
		return fail(j, errno, err);
	j->room = j->end + CHUNK;
	return 0;
}

int ck_journal_sync(struct ck_journal *j, struct ck_err *err)
{
	if (fdatasync(j->fd))
		return ck_fail(err, errno, "%s: fsync: %s", j->what,
			       strerror(errno));
	j->known = j->end;
	return 0;
}
