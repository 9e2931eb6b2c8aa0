/* SPDX-License-Identifier: Apache-2.0 */
/*
 * nccl.c - ranks whose slots lie in memory of CUDA devices, moved by NCCL
 *
 * What is said goes by sockets, as by tcp, which also tell of a death; NCCL moves
 * what was read, by a communicator and a stream of its own.  Nothing of NCCL ends
 * by itself where a rank is gone: so every wait looks at the sockets, at the time and
 * at what NCCL says, and whatever ends it has NCCL abort.
 *
 * libnccl.so.2 is opened when a communicator of this kind is made, and never closed:
 * a program that has loaded one, as PyTorch does, has that one.
 */
#include "core/comm/comm_priv.h"
#include "core/comm/nccl_abi.h"

#include "core/base/auto.h"
#include "core/base/check.h"
#include "core/base/clock.h"
#include "core/device/device.h"
#include "core/device/vendor.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define LIBRARY "libnccl.so.2"
#define GAP ((size_t)64 << 10) /* is sent sooner than a message more */
#define SHORT_NS INT64_C(50000) /* between looks, for as long as SOON_NS */
#define LONG_NS INT64_C(1000000)
#define SOON_NS INT64_C(5000000)

#define FIELD(ret, name, args) ret(*name) args;

static struct {
	pthread_mutex_t lock;
	bool ready;
	int version;
	CK_NCCL_CALLS(FIELD)
} nc = { .lock = PTHREAD_MUTEX_INITIALIZER };

struct ck_comm_far {
	struct ck_device *dev;
	uint64_t mem; /* slots: by number, then by rank */
	struct ck_nccl_id id;
	bool has_id, pinned;
	struct ncclComm *nccl; /* NULL: none */
	void *stream, *in, *out; /* of NCCL, and of copies */
	/* Of aborting, which is not waited for longer than for an answer: */
	pthread_mutex_t lock;
	pthread_cond_t changed;
	bool aborted, lost;
};

/* ---- the library ---- */

static int load(struct ck_err *err)
{
#define NAME(ret, name, args) #name,
#define PLACE(ret, name, args) (void **)&nc.name,
	static const char *const names[] = { CK_NCCL_CALLS(NAME) NULL };
	void **const to[] = { CK_NCCL_CALLS(PLACE) };
	int ret = ck_vendor_open(LIBRARY, names, to, NULL, err);

	if (ret)
		return ret;
	if (nc.ncclGetVersion(&nc.version))
		return ck_fail(err, ENODEV, LIBRARY ": ncclGetVersion fails");
	if (nc.version < CK_NCCL_OLDEST)
		return ck_fail(err, ENODEV,
			       LIBRARY ": it is version %d, expected %d "
				       "(2.18) and newer",
			       nc.version, CK_NCCL_OLDEST);
	return 0;
}

int ck_comm_nccl_version(struct ck_err *err)
{
	int ret = 0;

	pthread_mutex_lock(&nc.lock);
	if (!nc.ready)
		ret = load(err);
	nc.ready = !ret;
	pthread_mutex_unlock(&nc.lock);
	return ret ? ret : nc.version;
}

static int failed(struct ncclComm *comm, unsigned code, const char *call,
		  struct ck_err *err)
{
	const char *last = comm ? nc.ncclGetLastError(comm) : NULL;

	return ck_fail(err, EREMOTEIO, "%s: %s (%u)%s%.200s", call,
		       nc.ncclGetErrorString(code), code,
		       last && *last ? ": " : "", last ? last : "");
}

/* ---- waiting ---- */

static int state_of(struct ck_comm_far *f, bool *busy, struct ck_err *err)
{
	unsigned state = CK_NCCL_SUCCESS;
	unsigned code = nc.ncclCommGetAsyncError(f->nccl, &state);

	*busy = !code && state == CK_NCCL_IN_PROGRESS;
	if (!code && !*busy)
		code = state;
	return code ? failed(f->nccl, code, "NCCL", err) : 0;
}

/* Until NCCL has done what was asked of it, and then @event (or NULL) was. */
static int await(struct ck_comm *c, void *event, struct ck_err *err)
{
	struct ck_comm_far *f = c->far;
	const struct ck_device_ops *ops = f->dev->ops;
	int64_t begun = ck_now_ns();
	int64_t until = begun + c->timeout_ms * INT64_C(1000000);

	for (;;) {
		bool busy;
		int ret = state_of(f, &busy, err);
		int64_t now = ck_now_ns();

		if (ret)
			return ret;
		ret = busy || !event ? !busy :
				       ops->is_done(f->dev->dev, event, err);
		if (ret)
			return CK_MIN(ret, 0);
		if (now >= until)
			return ck_fail(err, ETIMEDOUT,
				       "not all of %u ranks answered by NCCL "
				       "within %d.%03d s",
				       c->ranks, c->timeout_ms / 1000,
				       c->timeout_ms % 1000);
		ret = ck_comm_watch(
			c, now - begun < SOON_NS ? SHORT_NS : LONG_NS, err);
		if (ret)
			return ret;
	}
}

/* It may hang, as nothing else here may: by a thread, which is left then. */
static void *abort_it(void *arg)
{
	struct ck_comm_far *f = arg;
	bool entered = !f->dev->ops->enter(f->dev->dev, NULL);

	nc.ncclCommAbort(f->nccl);
	if (entered)
		f->dev->ops->leave(f->dev->dev);
	pthread_mutex_lock(&f->lock);
	f->aborted = true;
	pthread_cond_signal(&f->changed);
	pthread_mutex_unlock(&f->lock);
	return NULL;
}

static void end(struct ck_comm *c)
{
	struct ck_comm_far *f = c->far;
	struct timespec until =
		ck_deadline(CLOCK_REALTIME, c->timeout_ms * INT64_C(1000000));
	sigset_t all, was;
	pthread_t thread;
	bool made, over;

	pthread_mutex_lock(&f->lock); /* a thread that was left may end now */
	over = !f->nccl || f->aborted || f->lost;
	pthread_mutex_unlock(&f->lock);
	if (over)
		return;
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &was);
	made = !pthread_create(&thread, NULL, abort_it, f);
	pthread_sigmask(SIG_SETMASK, &was, NULL);
	pthread_mutex_lock(&f->lock);
	while (made && !f->aborted && !f->lost)
		f->lost = pthread_cond_timedwait(&f->changed, &f->lock,
						 &until) == ETIMEDOUT &&
			  !f->aborted;
	f->lost = f->lost || !made;
	pthread_mutex_unlock(&f->lock);
	if (made && f->lost)
		pthread_detach(thread);
	else if (made)
		pthread_join(thread, NULL);
}

/* ---- coming and going ---- */

static int open_far(struct ck_comm *c, const struct ck_comm_in *in,
		    struct ck_err *err)
{
	struct ck_comm_far *f;
	int ret;

	if (!in->device || !*in->device)
		return ck_fail(err, EINVAL,
			       "a communicator of kind nccl: expected the "
			       "device, as cuda:0, in whose memory it moves");
	f = calloc(1, sizeof(*f));
	if (!f)
		return ck_no_memory(err);
	c->far = f;
	pthread_mutex_init(&f->lock, NULL);
	pthread_cond_init(&f->changed, NULL);
	f->has_id = in->id;
	if (in->id)
		memcpy(&f->id, in->id, sizeof(f->id));
	ret = ck_device_open(&f->dev, in->device, err);
	if (!ret && !f->dev->ops->enter)
		ret = ck_fail(err, EINVAL,
			      "device %s: NCCL moves between CUDA devices only",
			      f->dev->name);
	if (!ret)
		ret = ck_comm_nccl_version(err);
	return CK_MIN(ret, 0);
}

static void close_far(struct ck_comm *c)
{
	struct ck_comm_far *f = c->far;
	void *const streams[] = { f->stream, f->in, f->out };

	end(c);
	if (f->lost) { /* it may still use what it was given */
		c->peer[c->rank].slots = NULL;
		return;
	}
	for (unsigned i = 0; i < CK_ARRAY_LEN(streams); i++)
		if (streams[i])
			f->dev->ops->stream_free(f->dev->dev, streams[i]);
	if (f->mem)
		ck_device_free(f->dev, f->mem, NULL);
	if (f->pinned)
		f->dev->ops->unpin(f->dev->dev, c->peer[c->rank].slots);
	ck_device_close(f->dev);
	pthread_cond_destroy(&f->changed);
	pthread_mutex_destroy(&f->lock);
	free(f);
}

/* What each says before NCCL is asked for anything. */
struct word {
	int32_t version, has_id;
	struct ck_nccl_id id;
};

/* Of what differs all ranks say the same. */
static int compare(const struct ck_comm *c, const struct word *all,
		   struct ck_err *err)
{
	for (unsigned i = 1; i < c->ranks; i++) {
		if (all[i].version != all[0].version)
			return ck_fail(err, EPROTO,
				       "rank %u of %u has NCCL %d, rank 0 has "
				       "%d: expected the same of all",
				       i, c->ranks, all[i].version,
				       all[0].version);
		if (all[i].has_id != all[0].has_id ||
		    (all[0].has_id &&
		     memcmp(&all[i].id, &all[0].id, sizeof(all[0].id))))
			return ck_fail(err, EPROTO,
				       "rank %u of %u was given another id of "
				       "NCCL than rank 0",
				       i, c->ranks);
	}
	return 0;
}

static int agree(struct ck_comm *c, struct ck_err *err)
{
	struct ck_comm_far *f = c->far;
	ck_auto_free struct word *all = calloc(c->ranks, sizeof(*all));
	struct word mine = { nc.version, f->has_id, f->id };
	unsigned code = 0;
	int ret;

	if (!all)
		return ck_no_memory(err);
	if (!f->has_id && !c->rank)
		code = nc.ncclGetUniqueId(&mine.id);
	if (code)
		return failed(NULL, code, "ncclGetUniqueId", err);
	c->connected = true; /* its sockets are */
	ret = ck_comm_gather(c, &mine, all, sizeof(mine), err);
	if (!ret)
		ret = compare(c, all, err);
	if (!ret)
		f->id = all[0].id;
	return ret;
}

static int start(struct ck_comm *c, struct ck_err *err)
{
	struct ck_comm_far *f = c->far;
	struct ck_nccl_config config = {
		.size = sizeof(config),
		.magic = CK_NCCL_MAGIC,
		.version = CK_NCCL_OLDEST,
		.blocking = 0,
		.cga_size = CK_NCCL_UNSET,
		.min_ctas = CK_NCCL_UNSET,
		.max_ctas = CK_NCCL_UNSET,
		.split_share = CK_NCCL_UNSET,
	};
	unsigned code;
	int ret = f->dev->ops->enter(f->dev->dev, err);

	if (ret)
		return ret;
	code = nc.ncclCommInitRankConfig(&f->nccl, (int)c->ranks, f->id,
					 (int)c->rank, &config);
	if (code && code != CK_NCCL_IN_PROGRESS)
		ret = failed(NULL, code, "ncclCommInitRankConfig", err);
	else
		ret = await(c, NULL, err);
	f->dev->ops->leave(f->dev->dev);
	return ret;
}

static int make_slots(struct ck_comm *c, struct ck_err *err)
{
	struct ck_comm_far *f = c->far;
	const struct ck_device_ops *ops = f->dev->ops;
	size_t own = c->block * CK_COMM_SLOTS;
	unsigned char *mem = ck_comm_room(c, -1, PROT_READ | PROT_WRITE, err);
	int ret;

	c->peer[c->rank].slots = mem;
	if (!mem)
		return -ENOMEM;
	/* Where it is refused copies are slower, and as good. */
	f->pinned = !ops->pin(f->dev->dev, mem, own, NULL);
	ret = ck_device_alloc(f->dev, own * c->ranks, &f->mem, err);
	if (!ret)
		ret = ops->stream(f->dev->dev, &f->stream, err);
	if (!ret)
		ret = ops->stream(f->dev->dev, &f->in, err);
	if (!ret)
		ret = ops->stream(f->dev->dev, &f->out, err);
	return ret;
}

static int slots(struct ck_comm *c, struct ck_err *err)
{
	ck_auto_free char *all = calloc(c->ranks, 1);
	int ret = all ? agree(c, err) : ck_no_memory(err);

	if (!ret)
		ret = make_slots(c, err);
	if (!ret)
		ret = start(c, err);
	/* Who is done goes on, and may end, when all are. */
	return ret ? ret : ck_comm_gather(c, "", all, 1, err);
}

/* ---- bytes ---- */

const struct ck_device *ck_comm_device(const struct ck_comm *c)
{
	return c->far ? c->far->dev : NULL;
}

uint64_t ck_comm_place(const struct ck_comm *c, unsigned rank, unsigned nr)
{
	if (!c->far)
		return (uintptr_t)ck_comm_slot(c, rank, nr);
	return c->far->mem + ((uint64_t)nr * c->ranks + rank) * c->block;
}

/* Queued on @stream; then nobody waits, or @other stream does. */
static int copy(struct ck_comm_far *f, const struct ck_device_copy *copy,
		enum ck_device_way way, void *stream, void *other,
		struct ck_err *err)
{
	const struct ck_device_ops *ops = f->dev->ops;
	void *dev = f->dev->dev, *event;
	int ret = ops->copy(dev, copy, 1, way, stream, err);

	if (!ret)
		ret = ops->event(dev, stream, &event, err);
	if (ret)
		return ret;
	ret = other ? ops->after(dev, other, event, err) :
		      ops->wait(dev, event, err);
	ops->event_free(dev, event);
	return ret;
}

static int put(struct ck_comm *c, unsigned nr, uint64_t len, struct ck_err *err)
{
	const struct ck_device_copy it = {
		.dst = ck_comm_place(c, c->rank, nr),
		.src = (uintptr_t)ck_comm_slot(c, c->rank, nr),
		.run = len,
	};

	return len ? copy(c->far, &it, CK_DEVICE_IN, c->far->in, c->far->stream,
			  err) :
		     0;
}

static int get(struct ck_comm *c, void *to, uint64_t from, uint64_t len,
	       struct ck_err *err)
{
	const struct ck_device_copy it = { .dst = (uintptr_t)to,
					   .src = from,
					   .run = len };

	return copy(c->far, &it, CK_DEVICE_OUT, c->far->out, NULL, err);
}

/* Messages to or from a rank, alike on both sides: with gaps that are short. */
static unsigned queue(struct ck_comm_far *f, const struct ck_comm_bytes *b,
		      unsigned rank, bool sends)
{
	unsigned code = 0;

	for (unsigned i = 0, n; i < b->nr && b->len && !code; i += n) {
		unsigned char *lo = b->v[i].iov_base;
		unsigned char *hi = lo + b->v[i].iov_len;

		for (n = 1; i + n < b->nr; n++) {
			unsigned char *at = b->v[i + n].iov_base;

			if (at < hi || (size_t)(at - hi) > GAP)
				break;
			hi = at + b->v[i + n].iov_len;
		}
		code = sends ? nc.ncclSend(lo, (size_t)(hi - lo), CK_NCCL_INT8,
					   (int)rank, f->nccl, f->stream) :
			       nc.ncclRecv(lo, (size_t)(hi - lo), CK_NCCL_INT8,
					   (int)rank, f->nccl, f->stream);
	}
	return code;
}

static unsigned queue_all(struct ck_comm *c, unsigned nr,
			  const struct ck_comm_bytes *send,
			  const struct ck_comm_bytes *recv, bool whole)
{
	struct ck_comm_far *f = c->far;
	unsigned code = nc.ncclGroupStart(), last;

	if (code)
		return code;
	if (whole)
		code = nc.ncclAllGather(
			(void *)(uintptr_t)ck_comm_place(c, c->rank, nr),
			(void *)(uintptr_t)ck_comm_place(c, 0, nr), c->block,
			CK_NCCL_INT8, f->nccl, f->stream);
	for (unsigned i = 0; i < c->ranks && !whole && !code; i++) {
		if (i == c->rank)
			continue;
		code = queue(f, &send[i], i, true);
		if (!code)
			code = queue(f, &recv[i], i, false);
	}
	last = nc.ncclGroupEnd();
	return code ? code : last;
}

static int move(struct ck_comm *c, unsigned nr, struct ck_comm_bytes *send,
		struct ck_comm_bytes *recv, bool whole, struct ck_err *err)
{
	struct ck_comm_far *f = c->far;
	const struct ck_device_ops *ops = f->dev->ops;
	void *event = NULL;
	unsigned code;
	int ret = ops->enter(f->dev->dev, err);

	if (ret)
		return ret;
	code = queue_all(c, nr, send, recv, whole);
	if (code && code != CK_NCCL_IN_PROGRESS)
		ret = failed(f->nccl, code, "NCCL", err);
	else
		ret = await(c, NULL, err); /* it is in the stream */
	if (!ret)
		ret = ops->event(f->dev->dev, f->stream, &event, err);
	if (!ret)
		ret = await(c, event, err);
	if (event)
		ops->event_free(f->dev->dev, event);
	ops->leave(f->dev->dev);
	return ret;
}

const struct ck_comm_ops ck_comm_nccl = {
	.kind = "nccl",
	.open = open_far,
	.listen = ck_comm_tcp_listen,
	.parse = ck_comm_tcp_parse,
	.greet = ck_comm_tcp_greet,
	.slots = slots,
	.put = put,
	.get = get,
	.move = move,
	.end = end,
	.close = close_far,
};
