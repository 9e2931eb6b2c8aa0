/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pickle_priv.h - how values lie in the arena; for pickle*.c only
 *
 *   reservation:  [0][empty tuple][values ->        <- memo]
 *
 * A value: bits 0-3 kind, bit 4 "its payload is a word of the arena where it
 * could be a byte of the input", bits 5-63 payload.  No value is 0, so a
 * zero word of the memo is an entry that was never stored.
 *
 *   INT      the number itself, or a word that holds it
 *   BIGINT, FLOAT   the byte of its opcode
 *   STR, BYTES      the byte of its opcode, or words: length, bytes
 *   TUPLE    words: count, elements
 *   LIST, DICT, SET word: tail << 32 | count of words
 *   slice    words: next << 32 | count, elements; the tail's next is the head
 *   GLOBAL   words: module, name (addresses), lengths, byte << 1 | allowed
 *   CALL     words: args << 33 | callee << 2 | the callee's kind; then 0, the
 *            state, or an EXT
 *   EXT      words: state or 0, list of items, list of pairs, kwargs or 0
 *   PERSID   word: what it names
 *   FOLDED   the number itself
 */
#ifndef CK_PICKLE_PRIV_H
#define CK_PICKLE_PRIV_H

#include "core/base/limits.h"
#include "core/parse/pickle.h"

#define K_EXT 15
/* In the memo: what was used again; no other value of that kind is there. */
#define PV_GONE ((ck_pv)K_EXT)

/* Two addresses of words and a kind fit into one word: see CALL. */
#define PICKLE_MAX_WORDS (UINT64_C(1) << 31)
#define PICKLE_MAX_INPUT (UINT64_C(1) << 31)

#define EMPTY_TUPLE_AT 1
#define FIRST_FREE 2

struct ck_pickle {
	uint64_t *words;
	uint64_t room, used, memo; /* words; memo: the highest index + 1 */
	size_t map_len;
	const uint8_t *in;
	size_t in_len;
	char *own; /* @in, where a source was read */
	uint64_t nr_ops;
	ck_pv root;
};

enum { GLOBAL_MODULE, GLOBAL_NAME, GLOBAL_LENS, GLOBAL_BYTE, GLOBAL_WORDS };
enum { CALL_WHAT, CALL_MORE, CALL_WORDS };
enum { EXT_STATE, EXT_ITEMS, EXT_PAIRS, EXT_KWARGS, EXT_WORDS };

static inline unsigned pv_kind(ck_pv v)
{
	return (unsigned)(v & 15);
}

static inline uint64_t pv_at(ck_pv v)
{
	return v >> 5;
}

static inline bool pv_in_arena(ck_pv v)
{
	return v & 16;
}

static inline ck_pv pv_make(unsigned kind, uint64_t payload)
{
	return payload << 5 | kind;
}

static inline ck_pv pv_make_arena(unsigned kind, uint64_t word)
{
	return word << 5 | 16 | kind;
}

/* Lists of slices. */
static inline uint64_t list_tail(uint64_t list)
{
	return list >> 32;
}

static inline uint64_t list_count(uint64_t list)
{
	return list & UINT32_MAX;
}

static inline uint64_t list_word(uint64_t tail, uint64_t count)
{
	return tail << 32 | count;
}

/* What a CALL calls: one of three kinds. */
static inline uint64_t call_word(ck_pv callee, ck_pv args)
{
	unsigned kind = pv_kind(callee) == CK_P_GLOBAL ? 0 :
			pv_kind(callee) == CK_P_CALL   ? 1 :
							 2;

	return pv_at(args) << 33 | pv_at(callee) << 2 | kind;
}

static inline ck_pv call_callee(uint64_t word)
{
	static const uint8_t kinds[] = { CK_P_GLOBAL, CK_P_CALL, CK_P_PERSID };

	return pv_make(kinds[word & 3], word >> 2 & (PICKLE_MAX_WORDS - 1));
}

static inline ck_pv call_args(uint64_t word)
{
	return pv_make(CK_P_TUPLE, word >> 33);
}

/* The machine while it runs. */
struct pickle_vm {
	struct ck_pickle *p;
	const struct ck_pickle_opts *opts;
	struct ck_err *err;
	size_t op_at, at; /* bytes: of the opcode being run, of the next one */
	ck_pv *stack;
	uint32_t sp, room;
	uint32_t fence; /* values under it belong to an outer mark */
	uint32_t marks[CK_MAX_PICKLE_DEPTH];
	unsigned nr_marks;
	uint64_t nr_memo;
	/* pickle_fold.c */
	bool may_fold;
	uint64_t fold_from; /* the call that may be folded; 0: none */
	uint64_t fold_memo; /* entries before it */
	uint64_t nr_folded;
	/* The opcode being run: its variant, its operand. */
	unsigned arg;
	uint64_t n;
	const char *s, *s2;
	size_t len, len2;
};

/* The comma tells the compiler that the result is not 0. */
#define vm_fail(vm, fmt, ...)                                      \
	(ck_fail((vm)->err, EINVAL, "byte %zu: " fmt, (vm)->op_at, \
		 ##__VA_ARGS__),                                   \
	 -EINVAL)

/* pickle_vm.c: runs to STOP and sets the root. */
int ck_pickle_run(struct pickle_vm *vm);

/* pickle_ops.c: by opcode; run is NULL where there is none. */
enum follow { NOTHING, COUNTED, LINE, LINES2 }; /* in this order */
struct pickle_op {
	int (*run)(struct pickle_vm *vm); /* 0, PICKLE_STOPPED or -errno */
	uint8_t width; /* bytes of vm->n behind the opcode */
	uint8_t follow; /* then: vm->n bytes, one line or two; vm->s, vm->s2 */
	uint8_t arg; /* vm->arg: which variant */
};
#define PICKLE_STOPPED 1
extern const struct pickle_op ck_pickle_ops_table[256];

/* pickle_build.c: nodes; 0 or -EINVAL with the error set. */
int ck_pickle_alloc(struct pickle_vm *vm, uint64_t nr, uint64_t *at);
int ck_pickle_add(struct pickle_vm *vm, uint64_t list_at, const ck_pv *v,
		  uint32_t nr);
int ck_pickle_tuple(struct pickle_vm *vm, const ck_pv *v, uint32_t nr,
		    ck_pv *out);
int ck_pickle_global(struct pickle_vm *vm, const char *module,
		     size_t module_len, const char *name, size_t name_len,
		     ck_pv *out);
int ck_pickle_call(struct pickle_vm *vm, ck_pv callee, ck_pv args, ck_pv *out);
/* The EXT words of @call, made if there are none. */
int ck_pickle_ext(struct pickle_vm *vm, ck_pv call, uint64_t *at);
int ck_pickle_memo_put(struct pickle_vm *vm, uint64_t i, ck_pv v);
int ck_pickle_memo_get(struct pickle_vm *vm, uint64_t i, ck_pv *out);

/* pickle_fold.c: objects that are replaced by numbers. */
/* @call was made, by NEWOBJ. */
void ck_pickle_fold_begin(struct pickle_vm *vm, ck_pv call);
/* The object on top of the stack got its state. */
void ck_pickle_fold_end(struct pickle_vm *vm);
/* Nothing from here on. */
static inline void ck_pickle_no_fold(struct pickle_vm *vm)
{
	vm->may_fold = false;
	vm->fold_from = 0;
}
/* What is made of words: their number is that of the first. */
static inline bool pv_has_words(ck_pv v)
{
	unsigned kind = pv_kind(v);

	return pv_in_arena(v) || (kind >= CK_P_TUPLE && kind <= CK_P_PERSID);
}
/* @v is used once more: if it is of the object that may be folded, it may not. */
static inline void pv_is_used(struct pickle_vm *vm, ck_pv v)
{
	if (vm->fold_from && pv_has_words(v) && pv_at(v) >= vm->fold_from)
		vm->fold_from = 0;
}
/* @v changes: what was there before may refer to what is there since. */
static inline void pv_changes(struct pickle_vm *vm, ck_pv v)
{
	if (pv_at(v) < vm->fold_from)
		vm->fold_from = 0;
}

/* pickle_text.c: the operands of protocol 0, vm->s[0, vm->len). */
int ck_pickle_text_int(struct pickle_vm *vm, ck_pv *out);
int ck_pickle_text_float(struct pickle_vm *vm, ck_pv *out);
int ck_pickle_text_index(struct pickle_vm *vm, uint64_t *out);
int ck_pickle_text_quoted(struct pickle_vm *vm, ck_pv *out);
int ck_pickle_text_unicode(struct pickle_vm *vm, ck_pv *out);
int ck_pickle_text_plain(struct pickle_vm *vm, ck_pv *out);
int ck_pickle_int(struct pickle_vm *vm, int64_t n, ck_pv *out);

#endif
