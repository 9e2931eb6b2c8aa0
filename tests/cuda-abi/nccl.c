/* SPDX-License-Identifier: Apache-2.0 */
/*
 * nccl.c - core/comm/nccl_abi.h against a real nccl.h; only compiled, twice: calls and
 * numbers, and with -DLAYOUT the structs
 */
#include <nccl.h>

#ifndef LAYOUT
#define CK_NCCL_TYPES
#define CK_NCCL_RESULT ncclResult_t
#define CK_NCCL_TYPE ncclDataType_t
#define CK_NCCL_ID ncclUniqueId
#define CK_NCCL_CONFIG ncclConfig_t
#endif
#include "core/comm/nccl_abi.h"

#define IS(ours, theirs) _Static_assert((int)(ours) == (int)(theirs), #ours)

#ifndef LAYOUT
/* Each is there by this name, and to declare it as we do is no conflict. */
#define THERE(ret, name, args) extern __typeof__(name) *const there_##name;
#define AGAIN(ret, name, args) ret name args;
CK_NCCL_CALLS(THERE)
CK_NCCL_CALLS(AGAIN)
_Static_assert(sizeof(ncclResult_t) == sizeof(unsigned), "ncclResult_t");
_Static_assert((ncclResult_t)-1 > 0, "ncclResult_t is unsigned");
_Static_assert(sizeof(ncclDataType_t) == sizeof(unsigned), "ncclDataType_t");

IS(CK_NCCL_SUCCESS, ncclSuccess);
IS(CK_NCCL_IN_PROGRESS, ncclInProgress);
IS(CK_NCCL_INT8, ncclInt8);
IS(CK_NCCL_UNSET, NCCL_CONFIG_UNDEF_INT);
IS(CK_NCCL_MAGIC, NCCL_API_MAGIC);
IS(CK_NCCL_OLDEST, NCCL_VERSION(2, 18, 0));
_Static_assert(NCCL_VERSION_CODE >= CK_NCCL_OLDEST, "newer than the oldest");
#else
_Static_assert(sizeof(ncclConfig_t) >= sizeof(struct ck_nccl_config),
	       "it grows");
#define AT(a, b)                                                           \
	IS(offsetof(struct ck_nccl_config, a), offsetof(ncclConfig_t, b)); \
	IS(sizeof(((struct ck_nccl_config *)0)->a),                        \
	   sizeof(((ncclConfig_t *)0)->b))

IS(sizeof(struct ck_nccl_id), sizeof(ncclUniqueId));
IS(_Alignof(struct ck_nccl_id), _Alignof(ncclUniqueId));
AT(size, size);
AT(magic, magic);
AT(version, version);
AT(blocking, blocking);
AT(cga_size, cgaClusterSize);
AT(min_ctas, minCTAs);
AT(max_ctas, maxCTAs);
AT(net, netName);
AT(split_share, splitShare);
#endif
