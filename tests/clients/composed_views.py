# SPDX-License-Identifier: Apache-2.0
"""Random compositions of views against torch, bit for bit: a source, a view that
chooses, renames, cuts, turns and casts, another mesh of that, a container; then a
second view of what was exported, or of the mount.

12 of them, 200 by UNSHARD_NIGHTLY=1; UNSHARD_SEED=N: others.
"""
import json
import os
import pathlib
import random
import re
import subprocess
import tempfile
import warnings

from kit import UNSHARD, case, mounted, need

need("numpy", "torch", "safetensors")
import numpy as np
import torch
import torch.distributed.checkpoint as dcp
from safetensors.torch import load_file, save_file

warnings.filterwarnings("ignore")
ROUNDS = 200 if os.environ.get("UNSHARD_NIGHTLY") else 12
SEED = int(os.environ.get("UNSHARD_SEED", 0))
FLOATS = [torch.float64, torch.float32, torch.float16, torch.bfloat16]
CASTS = FLOATS + [torch.float8_e5m2, torch.float8_e4m3fn]
OTHERS = [torch.int64, torch.uint8, torch.bool, torch.int32]


def name_of(dtype):
    return str(dtype).removeprefix("torch.")


def same(got, want, what):
    assert got.keys() == want.keys(), (what, sorted(got), sorted(want))
    for n, t in want.items():
        assert got[n].dtype == t.dtype and got[n].shape == t.shape, (what, n, got[n], t)
        nan = t.isnan() if t.is_floating_point() else torch.zeros(t.shape, dtype=bool)
        if nan.any():
            assert torch.equal(got[n].isnan(), nan), (what, n)
        a, b = (x.contiguous().reshape(-1).view(torch.uint8).reshape(-1, x.element_size())
                for x in (got[n], t)) if t.numel() else (nan, nan)
        keep = ~nan.reshape(-1)
        assert not t.numel() or torch.equal(a[keep], b[keep]), (what, n)


# ---- sources


def tensors(rng):
    out = {}
    for i in range(rng.randint(2, 7)):
        shape = [rng.randint(1, 9) for _ in range(rng.choice([0, 1, 2, 2, 2, 3]))]
        dtype = rng.choice(FLOATS + FLOATS + OTHERS)
        t = torch.randn(shape, generator=torch.Generator().manual_seed(rng.randrange(2**31)))
        t = t * 10.0 ** rng.choice([0, 2, -3, 5])
        prefix = rng.choice(["model.layers.%d.", "optim.state.%d.", "w%d."]) % i
        out[prefix + rng.choice(["weight", "bias", "norm"])] = \
            (t > 0 if dtype is torch.bool else t.to(dtype))
    return out


def saved(rng, state, to):
    kind = rng.choice(["file", "files", "dcp", "pt"])
    to.mkdir()
    if kind == "file":
        save_file(state, to / "model.safetensors")
    elif kind == "files":
        names = list(state)
        index = {n: f"model-0000{1 + i % 2}-of-00002.safetensors" for i, n in enumerate(names)}
        for f in set(index.values()):
            save_file({n: state[n] for n in names if index[n] == f}, to / f)
        (to / "model.safetensors.index.json").write_text(json.dumps({"weight_map": index}))
    elif kind == "dcp":
        dcp.save(dict(state), checkpoint_id=str(to), no_dist=True)
    else:
        torch.save(dict(state), to / "model.pt")
    return kind


# ---- views: what the manual says of each member


def glob(patterns, name):
    return any(re.fullmatch(".*".join(map(re.escape, p.split("*"))), name) for p in patterns)


def cast(t, spec, name):
    if "dtype" not in spec or not t.is_floating_point() or glob(spec.get("keep", []), name):
        return t
    to = getattr(torch, spec["dtype"])
    most = torch.finfo(to).max if to in CASTS[4:] else None
    if to == t.dtype or most is None:
        return t.to(to)
    t = t.float()  # PyTorch has no casts from float64 to these that go another way
    if spec.get("overflow") == "saturate":
        return t.clamp(-most, most).to(to)
    if to is torch.float8_e4m3fn:
        t = t.masked_fill(t.abs() > 464, float("nan"))
    return t.to(to)


def view(rng, state):
    """A description, and what it shows."""
    names = list(state)
    spec, left = {}, dict(state)
    if rng.random() < 0.3:
        spec["include"] = rng.sample(names, rng.randint(1, len(names))) + ["w*"]
        left = {n: t for n, t in left.items() if glob(spec["include"], n)}
    if rng.random() < 0.3 and len(left) > 1:
        spec["exclude"] = [rng.choice(list(left))[:-1] + "*"]
        left = {n: t for n, t in left.items() if not glob(spec["exclude"], n)} or dict(left)
        if all(glob(spec["exclude"], n) for n in left):
            del spec["exclude"]
    if rng.random() < 0.5:
        spec["rename"] = rng.sample(
            [{"from": "^model\\.", "to": "m."}, {"from": "([a-z]+)\\.([0-9]+)", "to": "\\2/\\1"},
             {"from": "$", "to": ".x"}, {"from": "weight", "to": "W"}], rng.randint(1, 2))
        for rule in spec["rename"]:
            to = rule["to"]
            left = {re.sub(rule["from"], to, n, count=1): t for n, t in left.items()}
    if rng.random() < 0.4:
        some = [n for n in left if left[n].dim() and left[n].shape[0] > 1]
        if some:
            n = rng.choice(some)
            spec["rows"] = {n: rng.randint(1, left[n].shape[0])}
            left[n] = left[n][: spec["rows"][n]]
    if rng.random() < 0.4:
        spec["transpose"] = [n for n in left if left[n].dim() == 2 and rng.random() < 0.6]
        left = {n: t.T if n in spec["transpose"] else t for n, t in left.items()}
    if rng.random() < 0.7:
        spec["dtype"] = name_of(rng.choice(CASTS))
        if "float8" in spec["dtype"] and rng.random() < 0.7:
            spec["overflow"] = rng.choice(["nan", "saturate"])
        if rng.random() < 0.4:
            spec["keep"] = ["*norm*", rng.choice(list(left))]
        left = {n: cast(t, spec, n) for n, t in left.items()}
    return spec, {n: t.contiguous() for n, t in left.items()}


# ---- meshes: lists of rows


def chunk(rows, parts, i):
    each = -(-len(rows) // parts) or 1
    return rows[i * each:(i + 1) * each]


def strided(rows, factor, parts, i):
    return sum((chunk(chunk(rows, factor, b), parts, i) for b in range(factor)), [])


def taken(t, rows):
    for d, r in rows.items():
        t = t.index_select(d, torch.tensor(r, dtype=torch.int64)) if t.element_size() != 1 or \
            not t.is_floating_point() else \
            t.view(torch.uint8).index_select(d, torch.tensor(r, dtype=torch.int64)).view(t.dtype)
    return t.contiguous()


def by_words(rng, state):
    dims = rng.sample([0, 1, 2], rng.randint(1, 2))
    sizes = [rng.randint(1, 4) for _ in dims]
    ranks = []
    for r in range(int(np.prod(sizes))):
        at = np.unravel_index(r, sizes)
        ranks.append({n: taken(t, {d: chunk(list(range(t.shape[d])), s, int(i))
                                   for d, s, i in zip(dims, sizes, at) if d < t.dim()})
                      for n, t in state.items()})
    return ",".join(f"dim{d}={s}" for d, s in zip(dims, sizes)), None, ranks


def by_file(rng, state):
    mesh = [rng.randint(1, 3) for _ in range(rng.randint(1, 3))]
    places = {n: [(rng.randrange(t.dim()), rng.choice([0, 0, 2, 3]))
                  if t.dim() and rng.random() < 0.8 else None for _ in mesh]
              for n, t in state.items()}
    words = {n: ["replicate" if p is None else f"strided({p[0]}, {p[1]})" if p[1] else f"shard({p[0]})"
                 for p in v] for n, v in places.items()}
    ids = rng.sample(range(int(np.prod(mesh))), int(np.prod(mesh)))
    ranks = [None] * len(ids)
    for at, rank in enumerate(ids):
        where = np.unravel_index(at, mesh)
        ranks[rank] = {}
        for n, t in state.items():
            rows = {d: list(range(s)) for d, s in enumerate(t.shape)}
            for p, size, i in zip(places[n], mesh, where):
                if p:
                    d, f = p
                    rows[d] = strided(rows[d], f, size, int(i)) if f else chunk(rows[d], size, int(i))
            ranks[rank][n] = taken(t, rows)
    return "mesh", {"mesh": {"shape": mesh, "device_ids": ids}, "placements": words}, ranks


# ---- containers


def from_npy(folder, want):
    # NumPy has no such types: the bytes are compared as they are
    out = {}
    for f in folder.iterdir():
        a = np.load(f)
        n = next(n for n in want if n.replace("/", "%2F") + ".npy" == f.name)
        t = want[n]
        out[n] = torch.frombuffer(bytearray(a.tobytes()), dtype=t.dtype).reshape(a.shape) \
            if a.nbytes else torch.empty(a.shape, dtype=t.dtype)
    return out


def flat(d, prefix=""):
    out = {}
    for k, v in d.items():
        out.update({prefix + k: v} if torch.is_tensor(v) else flat(v, f"{prefix}{k}."))
    return out


def from_dcp(folder, want):
    state = {n: torch.zeros(t.shape, dtype=t.dtype) for n, t in want.items()}
    dcp.load(state, checkpoint_id=str(folder), no_dist=True)
    return state


def load(path, form, want):
    if form == "npy":
        return from_npy(path, want)
    if form == "dcp":
        return from_dcp(path, want)
    if form == "pt":
        return flat(torch.load(path, weights_only=True))
    return load_file(path)


FORMS = {"safetensors": "model.safetensors", "pt": "model.pt", "npy": "npy", "dcp": "dcp"}


def export(tmp, source, options, inside, to):
    command = [UNSHARD, "export"]
    for k, v in options.items():
        command += ["-o", f"{k}={v}"]
    done = subprocess.run(command + [f"{source}/{inside}", str(to)], capture_output=True, text=True)
    assert done.returncode == 0, (command, inside, done.stderr)


def ranks_of(folder):
    return [load_file(f) for f in sorted(folder.glob("rank-*.safetensors"))]


def compose(seed):
    rng = random.Random(seed)
    with tempfile.TemporaryDirectory() as tmp:
        tmp = pathlib.Path(tmp)
        state = tensors(rng)
        source = tmp / "in"
        what = [saved(rng, state, source)]
        spec, want = view(rng, state)
        word, mesh, ranks = rng.choice([by_words, by_file])(rng, want)
        form = rng.choice(list(FORMS))
        (tmp / "v.json").write_text(json.dumps({"views": {"v": spec}}))
        options = {"views": tmp / "v.json"}
        if mesh:
            (tmp / "mesh.json").write_text(json.dumps(mesh))
            options["reshard"] = tmp / "mesh.json"
        what += [spec, word, mesh, form]
        cut = f"views/v/reshard/{word}"
        export(tmp, source, options, f"views/v/{FORMS[form]}", tmp / "one")
        same(load(tmp / "one", form, want), want, what)
        export(tmp, source, options, cut, tmp / "cut")
        for got, rank in zip(ranks_of(tmp / "cut"), ranks, strict=True):
            same(got, rank, what)
        # what was exported is a checkpoint again, of which there are views
        spec2, want2 = view(rng, want)
        what.append(spec2)
        (tmp / "v2.json").write_text(json.dumps({"views": {"again": spec2}}))
        again = {"views": tmp / "v2.json"}
        last = rng.choice(list(FORMS))
        export(tmp, tmp / "cut", again, f"views/again/{FORMS[last]}", tmp / "two")
        same(load(tmp / "two", last, want2), want2, what)
        if rng.random() < 0.4:
            on_mounts(rng, tmp, source, options, again, form, cut, want, ranks, want2, what)


def on_mounts(rng, tmp, source, options, again, form, cut, want, ranks, want2, what):
    if rng.random() < 0.3:  # a mount for writing has no views of views
        with mounted(source, overlay=tmp / "overlay", **options) as at:
            same(load_file(at / "views/v/model.safetensors"), want, what)
            with mounted(at / "views/v", **again) as top:
                same(load_file(top / "views/again/model.safetensors"), want2, what)
        return
    with mounted(source, **options) as at:
        same(load(at / "views/v" / FORMS[form], form, want), want, what)
        for got, rank in zip(ranks_of(at / cut), ranks, strict=True):
            same(got, rank, what)
        with mounted(at / cut, **again) as top:
            same(load_file(top / "views/again/model.safetensors"), want2, what)


for seed in range(SEED, SEED + ROUNDS):
    case(compose, f"{seed}", seed)
