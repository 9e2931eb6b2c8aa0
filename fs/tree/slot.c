/* SPDX-License-Identifier: Apache-2.0 */
/*
 * slot.c - making and ending one slot
 */
#include "fs/tree/slot_priv.h"

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

/* The root that a slot's files are below. */
static const struct ck_root *root_of(const struct fs_slots *s,
				     const struct fs_slot *slot)
{
	if (slot->steps && !slot->name)
		return s->root;
	return slot->ck ? ck_ckpt_root(slot->ck) : &slot->root;
}

/* ".." changes with each entry beside this one. */
static bool is_dots(const char *name)
{
	return !strcmp(name, ".") || !strcmp(name, "..");
}

/* What was described of the slot; NULL while it is not there to be asked. */
static const struct ck_ckpt *ck_of(const struct fs_slot *slot)
{
	return atomic_load(&slot->state) == FS_SLOT_READY ? slot->ck : NULL;
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
		if (!is_dots(e->d_name) && strcmp(e->d_name, CK_HOLD_NAME) &&
		    !fstatat(dirfd(d), e->d_name, &st, AT_SYMLINK_NOFOLLOW))
			add_print(p, ck, e->d_name, &st);
}

/* What is directly in the entry; what we wrote has its old time. */
static struct fs_print print_of(const struct fs_slots *s,
				const struct fs_slot *slot)
{
	struct fs_print p = { 0 };

	for (const struct ck_root *r = s->root; r; r = r->next)
		print_in(&p, r, slot->name, ck_of(slot));
	return p;
}

/* The manifest follows what we write, and nobody else's does then. */
static bool same_print(const struct fs_slot *slot, const struct fs_print *was,
		       const struct fs_print *now)
{
	const struct ck_ckpt *ck = ck_of(slot);

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

static bool file_is_own(const struct fs_slot *slot, const struct ck_step *now)
{
	const struct ck_ckpt *ck = ck_of(slot);
	const char *name = ck ? ck_ckpt_root(ck)->only : NULL;
	int64_t was;

	return name && ck_ckpt_wrote_file(ck, name, &now->st, &was);
}

/* Whether nothing is different in the folder but its time. */
static bool folder_is_as_it_was(struct fs_slots *s, struct fs_slot *slot,
				const struct fs_print *was,
				const struct ck_step *now)
{
	struct fs_print print = print_of(s, slot);
	bool same = same_print(slot, was, &print);

	if (same) {
		pthread_mutex_lock(&s->lock);
		slot->seen = now->st;
		pthread_mutex_unlock(&s->lock);
	}
	return same;
}

bool fs_slot_same(struct fs_slots *s, struct fs_slot *slot,
		  const struct ck_step *now)
{
	struct fs_print print;
	struct stat seen;

	pthread_mutex_lock(&s->lock);
	seen = slot->seen;
	print = slot->print;
	pthread_mutex_unlock(&s->lock);
	if (!same_inode(&seen, &now->st))
		return false;
	if (same_time(&seen, &now->st))
		return true;
	if (atomic_load(&slot->state) == FS_SLOT_NEW)
		return false;
	return now->is_file ? file_is_own(slot, now) :
			      folder_is_as_it_was(s, slot, &print, now);
}

void fs_slot_look_anew(struct fs_slots *s, struct fs_slot *slot)
{
	struct fs_print print = print_of(s, slot);
	struct ck_step now = { 0 };

	if (ck_steps_look(&now, s->root, slot->name)) {
		pthread_mutex_lock(&s->lock);
		slot->seen = now.st;
		slot->print = print;
		pthread_mutex_unlock(&s->lock);
	}
	ck_step_free(&now);
}

/* Faults of the machine, not of the entry. */
static bool may_pass(int code)
{
	return code == ETIMEDOUT || code == ENOMEM || code == EAGAIN ||
	       code == EMFILE || code == ENFILE;
}

bool fs_slot_current(struct fs_slots *s, struct fs_slot *slot,
		     const struct ck_step *now)
{
	int state = atomic_load(&slot->state);
	struct fs_print print;

	if (!fs_slot_same(s, slot, now))
		return false;
	if (state != FS_SLOT_NEW && slot->failed && may_pass(slot->why.code) &&
	    ck_now_s() >= slot->made_s + PASSING_SECONDS)
		return false;
	if (state == FS_SLOT_NEW || (slot->whole && !slot->failed) ||
	    ck_now_s() < slot->made_s + RETRY_SECONDS)
		return true;
	print = print_of(s, slot);
	return now->is_file || same_print(slot, &slot->print, &print);
}

static uint64_t total_of(const struct ck_image *img)
{
	uint64_t total = 0;

	for (uint32_t i = 0; i < img->nr_tensors; i++)
		if (!ck_add_ok(total, img->tensors[i].size, &total))
			return CK_SIZE_MAX;
	return total;
}

static int open_views(struct fs_slots *s, struct fs_slot *slot,
		      struct ck_err *err)
{
	int ret = 0;

	for (unsigned i = 0; !ret && ck_views[i] && i < FS_MAX_VIEWS; i++)
		ret = ck_view_open(&slot->view[i], ck_views[i], slot->ck, 0,
				   s->in.opts, err);
	/* what is written would have to be forgotten of these too */
	for (unsigned i = 0; !ret && i < FS_MAX_VIEWS; i++)
		if (slot->view[i] && slot->view[i]->ops->nests &&
		    !ck_ckpt_is_rw(slot->ck))
			slot->nested = fs_nested_new(slot->view[i], s->in.opts);
	return ret;
}

/* What stays known of a slot while it sleeps. */
static int learn(struct fs_slot *slot, const struct ck_root *root,
		 struct ck_err *err)
{
	slot->made_s = ck_now_s();
	if (slot->img) {
		slot->whole = ck_steps_whole(slot->img);
		slot->files = slot->img->nr_tensors;
		slot->total = total_of(slot->img);
		slot->warnings = 0;
		for (uint32_t i = 0; i < slot->img->nr_problems; i++)
			if (slot->img->problems[i].severity == CK_WARNING)
				slot->warnings++;
	}
	if (fstat(root->fd, &slot->dir))
		return ck_fail(err, errno, "%s: %s", root->path,
			       strerror(errno));
	return 0;
}

/* What views cannot show is known once they were looked at. */
static void settle(void *ctx)
{
	const struct fs_slot *slot = ctx;

	for (unsigned i = 0; i < FS_MAX_VIEWS; i++)
		if (slot->view[i])
			ck_view_settle(slot->view[i]);
}

int fs_slot_fill(struct fs_slots *s, struct fs_slot *slot, struct ck_err *err)
{
	const struct ck_root *root = root_of(s, slot);
	const struct fs_virt_in virt = {
		.ck = slot->ck,
		.kernel = s->in.kernel,
		.sandbox = s->in.sandbox,
		.generation = slot->nr + 1,
		.text = fs_slot_text,
		.settle = settle,
		.ctx = slot,
		.owner = s,
	};
	int ret = 0;

	slot->img = slot->ck ? ck_ckpt_image(slot->ck) : NULL;
	if (atomic_load(&slot->state) == FS_SLOT_NEW)
		ret = learn(slot, root, err);
	if (!ret && slot->ck)
		ret = open_views(s, slot, err);
	if (slot->shards)
		fs_shards_move(slot->shards, root);
	else
		slot->shards = fs_shards_new(root);
	slot->virt = fs_virt_new(&virt);
	if (!ret && (!slot->shards || !slot->virt))
		ret = ck_fail(err, ENOMEM, "no memory for a mount");
	if (!ret && atomic_load(&slot->state) == FS_SLOT_NEW)
		ret = fs_slot_list_beside(s, slot, err);
	return ret;
}

static int open_entry(struct fs_slots *s, struct fs_slot *slot,
		      struct ck_err *err)
{
	ck_auto_fd int image = -1;
	int ret;

	ret = ck_steps_open(&slot->root, s->root, slot->name, s->in.opts, err);
	if (!ret)
		ret = ck_ckpt_describe(&slot->root, s->in.opts, &image, err);
	if (!ret)
		ret = ck_ckpt_serve(&slot->ck, &slot->root, s->in.opts, image,
				    err);
	return ret;
}

/* No checkpoint itself, but what is in it is. */
static bool is_group(const struct fs_slots *s, const struct fs_slot *slot)
{
	struct ck_steps all;
	bool any;

	if (strchr(slot->name, '/') ||
	    ck_steps_list_in(&all, s->root, slot->name, NULL))
		return false;
	any = all.nr;
	ck_steps_free(&all);
	return any;
}

static enum fs_slot_state parse(struct fs_slots *s, struct fs_slot *slot,
				struct ck_err *why)
{
	int ret = open_entry(s, slot, why);
	struct ck_err err;

	if (ret == -ENODATA && is_group(s, slot)) {
		*why = (struct ck_err){ 0 };
		ret = 0;
		if (atomic_load(&slot->state) == FS_SLOT_NEW)
			slot->steps = true;
	}
	if (!ret && !fs_slot_fill(s, slot, why))
		return FS_SLOT_READY;
	if (!slot->ck && slot->root.fd >= 0)
		fs_slot_fill(s, slot, &err);
	return FS_SLOT_FAILED;
}

/* Whether the entry is, name by name, what it was when it was made. */
static bool is_still(struct fs_slots *s, struct fs_slot *slot)
{
	struct fs_print print;

	if (fs_slot_is_past(s, slot))
		return false;
	print = print_of(s, slot);
	return same_print(slot, &slot->print, &print);
}

static bool is_as_before(const struct fs_slot *slot, enum fs_slot_state state)
{
	if (slot->failed)
		return state == FS_SLOT_FAILED;
	if (state != FS_SLOT_READY || slot->steps)
		return state == FS_SLOT_READY && !slot->img;
	return slot->img && slot->files == slot->img->nr_tensors &&
	       slot->total == total_of(slot->img);
}

/* The kernel holds inodes that must mean the same again. */
static enum fs_slot_state wake(struct fs_slots *s, struct fs_slot *slot)
{
	struct fs_slot husk = { 0 };
	enum fs_slot_state state;
	struct ck_err why;

	/* numbers of folders that were asked for would mean others now */
	if (slot->asked || !is_still(s, slot))
		return FS_SLOT_ASLEEP;
	state = parse(s, slot, &why);
	if (is_as_before(slot, state))
		return state;
	fs_slot_sleep(slot, &husk);
	fs_slot_end(s, &husk);
	return FS_SLOT_ASLEEP;
}

enum fs_slot_state fs_slot_make(struct fs_slots *s, struct fs_slot *slot,
				struct ck_err *why)
{
	if (atomic_load(&slot->state) == FS_SLOT_ASLEEP)
		return wake(s, slot);
	slot->dir = slot->seen;
	slot->made_s = ck_now_s();
	slot->print = print_of(s, slot);
	return parse(s, slot, why);
}

static bool has_asked(const struct fs_slot *slot)
{
	for (unsigned i = 0; i < FS_MAX_VIEWS; i++) {
		const struct ck_view *v = slot->view[i];

		if (v && v->ops->folders &&
		    v->ops->folders->nr(v) > v->ops->folders->nr_listed(v))
			return true;
	}
	return fs_nested_asked(slot->nested);
}

void fs_slot_sleep(struct fs_slot *slot, struct fs_slot *husk)
{
	slot->asked |= has_asked(slot);
	husk->ck = slot->ck;
	husk->virt = slot->virt;
	husk->nested = slot->nested;
	husk->root = slot->root;
	memcpy(husk->view, slot->view, sizeof(husk->view));
	slot->ck = NULL;
	slot->img = NULL;
	slot->virt = NULL;
	slot->nested = NULL;
	slot->root = (struct ck_root){ .fd = -1, .blobs_fd = -1 };
	memset(slot->view, 0, sizeof(slot->view));
}

void fs_slot_end(struct fs_slots *s, struct fs_slot *slot)
{
	fs_nested_free(slot->nested);
	for (unsigned i = 0; i < FS_MAX_VIEWS; i++)
		ck_view_close(slot->view[i]);
	fs_virt_free(slot->virt);
	if (slot->ck && slot->ck != s->one)
		ck_ckpt_close(slot->ck);
	else if (!slot->ck && slot->root.fd >= 0)
		ck_root_close(&slot->root);
}

void fs_slot_free(struct fs_slots *s, struct fs_slot *slot)
{
	fs_slot_end(s, slot);
	fs_shards_free(slot->shards);
	ck_steps_free(&slot->beside);
	free(slot->unfit);
	free(slot->name);
	free(slot);
}
