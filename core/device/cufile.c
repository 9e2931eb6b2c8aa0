/* SPDX-License-Identifier: Apache-2.0 */
#include "core/device/cufile.h"

#include "core/device/cufile_abi.h"
#include "core/device/vendor.h"

#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define LIBRARY "libcufile.so.0"
#define DRIVER "/proc/driver/nvidia-fs"
#define SETTINGS "/etc/cufile.json"
#define SETTINGS_AT "CUFILE_ENV_PATH_JSON"

#define FIELD(ret, name, args) ret(*name) args;

static struct {
	pthread_mutex_t lock;
	bool tried;
	struct ck_err why; /* code 0: it is there */
	CK_CUFILE_CALLS(FIELD)
	CK_CUFILE_NEW_CALLS(FIELD) /* or NULL */
} cf = { .lock = PTHREAD_MUTEX_INITIALIZER };

static const char *text_of(unsigned code)
{
	switch (code) {
	case CK_CUFILE_NOT_INITIALIZED:
		return "the driver nvidia-fs is not loaded";
	case CK_CUFILE_PLATFORM:
		return "not on this platform";
	case CK_CUFILE_IO_NOT_SUPPORTED:
		return "not on this file, or its file system";
	case CK_CUFILE_CUDA_ERROR:
		return "the CUDA driver fails";
	case CK_CUFILE_INTERNAL:
		return "internal error";
	default:
		return "it fails";
	}
}

static int failed(struct ck_cufile_error e, const char *call,
		  struct ck_err *err)
{
	if (e.err == CK_CUFILE_CUDA_ERROR)
		return ck_fail(err, EREMOTEIO, "%s: %s (%u, CUDA's %u)", call,
			       text_of(e.err), e.err, e.cu_err);
	return ck_fail(err, EREMOTEIO, "%s: %s (%u)", call, text_of(e.err),
		       e.err);
}

static int find_calls(struct ck_err *err)
{
#define NAME(ret, name, args) #name,
#define PLACE(ret, name, args) (void **)&cf.name,
	static const char *const names[] = { CK_CUFILE_CALLS(NAME) NULL };
	void **const to[] = { CK_CUFILE_CALLS(PLACE) };
	void *lib;
	int ret = ck_vendor_open(LIBRARY, names, to, &lib, err);

	if (!ret)
		*(void **)&cf.cuFileSetParameterBool =
			dlsym(lib, "cuFileSetParameterBool");
	return ret;
}

/*
 * To start it where it cannot read directly takes time, and leaves a log in the
 * folder where the process is: not without what it needs.
 */
static int check_needs(struct ck_err *err)
{
	if (!access(DRIVER, F_OK) || !access(SETTINGS, F_OK) ||
	    getenv(SETTINGS_AT))
		return 0;
	return ck_fail(err, ENODEV,
		       LIBRARY ": the driver nvidia-fs is not loaded, and "
			       "neither " SETTINGS " nor " SETTINGS_AT
			       " has it do without");
}

/* Whoever opened it before, and with whatever settings: what counts is how it is. */
static int start_driver(struct ck_err *err)
{
	struct ck_cufile_props props = { .features = 0 };
	struct ck_cufile_error e;

	if (cf.cuFileSetParameterBool)
		cf.cuFileSetParameterBool(CK_CUFILE_ALLOW_COMPAT, false);
	e = cf.cuFileDriverOpen();
	if (e.err && e.err != CK_CUFILE_ALREADY_OPEN)
		return failed(e, "cuFileDriverOpen", err);
	e = cf.cuFileDriverGetProperties(&props);
	if (e.err)
		return failed(e, "cuFileDriverGetProperties", err);
	if (props.fs.control & 1u << CK_CUFILE_ALLOW_COMPAT)
		return ck_fail(
			err, ENOTSUP,
			LIBRARY ": its compatibility mode is on, and %s",
			cf.cuFileSetParameterBool ?
				"was so before this was asked for" :
				"this release has no call to turn it off");
	return 0;
}

static int load(struct ck_err *err)
{
	int ret = find_calls(err);

	if (!ret)
		ret = check_needs(err);
	return ret ? ret : start_driver(err);
}

int ck_cufile_start(struct ck_err *err)
{
	int ret = 0;

	pthread_mutex_lock(&cf.lock);
	if (!cf.tried)
		load(&cf.why);
	cf.tried = true;
	if (cf.why.code)
		ret = ck_fail_as(err, &cf.why);
	pthread_mutex_unlock(&cf.lock);
	return ret;
}

int ck_cufile_open(int fd, void **file, struct ck_err *err)
{
	struct ck_cufile_descr descr;
	struct ck_cufile_error e;

	memset(&descr, 0, sizeof(descr));
	descr.type = CK_CUFILE_FD;
	descr.handle.fd = fd;
	e = cf.cuFileHandleRegister(file, &descr);
	return e.err ? failed(e, "cuFileHandleRegister", err) : 0;
}

void ck_cufile_close(void *file)
{
	cf.cuFileHandleDeregister(file);
}

int ck_cufile_register(uint64_t mem, size_t len, struct ck_err *err)
{
	struct ck_cufile_error e =
		cf.cuFileBufRegister((void *)(uintptr_t)mem, len, 0);

	return e.err ? failed(e, "cuFileBufRegister", err) : 0;
}

void ck_cufile_unregister(uint64_t mem)
{
	cf.cuFileBufDeregister((void *)(uintptr_t)mem);
}

int64_t ck_cufile_read(void *file, uint64_t mem, uint64_t at, size_t len,
		       uint64_t off, struct ck_err *err)
{
	ssize_t n;

	do
		n = cf.cuFileRead(file, (void *)(uintptr_t)mem, len, (off_t)off,
				  (off_t)at);
	while (n == -1 && errno == EINTR);
	if (n >= 0)
		return n;
	if (n == -1)
		return ck_fail(err, errno ? errno : EIO, "cuFileRead: %s",
			       strerror(errno));
	return failed((struct ck_cufile_error){ (unsigned)-n, 0 }, "cuFileRead",
		      err);
}
