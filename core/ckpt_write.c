/* SPDX-License-Identifier: Apache-2.0 */
/* ckpt_write.c - the part of the facade that writes */
#include "core/ckpt_priv.h"

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

int ck_ckpt_may_write(struct ck_ckpt *ck, uint32_t tensor, struct ck_err *err)
{
	return ck_writer_may(ck->writer, tensor, err);
}

int ck_ckpt_write(struct ck_ckpt *ck, struct ck_edit *e, uint32_t tensor,
		  const void *buf, uint64_t len, uint64_t off,
		  struct ck_err *err)
{
	return ck_writer_write(ck->writer, e, tensor, buf, len, off, err);
}

int ck_ckpt_sync(struct ck_ckpt *ck, struct ck_edit *e, struct ck_err *err)
{
	(void)ck;
	return ck_edit_sync(e, err);
}

uint64_t ck_ckpt_write_seq(const struct ck_ckpt *ck)
{
	return ck && ck->writer ? ck_writer_seq(ck->writer) : 0;
}

int64_t ck_ckpt_last_wrote_ns(const struct ck_ckpt *ck)
{
	return ck->writer ? ck_writer_last_mtime(ck->writer) : 0;
}

int64_t ck_ckpt_wrote_ns(const struct ck_ckpt *ck, uint32_t tensor)
{
	return ck->writer ? ck_writer_mtime(ck->writer, tensor) : 0;
}
