/* SPDX-License-Identifier: Apache-2.0 */
#include "core/device/vendor.h"

#include <dlfcn.h>
#include <errno.h>
#include <stddef.h>

int ck_vendor_open(const char *name, const char *const *calls, void **const *to,
		   void **lib, struct ck_err *err)
{
	void *found = dlopen(name, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);

	if (!found)
		return ck_fail(err, ENODEV, "%s", dlerror());
	for (; *calls; calls++, to++) {
		**to = dlsym(found, *calls);
		if (!**to)
			return ck_fail(err, ENODEV,
				       "%s: has no %s: it is too old", name,
				       *calls);
	}
	if (lib)
		*lib = found;
	return 0;
}
