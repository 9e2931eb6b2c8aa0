/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pickle.h - reads a pickle as data; nothing in it is ever run
 *
 * A virtual machine of about 60 opcodes (protocols 0 to 5 as far as PyTorch,
 * Megatron, MindSpore and their users write them) that builds inert nodes:
 * GLOBAL is a pair of strings, REDUCE and NEWOBJ are "call of, with", BUILD is
 * "state".  Unknown classes are kept the same way.  An allow-list decides
 * which callables may appear at all: see ck_pickle_opts.
 *
 * Values are 8-byte words; containers are lists of slices in one arena whose
 * size is bounded by the input (CK_PICKLE_EXPANSION times, plus 1 MiB); shared
 * sub-objects stay shared and are never copied or walked by the parser.  A
 * small pickle can therefore describe a value that is endless to walk, or one
 * that contains itself: who walks bounds the number of his steps.
 * Strings point into the input, which must outlive the pickle.
 *
 * Threads: parsing is one thread's; a parsed pickle may be read by any number.
 */
#ifndef CK_PICKLE_H
#define CK_PICKLE_H

#include "core/base/err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Address space taken for each byte of input; real files touch under 4. */
#define CK_PICKLE_EXPANSION 8

typedef uint64_t ck_pv; /* a value; the low bits are its kind; 0 is none */

enum ck_pkind {
	CK_P_NONE,
	CK_P_BOOL,
	CK_P_INT,
	CK_P_BIGINT,
	CK_P_FLOAT,
	CK_P_STR,
	CK_P_BYTES,
	CK_P_TUPLE,
	CK_P_LIST,
	CK_P_DICT,
	CK_P_SET,
	CK_P_GLOBAL,
	CK_P_CALL, /* REDUCE, NEWOBJ, NEWOBJ_EX, with BUILD state and items */
	CK_P_PERSID,
	CK_P_FOLDED, /* a number instead of an object: ck_pickle_opts.fold */
};

struct ck_pickle; /* owns the arena */

struct ck_pickle_opts {
	/*
	 * Says whether module.name may be called or instantiated.  NULL: any
	 * is kept as an inert node.  A refusal is "pickle names MODULE.NAME at
	 * byte N".
	 */
	bool (*allow)(void *ctx, const char *module, size_t module_len,
		      const char *name, size_t name_len);
	/*
	 * Asked of an object that NEWOBJ made and that has just got its state.  Not
	 * CK_PICKLE_KEEP: a number, of which CK_PICKLE_KEEP is the lowest that is
	 * too large, stands for the object from now on, and most of its memory is
	 * used again: nothing that lies in it may be kept, but texts of the input.
	 * Where the pickle needs the object after all, it is parsed once more, and
	 * this is not asked.
	 */
	uint64_t (*fold)(void *ctx, const struct ck_pickle *p, ck_pv object);
#define CK_PICKLE_KEEP (UINT64_C(1) << 56)
	void *ctx;
	uint64_t mem_max; /* bytes, if fewer than the rule above; 0: the rule */
};

/*
 * One pickle that begins at bytes[0]; *used (may be NULL) is its length: bytes
 * after STOP are the caller's business.  -EINVAL with "byte N: ..." for
 * anything malformed or over a limit.
 */
int ck_pickle_parse(struct ck_pickle **out, const void *bytes, size_t len,
		    const struct ck_pickle_opts *opts, size_t *used,
		    struct ck_err *err);
/*
 * The same of a pickle that begins a source, all of which but its bytes objects
 * is read and kept: these stay where they are, see ck_pv_extent().  -EINVAL
 * with a line where it ends early, holds no opcode of a pickle, or is over
 * CK_PICKLE_SOURCE_MAX without them.
 */
#define CK_PICKLE_SOURCE_MAX (UINT64_C(256) << 20)
struct ck_pickle_source {
	int (*read)(void *ctx, void *buf, size_t len, uint64_t off,
		    struct ck_err *err);
	void *ctx;
	uint64_t size;
	const char *name; /* for messages */
};
int ck_pickle_parse_source(struct ck_pickle **out,
			   const struct ck_pickle_source *in, uint64_t *used,
			   struct ck_err *err);
void ck_pickle_free(struct ck_pickle *p);
static inline void ck_pickle_freep(struct ck_pickle **p)
{
	ck_pickle_free(*p);
}
#define ck_auto_pickle __attribute__((cleanup(ck_pickle_freep)))

ck_pv ck_pickle_root(const struct ck_pickle *p);

enum ck_pkind ck_pv_kind(ck_pv v);
bool ck_pv_folded(ck_pv v, uint64_t *number); /* false: of another kind */
/* In fold(): whether @v was there before @object was, so that it stays. */
bool ck_pv_stays(ck_pv v, ck_pv object);
/* False where @v is of another kind; BOOL counts as an integer. */
bool ck_pv_int(const struct ck_pickle *p, ck_pv v, int64_t *out);
bool ck_pv_float(const struct ck_pickle *p, ck_pv v, double *out);
/* STR or BYTES; not NUL-terminated. */
bool ck_pv_str(const struct ck_pickle *p, ck_pv v, const char **s, size_t *len);
/* BYTES of ck_pickle_parse_source(): where in the source they are. */
bool ck_pv_extent(const struct ck_pickle *p, ck_pv v, uint64_t *off,
		  uint64_t *len);
/* Of a key: a string, or a number as Python prints it, put into @number. */
bool ck_pv_key_text(const struct ck_pickle *p, ck_pv key, char number[24],
		    const char **text, size_t *len);
bool ck_pv_is_str(const struct ck_pickle *p, ck_pv v, const char *literal);
bool ck_pv_global(const struct ck_pickle *p, ck_pv v, const char **module,
		  size_t *module_len, const char **name, size_t *name_len);
bool ck_pv_is_global(const struct ck_pickle *p, ck_pv v, const char *module,
		     const char *name); /* module NULL: any */

/* TUPLE, LIST, SET: elements; DICT: pairs; CALL: items given by APPENDS. */
uint64_t ck_pv_len(const struct ck_pickle *p, ck_pv v);
struct ck_piter {
	const struct ck_pickle *p;
	uint64_t slice, at, left;
};
/*
 * Walks elements, those that APPENDS gave a CALL too; of a DICT keys and
 * values, by ck_piter_next2().  Nothing for other kinds.
 */
void ck_piter_init(struct ck_piter *it, const struct ck_pickle *p, ck_pv v);
bool ck_piter_next(struct ck_piter *it, ck_pv *value);
bool ck_piter_next2(struct ck_piter *it, ck_pv *key, ck_pv *value);
/*
 * The pairs of a DICT, or those that SETITEMS gave a CALL (OrderedDict,
 * defaultdict).
 */
void ck_piter_init_pairs(struct ck_piter *it, const struct ck_pickle *p,
			 ck_pv v);
/* Element @i of a tuple, O(1), or of a list; false past the end. */
bool ck_pv_at(const struct ck_pickle *p, ck_pv v, uint64_t i, ck_pv *out);
/*
 * The last value stored under a string key of a DICT, or of the pairs of a
 * CALL, by scanning; false: none.
 */
bool ck_pv_key(const struct ck_pickle *p, ck_pv v, const char *key, ck_pv *out);

/*
 * Parts of a CALL: the callable (GLOBAL, CALL or PERSID) and its argument
 * tuple, each 0 for another kind; its last BUILD state; the keyword
 * arguments that NEWOBJ_EX gives.
 */
ck_pv ck_pv_callee(const struct ck_pickle *p, ck_pv call);
ck_pv ck_pv_args(const struct ck_pickle *p, ck_pv call);
bool ck_pv_state(const struct ck_pickle *p, ck_pv call, ck_pv *out);
bool ck_pv_kwargs(const struct ck_pickle *p, ck_pv call, ck_pv *out);
/*
 * An attribute: looks in the state dict, or the dicts of a (dict, slots)
 * state; false: none.
 */
bool ck_pv_attr(const struct ck_pickle *p, ck_pv call, const char *key,
		ck_pv *out);
ck_pv ck_pv_persid(const struct ck_pickle *p, ck_pv v); /* 0: no PERSID */

#endif
