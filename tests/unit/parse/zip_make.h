/* SPDX-License-Identifier: Apache-2.0 */
/*
 * zip_make.h - archives as torch.save makes them, right or wrong
 *
 * A test changes fields of a member, or bytes of the result.
 */
#ifndef TEST_ZIP_MAKE_H
#define TEST_ZIP_MAKE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct zip_member {
	const char *name;
	const void *bytes;
	size_t len;
	/* Put in place of the truth where not 0. */
	const char *local_name;
	uint32_t local_size, local_crc, size, off;
	uint16_t local_flags, flags, local_method, method;
	uint16_t padding; /* of the local extra field */
};

struct zip {
	uint8_t v[1 << 16];
	size_t len;
	size_t dir_off, end64_off, end_off;
	struct {
		size_t local, payload, entry;
	} at[16];
	bool plain; /* no 64-bit end record */
};

void zip_make(struct zip *z, const struct zip_member *m, unsigned nr);
void zip_put16(struct zip *z, size_t at, uint16_t v);
void zip_put32(struct zip *z, size_t at, uint32_t v);
void zip_put64(struct zip *z, size_t at, uint64_t v);

#endif
