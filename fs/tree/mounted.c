/* SPDX-License-Identifier: Apache-2.0 */
/*
 * mounted.c - making and ending a mounted checkpoint
 */
#include "fs/tree/behind.h"
#include "fs/tree/mounted_priv.h"

#include "core/base/auto.h"
#include "core/base/check.h"
#include "core/base/clock.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <xxhash.h>

#define RETRY_SECONDS 1
#define PASSING_SECONDS 10

/* The root that a mounted checkpoint's files are below. */
static const struct ck_root *root_of(const struct fs_mounted_table *s,
				     const struct fs_mounted *mounted)
{
	if (mounted->steps && !mounted->name)
		return s->root;
	return mounted->ck ? ck_ckpt_root(mounted->ck) : &mounted->root;
}

/* ".." changes with each entry beside this one. */
static bool is_dots(const char *name)
{
	return !strcmp(name, ".") || !strcmp(name, "..");
}

/*
 * What was described of the mounted checkpoint; NULL while it is not there to
 * be asked.
 */
static const struct ck_ckpt *ck_of(const struct fs_mounted *mounted)
{
	return atomic_load(&mounted->state) == FS_MOUNTED_READY ? mounted->ck :
								  NULL;
}

static void add_print(struct fs_print *p, const struct ck_ckpt *ck,
		      const char *name, const struct stat *st)
{
	bool ours = !strncmp(name, CK_MANIFEST_OURS, strlen(CK_MANIFEST_OURS));
	int64_t ns =
		(int64_t)st->st_mtim.tv_sec * 1000000000 + st->st_mtim.tv_nsec;
	uint64_t key[3], sum;

	if (S_ISREG(st->st_mode))
		ck_ckpt_wrote_file(ck, name, st, &ns);
	key[0] = (uint64_t)st->st_size;
	key[1] = (uint64_t)ns;
	key[2] = st->st_ino;
	sum = XXH3_64bits_withSeed(key, sizeof(key),
				   XXH3_64bits(name, strlen(name)));
	/* a sum: the order of a listing may differ */
	*(ours ? &p->ours : &p->files) += sum;
}

static void print_in(struct fs_print *p, const struct ck_root *root,
		     const char *name, const struct ck_ckpt *ck)
{
	ck_auto_dir DIR *d = NULL;
	const struct dirent *e;
	struct stat st;

	if (ck_root_list(root, name, &d, NULL))
		return;
	while ((e = readdir(d)))
		if (!is_dots(e->d_name) &&
		    strcmp(e->d_name, CK_WRITER_LOCK_NAME) &&
		    !fstatat(dirfd(d), e->d_name, &st, AT_SYMLINK_NOFOLLOW))
			add_print(p, ck, e->d_name, &st);
}

/* What is directly in the entry; what we wrote has its old time. */
static struct fs_print print_of(const struct fs_mounted_table *s,
				const struct fs_mounted *mounted)
{
	struct fs_print p = { 0 };

	for (const struct ck_root *r = s->root; r; r = r->next)
		print_in(&p, r, mounted->name, ck_of(mounted));
	return p;
}

/* The manifest follows what we write, and nobody else's does then. */
static bool same_print(const struct fs_mounted *mounted,
		       const struct fs_print *was, const struct fs_print *now)
{
	const struct ck_ckpt *ck = ck_of(mounted);

	return was->files == now->files &&
	       (was->ours == now->ours || (ck && ck_ckpt_last_wrote_ns(ck)));
}

static bool same_time(const struct stat *a, const struct stat *b)
{
	return a->st_mtim.tv_sec == b->st_mtim.tv_sec &&
	       a->st_mtim.tv_nsec == b->st_mtim.tv_nsec;
}

static bool same_inode(const struct stat *a, const struct stat *b)
{
	return a->st_dev == b->st_dev && a->st_ino == b->st_ino &&
	       (S_ISDIR(a->st_mode) || a->st_size == b->st_size);
}

static bool file_is_own(const struct fs_mounted *mounted,
			const struct ck_run_dir_entry *now)
{
	const struct ck_ckpt *ck = ck_of(mounted);
	const char *name = ck ? ck_ckpt_root(ck)->only : NULL;
	int64_t was;

	return name && ck_ckpt_wrote_file(ck, name, &now->st, &was);
}

/* Whether nothing is different in the folder but its time. */
static bool folder_is_as_it_was(struct fs_mounted_table *s,
				struct fs_mounted *mounted,
				const struct fs_print *was,
				const struct ck_run_dir_entry *now)
{
	struct fs_print print = print_of(s, mounted);
	bool same = same_print(mounted, was, &print);

	if (same) {
		pthread_mutex_lock(&s->lock);
		mounted->seen = now->st;
		pthread_mutex_unlock(&s->lock);
	}
	return same;
}

bool fs_mounted_same(struct fs_mounted_table *s, struct fs_mounted *mounted,
		     const struct ck_run_dir_entry *now)
{
	struct fs_print print;
	struct stat seen;

	pthread_mutex_lock(&s->lock);
	seen = mounted->seen;
	print = mounted->print;
	pthread_mutex_unlock(&s->lock);
	if (!same_inode(&seen, &now->st))
		return false;
	if (same_time(&seen, &now->st))
		return true;
	if (atomic_load(&mounted->state) == FS_MOUNTED_NEW)
		return false;
	return now->is_file ? file_is_own(mounted, now) :
			      folder_is_as_it_was(s, mounted, &print, now);
}

void fs_mounted_look_anew(struct fs_mounted_table *s,
			  struct fs_mounted *mounted)
{
	struct fs_print print = print_of(s, mounted);
	struct ck_run_dir_entry now = { 0 };

	if (ck_run_dir_look(&now, s->root, mounted->name)) {
		pthread_mutex_lock(&s->lock);
		mounted->seen = now.st;
		mounted->print = print;
		pthread_mutex_unlock(&s->lock);
	}
	ck_run_dir_entry_free(&now);
}

/* Faults of the machine, not of the entry. */
static bool may_pass(int code)
{
	return code == ETIMEDOUT || code == ENOMEM || code == EAGAIN ||
	       code == EMFILE || code == ENFILE;
}

bool fs_mounted_current(struct fs_mounted_table *s, struct fs_mounted *mounted,
			const struct ck_run_dir_entry *now)
{
	int state = atomic_load(&mounted->state);
	struct fs_print print;

	if (!fs_mounted_same(s, mounted, now))
		return false;
	if (state != FS_MOUNTED_NEW && mounted->failed &&
	    may_pass(mounted->why.code) &&
	    ck_now_s() >= mounted->made_s + PASSING_SECONDS)
		return false;
	if (state == FS_MOUNTED_NEW || (mounted->whole && !mounted->failed) ||
	    ck_now_s() < mounted->made_s + RETRY_SECONDS)
		return true;
	print = print_of(s, mounted);
	return now->is_file || same_print(mounted, &mounted->print, &print);
}

static uint64_t total_of(const struct ck_catalog *img)
{
	uint64_t total = 0;

	for (uint32_t i = 0; i < img->nr_tensors; i++)
		if (!ck_add_ok(total, img->tensors[i].size, &total))
			return CK_SIZE_MAX;
	return total;
}

static int open_views(struct fs_mounted_table *s, struct fs_mounted *mounted,
		      struct ck_err *err)
{
	int ret = 0;

	for (unsigned i = 0; ck_views[i]; i++)
		if (i == FS_MAX_VIEWS)
			return ck_fail(
				err, EOVERFLOW,
				"%s: inode numbers are for %d views, see "
				"FS_MAX_VIEWS",
				ck_views[i]->name, FS_MAX_VIEWS);
	for (unsigned i = 0; !ret && ck_views[i]; i++)
		ret = ck_view_open(&mounted->view[i], ck_views[i], mounted->ck,
				   0, s->in.opts, err);
	/* what is written would have to be forgotten of these too */
	for (unsigned i = 0; !ret && i < FS_MAX_VIEWS; i++)
		if (mounted->view[i] && mounted->view[i]->ops->nests &&
		    !ck_ckpt_is_rw(mounted->ck)) {
			mounted->nested =
				fs_nested_new(mounted->view[i], s->in.opts);
			ret = mounted->nested ? 0 : ck_no_memory(err);
		}
	return ret;
}

/* What stays known of a mounted checkpoint while it sleeps. */
static int learn(struct fs_mounted *mounted, const struct ck_root *root,
		 struct ck_err *err)
{
	mounted->made_s = ck_now_s();
	if (mounted->img) {
		mounted->whole = ck_run_dir_whole(mounted->img);
		mounted->files = mounted->img->nr_tensors;
		mounted->total = total_of(mounted->img);
		mounted->warnings = mounted->errors = 0;
		for (uint32_t i = 0; i < mounted->img->nr_problems; i++) {
			uint8_t is = mounted->img->problems[i].severity;

			mounted->warnings += is == CK_WARNING;
			mounted->errors += is == CK_ERROR;
		}
	}
	if (fstat(root->fd, &mounted->dir))
		return ck_fail(err, errno, "%s: %s", root->path,
			       strerror(errno));
	return 0;
}

/* What views cannot show is known once they were looked at. */
static void settle(void *ctx)
{
	const struct fs_mounted *mounted = ctx;

	for (unsigned i = 0; i < FS_MAX_VIEWS; i++)
		if (mounted->view[i])
			ck_view_find_problems(mounted->view[i]);
}

int fs_mounted_fill(struct fs_mounted_table *s, struct fs_mounted *mounted,
		    struct ck_err *err)
{
	const struct ck_root *root = root_of(s, mounted);
	const struct fs_virt_in virt = {
		.ck = mounted->ck,
		.kernel = s->in.kernel,
		.sandbox = s->in.sandbox,
		.generation = mounted->nr + 1,
		.text = fs_mounted_text,
		.settle = settle,
		.ctx = mounted,
		.owner = s,
		.map = s->in.map,
	};
	int ret = 0;

	mounted->serial = ++s->serial;
	mounted->img = mounted->ck ? ck_ckpt_catalog(mounted->ck) : NULL;
	if (mounted->ck)
		ck_ckpt_on_touch(mounted->ck, &s->in.touched);
	if (atomic_load(&mounted->state) == FS_MOUNTED_NEW)
		ret = learn(mounted, root, err);
	if (!ret && mounted->ck)
		ret = open_views(s, mounted, err);
	if (mounted->shards)
		fs_shards_move(mounted->shards, root);
	else
		mounted->shards = fs_shards_new(root);
	mounted->virt = fs_virt_new(&virt);
	if (!ret && (!mounted->shards || !mounted->virt))
		ret = ck_no_memory(err);
	if (!ret && atomic_load(&mounted->state) == FS_MOUNTED_NEW)
		ret = fs_mounted_list_siblings(s, mounted, err);
	return ret;
}

static int open_entry(struct fs_mounted_table *s, struct fs_mounted *mounted,
		      struct ck_err *err)
{
	ck_auto_fd int catalog = -1;
	int ret;

	ret = ck_run_dir_open(&mounted->root, s->root, mounted->name,
			      s->in.opts, err);
	if (!ret)
		ret = ck_ckpt_describe(&mounted->root, s->in.opts, &catalog,
				       err);
	if (!ret)
		ret = ck_ckpt_serve(&mounted->ck, &mounted->root, s->in.opts,
				    catalog, err);
	return ret;
}

/* No checkpoint itself, but what is in it is. */
static bool is_group(const struct fs_mounted_table *s,
		     const struct fs_mounted *mounted)
{
	struct ck_run_dir all;
	bool any;

	if (strchr(mounted->name, '/') ||
	    ck_run_dir_list_in(&all, s->root, mounted->name, NULL))
		return false;
	any = all.nr;
	ck_run_dir_free(&all);
	return any;
}

static enum fs_mounted_state parse(struct fs_mounted_table *s,
				   struct fs_mounted *mounted,
				   struct ck_err *why)
{
	int ret = open_entry(s, mounted, why);
	struct ck_err err;

	if (ret == -ENODATA && is_group(s, mounted)) {
		*why = (struct ck_err){ 0 };
		ret = 0;
		if (atomic_load(&mounted->state) == FS_MOUNTED_NEW)
			mounted->steps = true;
	}
	if (!ret && !fs_mounted_fill(s, mounted, why))
		return FS_MOUNTED_READY;
	if (!mounted->ck && mounted->root.fd >= 0)
		fs_mounted_fill(s, mounted, &err);
	return FS_MOUNTED_FAILED;
}

/* Whether the entry is, name by name, what it was when it was made. */
static bool is_still(struct fs_mounted_table *s, struct fs_mounted *mounted)
{
	struct fs_print print;

	if (fs_mounted_is_past(s, mounted))
		return false;
	print = print_of(s, mounted);
	return same_print(mounted, &mounted->print, &print);
}

static bool is_as_before(const struct fs_mounted *mounted,
			 enum fs_mounted_state state)
{
	if (mounted->failed)
		return state == FS_MOUNTED_FAILED;
	if (state != FS_MOUNTED_READY || mounted->steps)
		return state == FS_MOUNTED_READY && !mounted->img;
	return mounted->img && mounted->files == mounted->img->nr_tensors &&
	       mounted->total == total_of(mounted->img);
}

/* The kernel holds inodes that must mean the same again. */
static enum fs_mounted_state wake(struct fs_mounted_table *s,
				  struct fs_mounted *mounted)
{
	struct fs_mounted evicted = { 0 };
	enum fs_mounted_state state;
	struct ck_err why;

	/* numbers of folders that were asked for would mean others now */
	if (mounted->asked || !is_still(s, mounted))
		return FS_MOUNTED_ASLEEP;
	state = parse(s, mounted, &why);
	if (is_as_before(mounted, state))
		return state;
	fs_mounted_sleep(mounted, &evicted);
	fs_mounted_end(s, &evicted);
	return FS_MOUNTED_ASLEEP;
}

enum fs_mounted_state fs_mounted_make(struct fs_mounted_table *s,
				      struct fs_mounted *mounted,
				      struct ck_err *why)
{
	if (atomic_load(&mounted->state) == FS_MOUNTED_ASLEEP)
		return wake(s, mounted);
	mounted->dir = mounted->seen;
	mounted->made_s = ck_now_s();
	mounted->print = print_of(s, mounted);
	return parse(s, mounted, why);
}

static bool has_asked(const struct fs_mounted *mounted)
{
	for (unsigned i = 0; i < FS_MAX_VIEWS; i++) {
		const struct ck_view *v = mounted->view[i];

		if (v && v->ops->folders &&
		    v->ops->folders->nr(v) > v->ops->folders->nr_listed(v))
			return true;
	}
	return fs_nested_asked(mounted->nested);
}

void fs_mounted_sleep(struct fs_mounted *mounted, struct fs_mounted *evicted)
{
	mounted->asked |= has_asked(mounted);
	evicted->ck = mounted->ck;
	evicted->virt = mounted->virt;
	evicted->nested = mounted->nested;
	evicted->behind = atomic_exchange(&mounted->behind, NULL);
	evicted->root = mounted->root;
	memcpy(evicted->view, mounted->view, sizeof(evicted->view));
	mounted->ck = NULL;
	mounted->img = NULL;
	mounted->virt = NULL;
	mounted->nested = NULL;
	mounted->root = (struct ck_root){ .fd = -1, .blobs_fd = -1 };
	memset(mounted->view, 0, sizeof(mounted->view));
}

void fs_mounted_end(struct fs_mounted_table *s, struct fs_mounted *mounted)
{
	fs_behind_free(atomic_load(&mounted->behind));
	fs_nested_free(mounted->nested);
	for (unsigned i = 0; i < FS_MAX_VIEWS; i++)
		ck_view_close(mounted->view[i]);
	fs_virt_free(mounted->virt);
	if (mounted->ck && mounted->ck != s->one)
		ck_ckpt_close(mounted->ck);
	else if (!mounted->ck && mounted->root.fd >= 0)
		ck_root_close(&mounted->root);
}

void fs_mounted_free(struct fs_mounted_table *s, struct fs_mounted *mounted)
{
	fs_mounted_end(s, mounted);
	fs_shards_free(mounted->shards);
	ck_run_dir_free(&mounted->beside);
	free(mounted->unfit);
	free(mounted->name);
	free(mounted);
}
