/* SPDX-License-Identifier: Apache-2.0 */
/*
 * overlay_head.c - which checkpoint an overlay is for
 *
 *	0   "unshovl" and the byte 0x8d
 *	8   u32 version: 1
 *	12  u32 how many sources
 *	16  32 bytes: the manifest's digest, in hexadecimal; zero: not sealed
 *	48  of each: u64 size, i64 time of the last change in ns, u32 length of
 *	    its name, then the name; all zero where it is no file
 *	    u64 XXH3-64 of all bytes before
 */
#include "core/write/overlay_priv.h"

#include "core/base/auto.h"
#include "core/base/fds.h"
#include "core/base/le.h"
#include "core/base/str.h"
#include "core/base/whole.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <xxhash.h>

#define MAGIC "unshovl\x8d"
#define VERSION 1
#define DIGEST_LEN 32
#define MOST (64 << 20)

static void add_src(struct ck_str *s, const struct ck_catalog *img,
		    const struct ck_src *src, bool times)
{
	size_t len = 0;
	const char *name = "";
	bool file = src->kind == CK_SRC_FILE;

	if (file)
		name = ck_catalog_str(img, src->name, &len);
	ck_str_le64(s, file ? src->id.size : 0);
	ck_str_le64(s, file && times ? (uint64_t)src->id.mtime_ns : 0);
	ck_str_le32(s, (uint32_t)len);
	ck_str_add(s, name, len);
}

/* Times mean nothing where the manifest says what the files hold. */
static void compose(struct ck_str *s, const struct ck_overlay_in *in)
{
	char digest[DIGEST_LEN + 1] = "";

	strncpy(digest, in->sealed, DIGEST_LEN);
	ck_str_add(s, MAGIC, 8);
	ck_str_le32(s, VERSION);
	ck_str_le32(s, in->img->nr_srcs);
	ck_str_add(s, digest, DIGEST_LEN);
	for (uint32_t i = 0; i < in->img->nr_srcs; i++)
		add_src(s, in->img, &in->img->srcs[i], !*in->sealed);
	if (!s->failed)
		ck_str_le64(s, XXH3_64bits(s->v, s->len));
}

static int make(struct ck_overlay *o, const struct ck_str *text,
		struct ck_err *err)
{
	int ret = ck_fds_put_file(o->dir_fd, CK_OVERLAY_HEAD,
				  CK_OVERLAY_HEAD ".new", 0644, text->v,
				  text->len);

	if (!ret)
		ret = ck_fds_sync_dir(o->dir_fd);
	if (!ret)
		o->head_fd = openat(o->dir_fd, CK_OVERLAY_HEAD,
				    O_RDWR | O_NOFOLLOW | O_CLOEXEC);
	if (!ret && o->head_fd < 0)
		ret = -errno;
	return ret ? ck_fail(err, -ret, "overlay: %s: %s", CK_OVERLAY_HEAD,
			     strerror(-ret)) :
		     0;
}

/* Which source of the two heads is the first that is not alike. */
static int differs(const struct ck_str *want, const unsigned char *have,
		   size_t len, const struct ck_catalog *img, struct ck_err *err)
{
	size_t at = 16 + DIGEST_LEN;

	if (len < at + 8 || memcmp(have, MAGIC, 8) ||
	    ck_le64(have + len - 8) != XXH3_64bits(have, len - 8))
		return ck_fail(err, EINVAL, "overlay: %s is damaged",
			       CK_OVERLAY_HEAD);
	if (memcmp(want->v + 16, have + 16, DIGEST_LEN))
		return ck_fail(err, ESTALE,
			       "overlay: the checkpoint has another manifest "
			       "than when the overlay was begun");
	for (uint32_t i = 0; i < img->nr_srcs; i++) {
		bool file = img->srcs[i].kind == CK_SRC_FILE;
		const char *name = "a source";
		size_t n = 0;

		if (file)
			name = ck_catalog_str(img, img->srcs[i].name, &n);
		n += 20;
		if (at + n > len || memcmp(want->v + at, have + at, n))
			return ck_fail(err, ESTALE,
				       "overlay: %s is not the file that it "
				       "was when the overlay was begun",
				       name);
		at += n;
	}
	return ck_fail(err, ESTALE, "overlay: it is for another checkpoint");
}

static int compare(struct ck_overlay *o, const struct ck_overlay_in *in,
		   const struct ck_str *want, struct ck_err *err)
{
	ck_auto_free char *have = NULL;
	size_t len;
	int ret = ck_read_file(o->head_fd, MOST, &have, &len);

	if (ret == -EFBIG)
		return ck_fail(err, EINVAL, "overlay: %s is damaged",
			       CK_OVERLAY_HEAD);
	if (ret)
		return ck_fail(err, -ret, "overlay: %s: %s", CK_OVERLAY_HEAD,
			       strerror(-ret));
	if (len == want->len && !memcmp(have, want->v, want->len))
		return 0;
	return differs(want, (unsigned char *)have, len, in->img, err);
}

int ck_overlay_head(struct ck_overlay *o, const struct ck_overlay_in *in,
		    struct ck_err *err)
{
	ck_auto_str struct ck_str want = { 0 };

	compose(&want, in);
	if (want.failed)
		return ck_no_memory(err);
	o->head_fd =
		openat(o->dir_fd, CK_OVERLAY_HEAD,
		       (o->write ? O_RDWR : O_RDONLY) | O_NOFOLLOW | O_CLOEXEC);
	if (o->head_fd >= 0)
		return compare(o, in, &want, err);
	if (errno != ENOENT || !o->write)
		return ck_fail(err, errno, "overlay: %s/%s: %s", in->dir,
			       CK_OVERLAY_HEAD, strerror(errno));
	return make(o, &want, err);
}
