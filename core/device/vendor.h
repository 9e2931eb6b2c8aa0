/* SPDX-License-Identifier: Apache-2.0 */
/* vendor.h - libraries of a vendor, opened when a device is first named */
#ifndef CK_DEVICE_VENDOR_H
#define CK_DEVICE_VENDOR_H

#include "core/base/err.h"

/*
 * Opens library @name for good, and puts the address of its function @calls[i] at
 * *@to[i].  Those of a NULL-terminated list @calls must be there.  Returns 0, or
 * -ENODEV with a line; @lib may be NULL, else it gets what dlsym() takes.
 */
int ck_vendor_open(const char *name, const char *const *calls, void **const *to,
		   void **lib, struct ck_err *err);

#endif
