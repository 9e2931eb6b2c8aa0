/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fetch.c - requests to the engine, once their blocks are known to be good;
 * and what lies over the files
 */
#include "core/io/checked.h"
#include "core/io/read_priv.h"

#include "core/base/auto.h"

#include <errno.h>
#include <string.h>

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

/* What is made may be read by this thread: by other working memory. */
static void fetch_made(const struct ck_made *m, struct ck_io *io,
		       struct ck_err *why)
{
	io->res = 0;
	ck_scratch_deeper(true);
	for (unsigned i = 0; i < io->nr_iov && !io->res; i++) {
		io->res = m->read(m->ctx, io->src, io->iov[i].iov_base,
				  io->iov[i].iov_len, io->off, why);
		io->off += io->iov[i].iov_len;
	}
	ck_scratch_deeper(false);
}

static void fetch_files(struct ck_reader *r, struct ck_io *io, unsigned nr,
			struct ck_err *why)
{
	struct ck_engine *e;

	for (unsigned i = 0; r->in.made && i < nr; i++)
		fetch_made(r->in.made, &io[i], why);
	if (r->in.made)
		return;
	e = ck_engine_mine(r->in.engine);
	if (!r->in.checked || check(r, io, nr, why)) {
		e->ops->run(e, io, nr);
		return;
	}
	for (unsigned i = 0; i < nr; i++)
		if (!io[i].res)
			e->ops->run(e, &io[i], 1);
}

static bool is_covered(const struct ck_reader *r, const struct ck_io *io)
{
	const struct ck_file_layer *over = r->in.over;

	return r->in.img->srcs[io->src].kind == CK_SRC_FILE &&
	       over->covers(over->ctx, io->src, io->off, io->len);
}

/* One request with something over it; the engine changes what it is given. */
static void fetch_covered(struct ck_reader *r, struct ck_io *io,
			  struct ck_err *why)
{
	const struct ck_file_layer *over = r->in.over;
	uint64_t off = io->off, len = io->len;
	ck_auto_free struct iovec *iov = calloc(io->nr_iov, sizeof(*iov));

	if (!iov) {
		io->res = -ENOMEM;
		return;
	}
	memcpy(iov, io->iov, io->nr_iov * sizeof(*iov));
	fetch_files(r, io, 1, why);
	if (!io->res)
		io->res = over->patch(over->ctx, io->src, iov, off, len);
}

void ck_fetch(struct ck_reader *r, struct ck_io *io, unsigned nr,
	      struct ck_err *why)
{
	unsigned plain = 0; /* requests before io[i] that wait to be run */

	why->code = 0;
	for (unsigned i = 0; r->in.over && i < nr; i++) {
		if (!is_covered(r, &io[i])) {
			plain++;
			continue;
		}
		if (plain)
			fetch_files(r, &io[i - plain], plain, why);
		fetch_covered(r, &io[i], why);
		plain = 0;
	}
	if (!r->in.over)
		plain = nr;
	if (plain)
		fetch_files(r, &io[nr - plain], plain, why);
}

static void put_over(struct ck_reader *r, struct ck_io *io, unsigned nr)
{
	const struct ck_file_layer *over = r->in.over;

	for (unsigned i = 0; i < nr; i++)
		io[i].res = over->put(over->ctx, io[i].src, io[i].fd, io[i].iov,
				      io[i].off, io[i].len);
}

int ck_put(struct ck_reader *r, struct ck_io *io, unsigned nr,
	   struct ck_err *err)
{
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
	if (!ret && r->in.over)
		put_over(r, io, nr);
	else if (!ret)
		ck_write_helper_run(r->helper, r->in.engine, io, nr);
	while (begun-- > 0)
		w->end(w->ctx, io[begun].src, off[begun], len[begun],
		       !ret && !io[begun].res);
	return ret;
}
