/* SPDX-License-Identifier: Apache-2.0 */
/*
 * mounted_same.c - whether an entry is still what was mounted of it
 *
 * A look-up compares what lies directly in the entry, and that only where its
 * time says so.  Of one that was not whole all that lies below is compared too,
 * for a save may go on folders below its step, and no time of a folder tells; so
 * is one of which bytes could not be read since.
 * What wakes up is compared by its catalog: each file, and each tensor that the
 * kernel has a number of.
 */
#include "fs/tree/mounted_priv.h"

#include "core/base/auto.h"
#include "core/base/clock.h"
#include "core/base/vec.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#define RETRY_SECONDS 1
#define PASSING_SECONDS 10
#define FOLDERS_MAX 4096 /* below an entry, that are looked into */
#define DEPTH_MAX 6 /* of them, one in another */

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

static bool is_ours(const char *name)
{
	return !strncmp(name, CK_MANIFEST_OURS, strlen(CK_MANIFEST_OURS));
}

/* Of a file, by its name in the checkpoint; what we wrote has its old time. */
static uint64_t sum_of(const struct ck_ckpt *ck, const char *name,
		       const struct stat *st)
{
	int64_t ns = ck_ns(st->st_mtim);
	uint64_t key[3];

	if (S_ISREG(st->st_mode))
		ck_ckpt_wrote_file(ck, name, st, &ns);
	key[0] = (uint64_t)st->st_size;
	key[1] = (uint64_t)ns;
	key[2] = st->st_ino;
	return XXH3_64bits_withSeed(key, sizeof(key),
				    XXH3_64bits(name, strlen(name)));
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
			/* a sum: the order of a listing may differ */
			*(is_ours(e->d_name) ? &p->ours : &p->files) +=
				sum_of(ck, e->d_name, &st);
}

/* What is directly in the entry. */
static struct fs_print print_of(const struct fs_mounted_table *s,
				const struct fs_mounted *mounted)
{
	struct fs_print p = { 0 };

	for (const struct ck_root *r = s->root; r; r = r->next)
		print_in(&p, r, mounted->name, ck_of(mounted));
	return p;
}

/* ---- all that lies below ---- */

struct below {
	const struct ck_root *root;
	const char *top; /* the folder in it */
	const struct ck_ckpt *ck; /* what it wrote has its old time */
	CK_VEC(char *) folders; /* in @top; "": that itself */
	uint64_t sum, ctimes; /* of the files; and of their ctimes */
};

static unsigned depth_of(const char *path)
{
	unsigned nr = *path != '\0';

	for (; *path; path++)
		nr += *path == '/';
	return nr;
}

static bool is_folder(const struct below *b, int at, const char *base,
		      const char *path, struct stat *st)
{
	ck_auto_str struct ck_str real = { 0 };

	if (S_ISLNK(st->st_mode)) {
		ck_str_fmt(&real, "%s/%s", b->top, path);
		if (!real.failed)
			ck_root_stat_link(b->root, at, base, real.v, st);
	}
	return S_ISDIR(st->st_mode);
}

/* Folders count by what is in them: their time changes by our locks, too. */
static void add_below(struct below *b, int at, const char *in, const char *base)
{
	ck_auto_str struct ck_str path = { 0 };
	struct stat st;

	if (is_ours(base) || fstatat(at, base, &st, AT_SYMLINK_NOFOLLOW))
		return;
	ck_str_fmt(&path, "%s%s%s", in, *in ? "/" : "", base);
	if (path.failed)
		return;
	if (!is_folder(b, at, base, path.v, &st)) {
		b->sum += sum_of(b->ck, path.v, &st);
		b->ctimes += XXH3_64bits_withSeed(path.v, path.len,
						  (uint64_t)ck_ns(st.st_ctim));
		return;
	}
	b->sum += XXH3_64bits(path.v, path.len);
	if (*base != '.' && depth_of(in) < DEPTH_MAX &&
	    b->folders.nr < FOLDERS_MAX &&
	    !ck_vec_put(&b->folders, NULL, path.v))
		path.v = NULL;
}

static void list_below(struct below *b, const char *in)
{
	ck_auto_str struct ck_str path = { 0 };
	ck_auto_dir DIR *d = NULL;
	const struct dirent *e;

	ck_str_fmt(&path, "%s%s%s", b->top, *in ? "/" : "", in);
	if (path.failed || ck_root_list(b->root, path.v, &d, NULL))
		return;
	while ((e = readdir(d)))
		if (!is_dots(e->d_name))
			add_below(b, dirfd(d), in, e->d_name);
}

/*
 * All files of the folder that the entry is read in, down to DEPTH_MAX folders
 * in it; ours aside.  *with_ctimes: the same, in which their ctimes count; or NULL.
 */
static uint64_t below_of(const struct fs_mounted_table *s,
			 const struct fs_mounted *mounted,
			 uint64_t *with_ctimes)
{
	ck_auto_free char *top = ck_run_dir_folder(s->root, mounted->name);
	uint64_t sum = top ? XXH3_64bits(top, strlen(top)) : 0, ctimes = 0;

	for (const struct ck_root *r = s->root; top && r; r = r->next) {
		struct below b = { .root = r,
				   .top = top,
				   .ck = ck_of(mounted) };

		list_below(&b, "");
		for (size_t i = 0; i < b.folders.nr; i++) {
			list_below(&b, b.folders.v[i]);
			free(b.folders.v[i]);
		}
		free(b.folders.v);
		sum += b.sum;
		ctimes += b.ctimes;
	}
	if (with_ctimes)
		*with_ctimes = sum + ctimes;
	return sum;
}

/* Looks no more than once a second. */
static bool same_below(struct fs_mounted_table *s, struct fs_mounted *mounted)
{
	int64_t now = ck_now_s();
	uint64_t was;
	bool due;

	pthread_mutex_lock(&s->lock);
	was = mounted->below;
	due = now >= mounted->looked_s + RETRY_SECONDS;
	if (due)
		mounted->looked_s = now;
	pthread_mutex_unlock(&s->lock);
	return !due || below_of(s, mounted, NULL) == was;
}

/* ---- comparing ---- */

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

void fs_mounted_look_first(struct fs_mounted_table *s,
			   struct fs_mounted *mounted)
{
	mounted->print = print_of(s, mounted);
	mounted->below = below_of(s, mounted, NULL);
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
	uint64_t files, below = below_of(s, mounted, &files);
	struct ck_run_dir_entry now = { 0 };

	if (ck_run_dir_look(&now, s->root, mounted->name)) {
		pthread_mutex_lock(&s->lock);
		mounted->seen = now.st;
		mounted->print = print;
		mounted->below = below;
		mounted->is.files = files;
		mounted->rewritten = true;
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
	if (state == FS_MOUNTED_NEW ||
	    (mounted->whole && !mounted->failed &&
	     !atomic_load(&mounted->doubted)) ||
	    ck_now_s() < mounted->made_s + RETRY_SECONDS)
		return true;
	print = print_of(s, mounted);
	return now->is_file || (same_print(mounted, &mounted->print, &print) &&
				(mounted->steps || same_below(s, mounted)));
}

bool fs_mounted_is_still(struct fs_mounted_table *s, struct fs_mounted *mounted)
{
	struct fs_print print;

	if (fs_mounted_is_past(s, mounted))
		return false;
	print = print_of(s, mounted);
	return same_print(mounted, &mounted->print, &print);
}

/* ---- what wakes ---- */

static uint64_t add_string(uint64_t sum, const struct ck_catalog *img,
			   uint32_t ref)
{
	const char *text = "";
	size_t len = 0;

	if (ref != CK_NONE)
		text = ck_catalog_str(img, ref, &len);
	return XXH3_64bits_withSeed(text, len, sum);
}

static uint64_t add_tensor(uint64_t sum, const struct ck_catalog *img,
			   const struct ck_tensor *t)
{
	const uint64_t key[] = { t->size, t->dtype, t->rank, t->state };

	sum = add_string(sum, img, img->trees[t->tree]);
	sum = add_string(sum, img, t->name);
	sum = add_string(sum, img, t->file);
	sum = XXH3_64bits_withSeed(key, sizeof(key), sum);
	return XXH3_64bits_withSeed(img->dims + t->shape,
				    t->rank * sizeof(*img->dims), sum);
}

static uint64_t add_object(uint64_t sum, const struct ck_catalog *img,
			   const struct ck_object *o)
{
	const uint64_t key[] = { o->len, o->enc };

	sum = add_string(sum, img, img->trees[o->tree]);
	sum = add_string(sum, img, o->name);
	return XXH3_64bits_withSeed(key, sizeof(key), sum);
}

static uint64_t tensors_of(const struct ck_catalog *img)
{
	uint64_t sum = add_string(0, img, img->format);

	for (uint32_t i = 0; i < img->nr_tensors; i++)
		sum = add_tensor(sum, img, &img->tensors[i]);
	for (uint32_t i = 0; i < img->nr_objects; i++)
		sum = add_object(sum, img, &img->objects[i]);
	return sum;
}

/* A sum: the order in which they were found may differ. */
static uint64_t sum_of_srcs(const struct ck_catalog *img,
			    const struct ck_src *srcs, uint32_t nr)
{
	uint64_t sum = 0;

	for (uint32_t i = 0; i < nr; i++) {
		const struct ck_id *id = &srcs[i].id;
		const uint64_t key[] = { srcs[i].kind,
					 srcs[i].state,
					 id->dev,
					 id->ino,
					 id->size,
					 (uint64_t)id->mtime_ns,
					 (uint64_t)id->ctime_ns };

		if (srcs[i].kind == CK_SRC_FILE ||
		    srcs[i].kind == CK_SRC_ABSENT)
			sum += add_string(XXH3_64bits(key, sizeof(key)), img,
					  srcs[i].name);
	}
	return sum;
}

static uint64_t files_of(const struct ck_catalog *img)
{
	return sum_of_srcs(img, img->srcs, img->nr_srcs) +
	       sum_of_srcs(img, img->indexes, img->nr_indexes);
}

static struct fs_identity identity_of(const struct ck_catalog *img)
{
	return (struct fs_identity){ tensors_of(img), files_of(img) };
}

static void learn_identity(struct fs_mounted_table *s,
			   struct fs_mounted *mounted,
			   const struct fs_identity *is)
{
	pthread_mutex_lock(&s->lock);
	mounted->is = *is;
	mounted->rewritten = false;
	pthread_mutex_unlock(&s->lock);
}

void fs_mounted_learn_identity(struct fs_mounted_table *s,
			       struct fs_mounted *mounted)
{
	const struct fs_identity is = identity_of(mounted->img);

	learn_identity(s, mounted, &is);
}

static bool is_as_before(struct fs_mounted_table *s, struct fs_mounted *mounted)
{
	const struct fs_identity now = identity_of(mounted->img);
	uint64_t files = now.files;
	struct fs_identity was;
	bool rewritten;

	pthread_mutex_lock(&s->lock);
	was = mounted->is;
	rewritten = mounted->rewritten;
	pthread_mutex_unlock(&s->lock);
	if (rewritten)
		below_of(s, mounted, &files);
	if (was.tensors != now.tensors || was.files != files)
		return false;
	learn_identity(s, mounted, &now);
	return true;
}

bool fs_mounted_is_as_before(struct fs_mounted_table *s,
			     struct fs_mounted *mounted,
			     enum fs_mounted_state state)
{
	if (mounted->failed)
		return state == FS_MOUNTED_FAILED;
	if (state != FS_MOUNTED_READY || mounted->steps)
		return state == FS_MOUNTED_READY && !mounted->img;
	return mounted->img && is_as_before(s, mounted);
}
