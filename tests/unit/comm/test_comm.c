/* SPDX-License-Identifier: Apache-2.0 */
/* Ranks that talk, that are not the same, that go, and that do not answer. */
#include "tests/lib/commkit.h"

#include "core/base/check.h"

#include <arpa/inet.h>
#include <criterion/criterion.h>
#include <criterion/parameterized.h>
#include <errno.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

static const char *const kinds[] = { "shm", "tcp" };

/* ---- what is said ---- */

static int gather(struct commkit_rank *r)
{
	uint64_t mine[3] = { r->nr, 100 + r->nr, 7 };
	uint64_t all[COMMKIT_RANKS][3];

	for (unsigned turn = 0; turn < 50; turn++) {
		int ret;

		mine[2] = turn;
		ret = ck_comm_gather(r->comm, mine, all, sizeof(mine), &r->err);
		if (ret)
			return ret;
		for (unsigned i = 0; i < r->kit->ranks; i++)
			if (all[i][0] != i || all[i][1] != 100 + i ||
			    all[i][2] != turn)
				return ck_fail(&r->err, EBADMSG, "rank %u", i);
	}
	return 0;
}

Test(comm, gather)
{
	for (unsigned i = 0; i < 2; i++)
		for (unsigned ranks = 1; ranks <= COMMKIT_RANKS; ranks++) {
			struct commkit k;

			commkit_listen(&k, kinds[i], ranks, 30000, 0);
			commkit_run(&k, ranks, gather, NULL);
			for (unsigned n = 0; n < ranks; n++)
				cr_assert_eq(k.rank[n].ret, 0, "%s",
					     k.rank[n].err.msg);
			commkit_free(&k);
		}
}

#define LONG (UINT64_C(3) << 20) /* more than a socket takes at once */

static unsigned char byte_of(unsigned from, unsigned to, uint64_t at)
{
	return (unsigned char)(from * 31 + to * 7 + at * (1 + from) + at / 251);
}

/* To each another number of bytes, in pieces, and to one of them nothing. */
static uint64_t len_of(unsigned from, unsigned to)
{
	return (from + to) % 3 == 2 ? 0 : LONG / (1 + from + 2 * to) + 1;
}

static int swap(struct commkit_rank *r)
{
	unsigned n = r->kit->ranks;
	struct ck_comm_bytes send[COMMKIT_RANKS], recv[COMMKIT_RANKS];
	static const unsigned pieces = 100;
	struct iovec *out = calloc((size_t)n * pieces, sizeof(*out));
	struct iovec in[COMMKIT_RANKS];
	unsigned char *from[COMMKIT_RANKS], *to[COMMKIT_RANKS];
	int ret;

	for (unsigned i = 0; i < n; i++) {
		uint64_t len = len_of(r->nr, i), at = 0;

		from[i] = malloc(len + 1);
		for (uint64_t k = 0; k < len; k++)
			from[i][k] = byte_of(r->nr, i, k);
		for (unsigned p = 0; p < pieces; p++) {
			uint64_t end = len * (p + 1) / pieces;

			out[i * pieces + p] =
				(struct iovec){ from[i] + at, end - at };
			at = end;
		}
		send[i] = (struct ck_comm_bytes){ out + (size_t)i * pieces,
						  pieces, len };
		len = len_of(i, r->nr);
		to[i] = calloc(1, len + 1);
		in[i] = (struct iovec){ to[i], len };
		recv[i] = (struct ck_comm_bytes){ &in[i], 1, len };
	}
	ret = ck_comm_swap(r->comm, send, recv, &r->err);
	for (unsigned i = 0; i < n; i++) {
		for (uint64_t k = 0; !ret && i != r->nr && k < len_of(i, r->nr);
		     k++)
			if (to[i][k] != byte_of(i, r->nr, k))
				ret = ck_fail(&r->err, EBADMSG,
					      "byte %llu from %u",
					      (unsigned long long)k, i);
		free(from[i]);
		free(to[i]);
	}
	free(out);
	return ret ? ret : gather(r);
}

Test(comm, swap)
{
	for (unsigned i = 0; i < 2; i++)
		for (unsigned ranks = 2; ranks <= 5; ranks++) {
			struct commkit k;

			commkit_listen(&k, kinds[i], ranks, 30000, 0);
			commkit_run(&k, ranks, swap, NULL);
			for (unsigned n = 0; n < ranks; n++)
				cr_assert_eq(k.rank[n].ret, 0, "%s",
					     k.rank[n].err.msg);
			commkit_free(&k);
		}
}

/* What a rank puts into its slots lies in those of the others. */
static int look(struct commkit_rank *r)
{
	uint64_t size = ck_comm_block(r->comm);
	char all[COMMKIT_RANKS];
	int ret;

	for (unsigned s = 0; s < CK_COMM_SLOTS; s++)
		memset(ck_comm_slot(r->comm, r->nr, s), (int)(r->nr * 16 + s),
		       size);
	ret = ck_comm_gather(r->comm, "", all, 1, &r->err);
	for (unsigned i = 0; i < r->kit->ranks && !ret; i++)
		for (unsigned s = 0; s < CK_COMM_SLOTS; s++) {
			const unsigned char *at = ck_comm_slot(r->comm, i, s);

			if (at[0] != i * 16 + s || at[size - 1] != at[0])
				ret = ck_fail(&r->err, EBADMSG, "slot %u of %u",
					      s, i);
		}
	return ret;
}

Test(comm, slots)
{
	struct commkit k;

	commkit_listen(&k, "shm", 4, 30000, 64 << 10);
	cr_assert(ck_comm_is_shared(k.rank[0].comm));
	commkit_run(&k, 4, look, NULL);
	for (unsigned n = 0; n < 4; n++)
		cr_assert_eq(k.rank[n].ret, 0, "%s", k.rank[n].err.msg);
	commkit_free(&k);
}

/* Slots of all that a process has stay within 64 MiB, as long as they can. */
Test(comm, room)
{
	for (unsigned ranks = 1; ranks <= 100; ranks++) {
		struct ck_comm_in in = { .kind = "tcp",
					 .host = "::1",
					 .ranks = ranks };
		struct ck_err err = { 0 };
		struct ck_comm *c;
		int ret = ck_comm_new(&c, &in, &err);

		if (ret == -EADDRNOTAVAIL || ret == -EAFNOSUPPORT)
			cr_skip_test("no IPv6");
		cr_assert_eq(ret, 0, "%s", err.msg);
		cr_assert_leq(ck_comm_block(c) * CK_COMM_SLOTS * ranks,
			      UINT64_C(64) << 20);
		ck_comm_free(c);
	}
}

/* ---- who goes ---- */

static int leave_last(struct commkit_rank *r)
{
	int ret = gather(r);

	if (ret || r->nr == r->kit->ranks - 1) {
		ck_comm_free(r->comm);
		r->comm = NULL;
		return ret;
	}
	return gather(r);
}

Test(comm, gone)
{
	for (unsigned i = 0; i < 2; i++) {
		struct commkit k;

		commkit_listen(&k, kinds[i], 4, 30000, 0);
		commkit_run(&k, 4, leave_last, NULL);
		cr_assert_eq(k.rank[3].ret, 0);
		for (unsigned n = 0; n < 3; n++) {
			cr_assert_eq(k.rank[n].ret, -ECONNRESET);
			cr_assert(strstr(k.rank[n].err.msg,
					 "rank 3 of 4 is gone"),
				  "%s", k.rank[n].err.msg);
			cr_assert_eq(ck_comm_gather(k.rank[n].comm, "",
						    (char[4]){ 0 }, 1, NULL),
				     -ENOTCONN, "it has ended");
		}
		commkit_free(&k);
	}
}

/* The last does not answer: the others end by their clocks, or by each other. */
static int stop_last(struct commkit_rank *r)
{
	return r->nr == r->kit->ranks - 1 ? 0 : gather(r);
}

Test(comm, silent)
{
	for (unsigned i = 0; i < 2; i++) {
		struct commkit k;

		commkit_listen(&k, kinds[i], 3, 500, 0);
		commkit_run(&k, 3, stop_last, NULL);
		for (unsigned n = 0; n < 2; n++) {
			cr_assert(k.rank[n].ret == -ETIMEDOUT ||
				  k.rank[n].ret == -ECONNRESET);
			cr_assert(strstr(k.rank[n].err.msg, "rank 2 of 3 "),
				  "%s", k.rank[n].err.msg);
		}
		commkit_free(&k);
	}
}

static int abort_first(struct commkit_rank *r)
{
	if (!r->nr)
		ck_comm_abort(r->comm);
	return gather(r);
}

Test(comm, aborted)
{
	for (unsigned i = 0; i < 2; i++) {
		struct commkit k;

		commkit_listen(&k, kinds[i], 3, 30000, 0);
		commkit_run(&k, 3, abort_first, NULL);
		cr_assert_eq(k.rank[0].ret, -ECANCELED);
		for (unsigned n = 1; n < 3; n++)
			cr_assert_eq(k.rank[n].ret, -ECONNRESET);
		commkit_free(&k);
	}
}

/* Ranks that do not agree on how much is said. */
static int say_more(struct commkit_rank *r)
{
	char all[4096] = { 0 };
	size_t each = r->nr ? 100 : 101;

	return ck_comm_gather(r->comm, all, all + 2048, each, &r->err);
}

Test(comm, not_in_step)
{
	struct commkit k;

	commkit_listen(&k, "tcp", 2, 30000, 0);
	commkit_run(&k, 2, say_more, NULL);
	for (unsigned n = 0; n < 2; n++)
		cr_assert(k.rank[n].ret == -EPROTO ||
				  k.rank[n].ret == -ECONNRESET,
			  "%s", k.rank[n].err.msg);
	cr_assert(k.rank[0].ret == -EPROTO || k.rank[1].ret == -EPROTO);
	commkit_free(&k);
}

/* ---- who comes ---- */

Test(comm, absent)
{
	for (unsigned i = 0; i < 2; i++) {
		struct commkit k;

		commkit_listen(&k, kinds[i], 4, 300, 0);
		commkit_run(&k, 2, gather, NULL);
		for (unsigned n = 0; n < 2; n++) {
			cr_assert_eq(k.rank[n].ret, -ETIMEDOUT);
			cr_assert(strstr(k.rank[n].err.msg,
					 "rank 2, 3 of 4 did not come within "
					 "0.300 s"),
				  "%s", k.rank[n].err.msg);
		}
		commkit_free(&k);
	}
}

/* Who was there, and listens no more. */
Test(comm, closed)
{
	for (unsigned i = 0; i < 2; i++) {
		struct commkit k;
		char was[CK_COMM_ADDRESS];

		commkit_listen(&k, kinds[i], 2, 30000, 0);
		memcpy(was, k.address[0], sizeof(was));
		ck_comm_free(k.rank[0].comm);
		k.rank[0].comm = NULL;
		k.address[0] = was;
		k.rank[1].ret = ck_comm_connect(k.rank[1].comm, k.address,
						&k.rank[1].err);
		cr_assert_eq(k.rank[1].ret, -ECONNREFUSED);
		cr_assert(strstr(k.rank[1].err.msg, "rank 0 of 2"), "%s",
			  k.rank[1].err.msg);
		commkit_free(&k);
	}
}

static int call(const char *address)
{
	struct sockaddr_in to = { .sin_family = AF_INET };
	const char *mark = strchr(address, '!');
	int fd = socket(AF_INET, SOCK_STREAM, 0);

	to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	to.sin_port = htons((uint16_t)atoi(mark + 1));
	cr_assert_eq(connect(fd, (void *)&to, sizeof(to)), 0);
	return fd;
}

/* Some say the wrong thing, one goes at once, and more than have room say nothing. */
Test(comm, strangers)
{
	char junk[200];
	struct commkit k;
	int fd[200];

	memset(junk, 'x', sizeof(junk));
	commkit_listen(&k, "tcp", 3, 30000, 0);
	for (unsigned i = 0; i < CK_ARRAY_LEN(fd); i++) {
		fd[i] = call(k.address[i % 2]);
		if (i % 3 && i < 20)
			cr_assert_gt(send(fd[i], junk, 10 * i, 0), -1);
	}
	close(fd[0]);
	commkit_run(&k, 3, gather, NULL);
	for (unsigned n = 0; n < 3; n++)
		cr_assert_eq(k.rank[n].ret, 0, "%s", k.rank[n].err.msg);
	for (unsigned i = 1; i < CK_ARRAY_LEN(fd); i++)
		close(fd[i]);
	commkit_free(&k);
}

/* A key that is not theirs: each side refuses the other. */
Test(comm, another_key)
{
	for (unsigned i = 0; i < 2; i++) {
		char other[CK_COMM_ADDRESS];
		struct commkit k;
		size_t len;

		commkit_listen(&k, kinds[i], 2, 300, 0);
		memcpy(other, k.address[0], sizeof(other));
		len = strlen(other);
		other[len - 1] = other[len - 1] == '0' ? '1' : '0';
		k.address[0] = other;
		commkit_run(&k, 2, gather, NULL);
		cr_assert_eq(k.rank[0].ret, -ETIMEDOUT);
		cr_assert_eq(k.rank[1].ret, -ECONNREFUSED, "%s",
			     k.rank[1].err.msg);
		cr_assert(strstr(k.rank[1].err.msg, "does not know it"));
		commkit_free(&k);
	}
}

struct bad {
	struct ck_comm_in in;
	const char *says;
};

Test(comm, refused)
{
	static const struct bad bad[] = {
		{ { .kind = "mpi", .ranks = 1 }, "kind \"mpi\"" },
		{ { .ranks = 1 }, "kind \"\"" },
		{ { .kind = "shm" }, "rank 0 of 0" },
		{ { .kind = "shm", .rank = 2, .ranks = 2 }, "rank 2 of 2" },
		{ { .kind = "shm", .ranks = 5000 }, "rank 0 of 5000" },
		{ { .kind = "tcp", .ranks = 1 }, "host \"\"" },
		{ { .kind = "tcp", .ranks = 1, .host = "localhost" },
		  "host \"localhost\"" },
		{ { .kind = "shm", .ranks = 1, .timeout_ms = -1 }, "timeout" },
		{ { .kind = "shm", .ranks = 1, .block = 3 << 20 }, "blocks" },
	};
	struct ck_comm *c;

	for (unsigned i = 0; i < CK_ARRAY_LEN(bad); i++) {
		struct ck_err err = { 0 };

		cr_assert_eq(ck_comm_new(&c, &bad[i].in, &err), -EINVAL);
		cr_assert(strstr(err.msg, bad[i].says), "%s", err.msg);
	}
}

Test(comm, bad_addresses)
{
	static const char *const bad[] = {
		NULL,
		"",
		"tcp",
		"tcp:127.0.0.1!80",
		"tcp:127.0.0.1 00112233445566778899aabbccddeeff",
		"tcp:127.0.0.1!0 00112233445566778899aabbccddeeff",
		"tcp:127.0.0.1!80000 00112233445566778899aabbccddeeff",
		"tcp:localhost!80 00112233445566778899aabbccddeeff",
		"tcp:127.0.0.1!80 00112233445566778899aabbccddee",
		"tcp:127.0.0.1!80 00112233445566778899aabbccddeeffff",
		"tcp:127.0.0.1!80 00112233445566778899aabbccddeexx",
		"shm:0011 00112233445566778899aabbccddeeff",
	};

	for (unsigned i = 0; i < CK_ARRAY_LEN(bad); i++) {
		struct ck_err err = { 0 };
		struct commkit k;

		commkit_listen(&k, "tcp", 2, 1000, 0);
		k.address[0] = bad[i];
		cr_assert_eq(ck_comm_connect(k.rank[1].comm, k.address, &err),
			     -EINVAL);
		cr_assert(strstr(err.msg, "the address of rank 0 of 2"), "%s",
			  err.msg);
		commkit_free(&k);
	}
}
