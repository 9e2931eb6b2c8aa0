/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fuzz_image - bytes that claim to be a catalog
 *
 * The first byte says what the rest is: a catalog as it is, or what to write
 * where into one of the samples, so that the fuzzer gets past the head.
 */
#include "core/base/le.h"
#include "core/catalog/catalog_priv.h"
#include "tests/lib/imagewalk.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* An edit: where (3 bytes), how many bytes of the value, the value. */
enum { EDIT = 12 };

static void edit(unsigned char *img, size_t len, const uint8_t *data,
		 size_t size)
{
	for (; size >= EDIT; data += EDIT, size -= EDIT) {
		size_t at = (ck_le32(data) & 0xffffff) % len;
		size_t nr = 1 + data[3] % 8;

		if (nr > len - at)
			nr = len - at;
		memcpy(img + at, data + 4, nr);
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static unsigned char *sample[IMAGEWALK_SAMPLES];
	static size_t len[IMAGEWALK_SAMPLES];
	unsigned kind;
	unsigned char *bytes;
	struct ck_catalog img;
	size_t n;

	if (!size)
		return 0;
	kind = data[0] % (IMAGEWALK_SAMPLES + 1);
	if (kind < IMAGEWALK_SAMPLES && !sample[kind])
		sample[kind] = imagewalk_sample(kind, &len[kind]);
	n = kind < IMAGEWALK_SAMPLES ? len[kind] : size - 1;
	bytes = malloc(n ? n : 1);
	if (kind < IMAGEWALK_SAMPLES) {
		memcpy(bytes, sample[kind], n);
		edit(bytes, n, data + 1, size - 1);
	} else {
		memcpy(bytes, data + 1, n);
	}
	if (n >= sizeof(struct ck_catalog_head) &&
	    !ck_catalog_check(&img, bytes, n, NULL))
		imagewalk(&img);
	free(bytes);
	return 0;
}
