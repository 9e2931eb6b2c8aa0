/* SPDX-License-Identifier: Apache-2.0 */
/*
 * staged_priv.h - between staged.c (the table of nodes), staged_names.c and
 * staged_files.c
 */
#ifndef FS_STAGED_PRIV_H
#define FS_STAGED_PRIV_H

#include "fs/draft/staged.h"

#include <pthread.h>
#include <stdatomic.h>

struct fs_staged_file {
	struct fs_staged_file *next; /* of its node */
	uint64_t ino;
	int fd;
	bool writes; /* holds the stage until it is closed */
	_Atomic bool sets_id; /* it had such a bit when it was opened */
};

struct fs_staged_name {
	struct fs_staged_name *next_ino, *next_name; /* chains */
	uint64_t ino, refs; /* the kernel's */
	uint64_t kids; /* nodes whose parent this is */
	struct fs_staged_name *parent; /* NULL: shards/ itself */
	dev_t dev;
	ino_t id; /* of the file in SRC */
	mode_t type;
	struct fs_staged_file *open;
	bool closed_off; /* not to be opened for writing */
	char *name; /* NULL: it has none any more */
};

#define FS_STAGED_BUCKETS 4096

struct fs_staged {
	struct ck_staging *stage;
	pthread_mutex_t lock; /* the table; never held over a system call */
	struct fs_staged_name *by_ino[FS_STAGED_BUCKETS];
	struct fs_staged_name *by_name[FS_STAGED_BUCKETS];
	uint64_t last; /* number given out */
	_Atomic uint64_t seq;
	_Atomic(struct ck_slices *) slices;
	pthread_mutex_t opening; /* of slices */
	unsigned char *hidden; /* bits, with the lock; NULL: none */
	struct fs_staged_given **given; /* with the lock; staged_given.c */
	struct fs_staged_name *beside; /* a second root; with the lock */
	int beside_fd; /* valid where that is set */
	bool failed; /* it was logged */
};

/*
 * The directory that @ino is in, to be closed unless it is files_fd, and its
 * name there.  -ESTALE: it has no name any more.
 */
struct fs_staged_place {
	int dir; /* descriptor */
	bool own; /* to be closed */
	char name[NAME_MAX + 1]; /* "": shards/ itself */
	dev_t dev;
	ino_t id;
};
int fs_staged_place(struct fs_staged *s, uint64_t ino,
		    struct fs_staged_place *out);
/* Directory @ino itself: out->name is not set. */
int fs_staged_dir(struct fs_staged *s, uint64_t ino,
		  struct fs_staged_place *out);
void fs_staged_place_end(const struct fs_staged_place *p);
#define fs_auto_place __attribute__((cleanup(fs_staged_place_end)))

/* With the lock held; NULL: none. */
struct fs_staged_name *fs_staged_node_of(struct fs_staged *s, uint64_t ino);
/* Its node, made where there is none, with a reference more for the kernel. */
int fs_staged_take(struct fs_staged *s, uint64_t dir, const char *name,
		   struct fs_staged_node *node);
/* The name means nothing, or @new_name of @new_dir, from now on. */
void fs_staged_drop(struct fs_staged *s, uint64_t dir, const char *name);
void fs_staged_move(struct fs_staged *s, uint64_t dir, const char *name,
		    uint64_t new_dir, const char *new_name, bool exchange);
void fs_staged_attach(struct fs_staged *s, struct fs_staged_file *f);
void fs_staged_detach(struct fs_staged *s, struct fs_staged_file *f);
/* A duplicate of some open descriptor of @ino; -ESTALE: none. */
int fs_staged_dup(struct fs_staged *s, uint64_t ino);
/* How many directories deep @ino is below shards/; -1: unknown. */
int fs_staged_depth(struct fs_staged *s, uint64_t ino);
/* Of it below shards/, "a/b"; false: it has no name any more. */
bool fs_staged_path(struct fs_staged *s, uint64_t ino, char out[PATH_MAX]);

bool fs_staged_shows(mode_t mode);
/* Where @f writes: -ETXTBSY for what is closed off. */
int fs_staged_may_write(struct fs_staged *s, const struct fs_staged_file *f);
void fs_staged_given_free(struct fs_staged *s);

#endif
