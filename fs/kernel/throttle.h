/* SPDX-License-Identifier: Apache-2.0 */
/*
 * throttle.h - how many workers wait at the device while large writes come
 *
 * The kernel gives a request to the worker that has waited longest.  Of eight
 * workers each comes with a cold buffer, and wakes up on the processor where
 * it ran last, whoever runs there now.  So while large writes are all that
 * comes, one worker more than there are writers goes to the device, and no
 * more than there are processors; the others are parked.  And where there is
 * a writer for each processor, each worker keeps to one of its own: what it
 * answers then runs where it has just ended (docs/performance.md, "Write
 * path").
 *
 * Any other request ends that for a while.  If nobody comes back to the device
 * for some milliseconds, another worker goes there, for what they all wait for
 * may itself be a request.
 *
 * Threads: the workers of one loop, each with calls in this order: enter,
 * leave or none, answer.
 */
#ifndef FS_THROTTLE_H
#define FS_THROTTLE_H

#include <stdbool.h>

/* Before a request is waited for; returns when this worker may do so. */
void fs_throttle_enter(void);
/* One has come; @large: a large write, not the pages of a map. */
void fs_throttle_leave(bool large);
/* None has come: it failed, or all ends. */
void fs_throttle_none(void);
/* It is about to be answered; the next enter does so too. */
void fs_throttle_answer(void);

#endif
