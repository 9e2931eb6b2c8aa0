# SPDX-License-Identifier: Apache-2.0
"""Items: boxes of tensors and where they go, read as one plan."""
from __future__ import annotations

import contextlib
import ctypes as c
import errno
import sys
import threading
import time
from typing import Any, Callable, Iterator, NamedTuple, Optional, Sequence, Set, Tuple, Union

from . import _abi, _errors

Progress = Union[bool, Callable[[int, int], Any], None]

_calls = threading.local()  # .inside: of this thread, where it is in a progress()


class Item(NamedTuple):
    """A box of tensor number `tensor` (None: all of it) and its memory.

    stride: elements between neighbours of each of the tensor's dimensions, None:
    row-major; dtype: of the memory, None: as stored; name: for messages; device: whose
    address it is, by the number that Device has, 0: the host's.
    """

    tensor: int
    name: str
    start: Optional[Sequence[int]]
    count: Optional[Sequence[int]]
    address: int
    stride: Optional[Sequence[int]]
    dtype: Optional[str]
    keep: Any = None
    device: int = 0


def _array(items: Sequence[Item], flags: int):
    """struct unshard_item of each, and what they point to."""
    total = sum(2 * len(i.start) for i in items if i.start is not None)
    boxes = (c.c_uint64 * max(total, 1))()
    steps = (c.c_int64 * max(sum(len(i.stride) for i in items if i.stride), 1))()
    out, at, to = (_abi.item * max(len(items), 1))(), 0, 0
    names = {}
    for one, item in zip(out, items):
        one.size, one.tensor, one.flags = c.sizeof(_abi.item), item.tensor, flags
        one.mem, one.device = item.address, item.device or -1
        if item.start is not None:
            rank = len(item.start)
            boxes[at : at + rank] = item.start
            boxes[at + rank : at + 2 * rank] = item.count
            one.start = c.addressof(boxes) + 8 * at
            one.len = one.start + 8 * rank
            at += 2 * rank
        if item.stride:
            steps[to : to + len(item.stride)] = item.stride
            one.stride = c.addressof(steps) + 8 * to
            to += len(item.stride)
        if item.dtype is not None:
            one.dtype = names.setdefault(item.dtype, item.dtype.encode())
    return out, (boxes, steps, names)


def _failure(code: int, err: _abi.error, items: Sequence[Item], nr: int) -> Exception:
    name = items[nr].name if nr < len(items) else None
    return _errors.reading(-code, err.line, name, err.file, err.offset)


def _raise(code: int, err: _abi.error, items: Sequence[Item], nr: Optional[int] = None):
    raise _failure(code, err, items, err.item if nr is None else nr)


def mapped(handle, item: Item) -> int:
    """A DLManagedTensorVersioned of the file's own bytes; 0: they do not lie so."""
    structs, keep = _array([item], 0)
    err, out = _abi.error(), c.c_void_p()
    ret = _abi.call("map")(handle, c.byref(structs[0]), c.byref(out), c.byref(err))
    del keep
    if ret == -errno.EXDEV:
        return 0
    if ret:
        _raise(ret, err, [item], 0)
    return out.value


class _Load(c.c_void_p):
    """A load under way.  Its end cancels it; no byte is written after that.

    keep: what it writes to, and calls.
    """

    keep: Any = None
    __del__ = _abi.let_go("req_free")


def _ended(ret: int, _call: Any, args: Tuple[Any, ...]) -> int:
    """Behind req_free, once there was a progress()."""
    if ret == -errno.EDEADLK:
        _End(args[0].value, args[0].keep)
    return ret


class Request:
    """A load under way.  Freeing it cancels; no byte is written after that."""

    def __init__(self, handle, items: Sequence[Item], progress: Progress = None,
                 optional: bool = False, stream: int = 0, comm: Any = None) -> None:
        """optional: what cannot be had fails its item alone.  stream: of the device; what
        is in it by now comes before anything is written; comm: of ranks that load now too.
        Error: in a progress(), where nobody can wait for it."""
        self._items, self._teller = items, _Teller(_bar(progress))
        self._req: Optional[_Load] = _Load()
        if getattr(_calls, "inside", False):
            raise _errors.Error("progress() may not read, nor load: it is called by what loads")
        structs, keep = _array(items, _abi.OPTIONAL if optional else 0)
        opts, err = _abi.load_opts(), _abi.error()
        opts.size, opts.stream = c.sizeof(opts), stream or None
        opts.comm = comm.handle if comm else None
        opts.progress = callback = self._teller.callback()
        self._req.keep = items, callback
        ret = _abi.call("load")(handle, structs, len(items), c.byref(opts),
                                c.byref(self._req), c.byref(err))
        del keep
        if ret:
            _raise(ret, err, items)

    def wait(self) -> None:
        """Until all are there; raises the first failure.  Ctrl-C cancels."""
        err = _abi.error()
        try:
            while True:
                ret = _abi.call("wait")(self._req, 200, c.byref(err))
                if ret == -errno.ETIMEDOUT:
                    continue
                if self._teller.failed:
                    raise self._teller.failed
                if ret:
                    _raise(ret, err, self._items)
                return
        except BaseException:
            self._req = None  # at once: another Ctrl-C may keep free() from being called
            raise

    def each(self) -> Iterator[Tuple[int, Optional[Exception]]]:
        """Numbers of items as they land, and why one failed; raises where all do."""
        err, nr = _abi.error(), c.c_size_t()
        try:
            while True:
                ret = _abi.call("next")(self._req, 200, c.byref(nr), c.byref(err))
                if ret == -errno.ETIMEDOUT:
                    continue
                if self._teller.failed:
                    raise self._teller.failed
                if ret == 1:
                    return
                if ret and err.item >= len(self._items):
                    _raise(ret, err, self._items)
                at = err.item if ret else nr.value
                yield at, _failure(ret, err, self._items, at) if ret else None
        except BaseException:  # as in wait()
            self._req = None
            raise

    def stats(self) -> dict:
        """What was read, in bytes and nanoseconds; see unshard(3)."""
        out = _abi.stats()
        out.size = c.sizeof(out)
        _abi.call("req_stats")(self._req, c.byref(out))
        named = {n: getattr(out, n) for n, _ in out._fields_[1:] if "reserved" not in n}
        named["why"] = out.why.decode("utf-8", "replace")
        return named

    def free(self) -> None:
        self._req = None

    def __enter__(self) -> Request:
        return self

    def __exit__(self, *_exc) -> None:
        self._req = None


class _End:
    """Of a load that is let go of in a progress(), as by the garbage collector, and so cannot be
    waited for: it ends behind that, and what it writes to stays until then."""

    _left: Set[_End] = set()

    def __init__(self, req: int, keep: Any) -> None:
        self._req, self._keep = c.c_void_p(req), keep
        self._left.add(self)
        _abi.call("cancel")(self._req)
        with contextlib.suppress(RuntimeError):  # no thread can be had: it stays
            threading.Thread(target=self._run, name="unshard-end", daemon=False).start()

    def _run(self) -> None:
        _abi.call("req_free")(self._req)
        self._left.discard(self)


class _Teller:
    """What calls a progress(), and the first that it raised."""

    def __init__(self, bar: Optional[Callable[[int, int], Any]]) -> None:
        self._bar: Any = bar
        self.failed: Optional[BaseException] = None

    def callback(self) -> Any:
        if not self._bar:
            return _abi.PROGRESS()
        _abi.call("req_free").errcheck = _ended
        return _abi.PROGRESS(self._tell)

    def _tell(self, _arg: Any, done: int, total: int) -> int:
        _calls.inside = True
        try:
            self._bar(done, total)
        except BaseException as e:  # handed to who waits
            self.failed = self.failed or e
            return 1
        finally:
            _calls.inside = False
        return 0


def _bar(progress: Progress) -> Optional[Callable[[int, int], Any]]:
    if not progress:
        return None
    return progress if callable(progress) else _Bar()


class _Bar:
    """A line on stderr, while it is a terminal; else one a second at most."""

    def __init__(self) -> None:
        self.start = self.last = time.monotonic()
        self.live = sys.stderr.isatty()

    def __call__(self, done: int, total: int) -> None:
        now, end = time.monotonic(), done >= total
        if not (self.live or end or now - self.last >= 1):
            return
        self.last = now
        rate = done / max(now - self.start, 1e-9) / 1e9
        share = 100 * done // total if total else 100
        line = f"unshard: {share:3d}% of {total / 1e9:.2f} GB, {rate:.2f} GB/s"
        print(("\r" if self.live else "") + line, file=sys.stderr, flush=True,
              end="" if self.live and not end else "\n")
