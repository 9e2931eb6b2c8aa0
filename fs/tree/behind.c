/* SPDX-License-Identifier: Apache-2.0 */
/*
 * behind.c - from a file of a view to its tensors, to their chunks, to sources
 *
 * A set of sources is a bitmap.  Those of files of many tensors are remembered,
 * for their spans are walked to find them; those of a tensor are found each time.
 */
#include "fs/tree/behind.h"

#include "core/base/auto.h"
#include "core/base/clock.h"
#include "core/view/extras.h"
#include "fs/tree/allows.h"
#include "fs/tree/behind_priv.h"
#include "fs/tree/mounted_priv.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#define MAX_SETS 64
#define OVERLAY_LOG "overlay.log"

struct set {
	const struct ck_view *v;
	uint32_t file;
	unsigned char *bits;
};

struct fs_behind {
	pthread_mutex_t lock;
	struct set sets[MAX_SETS];
	unsigned next; /* to be used again */
	struct fs_allows *seen; /* of each file */
};

/* Sources are numbered as in the catalog, and then come files of the index. */
static uint32_t nr_files(const struct ck_catalog *img)
{
	return img->nr_srcs + img->nr_indexes;
}

static bool is_index(const struct ck_catalog *img, uint32_t file)
{
	return file >= img->nr_srcs;
}

static const struct ck_src *file_at(const struct ck_catalog *img, uint32_t file)
{
	return is_index(img, file) ? &img->indexes[file - img->nr_srcs] :
				     &img->srcs[file];
}

void fs_behind_free(struct fs_behind *b)
{
	if (!b)
		return;
	for (unsigned i = 0; i < MAX_SETS; i++)
		free(b->sets[i].bits);
	free(b->seen);
	pthread_mutex_destroy(&b->lock);
	free(b);
}

static struct fs_behind *new_behind(const struct ck_catalog *img)
{
	struct fs_behind *b = calloc(1, sizeof(*b));

	if (!b)
		return NULL;
	pthread_mutex_init(&b->lock, NULL);
	b->seen = calloc(nr_files(img) + (size_t)1, sizeof(*b->seen));
	if (b->seen)
		return b;
	fs_behind_free(b);
	return NULL;
}

/* Made by who needs it first; @mounted is parsed and pinned. */
static struct fs_behind *behind_of(struct fs_mounted *mounted)
{
	struct fs_behind *b = atomic_load(&mounted->behind), *none = NULL;

	if (b)
		return b;
	b = new_behind(mounted->img);
	if (b && !atomic_compare_exchange_strong(&mounted->behind, &none, b)) {
		fs_behind_free(b);
		b = none;
	}
	return b;
}

/* ---- which sources ---- */

static size_t bytes_of(const struct ck_catalog *img)
{
	return nr_files(img) / 8 + 1;
}

static bool has(const unsigned char *bits, uint32_t src)
{
	return bits[src / 8] & 1u << src % 8;
}

/* A file that is there; what lies in the catalog is nobody's. */
static void add_src(const struct ck_catalog *img, uint32_t src,
		    unsigned char *bits)
{
	if (src == CK_NONE)
		return;
	if (img->srcs[src].kind == CK_SRC_CODEC)
		src = img->srcs[src].parent;
	if (img->srcs[src].kind == CK_SRC_FILE &&
	    img->srcs[src].state != CK_MISSING)
		bits[src / 8] |= (unsigned char)(1u << src % 8);
}

static void add_tensor(const struct ck_catalog *img, uint32_t tensor,
		       unsigned char *bits)
{
	const struct ck_tensor *t = &img->tensors[tensor];
	uint32_t last = CK_NONE;

	for (uint32_t i = t->first; i < t->first + t->nr_all; i++) {
		if (img->chunks[i].src != last)
			add_src(img, img->chunks[i].src, bits);
		last = img->chunks[i].src;
	}
}

static void add_indexes(const struct ck_catalog *img, unsigned char *bits)
{
	for (uint32_t i = img->nr_srcs; i < nr_files(img); i++)
		bits[i / 8] |= (unsigned char)(1u << i % 8);
}

static void add_all(const struct ck_catalog *img, unsigned char *bits)
{
	for (uint32_t i = 0; i < img->nr_srcs; i++)
		add_src(img, i, bits);
	add_indexes(img, bits);
}

/* The tensors of a span, one after the other; CK_NONE: there are no more. */
static uint32_t tensor_of(const struct ck_span *span, uint32_t nr)
{
	switch (span->kind) {
	case CK_SPAN_MADE:
	case CK_SPAN_ZEROS:
		return CK_NONE;
	case CK_SPAN_TURNED:
		return nr < span->turned->turn.nr_runs ?
			       span->turned->turn.run[nr].ref :
			       CK_NONE;
	default:
		return nr ? CK_NONE : span->ref;
	}
}

static bool add_span(const struct ck_view *v, const struct ck_span *span,
		     bool too, unsigned char *bits)
{
	uint32_t nr = 0, t;

	for (; (t = tensor_of(span, nr)) != CK_NONE; nr++) {
		if (too)
			t = ck_ckpt_written_too(v->ck, t);
		if (t != CK_NONE)
			add_tensor(v->img, t, bits);
	}
	return nr;
}

/*
 * The tensors of file @nr of @v; @too: those written with them instead.  Whether
 * there is any.
 */
static bool walk(const struct ck_view *v, uint32_t nr, uint64_t size, bool too,
		 unsigned char *bits)
{
	bool any = false;

	for (uint64_t off = 0; off < size;) {
		struct ck_span span = { 0 };

		v->ops->at(v, nr, off, &span);
		any |= add_span(v, &span, too, bits);
		if (!span.len)
			break;
		off += span.len;
	}
	return any;
}

static void add_values(const struct ck_view *v, unsigned char *bits)
{
	for (uint32_t i = 0; i < v->img->nr_objects; i++)
		if (v->img->objects[i].tree == v->tree)
			add_src(v->img, v->img->objects[i].src, bits);
}

/* Of a file of many tensors; NULL: no memory. */
static unsigned char *make_set(const struct ck_view *v, uint32_t nr,
			       const struct ck_vfile *file)
{
	unsigned char *bits = calloc(1, bytes_of(v->img));

	if (!bits)
		return NULL;
	/* what has no tensor in it tells of all */
	if (!walk(v, nr, file->size, false, bits))
		add_all(v->img, bits);
	add_values(v, bits);
	return bits;
}

/* Copies the set into @bits, which is empty. */
static int add_many(struct fs_behind *b, const struct ck_view *v, uint32_t nr,
		    const struct ck_vfile *file, unsigned char *bits)
{
	struct set *set = NULL;
	int ret = 0;

	pthread_mutex_lock(&b->lock);
	for (unsigned i = 0; i < MAX_SETS && !set; i++)
		if (b->sets[i].bits && b->sets[i].v == v &&
		    b->sets[i].file == nr)
			set = &b->sets[i];
	if (!set) {
		set = &b->sets[b->next];
		b->next = (b->next + 1) % MAX_SETS;
		free(set->bits);
		*set = (struct set){ v, nr, make_set(v, nr, file) };
	}
	if (set->bits)
		memcpy(bits, set->bits, bytes_of(v->img));
	else
		ret = -ENOMEM;
	pthread_mutex_unlock(&b->lock);
	return ret;
}

/* A view of what a folder of views/ shows is that folder's one file. */
static int lower(const struct fs_mounted *mounted, uint64_t ino,
		 const struct fs_node *node, const struct ck_view **v,
		 uint32_t *nr, struct ck_vfile *file, struct ck_err *err)
{
	uint64_t view = (ino >> 32) - 1;

	*v = node->view;
	*nr = node->nr;
	if (view >= FS_MAX_VIEWS)
		fs_nested_below(mounted->nested, view, v, nr);
	if ((*v)->ops->file(*v, *nr, file))
		return 0;
	return ck_fail(err, ESTALE, "a file that its view left out");
}

/* ---- the question ---- */

/* An index is read, whatever is done with what it tells of, as it is now. */
static void ask_files(const struct ck_catalog *img, const unsigned char *bits,
		      int mask, struct fs_question *q)
{
	for (uint32_t i = 0; i < nr_files(img); i++) {
		int wanted = is_index(img, i) ? R_OK : mask;
		const struct ck_src *f = file_at(img, i);

		if (wanted && has(bits, i))
			fs_question_file(q, ck_catalog_str(img, f->name, NULL),
					 wanted, f->id.dev,
					 is_index(img, i) ? 0 : f->id.ino);
	}
}

static void ask_overlay(const char *dir, int mask, struct fs_question *q)
{
	fs_question_anew(q);
	fs_question_dir(q, dir, NULL);
	fs_question_file(q, OVERLAY_LOG, mask, 0, 0);
}

/* A file shown as it is, of the checkpoint, of a folder beside it or of -o config=. */
static void ask_extra(const struct fs_mounted_table *s, const struct ck_view *v,
		      uint32_t nr, const struct stat *like, int mask,
		      struct fs_question *q)
{
	ck_auto_free char *folder =
		ck_extras_folder(ck_ckpt_root(v->ck), s->in.opts);
	char name[CK_VIEW_NAME];

	if (folder)
		fs_question_dir(q, folder, NULL);
	v->ops->label(v, nr, name);
	fs_question_file(q, name, mask, like->st_dev, like->st_ino);
}

/* @too: what is written with it counts as well. */
static int find_srcs(struct fs_mounted *mounted, const struct ck_view *v,
		     uint32_t nr, const struct ck_vfile *file, bool too,
		     unsigned char *bits)
{
	struct fs_behind *b = behind_of(mounted);
	int ret = 0;

	if (!b)
		return -ENOMEM;
	if (file->tensor != CK_NONE)
		add_tensor(v->img, file->tensor, bits);
	else
		ret = add_many(b, v, nr, file, bits);
	if (!ret && too)
		walk(v, nr, file->size, true, bits);
	add_indexes(v->img, bits);
	return ret;
}

int fs_behind_srcs(struct fs_mounted *mounted, uint64_t ino,
		   const struct fs_node *node, struct ck_ckpt **ck,
		   unsigned char **out, struct ck_err *err)
{
	ck_auto_free unsigned char *bits = NULL;
	const struct ck_view *v;
	struct ck_vfile file;
	uint32_t nr;
	int ret = lower(mounted, ino, node, &v, &nr, &file, err);

	if (ret)
		return ret;
	bits = calloc(1, bytes_of(v->img));
	ret = bits ? find_srcs(mounted, v, nr, &file, false, bits) : -ENOMEM;
	if (ret)
		return ck_no_memory(err);
	*ck = v->ck;
	*out = bits;
	bits = NULL;
	return 0;
}

static bool writes_copies(const struct fs_mounted_table *s)
{
	const char *master = ck_opts_get(s->in.opts, "master");

	return master && !strcmp(master, "also");
}

static int ask_file(const struct fs_mounted_table *s,
		    struct fs_mounted *mounted, uint64_t ino,
		    const struct fs_node *node, int mask, struct fs_question *q,
		    struct ck_err *err)
{
	const char *overlay = ck_opts_get(s->in.opts, "overlay");
	bool too = mask & W_OK && writes_copies(s);
	ck_auto_free unsigned char *bits = NULL;
	const struct ck_view *v;
	struct ck_vfile file;
	uint32_t nr;
	int ret = lower(mounted, ino, node, &v, &nr, &file, err);

	if (ret)
		return ret;
	fs_behind_ask_dirs(ck_ckpt_root(mounted->ck), q);
	if (file.like) {
		ask_extra(s, v, nr, file.like, mask, q);
		return 0;
	}
	bits = calloc(1, bytes_of(v->img));
	ret = bits ? find_srcs(mounted, v, nr, &file, too, bits) : -ENOMEM;
	if (ret)
		return ck_no_memory(err);
	fs_question_file(q, "", X_OK, 0, 0);
	ask_files(v->img, bits, overlay ? mask & R_OK : mask, q);
	if (overlay)
		ask_overlay(overlay, mask, q);
	return 0;
}

static int ask_all(const struct fs_mounted *mounted, struct fs_question *q,
		   struct ck_err *err)
{
	ck_auto_free unsigned char *bits = calloc(1, bytes_of(mounted->img));

	if (!bits)
		return ck_no_memory(err);
	add_all(mounted->img, bits);
	fs_question_anew(q);
	fs_behind_ask_dirs(ck_ckpt_root(mounted->ck), q);
	ask_files(mounted->img, bits, R_OK, q);
	return 0;
}

static const struct ck_root *root_of(const struct fs_mounted_table *s,
				     const struct fs_mounted *mounted)
{
	if (mounted->ck)
		return ck_ckpt_root(mounted->ck);
	return mounted->name && mounted->root.fd >= 0 ? &mounted->root :
							s->root;
}

void fs_behind_ask_way(const struct fs_mounted_table *s,
		       const struct fs_mounted *mounted, struct fs_question *q)
{
	for (const struct ck_root *root = root_of(s, mounted); root;
	     root = root->next)
		fs_question_way(q, root->real);
}

/* Whether @mask is asked of the checkpoint's own directory. */
static bool is_top(uint64_t ino, const struct fs_node *node)
{
	return node->kind != FS_SHARD || ino == FS_INO_SHARDS;
}

int fs_behind_ask(const struct fs_mounted_table *s, struct fs_mounted *mounted,
		  uint64_t ino, const struct fs_node *node, int mask,
		  struct fs_question *q, struct ck_err *err)
{
	const struct ck_root *root = root_of(s, mounted);
	ck_auto_free char *path = NULL;
	struct stat st;
	int ret;

	if (node->kind == FS_FILE)
		return ask_file(s, mounted, ino, node, mask, q, err);
	if (is_top(ino, node)) {
		bool tells =
			node->kind == FS_VIRT &&
			(node->nr < FS_VIRT_STATS || node->nr == FS_VIRT_MAP);

		fs_behind_ask_root(
			root, node->kind == FS_VIRT ? mask | X_OK : mask, q);
		return !tells || mounted->steps ? 0 :
		       mounted->img		? ask_all(mounted, q, err) :
				      fs_behind_ask_unread(root, q, err);
	}
	path = fs_shards_path_of(mounted->shards, ino);
	if (!path)
		return ck_fail(err, ESTALE, "shards: unknown inode");
	ret = fs_shards_stat_path(mounted->shards, path, &st, err);
	if (ret)
		return ret;
	if (S_ISDIR(st.st_mode))
		return fs_behind_ask_folders(root, path, mask, q, err);
	fs_behind_ask_dirs(root, q);
	fs_question_file(q, path, mask, st.st_dev, st.st_ino);
	return 0;
}

int fs_behind_ask_open(struct fs_mounted *mounted, uint64_t ino, int fd,
		       int mask, struct fs_question *q, struct ck_err *err)
{
	ck_auto_free char *path = fs_shards_path_of(mounted->shards, ino);
	struct stat st;

	if (!path || fstat(fd, &st))
		return ck_fail(err, ESTALE, "shards: unknown inode");
	fs_behind_ask_dirs(fs_shards_root(mounted->shards), q);
	fs_question_file(q, path, mask, st.st_dev, st.st_ino);
	return 0;
}

/* ---- the mode ---- */

/* The folder of one that sleeps, which has no root of its own; -errno. */
static int open_asleep(const struct fs_mounted_table *s,
		       const struct fs_mounted *mounted, int *fd)
{
	ck_auto_free char *top = ck_run_dir_folder(s->root, mounted->name);

	return top ? ck_root_find_dir(s->root, top, fd, NULL) : -ENOMEM;
}

int fs_behind_dir(const struct fs_mounted_table *s,
		  const struct fs_mounted *mounted, struct stat *st)
{
	bool asleep = atomic_load(&mounted->state) == FS_MOUNTED_ASLEEP;
	const struct ck_root *root = root_of(s, mounted);
	ck_auto_fd int fd = -1;
	int ret = asleep ? open_asleep(s, mounted, &fd) : 0;

	if (ret)
		return ret;
	if (!asleep)
		fd = openat(root->fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (fstat(asleep ? fd : root->fd, st))
		return -errno;
	if (fd >= 0)
		fs_allows_fd(fd, st);
	return 0;
}

void fs_behind_listed(struct fs_mounted *mounted, uint64_t ino, struct stat *st)
{
	ck_auto_free char *path = fs_shards_path_of(mounted->shards, ino);
	const struct ck_root *root = fs_shards_root(mounted->shards);
	ck_auto_fd int fd = -1;
	struct stat now;

	if (path && !S_ISLNK(st->st_mode) &&
	    (S_ISDIR(st->st_mode) ?
		     !ck_root_find_dir(root, path, &fd, NULL) :
		     !ck_root_open_file(root, path, &fd, &now, NULL)))
		fs_allows_fd(fd, st);
}

static void add_seen(const struct fs_allows *s, mode_t more,
		     struct fs_allows *v, uint32_t *nr)
{
	v[*nr] = *s;
	v[*nr].mode = fs_allows_mode(s) | more;
	++*nr;
}

/* Then nothing of it counts, not even its owner. */
static bool all_read(const struct fs_allows *s)
{
	return !s->listed && (s->mode & 0444) == 0444;
}

static struct fs_allows of_overlay(const char *dir)
{
	ck_auto_fd int at = open(dir, O_PATH | O_DIRECTORY | O_CLOEXEC);
	struct stat st = { .st_mode = 0 };

	if (fstatat(at, OVERLAY_LOG, &st, 0))
		st.st_mode = 0;
	return (struct fs_allows){ .mode = st.st_mode,
				   .uid = st.st_uid,
				   .gid = st.st_gid };
}

static int look_at(const struct fs_mounted_table *s, struct fs_mounted *mounted,
		   const struct ck_catalog *img, const unsigned char *bits,
		   double keep, struct stat *st)
{
	const char *overlay = ck_opts_get(s->in.opts, "overlay");
	const struct ck_root *root = ck_ckpt_root(mounted->ck);
	struct fs_behind *b = behind_of(mounted);
	ck_auto_free struct fs_allows *v =
		calloc(nr_files(img) + (size_t)1, sizeof(*v));
	int64_t fresh = ck_now_ms() - (int64_t)(keep * 1000);
	uint32_t nr = 0;

	if (!b || !v)
		return -ENOMEM;
	pthread_mutex_lock(&b->lock);
	for (uint32_t i = 0; i < nr_files(img); i++) {
		mode_t more = overlay || is_index(img, i) ? 0222 : 0;

		if (!has(bits, i))
			continue;
		if (!b->seen[i].at_ms || b->seen[i].at_ms <= fresh)
			fs_allows_look(root, img, file_at(img, i), &b->seen[i]);
		if (!is_index(img, i) || !all_read(&b->seen[i]))
			add_seen(&b->seen[i], more, v, &nr);
	}
	pthread_mutex_unlock(&b->lock);
	if (nr && overlay) {
		const struct fs_allows log = of_overlay(overlay);

		add_seen(&log, 0444, v, &nr);
	}
	if (nr)
		fs_allows_all(v, nr, st);
	return 0;
}

int fs_behind_mode(const struct fs_mounted_table *s, struct fs_mounted *mounted,
		   uint64_t ino, const struct fs_node *node, double keep,
		   struct stat *st, struct ck_err *err)
{
	ck_auto_free unsigned char *bits = NULL;
	const struct ck_view *v;
	struct ck_vfile file;
	uint32_t nr;
	int ret = lower(mounted, ino, node, &v, &nr, &file, err);

	if (ret)
		return ret;
	if (file.like)
		return 0;
	bits = calloc(1, bytes_of(v->img));
	ret = bits ? find_srcs(mounted, v, nr, &file, false, bits) : -ENOMEM;
	if (!ret)
		ret = look_at(s, mounted, v->img, bits, keep, st);
	return ret ? ck_no_memory(err) : 0;
}
