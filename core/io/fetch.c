/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fetch.c - requests to the engine, once their blocks are known to be good
 */
#include "core/io/read_priv.h"
#include "core/io/checked.h"

/* Whether all of them may be used; if not, why and which are noted. */
static bool check(struct ck_reader *r, struct ck_io *io, unsigned nr,
		  struct ck_err *why)
{
	bool all = true;

	for (unsigned i = 0; i < nr; i++) {
		io[i].res = 0;
		if (r->in.img->srcs[io[i].src].kind != CK_SRC_FILE)
			continue;
		io[i].res =
			ck_checked_use(r->in.checked, r->in.engine, io[i].src,
				       io[i].fd, ck_bytes_name(r, io[i].src),
				       io[i].off, io[i].len, all ? why : NULL);
		all = all && !io[i].res;
	}
	return all;
}

void ck_fetch(struct ck_reader *r, struct ck_io *io, unsigned nr,
	      struct ck_err *why)
{
	struct ck_engine *e = ck_engine_mine(r->in.engine);

	why->code = 0;
	if (!r->in.checked || check(r, io, nr, why)) {
		e->ops->run(e, io, nr);
		return;
	}
	for (unsigned i = 0; i < nr; i++)
		if (!io[i].res)
			e->ops->run(e, &io[i], 1);
}

int ck_put(struct ck_reader *r, struct ck_io *io, unsigned nr,
	   struct ck_err *err)
{
	struct ck_engine *e = ck_engine_mine(r->in.engine);
	const struct ck_watch *w = r->in.watch;
	uint64_t off[CK_PUT], len[CK_PUT];
	unsigned begun = 0;
	int ret = 0;

	for (unsigned i = 0; w && !ret && i < nr; i++) {
		off[i] = io[i].off; /* the engine may change it */
		len[i] = io[i].len;
		ret = w->begin(w->ctx, io[i].src, off[i], len[i], err);
		begun += !ret;
	}
	if (!ret)
		e->ops->run(e, io, nr);
	while (begun-- > 0)
		w->end(w->ctx, io[begun].src, off[begun], len[begun]);
	return ret;
}
