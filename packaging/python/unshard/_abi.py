# SPDX-License-Identifier: Apache-2.0
"""unshard.h in ctypes: the structs, the calls, and one context a process.

The library is $UNSHARD_LIBRARY, else libunshard.so in this folder, else what the
system's loader finds.  Another ABI than ours is an ImportError.
"""
from __future__ import annotations

import _thread
import contextlib
import ctypes as c
import errno
import functools
import itertools
import json
import operator
import os
import threading
from typing import Any, Dict, Optional, Tuple, Union

ABI = 1
SONAME = "libunshard.so.0.1"
NONE, NOWHERE = 0xFFFFFFFF, 0xFFFFFFFFFFFFFFFF
OPTIONAL = 1
RESOLVE, WHOLE = 1, 2
STATES = ("ok", "torn", "missing")


class error(c.Structure):
    _fields_ = [("code", c.c_int), ("item", c.c_uint32), ("byte", c.c_uint64),
                ("text", c.c_char * 1008), ("tensor", c.c_uint32), ("pad", c.c_uint32),
                ("name", c.c_char * 1024), ("path", c.c_char * 1024)]

    @property
    def line(self) -> str:
        return self.text.decode("utf-8", "replace")

    @property
    def file(self) -> Optional[str]:
        return self.path.decode("utf-8", "surrogateescape") or None

    @property
    def offset(self) -> Optional[int]:
        return self.byte if self.path and self.byte != NOWHERE else None


class text(c.Structure):
    _fields_ = [("p", c.c_void_p), ("len", c.c_size_t)]

    @property
    def str(self) -> str:
        return c.string_at(self.p, self.len).decode("utf-8", "surrogateescape")


class ctx_opts(c.Structure):
    _fields_ = [("size", c.c_size_t), ("ring", c.c_uint64), ("chunk", c.c_uint32),
                ("depth", c.c_uint32), ("threads", c.c_uint32),
                ("local_ranks", c.c_uint32), ("engine", c.c_char_p),
                ("spool", c.c_char_p), ("helper", c.c_char_p),
                ("reserved", c.c_void_p * 2)]


class open_opts(c.Structure):
    _fields_ = [("size", c.c_size_t), ("options", c.c_char_p), ("step", c.c_char_p),
                ("isolation", c.c_int), ("image_fd", c.c_int), ("flags", c.c_uint32),
                ("cancel_fd", c.c_int)]


class tensor(c.Structure):
    _fields_ = [("name", text), ("tree", text), ("dtype", text),
                ("rank", c.c_uint32), ("state", c.c_uint32),
                ("shape", c.POINTER(c.c_uint64)), ("nbytes", c.c_uint64),
                ("pieces", c.c_uint32), ("itemsize", c.c_uint32)]


class item(c.Structure):
    _fields_ = [("size", c.c_size_t), ("tensor", c.c_uint32), ("flags", c.c_uint32),
                ("start", c.c_void_p), ("len", c.c_void_p), ("mem", c.c_uint64),
                ("stride", c.c_void_p), ("dtype", c.c_char_p),
                ("device", c.c_int32), ("pad", c.c_int32), ("tag", c.c_void_p)]


PROGRESS = c.CFUNCTYPE(c.c_int, c.c_void_p, c.c_uint64, c.c_uint64)
PUT = c.CFUNCTYPE(c.c_int, c.c_void_p, c.c_void_p, c.c_size_t)


class load_opts(c.Structure):
    _fields_ = [("size", c.c_size_t), ("progress", PROGRESS), ("arg", c.c_void_p),
                ("reserved", c.c_void_p * 2), ("options", c.c_char_p),
                ("stream", c.c_void_p), ("comm", c.c_void_p)]


class comm_opts(c.Structure):
    _fields_ = [("size", c.c_size_t), ("kind", c.c_char_p), ("host", c.c_char_p),
                ("rank", c.c_uint32), ("ranks", c.c_uint32), ("timeout_ms", c.c_uint32),
                ("pad", c.c_uint32), ("device", c.c_char_p), ("nccl_id", c.c_void_p)]


class stats(c.Structure):
    _fields_ = [("size", c.c_size_t)] + [
        (n, c.c_uint64) for n in ("wanted", "storage", "storage_ops", "done", "prefaulted",
                                  "alone", "cast", "ns_plan", "ns_read", "ns_copy",
                                  "resident")
    ] + [("ring", c.c_uint32), ("fallbacks", c.c_uint32), ("why", c.c_char * 256),
         ("direct", c.c_uint64), ("by_device", c.c_uint64), ("received", c.c_uint64),
         ("sent", c.c_uint64), ("ns_comm", c.c_uint64)]


class save_opts(c.Structure):
    _fields_ = [("size", c.c_size_t), ("format", c.c_char_p), ("ranks", c.c_uint32),
                ("rank", c.c_uint32), ("timeout", c.c_uint32), ("flags", c.c_uint32),
                ("options", c.c_char_p)]


class slice(c.Structure):
    _fields_ = [("size", c.c_size_t), ("name", c.c_char_p), ("dtype", c.c_char_p),
                ("rank", c.c_uint32), ("pad", c.c_uint32), ("shape", c.c_void_p),
                ("start", c.c_void_p), ("len", c.c_void_p), ("path", c.c_char_p)]


_P, _PP, _E = c.c_void_p, c.POINTER(c.c_void_p), c.POINTER(error)
_CALLS = {
    "version": (c.c_uint, []),
    "abi": (c.c_uint, []),
    "ctx_new": (c.c_int, [_PP, c.POINTER(ctx_opts), _E]),
    "ctx_free": (None, [_P]),
    "ctx_caps": (c.c_int, [_P, c.c_char_p, c.c_size_t]),
    "device_open": (c.c_int, [_P, c.c_char_p, c.POINTER(c.c_int32), _E]),
    "device_alloc": (c.c_int, [_P, c.c_int32, c.c_uint64, c.POINTER(c.c_uint64), _E]),
    "device_free": (c.c_int, [_P, c.c_int32, c.c_uint64, _E]),
    "device_copy": (c.c_int, [_P, c.c_int32, c.c_int, c.c_uint64, _P, c.c_uint64, _E]),
    "open": (c.c_int, [_P, c.c_char_p, c.POINTER(open_opts), _PP, _E]),
    "unref": (None, [_P]),
    "image": (c.c_int, [_P, c.POINTER(c.c_int), c.POINTER(c.c_uint64), _E]),
    "steps": (c.c_int, [_P, c.c_char_p, c.POINTER(open_opts), PUT, _P, _E]),
    "tensors": (c.c_uint32, [_P]),
    "tensor_at": (c.c_int, [_P, c.c_uint32, c.POINTER(tensor), c.c_size_t]),
    "object": (c.c_int, [_P, c.c_char_p, _P, c.c_size_t, c.POINTER(c.c_size_t), _E]),
    "json": (c.c_int, [_P, c.c_char_p, PUT, _P, _E]),
    "map": (c.c_int, [_P, c.POINTER(item), _PP, _E]),
    "mesh_new": (c.c_int, [_P, c.c_char_p, c.c_char_p, c.c_size_t, _PP, _E]),
    "mesh_ranks": (c.c_uint32, [_P]),
    "mesh_boxes": (c.c_int, [_P, c.c_uint32, c.c_uint32, c.POINTER(c.c_uint64),
                             c.c_size_t, c.POINTER(c.c_uint), c.POINTER(c.c_uint64)]),
    "mesh_zeros": (c.c_int, [_P, c.c_uint32, c.c_uint32]),
    "mesh_free": (None, [_P]),
    "load": (c.c_int, [_P, c.POINTER(item), c.c_size_t, c.POINTER(load_opts), _PP, _E]),
    "next": (c.c_int, [_P, c.c_int, c.POINTER(c.c_size_t), _E]),
    "wait": (c.c_int, [_P, c.c_int, _E]),
    "fd": (c.c_int, [_P]),
    "cancel": (None, [_P]),
    "req_stats": (c.c_int, [_P, c.POINTER(stats)]),
    "req_free": (c.c_int, [_P]),
    "save_new": (c.c_int, [_P, c.c_char_p, c.c_char_p, c.POINTER(save_opts), _PP, _E]),
    "save_declare": (c.c_int, [_P, c.POINTER(slice), c.c_size_t, _E]),
    "save_write": (c.c_int, [_P, c.POINTER(item), c.c_size_t, _E]),
    "save_object": (c.c_int, [_P, c.c_char_p, c.c_char_p, c.c_size_t, _E]),
    "save_sync": (c.c_int, [_P, _E]),
    "save_publish": (c.c_int, [_P, _E]),
    "save_free": (None, [_P]),
    "comm_new": (c.c_int, [_P, c.POINTER(comm_opts), _PP, _E]),
    "comm_address": (c.c_char_p, [_P]),
    "comm_connect": (c.c_int, [_P, c.POINTER(c.c_char_p), _E]),
    "comm_free": (None, [_P]),
}


def _library() -> c.CDLL:
    here = os.path.join(os.path.dirname(os.path.abspath(__file__)), "libunshard.so")
    path = os.environ.get("UNSHARD_LIBRARY") or (here if os.path.exists(here) else SONAME)
    try:
        lib = c.CDLL(path)
        found = lib.unshard_abi()
    except (OSError, AttributeError) as e:
        raise ImportError(f"unshard: the library cannot be loaded: {e}") from None
    if found != ABI:
        raise ImportError(f"unshard: {path} has ABI {found}, this package needs {ABI}")
    for name, (result, args) in _CALLS.items():
        call = getattr(lib, "unshard_" + name)
        call.restype, call.argtypes = result, args
    return lib


lib = _library()


def call(name: str):
    return getattr(lib, "unshard_" + name)


def let_go(name: str):
    """The __del__ of a handle: that call of the library alone.  A signal's handler that raised
    where a function of Python's begins would keep it from being called, and raise for nobody."""
    return functools.lru_cache(maxsize=0)(call(name))  # C, and bound as a method


def cancellable(opts: open_opts, run) -> int:
    """What run() returns, which opts are for.  In the main thread it is called by
    another one: only so a signal's handler, as that of Ctrl-C, runs meanwhile; what it
    raises ends run(), and is raised."""
    if threading.current_thread() is not threading.main_thread():
        return run()
    result: list[int] = []
    pipes: list[Tuple[int, int]] = []  # one, until run() has returned
    begun: list[int] = []
    lock, done = threading.Lock(), threading.Lock()

    def whole() -> None:
        try:
            result.append(run())
        finally:
            with lock:
                for fd in pipes.pop():
                    os.close(fd)
            done.release()

    # What is got by C alone is in its list, wherever a handler raises.  Thread.start() raises
    # something else where that is in its locks.
    try:
        try:
            pipes.extend(itertools.starmap(os.pipe, ((),)))
        except OSError as e:
            if pipes or e.errno not in (errno.EMFILE, errno.ENFILE):
                raise
            return run()  # the library then says what it lacks
        opts.cancel_fd = pipes[0][0]
        done.acquire()
        try:
            begun.extend(itertools.starmap(_thread.start_new_thread, ((whole, ()),)))
        except RuntimeError:  # no thread can be had
            if begun:
                raise
            whole()
        while pipes:
            done.acquire(timeout=1)
    except BaseException:
        with lock:
            for _, end in pipes if begun else ():
                os.write(end, b"x")
        while begun and pipes:  # a moment
            with contextlib.suppress(BaseException):
                done.acquire(timeout=1)
        raise
    finally:
        for fds in () if begun else pipes:
            for fd in fds:
                os.close(fd)
    return result[0]


class _Made(c.c_void_p):
    """A context, let go when nobody calls anything with it any more."""

    __del__ = let_go("ctx_free")


class _Context:
    """One a process, made when first used; a fork()ed child makes its own."""

    def __init__(self) -> None:
        self.lock, self.pid, self.handle = threading.Lock(), 0, _Made()
        self.settings: Dict[str, Any] = {}

    def configure(self, settings: Dict[str, Any]) -> None:
        with self.lock:  # what was opened with the one before stays
            self.settings, self.pid, self.handle = settings, 0, _Made()

    def get(self) -> c.c_void_p:
        with self.lock:
            if self.pid != os.getpid():
                handle, err, opts = _Made(), error(), ctx_opts()
                opts.size = c.sizeof(opts)
                opts.local_ranks = _local_ranks()
                for name, value in self.settings.items():
                    setattr(opts, name, value)
                ret = call("ctx_new")(c.byref(handle), c.byref(opts), c.byref(err))
                if ret:
                    from ._errors import opening

                    raise opening(-ret, err.line, "")
                self.handle, self.pid = handle, os.getpid()
            return self.handle


def _local_ranks() -> int:
    """Processes like this one on the node, as torchrun says; 0: not known."""
    try:
        return max(0, min(1024, int(os.environ.get("LOCAL_WORLD_SIZE", "0"))))
    except ValueError:
        return 0


_context = _Context()
os.register_at_fork(after_in_child=lambda: setattr(_context, "lock", threading.Lock()))


def context() -> c.c_void_p:
    return _context.get()


def caps() -> Dict[str, Any]:
    """What the library can do here: "version", "engines", "uring" (why there is none),
    "parser", "parser_found", "dtypes", "devices", "cuda" (why there is none), "nccl" (its
    version, or why there is none)."""
    room = call("ctx_caps")(context(), None, 0)
    text = c.create_string_buffer(max(room, 0) + 1)
    call("ctx_caps")(context(), text, len(text))
    known: Dict[str, Any] = json.loads(text.value.decode("utf-8", "replace"))
    return known


def configure(*, threads: Optional[int] = None, engine: Optional[str] = None,
              spool: Union[str, os.PathLike[str], None] = None) -> None:
    """Of what is opened from now on; what is not given is as at the beginning.

    threads: how many load, of this process: by default as many as CPUs, up to 4, and
    divided by LOCAL_WORLD_SIZE where torchrun says that; engine: "auto", "uring" or
    "plain"; spool: a directory for what has to be decompressed, else /var/tmp.
    """
    if threads is not None and not 1 <= operator.index(threads) <= 1024:
        raise ValueError(f"threads {threads!r}: expected 1 to 1024")
    if engine not in (None, "auto", "uring", "plain"):
        raise ValueError(f"engine {engine!r}: expected 'auto', 'uring' or 'plain'")
    given = {"threads": threads, "engine": encoded(engine),
             "spool": None if spool is None else encoded(os.fsdecode(os.fspath(spool)))}
    _context.configure({n: v for n, v in given.items() if v is not None})


def _aside(run) -> None:
    """run(), which raises nothing, by another thread where this is the main one: what a
    signal's handler raises is not lost in a callback, and run() goes on for nobody."""
    done = threading.Lock()

    def whole():
        run()
        done.release()

    if threading.current_thread() is threading.main_thread():
        done.acquire()
        try:
            # Thread.start() also raises RuntimeError where a handler raises in its locks.
            _thread.start_new_thread(whole, ())
        except RuntimeError:  # no thread can be had
            pass
        else:
            while not done.acquire(timeout=1):
                pass
            return
    run()


def collect(run, by=_aside) -> bytes:
    """All that run(put) puts, as bytes.  by: who runs it."""
    parts: list[bytes] = []
    failed: list[BaseException] = []

    def put(_arg, at, size):
        try:
            parts.append(c.string_at(at, size))
        except BaseException as e:  # ctypes would drop it
            failed.append(e)
        return len(failed)

    def whole():
        try:
            run(PUT(put))
        except BaseException as e:
            failed.append(e)

    by(whole)
    if failed:
        raise failed[0]
    return b"".join(parts)


def parsed(run, by=_aside) -> Any:
    return json.loads(collect(run, by).decode("utf-8", "surrogateescape"))


def encoded(value: Optional[str]) -> Optional[bytes]:
    """ValueError where there is a NUL in it, which would end it."""
    if value is not None and "\0" in value:
        raise ValueError(f"{value!r}: a NUL byte in it")
    return None if value is None else os.fsencode(value)
