/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ckpt_index_cache.c - [head][record][catalog], with one digest over all
 *
 * Whatever could change the catalog and is not asked of the checkpoint is in
 * the file's name: the path, the options with the files that they name, and
 * the program.
 */
#include "core/ckpt/ckpt_index_cache.h"

#include "core/base/auto.h"
#include "core/base/check.h"
#include "core/base/clock.h"
#include "core/base/vec.h"
#include "core/base/whole.h"
#include "core/catalog/catalog.h"
#include "core/root/dir_record.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include <xxhash.h>

#define MAGIC "unshard-index-1"
#define PIECE ((size_t)256 << 10)
#define KEY_DIGITS 32
#define SLOW_MS 100 /* a parse of less is not worth a file */
#define FILES_MAX 64 /* then the one that was used least lately goes */
#define BYTES_MAX (INT64_C(2) << 30)
#define RECORD_MAX (UINT64_C(256) << 20)

struct head {
	char magic[16];
	uint64_t key[2];
	uint64_t record_len, catalog_len;
	uint64_t digest[2]; /* of the record and the catalog */
};

/* ---- which file ---- */

static void add_text(XXH3_state_t *s, const char *text)
{
	uint64_t len = text ? strlen(text) : UINT64_MAX;

	XXH3_128bits_update(s, &len, sizeof(len));
	if (text)
		XXH3_128bits_update(s, text, len);
}

/* Where things are kept changes nothing of what is read. */
static bool tells_where(const struct ck_opt *o)
{
	return !strcmp(o->name, "index-cache") || !strcmp(o->name, "log");
}

static void add_opts(XXH3_state_t *s, const struct ck_opts *opts)
{
	for (size_t i = 0; i < opts->nr; i++) {
		const struct ck_opt *o = &opts->v[i];

		if (tells_where(o))
			continue;
		add_text(s, o->name);
		add_text(s, o->value);
		XXH3_128bits_update(s, &o->len, sizeof(o->len));
		if (o->bytes)
			XXH3_128bits_update(s, o->bytes, o->len);
	}
}

static void add_root(XXH3_state_t *s, const struct ck_root *root)
{
	add_text(s, root->real);
	add_text(s, root->path); /* is in messages */
	add_text(s, root->only);
	add_text(s, root->save);
	add_text(s, root->entry ? "entry" : NULL);
	for (unsigned i = 0; i < root->nr_follow; i++)
		add_text(s, root->follow_path[i]);
}

/* Two builds of one version may read a checkpoint differently. */
static bool add_program(XXH3_state_t *s)
{
	struct stat st;

	if (stat("/proc/self/exe", &st))
		return false;
	add_text(s, UNSHARD_VERSION);
	XXH3_128bits_update(s, &st.st_ino, sizeof(st.st_ino));
	XXH3_128bits_update(s, &st.st_size, sizeof(st.st_size));
	XXH3_128bits_update(s, &st.st_mtim, sizeof(st.st_mtim));
	return true;
}

static bool make_key(struct ck_index_cache *c, const struct ck_root *root,
		     const struct ck_opts *opts)
{
	XXH3_state_t *s = XXH3_createState();
	XXH128_hash_t h;
	bool good = s && XXH3_128bits_reset(s) == XXH_OK && add_program(s);

	if (good) {
		for (; root; root = root->next)
			add_root(s, root);
		add_opts(s, opts);
		h = XXH3_128bits_digest(s);
		c->key[0] = h.high64;
		c->key[1] = h.low64;
		snprintf(c->name, sizeof(c->name), "%016llx%016llx",
			 (unsigned long long)h.high64,
			 (unsigned long long)h.low64);
	}
	XXH3_freeState(s);
	return good;
}

/* Nobody else may have put anything there. */
static bool is_ours(int fd)
{
	struct stat st;

	return !fstat(fd, &st) && st.st_uid == geteuid() &&
	       !(st.st_mode & (S_IWGRP | S_IWOTH));
}

static int open_ours(int at, const char *name, int flags)
{
	ck_auto_fd int fd = openat(at, name, flags | O_RDONLY | O_CLOEXEC);

	if (fd < 0 || is_ours(fd))
		return fd < 0 ? -1 : ck_steal_fd(fd);
	errno = 0;
	return -1;
}

static int open_dir(struct ck_index_cache_in *in)
{
	int fd;

	errno = 0;
	if (mkdir(in->dir, 0700) && errno != EEXIST)
		fd = -1;
	else
		fd = open_ours(AT_FDCWD, in->dir, O_DIRECTORY);
	if (fd < 0)
		snprintf(in->why, sizeof(in->why), "%s",
			 errno && errno != EEXIST ?
				 strerror(errno) :
				 "expected a directory of this user's that "
				 "nobody else may write to");
	return fd;
}

/* ---- what was kept ---- */

static bool read_head(const struct ck_index_cache *c, struct head *h)
{
	struct stat st;

	return !fstat(c->file_fd, &st) && S_ISREG(st.st_mode) &&
	       !ck_pread_whole(c->file_fd, h, sizeof(*h), 0) &&
	       !memcmp(h->magic, MAGIC, sizeof(h->magic)) &&
	       !memcmp(h->key, c->key, sizeof(h->key)) &&
	       h->record_len <= RECORD_MAX &&
	       h->catalog_len <= (uint64_t)st.st_size &&
	       h->record_len + h->catalog_len + sizeof(*h) ==
		       (uint64_t)st.st_size;
}

/* Once, for what is compared in one process goes into the digest of another. */
static void read_record(struct ck_index_cache *c)
{
	ck_auto_free char *record = NULL;
	struct head h;

	if (!read_head(c, &h))
		return;
	record = malloc(h.record_len + 1);
	if (!record ||
	    ck_pread_whole(c->file_fd, record, h.record_len, sizeof(h)))
		return;
	c->record = record;
	record = NULL;
	c->record_len = h.record_len;
	c->catalog_len = h.catalog_len;
	memcpy(c->digest, h.digest, sizeof(c->digest));
}

/* The digest goes on over each piece while it is in the processor's cache. */
static int bring(void *ctx, void *to, size_t size, struct ck_err *err)
{
	const struct ck_index_cache *c = ctx;
	uint64_t off = sizeof(struct head) + c->record_len;
	XXH3_state_t *s = XXH3_createState();
	bool good = s && XXH3_128bits_reset(s) == XXH_OK;
	XXH128_hash_t is = { 0 };

	if (good)
		XXH3_128bits_update(s, c->record, c->record_len);
	for (size_t at = 0, n; good && at < size; at += n) {
		n = CK_MIN(size - at, PIECE);
		good = !ck_pread_whole(c->file_fd, (char *)to + at, n,
				       off + at);
		if (good)
			XXH3_128bits_update(s, (char *)to + at, n);
	}
	if (good)
		is = XXH3_128bits_digest(s);
	XXH3_freeState(s);
	if (good && is.high64 == c->digest[0] && is.low64 == c->digest[1])
		return 0;
	return ck_fail(err, EBADMSG, "-o index-cache: %s is damaged", c->name);
}

bool ck_index_cache_map(const struct ck_index_cache *c, struct ck_catalog *out)
{
	return c->record && !ck_catalog_fill(out, c->catalog_len, bring,
					     (void *)(uintptr_t)c, NULL);
}

bool ck_index_cache_holds(const struct ck_index_cache *c,
			  const struct ck_dir *dir)
{
	return c->record && ck_dir_record_holds(dir, c->record, c->record_len);
}

void ck_index_cache_forget(struct ck_index_cache *c)
{
	free(c->record);
	c->record = NULL;
}

void ck_index_cache_open(struct ck_index_cache *c, const struct ck_root *root,
			 const struct ck_opts *opts,
			 struct ck_index_cache_in *in)
{
	*c = (struct ck_index_cache){ .dir_fd = -1,
				      .file_fd = -1,
				      .record_fd = -1,
				      .started = ck_now_ns() };
	/* What -o verify compares is not asked of the folder alone. */
	if (!in || ck_opts_get(opts, "verify") || !make_key(c, root, opts))
		return;
	c->slow_only = in->slow_only;
	c->record_fd = memfd_create("unshard-record", MFD_CLOEXEC);
	if (c->record_fd >= 0)
		c->dir_fd = open_dir(in);
	if (c->dir_fd >= 0)
		c->file_fd =
			open_ours(c->dir_fd, c->name, O_NOFOLLOW | O_NONBLOCK);
	if (c->file_fd >= 0)
		read_record(c);
}

void ck_index_cache_close(struct ck_index_cache *c)
{
	int *all[] = { &c->dir_fd, &c->file_fd, &c->record_fd };

	for (size_t i = 0; i < CK_ARRAY_LEN(all); i++) {
		if (*all[i] >= 0)
			close(*all[i]);
		*all[i] = -1;
	}
	ck_index_cache_forget(c);
}

/* ---- what is made anew ---- */

/* Half of a record would hold where the whole does not. */
int ck_index_cache_tell(const struct ck_index_cache *c, const char *text,
			size_t len, struct ck_err *err)
{
	if (c->record_fd < 0 || len > RECORD_MAX ||
	    !ck_write_whole(c->record_fd, text, len) ||
	    !ftruncate(c->record_fd, 0))
		return 0;
	return ck_fail(err, errno, "-o index-cache: %s", strerror(errno));
}

/* ---- after it ---- */

/* A file goes into @s, and to the end of @to. */
static bool copy(int from, uint64_t len, int to, char *buf, XXH3_state_t *s)
{
	for (uint64_t off = 0, n; off < len; off += n) {
		n = CK_MIN(len - off, (uint64_t)PIECE);
		if (ck_pread_whole(from, buf, n, off))
			return false;
		XXH3_128bits_update(s, buf, n);
		if (ck_write_whole(to, buf, n))
			return false;
	}
	return true;
}

static uint64_t size_of(int fd)
{
	struct stat st;

	return fstat(fd, &st) ? 0 : (uint64_t)st.st_size;
}

/* The head is written last, when the digest is known. */
static bool write_all(const struct ck_index_cache *c, int catalog_fd, int fd,
		      char *buf, XXH3_state_t *s)
{
	struct head h = {
		.magic = MAGIC,
		.key = { c->key[0], c->key[1] },
		.record_len = size_of(c->record_fd),
		.catalog_len = size_of(catalog_fd),
	};
	XXH128_hash_t is;

	if (lseek(fd, sizeof(h), SEEK_SET) < 0 ||
	    !copy(c->record_fd, h.record_len, fd, buf, s) ||
	    !copy(catalog_fd, h.catalog_len, fd, buf, s))
		return false;
	is = XXH3_128bits_digest(s);
	h.digest[0] = is.high64;
	h.digest[1] = is.low64;
	return !ck_pwrite_whole(fd, &h, sizeof(h), 0);
}

static bool write_file(const struct ck_index_cache *c, int catalog_fd,
		       const char *name)
{
	ck_auto_fd int fd = openat(
		c->dir_fd, name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	ck_auto_free char *buf = malloc(PIECE);
	XXH3_state_t *s = XXH3_createState();
	bool good = fd >= 0 && buf && s && XXH3_128bits_reset(s) == XXH_OK &&
		    write_all(c, catalog_fd, fd, buf, s);

	XXH3_freeState(s);
	return good;
}

struct kept {
	char name[64];
	int64_t used; /* ns */
	int64_t size;
};

static int by_use(const void *a, const void *b)
{
	const struct kept *x = a, *y = b;

	return (x->used < y->used) - (x->used > y->used);
}

/* A file of this cache, whole or left half: its key, and perhaps a process. */
static bool is_kept(int dir_fd, const char *name, struct stat *st)
{
	size_t key = strspn(name, "0123456789abcdef");
	const char *rest = name + key;

	if (key != KEY_DIGITS || (*rest && (*rest++ != '.' || !*rest ||
					    rest[strspn(rest, "0123456789")])))
		return false;
	return !fstatat(dir_fd, name, st, AT_SYMLINK_NOFOLLOW) &&
	       S_ISREG(st->st_mode) && st->st_uid == geteuid();
}

/*
 * The longest unused go, and what who died left half; anything else in the folder
 * is somebody's.
 */
static void trim(int dir_fd)
{
	CK_VEC(struct kept) all = { 0 };
	int fd = openat(dir_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	ck_auto_dir DIR *dir = fd < 0 ? NULL : fdopendir(fd);
	const struct dirent *e;
	int64_t bytes = 0;
	struct stat st;

	while (dir && (e = readdir(dir))) {
		size_t len = strlen(e->d_name);
		struct kept *k;

		if (len >= sizeof(k->name) || !is_kept(dir_fd, e->d_name, &st))
			continue;
		k = ck_vec_push(&all);
		if (!k)
			break;
		memcpy(k->name, e->d_name, len + 1);
		k->used = st.st_mtim.tv_sec * INT64_C(1000000000) +
			  st.st_mtim.tv_nsec;
		k->size = st.st_size;
	}
	if (all.nr)
		qsort(all.v, all.nr, sizeof(*all.v), by_use);
	for (size_t i = 0; i < all.nr; i++) {
		bytes += all.v[i].size;
		if (i >= FILES_MAX || bytes > BYTES_MAX)
			unlinkat(dir_fd, all.v[i].name, 0);
	}
	free(all.v);
}

void ck_index_cache_keep(const struct ck_index_cache *c, int catalog_fd)
{
	char temp[64];

	if (c->dir_fd < 0)
		return;
	if (!size_of(c->record_fd)) { /* it was taken, or not recorded */
		if (c->file_fd >= 0)
			futimens(c->file_fd, NULL);
		return;
	}
	if (c->slow_only &&
	    ck_now_ns() - c->started < SLOW_MS * INT64_C(1000000))
		return;
	snprintf(temp, sizeof(temp), "%s.%ld", c->name, (long)getpid());
	if (!write_file(c, catalog_fd, temp) ||
	    renameat(c->dir_fd, temp, c->dir_fd, c->name))
		unlinkat(c->dir_fd, temp, 0);
	trim(c->dir_fd);
}
