/* SPDX-License-Identifier: Apache-2.0 */
/*
 * zip_out.c - members of a zip, as pieces
 */
#include "core/view/torch/zip_out.h"

#include "core/base/crc32.h"
#include "core/view/merged.h"

#include <stdio.h>
#include <stdlib.h>

void ck_zip_out_free(struct ck_zip_out *z)
{
	free(z->members.v);
}

static uint64_t round_up(uint64_t n, uint64_t to)
{
	return (n + to - 1) / to * to;
}

/* Zip minds no gaps between members. */
static void skip_to(struct ck_zip_out *z, uint64_t off)
{
	ck_compose_zeros(z->file, off - z->file->size);
}

/* What comes is on pages without lost bytes of what was before. */
static void leave_lost(struct ck_zip_out *z)
{
	if (z->lost)
		skip_to(z, round_up(z->file->size, CK_LOST_PAGE));
	z->lost = false;
}

static bool begin(struct ck_zip_out *z, const char *name, uint64_t size,
		  uint32_t crc, bool lost)
{
	struct ck_zip_member *m = ck_vec_push(&z->members);
	ck_auto_str struct ck_str s = { 0 };

	if (!m) {
		z->file->failed = true;
		return false;
	}
	*m = (struct ck_zip_member){ .size = size, .crc = crc };
	snprintf(m->name, sizeof(m->name), "%s", name);
	leave_lost(z);
	if (lost) { /* its payload begins a page */
		uint64_t head = ck_zip_payload(m);

		skip_to(z, round_up(z->file->size + head, CK_LOST_PAGE) - head);
		z->lost = true;
	}
	m->local_off = z->file->size;
	ck_zip_put_local(&s, m);
	z->file->failed |= s.failed;
	ck_compose_bytes(z->file, s.v, s.len);
	return true;
}

void ck_zip_out_bytes(struct ck_zip_out *z, const char *name, const void *bytes,
		      size_t len)
{
	if (begin(z, name, len, ck_crc32(0, bytes, len), false))
		ck_compose_bytes(z->file, bytes, len);
}

void ck_zip_out_tensor(struct ck_zip_out *z, const char *name,
		       const struct ck_catalog *img, uint32_t t)
{
	if (begin(z, name, img->tensors[t].size, 0, ck_merged_is_lost(img, t)))
		ck_compose_tensor(z->file, img, t);
}

int ck_zip_out_end(struct ck_zip_out *z, struct ck_err *err)
{
	ck_auto_str struct ck_str s = { 0 };

	leave_lost(z);
	ck_zip_put_end(&s, z->members.v, z->members.nr, z->file->size);
	z->file->failed |= s.failed;
	ck_compose_bytes(z->file, s.v, s.len);
	return ck_compose_done(z->file, err);
}
