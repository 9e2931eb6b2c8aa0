/* SPDX-License-Identifier: Apache-2.0 */
/*
 * strategy.h - MindSpore's strategy files: the layouts of all parameters
 *
 *   protobuf (any name, often *.ckpt)   nested maps, but no shapes
 *   JSON (*.json)                       shapes, but nested maps expanded
 *
 * One file a pipeline stage, or one of all with "STAGE-" before each name.
 * What two files say of the same parameter is put together; where they
 * contradict each other nothing can be read.
 */
#ifndef CK_MINDSPORE_STRATEGY_H
#define CK_MINDSPORE_STRATEGY_H

#include "core/base/err.h"
#include "core/base/vec.h"
#include "core/format/mindspore/layout.h"
#include "core/base/strmap.h"

struct ck_ms_item {
	struct ck_ms_layout l;
	const char *why; /* not NULL: this layout is unusable, and why */
	uint32_t name; /* in @names */
	uint32_t next; /* item of the same name in another stage; or NONE */
	uint32_t file; /* of @files: the first that said so */
	uint32_t seen; /* pieces found, for who merges */
	bool from_json;
};
#define CK_MS_NONE UINT32_MAX

struct ck_ms_strategy {
	struct ck_strmap names;
	CK_VEC(uint32_t) first; /* by number in names: the first item */
	CK_VEC(struct ck_ms_item) item;
	CK_VEC(char *) files;
	CK_VEC(void *) kept; /* what the others point to */
	uint32_t nr_stages;
	uint64_t devices; /* of each stage; 0: no layouts */
};

/* Whether the bytes begin as, or are, a strategy file. */
bool ck_ms_strategy_is(const char *name, const void *bytes, size_t len);
/* Adds what @name, for messages, says. */
int ck_ms_strategy_add(struct ck_ms_strategy *s, const char *name,
		       const void *bytes, size_t len, struct ck_err *err);
/* The item of that parameter in that stage, or NULL. */
struct ck_ms_item *ck_ms_strategy_find(const struct ck_ms_strategy *s,
				       const char *name, size_t len,
				       uint32_t stage);
void ck_ms_strategy_free(struct ck_ms_strategy *s);

#endif
