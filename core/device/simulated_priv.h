/* SPDX-License-Identifier: Apache-2.0 */
/*
 * simulated_priv.h - the simulated device and its parts
 *
 *	simulated.c         what it is told to do, and its memory
 *	simulated_stream.c  streams, copies, events
 */
#ifndef CK_SIMULATED_PRIV_H
#define CK_SIMULATED_PRIV_H

#include "core/device/device.h"

#include <pthread.h>

enum sim_op {
	SIM_OPEN,
	SIM_PIN,
	SIM_ALLOC,
	SIM_FREE,
	SIM_STREAM,
	SIM_COPY,
	SIM_EVENT,
	SIM_WAIT,
	SIM_OPS
};
struct sim_alloc {
	struct sim_alloc *next;
	uint64_t at, len;
	size_t mapped;
	unsigned char *bytes;
};

struct sim {
	pthread_mutex_t lock;
	struct sim_alloc *allocs;
	uint64_t memory, used; /* memory 0: as much as there is */
	uint64_t rate; /* 0: no limit */
	int64_t late_ns;
	int64_t busy_until[3]; /* a way each */
	enum sim_op fail_op;
	uint64_t fail_at, fail_times, fail_code; /* fail_at 0: none */
	uint64_t calls[SIM_OPS];
	struct ck_err broken; /* code 0: it is not */
};

/* Counts the call; -errno: it is to fail, or the device is broken. */
int ck_sim_call(struct sim *sim, enum sim_op op, struct ck_err *err);
/* From now on all calls fail. */
void ck_sim_break(struct sim *sim, const char *why, uint64_t at);
/* Where bytes [at, at + len) of the device are; NULL: not in one allocation. */
unsigned char *ck_sim_bytes(struct sim *sim, uint64_t at, uint64_t len);

/* simulated_stream.c, as struct ck_device_ops has them */
int ck_sim_stream(void *dev, void **out, struct ck_err *err);
void ck_sim_stream_free(void *dev, void *stream);
int ck_sim_copy(void *dev, const struct ck_device_copy *copy, size_t nr,
		enum ck_device_way way, void *stream, struct ck_err *err);
int ck_sim_event(void *dev, void *stream, void **out, struct ck_err *err);
int ck_sim_wait(void *dev, void *event, struct ck_err *err);
int ck_sim_is_done(void *dev, void *event, struct ck_err *err);
/* Not of devices: @call, for tests, when the stream has come there. */
int ck_sim_call_in(void *stream, void (*call)(void *arg), void *arg);
int ck_sim_after(void *dev, void *stream, void *event, struct ck_err *err);
void ck_sim_event_free(void *dev, void *event);

#endif
