/* SPDX-License-Identifier: Apache-2.0 */
/* ckpt_write.c - the part of the facade that writes */
#include "core/ckpt/ckpt_priv.h"

#include <errno.h>

/*
 * A problem of a file is one of its first chunk, which tells the file; one of
 * CK_NONE is the whole checkpoint's.
 */
void ck_ckpt_said(void *ctx, uint32_t src, const char *line)
{
	struct ck_ckpt *ck = ctx;
	const struct ck_catalog *img = &ck->img;
	struct ck_runtime_problem p = { .tensor = CK_NONE,
					.chunk = CK_NONE,
					.reason = (char *)line };

	if (src == CK_NONE)
		ck_runtime_problems_add(&ck->problems_found, &p);
	for (uint32_t c = 0; c < img->nr_chunks; c++) {
		if (img->chunks[c].src != src)
			continue;
		p.chunk = c;
		ck_runtime_problems_add(&ck->problems_found, &p);
		return;
	}
}

int ck_ckpt_start_writer(struct ck_ckpt *ck, const struct ck_opts *opts,
			 struct ck_err *err)
{
	const struct ck_sums_found found = { .said = ck_ckpt_said, .ctx = ck };

	int ret = 0;

	ck_unknown_copies_init(&ck->unknown_copies, &ck->img);
	ck_fp32_master_init(&ck->fp32_master, &ck->img,
			    ck_opts_get(opts, "master"));
	if (ck_opts_get(opts, "rw"))
		ret = ck_writer_new(&ck->writer, ck->reader, err);
	else
		ck_sums_warn(&ck->img, &ck->root, &found);
	if (!ret && ck->writer) {
		ck->writer->said = ck_ckpt_said;
		ck->writer->said_ctx = ck;
	}
	if (!ret)
		ret = ck_ckpt_recover_killed(ck, err);
	if (!ret)
		ret = ck_ckpt_redo_left(ck, err);
	ck->serves = true;
	return ret;
}

bool ck_ckpt_is_rw(const struct ck_ckpt *ck)
{
	return ck->writer;
}

struct ck_edit *ck_ckpt_edit(struct ck_ckpt *ck)
{
	return ck_edit_new(ck->writer);
}

void ck_ckpt_edit_end(struct ck_edit *e)
{
	ck_edit_free(e);
}

int ck_ckpt_allows(struct ck_ckpt *ck, uint32_t tensor, struct ck_err *err)
{
	int ret = ck_ckpt_seal_may(ck, err);

	if (!ret)
		ret = ck_unknown_copies_may(&ck->unknown_copies, &ck->img,
					    tensor, err);
	if (!ret)
		ret = ck_fp32_master_may(ck, tensor, err);
	return ret ? ret : ck_writer_may(ck->writer, tensor, err);
}

int ck_ckpt_may_write(struct ck_ckpt *ck, uint32_t tensor, struct ck_err *err)
{
	int ret = ck_ckpt_allows(ck, tensor, err);

	if (!ret)
		ret = ck_ckpt_lock_writer(ck, err);
	return ret ? ret : ck_writer_try_tensor(ck->writer, tensor, err);
}

uint32_t ck_ckpt_shared_storage(const struct ck_ckpt *ck, uint32_t tensor)
{
	return ck_shared_storage_group(ck->writer->alias, tensor);
}

void ck_ckpt_count_span_walk(struct ck_ckpt *ck)
{
	ck_writer_count_span_walk(ck->writer);
}

uint32_t ck_ckpt_bytes_key(const struct ck_ckpt *ck, uint32_t tensor)
{
	uint32_t copy = ck_ckpt_written_too(ck, tensor);
	uint32_t of = copy == CK_NONE ? tensor : copy;
	uint32_t group = CK_NONE;

	if (ck->writer)
		group = ck_ckpt_shared_storage(ck, of);
	return group == CK_NONE ? of : group;
}

uint32_t ck_ckpt_written_too(const struct ck_ckpt *ck, uint32_t tensor)
{
	return ck->fp32_master.how == CK_FP32_MASTER_ALSO ?
		       ck_fp32_master_of(ck, tensor) :
		       CK_NONE;
}

int ck_ckpt_nameless_file(struct ck_ckpt *ck, int *fd, struct ck_err *err)
{
	return ck_reader_nameless_file(ck->reader, fd, err);
}

int ck_ckpt_flush_checksums(struct ck_ckpt *ck, struct ck_edit *e,
			    struct ck_err *err)
{
	int ret = ck_edit_flush_checksums(e, err);

	if (!ret)
		ret = ck_ckpt_keep(ck, err);
	if (!ret)
		ck_ckpt_update_manifest(ck, false);
	return ret;
}

int ck_ckpt_sync(struct ck_ckpt *ck, struct ck_edit *e, struct ck_err *err)
{
	int ret = ck_edit_sync(e, err);

	if (!ret && ck->overlay)
		ret = ck_ckpt_overlay_sync(ck, err);
	if (!ret)
		ck_ckpt_update_manifest(ck, true);
	return ret;
}

uint64_t ck_ckpt_write_seq(const struct ck_ckpt *ck)
{
	if (ck && ck->over)
		ck = ck->below.ck;
	return !ck ? 0 :
		     ck_reader_touches(ck->reader) +
			       (ck->writer ? ck->writer->seq : 0);
}

int64_t ck_ckpt_last_wrote_ns(const struct ck_ckpt *ck)
{
	return ck->writer ? ck->writer->last_ns : 0;
}

bool ck_ckpt_wrote_file(const struct ck_ckpt *ck, const char *name,
			const struct stat *st, int64_t *was_ns)
{
	int64_t now =
		(int64_t)st->st_mtim.tv_sec * 1000000000 + st->st_mtim.tv_nsec;

	return ck && ck->writer &&
	       ck_writer_wrote(ck->writer, name, now, was_ns);
}

int64_t ck_ckpt_wrote_ns(const struct ck_ckpt *ck, uint32_t tensor)
{
	return ck->writer ? ck->writer->wrote_ns[tensor] : 0;
}
