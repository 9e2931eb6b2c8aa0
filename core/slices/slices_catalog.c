/* SPDX-License-Identifier: Apache-2.0 */
/*
 * slices_catalog.c - pieces of a plan as parts of tensors
 *
 * The builder is the one gate for boxes: those that overlap, or leave
 * something out, are refused here as in any checkpoint.
 */
#include "core/slices/slices_priv.h"

#include "core/base/auto.h"
#include "core/catalog/builder.h"
#include "core/geom/dtype.h"
#include "core/geom/range.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>

static void begin_part(const struct ck_slice_plan *p,
		       const struct ck_slice_plan_tensor *t,
		       struct ck_part *out)
{
	*out = (struct ck_part){
		.name = ck_slice_plan_str(p, t->name),
		.name_len = strlen(ck_slice_plan_str(p, t->name)),
		.dtype = t->dtype,
		.rank = t->rank,
		.shape = p->dims + t->shape,
		.grid_rank = t->grid_rank,
		.grid = p->dims + t->grid,
	};
}

static int add_piece(const struct ck_slice_plan *p, struct ck_builder *b,
		     const struct ck_slice_plan_piece *x, struct ck_err *err)
{
	const struct ck_slice_plan_tensor *t = &p->tensors[x->tensor];
	const uint64_t flat[2] = { x->lo, x->hi };
	struct ck_part part;
	uint64_t volume;

	begin_part(p, t, &part);
	part.src = x->file;
	part.start = p->dims + x->dims;
	part.len = part.start + t->grid_rank;
	part.full_len = part.len + t->grid_rank;
	part.off = x->off;
	if (!ck_dims_volume(part.len, t->grid_rank, &volume) || !volume ||
	    (x->flat && x->lo == x->hi))
		return 0;
	if (x->flat) {
		part.flat = flat;
		part.full_len = NULL;
	}
	return ck_builder_add(b, &part, err);
}

static int add_all(const struct ck_slice_plan *p, struct ck_builder *b,
		   struct ck_err *err)
{
	struct ck_part part;
	int ret = 0;

	for (uint32_t i = 0; i < p->nr_files && !ret; i++) {
		const struct ck_slice_plan_file *f = &p->files[i];
		const struct stat st = {
			.st_mode = S_IFREG | 0644,
			.st_size = (off_t)f->size,
			.st_ino = i + 1,
		};
		uint32_t src;

		ret = ck_builder_file(b, ck_slice_plan_str(p, f->name), &st,
				      &src, err);
		if (!ret && src != i)
			ret = ck_fail(err, EINVAL,
				      "plan of slices: two files are %s",
				      ck_slice_plan_str(p, f->name));
	}
	for (uint32_t i = 0; i < p->nr_tensors && !ret; i++) {
		begin_part(p, &p->tensors[i], &part);
		ret = ck_builder_declare(b, &part, err);
	}
	for (uint32_t i = 0; i < p->nr_pieces && !ret; i++)
		ret = add_piece(p, b, &p->pieces[i], err);
	return ret;
}

static int check_whole(const struct ck_slice_plan *p,
		       const struct ck_catalog *img, struct ck_err *err)
{
	for (uint32_t i = 0; i < img->nr_problems; i++) {
		const struct ck_problem *q = &img->problems[i];

		if (q->severity == CK_ERROR && q->tensor != CK_NONE)
			return ck_fail(err, EINVAL, "%s: %s",
				       ck_catalog_str(img, q->tensor, NULL),
				       ck_catalog_str(img, q->reason, NULL));
	}
	for (uint32_t i = 0; i < img->nr_tensors; i++) {
		const struct ck_tensor *t = &img->tensors[i];
		uint64_t elem = ck_dtype_info(t->dtype)->size;

		if (t->covered * elem != t->size)
			return ck_fail(err, EINVAL,
				       "%s: the ranks hold %" PRIu64
				       " of its %" PRIu64 " elements",
				       ck_catalog_str(img, t->name, NULL),
				       t->covered, t->size / elem);
	}
	if (img->nr_tensors != p->nr_tensors)
		return ck_fail(err, EINVAL, "tensors are left out");
	return 0;
}

int ck_slice_plan_catalog(const struct ck_slice_plan *p, struct ck_catalog *out,
			  struct ck_err *err)
{
	ck_auto_fd int fd = memfd_create("unshard-slices", MFD_CLOEXEC);
	struct ck_builder *b = fd < 0 ? NULL : ck_builder_new(err);
	int ret = b ? add_all(p, b, err) : -ENOMEM;

	if (fd < 0)
		return ck_fail(err, errno, "memfd: %s", strerror(errno));
	if (!ret)
		ret = ck_builder_finish(b, "slices", fd, err);
	if (b)
		ck_builder_free(b);
	if (!ret)
		ret = ck_catalog_map(out, fd, err);
	if (ret)
		return ret;
	ret = check_whole(p, out, err);
	if (ret)
		ck_catalog_unmap(out);
	return ret;
}
