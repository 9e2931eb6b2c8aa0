/* SPDX-License-Identifier: Apache-2.0 */
/* shared_catalog.c - writes, reads and checks what its header says */
#include "core/ckpt/shared_catalog.h"

#include "core/base/auto.h"
#include "core/base/whole.h"
#include "core/catalog/catalog.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <xxhash.h>

#define MAGIC UINT64_C(0x32676d4964726873) /* "shrdImg2" */
#define DEPTH_MAX 16
#define SEALS (F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE)

/* Of directories the number of their inode: names lead elsewhere in a while. */
static uint64_t place_of(const struct ck_root *root)
{
	uint64_t sum = 0;

	for (; root; root = root->next) {
		const char *only = root->only ? root->only : "";
		const char *save = root->save ? root->save : "";
		struct stat st;

		if (fstat(root->fd, &st))
			st.st_ino = 0;
		sum = XXH3_64bits_withSeed(&st.st_ino, sizeof(st.st_ino), sum);
		sum = XXH3_64bits_withSeed(only, strlen(only) + 1, sum);
		sum = XXH3_64bits_withSeed(save, strlen(save) + 1, sum);
	}
	return sum;
}

bool ck_shared_catalog_is_of(const struct ck_shared_catalog *image,
			     const struct ck_root *root)
{
	return place_of(root) == image->where;
}

void ck_shared_catalog_tail(const struct ck_catalog *img,
			    const struct ck_root *root, unsigned depth,
			    struct ck_shared_catalog_tail *out)
{
	*out = (struct ck_shared_catalog_tail){ MAGIC, img->size, depth,
						place_of(root) };
}

int ck_shared_catalog_make(const struct ck_catalog *img,
			   const struct ck_root *root, unsigned depth, int *fd,
			   uint64_t digest[2], struct ck_err *err)
{
	struct ck_shared_catalog_tail tail;
	ck_auto_fd int to = -1;
	XXH128_hash_t sum;
	int ret = ck_catalog_file(&to, err);

	if (ret)
		return ret;
	ck_shared_catalog_tail(img, root, depth, &tail);
	ret = ck_write_whole(to, img->base, img->size);
	if (!ret)
		ret = ck_write_whole(to, &tail, sizeof(tail));
	if (ret)
		return ck_fail(err, -ret, "memfd: %s", strerror(-ret));
	ret = ck_catalog_seal(to, err);
	if (ret)
		return ret;
	if (digest) {
		sum = XXH3_128bits(img->base, img->size);
		digest[0] = sum.low64;
		digest[1] = sum.high64;
	}
	*fd = ck_steal_fd(to);
	return 0;
}

int ck_shared_catalog_open(struct ck_shared_catalog *out, int fd,
			   struct ck_err *err)
{
	struct ck_shared_catalog_tail tail;
	struct stat st;
	int seals = fcntl(fd, F_GET_SEALS);

	if (seals < 0 || (seals & SEALS) != SEALS || fstat(fd, &st))
		return ck_fail(err, EINVAL,
			       "descriptor %d is no image: no sealed memfd",
			       fd);
	if (st.st_size < (off_t)sizeof(tail) ||
	    ck_pread_whole(fd, &tail, sizeof(tail),
			   (uint64_t)st.st_size - sizeof(tail)) ||
	    tail.magic != MAGIC || tail.depth > DEPTH_MAX ||
	    tail.size != (uint64_t)st.st_size - sizeof(tail))
		return ck_fail(err, EINVAL,
			       "descriptor %d is no image of a checkpoint", fd);
	*out = (struct ck_shared_catalog){ fd, tail.size, (unsigned)tail.depth,
					   tail.where };
	return 0;
}

int ck_shared_catalog_alone(const struct ck_shared_catalog *image, int *fd,
			    struct ck_err *err)
{
	ck_auto_fd int to = -1;
	off_t at = 0;
	int ret = ck_catalog_file(&to, err);

	while (!ret && (uint64_t)at < image->size) {
		ssize_t n = sendfile(to, image->fd, &at,
				     (size_t)(image->size - (uint64_t)at));

		if (n <= 0 && !(n < 0 && errno == EINTR))
			return ck_fail(err, n ? errno : EIO, "an image: %s",
				       strerror(n ? errno : EIO));
	}
	if (!ret)
		ret = ck_catalog_seal(to, err);
	if (!ret)
		*fd = ck_steal_fd(to);
	return ret;
}
