/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/lib/commkit.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void commkit_listen(struct commkit *k, const char *kind, unsigned ranks,
		    int timeout_ms, uint64_t block)
{
	struct ck_comm_in in = { .kind = kind,
				 .host = "127.0.0.1",
				 .ranks = ranks,
				 .timeout_ms = timeout_ms,
				 .block = block };

	memset(k, 0, sizeof(*k));
	k->ranks = ranks;
	for (in.rank = 0; in.rank < ranks; in.rank++) {
		struct commkit_rank *r = &k->rank[in.rank];

		r->kit = k;
		r->nr = in.rank;
		if (ck_comm_new(&r->comm, &in, &r->err)) {
			fprintf(stderr, "%s\n", r->err.msg);
			abort();
		}
		k->address[in.rank] = ck_comm_address(r->comm);
	}
}

static void *work(void *arg)
{
	struct commkit_rank *r = arg;

	r->ret = ck_comm_connect(r->comm, r->kit->address, &r->err);
	if (!r->ret)
		r->ret = r->kit->run(r);
	return NULL;
}

void commkit_run(struct commkit *k, unsigned nr,
		 int (*run)(struct commkit_rank *rank), void *arg)
{
	pthread_t thread[COMMKIT_RANKS];

	k->run = run;
	k->arg = arg;
	for (unsigned i = 0; i < nr; i++)
		if (pthread_create(&thread[i], NULL, work, &k->rank[i]))
			abort();
	for (unsigned i = 0; i < nr; i++)
		pthread_join(thread[i], NULL);
}

void commkit_free(struct commkit *k)
{
	for (unsigned i = 0; i < k->ranks; i++)
		ck_comm_free(k->rank[i].comm);
}
