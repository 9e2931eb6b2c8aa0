/* SPDX-License-Identifier: Apache-2.0 */
/*
 * viewkit.h - a checkpoint of named tensors, and the files of views over it
 *
 * Nothing is read: bytes of tensor T at offset O show as viewkit_byte(T, O).
 */
#ifndef VIEWKIT_H
#define VIEWKIT_H

#include "core/ckpt/ckpt_priv.h"
#include "core/view/view.h"
#include "tests/unit/catalog/kit.h"

struct viewkit {
	struct kit kit;
	struct ck_ckpt ck;
	uint32_t src;
	uint64_t at; /* where in the file the next tensor is */
};

void vk_init(struct viewkit *k);
void vk_free(struct viewkit *k);
void vk_tensor(struct viewkit *k, const char *name, enum ck_dtype dtype,
	       unsigned rank, const uint64_t *shape);
/* What follows lies in a file that is not there. */
void vk_lose(struct viewkit *k);
/* On the same bytes as the tensor before it. */
void vk_twin(struct viewkit *k, const char *name, enum ck_dtype dtype,
	     unsigned rank, const uint64_t *shape);
/*
 * A float32 [2] below the keys of @path, split at '/'; "#3" is position 3.
 * Its name is the path joined by dots.
 */
void vk_nested(struct viewkit *k, const char *path);
void vk_nested_of(struct viewkit *k, const char *path, enum ck_dtype dtype,
		  unsigned rank, const uint64_t *shape);
/* All views use it; made at the first call. */
const struct ck_catalog *vk_image(struct viewkit *k);
struct ck_view *vk_open(struct viewkit *k, const struct ck_view_ops *ops,
			const struct ck_opts *opts);
/* All of file @i, through spans of every length; to free(). */
unsigned char *vk_bytes(struct ck_view *v, uint32_t i, uint64_t *len);
/* The file's number; fails where there is none. */
uint32_t vk_file(struct ck_view *v, const char *name);
/* The problems that views gave, as lines; to free(). */
char *vk_problems(struct viewkit *k);

static inline unsigned char vk_byte(uint32_t tensor, uint64_t off)
{
	return (unsigned char)(tensor * 37 + off * 7 + off / 251 + 1);
}

#endif
