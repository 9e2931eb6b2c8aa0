/* SPDX-License-Identifier: Apache-2.0 */
/*
 * torch_save.h - one file written by torch.save, of either container
 *
 *   zip (since 1.6):  TOP/data.pkl, TOP/data/<key> ...
 *   legacy:           magic | protocol | sizes | object | keys  (5 pickles,
 *                     of any protocol)
 *                     then for each key: i64 LE elements, the bytes
 *
 * Gives the object as inert nodes, and says where each storage's bytes are.
 * Reads headers and the pickle, never storages.  One thread.
 */
#ifndef CK_TORCH_SAVE_H
#define CK_TORCH_SAVE_H

#include "core/base/err.h"
#include "core/base/vec.h"
#include "core/container/torch_tensor.h"
#include "core/root/source.h"
#include "core/parse/pickle.h"
#include "core/parse/zip.h"

#include <stdbool.h>

struct ck_torch_storage {
	const char *key; /* into @bytes or @dir */
	size_t key_len;
	uint64_t off, len; /* zip: off is of the local header until looked up */
	bool placed;
};

struct ck_torch_save {
	struct ck_source *src; /* borrowed */
	bool big_endian;
	uint64_t pickle_off, pickle_len; /* of the object, in the file */
	char *bytes; /* what @pickle points into */
	struct ck_pickle *pickle;
	CK_VEC(struct ck_torch_storage) storages; /* sorted by key */
	/* zip only */
	char *dir;
	struct ck_zip_entry *entries;
	struct ck_zip_end end;
};

/* As many of a file's first bytes as tell a container. */
#define CK_TORCH_SAVE_HEAD 32

/* Whether the first bytes of a file are of either container. */
bool ck_torch_save_magic(const void *head, size_t len);
bool ck_torch_save_is(struct ck_source *src);
/* Whether a name ends as such files' do. */
bool ck_torch_save_is_name(const char *name);

/* -EINVAL with a line that begins with the file's name where it is none. */
int ck_torch_save_open(struct ck_torch_save *ts, struct ck_source *src,
		       struct ck_err *err);
/*
 * The folder that a zip's records lie in, which torch calls as the file is
 * called without its suffix, or "archive": into @ts, not NUL-terminated; NULL:
 * there is none.
 */
const char *ck_torch_save_top(const struct ck_torch_save *ts, size_t *len);
/*
 * What the file was called when it was saved, if it ended in @suffix: into
 * @room of @size bytes; false: it does not say, or there is not the room.
 */
bool ck_torch_save_called(const struct ck_torch_save *ts, const char *suffix,
			  char *room, size_t size);
void ck_torch_save_close(struct ck_torch_save *ts);
#define ck_auto_torch_save __attribute__((cleanup(ck_torch_save_close)))

/*
 * Where the bytes of tensor @t's storage are in the file.  -EINVAL with a line
 * where there are none, or not as many as the tensor says.
 */
int ck_torch_save_place(struct ck_torch_save *ts,
			const struct ck_torch_tensor *t, uint64_t *off,
			struct ck_err *err);

#endif
