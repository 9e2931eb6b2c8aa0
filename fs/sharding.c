/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sharding.c - pieces make a regular grid where as many distinct corners lie
 * along the axes as, multiplied, there are pieces
 */
#include "fs/sharding.h"

#include "core/base/auto.h"

#include <inttypes.h>
#include <stdlib.h>

#define MAX_SORTED (UINT32_C(1) << 20) /* pieces that are looked at */

static int compare(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return (x > y) - (x < y);
}

/* How many different corners along @axis; @room has space for them all. */
static uint32_t distinct(const struct ck_catalog *img,
			 const struct ck_tensor *t, unsigned axis,
			 uint64_t *room)
{
	uint32_t n = t->nr > 0;

	for (uint32_t i = 0; i < t->nr; i++)
		room[i] = img->dims[img->chunks[t->first + i].corner + axis];
	qsort(room, t->nr, sizeof(*room), compare);
	for (uint32_t i = 1; i < t->nr; i++)
		n += room[i] != room[i - 1];
	return n;
}

static bool is_flat(const struct ck_catalog *img, const struct ck_tensor *t)
{
	const struct ck_chunk *c = &img->chunks[t->first];

	return img->layouts[c->layout].flags & CK_LAYOUT_FLAT;
}

static void grid_prefix(const struct ck_catalog *img, const struct ck_tensor *t,
			struct ck_str *out)
{
	if (t->grid_rank == t->rank)
		return;
	ck_str_puts(out, "grid=");
	ck_str_json_u64(out, img->dims + t->grid, t->grid_rank);
	ck_str_puts(out, ",");
}

/* False where the pieces are no grid; then @out is as it was. */
static bool add_grid(const struct ck_catalog *img, const struct ck_tensor *t,
		     struct ck_str *out)
{
	ck_auto_free uint64_t *room = calloc(t->nr, sizeof(*room));
	ck_auto_str struct ck_str text = { 0 };
	const char *name = t->grid_rank == t->rank ? "dim" : "axis";
	uint64_t product = 1;

	if (!room)
		return false;
	grid_prefix(img, t, &text);
	for (unsigned d = 0; d < t->grid_rank && product <= t->nr; d++) {
		uint32_t n = distinct(img, t, d, room);

		if (n > 1)
			ck_str_fmt(&text, "%s%s%u=%" PRIu32,
				   product > 1 ? "," : "", name, d, n);
		product *= n;
	}
	if (product != t->nr || text.failed)
		return false;
	ck_str_add(out, text.v, text.len);
	return true;
}

void fs_sharding_text(const struct ck_catalog *img, const struct ck_tensor *t,
		      struct ck_str *out)
{
	if (!t->nr)
		ck_str_puts(out, "none");
	else if (t->nr == 1)
		ck_str_puts(out, "whole");
	else if (is_flat(img, t))
		ck_str_fmt(out, "flat=%" PRIu32, t->nr);
	else if (t->nr > MAX_SORTED || !add_grid(img, t, out))
		ck_str_fmt(out, "pieces=%" PRIu32, t->nr);
	if (t->nr && t->nr_all >= 2 * (uint64_t)t->nr)
		ck_str_fmt(out, ",copies=%" PRIu32, t->nr_all / t->nr);
}

uint32_t fs_sharding_sources(const struct ck_catalog *img,
			     const struct ck_tensor *t)
{
	ck_auto_free uint8_t *seen = calloc(1, img->nr_srcs / 8u + 1);
	uint32_t n = 0;

	for (uint32_t i = 0; seen && i < t->nr_all; i++) {
		uint32_t src = img->chunks[t->first + i].src;

		if (img->srcs[src].kind == CK_SRC_CODEC)
			src = img->srcs[src].parent;
		n += !(seen[src / 8] >> (src % 8) & 1);
		seen[src / 8] |= (uint8_t)(1u << (src % 8));
	}
	return n;
}
