/* SPDX-License-Identifier: Apache-2.0 */
/*
 * claims_log.c - the files of claims
 *
 *	head (64 bytes) | records (32 bytes each)
 *
 * Records lie within a page and are written by one call, so that a killed
 * process leaves each as it was or as it is; one that is neither has a wrong
 * sum and counts for nothing.  Whoever has a log keeps its first byte locked.
 */
#include "core/slices/claims_priv.h"

#include "core/base/auto.h"
#include "core/base/check.h"
#include "core/base/whole.h"
#include "core/root/openat_beneath.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <xxhash.h>

#define MAGIC "unshclm"
#define VERSION 1
#define AT_ONCE 2048 /* records */

struct head {
	char magic[8];
	uint64_t version, plan;
	char boot[40]; /* as /proc says it; "": not known */
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

void ck_claims_boot(void)
{
	pthread_once(&boot_once, read_boot);
}

static int fail(struct ck_err *err, const char *name)
{
	return ck_fail(err, errno, "%s: %s", name, strerror(errno));
}

static uint64_t sum_of(const struct ck_slice_plan *p,
		       const struct ck_claims_record *r)
{
	return XXH3_64bits_withSeed(r, offsetof(struct ck_claims_record, sum),
				    p->id);
}

/* ---- reading ---- */

static bool is_ours(const struct ck_slice_plan *p, int fd, bool *same_boot)
{
	struct head h;

	if (ck_pread_most(fd, &h, sizeof(h), 0) != sizeof(h) ||
	    memcmp(h.magic, MAGIC, sizeof(h.magic)) != 0 ||
	    h.version != VERSION || h.plan != p->id)
		return false;
	h.boot[sizeof(h.boot) - 1] = '\0';
	*same_boot = *h.boot && !strcmp(h.boot, boot_id);
	return true;
}

static bool is_good(const struct ck_slice_plan *p,
		    const struct ck_claims_record *r)
{
	return r->len && r->file < p->nr_files && r->sum == sum_of(p, r) &&
	       ck_range_ok(r->off, r->len, p->files[r->file].size);
}

/* What the records of @fd say in their order, into @sets. */
static int read_records(const struct ck_slice_plan *p, int fd,
			struct ck_intervals *sets)
{
	ck_auto_free struct ck_claims_record *v = calloc(AT_ONCE, sizeof(*v));
	uint64_t at = sizeof(struct head);
	ssize_t n;
	int ret = v ? 0 : -ENOMEM;

	while (!ret &&
	       (n = ck_pread_most(fd, v, AT_ONCE * sizeof(*v), at)) > 0) {
		for (size_t i = 0; i < (size_t)n / sizeof(*v) && !ret; i++) {
			uint64_t end = v[i].off + v[i].len;

			if (!is_good(p, &v[i]))
				continue;
			ret = v[i].cut ? ck_intervals_cut(&sets[v[i].file],
							  v[i].off, end) :
					 ck_intervals_add(&sets[v[i].file],
							  v[i].off, end);
		}
		at += (uint64_t)n;
		if ((size_t)n < AT_ONCE * sizeof(*v))
			break;
	}
	return ret;
}

static int open_log(int dir, const char *name, int how)
{
	return openat(dir, name,
		      how | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
}

/* "w-0123456789abcdef.log" without its end; false: it is none. */
static bool log_name(const char *name, char out[24])
{
	size_t len = strlen(name);

	if (len != 22 || strncmp(name, "w-", 2) != 0 ||
	    strcmp(name + 18, ".log") != 0)
		return false;
	memcpy(out, name, 18);
	out[18] = '\0';
	return true;
}

static void with_end(char out[32], const char *name, const char *end)
{
	snprintf(out, 32, "%s%s", name, end);
}

static int read_safe(const struct ck_claims *c, const char *name,
		     struct ck_intervals *sets)
{
	ck_auto_fd int fd = -1;
	bool same_boot;
	char path[32];

	with_end(path, name, ".safe");
	fd = open_log(c->dir, path, O_RDONLY);
	if (fd < 0 || !is_ours(c->plan, fd, &same_boot))
		return 0;
	return read_records(c->plan, fd, sets);
}

/*
 * Of another boot, or another machine, only what was durable counts: the
 * bytes of the rest may never have left its memory.
 */
static int read_one(const struct ck_claims *c, const char *name, int fd,
		    struct ck_intervals *sets)
{
	bool same_boot;

	if (!is_ours(c->plan, fd, &same_boot))
		return 0;
	return same_boot ? read_records(c->plan, fd, sets) :
			   read_safe(c, name, sets);
}

/* @call gets the name of each log but our own. */
static int each_log(struct ck_claims *c,
		    int (*call)(struct ck_claims *c, const char *name,
				struct ck_err *err),
		    struct ck_err *err)
{
	ck_auto_dir DIR *d = NULL;
	const struct dirent *e;
	char name[24];
	int ret = ck_beneath_list(c->dir, "", &d);

	if (ret) {
		errno = -ret;
		return fail(err, "slices");
	}
	while (!ret && (e = readdir(d)))
		if (log_name(e->d_name, name) && strcmp(name, c->log.name) != 0)
			ret = call(c, name, err);
	return ret;
}

static int read_other(struct ck_claims *c, const char *name, struct ck_err *err)
{
	ck_auto_fd int fd = -1;
	char path[32];

	with_end(path, name, ".log");
	fd = open_log(c->dir, path, O_RDONLY);
	if (fd < 0)
		return errno == ENOENT ? 0 : fail(err, path);
	if (read_one(c, name, fd, c->others))
		return ck_no_memory(err);
	return 0;
}

int ck_claims_read_others(struct ck_claims *c, struct ck_err *err)
{
	return each_log(c, read_other, err);
}

/* ---- our own ---- */

static int make_file(const struct ck_claims *c, const char *end, int *fd,
		     struct ck_err *err)
{
	struct head h = { .magic = MAGIC,
			  .version = VERSION,
			  .plan = c->plan->id };
	char path[32];
	int ret;

	memcpy(h.boot, boot_id, sizeof(h.boot));
	with_end(path, c->log.name, end);
	*fd = openat(c->dir, path,
		     O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0666);
	if (*fd < 0)
		return fail(err, path);
	ret = ck_pwrite_whole(*fd, &h, sizeof(h), 0);
	if (!ret)
		return 0;
	/* without its head nobody would believe what is written to it later */
	close(*fd);
	*fd = -1;
	unlinkat(c->dir, path, 0);
	return ck_fail(err, -ret, "%s: %s", path, strerror(-ret));
}

static int lock_log(int fd)
{
	struct flock fl = { .l_type = F_WRLCK, .l_len = 1 };

	return fcntl(fd, F_OFD_SETLK, &fl) ? -errno : 0;
}

static int make_log(struct ck_claims *c, struct ck_err *err)
{
	uint64_t r;
	int ret;

	if (getrandom(&r, sizeof(r), 0) != sizeof(r))
		return fail(err, "a name for a log");
	snprintf(c->log.name, sizeof(c->log.name), "w-%016" PRIx64, r);
	ret = make_file(c, ".log", &c->log.fd, err);
	if (ret)
		c->log.name[0] = '\0';
	else
		lock_log(c->log.fd);
	return ret;
}

/* What it says becomes ours, as durable as it was. */
static int move_claims(struct ck_claims *c, struct ck_intervals *from,
		       bool durable, struct ck_err *err)
{
	const struct ck_interval *run;
	bool any = false;
	int ret = 0;

	for (uint32_t i = 0; i < c->plan->nr_files && !ret; i++)
		for (uint64_t at = 0;
		     !ret && (run = ck_intervals_at(&from[i], at));
		     at = run->end) {
			any = true;
			ret = ck_claims_add_own(c, i, run->off, run->end, err);
			if (!ret && durable)
				ret = ck_claims_safe_put(c, i, run->off,
							 run->end, false, err);
		}
	return ret || !durable || !any ? ret : ck_claims_safe_sync(c, err);
}

static void unlink_log(const struct ck_claims *c, const char *name)
{
	char path[32];

	with_end(path, name, ".log");
	unlinkat(c->dir, path, 0);
	with_end(path, name, ".safe");
	unlinkat(c->dir, path, 0);
}

static int move_all(struct ck_claims *c, const char *name, int fd,
		    struct ck_intervals *sets, struct ck_err *err)
{
	int ret = read_one(c, name, fd, sets);

	if (!ret)
		ret = move_claims(c, sets, false, err);
	for (uint32_t i = 0; i < c->plan->nr_files; i++)
		ck_intervals_free(&sets[i]);
	if (!ret)
		ret = read_safe(c, name, sets);
	if (!ret)
		ret = move_claims(c, sets, true, err);
	for (uint32_t i = 0; i < c->plan->nr_files; i++)
		ck_intervals_free(&sets[i]);
	if (ret == -ENOMEM)
		return ck_no_memory(err);
	if (!ret)
		unlink_log(c, name);
	return ret;
}

/* One whose mount has ended; where there are no locks nobody can tell. */
static int take_over(struct ck_claims *c, const char *name, struct ck_err *err)
{
	ck_auto_free struct ck_intervals *sets =
		calloc(c->plan->nr_files + 1, sizeof(*sets));
	ck_auto_fd int fd = -1;
	char path[32];
	struct stat st;

	if (!sets)
		return ck_no_memory(err);
	with_end(path, name, ".log");
	fd = open_log(c->dir, path, O_RDWR);
	if (fd < 0 || lock_log(fd) || fstat(fd, &st) || !st.st_nlink)
		return 0;
	return move_all(c, name, fd, sets, err);
}

int ck_claims_log_start(struct ck_claims *c, struct ck_err *err)
{
	int ret;

	if (c->log.fd >= 0)
		return 0;
	ret = make_log(c, err);
	if (!ret)
		ret = each_log(c, take_over, err);
	for (uint32_t i = 0; i < c->plan->nr_files && !ret; i++)
		ck_intervals_free(&c->others[i]);
	return ret ? ret : ck_claims_read_others(c, err);
}

void ck_claims_log_end(struct ck_claims_log *log, int dir)
{
	char path[32];

	if (log->fd >= 0 && !log->nr && log->safe < 0) {
		with_end(path, log->name, ".log");
		unlinkat(dir, path, 0);
	}
	if (log->fd >= 0)
		close(log->fd);
	if (log->safe >= 0)
		close(log->safe);
	free(log->free);
}

/* ---- slots ---- */

int ck_claims_slot_new(struct ck_claims_log *log, uint32_t *slot,
		       struct ck_err *err)
{
	if (log->nr_free)
		*slot = log->free[--log->nr_free];
	else if (log->nr < CK_CLAIMS_SLOTS)
		*slot = log->nr++;
	else
		return ck_fail(err, ENOSPC,
			       "slices are written in more than %u stretches "
			       "that do not touch",
			       CK_CLAIMS_SLOTS);
	return 0;
}

static int put(const struct ck_claims *c, int fd, uint64_t at,
	       struct ck_claims_record *r, struct ck_err *err)
{
	int ret;

	r->sum = sum_of(c->plan, r);
	ret = ck_pwrite_whole(fd, r, sizeof(*r), at);
	return ret ? ck_fail(err, -ret, "the log of what was written: %s",
			     strerror(-ret)) :
		     0;
}

static uint64_t place(uint64_t slot)
{
	return sizeof(struct head) + slot * sizeof(struct ck_claims_record);
}

int ck_claims_slot_write(struct ck_claims *c, uint32_t slot, uint32_t file,
			 uint64_t off, uint64_t end, struct ck_err *err)
{
	struct ck_claims_record r = { .off = off,
				      .len = end - off,
				      .file = file };

	return put(c, c->log.fd, place(slot), &r, err);
}

int ck_claims_slot_free(struct ck_claims *c, uint32_t slot, struct ck_err *err)
{
	struct ck_claims_record r = { 0 };
	struct ck_claims_log *log = &c->log;

	if (log->nr_free == log->room_free) {
		size_t room = log->room_free ? log->room_free * 2 : 64;
		uint32_t *grown = reallocarray(log->free, room, sizeof(*grown));

		if (!grown)
			return ck_no_memory(err);
		log->free = grown;
		log->room_free = room;
	}
	if (put(c, log->fd, place(slot), &r, err))
		return -EIO;
	log->free[log->nr_free++] = slot;
	return 0;
}

/* ---- durable ones ---- */

int ck_claims_safe_put(struct ck_claims *c, uint32_t file, uint64_t off,
		       uint64_t end, bool cut, struct ck_err *err)
{
	struct ck_claims_record r = {
		.off = off, .len = end - off, .file = file, .cut = cut
	};
	int ret = 0;

	if (c->log.safe < 0) {
		ret = make_file(c, ".safe", &c->log.safe, err);
		c->log.safe_len = sizeof(struct head);
	}
	if (!ret)
		ret = put(c, c->log.safe, c->log.safe_len, &r, err);
	if (!ret)
		c->log.safe_len += sizeof(r);
	return ret;
}

int ck_claims_safe_sync(struct ck_claims *c, struct ck_err *err)
{
	/* its log is what it is found by */
	if (fdatasync(c->log.safe) || fdatasync(c->log.fd) || fsync(c->dir))
		return fail(err, "fsync of the log of what was written");
	return 0;
}
