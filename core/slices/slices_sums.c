/* SPDX-License-Identifier: Apache-2.0 */
/*
 * slices_sums.c - digests of shards, made by who writes them
 *
 * The CRC-32 of a piece is put together of those of its stretches, in whatever
 * order they are written.  Once it is there the frame around the piece is final;
 * and once that is so of all pieces in a block, so is the block, whose bytes are
 * taken from the memory that they were written from, or read again.
 *
 * What comes of it is said in the journal, and believed by slices_told.c.
 */
#include "core/slices/slices_priv.h"

#include "core/base/auto.h"
#include "core/base/check.h"
#include "core/base/crc32.h"
#include "core/base/pool.h"
#include "core/base/search.h"
#include "core/base/whole.h"

#include <errno.h>
#include <stdatomic.h>
#include <string.h>
#include <unistd.h>
#include <xxhash.h>

#define BLOCK (UINT64_C(1) << CK_MANIFEST_SHIFT)
#define SPOILT (UINT64_C(1) << 63)

struct piece {
	_Atomic uint64_t bytes; /* that are in @crc; SPOILT: not each once */
	_Atomic uint32_t crc;
	bool framed; /* all of it is there, and its frame has the CRC */
	bool hashed;
	XXH128_hash_t hash;
};

struct ck_slices_sums {
	struct piece *piece; /* of the file */
	uint64_t *block;
	unsigned char
		*known; /* of each block: whether it is, or is being made */
	bool begun; /* what no bytes are waited for is written anew */
	bool told;
};

static const struct ck_slice_plan_file *file_of(const struct ck_slices *sl,
						uint32_t file)
{
	return &sl->plan.files[file];
}

static struct piece *piece_of(struct ck_slices *sl, uint32_t piece)
{
	uint32_t file = sl->plan.pieces[piece].file;

	return &sl->sums[file]->piece[piece - file_of(sl, file)->first];
}

static void free_one(struct ck_slices_sums *s)
{
	if (!s)
		return;
	free(s->piece);
	free(s->block);
	free(s->known);
	free(s);
}

void ck_slices_sums_free(struct ck_slices *sl)
{
	for (uint32_t i = 0; sl->sums && i < sl->plan.nr_files; i++)
		free_one(sl->sums[i]);
	free(sl->sums);
	free(sl->summed.v);
}

static bool begin_file(struct ck_slices *sl, uint32_t file)
{
	uint64_t nr = ck_claims_blocks(file_of(sl, file));
	struct ck_slices_sums *s;

	ck_auto_lock(&sl->same_lock);
	if (!sl->sums)
		sl->sums = calloc(sl->plan.nr_files, sizeof(*sl->sums));
	if (!sl->sums || sl->sums[file])
		return sl->sums;
	s = calloc(1, sizeof(*s));
	if (!s)
		return false;
	s->piece = calloc(file_of(sl, file)->nr, sizeof(*s->piece));
	s->block = calloc(nr, sizeof(*s->block));
	s->known = calloc(nr, 1);
	if (s->piece && s->block && s->known)
		sl->sums[file] = s;
	else
		free_one(s);
	return sl->sums[file];
}

int ck_slices_sum_add(struct ck_slices *sl, uint32_t piece, uint64_t off,
		      const void *bytes, uint64_t len, struct ck_err *err)
{
	const struct ck_slice_plan_piece *p = &sl->plan.pieces[piece];
	struct piece *x;

	if (!begin_file(sl, p->file))
		return ck_no_memory(err);
	x = piece_of(sl, piece);
	if (!bytes) {
		atomic_fetch_or(&x->bytes, SPOILT);
		return 0;
	}
	if (sl->plan.dcp)
		atomic_fetch_xor(&x->crc,
				 ck_crc32_shift(ck_crc32(0, bytes, len),
						p->len - off - len));
	if (atomic_fetch_add(&x->bytes, len) + len != p->len)
		return 0;
	/* once for each piece, or it is hashed once more */
	ck_auto_lock(&sl->same_lock);
	return ck_vec_put(&sl->summed, err, piece);
}

/* ---- what is to be hashed ---- */

struct unit {
	uint32_t file;
	uint32_t piece; /* CK_NONE: a block */
	uint64_t block;
};

struct job {
	struct ck_slices *sl;
	const struct ck_slice_mem *mem; /* by piece */
	size_t nr_mem;
	CK_VEC(struct unit) units;
	_Atomic size_t next;
};

static const void *mem_of(const struct job *j, uint32_t piece)
{
	size_t at = CK_FIRST(i, 0, j->nr_mem, j->mem[i].piece >= piece);

	return at < j->nr_mem && j->mem[at].piece == piece ? j->mem[at].bytes :
							     NULL;
}

/* The first piece of @file that ends behind @at. */
static uint32_t piece_at(const struct ck_slices *sl, uint32_t file, uint64_t at)
{
	const struct ck_slice_plan_file *f = file_of(sl, file);
	const struct ck_slice_plan_piece *p = sl->plan.pieces;

	return CK_FIRST(i, f->first, f->first + f->nr,
			p[i].off + p[i].len > at);
}

/* All of it is there, and will not change. */
static bool is_final(struct ck_slices *sl, uint32_t file, uint64_t block)
{
	const struct ck_slice_plan_file *f = file_of(sl, file);
	uint64_t at = block << CK_MANIFEST_SHIFT;
	uint32_t i = piece_at(sl, file, at), end = f->first + f->nr;

	/* the frame of the one before may reach into it, and of the one behind */
	i -= i > f->first;
	for (; i < end; i++) {
		if (!piece_of(sl, i)->framed)
			return false;
		if (sl->plan.pieces[i].off >= at + BLOCK)
			break;
	}
	return true;
}

static int put_blocks(struct job *j, uint32_t file, uint64_t from, uint64_t to,
		      struct ck_err *err)
{
	struct ck_slices_sums *s = j->sl->sums[file];
	int ret = 0;

	for (uint64_t k = from; k < to && !ret; k++) {
		if (s->known[k] || !is_final(j->sl, file, k))
			continue;
		ret = ck_vec_put(&j->units, err,
				 (struct unit){ file, CK_NONE, k });
		s->known[k] = !ret;
	}
	return ret;
}

/* @fd is of its file; -ENOENT: not all of it is there. */
static int frame(struct ck_slices *sl, uint32_t piece, int fd,
		 struct ck_err *err)
{
	const struct ck_slice_plan_piece *p = &sl->plan.pieces[piece];
	struct piece *x = piece_of(sl, piece);
	uint32_t crc = x->crc;
	struct ck_slices_lack lack;
	int ret = 0;

	ck_slices_lack(sl, piece, &lack);
	if (lack.bytes)
		return -ENOENT;
	if (sl->plan.dcp)
		ret = ck_slices_frame(
			sl, piece, x->bytes == p->len ? &crc : NULL, fd, err);
	x->framed = !ret;
	return ret;
}

/* A crash may have left it without: the header, or frames of pieces of nothing. */
static int begin_frames(struct ck_slices *sl, uint32_t file, int fd,
			struct ck_err *err)
{
	const struct ck_slice_plan_file *f = file_of(sl, file);
	int ret = 0;

	if (!sl->plan.dcp)
		ret = ck_slices_frames(sl, file, fd, err);
	for (uint32_t i = f->first; i < f->first + f->nr && !ret; i++)
		if (!sl->plan.pieces[i].len)
			ret = frame(sl, i, fd, err);
	sl->sums[file]->begun = !ret;
	return ret;
}

static int frame_by(struct ck_slices *sl, uint32_t piece, struct ck_err *err)
{
	uint32_t file = sl->plan.pieces[piece].file;
	struct ck_slices_fd *fd;
	int ret = ck_slices_get(sl, file, true, &fd, err);

	if (ret)
		return ret;
	if (!sl->sums[file]->begun)
		ret = begin_frames(sl, file, fd->fd, err);
	if (!ret)
		ret = frame(sl, piece, fd->fd, err);
	ck_slices_put(sl, fd);
	return ret;
}

/* ---- hashing ---- */

/* Bytes [at, end) of the file, into @state. */
static int read_into(int fd, uint64_t at, uint64_t end, XXH3_state_t *state,
		     void *buf)
{
	while (at < end) {
		uint64_t len = CK_MIN(CK_SLICES_BUFFER, end - at);
		int ret = ck_pread_whole(fd, buf, len, at);

		if (ret)
			return ret;
		XXH3_64bits_update(state, buf, len);
		at += len;
	}
	return 0;
}

static int hash_block(const struct job *j, const struct unit *u, int fd,
		      XXH3_state_t *state, void *buf)
{
	const struct ck_slice_plan_file *f = file_of(j->sl, u->file);
	uint64_t at = u->block << CK_MANIFEST_SHIFT, next;
	uint64_t end = CK_MIN(at + BLOCK, f->size);
	uint32_t i = piece_at(j->sl, u->file, at);
	int ret = 0;

	XXH3_64bits_reset(state);
	for (; at < end && !ret; at = next) {
		const struct ck_slice_plan_piece *p =
			i < f->first + f->nr ? &j->sl->plan.pieces[i] : NULL;
		const char *mem = p ? mem_of(j, i) : NULL;

		next = p ? CK_MIN(end, p->off) : end;
		if (at < next) {
			ret = read_into(fd, at, next, state, buf);
			continue;
		}
		next = CK_MIN(end, p->off + p->len);
		if (mem)
			XXH3_64bits_update(state, mem + (at - p->off),
					   next - at);
		else
			ret = read_into(fd, at, next, state, buf);
		i++;
	}
	if (!ret)
		j->sl->sums[u->file]->block[u->block] =
			XXH3_64bits_digest(state);
	return ret;
}

static void hash_piece(const struct job *j, const struct unit *u)
{
	const struct ck_slice_plan_piece *p = &j->sl->plan.pieces[u->piece];
	struct piece *x = piece_of(j->sl, u->piece);

	x->hash = XXH3_128bits(mem_of(j, u->piece), p->len);
	x->hashed = true;
}

static void work(void *ctx)
{
	struct job *j = ctx;
	ck_auto_free void *buf = malloc(CK_SLICES_BUFFER);
	XXH3_state_t *state = XXH3_createState();
	struct ck_slices_fd *fd;
	size_t i;

	while ((i = j->next++) < j->units.nr) {
		const struct unit *u = &j->units.v[i];
		int ret = -ENOMEM;

		if (u->piece != CK_NONE) {
			hash_piece(j, u);
			continue;
		}
		if (buf && state)
			ret = ck_slices_get(j->sl, u->file, false, &fd, NULL);
		if (!ret) {
			ret = hash_block(j, u, fd->fd, state, buf);
			ck_slices_put(j->sl, fd);
		}
		if (ret) /* nobody else has it */
			j->sl->sums[u->file]->known[u->block] = false;
	}
	XXH3_freeState(state);
}

static void run(struct job *j, unsigned threads)
{
	const struct ck_pool_in pool = { .jobs = threads,
					 .ctx = j,
					 .work = work };

	if (threads == 1 || j->units.nr < 2)
		work(j);
	else
		ck_pool_run(&pool);
	free(j->units.v);
}

/* Itself, and the blocks that it, or its frame, is in. */
static int put_piece(struct job *j, uint32_t piece, struct ck_err *err)
{
	const struct ck_slice_plan_piece *p = &j->sl->plan.pieces[piece];
	uint64_t from = p->off >> CK_MANIFEST_SHIFT;
	uint64_t to = ((p->off + p->len) >> CK_MANIFEST_SHIFT) + 2;
	int ret = 0;

	if (!piece_of(j->sl, piece)->framed)
		return 0;
	if (mem_of(j, piece))
		ret = ck_vec_put(&j->units, err,
				 (struct unit){ p->file, piece, 0 });
	to = CK_MIN(to, ck_claims_blocks(file_of(j->sl, p->file)));
	return ret ? ret : put_blocks(j, p->file, from ? from - 1 : 0, to, err);
}

/* Frames of what is whole, and then what can be hashed. */
static int sum_pieces(struct job *j, struct ck_err *err)
{
	struct ck_slices *sl = j->sl;
	int ret = 0;

	for (size_t i = 0; i < sl->summed.nr && !ret; i++) {
		ret = frame_by(sl, sl->summed.v[i], err);
		ret = ret == -ENOENT ? 0 : ret;
	}
	for (size_t i = 0; i < sl->summed.nr && !ret; i++)
		ret = put_piece(j, sl->summed.v[i], err);
	sl->summed.nr = 0;
	return ret;
}

int ck_slices_sum(struct ck_slices *sl, const struct ck_slice_mem *mem,
		  size_t nr, unsigned threads, struct ck_err *err)
{
	struct job j = { .sl = sl, .mem = mem, .nr_mem = nr };
	int ret = sl->summed.nr ? sum_pieces(&j, err) : 0;

	if (ret)
		free(j.units.v);
	else
		run(&j, threads);
	return ret;
}

/* ---- the end ---- */

/* Whether all pieces of it are there; the rest of it is to be hashed. */
static int finish_file(struct job *j, uint32_t file, bool *whole,
		       struct ck_err *err)
{
	struct ck_slices *sl = j->sl;
	const struct ck_slice_plan_file *f = file_of(sl, file);
	int ret = 0;

	for (uint32_t i = f->first; i < f->first + f->nr && !ret; i++)
		if (!piece_of(sl, i)->framed)
			ret = frame_by(sl, i, err);
	*whole = !ret;
	if (ret)
		return ret == -ENOENT ? 0 : ret;
	return put_blocks(j, file, 0, ck_claims_blocks(f), err);
}

/* Durable, in its place, and then nothing changes it any more. */
static int tell(struct ck_slices *sl, uint32_t file, struct ck_err *err)
{
	const struct ck_slice_plan_file *f = file_of(sl, file);
	struct ck_slices_sums *s = sl->sums[file];
	struct ck_claims_sums said = { .block = s->block };
	struct ck_slices_fd *fd;
	int ret = 0;

	for (uint32_t i = 0; i < f->nr && !ret; i++) {
		const struct piece *x = &s->piece[i];

		if (x->hashed)
			ret = ck_vec_put(&said.digest, err,
					 (struct ck_claims_digest){
						 .piece = f->first + i,
						 .hi = x->hash.high64,
						 .lo = x->hash.low64 });
	}
	if (!ret)
		ret = ck_slices_get(sl, file, true, &fd, err);
	if (!ret) {
		/* frames too, of a file whose claims were safe before them */
		if (fdatasync(fd->fd))
			ret = ck_fail(err, errno, "%s: fsync: %s",
				      ck_slices_file_name(sl, file),
				      strerror(errno));
		if (!ret)
			ret = ck_claims_tell(sl->claims, file, fd->fd, &said,
					     err);
		ck_slices_put(sl, fd);
	}
	s->told = !ret;
	free(said.digest.v);
	return ret;
}

static int finish_files(struct ck_slices *sl, bool *whole, unsigned threads,
			struct ck_err *err)
{
	struct job j = { .sl = sl };
	int ret = 0;

	for (uint32_t i = 0; i < sl->plan.nr_files && !ret; i++)
		if (sl->sums[i] && !sl->sums[i]->told)
			ret = finish_file(&j, i, &whole[i], err);
	if (ret)
		free(j.units.v);
	else
		run(&j, threads);
	return ret;
}

static bool has_all(const struct ck_slices *sl, uint32_t file)
{
	return !memchr(sl->sums[file]->known, false,
		       ck_claims_blocks(file_of(sl, file)));
}

int ck_slices_finish(struct ck_slices *sl, unsigned threads, struct ck_err *err)
{
	ck_auto_free bool *whole = calloc(sl->plan.nr_files, sizeof(*whole));
	int ret = whole ? 0 : ck_no_memory(err);

	if (!ret && sl->sums)
		ret = finish_files(sl, whole, threads, err);
	/* moved first, as that changes its time; who is in the way is said later */
	for (uint32_t i = 0; i < sl->plan.nr_files && !ret; i++)
		whole[i] = whole[i] && has_all(sl, i) &&
			   !ck_slices_move(sl, i, NULL);
	if (!ret)
		ret = ck_slices_sync(sl, err);
	for (uint32_t i = 0; i < sl->plan.nr_files && !ret; i++)
		if (whole[i])
			ret = tell(sl, i, err);
	return ret;
}
