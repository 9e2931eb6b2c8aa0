/* SPDX-License-Identifier: Apache-2.0 */
/*
 * stages.c - the table of stages, and when each is published
 *
 * The lock is held for moments.  A publish runs without it: the stage's own
 * lock keeps others away.
 */
#include "fs/draft/stages.h"

#include "core/base/auto.h"
#include "core/base/check.h"
#include "core/base/clock.h"
#include "core/root/fault.h"
#include "core/draft/below.h"
#include "core/publish/commit.h"
#include "core/publish/recover.h"
#include "core/slices/slices.h"
#include "fs/kernel/reply.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define COPIED_SECONDS 10 /* between two files of a copy */
#define LOOK_SECONDS 1
#define CLOSE_MS 2000 /* the kernel tells of a close a moment later */

struct fs_stages {
	const struct ck_root *root;
	const struct ck_opts *opts;
	bool by_rename; /* -o publish=auto */
	int64_t quiet_after; /* -o publish-after=; 0: never */
	pthread_mutex_t lock;
	pthread_cond_t wake;
	bool ending, started;
	pthread_t thread;
	struct fs_stage *v[FS_STAGES_MAX];
	uint32_t last; /* where to look for a free number first */
};

struct fs_stages *fs_stages_new(const struct ck_root *root,
				const struct ck_opts *opts)
{
	struct fs_stages *t = calloc(1, sizeof(*t));
	const char *how = ck_opts_get(opts, "publish");
	const char *after = ck_opts_get(opts, "publish-after");
	pthread_condattr_t attr;

	if (!t)
		return NULL;
	t->root = root;
	t->opts = opts;
	t->by_rename = !how || strcmp(how, "manual");
	t->quiet_after = after ? atoll(after) : 0;
	pthread_mutex_init(&t->lock, NULL);
	pthread_condattr_init(&attr);
	pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	pthread_cond_init(&t->wake, &attr);
	pthread_condattr_destroy(&attr);
	return t;
}

const struct ck_root *fs_stages_root(const struct fs_stages *t)
{
	return t->root;
}

static void free_stage(struct fs_stage *s)
{
	fs_staged_free(s->files);
	free(s);
}

void fs_stages_free(struct fs_stages *t)
{
	if (!t)
		return;
	if (t->started) {
		pthread_mutex_lock(&t->lock);
		t->ending = true;
		pthread_cond_signal(&t->wake);
		pthread_mutex_unlock(&t->lock);
		pthread_join(t->thread, NULL);
	}
	for (size_t i = 0; i < FS_STAGES_MAX; i++)
		if (t->v[i])
			free_stage(t->v[i]);
	pthread_mutex_destroy(&t->lock);
	pthread_cond_destroy(&t->wake);
	free(t);
}

/* ---- the table; under the lock ---- */

static struct ck_staging *staging_of(const struct fs_stage *s)
{
	return fs_staged_stage(s->files);
}

/*
 * Nobody refers to it, and this mount has nothing to do for it: what it wrote
 * to it keeps until it is published, for the quiet to be noticed.
 */
static struct fs_stage *take_unused(struct fs_stages *t, struct fs_stage *s)
{
	if (s->pins || s->known || (!s->gone && fs_staged_seq(s->files)))
		return NULL;
	t->v[s->nr - FS_STAGES_FIRST] = NULL;
	return s;
}

static struct fs_stage *named(struct fs_stages *t, const char *name)
{
	for (size_t i = 0; i < FS_STAGES_MAX; i++)
		if (t->v[i] && !t->v[i]->gone &&
		    !strcmp(staging_of(t->v[i])->name, name))
			return t->v[i];
	return NULL;
}

/* Takes @stage; NULL: closed, for want of memory or a number. */
static struct fs_stage *add(struct fs_stages *t, struct ck_staging *stage)
{
	struct fs_stage *s = calloc(1, sizeof(*s));

	if (s)
		s->files = fs_staged_new(stage);
	for (uint32_t i = 0; s && s->files && i < FS_STAGES_MAX; i++) {
		uint32_t nr = (t->last + i) % FS_STAGES_MAX;

		if (t->v[nr])
			continue;
		t->last = nr + 1;
		t->v[nr] = s;
		s->nr = FS_STAGES_FIRST + nr;
		s->quiet_s = ck_now_s();
		s->copied_s = INT64_MIN / 2;
		return s;
	}
	if (s && s->files)
		fs_staged_free(s->files);
	else
		ck_staging_close(stage);
	free(s);
	return NULL;
}

/* ---- references ---- */

struct fs_stage *fs_stages_pin(struct fs_stages *t, uint64_t ino)
{
	uint32_t i = fs_ino_slot(ino) - FS_STAGES_FIRST;
	struct fs_stage *s;

	if (!t || i >= FS_STAGES_MAX)
		return NULL;
	pthread_mutex_lock(&t->lock);
	s = t->v[i];
	if (s)
		s->pins++;
	pthread_mutex_unlock(&t->lock);
	return s;
}

void fs_stage_unpin(struct fs_stages *t, struct fs_stage *s)
{
	struct fs_stage *unused;

	pthread_mutex_lock(&t->lock);
	s->pins--;
	unused = take_unused(t, s);
	pthread_mutex_unlock(&t->lock);
	if (unused)
		free_stage(unused);
}

void fs_stage_know(struct fs_stages *t, struct fs_stage *s)
{
	pthread_mutex_lock(&t->lock);
	s->known++;
	pthread_mutex_unlock(&t->lock);
}

void fs_stage_forget(struct fs_stages *t, struct fs_stage *s, uint64_t nr)
{
	pthread_mutex_lock(&t->lock);
	s->known -= CK_MIN(s->known, nr);
	pthread_mutex_unlock(&t->lock);
}

/* ---- names ---- */

static struct fs_stage *pin_named(struct fs_stages *t, const char *name)
{
	struct fs_stage *s;

	pthread_mutex_lock(&t->lock);
	s = named(t, name);
	if (s)
		s->pins++;
	pthread_mutex_unlock(&t->lock);
	return s;
}

static void let_go(struct fs_stages *t, struct fs_stage *s)
{
	pthread_mutex_lock(&t->lock);
	s->gone = true;
	pthread_mutex_unlock(&t->lock);
	fs_stage_unpin(t, s);
}

/* Another thread may have been quicker: then its entry. */
static int enter(struct fs_stages *t, struct ck_staging *stage,
		 struct fs_stage **out)
{
	struct fs_stage *s;
	bool ours = false;

	pthread_mutex_lock(&t->lock);
	s = named(t, stage->name);
	if (!s) {
		s = add(t, stage);
		ours = true;
	}
	if (s)
		s->pins++;
	pthread_mutex_unlock(&t->lock);
	if (!ours)
		ck_staging_close(stage);
	*out = s;
	return s ? 0 : -ENOMEM;
}

int fs_stages_lookup(struct fs_stages *t, const char *name,
		     struct fs_stage **out)
{
	struct ck_staging *stage;
	int ret;

	*out = pin_named(t, name);
	if (*out && ck_staging_is_current(staging_of(*out)))
		return 0;
	if (*out)
		let_go(t, *out);
	ret = ck_staging_open(&stage, t->root, name, NULL);
	return ret ? ret : enter(t, stage, out);
}

/* The folder is whose asked for it, and of the mode that he asked for. */
static void give_to(const struct ck_staging *stage, mode_t mode,
		    const struct fs_staged_who *who)
{
	const int fds[] = { stage->fd, stage->files_fd };

	for (size_t i = 0; i < CK_ARRAY_LEN(fds); i++)
		if ((!geteuid() && fchown(fds[i], who->uid, who->gid)) ||
		    fchmod(fds[i], mode & 07777))
			return; /* then it is as the mount's own user makes it */
}

int fs_stages_mkdir(struct fs_stages *t, const char *name, mode_t mode,
		    const struct fs_staged_who *who, struct fs_stage **out,
		    struct ck_err *err)
{
	struct ck_staging *stage;
	int ret = ck_staging_make(&stage, t->root, name, err);

	if (ret)
		return ret;
	give_to(stage, mode | S_IRWXU, who);
	ret = fs_stage_cut_as_told(stage, t->root, t->opts, t->by_rename, err);
	if (!ret)
		return enter(t, stage, out);
	if (!ck_staging_seize(stage, NULL)) {
		ck_staging_remove(stage, NULL);
		ck_staging_unseize(stage);
	}
	ck_staging_close(stage);
	return ret;
}

static int remove_stage(struct fs_stage *s)
{
	struct ck_staging *stage = staging_of(s);
	bool empty;
	int ret = ck_staging_seize(stage, NULL);

	if (ret)
		return ret;
	ret = fs_stage_is_empty(s, &empty);
	if (!ret)
		ret = empty ? ck_staging_remove(stage, NULL) : -ENOTEMPTY;
	ck_staging_unseize(stage);
	return ret;
}

int fs_stages_rmdir(struct fs_stages *t, const char *name)
{
	struct fs_stage *s;
	int ret = fs_stages_lookup(t, name, &s);

	if (ret)
		return ret;
	ret = remove_stage(s);
	if (ret)
		fs_stage_unpin(t, s);
	else
		let_go(t, s);
	return ret == -ESTALE ? -ENOENT : ret;
}

/* ---- publishing ---- */

bool fs_stages_by_rename(const struct fs_stages *t)
{
	return t->by_rename;
}

static void failed(struct fs_stages *t, struct fs_stage *s, int ret,
		   const char *why)
{
	if (ret != -EBUSY)
		fs_log("%s: stays staged: %s", staging_of(s)->name, why);
	pthread_mutex_lock(&t->lock);
	s->again = ret == -EBUSY;
	snprintf(s->why, sizeof(s->why), "%.511s", why);
	pthread_mutex_unlock(&t->lock);
}

/* 0: it is published, by us or by somebody else. */
static int publish(struct fs_stages *t, struct fs_stage *s, struct ck_err *err)
{
	const struct ck_commit_in in = {
		.opts = t->opts,
		.holes = ck_opts_get(t->opts, "allow-holes"),
	};
	uint64_t seq = fs_staged_seq(s->files);
	int ret = ck_commit(staging_of(s), &in, err);

	pthread_mutex_lock(&t->lock);
	s->tried = seq;
	pthread_mutex_unlock(&t->lock);
	if (ret && ret != -ESTALE) {
		failed(t, s, ret, err->msg);
		return ret;
	}
	if (!ret)
		fs_log("%s: published", staging_of(s)->name);
	pthread_mutex_lock(&t->lock);
	s->gone = true;
	pthread_mutex_unlock(&t->lock);
	return 0;
}

static void pause_ms(long ms)
{
	const struct timespec pause = { .tv_nsec = ms * 1000000 };

	nanosleep(&pause, NULL);
}

/* The kernel says of a close only after close() has returned. */
static void await_closes(struct fs_stage *s)
{
	for (int n = 0; n < CLOSE_MS && ck_staging_busy(staging_of(s)); n++)
		pause_ms(1);
}

/* The same, of closes on other nodes. */
static int publish_soon(struct fs_stages *t, struct fs_stage *s,
			struct ck_err *err)
{
	int ret = publish(t, s, err);

	for (int n = 0; n < CLOSE_MS / 20 && ret == -EBUSY &&
			!ck_staging_busy(staging_of(s));
	     n++) {
		pause_ms(20);
		ret = publish(t, s, err);
	}
	return ret;
}

int fs_stage_trigger(struct fs_stages *t, struct fs_stage *s,
		     struct ck_err *err)
{
	struct ck_err why = { 0 };
	int ret;

	await_closes(s);
	ck_staging_arm(staging_of(s));
	ret = publish_soon(t, s, &why);
	if (!ret)
		return 0;
	return ret == -EBUSY || ret == -ENODATA || ret == -EEXIST ?
		       0 :
		       ck_fail(err, -ret, "%s", why.msg);
}

int fs_stages_rename(struct fs_stages *t, const char *from, const char *to,
		     struct ck_err *err)
{
	struct ck_staging *stage;
	struct fs_stage *s;
	int ret = fs_stages_lookup(t, from, &s);

	if (ret)
		return ret;
	stage = staging_of(s);
	await_closes(s);
	ret = ck_staging_seize(stage, NULL);
	if (!ret) {
		pthread_mutex_lock(&t->lock); /* others look names up */
		ret = ck_staging_rename(stage, to, err);
		pthread_mutex_unlock(&t->lock);
		ck_staging_unseize(stage);
	}
	if (!ret && t->by_rename)
		ret = fs_stage_trigger(t, s, err);
	fs_stage_unpin(t, s);
	return ret;
}

/* ---- the thread ---- */

/* For how long nothing may be written to it, to be published; 0: never. */
static int64_t quiet_for(const struct fs_stages *t, const struct fs_stage *s)
{
	return t->quiet_after			   ? t->quiet_after :
	       ck_staging_is_copied(staging_of(s)) ? COPIED_SECONDS :
						     0;
}

/* Whether nothing has changed, by any mount, for as long as was asked. */
static bool is_quiet(struct fs_stages *t, struct fs_stage *s)
{
	ck_auto_below struct ck_below all = { 0 };
	uint64_t seq = fs_staged_seq(s->files);
	int64_t quiet = seq ? quiet_for(t, s) : 0;

	if (!quiet)
		return false;
	if (seq == s->seq && ck_now_s() - s->quiet_s < quiet)
		return false;
	if (ck_below_list(&all, staging_of(s)->files_fd, NULL))
		return false;
	if (seq == s->seq && all.signature == s->signature) {
		s->quiet_s = INT64_MAX / 2; /* once */
		return all.nr || ck_slices_begun(staging_of(s));
	}
	s->seq = seq;
	s->signature = all.signature;
	s->quiet_s = ck_now_s();
	return false;
}

/* Its index came, and something since, or somebody wrote the last time. */
static bool is_due(const struct fs_stages *t, const struct fs_stage *s)
{
	int64_t quiet = t->quiet_after ? t->quiet_after : COPIED_SECONDS;
	uint64_t seq = fs_staged_seq(s->files);

	if (ck_now_s() - atomic_load(&s->copied_s) < quiet)
		return false;
	return seq && (s->again || seq != s->tried) &&
	       ck_staging_is_armed(staging_of(s));
}

int fs_stage_cut(struct fs_stages *t, struct fs_stage *s, const char *layout,
		 size_t len, struct ck_err *err)
{
	struct ck_staging *stage = staging_of(s);
	int ret = ck_slices_make(stage, t->root, t->opts, layout, len, err);

	if (!ret && t->by_rename)
		ck_staging_arm(stage);
	return ret;
}

static void look_at(struct fs_stages *t, struct fs_stage *s)
{
	struct ck_err why = { 0 };
	bool due;

	if (s->gone || ck_staging_busy(staging_of(s)) || !fs_stage_is_whole(s))
		return;
	due = is_due(t, s);
	if ((due || is_quiet(t, s)) && publish(t, s, &why) == -EBUSY && !due)
		s->quiet_s = ck_now_s(); /* another node writes */
}

/* What a worker that was killed, or a node that died, had begun. */
static void recover_all(struct fs_stages *t)
{
	struct ck_staged_list all;

	ck_recover_sweep(t->root);
	if (ck_staged_list(&all, t->root, t->opts, false, NULL))
		return;
	for (size_t i = 0; i < all.nr; i++) {
		struct ck_err err = { 0 };
		int ret;

		if (all.v[i].state != CK_STAGED_BEGUN &&
		    all.v[i].state != CK_STAGED_PUBLISHED)
			continue;
		ret = ck_recover(t->root, all.v[i].name, t->opts, &err);
		if (ret == 1)
			fs_log("%s: its publish had broken off, and was done",
			       all.v[i].name);
		else if (ret && ret != -EBUSY && ret != -ESTALE)
			fs_log("%s: its publish had broken off: %s",
			       all.v[i].name, err.msg);
	}
	ck_staged_free(&all);
}

/* false: the end. */
static bool pause_(struct fs_stages *t)
{
	struct timespec until;

	clock_gettime(CLOCK_MONOTONIC, &until);
	until.tv_sec += LOOK_SECONDS;
	pthread_mutex_lock(&t->lock);
	while (!t->ending &&
	       !pthread_cond_timedwait(&t->wake, &t->lock, &until))
		;
	pthread_mutex_unlock(&t->lock);
	return !t->ending;
}

static void *run(void *ctx)
{
	struct fs_stages *t = ctx;

	recover_all(t);
	while (pause_(t))
		for (uint32_t i = 0; i < FS_STAGES_MAX; i++) {
			struct fs_stage *s = fs_stages_pin(
				t, fs_ino(FS_STAGES_FIRST + i, 1));

			if (!s)
				continue;
			look_at(t, s);
			fs_stage_unpin(t, s);
		}
	return NULL;
}

int fs_stages_start(struct fs_stages *t, struct ck_err *err)
{
	int ret = ck_fault_from_env(err);

	if (ret)
		return ret;
	ret = pthread_create(&t->thread, NULL, run, t);
	if (ret)
		return ck_fail(err, ret, "no thread for a mount: %s",
			       strerror(ret));
	t->started = true;
	return 0;
}

void fs_stage_text(struct fs_stages *t, struct fs_stage *s, struct ck_str *out)
{
	char why[512] = "";
	bool armed = ck_staging_is_armed(staging_of(s)), gone;

	pthread_mutex_lock(&t->lock);
	snprintf(why, sizeof(why), "%s", s->why);
	gone = s->gone;
	pthread_mutex_unlock(&t->lock);
	if (ck_staging_is_doomed(staging_of(s), why, sizeof(why)))
		ck_str_puts(out, "doomed");
	else if (gone)
		ck_str_puts(out, "published");
	else
		ck_str_puts(out, armed ? "staged, to be published when it is "
					 "complete and nobody writes" :
					 "staged");
	if (!gone && !armed && quiet_for(t, s))
		ck_str_fmt(out,
			   ", to be published when it is complete and nothing "
			   "was written for %lld s",
			   (long long)quiet_for(t, s));
	ck_str_fmt(out, "%s%s\n", *why ? ": " : "", why);
	if (!gone)
		fs_stage_say_lacks(s, out);
}
