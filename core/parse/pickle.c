// SPDX-License-Identifier: Apache-2.0
/*
 * pickle.c - the life of a parsed pickle
 *
 * Address space for everything is reserved at once and touched as needed, so
 * growing never copies and freeing is one unmapping.  A small pickle, of which
 * a checkpoint has one in each of thousands of items, lies on the heap: to map
 * and unmap disturbs the other threads.
 */
#include "core/parse/pickle.h"

#include "core/base/auto.h"
#include "core/base/check.h"
#include "core/parse/pickle_priv.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#define HUGE_FROM (16 << 20)
/* No sequence of opcodes makes more of so few bytes. */
#define SMALL_INPUT 1024
#define SMALL_EXPANSION 40

static size_t page_up(size_t bytes)
{
	size_t page = (size_t)sysconf(_SC_PAGESIZE);

	return (bytes + page - 1) / page * page;
}

static uint64_t mem_limit(size_t len, const struct ck_pickle_opts *opts)
{
	uint64_t limit = (uint64_t)len * CK_PICKLE_EXPANSION + (1 << 20);

	if (len <= SMALL_INPUT)
		limit = 256 + len * SMALL_EXPANSION;
	if (opts && opts->mem_max)
		limit = CK_MIN(opts->mem_max, limit);
	limit = CK_MIN(limit, PICKLE_MAX_WORDS * sizeof(uint64_t));
	return CK_MAX(limit, FIRST_FREE * sizeof(uint64_t));
}

static int reserve(struct ck_pickle *p, uint64_t limit, struct ck_err *err)
{
	void *map;

	p->room = limit / sizeof(uint64_t);
	p->used = FIRST_FREE;
	if (p->in_len <= SMALL_INPUT) {
		p->words = calloc(p->room, sizeof(*p->words));
		return p->words ? 0 : ck_no_memory(err);
	}
	p->map_len = page_up(limit);
	map = mmap(NULL, p->map_len, PROT_READ | PROT_WRITE,
		   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (map == MAP_FAILED)
		return ck_fail(
			err, ENOMEM,
			"no room for the %zu bytes that a pickle of %zu bytes may need",
			p->map_len, p->in_len);
	/* Fewer faults for large indexes; a hint that may be refused. */
	if (p->map_len >= HUGE_FROM)
		madvise(map, p->map_len, MADV_HUGEPAGE);
	p->words = map;
	return 0;
}

/* Of a mapping: the memo is of no use after STOP. */
static void release_memo(struct ck_pickle *p)
{
	size_t keep;

	if (!p->map_len)
		return;
	keep = page_up(p->used * sizeof(uint64_t));
	if (keep < p->map_len)
		munmap((char *)p->words + keep, p->map_len - keep);
	p->map_len = CK_MIN(p->map_len, keep);
}

/* *again: objects were folded, and it failed: it may be because of that. */
static int run(struct ck_pickle *p, const struct ck_pickle_opts *opts,
	       size_t *used, bool *again, struct ck_err *err)
{
	struct pickle_vm vm = { .p = p, .opts = opts, .err = err };
	ck_auto_free ck_pv *stack = NULL;
	int ret;

	vm.may_fold = opts && opts->fold && !*again;

	/* An opcode, so a byte of input, pushes one value at most. */
	vm.room = (uint32_t)CK_MIN(p->in_len + 1, CK_MAX_PICKLE_STACK);
	vm.stack = stack = calloc(vm.room, sizeof(*stack));
	if (!stack)
		return ck_no_memory(err);
	ret = ck_pickle_run(&vm);
	*again = ret && vm.nr_folded;
	if (!ret && used)
		*used = vm.at;
	return ret;
}

static int parse(struct ck_pickle **out, const void *bytes, size_t len,
		 const struct ck_pickle_opts *opts, size_t *used, bool *again,
		 struct ck_err *err)
{
	ck_auto_pickle struct ck_pickle *p = calloc(1, sizeof(*p));
	int ret;

	if (!p)
		return ck_no_memory(err);
	p->in = bytes;
	p->in_len = len;
	ret = reserve(p, mem_limit(len, opts), err);
	if (!ret)
		ret = run(p, opts, used, again, err);
	if (ret)
		return ret;
	release_memo(p);
	*out = ck_steal(p);
	return 0;
}

int ck_pickle_parse(struct ck_pickle **out, const void *bytes, size_t len,
		    const struct ck_pickle_opts *opts, size_t *used,
		    struct ck_err *err)
{
	bool again = false;
	int ret;

	if (len > PICKLE_MAX_INPUT)
		return ck_fail(
			err, EINVAL,
			"byte 0: a pickle of %zu bytes; the limit is %llu", len,
			(unsigned long long)PICKLE_MAX_INPUT);
	ret = parse(out, bytes, len, opts, used, &again, err);
	return again ? parse(out, bytes, len, opts, used, &again, err) : ret;
}

void ck_pickle_free(struct ck_pickle *p)
{
	if (!p)
		return;
	if (p->map_len && p->words)
		munmap(p->words, p->map_len);
	else
		free(p->words);
	free(p->own);
	free(p);
}

ck_pv ck_pickle_root(const struct ck_pickle *p)
{
	return p->root;
}
