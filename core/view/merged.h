/* SPDX-License-Identifier: Apache-2.0 */
/*
 * merged.h - one safetensors file of many tensors, as pieces
 *
 *   u64 LE N | N bytes JSON, padded with spaces | tensor | tensor | ...
 *
 * Tensors of wide elements come first, so that all data is naturally aligned;
 * among equals they follow the order in which the sources store them, so that
 * reading the file front to back reads the shards front to back.  Those of which
 * bytes are lost come last, from a page of the file on, so that one who maps it
 * has the names and all others.
 */
#ifndef CK_MERGED_H
#define CK_MERGED_H

#include "core/base/err.h"
#include "core/base/limits.h"
#include "core/view/compose.h"

struct ck_merged_in {
	const struct ck_catalog *img;
	const char *metadata; /* JSON object for __metadata__; NULL: none */
	size_t metadata_len;
	struct ck_merged_tensor {
		uint32_t tensor;
		const char *name; /* as the file shows it; valid UTF-8 */
		size_t name_len;
	} * v; /* is put into file order */
	uint32_t nr;
};

/* Why safetensors cannot hold tensor @t under this name; NULL: it can. */
const char *ck_merged_refuses(const struct ck_catalog *img, uint32_t t,
			      const char *name, size_t name_len);
/*
 * At most how many bytes of header the tensor takes: counted generously, so
 * that it need not be written to know.
 */
uint64_t ck_merged_entry_max(const struct ck_catalog *img,
			     const struct ck_merged_tensor *m);
/* How many bytes the header will have; without in->metadata where NULL. */
uint64_t ck_merged_header_len(const struct ck_merged_in *in);
/* What CK_MAX_HEADER leaves for entries, metadata being small. */
#define CK_MERGED_ROOM (CK_MAX_HEADER - (UINT64_C(1) << 20))
/* Whether some of its bytes are known to be lost. */
bool ck_merged_is_lost(const struct ck_catalog *img, uint32_t t);
/* Where the first byte of a tensor is: source, then offset in it. */
void ck_merged_first_place(const struct ck_catalog *img, uint32_t t,
			   uint64_t at[2]);
/* Orders in->v as said above. */
void ck_merged_sort(const struct ck_merged_in *in);
/* Appends the whole file to the empty @out; all tensors are holdable. */
int ck_merged_make(struct ck_compose *out, const struct ck_merged_in *in,
		   struct ck_err *err);

#endif
