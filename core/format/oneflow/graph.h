/* SPDX-License-Identifier: Apache-2.0 */
/*
 * graph.h - the variables that a saved graph's model.mlir lists
 *
 * One op is one line.  Of a graph nothing but its variables matters here:
 *
 *   %output_0 = "oneflow.variable"() {data_type = 2 : i32, device_name =
 *       ["@0:0"], hierarchy = [1], op_name = "m.fc1.weight", shape = [4 :
 *       si64, 6 : si64]} : () -> tensor<4x6xf32>
 */
#ifndef CK_ONEFLOW_GRAPH_H
#define CK_ONEFLOW_GRAPH_H

#include "core/base/err.h"
#include "core/base/limits.h"
#include "core/base/vec.h"
#include "core/base/strmap.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct ck_of_variable {
	int type; /* OneFlow's number of the data type; -1: not said */
	bool shaped; /* the shape is said, and is that of a whole tensor */
	unsigned rank;
	uint64_t shape[CK_MAX_RANK];
};

struct ck_of_graph {
	struct ck_strmap names; /* into the text */
	CK_VEC(struct ck_of_variable) v; /* by number in @names */
	bool whole; /* the text ends as a module does */
};

/*
 * Reads @text, in which escaped names are decoded in place; it must live as
 * long as @g.  Lines that cannot be read are passed over.  0 or -ENOMEM.
 */
int ck_of_graph_read(struct ck_of_graph *g, char *text, size_t len,
		     struct ck_err *err);
/* NULL: the graph has no variable of that name. */
const struct ck_of_variable *ck_of_graph_find(const struct ck_of_graph *g,
					      const char *name, size_t len);
void ck_of_graph_free(struct ck_of_graph *g);
#define ck_auto_of_graph __attribute__((cleanup(ck_of_graph_free)))

#endif
