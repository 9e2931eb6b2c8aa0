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

#include "core/base/check.h"
#include "core/manifest/manifest_priv.h"
#include "core/manifest/sealed.h"
#include "core/manifest/sealed_priv.h"

#include <stdlib.h>
#include <string.h>

#define TRIES 8

struct again {
	const struct ck_root *root;
	struct ck_hash_file file;
	uint64_t k, digest;
	bool read;
};

static bool want(void *ctx, size_t i, uint64_t k)
{
	const struct again *a = ctx;

	(void)i;
	return k == a->k;
}

static int keep(void *ctx, size_t i, uint64_t k, uint64_t digest,
		const struct ck_err *err)
{
	struct again *a = ctx;

	(void)i;
	a->read = k == a->k && !err;
	a->digest = digest;
	return 0;
}

static bool hash(struct again *a, unsigned shift)
{
	struct ck_hash_in in = {
		.root = a->root,
		.file = &a->file,
		.nr = 1,
		.shift = shift,
		.jobs = 1,
		.ctx = a,
		.want = want,
		.block = keep,
	};
	struct ck_err err;

	a->read = false;
	return !ck_hash_run(&in, &err) && a->read;
}

/* What @m says.  False: it is not of the same blocks. */
static bool sealed_as(const struct ck_manifest *m, const struct again *a,
		      unsigned shift, uint64_t *digest)
{
	uint64_t i = ck_manifest_number(m, a->file.name, strlen(a->file.name));
	struct ck_manifest_file f;

	if (i == CK_NO_FILE || m->shift != shift)
		return false;
	ck_manifest_file(m, i, &f);
	if (f.size != a->file.size || a->k >= f.nr)
		return false;
	*digest = ck_manifest_block(m, f.first + a->k);
	return true;
}

static bool sealed_now(const struct again *a, unsigned shift, uint64_t *digest)
{
	struct ck_manifest m = { 0 };
	struct ck_err err;
	bool ok;

	if (ck_manifest_load(&m, a->root, &err))
		return false;
	ok = sealed_as(&m, a, shift, digest);
	ck_manifest_free(&m);
	return ok;
}

/* Of one that was sealed as @was.  May say that it is being edited. */
static bool is_damaged(struct again *a, unsigned shift, uint64_t was,
		       struct ck_damage *d)
{
	uint64_t now;

	for (int i = 0; i < TRIES; i++) {
		if (ck_sealed_was_edited(a->root, a->file.name))
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
	struct again a = { .root = v->root, .k = d->block };
	uint64_t was, now;

	if (d->kind != CK_DAMAGE_CHANGED || i == CK_NO_FILE)
		return true;
	ck_manifest_file(v->m, i, &f);
	a.file.name = (char *)f.name;
	a.file.size = f.size;
	was = ck_manifest_block(v->m, f.first + d->block);
	if (!sealed_as(then, &a, v->m->shift, &now) || now == was)
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
