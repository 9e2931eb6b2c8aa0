/* SPDX-License-Identifier: Apache-2.0 */
/*
 * slices_extras.c - what a checkpoint has beside its tensors
 *
 * Which objects there will be, and where tensors and objects stood in what was
 * saved, was said when the draft was made.  Each object waits in a file of its
 * own, slices/objects/NUMBER; a publish puts them into one.
 */
#include "core/slices/slices_priv.h"

#include "core/base/auto.h"
#include "core/base/check.h"
#include "core/base/fds.h"
#include "core/base/search.h"
#include "core/base/whole.h"
#include "core/emit/dcp_out.h"
#include "core/parse/json.h"
#include "core/root/openat_beneath.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#define MAX_BYTES (UINT64_C(256) << 20)
#define DIR_NAME "objects"

static int bad(struct ck_err *err, const char *what)
{
	return ck_fail(err, EINVAL, "slices/" CK_SLICES_EXTRAS ": expected %s",
		       what);
}

static int take_objects(struct ck_slices_extras *x, struct ck_err *err)
{
	const json_t *list = json_object_get(x->json, "objects");

	x->v = calloc(json_array_size(list) + 1, sizeof(*x->v));
	if (!x->v)
		return ck_no_memory(err);
	for (size_t i = 0; i < json_array_size(list); i++) {
		x->v[i].name = ck_json_text(json_array_get(list, i));
		if (!x->v[i].name ||
		    (i && strcmp(x->v[i - 1].name, x->v[i].name) >= 0))
			return bad(err, "names of objects in their order");
		x->nr++;
	}
	return 0;
}

static int check_paths(const struct ck_slices_extras *x, struct ck_err *err)
{
	json_t *all = json_object_get(x->json, "paths"), *path;
	const char *name;
	bool ok = !all || json_is_object(all);

	json_object_foreach(all, name, path)
	{
		uint64_t n;

		ok &= json_is_array(path) && json_array_size(path) < UINT16_MAX;
		for (size_t i = 0; i < json_array_size(path); i++) {
			const json_t *part = json_array_get(path, i);

			ok &= ck_json_text(part) || ck_json_u64(part, &n);
		}
	}
	return ok ? 0 : bad(err, "\"paths\" of keys and numbers");
}

static int read_extras(const struct ck_slices *sl, struct ck_slices_extras *out,
		       struct ck_err *err)
{
	ck_auto_free char *bytes = NULL;
	json_t *json = NULL;
	size_t len;
	int ret;

	if (!ck_fds_has(sl->dir, CK_SLICES_EXTRAS))
		return 0;
	ret = ck_slices_read_file(sl->dir, CK_SLICES_EXTRAS, MAX_BYTES, &bytes,
				  &len, err);
	if (!ret)
		ret = ck_json_parse(&json, bytes, len, err);
	out->json = json;
	if (!ret)
		ret = take_objects(out, err);
	return ret ? ret : check_paths(out, err);
}

int ck_slices_extras_read(struct ck_slices *sl, struct ck_err *err)
{
	int ret = sl->extras.read ? 0 : read_extras(sl, &sl->extras, err);

	if (ret)
		ck_slices_extras_free(sl);
	sl->extras.read = !ret;
	return ret;
}

void ck_slices_extras_free(struct ck_slices *sl)
{
	json_decref(sl->extras.json);
	free(sl->extras.v);
	sl->extras = (struct ck_slices_extras){ 0 };
}

/* ---- paths ---- */

static const json_t *path_of(const struct ck_slices *sl, const char *name)
{
	return json_object_get(json_object_get(sl->extras.json, "paths"), name);
}

unsigned ck_slices_path_depth(const struct ck_slices *sl, const char *name)
{
	return (unsigned)json_array_size(path_of(sl, name));
}

void ck_slices_path_part(const struct ck_slices *sl, const char *name,
			 unsigned level, struct ck_dcp_out_part *out)
{
	const json_t *part = json_array_get(path_of(sl, name), level);

	*out = (struct ck_dcp_out_part){ .key = ck_json_text(part) };
	if (out->key)
		out->len = strlen(out->key);
	else
		ck_json_u64(part, &out->index);
}

/* ---- objects ---- */

static void file_of(size_t i, char out[40])
{
	snprintf(out, 40, DIR_NAME "/%zu", i);
}

static int open_object(const struct ck_slices *sl, size_t i)
{
	char name[40];

	file_of(i, name);
	return ck_beneath_file(sl->dir, name, O_RDONLY);
}

static int write_object(const struct ck_slices *sl, size_t i, const void *bytes,
			size_t len)
{
	char name[40], temp[80];
	ck_auto_fd int dir = -1;
	int ret;

	file_of(i, name);
	snprintf(temp, sizeof(temp), "%s.%d-%p", name, (int)getpid(),
		 (void *)temp);
	if (mkdirat(sl->dir, DIR_NAME, 0777) && errno != EEXIST)
		return -errno;
	ret = ck_fds_put_file(sl->dir, name, temp, 0666, bytes, len);
	if (ret)
		return ret;
	dir = ck_beneath_dir(sl->dir, DIR_NAME);
	return dir < 0 ? dir : ck_fds_sync_dir(dir);
}

/* 1: it is not there yet. */
static int compare(const struct ck_slices *sl, size_t i, const void *bytes,
		   size_t len, const char *name, struct ck_err *err)
{
	ck_auto_free char *old = NULL;
	ck_auto_fd int fd = open_object(sl, i);
	size_t n;
	int ret;

	if (fd == -ENOENT)
		return 1;
	if (fd < 0)
		return ck_fail(err, -fd, "object %.300s: %s", name,
			       strerror(-fd));
	ret = ck_read_file(fd, len, &old, &n);
	if (ret == -ENOMEM)
		return ck_no_memory(err);
	if (!ret && n == len && !memcmp(old, bytes, len))
		return 0;
	return ck_fail(err, EBADMSG,
		       "object %.300s: its bytes 0 to %zu differ from those "
		       "that were written before",
		       name, len);
}

static int put_object(const struct ck_slices *sl, const char *name,
		      const void *bytes, size_t len, struct ck_err *err)
{
	const struct ck_slices_extras *x = &sl->extras;
	size_t i = CK_FIRST(k, 0, x->nr, strcmp(x->v[k].name, name) >= 0);
	int ret;

	if (i == x->nr || strcmp(x->v[i].name, name) != 0)
		return ck_fail(err, ENOENT, "object %.300s: was not declared",
			       name);
	ret = compare(sl, i, bytes, len, name, err);
	if (ret <= 0)
		return ret;
	ret = write_object(sl, i, bytes, len);
	return ret ? ck_fail(err, -ret, "object %.300s: %s", name,
			     strerror(-ret)) :
		     0;
}

int ck_slices_put_object(struct ck_slices *sl, const char *name,
			 const void *bytes, size_t len, struct ck_err *err)
{
	int ret;

	ck_auto_lock(&sl->same_lock);
	ret = ck_slices_extras_read(sl, err);
	return ret ? ret : put_object(sl, name, bytes, len, err);
}

int ck_slices_objects_place(struct ck_slices *sl, struct ck_err *err)
{
	struct ck_slices_extras *x = &sl->extras;
	uint64_t at = 0;

	for (size_t i = 0; i < x->nr; i++) {
		struct stat st;
		ck_auto_fd int fd = open_object(sl, i);

		if (fd < 0 || fstat(fd, &st))
			return ck_fail(err, fd == -ENOENT ? ENODATA : EIO,
				       "object %.300s: %s", x->v[i].name,
				       fd == -ENOENT ? "was not written" :
						       "cannot be read");
		x->v[i].off = at;
		x->v[i].len = (uint64_t)st.st_size;
		at += x->v[i].len;
	}
	return 0;
}

static int append(const struct ck_slices *sl, size_t i, int to)
{
	const struct ck_slices_object *o = &sl->extras.v[i];
	ck_auto_fd int fd = open_object(sl, i);
	ck_auto_free char *bytes = NULL;
	size_t len;
	int ret = fd < 0 ? fd : ck_read_file(fd, o->len, &bytes, &len);

	if (!ret && len != o->len)
		ret = -EIO;
	return ret ? ret : ck_pwrite_whole(to, bytes, o->len, o->off);
}

int ck_slices_objects_write(const struct ck_slices *sl, int fd,
			    struct ck_err *err)
{
	int ret = 0;

	for (size_t i = 0; i < sl->extras.nr && !ret; i++)
		ret = append(sl, i, fd);
	return ret ? ck_fail(err, -ret, "%s", strerror(-ret)) : 0;
}
