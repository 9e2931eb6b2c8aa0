/* SPDX-License-Identifier: Apache-2.0 */
/*
 * view.h - logical files made of tensors, computed on read
 *
 * A view is one entry in the root of a mount: a directory of files (tensors/,
 * npy/, hf/) or a file (model.safetensors, model.pt).  A file of a view is a
 * sequence of spans: bytes that the view makes itself (a header), or a stretch of
 * a tensor.  Views never read tensors; they say what lies where, and
 * ck_view_read() fetches it through the facade.
 *
 * To add a view, define ck_view_NAME in core/view/view_NAME.c; the Makefile
 * finds it by its name.
 *
 * Threads: open and close, one; everything else, any.
 */
#ifndef CK_VIEW_H
#define CK_VIEW_H

#include "core/base/err.h"
#include "core/base/opts.h"
#include "core/ckpt/ckpt.h"
#include "core/ckpt/write_plan.h"
#include "core/geom/turn.h"

#include <stdbool.h>
#include <stdint.h>
#include <sys/stat.h>

struct ck_view;

enum ck_span_kind {
	CK_SPAN_MADE, /* bytes from ops->made(), at @off of them */
	CK_SPAN_TENSOR, /* bytes of tensor @ref from @off */
	CK_SPAN_BOX, /* of the elements @box of tensor @ref, from @off */
	CK_SPAN_ZEROS,
	CK_SPAN_CAST, /* of tensor @ref as elements of @dtype, from @off */
	CK_SPAN_TURNED, /* of matrix @turned, as elements of @dtype, from @off */
};

/*
 * Rows of tensors (@ref of a run), their first dimensions taken as one, or their
 * elements where there is one column, shown as columns.
 */
struct ck_turned {
	struct ck_turn turn; /* of one run at least */
	struct ck_bands *bands; /* see turned.h; borrowed */
};

/* What the bytes of a view's file from some position on are. */
struct ck_span {
	enum ck_span_kind kind;
	uint32_t ref;
	uint8_t dtype; /* CK_SPAN_CAST, CK_SPAN_TURNED only */
	bool saturate; /* likewise, see cast.h */
	uint64_t off, len; /* len: how far this goes on from the position */
	struct ck_box box; /* CK_SPAN_BOX only */
	const struct ck_turned *turned; /* CK_SPAN_TURNED only */
};

#define CK_VIEW_NAME 256 /* bytes of a file's name, the NUL included */

/* One file of a view. */
struct ck_vfile {
	uint64_t size;
	uint32_t newest; /* source whose mtime, owner, mode it shows; CK_NONE */
	uint32_t tensor; /* the one tensor that it is of; CK_NONE */
	const struct stat *like; /* a file shown as it is: its; else NULL */
};

struct ck_view_ops {
	const char
		*name; /* "npy"; "model.safetensors" for a view of one file */
	bool is_dir;

	/*
	 * Makes the view; @base has everything but ops filled in, @opts lives
	 * as long.  *out NULL with 0: this checkpoint has no such view.
	 */
	int (*open)(struct ck_view **out, const struct ck_view *base,
		    const struct ck_opts *opts, struct ck_err *err);
	void (*close)(struct ck_view *v);
	uint32_t (*nr)(const struct ck_view *v);
	/* The @i-th file; false: it is left out (or past the last). */
	bool (*file)(const struct ck_view *v, uint32_t i, struct ck_vfile *out);
	/* The name of a file that file() has. */
	void (*label)(const struct ck_view *v, uint32_t i,
		      char name[CK_VIEW_NAME]);
	/* The file of that name, or CK_NONE. */
	uint32_t (*find)(const struct ck_view *v, const char *name, size_t len);
	/* What is at @off < size of file @i. */
	void (*at)(const struct ck_view *v, uint32_t i, uint64_t off,
		   struct ck_span *out);
	/* Copies made bytes of file @i; NULL where the view makes none. */
	int (*made)(const struct ck_view *v, uint32_t i, void *buf,
		    uint64_t len, uint64_t off, struct ck_err *err);
	/*
	 * A view whose files are in folders of their own, one level deep: the
	 * files of folder d are those from d << CK_VIEW_FOLDER_SHIFT on.  NULL
	 * where files are in the view's folder itself.
	 */
	const struct ck_view_folder_ops *folders;
	/*
	 * Each listed folder is a checkpoint that has views itself, see
	 * as_ckpt.h.
	 */
	bool nests;
};

/* 65,536 ranks and their layout; 32,000 views still have inode numbers */
#define CK_VIEW_FOLDER_SHIFT 17
#define CK_VIEW_FOLDERS 256 /* at most */

struct ck_view_folder_ops {
	uint32_t (*nr)(const struct ck_view *v); /* listed ones come first */
	uint32_t (*nr_listed)(const struct ck_view *v);
	/* Name of listed folder @d; false: it cannot be made, as a problem says. */
	bool (*name)(const struct ck_view *v, uint32_t d, char name[256]);
	/*
	 * The folder of that name, which may be made for who asks.  -ENOENT,
	 * where @err may say more, or -errno with @err set where it means
	 * something that cannot be.
	 */
	int (*find)(const struct ck_view *v, const char *name, uint32_t *d,
		    struct ck_err *err);
	uint32_t (*nr_files)(const struct ck_view *v, uint32_t d);
	/* The number of file @name of folder @d, or CK_NONE. */
	uint32_t (*find_file)(const struct ck_view *v, uint32_t d,
			      const char *name, size_t len);
	/* A file that a folder may have beside those, to be a checkpoint; or NULL. */
	const char *unlisted;
};

struct ck_view {
	const struct ck_view_ops *ops;
	struct ck_ckpt *ck;
	const struct ck_catalog *img;
	uint32_t tree; /* whose tensors it shows: */
	uint32_t first, nr; /* indices into img->tensors */
};

/* All views, by file name order of view_*.c, up to a NULL; generated. */
extern const struct ck_view_ops *const ck_views[];

/* The view of tree @tree of @ck; *out NULL with 0: it has none. */
int ck_view_open(struct ck_view **out, const struct ck_view_ops *ops,
		 struct ck_ckpt *ck, uint32_t tree, const struct ck_opts *opts,
		 struct ck_err *err);
void ck_view_close(struct ck_view *v);

/*
 * Says in the problems that a view cannot hold @tensor, and why; CK_NONE: that
 * there is no such view.
 */
void ck_view_leave_out(const struct ck_view *v, uint32_t tensor,
		       const char *reason);
/* The same of one that it could hold, but is to leave to other views. */
void ck_view_not_meant(const struct ck_view *v, uint32_t tensor,
		       const char *reason);

/* A warning: that it is not there, or not as who asked for it would expect. */
void ck_view_warn(const struct ck_view *v, const char *reason);

/* Makes what @v lists, so that the problems have what cannot be made. */
void ck_view_find_problems(const struct ck_view *v);
/* The same of all views that -o options of their own describe. */
int ck_views_find_problems(struct ck_ckpt *ck, const struct ck_opts *opts,
			   struct ck_err *err);

/* open, close and nr of views that have one file a tensor and no state. */
int ck_view_per_tensor_open(struct ck_view **out, const struct ck_view *base,
			    const struct ck_opts *opts, struct ck_err *err);
void ck_view_per_tensor_close(struct ck_view *v);
uint32_t ck_view_per_tensor_nr(const struct ck_view *v);
/* ops->find() of a view whose files are all in folders. */
uint32_t ck_view_find_none(const struct ck_view *v, const char *name,
			   size_t len);

/*
 * Bytes [off, off+len) of file @i, which lie inside it: all of them or
 * -errno with @err set.
 */
int ck_view_read(const struct ck_view *v, uint32_t i, void *buf, uint64_t len,
		 uint64_t off, struct ck_err *err);

/*
 * After ck_view_read() said -EIO: as many bytes from @off on as are there, as a
 * disk with bad blocks has them; 0: the first one is lost.
 */
uint64_t ck_view_read_good(const struct ck_view *v, uint32_t i, void *buf,
			   uint64_t len, uint64_t off);

/*
 * What a write of bytes [off, off+len) of file @i is: adds to @p, of which the
 * caller has said where the bytes are and how they came, the parts that are
 * bytes of tensors.  Bytes that the view makes itself may only be written as
 * they are: -EPERM with a line where they would change.  Past the end: -EFBIG.
 */
int ck_view_plan(const struct ck_view *v, uint32_t i, struct ck_wplan *p,
		 uint64_t len, uint64_t off, struct ck_err *err);
/*
 * The FILE source that file @i is the same as, byte for byte, and in which no
 * part lies elsewhere; CK_NONE: there is none.  It holds while that is not touched.
 */
uint32_t ck_view_stored(const struct ck_view *v, uint32_t i);
/*
 * Whether what was read of file @i earlier is what it shows now, as far as a look at
 * its files tells; false where they are too many to look at.
 */
bool ck_view_untouched(const struct ck_view *v, uint32_t i);
/* Whether file @i can be written, as far as that can be told in advance. */
int ck_view_may_write(const struct ck_view *v, uint32_t i, struct ck_err *err);

#endif
