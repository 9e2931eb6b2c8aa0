/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ckpt.c - a .ckpt file: a run of records, and perhaps a CRC after them
 *
 *   0A len { 1 name | 2 tensor | 3 { 1 tensor 1 tensor 1 tensor } } ...
 *   tensor: 1 dimension .. | 2 type | 3 bytes
 *   "crc_num" and 10 bytes, big-endian
 *
 * A large tensor is several records with one name, each with all dimensions
 * and some of the bytes.  A hash table (field 3) is three tensors: keys,
 * values, status; its records each have rows of their own, and those of 2.0
 * come first with the keys, then with keys and values, then with all.
 */
#include "core/format/mindspore/mindspore.h"

#include "core/base/check.h"
#include "core/base/str.h"
#include "core/parse/protobuf.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define TRAILER 17
#define MAX_TYPE 32
#define MAX_TABLE 3

struct one {
	unsigned rank;
	uint64_t dims[CK_MAX_RANK];
	char type[MAX_TYPE + 1];
	uint64_t off, len;
	bool has_bytes, has_type;
};

struct record {
	char name[CK_MAX_NAME + 1];
	size_t name_len;
	bool has_name, is_table;
	unsigned nr;
	struct one v[MAX_TABLE];
};

/* What adjacent records of one name have made so far. */
struct pending {
	char name[CK_MAX_NAME + 1];
	size_t name_len;
	bool any, is_table;
	unsigned nr;
	struct {
		struct one last;
		uint64_t rows, bytes;
		CK_VEC(struct mindspore_run) run;
	} v[MAX_TABLE];
};

struct scan {
	struct mindspore_set *s;
	uint32_t file;
	struct ck_source *in;
	struct ck_pb pb;
	struct record rec;
	struct pending pend;
	bool tables; /* there are records that the writer leaves out of sums */
};

/* ---- one record ---- */

static int fail_at(uint64_t at, const char *what, struct ck_err *err)
{
	return ck_fail(err, EINVAL, "byte %" PRIu64 ": %s", at, what);
}

static int add_dim(struct one *t, uint64_t value, uint64_t at,
		   struct ck_err *err)
{
	if (t->rank == CK_MAX_RANK || value >= CK_SIZE_MAX)
		return ck_fail(err, EINVAL,
			       "byte %" PRIu64 ": dimension %u is %" PRId64, at,
			       t->rank, (int64_t)value);
	t->dims[t->rank++] = value;
	return 0;
}

static int read_dims(struct ck_pb *pb, const struct ck_pb_field *f,
		     struct one *t, struct ck_err *err)
{
	uint64_t value;
	int ret;

	if (f->wire == CK_PB_VARINT)
		return add_dim(t, f->value, pb->pos, err);
	if (f->wire != CK_PB_LEN)
		return fail_at(pb->pos, "a dimension is no number", err);
	ret = ck_pb_enter(pb, f, err);
	while (!ret && (ret = ck_pb_packed(pb, &value, err)) > 0)
		ret = add_dim(t, value, pb->pos, err);
	if (!ret)
		ck_pb_leave(pb);
	return ret;
}

static int read_tensor(struct scan *sc, const struct ck_pb_field *in,
		       struct ck_err *err)
{
	struct ck_pb *pb = &sc->pb;
	struct one *t = &sc->rec.v[sc->rec.nr];
	struct ck_pb_field f;
	int ret;

	if (sc->rec.nr == MAX_TABLE)
		return fail_at(in->off, "a record of more than 3 tensors", err);
	*t = (struct one){ .rank = 0 };
	ret = ck_pb_enter(pb, in, err);
	while (!ret && (ret = ck_pb_next(pb, &f, err)) > 0) {
		ret = 0;
		if (f.number == 1) {
			ret = read_dims(pb, &f, t, err);
		} else if (f.number == 2 && f.wire == CK_PB_LEN) {
			ret = ck_pb_bytes(pb, &f, t->type, MAX_TYPE, err);
			t->type[ret ? 0 : f.len] = '\0';
			t->has_type = true;
		} else if (f.number == 3 && f.wire == CK_PB_LEN) {
			t->off = f.off;
			t->len = f.len;
			t->has_bytes = true;
			if (!ck_range_ok(f.off, f.len, pb->in.size))
				break; /* the last that there is: torn */
		}
	}
	if (!ret && (!t->has_type || !t->has_bytes))
		ret = fail_at(in->off,
			      "expected a tensor with a type and bytes", err);
	if (ret)
		return ret;
	sc->rec.nr++;
	ck_pb_leave(pb);
	return 0;
}

static int read_table(struct scan *sc, const struct ck_pb_field *in,
		      struct ck_err *err)
{
	struct ck_pb_field f;
	int ret = ck_pb_enter(&sc->pb, in, err);

	sc->rec.is_table = sc->tables = true;
	while (!ret && (ret = ck_pb_next(&sc->pb, &f, err)) > 0) {
		ret = 0;
		if (f.number == 1 && f.wire == CK_PB_LEN)
			ret = read_tensor(sc, &f, err);
	}
	if (!ret)
		ck_pb_leave(&sc->pb);
	return ret;
}

static int read_record(struct scan *sc, const struct ck_pb_field *in,
		       struct ck_err *err)
{
	struct record *r = &sc->rec;
	struct ck_pb_field f;
	int ret = ck_pb_enter(&sc->pb, in, err);

	r->nr = 0;
	r->has_name = r->is_table = false;
	while (!ret && (ret = ck_pb_next(&sc->pb, &f, err)) > 0) {
		ret = 0;
		if (f.wire != CK_PB_LEN)
			continue;
		if (f.number == 1) {
			ret = ck_pb_bytes(&sc->pb, &f, r->name, CK_MAX_NAME,
					  err);
			r->name_len = ret ? 0 : f.len;
			r->has_name = true;
		} else if (f.number == 2 && !r->nr) {
			ret = read_tensor(sc, &f, err);
		} else if (f.number == 3 && !r->nr) {
			ret = read_table(sc, &f, err);
		}
		if (sc->pb.pos > sc->pb.in.size)
			break;
	}
	if (!ret && (!r->has_name || !r->nr))
		ret = fail_at(in->off,
			      "expected a record with a name and a tensor",
			      err);
	if (!ret)
		ck_pb_leave(&sc->pb);
	return ret;
}

/* ---- adjacent records of one name ---- */

static void begin(struct scan *sc)
{
	struct pending *p = &sc->pend;

	memcpy(p->name, sc->rec.name, sc->rec.name_len);
	p->name_len = sc->rec.name_len;
	p->any = true;
	p->is_table = sc->rec.is_table;
	p->nr = 0;
	for (unsigned i = 0; i < MAX_TABLE; i++) {
		p->v[i].rows = p->v[i].bytes = 0;
		p->v[i].run.nr = 0;
	}
}

static bool continues(const struct scan *sc)
{
	return sc->pend.any && sc->pend.is_table == sc->rec.is_table &&
	       sc->pend.name_len == sc->rec.name_len &&
	       !memcmp(sc->pend.name, sc->rec.name, sc->rec.name_len);
}

static int extend(struct scan *sc, struct ck_err *err)
{
	struct pending *p = &sc->pend;

	/* 2.0 writes a growing table: the last record has all of it. */
	if (p->is_table && p->nr && p->nr < MAX_TABLE)
		begin(sc);
	p->nr = sc->rec.nr;
	for (unsigned i = 0; i < p->nr; i++) {
		const struct one *t = &sc->rec.v[i];

		if (!ck_vec_reserve(&p->v[i].run, 1))
			return ck_no_memory(err);
		p->v[i].last = *t;
		if (!ck_add_ok(p->v[i].rows, t->rank ? t->dims[0] : 0,
			       &p->v[i].rows) ||
		    !ck_add_ok(p->v[i].bytes, t->len, &p->v[i].bytes))
			return fail_at(t->off, "its size overflows", err);
		if (t->len)
			p->v[i].run.v[p->v[i].run.nr++] =
				(struct mindspore_run){ t->off, t->len };
	}
	return 0;
}

/* Sets @x->fault where the bytes are not those of the shape. */
static void check_size(struct mindspore_set *s, struct ck_extent *x,
		       struct mindspore_held *h, const char *file,
		       const char *type)
{
	uint64_t nr = 1, want;
	ck_auto_str struct ck_str shape = { 0 };

	for (unsigned d = 0; d < x->rank; d++)
		if (!ck_mul_ok(nr, x->shape[d], &nr))
			nr = CK_SIZE_MAX;
	if (ck_mul_ok(nr, ck_dtype_info(x->dtype)->size, &want) &&
	    want == h->bytes)
		return;
	if (x->dtype == CK_DT_BF16 && nr <= CK_SIZE_MAX / 4 &&
	    h->bytes == 4 * nr) {
		h->flags |= MINDSPORE_WIDE;
		if (h->nr_runs > 1)
			x->fault =
				"it is bfloat16 stored as float32, in pieces";
		return;
	}
	ck_str_json_u64(&shape, x->shape, x->rank);
	s->a.mem.failed |= shape.failed;
	x->fault = ck_arena_fmt(
		&s->a.mem,
		"%s has %" PRIu64 " bytes of it, which are not those of %s %s",
		file, h->bytes, type, shape.failed ? "" : shape.v);
}

static int flush_one(struct scan *sc, unsigned i, const char *name, size_t len,
		     struct ck_err *err)
{
	struct mindspore_set *s = sc->s;
	const struct ck_asm_file *file = &s->a.files.v[sc->file];
	struct one *o = &sc->pend.v[i].last;
	size_t nr = sc->pend.v[i].run.nr;
	struct mindspore_held h = {
		.bytes = sc->pend.v[i].bytes,
		.run = ck_arena_copy(&s->a.mem, sc->pend.v[i].run.v,
				     nr * sizeof(*h.run)),
		.nr_runs = (uint32_t)nr,
	};
	struct ck_extent x = { .shape = o->dims,
			       .src = file->src,
			       .dtype = (uint8_t)ck_dtype_by_mindspore(
				       o->type, strlen(o->type)) };

	if (sc->pend.is_table && o->rank)
		o->dims[0] = sc->pend.v[i].rows;
	/* 0-d is [0] with one element up to 2.2, and no dimension since 2.3 */
	if (o->rank == 1 && !o->dims[0] && h.bytes)
		o->rank = 0;
	x.rank = (uint8_t)o->rank;
	if (!strcmp(o->type, "random_op")) {
		h.flags = MINDSPORE_OPAQUE;
	} else if (x.dtype == CK_DT_NONE) {
		x.fault = ck_arena_fmt(&s->a.mem, "%s: its type %s is unknown",
				       file->name, o->type);
	} else if (x.dtype == CK_DT_STR) {
		x.rank = 1;
		o->dims[0] = h.bytes;
	} else {
		check_size(s, &x, &h, file->name, o->type);
	}
	return ck_mindspore_add(s, sc->file, name, len, &x, &h, err);
}

/* Rows of a cache are saved under the parameter's name and a key. */
static size_t cut_key(const char *name, size_t len)
{
	static const char mark[] = ".__param_key__";
	const char *at = memmem(name, len, mark, sizeof(mark) - 1);
	size_t n = at ? (size_t)(at - name) + sizeof(mark) - 1 : len;

	while (n < len && name[n] >= '0' && name[n] <= '9')
		n++;
	return at && n == len ? (size_t)(at - name) : len;
}

static int flush(struct scan *sc, struct ck_err *err)
{
	static const char *const part[] = { "#keys", "#values", "#status" };
	struct pending *p = &sc->pend;
	int ret = 0;

	if (!p->any)
		return 0;
	p->any = false;
	p->name_len = cut_key(p->name, p->name_len);
	if (!p->is_table)
		return flush_one(sc, 0, p->name, p->name_len, err);
	for (unsigned i = 0; i < p->nr && !ret; i++) {
		char name[CK_MAX_NAME + 16];

		memcpy(name, p->name, p->name_len);
		strcpy(name + p->name_len, part[i]);
		ret = flush_one(sc, i, name, p->name_len + strlen(part[i]),
				err);
	}
	return ret;
}

static int take_record(struct scan *sc, struct ck_err *err)
{
	int ret = 0;

	if (!continues(sc)) {
		ret = flush(sc, err);
		begin(sc);
	}
	return ret ? ret : extend(sc, err);
}

static int scan_all(struct scan *sc, struct ck_err *err)
{
	struct ck_pb_field f;
	struct ck_err why;
	uint64_t at = 0;
	int ret;

	while ((ret = ck_pb_next(&sc->pb, &f, &why)) > 0) {
		ret = 0;
		if (f.number == 1 && f.wire == CK_PB_LEN) {
			ret = read_record(sc, &f, &why);
			if (!ret)
				ret = take_record(sc, &why);
		} else if (f.number != 2) {
			ret = ck_fail(&why, EINVAL,
				      "byte %" PRIu64
				      ": expected a record, found field %u",
				      at, f.number);
		}
		if (ret)
			break;
		at = sc->pb.pos;
	}
	if (ret == -EINVAL)
		ret = ck_mindspore_damaged(
			sc->s, sc->file, at,
			at < sc->pb.in.size ? sc->pb.in.size - at : 0, why.msg,
			err);
	else if (ret && err)
		*err = why;
	else if (!ret && sc->pb.pos > sc->pb.in.size)
		sc->s->missing = true;
	return ret ? ret : flush(sc, err);
}

/* ---- the sum ---- */

static bool has_trailer(const unsigned char *at)
{
	return !memcmp(at, "crc_num", 7) && !memcmp(at + 7, "\0\0\0\0\0\0", 6);
}

static int check_crc(struct scan *sc, uint64_t size,
		     const unsigned char *trailer, struct ck_err *err)
{
	const char *excuse = NULL;
	uint32_t crc = 0, want = 0;
	int ret = ck_mindspore_wants_sum(sc->s, sc->file, size, err);

	if (ret <= 0)
		return ret;
	for (int i = 13; i < TRAILER; i++)
		want = want << 8 | trailer[i];
	ret = ck_mindspore_sum(sc->in, 0, size, &crc, err);
	if (ret || crc == want)
		return ret;
	if (sc->tables)
		excuse = "the writer leaves hash tables out of it";
	else if (ck_dir_is_written(sc->s->a.dir,
				   sc->s->a.files.v[sc->file].name))
		excuse = "it is being written, or its mount ended while it was";
	return ck_mindspore_sum_wrong(sc->s, sc->file, crc, want, excuse, err);
}

static int read_source(void *ctx, void *buf, size_t len, uint64_t off,
		       struct ck_err *err)
{
	return ck_source_read(ctx, buf, len, off, err);
}

static void begin_fields(struct ck_pb *pb, struct ck_source *in, uint64_t size)
{
	const struct ck_pb_in pin = { .read = read_source,
				      .ctx = in,
				      .size = size };

	ck_pb_init(pb, &pin, CK_SIZE_MAX);
}

static int scan_and_sum(struct scan *sc, struct ck_err *err)
{
	uint64_t size = (uint64_t)sc->in->st.st_size;
	unsigned char trailer[TRAILER];
	bool sum = false;
	int ret = 0;

	if (size >= TRAILER) {
		ret = ck_source_read(sc->in, trailer, TRAILER, size - TRAILER,
				     err);
		sum = !ret && has_trailer(trailer);
	}
	size -= sum ? TRAILER : 0;
	begin_fields(&sc->pb, sc->in, size);
	if (!ret)
		ret = scan_all(sc, err);
	return ret || !sum ? ret : check_crc(sc, size, trailer, err);
}

int ck_mindspore_read_ckpt(struct mindspore_set *s, uint32_t file,
			   struct ck_source *in, struct ck_err *err)
{
	struct scan *sc = calloc(1, sizeof(*sc));
	int ret;

	if (!sc)
		return ck_no_memory(err);
	sc->s = s;
	sc->in = in;
	sc->file = file;
	ret = scan_and_sum(sc, err);
	for (unsigned i = 0; i < MAX_TABLE; i++)
		free(sc->pend.v[i].run.v);
	free(sc);
	return ret;
}

/*
 * A record's tensor has a type, field 2; what looks like a record in a file
 * of device groups has only numbers.
 */
bool ck_mindspore_is_ckpt(struct ck_source *in)
{
	struct ck_pb_field f;
	struct ck_pb pb;

	begin_fields(&pb, in, (uint64_t)in->st.st_size);
	if (ck_pb_next(&pb, &f, NULL) <= 0 || f.number != 1 ||
	    f.wire != CK_PB_LEN || ck_pb_enter(&pb, &f, NULL) ||
	    ck_pb_next(&pb, &f, NULL) <= 0 || f.number != 1 ||
	    f.wire != CK_PB_LEN || ck_pb_next(&pb, &f, NULL) <= 0 ||
	    f.wire != CK_PB_LEN || (f.number != 2 && f.number != 3))
		return false;
	if (f.number == 3)
		return true;
	if (ck_pb_enter(&pb, &f, NULL))
		return false;
	for (unsigned n = 0; n <= CK_MAX_RANK; n++) {
		if (ck_pb_next(&pb, &f, NULL) <= 0)
			return false;
		if (f.number == 2)
			return f.wire == CK_PB_LEN;
		if (f.number != 1)
			return false;
	}
	return false;
}
