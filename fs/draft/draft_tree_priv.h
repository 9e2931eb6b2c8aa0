/* SPDX-License-Identifier: Apache-2.0 */
/*
 * draft_tree_priv.h - between draft_tree.c (the table of nodes) and the other
 * draft_tree_*.c
 */
#ifndef FS_DRAFT_TREE_PRIV_H
#define FS_DRAFT_TREE_PRIV_H

#include "fs/draft/draft_tree.h"

#include <pthread.h>
#include <stdatomic.h>

struct fs_draft_tree_file {
	struct fs_draft_tree_file *next; /* of its node */
	uint64_t ino;
	int fd;
	bool writes; /* holds the draft until it is closed */
	bool maps, past; /* fs_draft_tree_share() */
	bool closed; /* but for copies of the descriptor, and maps */
};

struct fs_draft_tree_name {
	struct fs_draft_tree_name *next_ino, *next_name; /* chains */
	uint64_t ino, refs; /* the kernel's */
	uint64_t kids; /* nodes whose parent this is */
	struct fs_draft_tree_name *parent; /* NULL: shards/ itself */
	dev_t dev;
	ino_t id; /* of the file in SRC */
	mode_t type;
	struct fs_draft_tree_file *open;
	bool closed_off; /* not to be opened for writing */
	char *name; /* NULL: it has none any more */
};

#define FS_DRAFT_TREE_BUCKETS 4096

struct fs_draft_tree {
	struct ck_draft *draft;
	pthread_mutex_t lock; /* the table; never held over a system call */
	pthread_cond_t released; /* a file was */
	struct fs_draft_tree_name *by_ino[FS_DRAFT_TREE_BUCKETS];
	struct fs_draft_tree_name *by_name[FS_DRAFT_TREE_BUCKETS];
	uint64_t last; /* number given out */
	_Atomic uint64_t seq;
	_Atomic(struct ck_slices *) slices;
	pthread_mutex_t opening; /* of slices */
	unsigned char *hidden; /* bits, with the lock; NULL: none */
	struct fs_draft_tree_given *
		*given; /* with the lock; draft_tree_given.c */
	struct fs_draft_tree_name *beside; /* a second root; with the lock */
	int beside_fd; /* valid where that is set */
	bool failed; /* it was logged */
};

/* ns that a close is waited for: the kernel tells of it a moment later */
#define FS_DRAFT_CLOSING INT64_C(2000000000)

/*
 * The directory that @ino is in, to be closed unless it is files_fd, and its
 * name there.  -ESTALE: it has no name any more.
 */
struct fs_draft_tree_place {
	int dir; /* descriptor */
	bool own; /* to be closed */
	char name[NAME_MAX + 1]; /* "": shards/ itself */
	dev_t dev;
	ino_t id;
};
int fs_draft_tree_place(struct fs_draft_tree *s, uint64_t ino,
			struct fs_draft_tree_place *out);
/* Directory @ino itself: out->name is not set. */
int fs_draft_tree_dir(struct fs_draft_tree *s, uint64_t ino,
		      struct fs_draft_tree_place *out);
void fs_draft_tree_place_end(const struct fs_draft_tree_place *p);
#define fs_auto_place __attribute__((cleanup(fs_draft_tree_place_end)))

/*
 * Begins a change in directory @dir, which is @at then, and ends with the scope
 * of @begun.
 */
int fs_draft_tree_begin_in(struct fs_draft_tree *s, uint64_t dir,
			   struct fs_draft_tree **begun,
			   struct fs_draft_tree_place *at);
void fs_draft_tree_end_begun(struct fs_draft_tree *const *s);
#define fs_auto_begun __attribute__((cleanup(fs_draft_tree_end_begun)))

/* With the lock held; a node without a name.  NULL: no memory. */
struct fs_draft_tree_name *fs_draft_tree_add(struct fs_draft_tree *s,
					     const struct stat *st);
/* With the lock held; NULL: none. */
struct fs_draft_tree_name *fs_draft_tree_node_of(struct fs_draft_tree *s,
						 uint64_t ino);
/* Its node, made where there is none, with a reference more for the kernel. */
int fs_draft_tree_take(struct fs_draft_tree *s, uint64_t dir, const char *name,
		       struct fs_draft_tree_node *node);
/* The name means nothing, or @new_name of @new_dir, from now on. */
void fs_draft_tree_drop(struct fs_draft_tree *s, uint64_t dir,
			const char *name);
void fs_draft_tree_move(struct fs_draft_tree *s, uint64_t dir, const char *name,
			uint64_t new_dir, const char *new_name, bool exchange);
void fs_draft_tree_attach(struct fs_draft_tree *s,
			  struct fs_draft_tree_file *f);
void fs_draft_tree_detach(struct fs_draft_tree *s,
			  struct fs_draft_tree_file *f);
/* A duplicate of some open descriptor of @ino; -ESTALE: none. */
int fs_draft_tree_dup(struct fs_draft_tree *s, uint64_t ino);
/* How many directories deep @ino is below shards/; -1: unknown. */
int fs_draft_tree_depth(struct fs_draft_tree *s, uint64_t ino);
/* With the lock held: of @n below *base, a descriptor of the draft's. */
int fs_draft_tree_path_of(const struct fs_draft_tree *s,
			  const struct fs_draft_tree_name *n, int *base,
			  char out[PATH_MAX]);
/* Of it below shards/, "a/b"; false: it has no name any more. */
bool fs_draft_tree_path(struct fs_draft_tree *s, uint64_t ino,
			char out[PATH_MAX]);

/*
 * Whether @who may set @attr of @ino, which is @now.  The kernel has looked, but at
 * whose it was when it was told, and nobody has to ask it again who has it open.
 */
int fs_draft_tree_may_set(struct fs_draft_tree *s, uint64_t ino,
			  const struct fs_draft_tree_who *who,
			  const struct stat *now, struct stat *attr,
			  int to_set);

bool fs_draft_tree_shows(mode_t mode);
/* Where @f writes: -ETXTBSY for what is closed off. */
int fs_draft_tree_may_write(struct fs_draft_tree *s,
			    const struct fs_draft_tree_file *f);
void fs_draft_tree_given_free(struct fs_draft_tree *s);

#endif
