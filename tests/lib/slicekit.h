/* SPDX-License-Identifier: Apache-2.0 */
/*
 * slicekit.h - drafts of slices for tests, below one directory in /tmp
 *
 * Tensors hold bytes that follow from their place and from the first letter of
 * the tensor's name.  Failures end the test.
 */
#ifndef SLICEKIT_H
#define SLICEKIT_H

#include "core/slices/slices.h"

extern char slicekit_top[];
extern struct ck_root slicekit_root;
extern struct ck_opts slicekit_opts;

/* A draft of @layout, and its slices. */
struct slicekit {
	struct ck_draft *s;
	struct ck_slices *sl;
};

void slicekit_setup(void);
void slicekit_teardown(void);
/* Made, or joined; @layout NULL: it has one. */
void slicekit_open(struct slicekit *j, const char *name, const char *layout);
void slicekit_close(struct slicekit *j);
int slicekit_publish(const char *name, struct ck_err *err);
/* What piece @piece should hold, 0xEE for padding; from malloc(). */
unsigned char *slicekit_expected(const struct ck_slice_plan *plan,
				 uint32_t piece);
void slicekit_write_piece(struct ck_slices *sl, uint32_t piece,
			  uint64_t at_once);
void slicekit_write_ranks(struct ck_slices *sl);
void slicekit_write_tensors(struct ck_slices *sl);
/* What was published is what was written, and has @tensors. */
void slicekit_read_back(const char *name, unsigned tensors);

/* Texts of layouts. */
#define DOC(mesh, tensors, write)                                       \
	"{\"unshard_layout\":1,\"mesh\":" mesh ",\"tensors\":[" tensors \
	"],\"write\":{" write "}}"
#define TWO \
	"{\"axes\":[{\"name\":\"a\",\"size\":2},{\"name\":\"b\",\"size\":3}]}"
#define TENSOR(name, dtype, shape, more)                                       \
	"{\"name\":\"" name "\",\"dtype\":\"" dtype "\",\"shape\":" shape more \
	"}"
#define PLACE(p) ",\"placement\":" p

#endif
