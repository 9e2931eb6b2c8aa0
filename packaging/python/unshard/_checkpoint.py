# SPDX-License-Identifier: Apache-2.0
"""An open checkpoint: its tensors, what else was saved, and loading many at once."""
from __future__ import annotations

import builtins
import contextlib
import ctypes as c
import difflib
import operator
import os
import re
from collections.abc import Mapping
from typing import Any, Dict, Iterable, Iterator, List, Optional, Sequence, Tuple, Union

from . import _abi, _comm, _device, _dtypes, _errors, _load
from ._tensor import Tensor

Path = Union[str, bytes, "os.PathLike[str]"]
# With more names than this the nearest one is looked for among those that sort near.
_LOOK_AT = 20_000


def _text(path: Path) -> str:
    return os.fsdecode(os.fspath(path))


def _options(options: Mapping[str, Any]) -> Optional[bytes]:
    """As after -o: strip_prefix="m." is strip-prefix=m., verify=True is verify."""
    words = []
    for name, value in options.items():
        name = name.replace("_", "-")
        if value is None or value is False:
            continue
        if value is True:
            words.append(name)
            continue
        value = os.fsdecode(os.fspath(value)) if isinstance(value, os.PathLike) else str(value)
        # A path that exists is found as it is; elsewhere a comma would end it.
        words.append(f"{name}=" + (value if os.path.exists(value) else value.replace(",", r"\,")))
    return _abi.encoded(",".join(words)) if words else None


def _settings(step: Optional[str], options: Mapping[str, Any],
              image: Optional[int] = None) -> _abi.open_opts:
    if image is not None and not 0 < image < 1 << 31:
        raise ValueError(f"image: expected a descriptor above 0, found {image}")
    opts = _abi.open_opts()
    opts.size, opts.image_fd = c.sizeof(opts), image or 0
    opts.options, opts.step = _options(options), _abi.encoded(step)
    return opts


def steps(path: Path, **options: Any) -> List[str]:
    """Names of the checkpoints of a run directory that can be opened, oldest first, and
    "latest" where one of them is; [] where path is one checkpoint.

    NotFound: there is nothing; OpenError: it cannot be read.
    """
    name, err, opts = _text(path), _abi.error(), _settings(None, options)

    def run(put):
        where, context = _abi.encoded(name), _abi.context()
        ret = _abi.cancellable(opts, lambda: _abi.call("steps")(
            context, where, c.byref(opts), put, None, c.byref(err)))
        if ret:
            raise _errors.opening(-ret, err.line, name)

    found = _abi.parsed(run, lambda whole: whole())  # by a thread of its own already
    if len(found) == 1 and "number" not in found[0]:
        return []  # a checkpoint in a folder of its own, which open() enters
    names = []
    for one in found:
        if one["state"] == "several":
            try:
                below = steps(os.path.join(name, one["name"]), **options)
            except _errors.Error:
                continue
            names += [f"{one['name']}/{n}" for n in below if n != "latest"]
        elif one["state"] != "unreadable":
            names.append(one["name"])
    if any(s.get("latest") for s in found) and "latest" not in names:
        names.append("latest")
    return names


def open(path: Path, step: Optional[str] = None, *, image: Optional[int] = None,
         whole: bool = False, **options: Any) -> Checkpoint:
    """Opens a checkpoint of any format.

    path: a directory, a file, or a view's, such as CKPT/hf; step: of a run
    directory, one of steps(), or "latest"; image: what Checkpoint.image() gave to
    another process of the node, of the same path, step and options; whole: OpenError
    unless every byte of every tensor is there; options: those of -o, with _ for -.
    Nothing of it is executed; it is parsed by a process of its own.  NotFound:
    there is nothing at path; OpenError: it is damaged, unfinished, no checkpoint,
    or a run directory of several and no step is given.
    """
    return Checkpoint(path, step, image=image, whole=whole, **options)


class _Held(c.c_void_p):
    """An open checkpoint, closed when nobody reads of it any more."""

    __del__ = _abi.let_go("unref")


class Object:
    """What was saved and is no tensor: a step counter, an RNG state.

    name; nbytes: as stored; encoding: "raw", "torch", "pickle" or "json", which
    is what tobytes() gives.  It is never unpickled.
    """

    def __init__(self, ck: Checkpoint, entry: Mapping[str, Any]) -> None:
        self._ck, self.name = ck, entry["name"]
        self.nbytes: int = entry.get("nbytes", 0)
        self.encoding: str = entry.get("encoding", "raw")
        self.file: Optional[str] = entry.get("file")
        self.offset: Optional[int] = entry.get("offset")

    def tobytes(self) -> bytes:
        """Its bytes as stored.  MissingBytes: they are not there."""
        err, size = _abi.error(), c.c_size_t()
        data = bytearray(self.nbytes)
        room = (c.c_char * max(len(data), 1)).from_buffer(data) if data else None
        ret = _abi.call("object")(self._ck._open_handle(), _abi.encoded(self.name), room,
                                  len(data), c.byref(size), c.byref(err))
        if ret:
            raise _errors.reading(-ret, err.line, self.name, err.file, err.offset)
        return bytes(data[: size.value])

    def __repr__(self) -> str:
        return f"<unshard.Object {_errors.shown(self.name)} {self.encoding} {self.nbytes} bytes>"


class _Objects(Mapping[str, Object]):
    def __init__(self, ck: Checkpoint) -> None:
        self._of = {e["name"]: Object(ck, e) for e in ck._catalog().get("objects", ())}

    def __getitem__(self, name: str) -> Object:
        try:
            return self._of[name]
        except KeyError:
            raise _errors.UnknownName(_nearest("object", name, list(self._of))) from None

    def __contains__(self, name: object) -> bool:
        return name in self._of

    def __repr__(self) -> str:
        return repr(list(self._of.values()))

    def __iter__(self) -> Iterator[str]:
        return iter(self._of)

    def __len__(self) -> int:
        return len(self._of)


def _nearest(what: str, name: object, names: Sequence[str]) -> str:
    line = f"no {what} {name!r}"
    if not names:
        return line + ": there is none"
    tail = str(name).rpartition(".")[2]
    if len(names) > _LOOK_AT:
        names = [n for n in names if n.endswith(tail)][:_LOOK_AT] or names[:_LOOK_AT]
    match, near, best = difflib.SequenceMatcher(), None, -1.0
    match.set_seq2(str(name))
    # Those that are likely first: of what cannot be nearer no more is computed.
    for one in sorted(names, key=lambda n: not n.endswith(tail)):
        match.set_seq1(one)
        if match.real_quick_ratio() > best and match.quick_ratio() > best:
            ratio = match.ratio()
            near, best = (one, ratio) if ratio > best else (near, best)
    return f"{line}; the nearest is {near!r}"


class Checkpoint(Mapping[str, Tensor]):
    """An open checkpoint: a mapping of names to tensors of which nothing is read.

    Any thread may use it.  After a fork() the child has to open it again.  What is
    not used any more is closed; close() and `with` do so at once.
    """

    def __init__(self, path: Path, step: Optional[str] = None, *, image: Optional[int] = None,
                 whole: bool = False, **options: Any) -> None:
        self.path, self.step = _text(path), step
        self._where = os.path.abspath(self.path)  # for a process that lies elsewhere
        self._how = {"whole": True, **options} if whole else options
        self._pid, self._handle = os.getpid(), _Held()
        err, opts, handle = _abi.error(), _settings(step, options, image), _Held()
        opts.flags = _abi.RESOLVE | _abi.WHOLE if whole else 0
        where = _abi.encoded(self.path)
        self._context = context = _abi.context()
        ret = _abi.cancellable(opts, lambda: _abi.call("open")(
            context, where, c.byref(opts), c.byref(handle), c.byref(err)))
        if ret:
            raise _errors.opening(-ret, err.line, self.path)
        self._handle = handle
        # Arguments of Tensor: made when asked for, for each holds the checkpoint.
        self._known: Dict[str, tuple] = {}
        self._names: List[str] = []
        self._listed: Optional[dict] = None
        self._list()

    def _list(self) -> None:
        one = _abi.tensor()
        for nr in range(_abi.call("tensors")(self._handle)):
            ret = _abi.call("tensor_at")(self._handle, nr, c.byref(one), c.sizeof(one))
            if ret:
                raise _errors.opening(-ret, "", self.path)
            tree = one.tree.str
            name = (tree + "/" if tree else "") + one.name.str
            self._known[name] = (nr, name, one.dtype.str, _abi.STATES[min(one.state, 2)],
                                 tuple(one.shape[: one.rank]), one.itemsize, one.nbytes,
                                 one.pieces)
            self._names.append(name)

    def _open_handle(self) -> _Held:
        """To be held while it is used: close() in another thread takes nothing away."""
        handle = self._handle
        if not handle:
            raise ValueError(f"{self.path}: it was closed")
        if self._pid != os.getpid():
            raise _errors.Forked(f"{self.path}: it was opened before fork(): open it again "
                                 "in the child")
        return handle

    def close(self) -> None:
        """Lets go of its files; tensors of it then raise ValueError."""
        self._handle = _Held()

    def __enter__(self) -> Checkpoint:
        return self

    def __exit__(self, *_exc: Any) -> None:
        self.close()

    __eq__, __hash__ = object.__eq__, object.__hash__

    def __reduce__(self):
        return _again, (self._where, self.step, self._how)

    def __repr__(self) -> str:
        return f"<unshard.Checkpoint {self.path}: {len(self._known)} tensors>"

    # ---- what is in it -----------------------------------------------------

    def __getitem__(self, name: str) -> Tensor:
        """UnknownName, a KeyError with the nearest name, where there is none."""
        try:
            return Tensor(self, *self._known[name])
        except KeyError:
            raise _errors.UnknownName(_nearest("tensor", name, self._names)) from None

    def get(self, name: str, default: Any = None) -> Any:
        return self[name] if name in self._known else default

    def __contains__(self, name: object) -> bool:
        return name in self._known

    def __iter__(self) -> Iterator[str]:
        return iter(self._known)

    def __len__(self) -> int:
        return len(self._known)

    def _json(self, what: str) -> Any:
        err, handle = _abi.error(), self._open_handle()

        def run(put):
            ret = _abi.call("json")(handle, _abi.encoded(what), put, None, c.byref(err))
            if ret:
                raise _errors.reading(-ret, err.line, None, err.file, err.offset)

        return _abi.parsed(run)

    def _catalog(self) -> dict:
        if self._listed is None:
            self._listed = self._json("catalog")
        return self._listed

    def _by_place(self) -> List[str]:
        """Names in the order of the first bytes of each."""
        place = []
        for name, entry in zip(self._names, self._catalog()["tensors"]):
            first = next(iter(entry["sources"]), {})
            place.append((not first, first.get("file") or "", first.get("offset", 0), name))
        return [name for *_place, name in sorted(place)]

    @property
    def format(self) -> str:
        """Which reader reads it: "dcp", "mindspore", ..."""
        return self._catalog()["format"]

    @property
    def nbytes(self) -> int:
        """Of all tensors together, as stored."""
        return sum(t.nbytes for t in self.values())

    @property
    def objects(self) -> Mapping[str, Object]:
        """What was saved and is no tensor: name -> Object."""
        return _Objects(self)

    @property
    def metadata(self) -> Dict[str, str]:
        """What __metadata__ of safetensors files says; {} of other formats."""
        return self._json("metadata")

    def image(self) -> int:
        """A file descriptor, yours to close, by which other processes of the node open
        it without parsing: open(path, image=fd)."""
        err, fd = _abi.error(), c.c_int(-1)
        ret = _abi.call("image")(self._open_handle(), c.byref(fd), None, c.byref(err))
        if ret:
            raise _errors.opening(-ret, err.line, self.path)
        return fd.value

    def model(self) -> Dict[str, Tensor]:
        """The model's own tensors, by the names that it calls them: as hf/ shows
        them, without wrapping keys, optimizer states and counters.  ValueError where
        there is no hf/, and where it has names that are translated."""
        return {e["name"]: self[self._names[e["tensor"]]] for e in self._json("hf")}

    def problems(self) -> List[Dict[str, Any]]:
        """What is wrong with it, as .unshard/problems.json: severity, reason, and
        where they apply tensor, file, offset, nbytes.  Those that reading found
        are in it too."""
        return self._json("problems")

    def plan(self, what: str) -> Dict[str, Any]:
        """The byte ranges of files behind "NAME" or "NAME[2:5, :]", as `unshard plan
        --json`: its "ranges" say file, offset and length, in bytes, and where they go.

        UnknownName: no tensor is called so; ValueError: it is no slice of that tensor.
        """
        name = what
        if what not in self and what.endswith("]"):
            name = what[: what.rfind("[")]
        if name not in self and what not in self.objects:
            self[name]
        return self._json("plan " + what)

    # ---- many at once ------------------------------------------------------

    def _chosen(self, names: Optional[Iterable[str]]) -> List[str]:
        if isinstance(names, (str, bytes)):
            raise TypeError("names: expected several names, not one text")
        chosen = list(self._known) if names is None else list(dict.fromkeys(names))
        for name in chosen:
            self[name]
        return chosen

    def load(self, names: Optional[Iterable[str]] = None, *, mesh: Any = None, rank: int = 0,
             dtype: Any = None, device: Any = None, stream: Any = None,
             framework: Optional[str] = None, progress: _load.Progress = None,
             errors: Optional[Dict[str, Exception]] = None,
             group: Any = None) -> Dict[str, Any]:
        """Tensors by name, all of them or those named, read as one plan.

        mesh, rank: only what that rank of a mesh holds ("tp=8", or a file: a
        placement, a MindSpore strategy, OneFlow's SBP); tensors that it holds
        nothing of are not in the result, and of a partial sum that another rank
        holds there are zeros.  dtype: floats are cast to it, others
        stay.  framework: "torch" or "numpy", None: torch where it is installed; or
        "dlpack": DeviceTensors.  device: of torch; CUDA's is filled directly, without a
        copy of the whole on the host, to another kind each is moved; with "dlpack" a
        device's name, "cuda:0".  DeviceError: there is no such device; MemoryError: it
        has no room, and nothing was read.  stream: of the device, by its object or
        number; what it has still to do comes before memory is written, None: torch's
        current one, of memory that torch gives.  progress: True for a line on
        stderr, or called with (bytes done, bytes in all); what it raises ends
        the load.  errors: a dict that gets the MissingBytes of each tensor that could
        not be had, which the result then lacks; without it the first is raised.
        group: a process group of torch, all of whose ranks load of this checkpoint now,
        whatever each wants: every byte is read from storage by one of them.  RankError:
        they do not agree, or one does not come.
        """
        out, items = {}, []
        with _comm.coming(group):
            make = _device.maker(self, framework, device)
            want = None if dtype is None else _dtypes.name_of(dtype)
            chosen = self._chosen(names)
            if mesh is None and rank:
                raise ValueError(f"rank {rank!r}: of which mesh? mesh= is not given")
            parts = self._parts(chosen, mesh, operator.index(rank)) if mesh is not None else None
            for name in chosen:
                if parts is not None and name not in parts:
                    continue
                self._prepare(name, parts and parts[name], want, make, out, items, errors)
            if items or group is not None:
                handle, at = self._open_handle(), make.begin(stream)
        on = make.name if items else None
        comm = _comm.of_group(group, device=on) if group is not None else None
        if items or comm:
            optional = errors is not None
            with comm or contextlib.nullcontext(), _load.Request(
                    handle, items, progress, optional, at, comm) as request:
                if errors is None:
                    request.wait()
                for nr, failed in request.each() if optional else ():
                    if failed and out.pop(items[nr].name, None) is not None:
                        errors[items[nr].name] = failed
        return {n: make.done(t) for n, t in out.items()}

    def stream(self, names: Optional[Iterable[str]] = None, *,
               window: Union[int, str] = "1G", dtype: Any = None, device: Any = None,
               framework: Optional[str] = None, progress: _load.Progress = None,
               errors: Optional[Dict[str, Exception]] = None) -> Iterator[Tuple[str, Any]]:
        """(name, tensor) as they land, each yours to keep.

        window: at most so many bytes are read ahead of you, as 2 << 30 or "2G";
        one tensor that is larger is had alone.  The rest as load().
        """
        room = max(_size(window) // 2, 1)
        make = _device.maker(self, framework, device)
        want = None if dtype is None else _dtypes.name_of(dtype)
        chosen = self._chosen(names)
        return self._windows(chosen, room, want, make, progress, errors)

    def _windows(self, chosen, room, want, make, progress, errors):
        total = sum(self[n].nbytes for n in chosen)
        handle, done, ahead = self._open_handle(), 0, None
        bar = _load._bar(progress)
        groups = _groups(chosen, [self[n].nbytes for n in chosen], room)
        try:
            for group in groups + [None]:
                behind, ahead = ahead, None
                if group is not None:
                    ahead = self._begin(handle, group, want, make, errors)
                if behind is None:
                    continue
                for name, value, size in _landed(*behind, errors):
                    done += size
                    if bar:
                        bar(done, total)
                    yield name, make.done(value)
                behind[0].free()
        finally:
            if ahead is not None:
                ahead[0].free()

    def _begin(self, handle, group, want, make, errors):
        out, items, owners = {}, [], []
        for name in group:
            self._prepare(name, None, want, make, out, items, errors)
            owners += [name] * (len(items) - len(owners))
        sizes = {n: self[n].nbytes for n in group}
        at = make.begin(None)
        return (_load.Request(handle, items, None, errors is not None, at), out, owners,
                sizes)

    def _prepare(self, name, part, want, make, out, items, errors) -> None:
        """Memory for a tensor, or for a rank's part of it, and what fills it; into
        errors, unless it is None, why there can be no such memory."""
        t = self[name]
        dtype = t.dtype
        if want and _dtypes.is_cast(dtype):
            _dtypes.check_cast(name, dtype, want)
            dtype = want
        shape, boxes = part or (t.shape, None)
        try:
            value, address = _room(make.zeros if boxes == [] else make.empty, t, shape,
                                   dtype)
        except (TypeError, MemoryError) as e:
            if errors is None:
                raise
            errors[name] = e
            return
        out[name] = value
        if boxes is None:
            if t.nbytes:
                items.append(t._item(address, None, dtype, value, make.nr))
            return
        size = _dtypes.size(dtype)
        stride = [1] * len(shape)
        for i in reversed(range(len(shape) - 1)):
            stride[i] = stride[i + 1] * shape[i + 1]
        for start, count, to in boxes:
            at = address + size * sum(a * s for a, s in zip(to, stride))
            items.append(_load.Item(t._nr, name, start, count, at, stride,
                                    None if dtype == t.dtype else dtype, value, make.nr))

    def _parts(self, chosen, mesh, rank) -> dict:
        """name -> (shape, [(start, count, to)]) of what the rank holds; of zeros no box."""
        spec, text = _mesh(mesh)
        made, err = c.c_void_p(), _abi.error()
        ret = _abi.call("mesh_new")(self._open_handle(), _abi.encoded(spec), text,
                                    len(text or b""), c.byref(made), c.byref(err))
        if ret:
            raise ValueError(err.line or os.strerror(-ret))
        try:
            ranks = _abi.call("mesh_ranks")(made)
            if not 0 <= rank < ranks:
                raise ValueError(f"rank {rank}: the mesh has {ranks}")
            found = {n: _boxes(made, rank, self[n]) for n in chosen}
        finally:
            _abi.call("mesh_free")(made)
        return {n: p for n, p in found.items() if p is not None}


def _again(path, step, options) -> Checkpoint:
    return Checkpoint(path, step, **options)


def _mesh(mesh: Any) -> Tuple[str, Optional[bytes]]:
    name = _text(mesh)
    if isinstance(mesh, os.PathLike) or os.path.isfile(name):
        with builtins.open(name, "rb") as f:
            return name, f.read()
    return name, None


def _boxes(made, rank: int, t: Tensor):
    r, nr = len(t._whole), c.c_uint()
    shape = (c.c_uint64 * max(r, 1))()
    call = _abi.call("mesh_boxes")
    ret = call(made, rank, t._nr, None, 0, c.byref(nr), shape)
    room = 3 * r * nr.value
    flat = (c.c_uint64 * max(room, 1))()
    if not ret and nr.value:
        ret = call(made, rank, t._nr, flat, room, c.byref(nr), shape)
    if not ret and not nr.value:
        ret = _abi.call("mesh_zeros")(made, rank, t._nr)
        if ret >= 0:
            return (tuple(shape[:r]), []) if ret else None
    if ret:
        raise ValueError(f"tensor {t._called}: {os.strerror(-ret)}")
    cut = [(list(flat[i : i + r]), list(flat[i + r : i + 2 * r]),
            list(flat[i + 2 * r : i + 3 * r])) for i in range(0, room, 3 * r or 1)]
    return tuple(shape[:r]), cut if r else [([], [], [])]


def _size(window: Union[int, str]) -> int:
    if isinstance(window, int) and not isinstance(window, bool):
        size = window
    else:
        word = re.fullmatch(r"(\d+)([KMGT]?)", str(window).upper())
        if not word:
            raise ValueError(f"window {window!r}: expected bytes, or as '512M', '2G'")
        size = int(word[1]) << {"": 0, "K": 10, "M": 20, "G": 30, "T": 40}[word[2]]
    if size <= 0:
        raise ValueError(f"window {window!r}: expected more than 0 bytes")
    return size


def _groups(names: List[str], sizes: List[int], room: int) -> List[List[str]]:
    out: List[List[str]] = []
    left = 0
    for name, size in zip(names, sizes):
        if not out or size > left:
            out.append([])
            left = room
        out[-1].append(name)
        left -= size
    return out


def _landed(request, out, owners, sizes, errors):
    """(name, value, bytes) of each tensor as it is there, of which each is one item."""
    for name in [n for n in out if n not in set(owners)]:
        yield name, out.pop(name), sizes[name]
    for nr, failed in request.each():
        name = owners[nr]
        if failed and errors is None:
            raise failed
        if failed:
            errors[name] = failed
        else:
            yield name, out.pop(name), sizes[name]


def _room(new, t: Tensor, shape, dtype: str):
    """(tensor, address).  TypeError: the framework has no such dtype; MemoryError."""
    try:
        return new(shape, dtype)
    except TypeError as e:
        raise TypeError(f"tensor {t._called}: {e}") from None
    except (MemoryError, RuntimeError, ValueError, OverflowError):
        # What they say of numbers that are too large differs.
        raise MemoryError(f"tensor {t._called}: no memory for {dtype} {list(shape)}") from None
