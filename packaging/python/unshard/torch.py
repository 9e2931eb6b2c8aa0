# SPDX-License-Identifier: Apache-2.0
"""torch: dcp.load() of any checkpoint onto any mesh, and models filled in place.

    dcp.load(sd, storage_reader=unshard.torch.DCPReader("runs/step-300"))
    dcp.save(sd, storage_writer=unshard.torch.DCPWriter("runs/step-400"))
    unshard.torch.load_into(model, "runs/step-300")

Each rank reads, and writes, the bytes of its own shards and no others.
"""
from __future__ import annotations

import contextlib
import dataclasses
import io
import json
import os
import re
import uuid
from typing import Any, Callable, Dict, List, Mapping, Optional, Tuple, Union

import torch
from torch.distributed.checkpoint import StorageReader, StorageWriter
from torch.distributed.checkpoint.default_planner import DefaultLoadPlanner
from torch.distributed.checkpoint.metadata import (
    BytesStorageMetadata,
    ChunkStorageMetadata,
    Metadata,
    StorageMeta,
    TensorProperties,
    TensorStorageMetadata,
)
from torch.distributed.checkpoint.planner import (LoadItemType, LoadPlan, LoadPlanner, SavePlan,
                                                  SavePlanner, WriteItemType)
from torch.distributed.checkpoint.storage import WriteResult
from torch.futures import Future

from . import _checkpoint, _comm, _device, _dtypes, _errors, _load, _memory, _save, _share
from ._checkpoint import Checkpoint, Object

# Memory beside the targets, for those that bytes cannot be read into directly.
_BESIDE = 256 << 20


class DCPReader(StorageReader):
    """A reader for torch.distributed.checkpoint.load of any format that unshard reads.

    path: as unshard.open(), or an open Checkpoint; step, options: likewise.  Names
    of the state dict, flattened as DCP does, are those of ck.keys().  Targets may
    be plain tensors, DTensors and ShardedTensors, on any mesh and any device;
    floats of another dtype are cast, as copy_() does.

    Objects that are no tensors are given to the planner only where
    torch.load(weights_only=True) can read them, so that nothing of a checkpoint is
    executed; allow_pickle=True gives it whatever is stored.

    group: a process group, all of whose ranks load at once: each byte is read from storage
    by one of them.  RankError: they load different checkpoints, or one does not come.

    Raises what unshard.open() raises, at once; MissingBytes while loading.
    """

    def __init__(self, path: Any, step: Optional[str] = None, *,
                 allow_pickle: bool = False, progress: _load.Progress = None,
                 group: Any = None, **options: Any) -> None:
        super().__init__()
        self.group = group
        self.allow_pickle, self.progress = allow_pickle, progress
        self._step, self._options = step, options
        self._ck = _share.opened(path, step, **options)
        self.path, self.load_id = self._ck.path, str(uuid.uuid4())
        self._given, self._used = isinstance(path, Checkpoint), False
        self.stats: Dict[str, Any] = {}
        self._named: Dict[int, str] = {}  # devices, by their numbers

    def reset(self, checkpoint_id: Union[str, os.PathLike, None] = None) -> None:
        """Of the next load, at another path if one is given."""
        if checkpoint_id and os.fspath(checkpoint_id) != self.path:
            self._ck = _share.opened(checkpoint_id, self._step, **self._options)
            self.path, self._given, self._used = self._ck.path, False, False
        self.load_id = str(uuid.uuid4())

    @property
    def checkpoint_id(self) -> str:
        return self.path

    @classmethod
    def validate_checkpoint_id(cls, checkpoint_id: Union[str, os.PathLike]) -> bool:
        return os.path.exists(checkpoint_id)

    def read_metadata(self) -> Metadata:
        """Of the catalog: one chunk a tensor, however it was saved, and where in the
        saved dicts it stood."""
        if self._used and not self._given:  # what lies there by now
            self._ck = _share.opened(self.path, self._step, **self._options)
        self._used = True
        known: Dict[str, Any] = {}
        for name, t in self._ck.items():
            kind = getattr(torch, t.dtype, None)
            if isinstance(kind, torch.dtype):
                size = torch.Size(t.shape)
                chunk = ChunkStorageMetadata(torch.Size([0] * t.ndim), size)
                known[name] = TensorStorageMetadata(TensorProperties(dtype=kind), size, [chunk])
        for name in self._ck.objects:
            known.setdefault(name, BytesStorageMetadata())
        meta = StorageMeta(checkpoint_id=self.path, load_id=self.load_id,
                           save_id=self._ck._json("save")["id"])
        nested = {e["name"]: tuple(e["path"]) for e in self._ck._json("paths")
                  if e["name"] in known}  # what DCP calls planner_data
        return Metadata(known, planner_data=nested, storage_data={}, storage_meta=meta)

    def set_up_storage_reader(self, metadata: Metadata, is_coordinator: bool, *args: Any,
                              **kwargs: Any) -> None:
        pass

    def prepare_local_plan(self, plan: LoadPlan) -> LoadPlan:
        return plan

    def prepare_global_plan(self, plans: List[LoadPlan]) -> List[LoadPlan]:
        return plans

    def read_data(self, plan: LoadPlan, planner: LoadPlanner) -> Future[None]:
        """One plan of all that is asked for; .stats is what it read."""
        with _comm.coming(self.group):
            straight, beside, objects = [], [], self._ck.objects
            for asked in plan.items:
                if asked.type == LoadItemType.BYTE_IO:
                    planner.load_bytes(asked, self._stored(objects[asked.storage_index.fqn]))
                    continue
                target = planner.resolve_tensor(asked).detach()
                item = self._item(asked, target)
                (beside if item is None else straight).append((asked, target, item))
            # Of two for the same memory, tied weights, one writes it: the last one.
            wanted = list({(item.address, tuple(item.stride or ()), tuple(item.count)): item
                           for _, _, item in straight if item.count.count(0) == 0}.values())
        self._straight(wanted)
        for asked, target, _ in straight:
            planner.commit_tensor(asked, target)
        self._beside(beside, planner)
        done: Future[None] = Future()
        done.set_result(None)
        return done

    def _straight(self, items: List[_load.Item]) -> None:
        """A load a device: of one load all are of one."""
        devices = sorted({item.device for item in items})
        on = self._named.get(devices[0], "") if devices else None
        comm = _comm.of_group(self.group, device=on) if self.group is not None else None
        with comm or contextlib.nullcontext():
            for device in devices or [0] * bool(comm):  # who wants nothing reads for others
                self._read([item for item in items if item.device == device], comm)
                comm = None  # one load with the others, by all of them

    def _read(self, items: List[_load.Item], comm: Optional[_comm.Comm] = None) -> None:
        if not items and not comm:
            return
        with _load.Request(self._ck._open_handle(), items, self.progress,
                           comm=comm) as request:
            request.wait()
            self.stats = request.stats()

    def _item(self, asked, target: torch.Tensor) -> Optional[_load.Item]:
        """None: it cannot be read into target directly."""
        t, count = self._ck[asked.storage_index.fqn], list(asked.lengths)
        if list(target.shape) != count:
            raise ValueError(f"tensor {t._called}: {count} does not go into {list(target.shape)}")
        try:
            to = _memory.place(target)
        except _memory.Elsewhere:
            return None
        except ValueError as e:
            raise ValueError(f"tensor {t._called}: {e}") from None
        if to.dtype is None or not _dtypes.castable(t.dtype, to.dtype):
            return None
        nr = _device.Device(self._ck, to.device).nr if to.device else 0
        self._named[nr] = to.device or ""
        return _load.Item(t._nr, t.name, list(asked.storage_offsets), count, to.address,
                          list(to.stride or ()) or None,
                          None if to.dtype == t.dtype else to.dtype, to.keep, nr)

    def _beside(self, asked_for, planner: LoadPlanner) -> None:
        """By way of memory of the host, as much as _BESIDE at a time."""
        while asked_for:
            items, copies, room = [], [], _BESIDE
            while asked_for and (room > 0 or not items):
                asked, target, _ = asked_for.pop()
                t = self._ck[asked.storage_index.fqn]
                host = torch.empty(tuple(asked.lengths), dtype=_dtypes.torch_dtype(t.dtype))
                room -= host.numel() * host.element_size()
                copies.append((asked, target, host))
                if host.numel():
                    items.append(_load.Item(t._nr, t.name, list(asked.storage_offsets),
                                            list(asked.lengths), host.data_ptr(), None, None,
                                            host))
            self._read(items)
            for asked, target, host in copies:
                target.copy_(host)
                planner.commit_tensor(asked, target)

    def _stored(self, what: Object) -> io.BytesIO:
        """As torch.save wrote it; anew where it is read without running anything."""
        data = what.tobytes()
        if self.allow_pickle and what.encoding in ("torch", "raw"):
            return io.BytesIO(data)
        if what.encoding == "json":
            value = json.loads(data)
        elif self.allow_pickle:
            import pickle

            value = pickle.loads(data)
        else:
            try:
                value = torch.load(io.BytesIO(data), map_location="cpu", weights_only=True)
            except Exception as e:
                named = re.search(r"GLOBAL (\S+)", str(e))
                why = f"its pickle names {named[1]}" if named else "not of plain values"
                raise _errors.Error(f"object {_errors.shown(what.name)}: {why}: it would have to "
                                    "be unpickled, as DCPReader(allow_pickle=True) lets DCP "
                                    "do") from None
        out = io.BytesIO()
        torch.save(value, out)
        out.seek(0)
        return out


class DCPWriter(StorageWriter):
    """A writer for torch.distributed.checkpoint.save and async_save.

    path: of the checkpoint that it will be, in a directory that all ranks have in
    common.  Nobody sees it until all ranks have written their parts; then all of it is
    there, durable, with a manifest for `unshard verify`, and dcp.load() of torch reads it
    onto any mesh.  A save that fails leaves nothing but a draft, which the next one to the
    same path throws away.

    replace: a checkpoint that is there is thrown away at that moment; else it is a
    SaveError with EEXIST.  timeout: seconds that each rank waits for the others to say
    what they write.

    Raises SaveError, whose line has the tensor, the range and the rank.
    """

    def __init__(self, path: Union[str, bytes, os.PathLike], *, replace: bool = False,
                 timeout: int = 600, **options: Any) -> None:
        super().__init__()
        self.path, self._how = os.fsdecode(path), {
            "replace": replace, "timeout": timeout, "options": _checkpoint._options(options)}
        self.save_id = str(uuid.uuid4())

    def reset(self, checkpoint_id: Union[str, os.PathLike, None] = None) -> None:
        """Of the next save, to another path if one is given."""
        if checkpoint_id:
            self.path = os.fspath(checkpoint_id)
        self.save_id = str(uuid.uuid4())

    @property
    def checkpoint_id(self) -> str:
        return self.path

    @classmethod
    def validate_checkpoint_id(cls, checkpoint_id: Union[str, os.PathLike]) -> bool:
        return os.path.isdir(os.path.dirname(os.path.abspath(os.fspath(checkpoint_id))))

    def storage_meta(self) -> StorageMeta:
        return StorageMeta(checkpoint_id=self.path, save_id=self.save_id)

    def set_up_storage_writer(self, is_coordinator: bool, *args: Any, **kwargs: Any) -> None:
        """Of one rank before all others begin: what an earlier try left is gone."""
        if not kwargs.get("use_collectives", True):
            raise NotImplementedError("DCPWriter: use_collectives=False has each rank write a "
                                      "checkpoint of its own")
        if is_coordinator:
            os.makedirs(os.path.dirname(os.path.abspath(self.path)), exist_ok=True)
            _save.Save(self.path, anew=True, **self._how).close()

    def prepare_local_plan(self, plan: SavePlan) -> SavePlan:
        return plan

    def prepare_global_plan(self, plans: List[SavePlan]) -> List[SavePlan]:
        return [dataclasses.replace(p, storage_data=(i, len(plans))) for i, p in enumerate(plans)]

    def write_data(self, plan: SavePlan, planner: SavePlanner) -> Future[List[WriteResult]]:
        rank, ranks = plan.storage_data
        paths = plan.planner_data if isinstance(plan.planner_data, dict) else {}
        with _save.Save(self.path, rank, ranks, **self._how) as save:
            save.declare([_slice(item, paths.get(item.index.fqn)) for item in plan.items])
            save.sync()  # so that no other rank waits for one that fails
            results = self._write(save, plan, planner)
            save.sync()
        done: Future[List[WriteResult]] = Future()
        done.set_result(results)
        return done

    @staticmethod
    def _write(save: _save.Save, plan: SavePlan, planner: SavePlanner) -> List[WriteResult]:
        tensors, results = [], []
        for nr, item in enumerate(plan.items):
            data = planner.resolve_data(item)
            if item.type == WriteItemType.BYTE_IO:
                content = data.getvalue()
                save.object(item.index.fqn, content)
                results.append(WriteResult(item.index, len(content), None))
                continue
            tensors.append((nr, _save.source(data, item.index.fqn)))
            results.append(WriteResult(item.index, data.numel() * data.element_size(), None))
        save.write(tensors)
        return results

    def finish(self, metadata: Metadata, results: List[List[WriteResult]]) -> None:
        """By the coordinator, once all ranks have written: it is there."""
        with _save.Save(self.path, **self._how) as save:
            save.publish()


def _slice(item, path) -> _save.Slice:
    """What of an item the others have to know."""
    where = None if path is None else list(path)
    if item.type == WriteItemType.BYTE_IO:
        return _save.Slice(item.index.fqn, None, path=where)
    data = item.tensor_data
    return _save.Slice(item.index.fqn, _dtypes.name_of(data.properties.dtype), list(data.size),
                       list(data.chunk.offsets), list(data.chunk.sizes), where)


def load_into(model: Union[torch.nn.Module, Mapping[str, Any]], checkpoint: Any, *,
              strict: bool = True, names: Optional[Callable[[str], str]] = None,
              progress: _load.Progress = None, group: Any = None,
              **options: Any) -> Tuple[List[str], List[str]]:
    """Fills the tensors of a model, or of a state dict, in place: (missing, unexpected).

    checkpoint: a path, with options as unshard.open(), or an open Checkpoint.
    Parameters may be DTensors, of which each rank reads its part; group: as of
    DCPReader.  Names are those of the checkpoint, else those of ck.model(), else what
    names(name) gives.  missing: of the model, not in the checkpoint, and tied to
    nothing that is, which is to have the same elements; unexpected: of ck.model(), and
    not in the model.  Of tied ones that the checkpoint has both, the last of the model is
    read.

    strict: UnknownName where any is missing.  ValueError, and nothing is read, where a
    shape differs, or one is on the meta device; TypeError where tensors stand in a dict or
    list inside of it, or are NumPy's.  MissingBytes: bytes of a tensor cannot be had.
    """
    with _comm.coming(group):
        reader, plans, missing, unexpected = _planned(
            model, _share.opened(checkpoint, **options), strict, names)
        reader.progress, reader.group = progress, group
    with torch.no_grad():
        for plan, planner in plans:
            reader.read_data(plan, planner)
            reader.group = None  # one of them with the others, by all
    return missing, unexpected


def _planned(model: Union[torch.nn.Module, Mapping[str, Any]], ck: Checkpoint, strict: bool,
             names: Optional[Callable[[str], str]]):
    """(reader, its plans with their planners, missing, unexpected) of load_into()."""
    state = model.state_dict() if isinstance(model, torch.nn.Module) else model
    for name, value in () if state is not model else state.items():
        if not isinstance(value, torch.Tensor) and _holds_tensors(value):
            raise TypeError(f"{name}: a {type(value).__name__} with tensors in it; dcp.load() with "
                            "DCPReader fills dicts in dicts")
        if hasattr(value, "__array_interface__"):
            raise TypeError(f"{name}: a {type(value).__name__}, not torch's: "
                            "Tensor.read_into() fills one")
    wanted = {n: v for n, v in state.items() if isinstance(v, torch.Tensor)}
    called, unexpected = _called(ck, list(wanted), names)
    loaded = {n: v for n, v in wanted.items() if n in called}
    for name, value in loaded.items():
        if value.device.type == "meta":
            raise ValueError(f"{name}: on the meta device there is no memory to read into: "
                             "to_empty(device=) gives it some")
    ties = {_elements(v) for v in loaded.values()}
    missing = [n for n, v in wanted.items() if n not in called and _elements(v) not in ties]
    if strict and missing:
        more = f" and {len(missing) - 1} more" if len(missing) > 1 else ""
        raise _errors.UnknownName(_unknown(ck, missing[0], names) + more)
    rounds: List[Dict[str, torch.Tensor]] = []  # by the checkpoint's names, each once
    for name, value in loaded.items():
        one = next((r for r in rounds if called[name] not in r), None)
        if one is None:
            rounds.append(one := {})
        one[called[name]] = value
    reader, plans = DCPReader(ck), []
    known = reader.read_metadata()
    for one in rounds or [{}]:
        planner = DefaultLoadPlanner(flatten_state_dict=False)
        planner.set_up_planner(one, known, True)
        plans.append((planner.create_local_plan(), planner))
    return reader, plans, missing, unexpected


def _called(ck: Checkpoint, wanted: List[str], names) -> Tuple[Dict[str, str], List[str]]:
    """Name in the model -> name in the checkpoint; and the model's that nobody wants."""
    own = {n: t.name for n, t in ck.model().items()}
    if names is not None:
        called = {n: names(n) for n in wanted if names(n) in ck}
    else:
        called = {n: n if n in ck else own[n] for n in wanted if n in ck or n in own}
    used = set(called.values())
    return called, [n for n, stored in own.items() if stored not in used]


def _unknown(ck: Checkpoint, name: str, names) -> str:
    """Why a tensor of the model is missing, by the name that it has in the checkpoint."""
    asked = name if names is None else names(name)
    try:
        if isinstance(asked, str):
            ck[asked]
    except _errors.UnknownName as e:
        return str(e) if asked == name else f"{_errors.shown(name)}: {e}"
    return f"{_errors.shown(name)}: no tensor {asked!r}"


def _holds_tensors(value: Any) -> bool:
    if isinstance(value, Mapping):
        value = list(value.values())
    return isinstance(value, torch.Tensor) or (
        isinstance(value, (list, tuple)) and any(map(_holds_tensors, value)))


def _elements(t: torch.Tensor) -> Tuple[Any, ...]:
    """Which of memory they are: tied tensors have the same, not a part of them."""
    local = t.to_local() if hasattr(t, "to_local") else t
    return (local.untyped_storage().data_ptr() or id(t), local.storage_offset(), local.dtype,
            tuple(local.shape), tuple(s for s, n in zip(local.stride(), local.shape) if n > 1))
