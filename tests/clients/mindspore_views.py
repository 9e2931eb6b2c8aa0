# SPDX-License-Identifier: Apache-2.0
"""MindSpore: a net and its optimizer loaded from model.ckpt, from
model.safetensors and from the ranks of a reshard, and trained on; and the ranks of
a reshard against what transform_checkpoints writes, for random strategies."""
import os
import pathlib
import random
import tempfile

from kit import case, mounted, need

need("numpy", "mindspore")
import mindspore as ms
import numpy as np
from mindspore import nn, ops

ms.set_device("CPU")
ms.set_seed(5)
STRATEGIES = 60 if os.environ.get("UNSHARD_NIGHTLY") else 6
SEED = int(os.environ.get("UNSHARD_SEED", 0))
COLUMNS, ROWS, CLASSES = 6, 4, 3


class Net(nn.Cell):
    def __init__(self):
        super().__init__()
        self.embed = nn.Dense(COLUMNS, 8)
        self.norm = nn.LayerNorm((8,))
        self.head = nn.Dense(8, CLASSES)

    def construct(self, x):
        return self.head(ops.relu(self.norm(self.embed(x))))


def fresh():
    net = Net()
    return net, nn.AdamWeightDecay(net.trainable_params(), learning_rate=1e-2)


def train(net, optimizer, steps, begin=0):
    """Some steps, each of its own data."""
    loss = nn.CrossEntropyLoss()
    grad = ms.value_and_grad(
        lambda x, y: loss(net(x), y), None, optimizer.parameters
    )
    for step in range(begin, begin + steps):
        g = np.random.default_rng(step)
        x = ms.Tensor(g.standard_normal((ROWS, COLUMNS)), ms.float32)
        y = ms.Tensor(g.integers(0, CLASSES, ROWS), ms.int32)
        optimizer(grad(x, y)[1])


def state(*cells):
    return {p.name: p.asnumpy().tobytes() for c in cells for p in c.get_parameters()}


def saved(tmp, form):
    """A file of net and optimizer after two steps, and what comes after."""
    net, optimizer = fresh()
    train(net, optimizer, 2)
    file = tmp / f"net.{form}"
    ms.save_checkpoint(optimizer, str(file), append_dict={"epoch_num": 3}, format=form)
    train(net, optimizer, 2, 2)
    return file, state(optimizer, net)


def load(file):
    """Owning its bytes: what maps a file keeps the mount busy."""
    params = ms.load_checkpoint(str(file), format=file.suffix[1:])
    return {
        n: ms.Parameter(ms.Tensor(p.asnumpy().copy(), p.dtype), name=n)
        for n, p in params.items()
    }


def goes_on(params, want):
    net, optimizer = fresh()
    missing, unused = ms.load_param_into_net(net, params)
    assert not missing, missing
    missing, unused = ms.load_param_into_net(optimizer, params)
    assert not missing, missing
    train(net, optimizer, 2, 2)
    got = state(optimizer, net)
    assert got == want, [n for n in want if got.get(n) != want[n]]


def back(tmp, source, view):
    file, want = saved(tmp, source)
    with mounted(file) as at:
        params = load(at / f"model.{view}")
        assert int(params["epoch_num"].asnumpy()) == 3
        goes_on(params, want)


def ranks(tmp, view):
    """The parts of two ranks, joined here, are the whole again."""
    file, want = saved(tmp, "ckpt")
    with mounted(file, reshard_container=view) as at:
        parts = [
            load(at / f"reshard/dim0=2/rank-0000{r}.{view}") for r in range(2)
        ]
        for name, first in parts[0].items():
            other = parts[1].get(name)
            if first.ndim and other is not None:
                whole = np.concatenate([first.asnumpy(), other.asnumpy()])
                parts[0][name] = ms.Parameter(ms.Tensor(whole), name=name)
        goes_on(parts[0], want)


def every_dtype(tmp, view):
    made = {}
    for name in (
        "bool int8 uint8 int16 uint16 int32 uint32 int64 uint64 float16 float32 "
        "float64 bfloat16"
    ).split():
        t = ms.Tensor(np.arange(6).reshape(2, 3) % 2 + 1).astype(getattr(ms, name))
        made[name] = ms.Parameter(t, name=name)
        made[name + ".0d"] = ms.Parameter(t[0, 1], name=name + ".0d")
    file = tmp / "types.ckpt"
    ms.save_checkpoint([{"name": n, "data": p} for n, p in made.items()], str(file))
    with mounted(file) as at:
        got = load(at / f"model.{view}")
    assert set(got) == set(made), set(got) ^ set(made)
    for name, p in made.items():
        assert got[name].dtype == p.dtype, name
        assert got[name].shape == p.shape, name
        assert got[name].get_bytes() == p.get_bytes(), name


def from_torch(tmp):
    """What another framework saved: names as there, values as there."""
    from safetensors.numpy import save_file

    net, _ = fresh()
    made = {
        p.name: np.random.default_rng(len(p.name)).standard_normal(p.shape, np.float32)
        for p in net.get_parameters()
    }
    save_file(made, tmp / "model.safetensors")
    with mounted(tmp / "model.safetensors") as at:
        params = load(at / "model.ckpt")
        missing, unused = ms.load_param_into_net(net, params, strict_load=True)
        assert not missing and not unused, (missing, unused)
    for p in net.get_parameters():
        assert np.array_equal(p.asnumpy(), made[p.name]), p.name


def factors(rng, n):
    """A mesh of @n devices."""
    out = []
    while n > 1:
        out.append(rng.choice([d for d in range(2, n + 1) if n % d == 0]))
        n //= out[-1]
    return out or [1]


def layout(rng, shape, devices, to):
    """Each dimension along some axes of the mesh, counted from the right. With
    optimizer shards they descend, one a dimension: else transform_checkpoints itself
    puts parts together in a wrong order."""
    mesh = factors(rng, devices)
    axes = rng.sample(range(len(mesh)), rng.randint(0, len(mesh)))
    cut = [[] for _ in shape]
    if rng.random() < 0.5:
        for d, a in zip(range(len(shape)), sorted(axes, reverse=True)):
            cut[d] = [a]
    else:
        for a in axes:
            rng.choice(cut).append(a)
    nested = any(len(c) > 1 for c in cut)
    plain = [c[0] if c else -1 for c in cut]
    used = [a for a in plain if a >= 0]
    copies, last, stride = 1, 0, 1
    for a, n in enumerate(reversed(mesh)):
        if a not in used:
            copies, last = copies * n, last + (n - 1) * stride
        stride *= n
    shards = -1 if not nested and copies > 1 and used == sorted(used, reverse=True) and \
        rng.random() < 0.6 else 0
    to.dev_matrix.add().dim.extend(mesh)
    for one in [c or [-1] for c in cut] if nested else [plain]:
        to.tensor_map.add().dim.extend(one)
    if nested and len(shape) == 1:
        to.tensor_map.add()
    to.param_split_shape.add()
    to.indices_offset.add()
    to.field = 0
    to.opt_weight_shard_size = shards
    to.opt_weight_shard_step = last // (copies - 1) if shards else 0


def strategy(rng, shapes, file):
    """Of one stage, or as merge_pipeline_strategys joins several."""
    from mindspore.train.node_strategy_pb2 import ParallelStrategyMap

    devices, stages = rng.choice([(2, 1), (4, 1), (8, 1), (16, 1), (4, 2), (2, 4), (2, 2)])
    out = ParallelStrategyMap()
    out.current_stage = 1
    for i, (name, shape) in enumerate(shapes.items()):
        stage = i * stages // len(shapes)
        state = None
        for one in name, f"adam_m.{name}", f"adam_v.{name}":
            item = out.parallel_layout_item.add()
            item.param_name = f"{stage}-{one}" if stages > 1 else one
            if state is None:
                layout(rng, shape, devices, item.parallel_layouts)
                state = item.parallel_layouts
            else:
                item.parallel_layouts.CopyFrom(state)
    for stage in range(stages):  # which ones there are
        item = out.parallel_strategy_item.add()
        item.node_name = f"{stage}-MatMul" if stages > 1 else "MatMul"
        item.parallel_strategys.stage = stage
        item.parallel_strategys.parallel_strategy.add().dim.append(1)
    file.write_bytes(out.SerializeToString())
    return devices * stages


def bytes_of(file):
    return {n: (tuple(p.shape), str(p.dtype), bytes(p.get_bytes()))
            for n, p in ms.load_checkpoint(str(file)).items()}


def transformed(tmp, seed):
    """whole -> one strategy -> another, by MindSpore; and by us from the first's files."""
    rng = random.Random(seed)
    shapes = {f"layer{i}.w": [16 * rng.randint(1, 3) for _ in range(rng.choice([1, 2, 2, 3]))]
              for i in range(4)}
    g = np.random.default_rng(seed)
    made = []
    for name, shape in shapes.items():
        dtype = getattr(ms, rng.choice(["float32", "float16", "bfloat16"]))
        for one in name, f"adam_m.{name}", f"adam_v.{name}":
            made.append({"name": one, "data": ms.Tensor(g.standard_normal(shape), dtype)})
    made.append({"name": "global_step", "data": ms.Tensor([seed], ms.int32)})
    (tmp / "whole/rank_0").mkdir(parents=True)
    ms.save_checkpoint(made, str(tmp / "whole/rank_0/net.ckpt"))
    strategy(rng, shapes, tmp / "from.ckpt")
    ranks = strategy(rng, shapes, tmp / "to.ckpt")
    ms.transform_checkpoints(str(tmp / "whole"), str(tmp / "a"), "a", None,
                             str(tmp / "from.ckpt"))
    ms.transform_checkpoints(str(tmp / "a"), str(tmp / "b"), "b", str(tmp / "from.ckpt"),
                             str(tmp / "to.ckpt"))
    with mounted(tmp / "a", strategy=tmp / "from.ckpt", reshard=tmp / "to.ckpt",
                 reshard_container="ckpt") as at:
        whole = bytes_of(at / "model.ckpt")
        assert whole == bytes_of(tmp / "whole/rank_0/net.ckpt")
        assert len(list((at / "reshard/to").iterdir())) == ranks
        for rank in range(ranks):
            file, = (tmp / f"b/rank_{rank}").iterdir()
            want, got = bytes_of(file), bytes_of(at / f"reshard/to/rank-{rank:05}.ckpt")
            assert got == want, (rank, [n for n in want | got if got.get(n) != want.get(n)])


def main():
    for source in "ckpt", "safetensors":
        for view in "ckpt", "safetensors":
            with tempfile.TemporaryDirectory() as tmp:
                case(back, f"{source}-to-{view}", pathlib.Path(tmp), source, view)
    for view in "ckpt", "safetensors":
        with tempfile.TemporaryDirectory() as tmp:
            case(ranks, f"ranks/{view}", pathlib.Path(tmp), view)
        with tempfile.TemporaryDirectory() as tmp:
            case(every_dtype, f"dtypes/{view}", pathlib.Path(tmp), view)
    with tempfile.TemporaryDirectory() as tmp:
        case(from_torch, "from-safetensors", pathlib.Path(tmp))
    for seed in range(SEED, SEED + STRATEGIES):
        with tempfile.TemporaryDirectory() as tmp:
            case(transformed, f"transformed/{seed}", pathlib.Path(tmp), seed)


main()
