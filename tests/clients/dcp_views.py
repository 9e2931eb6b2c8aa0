# SPDX-License-Identifier: Apache-2.0
"""dcp/ by torch.distributed.checkpoint: of examples of every source format.

What is loaded has the bytes that tensors/ shows.
"""
import json
import pathlib
import subprocess
import tempfile
import warnings

from kit import DATA, HERE, UNSHARD, case, mounted, need

need("torch", "torch.distributed.checkpoint")
import torch
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.default_planner import _EmptyStateDictLoadPlanner
from torch.distributed.checkpoint.format_utils import dcp_to_torch_save
from torch.distributed.checkpoint.metadata import TensorStorageMetadata
from torch.distributed.checkpoint.state_dict_loader import (
    _load_state_dict, _load_state_dict_from_keys)

warnings.filterwarnings("ignore")
FORMATS = HERE.parent / "formats"
SHOWN = {"quint8": "uint8", "qint8": "int8", "qint32": "int32"}


def metadata(path):
    return dcp.FileSystemReader(str(path)).read_metadata()


def everything(path):
    """Flat names to what a loader makes of all that .metadata lists."""
    state = {}
    _load_state_dict(state, storage_reader=dcp.FileSystemReader(str(path)),
                     planner=_EmptyStateDictLoadPlanner(), no_dist=True)
    found = {}
    for name, path_ in metadata(path).planner_data.items():
        value = state
        for part in path_:
            value = value[part]
        found[name] = value
    return found


def raw(tensor):
    return tensor.contiguous().view(-1).view(torch.uint8).numpy().tobytes()


def same_as_tensors(at, loaded):
    catalog = json.loads((at / ".unshard/catalog.json").read_text())
    assert catalog["tensors"]
    for t in catalog["tensors"]:
        got = loaded.pop(t["name"])
        assert list(got.shape) == t["shape"], t["name"]
        assert str(got.dtype) == "torch." + SHOWN.get(t["dtype"], t["dtype"]), t
        want = (at / "tensors" / t["file"]).read_bytes()
        assert raw(got if got.dim() else got.reshape(1)) == want, t["name"]
    left = {o["name"] for o in catalog["objects"]}
    assert loaded.keys() <= left, loaded.keys() - left


def all_of_it(source, **options):
    with mounted(source, **options) as at:
        same_as_tensors(at, everything(at / "dcp"))


def by_name(source):
    """dcp.load into tensors that are there, as a trainer has them."""
    with mounted(source, dcp_shard_size="4K") as at:
        assert len(list((at / "dcp").iterdir())) > 2
        state = {name: torch.zeros(m.size, dtype=m.properties.dtype)
                 for name, m in metadata(at / "dcp").state_dict_metadata.items()
                 if isinstance(m, TensorStorageMetadata)}
        dcp.load(state, checkpoint_id=str(at / "dcp"), no_dist=True)
        same_as_tensors(at, state)


def nested():
    """Of {"model": ..., "optimizer": ...}: one key, and all of it in a file."""
    with tempfile.TemporaryDirectory() as folder:
        model = torch.nn.Linear(3, 4)
        optimizer = torch.optim.AdamW(model.parameters())
        model(torch.ones(3)).sum().backward()
        optimizer.step()
        saved = {"model": model.state_dict(), "optimizer": optimizer.state_dict(),
                 "step": 7, "names": ["a", {"b": (1, None, 2.5, True, -3)}]}
        source = pathlib.Path(folder, "saved.pt")
        torch.save(saved, source)
        with mounted(source) as at:
            got = _load_state_dict_from_keys({"model"}, checkpoint_id=str(at / "dcp"))
            assert got.keys() == {"model"}
            torch.nn.Linear(3, 4).load_state_dict(got["model"])
            out = pathlib.Path(folder, "out.pt")
            dcp_to_torch_save(str(at / "dcp"), out)
            got = torch.load(out, weights_only=True)
        assert torch.equal(got["model"]["weight"], saved["model"]["weight"])
        assert got["step"] == 7 and got["names"] == saved["names"], got["names"]
        # a loader's keys are strings; the values are what they were
        assert {str(k): v for k, v in saved["optimizer"]["param_groups"][0].items()} == \
            got["optimizer"]["param_groups"][0]
        state = saved["optimizer"]["state"]
        for i in state:
            for name, t in state[i].items():
                assert torch.equal(got["optimizer"]["state"][str(i)][name], t), (i, name)


def objects(name):
    """Those of a DCP are the same bytes, so what loads them gets the same."""
    source = FORMATS / "dcp" / name / "in"
    with mounted(source) as at:
        want, got = metadata(source), metadata(at / "dcp")
        items = [i for i in want.storage_data if i.offset is None]
        assert items
        for i in items:
            places = [(p, m.storage_data[i]) for p, m in
                      ((source, want), (at / "dcp", got))]
            stored, shown = (
                (p / s.relative_path).read_bytes()[s.offset:s.offset + s.length]
                for p, s in places)
            assert stored == shown, i
        assert want.planner_data == got.planner_data


def of_which_save():
    """storage_meta: what the save was called, and where it went."""
    with tempfile.TemporaryDirectory() as tmp:
        for to in (tmp, f"{tmp}/pa\u00fcth"):
            writer = dcp.FileSystemWriter(to)
            dcp.save({"w": torch.ones(3)}, storage_writer=writer, no_dist=True)
            with mounted(to) as at:
                reader = dcp.FileSystemReader(str(at / "dcp"))
                meta = reader.read_metadata().storage_meta
                assert (str(meta.checkpoint_id), meta.save_id) == (to, writer.save_id), meta
                assert (meta.load_id, meta.modules) == (reader.load_id, []), meta
    with mounted(FORMATS / "mindspore/2.10-grid/in") as at:
        assert metadata(at / "dcp").storage_meta.save_id is None


def stateful(source):
    """What was saved by torch loads from dcp/ as from itself."""
    with mounted(source) as at:
        want, got = everything(source), everything(at / "dcp")
        assert want.keys() == got.keys()
        for name, value in want.items():
            if isinstance(value, torch.Tensor):
                assert raw(value.reshape(-1)) == raw(got[name].reshape(-1)), name
            else:
                assert value == got[name], name


def large():
    """A tensor in several items, of which a loader reads those that it needs."""
    from safetensors.torch import save_file

    with tempfile.TemporaryDirectory() as folder:
        want = torch.arange(33 * (1 << 20), dtype=torch.float32).reshape(33, -1)
        source = pathlib.Path(folder, "large.safetensors")
        save_file({"w": want}, source)
        with mounted(source, dcp_shard_size="100M") as at:
            meta = metadata(at / "dcp")
            boxes = meta.state_dict_metadata["w"].chunks
            assert [c.sizes[0] for c in boxes] == [16, 16, 1], boxes
            assert len({s.relative_path for s in meta.storage_data.values()}) == 2
            got = {"w": torch.empty_like(want)}
            dcp.load(got, checkpoint_id=str(at / "dcp"), no_dist=True)
            assert torch.equal(got["w"], want)


def exported(source):
    with tempfile.TemporaryDirectory() as folder, mounted(source) as at:
        out = pathlib.Path(folder, "out")
        subprocess.run([UNSHARD, "export", "--to", "dcp", source, out], check=True,
                       stdout=subprocess.DEVNULL)
        for path in (at / "dcp").iterdir():
            assert (out / path.name).read_bytes() == path.read_bytes(), path
        same_as_tensors(at, everything(out))


def of_a_view(source):
    """Cast and renamed by -o views=, and dcp/ of what that shows."""
    views = {"views": {"half": {"dtype": "bfloat16"}}}
    with tempfile.NamedTemporaryFile("w", suffix=".json") as f:
        json.dump(views, f)
        f.flush()
        with mounted(source, views=f.name) as at, mounted(at / "views/half") as half:
            got = everything(half / "dcp")
            want = everything(at / "dcp")
            floats = [n for n, t in want.items()
                      if isinstance(t, torch.Tensor) and t.dtype == torch.float32]
            assert floats
            for name in floats:
                assert got[name].dtype == torch.bfloat16
                assert torch.equal(got[name], want[name].to(torch.bfloat16)), name


def without_tensors(saved):
    """Counters and the like, in a folder of their own; and nothing."""
    with tempfile.TemporaryDirectory() as folder:
        dcp.save(saved, checkpoint_id=folder, no_dist=True)
        with mounted(folder) as at:
            assert everything(at / "dcp") == everything(pathlib.Path(folder)) == saved
            got = {name: None for name in saved}
            dcp.load(got, checkpoint_id=str(at / "dcp"), no_dist=True)
            assert got == saved
        with tempfile.TemporaryDirectory() as out:
            subprocess.run([UNSHARD, "export", "--to", "dcp", folder, f"{out}/dcp"],
                           check=True, stdout=subprocess.DEVNULL)
            assert everything(pathlib.Path(out, "dcp")) == saved


SOURCES = [
    "colossalai/optim-async", "colossalai/padded-vocab", "dcp/2.14-shardings",
    "dcp/2.14-strided-shard", "dcp/2.14-zstd", "dcp/2.14-quantized", "deepspeed/pipeline",
    "deepspeed/universal3", "deepspeed/zero3-tiny", "hf/dcp-sharded", "hf/index-prefix",
    "megatron/experts-tp2-pp2-ep2", "megatron/distributed-optimizer", "mindspore/2.10-grid",
    "mindspore/2.0-dtypes", "nnscaler/merged-doubtful", "nnscaler/tp2-dp2",
    "oneflow/0.9-nested", "oneflow/0.9-graph", "torch/dtensor-ranks", "torch/misc",
    "torch/bare", "torch/views",
]
for name in SOURCES:
    assert (FORMATS / name / "in").is_dir(), name
    case(all_of_it, name.replace("/", "-"), FORMATS / name / "in")
for name in sorted(p.name for p in DATA.iterdir() if (p / "in").is_dir()):
    case(by_name, f"by-name-{name}", DATA / name / "in")
case(nested, "nested")
case(objects, "objects", "2.14-nested")
case(of_which_save, "of-which-save")
case(large, "large")
case(exported, "exported", DATA / "llama-fsdp2/in")
case(stateful, "stateful", DATA / "llama-tied-adamw/in")
case(of_a_view, "of-a-view", DATA / "llama-tied-f32/in")
case(without_tensors, "objects-alone", {"step": 7, "s": "x"})
case(without_tensors, "of-nothing", {})
