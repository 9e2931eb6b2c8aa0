# SPDX-License-Identifier: Apache-2.0
"""MindSpore: a net and its optimizer loaded from model.ckpt, from
model.safetensors and from the ranks of a reshard, and trained on."""
import pathlib
import tempfile

from kit import case, mounted, need

need("numpy", "mindspore")
import mindspore as ms
import numpy as np
from mindspore import nn, ops

ms.set_device("CPU")
ms.set_seed(5)
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


main()
