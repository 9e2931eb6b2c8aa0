/* SPDX-License-Identifier: Apache-2.0 */
/* dump_priv.h - what the files of the dump share; private to catalog/ */
#ifndef CK_DUMP_PRIV_H
#define CK_DUMP_PRIV_H

#include "core/catalog/dump.h"

/* "key": "the string", or null where there is none. */
void ck_dump_key(struct ck_str *out, const char *key,
		 const struct ck_catalog *img, uint32_t ref);
bool ck_dump_next_problem(const struct ck_catalog *img, struct ck_dump_pos *pos,
			  struct ck_str *out);
bool ck_dump_next_line(const struct ck_catalog *img, struct ck_dump_pos *pos,
		       struct ck_str *out);

#endif
