/* SPDX-License-Identifier: Apache-2.0 */
/* save_declared.c - what a rank will write: kept, and as JSON for the others */
#include "core/save/save_priv.h"

#include "core/base/check.h"
#include "core/geom/dtype.h"
#include "core/geom/range.h"
#include "core/parse/json.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

static int check_box(const struct ck_save_slice *v, struct ck_err *err)
{
	uint64_t nr, bytes;

	if (v->rank > CK_MAX_RANK)
		return ck_fail(err, EINVAL, "%.300s: more than %d dimensions",
			       v->name, CK_MAX_RANK);
	if (!ck_dtype_info(v->dtype)->size ||
	    !ck_dims_volume(v->shape, v->rank, &nr) ||
	    !ck_mul_ok(nr, ck_dtype_info(v->dtype)->size, &bytes))
		return ck_fail(err, EINVAL, "%.300s: is too large", v->name);
	return ck_wrap(err,
		       ck_box_check(v->start, v->len, v->shape, v->rank, err),
		       "%.300s", v->name);
}

static int check_path(const char *path, const char *name, struct ck_err *err)
{
	ck_auto_json json_t *j = NULL;
	int ret = path ? ck_json_parse(&j, path, strlen(path), err) : 0;

	if (!ret && path && !json_is_array(j))
		ret = ck_fail(err, EINVAL, "expected a list");
	return ck_wrap(err, ret, "%.300s: path", name);
}

static const uint64_t *copy_dims(struct ck_save *s, const uint64_t *v,
				 unsigned nr)
{
	return ck_arena_copy(&s->mem, v, nr * sizeof(*v));
}

static int add(struct ck_save *s, const struct ck_save_slice *v,
	       struct ck_err *err)
{
	struct ck_save_declared *to;
	int ret = 0;

	if (!v->name || !*v->name)
		return ck_fail(err, EINVAL, "a slice without a name");
	ret = check_path(v->path, v->name, err);
	if (!ret && v->dtype)
		ret = check_box(v, err);
	if (ret)
		return ret;
	to = ck_vec_push(&s->declared);
	if (!to)
		return ck_no_memory(err);
	*to = (struct ck_save_declared){ .is = *v };
	to->is.name = ck_arena_copy(&s->mem, v->name, strlen(v->name));
	if (v->path)
		to->is.path = ck_arena_copy(&s->mem, v->path, strlen(v->path));
	if (v->dtype) {
		to->is.shape = copy_dims(s, v->shape, v->rank);
		to->is.start = copy_dims(s, v->start, v->rank);
		to->is.len = copy_dims(s, v->len, v->rank);
	}
	if (!s->mem.failed)
		return 0;
	s->declared.nr--;
	return ck_no_memory(err);
}

int ck_save_declare(struct ck_save *s, const struct ck_save_slice *v, size_t nr,
		    size_t *bad, struct ck_err *err)
{
	int ret = 0;

	pthread_mutex_lock(&s->lock);
	if (s->slices)
		ret = ck_fail(err, EBUSY,
			      "%s: it is being written, and takes no more "
			      "declarations",
			      s->draft->name);
	for (*bad = 0; *bad < nr && !ret; *bad += !ret)
		ret = add(s, &v[*bad], err);
	pthread_mutex_unlock(&s->lock);
	return ret;
}

void ck_save_declared_text(const struct ck_save *s, struct ck_str *out)
{
	ck_str_fmt(out, "{\"ranks\": %" PRIu32 ", \"format\": ", s->ranks);
	ck_str_json(out, s->format, strlen(s->format));
	ck_str_puts(out, ", \"slices\": [");
	for (size_t i = 0; i < s->declared.nr; i++) {
		const struct ck_save_slice *v = &s->declared.v[i].is;

		ck_str_puts(out, i ? ",\n {\"name\": " : "\n {\"name\": ");
		ck_str_json(out, v->name, strlen(v->name));
		if (v->dtype) {
			ck_str_fmt(out, ", \"dtype\": \"%s\", \"shape\": ",
				   ck_dtype_info(v->dtype)->name);
			ck_str_json_u64(out, v->shape, v->rank);
			ck_str_puts(out, ", \"start\": ");
			ck_str_json_u64(out, v->start, v->rank);
			ck_str_puts(out, ", \"size\": ");
			ck_str_json_u64(out, v->len, v->rank);
		}
		if (v->path)
			ck_str_fmt(out, ", \"path\": %s", v->path);
		ck_str_puts(out, "}");
	}
	ck_str_puts(out, "]}\n");
}
