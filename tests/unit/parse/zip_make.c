// SPDX-License-Identifier: Apache-2.0
/* zip_make.c - see zip_make.h; the layout is in core/parse/zip.c */
#include "tests/unit/parse/zip_make.h"

#include <string.h>

static void put(struct zip *z, size_t at, uint64_t v, unsigned bytes)
{
	for (unsigned i = 0; i < bytes; i++) {
		z->v[at + i] = (uint8_t)v;
		v >>= 8;
	}
}

void zip_put16(struct zip *z, size_t at, uint16_t v)
{
	put(z, at, v, 2);
}

void zip_put32(struct zip *z, size_t at, uint32_t v)
{
	put(z, at, v, 4);
}

void zip_put64(struct zip *z, size_t at, uint64_t v)
{
	put(z, at, v, 8);
}

static void add(struct zip *z, uint64_t v, unsigned bytes)
{
	put(z, z->len, v, bytes);
	z->len += bytes;
}

static void add_bytes(struct zip *z, const void *bytes, size_t len)
{
	if (len)
		memcpy(z->v + z->len, bytes, len);
	z->len += len;
}

static uint16_t flags_of(const struct zip_member *m)
{
	return m->flags ? m->flags : m->len ? 0x0808 : 0x0800;
}

static void add_local(struct zip *z, const struct zip_member *m)
{
	const char *name = m->local_name ? m->local_name : m->name;

	add(z, 0x04034b50, 4);
	add(z, 0, 2);
	add(z, m->local_flags ? m->local_flags : flags_of(m), 2);
	add(z, m->local_method, 2);
	add(z, 0, 4);
	add(z, m->local_crc, 4);
	add(z, m->local_size, 4);
	add(z, m->local_size, 4);
	add(z, strlen(name), 2);
	add(z, m->padding ? m->padding + 4u : 0, 2);
	add_bytes(z, name, strlen(name));
	if (!m->padding)
		return;
	add(z, 'F' | 'B' << 8, 2);
	add(z, m->padding, 2);
	z->len += m->padding;
}

static void add_member(struct zip *z, unsigned i, const struct zip_member *m)
{
	z->at[i].local = z->len;
	add_local(z, m);
	z->at[i].payload = z->len;
	add_bytes(z, m->bytes, m->len);
	if (!m->len)
		return;
	add(z, 0x08074b50, 4);
	add(z, 0x1234, 4);
	add(z, m->len, 4);
	add(z, m->len, 4);
}

static void add_entry(struct zip *z, unsigned i, const struct zip_member *m)
{
	uint32_t size = m->size ? m->size : (uint32_t)m->len;

	z->at[i].entry = z->len;
	add(z, 0x02014b50, 4);
	add(z, 0, 4);
	add(z, flags_of(m), 2);
	add(z, m->method, 2);
	add(z, 0, 4);
	add(z, m->len ? 0x1234 : 0, 4);
	add(z, size, 4);
	add(z, size, 4);
	add(z, strlen(m->name), 2);
	add(z, 0, 12);
	add(z, m->off ? m->off : z->at[i].local, 4);
	add_bytes(z, m->name, strlen(m->name));
}

static void add_end64(struct zip *z, unsigned nr, size_t dir_len)
{
	add(z, 0x06064b50, 4);
	add(z, 44, 8);
	add(z, 0, 12);
	add(z, nr, 8);
	add(z, nr, 8);
	add(z, dir_len, 8);
	add(z, z->dir_off, 8);
	add(z, 0x07064b50, 4);
	add(z, 0, 4);
	add(z, z->end64_off, 8);
	add(z, 1, 4);
}

void zip_make(struct zip *z, const struct zip_member *m, unsigned nr)
{
	bool plain = z->plain;

	*z = (struct zip){ .plain = plain };
	for (unsigned i = 0; i < nr; i++)
		add_member(z, i, &m[i]);
	z->dir_off = z->len;
	for (unsigned i = 0; i < nr; i++)
		add_entry(z, i, &m[i]);
	z->end64_off = z->len;
	if (!plain)
		add_end64(z, nr, z->end64_off - z->dir_off);
	z->end_off = z->len;
	add(z, 0x06054b50, 4);
	add(z, 0, 4);
	add(z, nr, 2);
	add(z, nr, 2);
	add(z, z->end64_off - z->dir_off, 4);
	add(z, z->dir_off, 4);
	add(z, 0, 2);
}
