/* SPDX-License-Identifier: Apache-2.0 */
/* le.h - little-endian integers at any address */
#ifndef CK_LE_H
#define CK_LE_H

#include <endian.h>
#include <stdint.h>
#include <string.h>

#define CK_LE_GET(bits)                                          \
	static inline uint##bits##_t ck_le##bits(const void *at) \
	{                                                        \
		uint##bits##_t v;                                \
		memcpy(&v, at, sizeof(v));                       \
		return le##bits##toh(v);                         \
	}
CK_LE_GET(16)
CK_LE_GET(32)
CK_LE_GET(64)
#undef CK_LE_GET

#define CK_LE_PUT(bits)                                                  \
	static inline void ck_le##bits##_put(void *at, uint##bits##_t v) \
	{                                                                \
		v = htole##bits(v);                                      \
		memcpy(at, &v, sizeof(v));                               \
	}
CK_LE_PUT(32)
CK_LE_PUT(64)
#undef CK_LE_PUT

#endif
