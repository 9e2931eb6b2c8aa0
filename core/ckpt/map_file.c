/* SPDX-License-Identifier: Apache-2.0 */
#include "core/ckpt/map_file.h"

#include "core/base/auto.h"
#include "core/base/check.h"
#include "core/base/limits.h"
#include "core/base/whole.h"
#include "core/catalog/catalog.h"
#include "core/ckpt/shared_catalog.h"

#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#define MAGIC "unshardfs map 2\n" /* 16 bytes; no NUL */
#define PIECE (64 << 10)

struct head {
	char magic[16];
	uint64_t path, options, image; /* bytes of each, which follow */
	uint64_t only; /* of the path's, those of the name of a file; or 0 */
};

bool ck_map_is_of(const struct ck_root *root)
{
	return !root->next && !root->save && root->real;
}

bool ck_map_make(struct ck_map_parts *out, const struct ck_catalog *img,
		 const struct ck_root *root, const char *options)
{
	const char *only = root->only ? root->only : "";
	struct ck_shared_catalog_tail tail;
	struct head head = { .magic = "" };
	XXH3_state_t *hash;
	uint64_t sum;

	memset(out, 0, sizeof(*out));
	if (!ck_map_is_of(root))
		return false;
	hash = XXH3_createState();
	if (!hash)
		return false;
	ck_shared_catalog_tail(img, root, 0, &tail);
	memcpy(head.magic, MAGIC, sizeof(head.magic));
	head.path = strlen(root->real) + (*only ? 1 : 0) + strlen(only);
	head.only = strlen(only);
	head.options = strlen(options);
	head.image = img->size + sizeof(tail);
	ck_str_add(&out->head, &head, sizeof(head));
	ck_str_puts(&out->head, root->real);
	ck_str_puts(&out->head, *only ? "/" : "");
	ck_str_puts(&out->head, only);
	ck_str_puts(&out->head, options);
	ck_str_add(&out->end, &tail, sizeof(tail));
	XXH3_64bits_reset(hash);
	if (!out->head.failed && !out->end.failed) {
		XXH3_64bits_update(hash, out->head.v, out->head.len);
		XXH3_64bits_update(hash, img->base, img->size);
		XXH3_64bits_update(hash, out->end.v, out->end.len);
	}
	sum = XXH3_64bits_digest(hash);
	XXH3_freeState(hash);
	ck_str_add(&out->end, &sum, sizeof(sum));
	return !out->head.failed && !out->end.failed;
}

void ck_map_parts_free(struct ck_map_parts *parts)
{
	ck_str_free(&parts->head);
	ck_str_free(&parts->end);
}

/* Text of @len bytes, without a NUL in it; the hash goes on. */
static int read_text(int fd, uint64_t len, uint64_t *at, char **out,
		     XXH3_state_t *hash)
{
	char *text = calloc(1, len + 1);

	if (!text)
		return -ENOMEM;
	*out = text;
	if (ck_pread_whole(fd, text, len, *at) || strlen(text) != len)
		return -EBADMSG;
	XXH3_64bits_update(hash, text, len);
	*at += len;
	return 0;
}

static int read_image(int fd, uint64_t len, uint64_t *at, int to,
		      XXH3_state_t *hash)
{
	ck_auto_free unsigned char *buf = malloc(PIECE);
	int ret = buf ? 0 : -ENOMEM;

	while (!ret && len) {
		uint64_t n = CK_MIN(len, (uint64_t)PIECE);

		if (ck_pread_whole(fd, buf, n, *at))
			return -EBADMSG;
		XXH3_64bits_update(hash, buf, n);
		ret = ck_write_whole(to, buf, n);
		*at += n;
		len -= n;
	}
	return ret;
}

static bool is_well_formed(const struct head *head, uint64_t size)
{
	uint64_t all;

	return !memcmp(head->magic, MAGIC, sizeof(head->magic)) && head->path &&
	       head->path < PATH_MAX && head->only < head->path &&
	       head->options < CK_MAX_NAME &&
	       ck_add_ok(head->path, head->options, &all) &&
	       ck_add_ok(all, head->image, &all) &&
	       ck_add_ok(all, sizeof(*head) + sizeof(uint64_t), &all) &&
	       all == size;
}

static int read_all(struct ck_map *out, int fd, int to, XXH3_state_t *hash)
{
	struct head head;
	struct stat st;
	uint64_t at = sizeof(head), sum = 0;
	int ret;

	if (fstat(fd, &st))
		return -errno;
	if (ck_pread_whole(fd, &head, sizeof(head), 0) ||
	    !is_well_formed(&head, (uint64_t)st.st_size))
		return -EBADMSG;
	XXH3_64bits_update(hash, &head, sizeof(head));
	ret = read_text(fd, head.path, &at, &out->path, hash);
	if (!ret && head.only)
		out->only = out->path + (head.path - head.only);
	if (!ret)
		ret = read_text(fd, head.options, &at, &out->options, hash);
	if (!ret)
		ret = read_image(fd, head.image, &at, to, hash);
	if (ret)
		return ret;
	if (ck_pread_whole(fd, &sum, sizeof(sum), at) ||
	    sum != XXH3_64bits_digest(hash))
		return -EBADMSG;
	return 0;
}

int ck_map_read(struct ck_map *out, int fd, struct ck_err *err)
{
	XXH3_state_t *hash = XXH3_createState();
	ck_auto_fd int to = -1;
	int ret = hash ? ck_catalog_file(&to, err) : ck_no_memory(err);

	*out = (struct ck_map){ .image_fd = -1 };
	if (ret) {
		XXH3_freeState(hash);
		return ret;
	}
	XXH3_64bits_reset(hash);
	ret = read_all(out, fd, to, hash);
	XXH3_freeState(hash);
	if (ret)
		ret = ck_fail(
			err, -ret, "%s",
			ret == -EBADMSG ?
				"it is no map of a mount, or not all of it" :
				strerror(-ret));
	else
		ret = ck_catalog_seal(to, err);
	if (!ret)
		out->image_fd = ck_steal_fd(to);
	else
		ck_map_free(out);
	return ret;
}

void ck_map_free(struct ck_map *map)
{
	free(map->path);
	free(map->options);
	if (map->image_fd >= 0)
		close(map->image_fd);
	*map = (struct ck_map){ .image_fd = -1 };
}
