/* SPDX-License-Identifier: Apache-2.0 */
/*
 * nccl_abi.h - what of NCCL is called, in declarations of our own
 *
 * make check-cuda-abi compares them with nccl.h of CUDA 12 and 13, and looks for each
 * call in the libnccl.so.2 of both.
 */
#ifndef CK_NCCL_ABI_H
#define CK_NCCL_ABI_H

#include <limits.h>
#include <stddef.h>

enum { CK_NCCL_SUCCESS = 0, CK_NCCL_IN_PROGRESS = 7 };
enum { CK_NCCL_INT8 = 0 };
#define CK_NCCL_MAGIC 0xcafebeefu
#define CK_NCCL_UNSET INT_MIN
#define CK_NCCL_OLDEST 21800 /* 10000 * major + 100 * minor + patch */

struct ncclComm;
struct CUstream_st;

#ifndef CK_NCCL_TYPES /* who compares has NCCL's own */
struct ck_nccl_id {
	char bytes[128];
};
/* As of CK_NCCL_OLDEST, which it says: what newer ones have behind it is unset. */
struct ck_nccl_config {
	size_t size;
	unsigned magic, version;
	int blocking, cga_size, min_ctas, max_ctas;
	const char *net;
	int split_share;
};
#define CK_NCCL_RESULT unsigned
#define CK_NCCL_TYPE unsigned
#define CK_NCCL_ID struct ck_nccl_id
#define CK_NCCL_CONFIG struct ck_nccl_config
#endif

/* F(result, name, arguments) */
#define CK_NCCL_CALLS(F)                                                \
	F(CK_NCCL_RESULT, ncclGetVersion, (int *version))               \
	F(CK_NCCL_RESULT, ncclGetUniqueId, (CK_NCCL_ID * id))           \
	F(CK_NCCL_RESULT, ncclCommInitRankConfig,                       \
	  (struct ncclComm * *comm, int ranks, CK_NCCL_ID id, int rank, \
	   CK_NCCL_CONFIG *config))                                     \
	F(CK_NCCL_RESULT, ncclCommGetAsyncError,                        \
	  (struct ncclComm * comm, CK_NCCL_RESULT * state))             \
	F(CK_NCCL_RESULT, ncclCommAbort, (struct ncclComm * comm))      \
	F(const char *, ncclGetErrorString, (CK_NCCL_RESULT result))    \
	F(const char *, ncclGetLastError, (struct ncclComm * comm))     \
	F(CK_NCCL_RESULT, ncclGroupStart, (void))                       \
	F(CK_NCCL_RESULT, ncclGroupEnd, (void))                         \
	F(CK_NCCL_RESULT, ncclSend,                                     \
	  (const void *mem, size_t nr, CK_NCCL_TYPE type, int to,       \
	   struct ncclComm *comm, struct CUstream_st *stream))          \
	F(CK_NCCL_RESULT, ncclRecv,                                     \
	  (void *mem, size_t nr, CK_NCCL_TYPE type, int from,           \
	   struct ncclComm *comm, struct CUstream_st *stream))          \
	F(CK_NCCL_RESULT, ncclAllGather,                                \
	  (const void *from, void *to, size_t nr, CK_NCCL_TYPE type,    \
	   struct ncclComm *comm, struct CUstream_st *stream))

#endif
