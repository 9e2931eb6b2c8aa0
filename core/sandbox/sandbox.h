/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sandbox.h - what a process that touches checkpoints may still do
 *
 * Irreversible.  Order: no new privileges, capabilities dropped but the right
 * to read the files, Landlock (only the given directories), seccomp (an allow
 * list; anything else is EPERM), no core dumps.  Each layer that the kernel
 * lacks is skipped and reported in @got.
 */
#ifndef CK_SANDBOX_H
#define CK_SANDBOX_H

#include "core/base/err.h"
#include "core/root/root.h"

#include <stdbool.h>
#include <stdint.h>

enum ck_sandbox_role {
	CK_SANDBOX_PARSER, /* reads files, writes one memfd, makes no thread */
	/*
	 * A parser that finds items afterwards: makes files in the spool, and
	 * may raise its limit of processor time, which who started it watches.
	 */
	CK_SANDBOX_FINDER,
	CK_SANDBOX_WORKER, /* serves: threads, io_uring, fuse device, spool */
	/*
	 * Becomes other users, and looks at paths as they may; reads /proc and
	 * nothing else, and changes names.  No root is given.
	 */
	CK_SANDBOX_ASKER,
};

struct ck_sandbox_in {
	enum ck_sandbox_role role;
	const struct ck_root *root;
	const char *spool_dir; /* worker, finder: makes unlinked files here */
	const char *config_dir; /* worker: may read this one too; NULL */
	bool writes; /* worker: may change all that is below @root */
	/* worker: and all below this one; asker: changes names there; NULL */
	const char *write_dir;
	int cache_fd; /* with @caches: makes unlinked files here too; -1 */
	bool caches; /* worker: keeps copies of files, and sends them */
	bool parses; /* worker: forks parsers, for checkpoints that appear */
	bool asks; /* worker: takes descriptors from who started it */
	bool hands_over; /* worker: gives some to who comes to a socket of it */
	uint64_t mem_max; /* RLIMIT_AS in bytes; 0: none */
	unsigned cpu_seconds; /* RLIMIT_CPU; 0: none */
};

/* Bits of what is in force afterwards. */
enum { CK_SANDBOX_LANDLOCK = 1, CK_SANDBOX_SECCOMP = 2, CK_SANDBOX_CAPS = 4 };

/* No capabilities but those of the role; a part of what follows. */
int ck_sandbox_drop_caps(const struct ck_sandbox_in *in, struct ck_err *err);
int ck_sandbox_enter(const struct ck_sandbox_in *in, unsigned *got,
		     struct ck_err *err);

#endif
