/* SPDX-License-Identifier: Apache-2.0 */
/*
 * run_dir.h - a directory of checkpoints: what is in it, and which is newest
 *
 * Trainers leave step-100/, global_step100/, iter_0000100/, checkpoint-100/;
 * accelerate leaves pytorch_model_fsdp_0/ beside optimizer_0/ or files of
 * their own, in a checkpoint-100/ or not.  Entries are found by their names
 * and by the names in them, a level down too; whether one can be read is for
 * ck_ckpt_describe() to say.  Of the parts of a save that are files, such as
 * ColossalAI's (model.bin, optimizer.bin, lr_scheduler), suffixes are not
 * shown.  MindSpore leaves its saves side by side in the folders of ranks: an
 * entry is then what the files of all ranks that belong together are called.
 * One that is no checkpoint itself but holds some is a group; what is in it is
 * called "GROUP/NAME" below.
 */
#ifndef CK_RUN_DIR_H
#define CK_RUN_DIR_H

#include "core/base/err.h"
#include "core/base/str.h"
#include "core/geom/catalog.h"
#include "core/root/root.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>

struct ck_run_dir_entry {
	char *name; /* in the directory; of parts of a save, without suffix */
	bool is_file; /* one file that is a checkpoint by itself */
	bool is_save; /* of several in the folders of ranks: no folder */
	bool numbered; /* @number: the last digits of its name, its place */
	uint64_t number;
	struct stat st; /* changes when it is replaced or written to */
};

struct ck_run_dir {
	struct ck_run_dir_entry *v; /* sorted: by number, then by name */
	size_t nr, room;
	bool parts; /* a model, its optimizer, its scheduler: none is newest */
	/*
	 * What the framework's own marker says is the newest: the text of
	 * DeepSpeed's "latest", or the folder that Megatron's
	 * latest_checkpointed_iteration.txt means; NULL: there is none.
	 */
	char *marker;
};

/* All entries of @root as they are now; -errno if it cannot be listed. */
int ck_run_dir_list(struct ck_run_dir *out, const struct ck_root *root,
		    struct ck_err *err);
/* The same for what the group @group holds; without its name, or a marker. */
int ck_run_dir_list_in(struct ck_run_dir *out, const struct ck_root *root,
		       const char *group, struct ck_err *err);
/*
 * What lies in the folder of a checkpoint itself (@group, or "": the root) and
 * has a tree of its own: what a trainer keeps beside the model, other saves.
 * Nothing where @img, which describes that checkpoint, is of a format that has
 * folders; NULL: whatever may be.
 */
int ck_run_dir_list_siblings(struct ck_run_dir *out, const struct ck_root *root,
			     const char *group, const struct ck_catalog *img,
			     struct ck_err *err);
void ck_run_dir_free(struct ck_run_dir *s);
/* Only the entry @name, as ck_run_dir_list() would say it; false: no such. */
bool ck_run_dir_look(struct ck_run_dir_entry *out, const struct ck_root *root,
		     const char *name);
/* What ck_run_dir_look() filled in. */
void ck_run_dir_entry_free(struct ck_run_dir_entry *step);
const struct ck_run_dir_entry *ck_run_dir_find(const struct ck_run_dir *s,
					       const char *name);

/*
 * The @nr-th candidate for the newest, best first: the largest number; without
 * numbers the latest mtime.  NULL: there are no more.  Files never are, nor
 * folders that share a number or are parts (model and optimizer of one save).
 */
const struct ck_run_dir_entry *ck_run_dir_newest(const struct ck_run_dir *s,
						 size_t nr);
/* Whether they are parts of one save: none of them can be the newest. */
bool ck_run_dir_are_one(const struct ck_run_dir *s);
/* Whether @step belongs to what is saved, and is not any file beside it. */
bool ck_run_dir_is_part(const struct ck_run_dir *s,
			const struct ck_run_dir_entry *step);
/*
 * Appends the path of entry @name for ck_root_open(): of all roots that have
 * it, as A:B.  Nothing where none has.
 */
void ck_run_dir_path(const struct ck_root *root, const char *name,
		     struct ck_str *out);
/*
 * The folder that entry @name is read in, to free(): of one that shows what lies
 * folders below it, that; else itself.  NULL: no memory.
 */
char *ck_run_dir_folder(const struct ck_root *root, const char *name);
/*
 * Opens entry @name of all roots that have it, as one; -ENOENT: none has.  Its
 * links may lead to other entries.  Close it.
 */
int ck_run_dir_open(struct ck_root *out, const struct ck_root *root,
		    const char *name, const struct ck_opts *opts,
		    struct ck_err *err);
/*
 * How files of other parts beside it are told: what ck_run_dir_open() makes of
 * a root's save, which may be NULL.
 */
bool (*ck_run_dir_hides(const char *save))(const char *save, const char *name);
/*
 * Where a run keeps its checkpoints, beside logs and plans: the path of the
 * folder "checkpoints" of @root, if that is a directory of checkpoints and all
 * of them that @root has.  NULL: it is not so.  To free().
 */
char *ck_run_dir_of_run(const struct ck_root *root);
/*
 * Whether names in the folder @name ("": @root) say that it may be a checkpoint,
 * or that folders of ranks in it are one.
 */
bool ck_run_dir_may_be_one(const struct ck_root *root, const char *name);
/* Whether what is called @name is a sign of a checkpoint, or a rank's folder. */
bool ck_run_dir_is_sign(const char *name);
/* Whether shards/ shows @path: not the files of other saves beside @root's. */
bool ck_run_dir_shows(const struct ck_root *root, const char *path);
/* Whether every tensor is there, and nothing was refused. */
bool ck_run_dir_whole(const struct ck_catalog *img);
/*
 * Which of the options that are for some formats only, a bit each, are given
 * and of no use to the checkpoint that @img describes.
 */
uint32_t ck_run_dir_unused(const struct ck_catalog *img);
/* Whether any of these options is given. */
bool ck_run_dir_may_be_unused(const struct ck_opts *opts);
/* Appends "-o NAME" for each of these bits, with a comma between them. */
void ck_run_dir_unused_names(uint32_t bits, struct ck_str *out);
/* Whether @s is what the marker @marker means. */
bool ck_run_dir_is_marked(const struct ck_run_dir_entry *s, const char *marker);

#endif
