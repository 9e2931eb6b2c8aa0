/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pickle_query.h - values inside of a pickle, by the way that leads to them
 *
 *	"args/num_layers"  "0/params"  ""
 *
 * Between slashes: a key of a dict (or of what SETITEMS gave an object), an
 * attribute of an object, or a position in a list or tuple.  Threads: as
 * pickle.h.
 */
#ifndef CK_PICKLE_QUERY_H
#define CK_PICKLE_QUERY_H

#include "core/base/strmap.h"
#include "core/parse/pickle.h"

bool ck_pq(const struct ck_pickle *p, ck_pv v, const char *path, ck_pv *out);

#define CK_PQ_LEVELS 3
/*
 * Each value that a path leads to, in which {} stands for any key of a dict and
 * [] for any element of a list; up to CK_PQ_LEVELS of them:
 *
 *	for (struct ck_pq_each e = ck_pq_begin(p, v, "groups/[]/params/{}");
 *	     ck_pq_next(&e);)
 */
struct ck_pq_each {
	ck_pv v;
	const char
		*name; /* the last key, or @v, where it is a string; or NULL */
	size_t len;
	ck_pv key[CK_PQ_LEVELS]; /* of each {} */
	uint32_t at
		[CK_PQ_LEVELS]; /* how many came before it in its dict, or list */
	/* private */
	const struct ck_pickle *p;
	unsigned depth;
	struct {
		struct ck_piter it;
		const char *rest;
		bool pairs;
	} level[CK_PQ_LEVELS];
};
struct ck_pq_each ck_pq_begin(const struct ck_pickle *p, ck_pv v,
			      const char *path);
bool ck_pq_next(struct ck_pq_each *e);
/*
 * Adds their names to @map, whose user is the value, the last of each name.
 * 0 or -ENOMEM.
 */
int ck_pq_index(struct ck_strmap *map, const struct ck_pickle *p, ck_pv v,
		const char *path, struct ck_err *err);

bool ck_pq_int(const struct ck_pickle *p, ck_pv v, const char *path,
	       int64_t *out);
/* The same, or @otherwise where there is none. */
int64_t ck_pq_int_or(const struct ck_pickle *p, ck_pv v, const char *path,
		     int64_t otherwise);
bool ck_pq_str(const struct ck_pickle *p, ck_pv v, const char *path,
	       const char **s, size_t *len);
/*
 * Whole numbers from 0 to CK_SIZE_MAX in a tuple, a list or a torch.Size, at
 * most CK_MAX_RANK of them.
 */
bool ck_pq_dims(const struct ck_pickle *p, ck_pv v, const char *path,
		uint64_t *dims, unsigned *rank);
/* Calls NAME of @module, or of what is below it; @name NULL: anything there. */
bool ck_pq_is(const struct ck_pickle *p, ck_pv v, const char *module,
	      const char *name);

/*
 * Some attributes of each of many objects of one class: their keys are shared,
 * so that they are compared as texts once.
 */
#define CK_PQ_FIELDS 4
struct ck_pq_fields {
	const char *names[CK_PQ_FIELDS]; /* up to the first NULL */
	ck_pv seen[CK_PQ_FIELDS]; /* private */
};
/* Of what is not there out[] is 0. */
void ck_pq_fields(struct ck_pq_fields *f, const struct ck_pickle *p,
		  ck_pv object, ck_pv out[CK_PQ_FIELDS]);

/*
 * Mixes a plain value, or a list of such, into *@sum, which tells it from
 * others; false: some of it is no None, number, string or bytes.
 */
bool ck_pq_hash(const struct ck_pickle *p, ck_pv v, uint64_t *sum);

#endif
