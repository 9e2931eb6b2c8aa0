/* SPDX-License-Identifier: Apache-2.0 */
/*
 * nccl - communicators by NCCL, which tests/fakes/nccl.c stands in for, and its faults
 *
 * That ranks load the same by it as by others is in together.c.
 */
#include "core/base/check.h"
#include "tests/lib/worldkit.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

/*
 * Whether a rank says @line; the others say that one is gone, or nothing where a load
 * @begins and it had all of it before (see wk_all_whole()).
 */
static bool says(const struct wk_plan *p, const char *line, bool begins,
		 bool *silent)
{
	bool said = false;

	*silent = true;
	for (unsigned k = 0; k < p->ranks; k++) {
		const struct wk_outcome *o = &wk_outcome[k];
		const char *got = begins ? o->why : o->line;
		bool right = strstr(got, line) || strstr(got, " is gone") ||
			     (begins && !*got);

		LK_CHECK(o->ended && (begins || o->ret < 0));
		said = said || strstr(got, line);
		*silent = *silent && !*got;
		if (!right)
			fprintf(stderr, "%s: rank %u: %s\n", p->script, k, got);
		LK_CHECK(right);
	}
	return said;
}

/*
 * NCCL's own faults.  In a load: all are whole.  Before it: nobody loads, and each is
 * told why, or that somebody is gone.
 */
static void scripted(unsigned nr)
{
	static const struct {
		const char *script, *line; /* of whom it happens to */
		bool all, begins;
	} v[] = {
		{ "async=1", "unhandled system error (2)", false, true },
		{ "async=3", "unhandled system error (2)", false, true },
		{ "group=2", "unhandled system error (2)", false, true },
		{ "hang=1", "within 2.000 s", false, true },
		{ "hang=2", "within 2.000 s", true, true },
		{ "hang=2,abort=1", "within 2.000 s", true, true },
		{ "version=22808",
		  "rank 1 of 3 has NCCL 22808, rank 0 has 22809", false,
		  false },
		{ "id=1", "ncclGetUniqueId: unhandled system error (2)", true,
		  false },
		{ "init=1", "ncclCommInitRankConfig: an error (1)", false,
		  false },
		{ "never=1", "within 0.300 s", true, false },
		{ "never=1,abort=1", "within 0.300 s", true, false },
	};

	for (unsigned i = 0; i < nr * CK_ARRAY_LEN(v); i++) {
		unsigned f = i % CK_ARRAY_LEN(v);
		struct wk_plan p = { .kind = "nccl",
				     .ranks = 3,
				     .seed = 1200 + i / CK_ARRAY_LEN(v) + i,
				     .same = true,
				     .whom = v[f].all ? WK_NOBODY : 1,
				     .script = v[f].script,
				     .timeout_ms = 60000 };
		bool silent;

		if (!strncmp(p.script, "never", 5))
			p.meet_ms = 300;
		if (!strncmp(p.script, "hang", 4))
			p.timeout_ms = 2000;
		wk_run(&p, NULL);
		if (v[f].begins)
			wk_all_whole(&p, WK_NOBODY);
		/* of other seeds a load may be too short for it */
		LK_CHECK(says(&p, v[f].line, v[f].begins, &silent) ||
			 (silent && i >= CK_ARRAY_LEN(v)));
	}
}

/* Whether this machine has one; which is not loaded here. */
static bool is_there(void)
{
	pid_t pid = fork();
	int status;

	if (!pid)
		_exit(dlopen("libnccl.so.2", RTLD_LAZY) ? 1 : 0);
	LK_CHECK(pid > 0 && waitpid(pid, &status, 0) == pid);
	if (status)
		fprintf(stderr,
			"there is a libnccl.so.2: its absence is not tried\n");
	return status;
}

/* What is not there, or too old, is said before anybody is waited for. */
static void absences(void)
{
	static const struct {
		const char *library, *script, *device, *line;
	} v[] = {
		{ NULL, "", "cuda:0", "libnccl.so.2: cannot open" },
		{ "old/libnccl.so.2", "", "cuda:0",
		  "libnccl.so.2: has no ncclCommInitRankConfig" },
		{ "libnccl.so.2", "version=21706", "cuda:0",
		  "libnccl.so.2: it is version 21706, expected 21800" },
		{ "libnccl.so.2", "", "simulated",
		  "device simulated: NCCL moves between CUDA devices only" },
		{ "libnccl.so.2", "", NULL, "expected the device, as cuda:0" },
		{ "libnccl.so.2", "", "cuda:9",
		  "device cuda:9: there is 1 CUDA" },
	};

	for (unsigned i = is_there() ? 1 : 0; i < CK_ARRAY_LEN(v); i++) {
		struct ck_comm_in in = { .kind = "nccl",
					 .host = "127.0.0.1",
					 .device = v[i].device,
					 .ranks = 2 };
		struct ck_err err = { 0 };
		struct ck_comm *comm;
		pid_t pid = fork();
		int status;

		if (!pid) {
			wk_use_fake("libcuda.so.1", "libcuda.so.1");
			if (v[i].library)
				wk_use_fake(v[i].library, "libnccl.so.2");
			LK_CHECK(!setenv("FAKE_NCCL", v[i].script, 1));
			LK_CHECK(ck_comm_new(&comm, &in, &err) < 0);
			if (!strstr(err.msg, v[i].line))
				fprintf(stderr, "%s\n", err.msg);
			LK_CHECK(strstr(err.msg, v[i].line) &&
				 !strchr(err.msg, '\n'));
			exit(0);
		}
		LK_CHECK(pid > 0 && waitpid(pid, &status, 0) == pid && !status);
	}
}

int main(void)
{
	absences();
	wk_begin();
	scripted(getenv("UNSHARD_NIGHTLY") ? 20 : 1);
	return 0;
}
