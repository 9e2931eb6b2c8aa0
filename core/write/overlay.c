/* SPDX-License-Identifier: Apache-2.0 */
/*
 * overlay.c - blocks from the log over bytes of shards, and into it
 *
 * A block is written whole: what the caller does not give of it comes from the
 * log, or from the shard.  A place that was looked up stays right until the log
 * is made short, which waits for who reads from one.
 */
#include "core/write/overlay_priv.h"

#include "core/base/auto.h"
#include "core/base/check.h"
#include "core/base/fds.h"
#include "core/base/whole.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static uint64_t place_of(struct ck_overlay *o, uint32_t src, uint64_t block)
{
	uint64_t at;

	pthread_rwlock_rdlock(&o->maps);
	at = ck_overlay_map_get(&o->map[src], block);
	pthread_rwlock_unlock(&o->maps);
	return at;
}

static uint64_t block_end(const struct ck_overlay *o, uint32_t src,
			  uint64_t block)
{
	return CK_MIN((block + 1) * CK_OVERLAY_BLOCK, o->map[src].size);
}

static bool covers(void *ctx, uint32_t src, uint64_t off, uint64_t len)
{
	struct ck_overlay *o = ctx;
	bool any = false;

	if (!o->map[src].size || !len)
		return false;
	pthread_rwlock_rdlock(&o->maps);
	if (o->map[src].leaf && ck_range_ok(off, len, o->map[src].size))
		for (uint64_t k = off / CK_OVERLAY_BLOCK;
		     !any && k <= (off + len - 1) / CK_OVERLAY_BLOCK; k++)
			any = ck_overlay_map_get(&o->map[src], k);
	pthread_rwlock_unlock(&o->maps);
	return any;
}

/* Where in a list of iovecs. */
struct scan {
	const struct iovec *iov;
	uint64_t skip; /* bytes of iov[0] that are done */
};

/* The next bytes of the list that are in one place, at most @len; *nr of them. */
static char *next_bytes(struct scan *s, uint64_t len, uint64_t *nr)
{
	char *at;

	while (s->skip == s->iov->iov_len) {
		s->iov++;
		s->skip = 0;
	}
	at = (char *)s->iov->iov_base + s->skip;
	*nr = CK_MIN(len, s->iov->iov_len - s->skip);
	s->skip += *nr;
	return at;
}

/* The next @len bytes of the list: from the log, @at; 0: left alone. */
static int fill(struct ck_overlay *o, struct scan *s, uint64_t len, uint64_t at)
{
	uint64_t n;
	int ret = 0;

	for (; len && !ret; len -= n) {
		char *to = next_bytes(s, len, &n);

		if (!at)
			continue;
		ret = ck_pread_whole(o->log_fd, to, n, at);
		at += n;
	}
	return ret;
}

static int patch(void *ctx, uint32_t src, const struct iovec *iov, uint64_t off,
		 uint64_t len)
{
	struct ck_overlay *o = ctx;
	struct scan s = { .iov = iov };
	uint64_t end = off + len;
	int ret = 0;

	pthread_rwlock_rdlock(&o->moving);
	while (off < end && !ret) {
		uint64_t k = off / CK_OVERLAY_BLOCK, n;
		uint64_t at = place_of(o, src, k);

		n = CK_MIN(end, block_end(o, src, k)) - off;
		ret = fill(o, &s, n, at ? at + off % CK_OVERLAY_BLOCK : 0);
		off += n;
	}
	pthread_rwlock_unlock(&o->moving);
	return ret;
}

/* ---- writing ---- */

/* Block @k as it is now. */
static int read_block(struct ck_overlay *o, uint32_t src, int fd, uint64_t k,
		      unsigned char *buf)
{
	uint64_t off = k * CK_OVERLAY_BLOCK, at = place_of(o, src, k);
	uint64_t len = block_end(o, src, k) - off;

	return at ? ck_pread_whole(o->log_fd, buf, len, at) :
		    ck_pread_whole(fd, buf, len, off);
}

/* One record: bytes [off, end), and what else is in their blocks. */
static int put_record(struct ck_overlay *o, uint32_t src, int fd,
		      struct scan *s, uint64_t off, uint64_t end)
{
	uint64_t first = off / CK_OVERLAY_BLOCK;
	uint64_t last = (end - 1) / CK_OVERLAY_BLOCK;
	uint64_t from = first * CK_OVERLAY_BLOCK, at, n;
	uint64_t to = block_end(o, src, last);
	unsigned char *data = o->buf + CK_OVERLAY_RECORD_HEAD;
	struct ck_err err;
	int ret = 0;

	if (off > from || (first == last && end < to))
		ret = read_block(o, src, fd, first, data);
	if (!ret && end < to && last > first)
		ret = read_block(o, src, fd, last,
				 data + (last - first) * CK_OVERLAY_BLOCK);
	if (ret)
		return ret;
	for (data += off - from; off < end; off += n, data += n) {
		const char *bytes = next_bytes(s, end - off, &n);

		memcpy(data, bytes, n);
	}
	ret = ck_overlay_append(o, src, from, to - from, &at, &err);
	if (ret)
		return ret;
	pthread_rwlock_wrlock(&o->maps);
	if (!ck_overlay_map_put(&o->map[src], first, last - first + 1, at))
		ret = -ENOMEM;
	pthread_rwlock_unlock(&o->maps);
	return ret;
}

static int put(void *ctx, uint32_t src, int fd, const struct iovec *iov,
	       uint64_t off, uint64_t len)
{
	struct ck_overlay *o = ctx;
	struct scan s = { .iov = iov };
	uint64_t end = off + len;
	int ret = 0;

	if (!o->write || !ck_range_ok(off, len, o->map[src].size))
		return -EROFS;
	ck_auto_lock(&o->lock);
	while (off < end && !ret) {
		uint64_t most = (off / CK_OVERLAY_BLOCK) * CK_OVERLAY_BLOCK +
				CK_OVERLAY_RECORD;
		uint64_t to = CK_MIN(end, most);

		ret = put_record(o, src, fd, &s, off, to);
		off = to;
	}
	return ret;
}

static int keep(void *ctx, struct ck_err *err)
{
	struct ck_overlay *o = ctx;

	ck_auto_lock(&o->lock);
	return ck_overlay_append_mark(o, CK_OVERLAY_KEPT, err);
}

/* ---- opening ---- */

static int lock_head(int fd, struct ck_err *err)
{
	return ck_fds_lock(fd, 0, F_WRLCK) == -EBUSY ?
		       ck_fail(err, EBUSY,
			       "overlay: somebody else writes to it") :
		       0;
}

static int open_files(struct ck_overlay *o, const struct ck_overlay_in *in,
		      struct ck_err *err)
{
	int flags = o->write ? O_RDWR | O_CREAT : O_RDONLY, ret;

	o->dir_fd = open(in->dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (o->dir_fd < 0)
		return ck_fail(err, errno, "overlay: %s: %s", in->dir,
			       strerror(errno));
	ret = ck_overlay_head(o, in, err);
	if (!ret && o->write)
		ret = lock_head(o->head_fd, err);
	if (ret)
		return ret;
	o->log_fd = openat(o->dir_fd, CK_OVERLAY_LOG,
			   flags | O_NOFOLLOW | O_CLOEXEC, 0644);
	if (o->log_fd < 0 || (o->write && fsync(o->dir_fd)))
		return ck_fail(err, errno, "overlay: %s/%s: %s", in->dir,
			       CK_OVERLAY_LOG, strerror(errno));
	return 0;
}

static int make_maps(struct ck_overlay *o, struct ck_err *err)
{
	const struct ck_catalog *img = o->img;

	o->map = calloc(img->nr_srcs + 1u, sizeof(*o->map));
	o->buf = malloc(CK_OVERLAY_BUF);
	if (!o->map || !o->buf)
		return ck_no_memory(err);
	for (uint32_t i = 0; i < img->nr_srcs; i++)
		if (img->srcs[i].kind == CK_SRC_FILE)
			o->map[i].size = img->srcs[i].id.size;
	return 0;
}

int ck_overlay_open(struct ck_overlay **out, const struct ck_overlay_in *in,
		    struct ck_err *err)
{
	struct ck_overlay *o = calloc(1, sizeof(*o));
	int ret;

	if (!o)
		return ck_no_memory(err);
	o->img = in->img;
	o->write = in->write;
	o->dir_fd = o->head_fd = o->log_fd = -1;
	o->over = (struct ck_file_layer){ .ctx = o,
					  .covers = covers,
					  .patch = patch,
					  .put = put,
					  .keep = keep,
					  .sync = ck_overlay_commit };
	pthread_mutex_init(&o->lock, NULL);
	pthread_rwlock_init(&o->maps, NULL);
	pthread_rwlock_init(&o->moving, NULL);
	ret = make_maps(o, err);
	if (!ret)
		ret = open_files(o, in, err);
	if (!ret)
		ret = ck_overlay_replay(o, err);
	if (!ret)
		ck_overlay_compact(o);
	if (ret)
		ck_overlay_free(o);
	else
		*out = o;
	return ret;
}

void ck_overlay_free(struct ck_overlay *o)
{
	if (!o)
		return;
	for (uint32_t i = 0; o->map && i < o->img->nr_srcs; i++)
		ck_overlay_map_free(&o->map[i]);
	if (o->log_fd >= 0)
		close(o->log_fd);
	if (o->head_fd >= 0)
		close(o->head_fd);
	if (o->dir_fd >= 0)
		close(o->dir_fd);
	pthread_mutex_destroy(&o->lock);
	pthread_rwlock_destroy(&o->maps);
	pthread_rwlock_destroy(&o->moving);
	free(o->map);
	free(o->buf);
	free(o);
}

const struct ck_file_layer *ck_overlay_layer(struct ck_overlay *o)
{
	return &o->over;
}

bool ck_overlay_next(struct ck_overlay *o, uint32_t src, uint64_t *off,
		     uint64_t *len)
{
	const struct ck_overlay_map *m = &o->map[src];
	uint64_t k = CK_DIV_UP(*off, CK_OVERLAY_BLOCK), nr;

	pthread_rwlock_rdlock(&o->maps);
	nr = ck_overlay_map_next(m, &k, UINT64_MAX);
	pthread_rwlock_unlock(&o->maps);
	*off = k * CK_OVERLAY_BLOCK;
	*len = CK_MIN((k + nr) * CK_OVERLAY_BLOCK, m->size) -
	       CK_MIN(*off, m->size);
	return nr;
}

void ck_overlay_stats(struct ck_overlay *o, struct ck_overlay_stats *out)
{
	struct stat st;

	pthread_mutex_lock(&o->lock);
	*out = o->stats;
	pthread_mutex_unlock(&o->lock);
	if (!fstatat(o->dir_fd, CK_OVERLAY_LOST, &st, AT_SYMLINK_NOFOLLOW))
		out->aside = (uint64_t)st.st_size;
}

int ck_overlay_dir_fd(const struct ck_overlay *o)
{
	return o->dir_fd;
}

int ck_overlay_discard(const char *dir, struct ck_err *err)
{
	ck_auto_fd int fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	ck_auto_fd int head = -1;
	int ret;

	if (fd >= 0)
		head = openat(fd, CK_OVERLAY_HEAD,
			      O_RDWR | O_NOFOLLOW | O_CLOEXEC);
	if (fd < 0 || head < 0)
		return ck_fail(err, errno, "overlay: %s%s: %s", dir,
			       fd < 0 ? "" : "/" CK_OVERLAY_HEAD,
			       strerror(errno));
	ret = lock_head(head, err);
	if (ret)
		return ret;
	unlinkat(fd, CK_OVERLAY_NEW, 0);
	unlinkat(fd, CK_OVERLAY_LOST, 0);
	/* Without its head a log is nobody's. */
	if ((unlinkat(fd, CK_OVERLAY_LOG, 0) && errno != ENOENT) ||
	    unlinkat(fd, CK_OVERLAY_HEAD, 0) || fsync(fd))
		return ck_fail(err, errno, "overlay: %s: %s", dir,
			       strerror(errno));
	return 0;
}
