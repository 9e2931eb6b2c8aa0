/* SPDX-License-Identifier: Apache-2.0 */
/*
 * dcp_out.c - opcodes of a .metadata; the header has the picture
 *
 * TensorProperties has its name of before torch 2.3, for that is the one which
 * every later torch still loads.
 */
#include "core/emit/dcp_out.h"

#include "core/emit/pickle_out.h"
#include "core/emit/torch_blob.h"
#include "core/geom/dtype.h"

#include <errno.h>
#include <string.h>

#define META "torch.distributed.checkpoint.metadata"
#define PROPS "torch.distributed._shard.sharded_tensor.metadata"

/* What the head keeps in the memo. */
enum slot {
	TENSOR,
	CHUNK,
	BYTES,
	INDEX,
	INFO,
	SIZE,
	PROPERTIES,
	LAYOUT,
	FORMAT,
	S_PROPERTIES,
	S_SIZE,
	S_CHUNKS,
	S_OFFSETS,
	S_SIZES,
	S_FQN,
	S_INDEX,
	S_OFFSET,
	S_PATH,
	S_LENGTH,
};

static void str(struct ck_str *s, const char *text)
{
	ck_po_str(s, text, strlen(text));
}

static void keep(struct ck_str *s, enum slot slot)
{
	ck_po_keep(s, (uint8_t)slot);
	ck_po_op(s, CK_PO_POP);
}

static void kept(struct ck_str *s, enum slot slot)
{
	ck_po_kept(s, (uint8_t)slot);
}

static void keep_classes(struct ck_str *s)
{
	static const struct {
		enum slot slot;
		const char *module, *name;
	} c[] = {
		{ TENSOR, META, "TensorStorageMetadata" },
		{ CHUNK, META, "ChunkStorageMetadata" },
		{ BYTES, META, "BytesStorageMetadata" },
		{ INDEX, META, "MetadataIndex" },
		{ INFO, "torch.distributed.checkpoint.filesystem",
		  "_StorageInfo" },
		{ SIZE, "torch", "Size" },
		{ PROPERTIES, PROPS, "TensorProperties" },
	};

	for (size_t i = 0; i < sizeof(c) / sizeof(*c); i++) {
		ck_po_global(s, c[i].module, c[i].name);
		keep(s, c[i].slot);
	}
	ck_po_global(s, "torch.serialization", "_get_layout");
	str(s, "torch.strided");
	ck_po_op(s, CK_PO_TUPLE1);
	ck_po_op(s, CK_PO_REDUCE);
	keep(s, LAYOUT);
	ck_po_global(s, PROPS, "MEM_FORMAT_ENCODING");
	ck_po_int(s, 0); /* contiguous */
	ck_po_op(s, CK_PO_TUPLE1);
	ck_po_op(s, CK_PO_REDUCE);
	keep(s, FORMAT);
}

static void keep_keys(struct ck_str *s)
{
	static const char *const key[] = {
		[S_PROPERTIES] = "properties", [S_SIZE] = "size",
		[S_CHUNKS] = "chunks",	       [S_OFFSETS] = "offsets",
		[S_SIZES] = "sizes",	       [S_FQN] = "fqn",
		[S_INDEX] = "index",	       [S_OFFSET] = "offset",
		[S_PATH] = "relative_path",    [S_LENGTH] = "length",
	};

	for (unsigned i = S_PROPERTIES; i <= S_LENGTH; i++) {
		str(s, key[i]);
		keep(s, (enum slot)i);
	}
}

/* One of the dicts that are Metadata's attributes begins. */
static void begin_dict(struct ck_str *s, const char *name)
{
	str(s, name);
	ck_po_op(s, CK_PO_EMPTY_DICT);
}

static void put_head(struct ck_str *s)
{
	ck_po_begin(s);
	keep_classes(s);
	keep_keys(s);
	ck_po_global(s, META, "Metadata");
	ck_po_op(s, CK_PO_EMPTY_TUPLE);
	ck_po_op(s, CK_PO_NEWOBJ);
	ck_po_op(s, CK_PO_EMPTY_DICT);
	begin_dict(s, "state_dict_metadata");
}

/* An object without its attributes, and the dict for them begun. */
static void begin_object(struct ck_str *s, enum slot class)
{
	kept(s, class);
	ck_po_op(s, CK_PO_EMPTY_TUPLE);
	ck_po_op(s, CK_PO_NEWOBJ);
	ck_po_op(s, CK_PO_EMPTY_DICT);
}

static void put_size(struct ck_str *s, enum slot key, const uint64_t *v,
		     unsigned rank)
{
	kept(s, key);
	kept(s, SIZE);
	ck_po_ints(s, v, rank);
	ck_po_op(s, CK_PO_TUPLE1);
	ck_po_op(s, CK_PO_REDUCE);
	ck_po_op(s, CK_PO_SETITEM);
}

static void put_int(struct ck_str *s, enum slot key, uint64_t v)
{
	kept(s, key);
	ck_po_int(s, v);
	ck_po_op(s, CK_PO_SETITEM);
}

static void put_properties(struct ck_str *s, uint8_t dtype)
{
	kept(s, S_PROPERTIES);
	kept(s, PROPERTIES);
	ck_po_op(s, CK_PO_EMPTY_TUPLE);
	ck_po_op(s, CK_PO_NEWOBJ);
	ck_po_op(s, CK_PO_MARK);
	ck_po_global(s, "torch",
		     ck_dtype_info(ck_torch_plain_dtype(dtype))->torch);
	kept(s, LAYOUT);
	ck_po_op(s, CK_PO_FALSE); /* requires_grad */
	kept(s, FORMAT);
	ck_po_op(s, CK_PO_FALSE); /* pin_memory */
	ck_po_op(s, CK_PO_TUPLE);
	ck_po_op(s, CK_PO_BUILD);
	ck_po_op(s, CK_PO_SETITEM);
}

static int put_chunks(const struct ck_dcp_out *o, uint64_t i,
		      const struct ck_dcp_out_entry *e, struct ck_str *s,
		      struct ck_err *err)
{
	kept(s, S_CHUNKS);
	ck_po_op(s, CK_PO_EMPTY_LIST);
	for (uint64_t k = 0; k < e->nr_chunks; k++) {
		struct ck_dcp_out_chunk c;
		int ret = o->chunk(o->ctx, i, k, &c, err);

		if (ret)
			return ret;
		begin_object(s, CHUNK);
		put_size(s, S_OFFSETS, c.start, e->rank);
		put_size(s, S_SIZES, c.shape, e->rank);
		ck_po_op(s, CK_PO_BUILD);
		ck_po_op(s, CK_PO_APPEND);
	}
	ck_po_op(s, CK_PO_SETITEM);
	return 0;
}

static int put_tensor(const struct ck_dcp_out *o, uint64_t i,
		      const struct ck_dcp_out_entry *e, struct ck_str *s,
		      struct ck_err *err)
{
	int ret = 0;

	ck_po_str(s, e->name, e->len);
	if (e->object) {
		kept(s, BYTES);
		ck_po_op(s, CK_PO_EMPTY_TUPLE);
		ck_po_op(s, CK_PO_NEWOBJ);
	} else {
		begin_object(s, TENSOR);
		put_properties(s, e->dtype);
		put_size(s, S_SIZE, e->shape, e->rank);
		ret = put_chunks(o, i, e, s, err);
		ck_po_op(s, CK_PO_BUILD);
	}
	ck_po_op(s, CK_PO_SETITEM);
	return ret;
}

static int put_path(const struct ck_dcp_out *o, uint64_t i,
		    const struct ck_dcp_out_entry *e, struct ck_str *s)
{
	ck_po_str(s, e->name, e->len);
	ck_po_op(s, CK_PO_MARK);
	if (!e->depth)
		ck_po_str(s, e->name, e->len);
	for (unsigned d = 0; d < e->depth; d++) {
		struct ck_dcp_out_part p;

		o->part(o->ctx, i, d, &p);
		if (p.key)
			ck_po_str(s, p.key, p.len);
		else
			ck_po_int(s, p.index);
	}
	ck_po_op(s, CK_PO_TUPLE);
	ck_po_op(s, CK_PO_SETITEM);
	return 0;
}

/* Where one archive is; its key says of which box of which entry. */
static void put_info(struct ck_str *s, const struct ck_dcp_out_entry *e,
		     uint64_t k, const struct ck_dcp_out_chunk *c)
{
	begin_object(s, INDEX);
	kept(s, S_FQN);
	ck_po_str(s, e->name, e->len);
	ck_po_op(s, CK_PO_SETITEM);
	if (e->object) {
		kept(s, S_INDEX);
		ck_po_op(s, CK_PO_NONE);
		ck_po_op(s, CK_PO_SETITEM);
	} else {
		put_int(s, S_INDEX, k);
		put_size(s, S_OFFSET, c->start, e->rank);
	}
	ck_po_op(s, CK_PO_BUILD);
	begin_object(s, INFO);
	kept(s, S_PATH);
	str(s, c->file);
	ck_po_op(s, CK_PO_SETITEM);
	put_int(s, S_OFFSET, c->off);
	put_int(s, S_LENGTH, c->size);
	ck_po_op(s, CK_PO_BUILD);
	ck_po_op(s, CK_PO_SETITEM);
}

static int put_storage(const struct ck_dcp_out *o, uint64_t i,
		       const struct ck_dcp_out_entry *e, struct ck_str *s,
		       struct ck_err *err)
{
	uint64_t nr = e->object ? 1 : e->nr_chunks;

	for (uint64_t k = 0; k < nr; k++) {
		struct ck_dcp_out_chunk c;
		int ret = o->chunk(o->ctx, i, k, &c, err);

		if (ret)
			return ret;
		put_info(s, e, k, &c);
	}
	return 0;
}

uint64_t ck_dcp_out_pieces(const struct ck_dcp_out *o)
{
	return 3 * o->nr + 4; /* head, two seams, end */
}

static int put_entry(const struct ck_dcp_out *o, unsigned dict, uint64_t i,
		     struct ck_str *s, struct ck_err *err)
{
	struct ck_dcp_out_entry e = { 0 };
	int ret;

	if (dict == 1 && o->planned)
		i = o->planned(o->ctx, i);
	ret = o->entry(o->ctx, i, &e, err);
	if (ret)
		return ret;
	if (dict == 0)
		return put_tensor(o, i, &e, s, err);
	return dict == 1 ? put_path(o, i, &e, s) :
			   put_storage(o, i, &e, s, err);
}

static void attribute(struct ck_str *s, const char *name, const char *text)
{
	str(s, name);
	if (*text)
		str(s, text);
	else
		ck_po_op(s, CK_PO_NONE);
	ck_po_op(s, CK_PO_SETITEM);
}

/* One more attribute of Metadata. */
static void put_save(const struct ck_dcp_out *o, struct ck_str *s)
{
	str(s, "storage_meta");
	ck_po_global(s, META, "StorageMeta");
	ck_po_op(s, CK_PO_EMPTY_TUPLE);
	ck_po_op(s, CK_PO_NEWOBJ);
	ck_po_op(s, CK_PO_EMPTY_DICT);
	attribute(s, "checkpoint_id", o->saved_to);
	attribute(s, "save_id", o->save_id);
	attribute(s, "load_id", "");
	str(s, "modules");
	ck_po_op(s, CK_PO_EMPTY_LIST);
	ck_po_op(s, CK_PO_SETITEM);
	ck_po_op(s, CK_PO_BUILD);
	ck_po_op(s, CK_PO_SETITEM);
}

int ck_dcp_out_piece(const struct ck_dcp_out *o, uint64_t p, struct ck_str *s,
		     struct ck_err *err)
{
	uint64_t dict = p / (o->nr + 1), i = p % (o->nr + 1);
	int ret = 0;

	if (i)
		ret = put_entry(o, (unsigned)dict, i - 1, s, err);
	else if (dict == 0)
		put_head(s);
	else
		ck_po_op(s, CK_PO_SETITEM); /* the dict before is done */
	if (!i && dict == 1)
		begin_dict(s, "planner_data");
	else if (!i && dict == 2)
		begin_dict(s, "storage_data");
	if (!i && dict == 3) {
		if (o->save_id)
			put_save(o, s);
		ck_po_op(s, CK_PO_BUILD);
		ck_po_end(s);
	}
	if (!ret && s->failed)
		ret = ck_no_memory(err);
	return ret;
}

#define FLUSH ((size_t)64 << 10)

int ck_dcp_out_write(const struct ck_dcp_out *o,
		     int (*write)(void *ctx, const void *bytes, size_t len,
				  struct ck_err *err),
		     void *ctx, struct ck_err *err)
{
	ck_auto_str struct ck_str s = { 0 };
	uint64_t nr = ck_dcp_out_pieces(o);
	int ret = 0;

	for (uint64_t p = 0; p < nr && !ret; p++) {
		ret = ck_dcp_out_piece(o, p, &s, err);
		if (ret || (s.len < FLUSH && p + 1 < nr))
			continue;
		ret = write(ctx, s.v, s.len, err);
		s.len = 0;
	}
	return ret;
}
