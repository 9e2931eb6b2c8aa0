/* SPDX-License-Identifier: Apache-2.0 */
/* lib.h - what the files of the library share; see unshard.h */
#ifndef CK_LIB_H
#define CK_LIB_H

#include "core/ckpt/ckpt.h"
#include "core/lib/parser.h"
#include "core/lib/unshard.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <sys/types.h>

struct unshard_ctx {
	_Atomic unsigned refs; /* of who made it, and of what was opened */
	pid_t pid; /* whose it is; see ck_lib_alive() */
	uint32_t threads, local_ranks; /* 0: not said */
	char *engine, *spool; /* or NULL */
	char *parser;
	pthread_mutex_t lock; /* of making the pool */
	struct ck_load_pool *pool; /* or NULL */
	uint64_t ring, chunk; /* bytes; 0: not said */
	uint32_t depth;
	struct ck_lib_devices *devices; /* or NULL; under the lock */
};

struct unshard_ckpt {
	_Atomic unsigned refs;
	unshard_ctx *ctx;
	struct ck_ckpt *ck; /* what was asked for: perhaps a view of base */
	struct ck_ckpt *base; /* what the files hold */
	struct ck_opts opts;
	struct ck_parser *items; /* NULL: in process, or there are none */
	int catalog_fd; /* for it; or -1 */
	unsigned depth; /* how far below the path it was found */
};

/* -ECHILD with a line where this is a child of the process that made @ctx. */
int ck_lib_alive(const unshard_ctx *ctx, unshard_error *err);
bool ck_lib_is_child(const unshard_ctx *ctx);
void ck_lib_ctx_unref(unshard_ctx *ctx);

/* Sets @err (or NULL) and returns -@code. */
int ck_lib_fail(unshard_error *err, int code, const char *fmt, ...)
	__attribute__((format(printf, 3, 4), cold));
/* The same of what core says; @ret, which is not 0, is returned. */
int ck_lib_failed(unshard_error *err, int ret, const struct ck_err *why);

/* And of tensor number @tensor, which there may not be. */
int ck_lib_failed_of(unshard_error *err, int ret, const struct ck_err *why,
		     const struct ck_catalog *img, uint32_t tensor);

struct ck_device;
/* Device @nr; NULL where that is the host. */
int ck_lib_device(unshard_ctx *ctx, int32_t nr, struct ck_device **out,
		  struct ck_err *err);
struct ck_ring;
/* Of device @nr; NULL where that is the host. */
int ck_lib_ring(unshard_ctx *ctx, int32_t nr, struct ck_ring **out,
		struct ck_err *err);
/* None is left; what nobody asks for any more. */
void ck_lib_devices_free(struct ck_lib_devices *all);
struct ck_str;
/* JSON: "devices", and why another is not there. */
void ck_lib_devices_json(unshard_ctx *ctx, struct ck_str *out);

/* JSON: what every element type is called, and who else has it. */
void ck_lib_dtypes(struct ck_str *out);

/* @ret of a put(), with its line where it is not 0; returned. */
int ck_lib_put_ended(unshard_error *err, int ret);

struct ck_load_item;
/* What it says, which is checked but for its box; @out points into it. */
int ck_lib_item(const unshard_item *item, struct ck_load_item *out,
		struct ck_err *err);

struct ck_load_in;
/* Puts it and what all have to agree on into @in; held until part(). */
void ck_lib_join(unshard_comm *comm, const unshard_ckpt *ck,
		 struct ck_load_in *in);
/* NULL: nothing. */
void ck_lib_part(unshard_comm *comm);

/*
 * The field @field of a struct that a caller filled, whose size comes first;
 * 0 where he knows of none.  @p may be NULL.
 */
#define CK_LIB_GET(p, field)                                     \
	((p) && (p)->size >= offsetof(__typeof__(*(p)), field) + \
					 sizeof((p)->field) ?    \
		 (p)->field :                                    \
		 (__typeof__((p)->field))0)

/* Element @i of an array of such structs. */
#define CK_LIB_AT(v, i) \
	((__typeof__(v))(const void *)((const char *)(v) + (i) * (v)->size))

#endif
