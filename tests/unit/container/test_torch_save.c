/* SPDX-License-Identifier: Apache-2.0 */
/* Files of torch.save, whole, cut short and with each byte changed. */
#include "core/container/torch_save.h"
#include "tests/lib/memsource.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct ck_err err;

struct bytes {
	unsigned char *v;
	size_t len;
};

static struct bytes load(const char *name)
{
	char path[256];
	struct bytes b = { 0 };
	FILE *f;
	long size;

	snprintf(path, sizeof(path), "tests/formats/torch/%s", name);
	f = fopen(path, "rb");
	cr_assert(f, "%s: run from the top of the tree", path);
	fseek(f, 0, SEEK_END);
	size = ftell(f);
	rewind(f);
	b.v = malloc((size_t)size);
	b.len = fread(b.v, 1, (size_t)size, f);
	cr_assert_eq(b.len, (size_t)size);
	fclose(f);
	return b;
}

#define ZIP "views/in/views.pt"
#define LEGACY "views-legacy/in/views_legacy.pt"

/* In memory of its very size, so that a byte too far is seen. */
static struct ck_source *source(const void *v, size_t len)
{
	struct ck_source *s = memsource(v, len, "made.pt");

	cr_assert(s);
	return s;
}

/*
 * Opens it and looks up all storages by their keys; what is said to be there
 * lies in the file.
 */
static int walk(const void *v, size_t len, size_t *nr)
{
	ck_auto_source struct ck_source *s = source(v, len);
	ck_auto_torch_save struct ck_torch_save ts = { 0 };
	int ret;

	err = (struct ck_err){ 0 };
	*nr = 0;
	ret = ck_torch_save_open(&ts, s, &err);
	if (ret)
		return ret;
	cr_expect(ts.pickle_off <= len && ts.pickle_len <= len - ts.pickle_off);
	for (size_t i = 0; i < ts.storages.nr; i++) {
		const struct ck_torch_storage *st = &ts.storages.v[i];

		cr_expect(i == 0 || memcmp(st[-1].key, st->key,
					   st[-1].key_len < st->key_len ?
						   st[-1].key_len :
						   st->key_len) <= 0);
		cr_expect(st->off <= len, "storage at %zu of %zu",
			  (size_t)st->off, len);
	}
	*nr = ts.storages.nr;
	return 0;
}

Test(torch_save, magic)
{
	struct bytes zip = load(ZIP), legacy = load(LEGACY);

	cr_expect(ck_torch_save_magic(zip.v, 16));
	cr_expect(ck_torch_save_magic(legacy.v, CK_TORCH_SAVE_HEAD));
	cr_expect_not(ck_torch_save_magic("PK\5\6............", 16));
	cr_expect_not(ck_torch_save_magic("\200\2}q\1............", 16));
	free(zip.v);
	free(legacy.v);
}

/* torch.save(x, f, pickle_protocol=N, _use_new_zipfile_serialization=False) */
Test(torch_save, magic_of_protocols)
{
	static const char number[] = "\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20"
				     "\x6a\xa8\x50\x19.";
	char head[CK_TORCH_SAVE_HEAD] = "\x80";

	for (char proto = 2; proto <= 5; proto++) {
		size_t at = proto < 4 ? 2 : 11;

		memset(head + 1, 0, sizeof(head) - 1);
		head[1] = proto;
		if (proto >= 4) {
			head[2] = '\x95';
			head[3] = 13;
		}
		memcpy(head + at, number, sizeof(number) - 1);
		cr_expect(ck_torch_save_magic(head, sizeof(head)), "%d", proto);
		for (size_t i = 0; i < sizeof(number) - 1; i++) {
			head[at + i] ^= 1;
			cr_expect_not(ck_torch_save_magic(head, sizeof(head)));
			head[at + i] ^= 1;
			cr_expect_not(ck_torch_save_magic(head, at + i));
		}
	}
	cr_expect(ck_torch_save_magic("L119547037146038801333356L\n.L10", 32));
	cr_expect_not(
		ck_torch_save_magic("L119547037146038801333357L\n.L10", 32));
}

Test(torch_save, both_containers)
{
	struct bytes zip = load(ZIP), legacy = load(LEGACY);
	size_t of_zip, of_legacy;

	cr_assert_eq(walk(zip.v, zip.len, &of_zip), 0, "%s", err.msg);
	cr_assert_eq(walk(legacy.v, legacy.len, &of_legacy), 0, "%s", err.msg);
	cr_expect(of_zip > 0);
	cr_expect_eq(of_zip, of_legacy, "the same object, saved twice");
	free(zip.v);
	free(legacy.v);
}

/* All that is shorter than @least is refused. */
static void cut(const char *name, size_t least)
{
	struct bytes b = load(name);
	size_t nr;

	for (size_t len = 0; len < least; len++) {
		unsigned char *v = malloc(len + 1);

		memcpy(v, b.v, len);
		cr_expect_eq(walk(v, len, &nr), -EINVAL, "%s at %zu", name,
			     len);
		cr_expect(!strncmp(err.msg, "made.pt", 7) && err.msg[8],
			  "at %zu: %s", len, err.msg);
		free(v);
	}
	free(b.v);
}

static size_t first_storage(const char *name)
{
	struct bytes b = load(name);
	ck_auto_source struct ck_source *s = source(b.v, b.len);
	ck_auto_torch_save struct ck_torch_save ts = { 0 };
	size_t off = b.len;

	cr_assert_eq(ck_torch_save_open(&ts, s, &err), 0, "%s", err.msg);
	for (size_t i = 0; i < ts.storages.nr; i++)
		if (ts.storages.v[i].off < off)
			off = (size_t)ts.storages.v[i].off;
	free(b.v);
	return off;
}

/* A zip's directory is at its end; the old form keeps what it still has. */
Test(torch_save, cut_short)
{
	struct bytes zip = load(ZIP);
	size_t least = first_storage(LEGACY);

	cr_expect(least > 1000);
	cut(ZIP, zip.len);
	cut(LEGACY, least - 8); /* each is led by its number of elements */
	free(zip.v);
}

/* Right or refused, and nothing else: the sanitizers watch. */
static void change(const char *name)
{
	static const unsigned char to[] = { 0xff, '.' };
	struct bytes b = load(name);
	size_t nr, refused = 0;

	for (size_t i = 0; i < b.len; i++) {
		unsigned char was = b.v[i];

		for (size_t k = 0; k < sizeof(to); k++) {
			int ret;

			b.v[i] = to[k];
			ret = walk(b.v, b.len, &nr);
			cr_expect(!ret || ((ret == -EINVAL || ret == -E2BIG) &&
					   err.msg[0]),
				  "%s: %02x at %zu: %d", name, to[k], i, ret);
			refused += ret != 0;
		}
		b.v[i] = was;
	}
	cr_expect(refused > 50, "%zu", refused);
	cr_expect_eq(walk(b.v, b.len, &nr), 0);
	free(b.v);
}

Test(torch_save, each_byte_changed)
{
	change(ZIP);
	change(LEGACY);
}

/* The first tensor in the object: its storage is where the bytes are. */
static bool first_tensor(const struct ck_pickle *p, struct ck_torch_tensor *t)
{
	struct ck_piter it;
	ck_pv key, v;

	ck_piter_init_pairs(&it, p, ck_pickle_root(p));
	while (ck_piter_next2(&it, &key, &v))
		if (!ck_torch_tensor_read(p, v, t, NULL) && t->storage_len)
			return true;
	return false;
}

static void place(const char *name)
{
	struct bytes b = load(name);
	ck_auto_source struct ck_source *s = source(b.v, b.len);
	ck_auto_torch_save struct ck_torch_save ts = { 0 };
	struct ck_torch_tensor t;
	uint64_t off = 0;

	cr_assert_eq(ck_torch_save_open(&ts, s, &err), 0, "%s", err.msg);
	cr_assert(first_tensor(ts.pickle, &t), "%s", name);
	cr_assert_eq(ck_torch_save_place(&ts, &t, &off, &err), 0, "%s",
		     err.msg);
	cr_expect(off && off + t.storage_len <= b.len);
	t.key = "no such key";
	t.key_len = 11;
	cr_expect_eq(ck_torch_save_place(&ts, &t, &off, &err), -EINVAL);
	free(b.v);
}

Test(torch_save, places)
{
	place(ZIP);
	place(LEGACY);
}
