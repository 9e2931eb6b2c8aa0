/* SPDX-License-Identifier: Apache-2.0 */
/*
 * save.h - a new checkpoint from memory: declared, written, then published
 *
 *	SRC/.staging-NAME/
 *	  declared/	what each rank will write, as JSON: R
 *	  slices/	core/slices/slices.h, made of all of these
 *
 * Ranks meet in the draft's directory and nowhere else: each leaves what it
 * declares there, and whoever finds all of it makes the plan, which is the same
 * whoever does.  Of ranks that hold the same box one writes it.  A publish
 * (core/publish/commit.h) is as of any draft.
 *
 * Threads: any, on one of them; writes wait for each other.
 */
#ifndef CK_SAVE_H
#define CK_SAVE_H

#include "core/base/err.h"
#include "core/base/limits.h"
#include "core/device/device.h"
#include "core/root/root.h"

#include <stdbool.h>
#include <stdint.h>

struct ck_save;

struct ck_save_in {
	const struct ck_root *root; /* SRC; borrowed */
	const char *name; /* of the draft */
	const char *format; /* "dcp", "safetensors" */
	uint32_t ranks, rank; /* how many save it together, and which is this */
	unsigned seconds; /* that the others have to declare what they write */
	unsigned threads; /* that write */
};

/* What a rank will write: a box of a tensor, or an object. */
struct ck_save_slice {
	const char *name; /* UTF-8 */
	uint8_t dtype; /* CK_DT_NONE: an object, and no shape */
	unsigned rank;
	const uint64_t *shape, *start, *len;
	const char *path; /* JSON: where it stood, ["a", 0]; NULL: its name */
};

/* The draft is made, or is one that others or an earlier try made. */
int ck_save_open(struct ck_save **out, const struct ck_save_in *in,
		 struct ck_err *err);
/* What is not published stays in the draft. */
void ck_save_close(struct ck_save *s);

/* *@nr are numbered on from what was declared before.  -EBUSY: it is written. */
int ck_save_declare(struct ck_save *s, const struct ck_save_slice *v, size_t nr,
		    size_t *bad, struct ck_err *err);
/*
 * Waits until all ranks have declared; called by what follows.  -ETIMEDOUT: with
 * the rank that did not.  -EINVAL: they do not fit together.
 */
int ck_save_begin(struct ck_save *s, struct ck_err *err);

/* A part of slice number @slice, from memory of row-major or other order. */
struct ck_save_item {
	uint32_t slice;
	const uint64_t *start, *len; /* of the tensor; NULL: the whole slice */
	uint64_t mem;
	const int64_t *stride; /* in elements; NULL: row-major */
	struct ck_device *dev; /* NULL: memory of the host */
};
/*
 * All of them, or the first that could not be: *@bad.  -EBADMSG: bytes of it were
 * written before, and are others; the line says tensor, range and rank.
 */
int ck_save_write(struct ck_save *s, const struct ck_save_item *v, size_t nr,
		  size_t *bad, struct ck_err *err);
int ck_save_object(struct ck_save *s, const char *name, const void *bytes,
		   size_t len, struct ck_err *err);
/* Of slice number @slice; NULL, false: there is none. */
const char *ck_save_name(const struct ck_save *s, uint32_t slice);
bool ck_save_is_dtype(const struct ck_save *s, uint32_t slice, uint8_t dtype);
/*
 * What a publish in another process finds: what this one wrote, if it did, is
 * durable; or it was published before.
 */
int ck_save_publishable(struct ck_save *s, struct ck_err *err);
/* What was written is durable, and other nodes know of it. */
int ck_save_sync(struct ck_save *s, struct ck_err *err);

#endif
