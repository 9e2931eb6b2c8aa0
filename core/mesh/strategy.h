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
#ifndef CK_STRATEGY_H
#define CK_STRATEGY_H

#include "core/base/arena.h"
#include "core/base/err.h"
#include "core/base/strmap.h"
#include "core/base/vec.h"
#include "core/mesh/mesh.h"

#define CK_STRATEGY_AXES 32

/*
 * A layout is a grid of devices, dev[0] x dev[1] x ..., in which the devices
 * of one pipeline stage are numbered row-major, and for each dimension of the
 * tensor the axes of that grid that cut it, the most significant first.  What
 * the devices of the axes that are left would hold alike may be cut further,
 * along dimension 0: optimizer sharding.
 */
struct ck_strategy_layout {
	uint64_t dev[CK_STRATEGY_AXES];
	uint64_t shape[CK_STRATEGY_AXES]; /* the full one, where it is known */
	int64_t shards; /* 0: none; -1: as many as there are copies */
	uint64_t field; /* not 0: rows of the devices interleave so often */
	const uint64_t *rows; /* nr_rows: of uneven slices, else NULL */
	uint32_t nr_rows, stage;
	uint8_t nr_dev, nr_map, nr_dims, shape_rank;
	uint8_t dim[CK_STRATEGY_AXES]; /* nr_map: ascending */
	int8_t axis[CK_STRATEGY_AXES]; /* from the left; -1: not cut */
	bool has_shape;
	/*
	 * As JSON has it: a dimension that several axes cut is several
	 * dimensions here, and in @shape.
	 */
	bool expanded;
};

struct ck_strategy_item {
	struct ck_strategy_layout l;
	const char *why; /* not NULL: this layout is unusable, and why */
	uint32_t name; /* in @names */
	uint32_t next; /* item of the same name in another stage; or NONE */
	uint32_t file; /* of @files: the first that said so */
	uint32_t seen; /* pieces found, for who merges */
	bool from_json;
};
#define CK_STRATEGY_NONE UINT32_MAX

struct ck_strategy {
	struct ck_strmap names;
	CK_VEC(uint32_t) first; /* by number in names: the first item */
	CK_VEC(struct ck_strategy_item) item;
	CK_VEC(char *) files;
	struct ck_arena mem; /* what the others point to */
	uint32_t nr_stages;
	uint64_t devices; /* of each stage; 0: no layouts */
};

/* Whether the bytes begin as, or are, a strategy file. */
bool ck_strategy_is(const char *name, const void *bytes, size_t len);
/* Adds what @name, for messages, says. */
int ck_strategy_add(struct ck_strategy *s, const char *name, const void *bytes,
		    size_t len, struct ck_err *err);
/* The item of that parameter in that stage, or NULL. */
struct ck_strategy_item *ck_strategy_find(const struct ck_strategy *s,
					  const char *name, size_t len,
					  uint32_t stage);
void ck_strategy_free(struct ck_strategy *s);

/* Devices of the grid; false: it is none. */
bool ck_strategy_devices(const struct ck_strategy_layout *l, uint64_t *nr);
/* How many different slices there are without, and how many shards of each. */
int ck_strategy_cuts(const struct ck_strategy_layout *l, uint64_t *slices,
		     uint64_t *shards, struct ck_err *why);
/*
 * The layout, which ck_strategy_cuts() took, of a tensor of @rank dimensions, of
 * which entry k of the map cuts dim[k], with so many @shards; @out is zeroed.  It is given
 * as it says, but rows split by hand where another number of devices cuts them.
 */
int ck_strategy_placement(const struct ck_strategy_layout *l,
			  const uint8_t *dim, unsigned rank, uint64_t shards,
			  struct ck_placement *out, struct ck_err *err);

#endif
