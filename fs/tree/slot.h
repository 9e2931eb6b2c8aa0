/* SPDX-License-Identifier: Apache-2.0 */
/*
 * slot.h - one checkpoint that a mount shows
 *
 * A mount of one checkpoint has slot 0 for that.  A mount of a directory of
 * checkpoints has slot 0 for the directory itself.  Either has one more for each
 * entry that somebody has looked at, for each group of them, and for what lies
 * beside the model in a checkpoint's own folder.
 *
 *	  NEW --need--> READY or FAILED --too many--> ASLEEP
 *	                     ^-----------need------------+
 *
 * An entry is parsed when somebody looks into it.  Of those that nobody is in,
 * FS_IDLE_SLOTS stay parsed; the others are put to sleep, and parsed again
 * when they are asked for, if the entry is still the same.  An entry that is
 * replaced gets a new slot; the old one is gone: who has a file of it open
 * reads on, everybody else hears ESTALE once it sleeps.
 *
 * Who owns what: a pointer to a slot is a pin (@users): fs_slots_pin() and
 * fs_slots_entry() give one, fs_slot_unpin() ends it.  Operations hold one
 * while they last, open files until they are closed.  The kernel owns one
 * count (@known) for each look-up of any inode in the slot.  While either is
 * not 0 the slot keeps its number; while it has a pin it does not sleep.
 *
 * Threads: any.  What a slot was made of does not change while it is pinned.
 */
#ifndef FS_SLOT_H
#define FS_SLOT_H

#include "core/ckpt/ckpt.h"
#include "core/run/steps.h"
#include "core/view/view.h"
#include "fs/tree/nested.h"
#include "fs/tree/shards.h"
#include "fs/tree/virt.h"

#include <stdatomic.h>
#include <sys/stat.h>

#define FS_MAX_VIEWS 16
#define FS_MAX_SLOTS 0xf000 /* numbers above are stages; see stages.h */
#define FS_IDLE_SLOTS 32 /* parsed ones kept for who comes next */
#define FS_KNOWN_SLOTS 1024 /* more, and the kernel is asked to forget */

/* What a folder holds: sums over names, sizes, times and inode numbers. */
struct fs_print {
	uint64_t files; /* of those that are not ours */
	uint64_t ours; /* the manifest, which follows what is written */
};

struct fs_slot {
	uint32_t nr;
	_Atomic bool steps; /* the directory of all, or a group: steps.h */
	char *name; /* of the entry; NULL: the mount is this checkpoint */
	struct stat seen; /* the entry, last found to be what it was made of */
	_Atomic int state; /* enum fs_slot_state */

	/* under the table's lock; number 0 is not counted, it stays */
	struct fs_slot *next; /* of all but number 0 */
	uint64_t known; /* look-ups that the kernel has not given back */
	uint64_t users; /* pins */
	uint64_t used; /* the larger, the later it was pinned */
	bool gone; /* replaced, or not there any more */
	bool told; /* the kernel was asked to forget it */
	uint32_t pair; /* the other part that it was compared with; 0: none */
	char *unfit; /* of a part that does not fit that one: why */

	/* facts, valid once it was made; ASLEEP, too */
	struct stat dir; /* owner, mode and time of its directories */
	uint64_t total; /* bytes of all tensors */
	uint32_t files; /* number of them */
	uint32_t warnings; /* number of problems that are one */
	struct ck_err why; /* FAILED: the line that says so */
	bool failed; /* it was made, and that is what it became */
	bool whole; /* every tensor is there, and nothing was refused */
	bool asked; /* it slept, and had folders that were made for who asked */
	int64_t made_s; /* CLOCK_MONOTONIC, when it was made first */
	struct fs_print print; /* of the folder when it was made */
	struct fs_shards *shards; /* with what the kernel knows of them */
	struct ck_steps beside; /* entries in it, a slot each */

	/* READY or FAILED only */
	struct ck_ckpt *ck; /* NULL where FAILED */
	const struct ck_image *img;
	struct ck_view
		*view[FS_MAX_VIEWS]; /* NULL: it has none; see ck_views */
	struct fs_nested *nested; /* NULL: no view nests, or it is written */
	struct fs_virt *virt;
	struct ck_root root; /* of a FAILED one; else the ckpt's */
};

enum fs_slot_state {
	FS_SLOT_NEW,
	FS_SLOT_READY,
	FS_SLOT_FAILED,
	FS_SLOT_ASLEEP,
};

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

/* By number, pinned; NULL: there is none. */
struct fs_slot *fs_slots_pin(struct fs_slots *s, uint32_t nr);
/*
 * The entry @name as it is now, pinned; does not parse it.  -ENOENT: no such
 * entry, -ENOMEM, -ENFILE: the kernel knows as many as there are numbers.
 */
int fs_slots_entry(struct fs_slots *s, const char *name, struct fs_slot **out);
/* Whether @name has a slot of its own, beside the views of @slot. */
bool fs_slot_has_beside(const struct fs_slot *slot, const char *name);
/* Whether the directory has an entry @name now. */
bool fs_slots_has(const struct fs_slots *s, const char *name);
/* One pin more of what is pinned. */
void fs_slot_pin(struct fs_slots *s, struct fs_slot *slot);
/* May free it, or put others to sleep. */
void fs_slot_unpin(struct fs_slots *s, struct fs_slot *slot);
/* The kernel was told of an inode in it, or has forgotten @nr; pinned. */
void fs_slot_know(struct fs_slots *s, struct fs_slot *slot);
void fs_slot_forget(struct fs_slots *s, struct fs_slot *slot, uint64_t nr);
/*
 * Parses the pinned entry if it has to be; its state then: ASLEEP where it is
 * not what it was.
 */
enum fs_slot_state fs_slot_need(struct fs_slots *s, struct fs_slot *slot);
/* Whether the entry is gone, or another than it was; false of a whole mount. */
bool fs_slot_is_past(struct fs_slots *s, struct fs_slot *slot);
/*
 * A file that the pinned entry was made of is found to be another: the next
 * look-up of its name makes it anew.  Of a whole mount nothing happens.
 */
void fs_slot_outdate(struct fs_slots *s, struct fs_slot *slot);

/* What @in holds, a slot with @steps; to free with ck_steps_free(). */
int fs_slots_list(struct fs_slots *s, const struct fs_slot *in,
		  struct ck_steps *out, struct ck_err *err);
/*
 * Whether the model and the optimizer of @group ("": the directory), parts of
 * one save, fit each other, as far as either can be read: steps_pair.h.  Parses
 * both, once.
 */
bool fs_slots_fit(struct fs_slots *s, const char *group);
/*
 * The name of the newest whole checkpoint, to free(); NULL: none is.  Parses
 * entries until it finds one.
 */
char *fs_slots_latest(struct fs_slots *s);
/*
 * Whether more than FS_KNOWN_SLOTS are known: @name is then the one used the
 * longest ago, which the kernel may forget unless a program is in it; each is
 * named once until it is looked up again.  fs_slots_wait() waits for there
 * being too many; false: fs_slots_end_wait() was called.
 */
bool fs_slots_crowded(struct fs_slots *s, char name[256]);
bool fs_slots_wait(struct fs_slots *s);
void fs_slots_end_wait(struct fs_slots *s);
/* How many are parsed; how many the table holds. */
uint32_t fs_slots_made(struct fs_slots *s);
uint32_t fs_slots_nr(struct fs_slots *s);
/* Bytes of all tensors that are known. */
uint64_t fs_slots_total(struct fs_slots *s, uint64_t *files);

#endif
