/* SPDX-License-Identifier: Apache-2.0 */
/*
 * verify.h - files against their manifest, and which elements their damage hits
 */
#ifndef CK_VERIFY_H
#define CK_VERIFY_H

#include "core/ckpt/ckpt.h"
#include "core/manifest/hash.h"
#include "core/manifest/manifest.h"
#include "core/manifest/corrupt_elements.h"

enum ck_damage_kind {
	CK_DAMAGE_EDITED, /* a mount for writing died over it; see sealed.h */
	CK_DAMAGE_CHANGED, /* other bytes than were sealed */
	CK_DAMAGE_UNREADABLE,
	CK_DAMAGE_CUT, /* the file ends before them */
	CK_DAMAGE_GROWN, /* the file did not have them */
	CK_DAMAGE_MISSING, /* there is no such file */
};

/* Blocks of one file that follow each other. */
struct ck_damage {
	const char *file; /* lasts as long as the manifest and the list */
	enum ck_damage_kind kind;
	uint64_t block, nr_blocks;
	uint64_t off, len; /* bytes */
	int code; /* UNREADABLE: errno */
};

struct ck_verify {
	/* In */
	const struct ck_root *root;
	const struct ck_manifest *m;
	unsigned jobs; /* threads; 0: as many as this machine suggests */
	void *ctx;
	/* From the caller's thread, now and then; may be NULL. */
	void (*tick)(void *ctx, uint64_t bytes, uint64_t total);
	/* Out: sorted by file and place */
	struct ck_damage *damage;
	size_t nr_damage, room;
	struct ck_hash_list now; /* the files there are */
	unsigned char *extra; /* of each: whether the manifest lacks it */
	uint64_t bytes; /* read */
};

/* 0 too where there is damage; -errno: it could not be looked for. */
int ck_verify_files(struct ck_verify *v, struct ck_err *err);
void ck_verify_free(struct ck_verify *v);

/* Whether blocks are what the manifest says. */
enum ck_as_sealed { CK_SEALED_NOT_SAID, CK_SEALED_SAME, CK_SEALED_OTHER };

/* What two replicas of a tensor disagree on. */
struct ck_quarrel {
	uint32_t a, b; /* sources: the one that is read, and another */
	struct ck_corrupt_elements where;
	/* Not that they differ: @b could not be read, or, if it is @a, that. */
	const struct ck_err *why;
	enum ck_as_sealed a_sealed, b_sealed;
};

struct ck_replicas {
	struct ck_ckpt *ck;
	unsigned jobs;
	void *ctx;
	/* One at a time, from any thread; lasts for the call. */
	void (*each)(void *ctx, const struct ck_quarrel *q);
	/* From the caller's thread, now and then; may be NULL. */
	void (*tick)(void *ctx, uint64_t bytes, uint64_t total);
	/* Of these bytes of tensor @t, as @chunk has them; or NULL.  Any thread. */
	enum ck_as_sealed (*sealed)(void *ctx, uint32_t t, uint32_t chunk,
				    uint64_t off, uint64_t len);
	const bool *wanted; /* of each tensor; NULL: all */
	uint64_t nr; /* out: tensors that have replicas */
};
int ck_replicas_compare(struct ck_replicas *in, struct ck_err *err);

/*
 * Calls @each for two ranks, or files of ranks, that nothing but names tells
 * apart, and all of whose @pieces are alike where they should differ.  Reads
 * some of every such piece, and all of those that it tells of.  In the
 * caller's thread.
 */
typedef void (*ck_duplicate_fn)(void *ctx, const char *a, const char *b,
				uint64_t pieces);
int ck_duplicate_ranks_check(struct ck_ckpt *ck, ck_duplicate_fn each,
			     void *ctx, struct ck_err *err);

#endif
