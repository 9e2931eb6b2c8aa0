/* SPDX-License-Identifier: Apache-2.0 */
/*
 * drafts.c - the table of drafts, and when each is published
 *
 * The lock is held for moments.  A publish runs without it: the draft's own
 * lock keeps others away.
 */
#include "fs/draft/drafts.h"

#include "core/base/check.h"
#include "core/base/clock.h"
#include "core/base/number.h"
#include "core/root/fault.h"
#include "core/draft/dir_tree.h"
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
#define LOOK_NS INT64_C(1000000000)
#define CLOSE_MS 2000 /* the kernel tells of a close a moment later */

struct fs_drafts {
	const struct ck_root *root;
	const struct ck_opts *opts;
	bool by_rename; /* -o publish=auto */
	int64_t quiet_after; /* -o publish-after=; 0: never */
	pthread_mutex_t lock;
	pthread_cond_t wake;
	bool ending, started;
	pthread_t thread;
	struct fs_draft *v[FS_DRAFTS_MAX];
	uint32_t last; /* where to look for a free number first */
};

struct fs_drafts *fs_drafts_new(const struct ck_root *root,
				const struct ck_opts *opts)
{
	struct fs_drafts *t = calloc(1, sizeof(*t));
	const char *how = ck_opts_get(opts, "publish");
	pthread_condattr_t attr;

	if (!t)
		return NULL;
	t->root = root;
	t->opts = opts;
	t->by_rename = !how || strcmp(how, "manual");
	t->quiet_after = (long long)ck_opts_size(opts, "publish-after", 0);
	pthread_mutex_init(&t->lock, NULL);
	pthread_condattr_init(&attr);
	pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	pthread_cond_init(&t->wake, &attr);
	pthread_condattr_destroy(&attr);
	return t;
}

/* On sshfs and bindfs some of it goes only when nothing of it is open. */
static void free_draft(const struct fs_drafts *t, struct fs_draft *s)
{
	fs_draft_tree_free(s->files);
	if (s->gone)
		ck_recover_sweep(t->root);
	free(s);
}

void fs_drafts_free(struct fs_drafts *t)
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
	for (size_t i = 0; i < FS_DRAFTS_MAX; i++)
		if (t->v[i])
			free_draft(t, t->v[i]);
	pthread_mutex_destroy(&t->lock);
	pthread_cond_destroy(&t->wake);
	free(t);
}

/* ---- the table; under the lock ---- */

static struct ck_draft *draft_of(const struct fs_draft *s)
{
	return fs_draft_tree_draft(s->files);
}

/* Nobody refers to it, and what we wrote to it, if anything, is published. */
static struct fs_draft *take_unused(struct fs_drafts *t, struct fs_draft *s)
{
	if (s->pins || s->known || (!s->gone && fs_draft_tree_seq(s->files)))
		return NULL;
	t->v[s->nr - FS_DRAFTS_FIRST] = NULL;
	return s;
}

static struct fs_draft *named(struct fs_drafts *t, const char *name)
{
	for (size_t i = 0; i < FS_DRAFTS_MAX; i++)
		if (t->v[i] && !t->v[i]->gone &&
		    !strcmp(draft_of(t->v[i])->name, name))
			return t->v[i];
	return NULL;
}

/* Takes @draft; NULL: closed, for want of memory or a number. */
static struct fs_draft *add(struct fs_drafts *t, struct ck_draft *draft)
{
	struct fs_draft *s = calloc(1, sizeof(*s));

	if (s)
		s->files = fs_draft_tree_new(draft);
	for (uint32_t i = 0; s && s->files && i < FS_DRAFTS_MAX; i++) {
		uint32_t nr = (t->last + i) % FS_DRAFTS_MAX;

		if (t->v[nr])
			continue;
		t->last = nr + 1;
		t->v[nr] = s;
		s->nr = FS_DRAFTS_FIRST + nr;
		s->quiet_s = ck_now_s();
		s->copied_s = INT64_MIN / 2;
		return s;
	}
	if (s && s->files)
		fs_draft_tree_free(s->files);
	else
		ck_draft_close(draft);
	free(s);
	return NULL;
}

/* ---- references ---- */

struct fs_draft *fs_drafts_pin(struct fs_drafts *t, uint64_t ino)
{
	uint32_t i = fs_ino_mounted(ino) - FS_DRAFTS_FIRST;
	struct fs_draft *s;

	if (!t || i >= FS_DRAFTS_MAX)
		return NULL;
	pthread_mutex_lock(&t->lock);
	s = t->v[i];
	if (s)
		s->pins++;
	pthread_mutex_unlock(&t->lock);
	return s;
}

void fs_draft_unpin(struct fs_drafts *t, struct fs_draft *s)
{
	struct fs_draft *unused;

	pthread_mutex_lock(&t->lock);
	s->pins--;
	unused = take_unused(t, s);
	pthread_mutex_unlock(&t->lock);
	if (unused)
		free_draft(t, unused);
}

void fs_draft_know(struct fs_drafts *t, struct fs_draft *s)
{
	pthread_mutex_lock(&t->lock);
	s->known++;
	pthread_mutex_unlock(&t->lock);
}

void fs_draft_forget(struct fs_drafts *t, struct fs_draft *s, uint64_t nr)
{
	pthread_mutex_lock(&t->lock);
	s->known -= CK_MIN(s->known, nr);
	pthread_mutex_unlock(&t->lock);
}

/* ---- names ---- */

static struct fs_draft *pin_named(struct fs_drafts *t, const char *name)
{
	struct fs_draft *s;

	pthread_mutex_lock(&t->lock);
	s = named(t, name);
	if (s)
		s->pins++;
	pthread_mutex_unlock(&t->lock);
	return s;
}

static void let_go(struct fs_drafts *t, struct fs_draft *s)
{
	pthread_mutex_lock(&t->lock);
	s->gone = true;
	pthread_mutex_unlock(&t->lock);
	fs_draft_unpin(t, s);
}

/* Another thread may have been quicker: then its entry. */
static int enter(struct fs_drafts *t, struct ck_draft *draft,
		 struct fs_draft **out)
{
	struct fs_draft *s;
	bool ours = false;

	pthread_mutex_lock(&t->lock);
	s = named(t, draft->name);
	if (!s) {
		s = add(t, draft);
		ours = true;
	}
	if (s)
		s->pins++;
	pthread_mutex_unlock(&t->lock);
	if (!ours)
		ck_draft_close(draft);
	*out = s;
	return s ? 0 : -ENOMEM;
}

int fs_drafts_lookup(struct fs_drafts *t, const char *name,
		     struct fs_draft **out)
{
	struct ck_draft *draft;
	int ret;

	*out = pin_named(t, name);
	if (*out && ck_draft_is_current(draft_of(*out)))
		return 0;
	if (*out)
		let_go(t, *out);
	*out = NULL;
	ret = ck_draft_open(&draft, t->root, name, NULL);
	return ret ? ret : enter(t, draft, out);
}

/* The folder is whose asked for it, and of the mode that he asked for. */
static void give_to(const struct fs_drafts *t, const struct ck_draft *draft,
		    mode_t mode, const struct fs_draft_tree_who *who)
{
	/* where this fails it is as the mount's own user makes it */
	mode = fs_draft_tree_mode_in(t->root->fd, mode, who) | S_IRWXU;
	if (!fs_draft_tree_own(draft->fd, t->root->fd, mode, who))
		fs_draft_tree_own(draft->files_fd, draft->fd, mode, who);
}

static int cut(const struct fs_drafts *t, struct ck_draft *draft,
	       const char *layout, size_t len, struct ck_err *err)
{
	int ret = ck_slices_make(draft, t->root, t->opts, layout, len, err);

	if (!ret && t->by_rename)
		ck_draft_publish_when_complete(draft);
	return ret;
}

int fs_draft_cut(struct fs_drafts *t, struct fs_draft *s, const char *layout,
		 size_t len, struct ck_err *err)
{
	return cut(t, draft_of(s), layout, len, err);
}

int fs_drafts_mkdir(struct fs_drafts *t, const char *name, mode_t mode,
		    const struct fs_draft_tree_who *who, struct fs_draft **out,
		    struct ck_err *err)
{
	struct ck_draft *draft;
	const char *layout;
	size_t len = 0;
	int ret = ck_draft_make(&draft, t->root, name, err);

	if (ret)
		return ret;
	give_to(t, draft, mode, who);
	layout = ck_slices_wanted(t->opts, &len);
	ret = layout ? cut(t, draft, layout, len, err) : 0;
	if (!ret)
		return enter(t, draft, out);
	if (!ck_draft_lock(draft, NULL)) {
		ck_draft_remove(draft, NULL);
		ck_draft_unlock(draft);
	}
	ck_draft_close(draft);
	return ret;
}

static int remove_draft(struct fs_draft *s)
{
	struct ck_draft *draft = draft_of(s);
	bool empty;
	int ret = ck_draft_lock(draft, NULL);

	if (ret)
		return ret;
	ret = fs_draft_is_empty(s, &empty);
	if (!ret)
		ret = empty ? ck_draft_remove(draft, NULL) : -ENOTEMPTY;
	ck_draft_unlock(draft);
	return ret;
}

int fs_drafts_rmdir(struct fs_drafts *t, const char *name)
{
	struct fs_draft *s;
	int ret = fs_drafts_lookup(t, name, &s);

	if (ret)
		return ret;
	ret = remove_draft(s);
	if (ret)
		fs_draft_unpin(t, s);
	else
		let_go(t, s);
	return ret == -ESTALE ? -ENOENT : ret;
}

/* ---- publishing ---- */

bool fs_drafts_by_rename(const struct fs_drafts *t)
{
	return t->by_rename;
}

static void failed(struct fs_drafts *t, struct fs_draft *s, int ret,
		   const char *why)
{
	if (ret != -EBUSY)
		fs_log("%s: stays a draft: %s", CK_DRAFT_NAME(draft_of(s)),
		       why);
	pthread_mutex_lock(&t->lock);
	s->again = ret == -EBUSY;
	snprintf(s->why, sizeof(s->why), "%.511s", why);
	pthread_mutex_unlock(&t->lock);
}

/* 0: it is published, by us or by somebody else. */
static int publish(struct fs_drafts *t, struct fs_draft *s, struct ck_err *err)
{
	const struct ck_commit_in in = {
		.opts = t->opts,
		.holes = ck_opts_get(t->opts, "allow-holes"),
	};
	uint64_t seq = fs_draft_tree_seq(s->files);
	int ret = ck_commit(draft_of(s), &in, err);

	pthread_mutex_lock(&t->lock);
	s->tried = seq;
	pthread_mutex_unlock(&t->lock);
	if (ret && ret != -ESTALE) {
		failed(t, s, ret, err->msg);
		return ret;
	}
	if (!ret)
		fs_log("%s: published", CK_DRAFT_NAME(draft_of(s)));
	pthread_mutex_lock(&t->lock);
	s->gone = true;
	pthread_mutex_unlock(&t->lock);
	return 0;
}

static void pause_ms(long ms)
{
	nanosleep(&(struct timespec){ .tv_nsec = ms * 1000000 }, NULL);
}

/* The kernel says of a close only after close() has returned. */
static void await_closes(struct fs_draft *s)
{
	for (int n = 0; n < CLOSE_MS && ck_draft_busy(draft_of(s)); n++)
		pause_ms(1);
}

/* The same, of closes on other nodes. */
static int publish_soon(struct fs_drafts *t, struct fs_draft *s,
			struct ck_err *err)
{
	int ret = publish(t, s, err);

	for (int n = CLOSE_MS / 20;
	     n-- && ret == -EBUSY && !ck_draft_busy(draft_of(s));) {
		pause_ms(20);
		ret = publish(t, s, err);
	}
	return ret;
}

int fs_draft_trigger(struct fs_drafts *t, struct fs_draft *s,
		     struct ck_err *err)
{
	struct ck_err why = { 0 };
	int ret;

	await_closes(s);
	ck_draft_publish_when_complete(draft_of(s));
	ret = publish_soon(t, s, &why);
	if (!ret)
		return 0;
	return ret == -EBUSY || ret == -ENODATA || ret == -EEXIST ?
		       0 :
		       ck_fail(err, -ret, "%s", why.msg);
}

int fs_drafts_rename(struct fs_drafts *t, const char *from, const char *to,
		     struct ck_err *err)
{
	struct ck_draft *draft;
	struct fs_draft *s;
	int ret = fs_drafts_lookup(t, from, &s);

	if (ret)
		return ret;
	draft = draft_of(s);
	await_closes(s);
	ret = ck_draft_lock(draft, NULL);
	if (!ret) {
		pthread_mutex_lock(&t->lock); /* others look names up */
		ret = ck_draft_rename(draft, to, err);
		pthread_mutex_unlock(&t->lock);
		ck_draft_unlock(draft);
	}
	if (!ret && t->by_rename)
		ret = fs_draft_trigger(t, s, err);
	fs_draft_unpin(t, s);
	return ret;
}

/* ---- the thread ---- */

/* For how long nothing may be written to it, to be published; 0: never. */
static int64_t quiet_for(const struct fs_drafts *t,
			 const struct ck_draft_said *said)
{
	return t->quiet_after	? t->quiet_after :
	       said->when_quiet ? COPIED_SECONDS :
				  0;
}

/* Whether nothing has changed, by any mount, for as long as was asked. */
static bool is_quiet(struct fs_draft *s, int64_t quiet)
{
	ck_auto_dir_tree struct ck_dir_tree all = { 0 };
	uint64_t seq = fs_draft_tree_seq(s->files);

	if (!quiet || !seq ||
	    (seq == s->seq && ck_now_s() - s->quiet_s < quiet))
		return false;
	if (ck_dir_tree_list(&all, draft_of(s)->files_fd, NULL))
		return false;
	if (seq == s->seq && all.signature == s->signature) {
		s->quiet_s = INT64_MAX / 2; /* once */
		return all.nr || ck_slices_begun(draft_of(s));
	}
	s->seq = seq;
	s->signature = all.signature;
	s->quiet_s = ck_now_s();
	return false;
}

/* Its index came, and something since, or somebody wrote the last time. */
static bool is_due(const struct fs_drafts *t, const struct fs_draft *s)
{
	int64_t quiet = t->quiet_after ? t->quiet_after : COPIED_SECONDS;
	uint64_t seq = fs_draft_tree_seq(s->files);

	return seq && (s->again || seq != s->tried) &&
	       ck_now_s() - atomic_load(&s->copied_s) >= quiet;
}

static void look_at(struct fs_drafts *t, struct fs_draft *s)
{
	struct ck_draft_said said;
	struct ck_err why = { 0 };
	bool due;

	if (s->gone || ck_draft_busy(draft_of(s)) || !fs_draft_is_whole(s))
		return;
	ck_draft_look(draft_of(s), &said);
	due = said.when_complete && is_due(t, s);
	if ((due || is_quiet(s, quiet_for(t, &said))) &&
	    publish(t, s, &why) == -EBUSY && !due)
		s->quiet_s = ck_now_s(); /* another node writes */
}

/* What a worker that was killed, or a node that died, had begun. */
static void recover_all(struct fs_drafts *t)
{
	struct ck_draft_list all;

	ck_recover_sweep(t->root);
	if (ck_draft_list(&all, t->root, t->opts, false, NULL))
		return;
	for (size_t i = 0; i < all.nr; i++) {
		struct ck_err err = { 0 };
		int ret;

		if (all.v[i].state != CK_DRAFT_BEGUN &&
		    all.v[i].state != CK_DRAFT_PUBLISHED)
			continue;
		ret = ck_recover(t->root, all.v[i].name, t->opts, &err);
		if (ret == 1)
			fs_log("%s: its publish had broken off, and was done",
			       all.v[i].name);
		else if (ret && ret != -EBUSY && ret != -ESTALE)
			fs_log("%s: its publish had broken off: %s",
			       all.v[i].name, err.msg);
	}
	ck_draft_list_free(&all);
}

/* false: the end. */
static bool pause_(struct fs_drafts *t)
{
	struct timespec until = ck_deadline(CLOCK_MONOTONIC, LOOK_NS);

	pthread_mutex_lock(&t->lock);
	while (!t->ending &&
	       !pthread_cond_timedwait(&t->wake, &t->lock, &until))
		;
	pthread_mutex_unlock(&t->lock);
	return !t->ending;
}

static void *run(void *ctx)
{
	struct fs_drafts *t = ctx;

	recover_all(t);
	while (pause_(t))
		for (uint32_t i = 0; i < FS_DRAFTS_MAX; i++) {
			struct fs_draft *s = fs_drafts_pin(
				t, fs_ino(FS_DRAFTS_FIRST + i, 1));

			if (!s)
				continue;
			look_at(t, s);
			fs_draft_unpin(t, s);
		}
	return NULL;
}

int fs_drafts_start(struct fs_drafts *t, struct ck_err *err)
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

void fs_draft_text(struct fs_drafts *t, struct fs_draft *s, struct ck_str *out)
{
	struct ck_draft_said said;
	char why[512] = "";
	bool gone;

	ck_draft_look(draft_of(s), &said);
	pthread_mutex_lock(&t->lock);
	snprintf(why, sizeof(why), "%s", s->why);
	gone = s->gone;
	pthread_mutex_unlock(&t->lock);
	if (said.doomed) {
		ck_str_puts(out, "doomed");
		snprintf(why, sizeof(why), "%s", said.doomed_why);
	} else if (gone) {
		ck_str_puts(out, "published");
	} else {
		ck_str_puts(out, "staged");
		if (said.when_complete)
			ck_str_puts(out,
				    ", to be published when it is complete "
				    "and nobody writes");
		else if (quiet_for(t, &said))
			ck_str_fmt(out,
				   ", to be published when it is complete and "
				   "nothing was written for %lld s",
				   (long long)quiet_for(t, &said));
	}
	ck_str_fmt(out, "%s%s\n", *why ? ": " : "", why);
	if (!gone)
		fs_draft_report_missing(s, out);
}
