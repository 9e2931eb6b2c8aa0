/* SPDX-License-Identifier: Apache-2.0 */
/*
 * stepkit.h - a real directory of checkpoints that come and go
 *
 * Each is step-NR/ with a model.safetensors of one tensor "t", four bytes.  It
 * appears and goes by a rename, as a careful trainer does it.  Trouble aborts.
 */
#ifndef STEPKIT_H
#define STEPKIT_H

struct stepkit {
	char dir[64];
};

void stepkit_init(struct stepkit *k);
void stepkit_free(struct stepkit *k);
/* @bytes: the tensor's four. */
void stepkit_put(const struct stepkit *k, unsigned nr, const char *bytes);
void stepkit_drop(const struct stepkit *k, unsigned nr);
/* Writes another file into step @nr. */
void stepkit_write(const struct stepkit *k, unsigned nr, const char *file,
		   const char *text);
/*
 * The same as stepkit_put(), folders below step @nr and with a tensor @name: by
 * a rename, or the file that is there is written in place.
 */
void stepkit_put_below(const struct stepkit *k, unsigned nr, char name,
		       const char *bytes, int in_place);

#endif
