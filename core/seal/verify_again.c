/* SPDX-License-Identifier: Apache-2.0 */
/*
 * verify_again.c - blocks that differ from a manifest that is old by now
 *
 * A mount that writes replaces the manifest at each fsync, while verify still
 * has the one that it began with.  As long as EDITED does not name a file, the
 * manifest that is read after that is true of it; so a block is damaged if
 * that says the same of it, and is looked at anew if not.
 */
#include "core/seal/verify_priv.h"

#include "core/base/auto.h"
#include "core/base/check.h"
#include "core/io/checked.h"
#include "core/manifest/manifest_priv.h"
#include "core/manifest/sealed.h"
#include "core/manifest/sealed_priv.h"

#include <stdlib.h>
#include <string.h>

#define TRIES 8

struct again {
	const struct ck_root *root;
	const char *name;
	uint64_t size, k, digest;
};

static bool hash(struct again *a, unsigned shift)
{
	uint64_t off = a->k << shift;
	uint64_t end = CK_MIN(off + (UINT64_C(1) << shift), a->size);
	ck_auto_fd int fd = -1;
	struct stat st;

	return !ck_root_open_file(a->root, a->name, &fd, &st, NULL) &&
	       !ck_checked_hash(&ck_engine_plain, fd, off, end, &a->digest);
}

static bool sealed_now(const struct again *a, unsigned shift, uint64_t *digest)
{
	struct ck_manifest m = { 0 };
	struct ck_err err;
	bool ok;

	if (ck_manifest_load(&m, a->root, &err))
		return false;
	ok = ck_manifest_block_of(&m, shift, a->name, a->size, a->k, digest);
	ck_manifest_free(&m);
	return ok;
}

/* Of one that was sealed as @was.  May say that it is being edited. */
static bool is_damaged(struct again *a, unsigned shift, uint64_t was,
		       struct ck_damage *d)
{
	uint64_t now;

	for (int i = 0; i < TRIES; i++) {
		if (ck_sealed_was_edited(a->root, a->name))
			break;
		if (!sealed_now(a, shift, &now) || now == was)
			return true;
		was = now;
		if (hash(a, shift) && a->digest == now)
			return false;
	}
	d->kind = CK_DAMAGE_EDITED;
	return true;
}

/* @then: read after no file of @d was being edited. */
static bool stays(const struct ck_verify *v, const struct ck_manifest *then,
		  struct ck_damage *d)
{
	uint64_t i = ck_manifest_number(v->m, d->file, strlen(d->file));
	struct ck_manifest_file f;
	struct again a = { .root = v->root, .name = d->file, .k = d->block };
	uint64_t was, now;

	if (d->kind != CK_DAMAGE_CHANGED || i == CK_NO_FILE)
		return true;
	ck_manifest_file(v->m, i, &f);
	a.size = f.size;
	was = ck_manifest_block(v->m, f.first + d->block);
	if (!ck_manifest_block_of(then, v->m->shift, a.name, a.size, a.k,
				  &now) ||
	    now == was)
		return true;
	return is_damaged(&a, v->m->shift, was, d);
}

void ck_verify_again(struct ck_verify *v)
{
	struct ck_manifest then = { 0 };
	struct ck_err err;
	size_t kept = 0;

	if (!v->nr_damage || ck_manifest_load(&then, v->root, &err))
		return;
	for (size_t i = 0; i < v->nr_damage; i++)
		if (stays(v, &then, &v->damage[i]))
			v->damage[kept++] = v->damage[i];
	v->nr_damage = kept;
	ck_manifest_free(&then);
}
