/* SPDX-License-Identifier: Apache-2.0 */
/*
 * slot.h - one checkpoint that a mount shows
 *
 * A mount of one checkpoint has one slot, number 0.  A mount of a directory of
 * checkpoints has slot 0 for the directory itself and one more for each entry
 * that somebody has looked at; an entry is parsed when somebody looks into it.
 * An entry that is replaced gets a new slot; the old one lives until the
 * kernel forgets it, so what is open stays right.
 *
 * Threads: any.  A slot does not change once it is ready, but for @refs.
 */
#ifndef FS_SLOT_H
#define FS_SLOT_H

#include "core/ckpt.h"
#include "core/steps.h"
#include "core/view/view.h"
#include "fs/shards.h"
#include "fs/virt.h"

#include <stdatomic.h>
#include <sys/stat.h>

#define FS_MAX_VIEWS 16
#define FS_MAX_SLOTS 65536
#define FS_IDLE_SLOTS 32 /* parsed ones kept for who comes next */

struct fs_slot {
	uint32_t nr;
	bool steps; /* the directory of all the others */
	char *name; /* of the entry; NULL: the mount is this checkpoint */
	struct stat seen; /* the entry when it was looked at */
	_Atomic int state; /* enum fs_slot_state */
	_Atomic uint64_t refs; /* the kernel's, to its root, and open files */
	bool gone; /* replaced, or not there any more; under the table's lock */
	bool told; /* the kernel was asked to forget it; under the lock */
	_Atomic int64_t used_ns; /* about when it was last asked for */

	/* valid once READY or FAILED */
	struct ck_ckpt *ck; /* NULL where FAILED */
	const struct ck_image *img;
	struct ck_view
		*view[FS_MAX_VIEWS]; /* NULL: it has none; see ck_views */
	struct fs_shards *shards;
	struct fs_virt *virt;
	struct ck_root root; /* of a FAILED one; else the ckpt's */
	struct stat dir; /* owner, mode and time of its directories */
	uint64_t total; /* bytes of all tensors */
	struct ck_err why; /* FAILED: the line that says so */
	bool whole; /* every tensor is there, and nothing was refused */
	int64_t made_s; /* CLOCK_MONOTONIC, when it became ready */
	uint64_t signature; /* of the names, sizes and times in the folder */
};

enum fs_slot_state { FS_SLOT_NEW, FS_SLOT_READY, FS_SLOT_FAILED };

struct fs_slots;

struct fs_slots_in {
	const struct fs_kernel *kernel; /* borrowed, as the next */
	const struct ck_opts *opts;
	unsigned sandbox; /* CK_SANDBOX_* in force */
};

/* A mount of one checkpoint; borrows @ck. */
int fs_slots_one(struct fs_slots **out, const struct fs_slots_in *in,
		 struct ck_ckpt *ck, struct ck_err *err);
/* A mount of a directory of checkpoints; borrows @root. */
int fs_slots_steps(struct fs_slots **out, const struct fs_slots_in *in,
		   const struct ck_root *root, struct ck_err *err);
void fs_slots_free(struct fs_slots *s);

/* By number; NULL: there is none.  Lives while the kernel knows its root. */
struct fs_slot *fs_slots_at(struct fs_slots *s, uint32_t nr);
/*
 * The entry @name as it is now, with one reference more; NULL: no such entry.
 * Does not parse it.
 */
struct fs_slot *fs_slots_entry(struct fs_slots *s, const char *name);
/* All entries as they are now; to free with ck_steps_free(). */
int fs_slots_list(struct fs_slots *s, struct ck_steps *out, struct ck_err *err);
/*
 * The name of the newest whole checkpoint, to free(); NULL: none is.  Parses
 * entries until it finds one.
 */
char *fs_slots_latest(struct fs_slots *s);
/* Parses the entry if that has not been done; its state then. */
enum fs_slot_state fs_slot_need(struct fs_slots *s, struct fs_slot *slot);
void fs_slot_get(struct fs_slot *slot);
/* Gives @nr references back; may free it. */
void fs_slot_put(struct fs_slots *s, struct fs_slot *slot, uint64_t nr);
/* Whether the entry is gone, or another than it was; false of a whole mount. */
bool fs_slot_is_past(struct fs_slots *s, const struct fs_slot *slot);
void fs_slot_touch(struct fs_slot *slot);
/*
 * Whether more than FS_IDLE_SLOTS are parsed, though those that nobody refers
 * to have been freed: @name is then the one used the longest ago, which the
 * kernel should forget unless a program is in it.  fs_slots_wait() waits for
 * there being too many; false: fs_slots_end_wait() was called.
 */
bool fs_slots_crowded(struct fs_slots *s, char name[256]);
bool fs_slots_wait(struct fs_slots *s);
void fs_slots_end_wait(struct fs_slots *s);
/* How many are parsed. */
uint32_t fs_slots_made(struct fs_slots *s);
/* Bytes of all tensors that are known. */
uint64_t fs_slots_total(struct fs_slots *s, uint64_t *files);

#endif
