/* SPDX-License-Identifier: Apache-2.0 */
/*
 * saves.h - several saves of MindSpore in one folder, each a step
 *
 *   rank_0/CKP-1_32.ckpt rank_0/CKP-2_32.ckpt    rank_1/..
 *
 * Told by names alone, so that a listing opens nothing.  Files that belong to
 * one save but are called differently (net.ckpt, optimizer.ckpt) are no steps:
 * names must have an epoch and a step, or differ in their numbers only.
 */
#ifndef CK_MINDSPORE_SAVES_H
#define CK_MINDSPORE_SAVES_H

#include "core/format/saves.h"

extern const struct ck_format_saves ck_ms_saves;

#endif
