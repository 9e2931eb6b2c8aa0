#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes what MindSpore 2.10 saves of meshes, and the sums of the tensors that they were cut from.

usage: make_mindspore_examples.py DIR [CASE...]     DIR/CASE/in, DIR/CASE/sums, DIR/CASE/full/NAME (the bytes)
       make_mindspore_examples.py examples          anew: those beside this script (then UPDATE_WANT=1 make check-unit)

Needs mindspore (2.10.0), numpy of before 2 and g++.  MindSpore's graph compiler cuts the parameters and writes the strategy files, a process
for each rank; its save_checkpoint writes the files, its own functions de-duplicate, unify and merge.  A stand-in for the
accelerator says which rank it is, of how many; it computes nothing, so that states hold given values and nothing is trained.
"""
import ctypes, hashlib, os, pathlib, shutil, subprocess, sys, tempfile, traceback, zlib

HERE = pathlib.Path(__file__).resolve().parent / "mindspore"
DEVICE = r"""
#include <cstdlib>
#include <map>
#include <memory>
#include <string>
#include <vector>
namespace mindspore {
struct MsContext { static void RegisterInitFunc(const std::string &, void (*)(MsContext *)); };
class CommManager {
 public:
  static bool Register(const std::string &, const std::shared_ptr<CommManager> &);
  virtual ~CommManager() = default;
  virtual bool CreateGroupSync(const std::string &, const std::vector<unsigned> &) const = 0;
  virtual bool DestroyGroup(const std::string &) const = 0;
  virtual bool GetRankID(const std::string &, unsigned *) const = 0;
  virtual bool GetRankSize(const std::string &, unsigned *) const = 0;
  virtual unsigned GetRank() = 0;
 protected:
  explicit CommManager(std::string b) : backend_(b) {}
  std::string backend_;
};
}
static unsigned env(const char *n) { const char *v = getenv(n); return v ? atoi(v) : 0; }
struct Comm : mindspore::CommManager {
  Comm() : CommManager("stand-in") {}
  mutable std::map<std::string, std::vector<unsigned>> groups;
  bool CreateGroupSync(const std::string &g, const std::vector<unsigned> &r) const override { groups[g] = r; return true; }
  bool DestroyGroup(const std::string &) const override { return true; }
  bool GetRankID(const std::string &g, unsigned *out) const override {
    *out = env("STANDIN_RANK");
    for (unsigned i = 0; groups.count(g) && i < groups[g].size(); i++)
      if (groups[g][i] == env("STANDIN_RANK")) { *out = i; break; }
    return true;
  }
  bool GetRankSize(const std::string &g, unsigned *out) const override {
    *out = groups.count(g) ? groups[g].size() : env("STANDIN_SIZE");
    return true;
  }
  unsigned GetRank() override { return env("STANDIN_RANK"); }
};
static std::shared_ptr<Comm> comm;
extern "C" void standin() {
  mindspore::MsContext::RegisterInitFunc("Ascend", [](mindspore::MsContext *) {});
  mindspore::CommManager::Register("Ascend", comm = std::make_shared<Comm>());
}
extern "C" unsigned standin_rank(const char *g) { unsigned v; comm->GetRankID(g, &v); return v; }
extern "C" unsigned standin_size(const char *g) { unsigned v; comm->GetRankSize(g, &v); return v; }
"""
ZERO = {"enable_parallel_optimizer": True, "parallel_optimizer_config": {"parallel_optimizer_threshold": 0}}
ZERO4 = {"enable_parallel_optimizer": True, "parallel_optimizer_config": {"parallel_optimizer_threshold": 0, "optimizer_weight_shard_size": 4}}


def P(name, shape, mesh, *axes, dtype="float32"):
    """A parameter on a mesh of devices: for each dimension the axis, or axes, that cut it; "-": none."""
    return name, shape, dtype, mesh, axes


# ranks, optimizer, parameters; with: context, file, strategy, json, format, dedup, stages, append, crc, steps, choose, unify
CASES = {
    "2.10-layouts-shards-of-4": dict(size=16, opt="momentum", context=ZERO4, json=True, params=[
        P("first.weight", (3, 2, 8), (8, 2), "-", "b", "a"), P("second.gamma", (4, 4, 1), (4, 4), "a", "b", "-"),
        P("third.table", (4, 12), (4, 4), "a", "b")]),
    "2.10-layouts-shards-safetensors": dict(size=8, opt="momentum", context=ZERO4, format="safetensors", params=[
        P("first.weight", (8, 6), (2, 4), "b", "-"), P("second.gamma", (16, 2), (2, 2, 2), "b", "-", dtype="float16"),
        P("third.table", (4, 8), (4, 2), "b", "a")]),
    "2.10-shards-append-crc": dict(size=16, opt="adam", context=ZERO4, json=True, crc=True,
        append={"epoch_num": 3, "step_num": 90, "rate": 0.25, "done": True}, params=[
        P("first.weight", (3, 32), (16,), "-", "a", dtype="bfloat16"), P("second.gamma", (1, 48), (16,), "-", "a"),
        P("third.table", (2, 80), (16,), "-", "a"), P("fourth.w", (3, 32, 2, 1), (16,), "-", "a", "-", "-")]),
    # ---- made to be compared; those with a release in their names are kept ----
    "mesh-4d": dict(size=16, opt="momentum", params=[P("w", (4, 2, 4, 2), (2, 2, 2, 2), "d", "c", "b", "a"),
        P("v", (2, 8, 3), (2, 2, 2, 2), "c", "a", "-", dtype="float16")]),
    "nested-three": dict(size=8, opt="adam", json=True, params=[P("w", (16, 3), (2, 2, 2), "cab", "-"),
        P("v", (4, 8), (2, 2, 2), "b", "ca", dtype="bfloat16")]),
    "nested-shards": dict(size=8, opt="adam", context=ZERO, params=[P("w", (16, 4), (2, 2, 2), "-", "ca"),
        P("v", (16, 3), (2, 2, 2), "ba", "-"), P("u", (24,), (2, 2, 2), "c")]),
    "dedup-shards-bf16": dict(size=8, opt="adam", context=ZERO4, dedup=True, params=[
        P("w", (16, 6), (2, 4), "a", "-", dtype="bfloat16"), P("v", (6, 5), (8,), "-", "-", dtype="bfloat16"), P("u", (8, 3), (4, 2), "b", "-")]),
    "dedup-nested-safetensors": dict(size=8, opt="momentum", dedup=True, format="safetensors", params=[
        P("w", (8, 3), (2, 2, 2), "ca", "-"), P("v", (4, 6), (2, 2, 2), "-", "b"), P("u", (5,), (8,), "-")]),
    "stages-4": dict(size=8, opt="momentum", stages=4, context={"pipeline_stages": 4}, json=True,
        pipe=((6, 8, 4, 10, 12), ((2, 1), (1, 2), (1, 1), (2, 1)))),
    "stages-shards-dedup": dict(size=8, opt="adam", stages=2, context=dict(ZERO, pipeline_stages=2), dedup=True,
        pipe=((4, 8, 16, 12), ((2, 2), (1, 2), (1, 4)))),
    "stages-safetensors-json": dict(size=8, opt="momentum", stages=2, context={"pipeline_stages": 2}, format="safetensors", json="only",
        pipe=((8, 8, 4, 8), ((4, 1), (1, 4), (2, 2)))),
    "device-steps": dict(size=4, opt="momentum", file="device{r}/CKP-{e}_9.ckpt", steps=(1, 2), params=[
        P("w", (8, 2), (4,), "a", "-"), P("v", (3, 4), (2, 2), "-", "b", dtype="float16")]),
    "2.10-zoo-folders": dict(size=4, opt="adam", file="train_parallel{r}/ckpt_{r}/net-2_5.ckpt", params=[
        P("w", (4, 6), (2, 2), "b", "a", dtype="bfloat16"), P("v", (12,), (4,), "a")]),
    "2.10-names-of-files": dict(size=4, opt="momentum", file="net_rank_{r}-1_3.safetensors", format="safetensors", params=[
        P("w", (4, 6), (2, 2), "a", "b"), P("v", (8, 2), (4,), "a", "-")]),
    "2.10-adapter-only": dict(size=4, opt=None, choose="lora", params=[P("base.weight", (8, 8), (4,), "a", "-"),
        P("base.lora_a", (2, 8), (4,), "-", "a"), P("base.lora_b", (8, 2), (4,), "a", "-")]),
    "2.10-data-parallel": dict(size=4, opt="adam", no_strategy=True, opts="integrated=yes\n", params=[
        P("w", (4, 3), (4,), "-", "-", dtype="bfloat16"), P("v", (5,), (4,), "-")]),
    "unified-shards": dict(size=8, opt="adam", context=ZERO, format="safetensors", unify=True, params=[
        P("w", (16, 8), (2, 4), "a", "b"), P("v", (16, 4), (8,), "-", "-", dtype="bfloat16"), P("u", (6, 4), (4, 2), "b", "-")]),
}
KEPT = [name for name in CASES if name.startswith("2.10-")]


def values(name, shape):
    import numpy as np
    rng = np.random.Generator(np.random.PCG64(zlib.crc32(name.encode())))
    return rng.standard_normal(shape).astype(np.float32)


def boot(rank, size):
    os.environ.update(STANDIN_RANK=str(rank), STANDIN_SIZE=str(size))
    import mindspore as ms
    from mindspore._c_expression import MSContext, ms_ctx_param
    lib = ctypes.CDLL(os.environ["STANDIN"])
    lib.standin()
    ms.set_context(mode=ms.GRAPH_MODE)
    MSContext.get_instance().set_param(ms_ctx_param.device_target, "Ascend")
    asks = {"get_rank": lambda group=None: rank if group is None else lib.standin_rank(group.encode()),
            "get_group_size": lambda group=None: size if group is None else lib.standin_size(group.encode())}
    for name, module in list(sys.modules.items()):
        for attr, fn in asks.items():
            if name.startswith("mindspore.") and attr in vars(module):
                setattr(module, attr, fn)
    return ms


def tensor(ms, name, shape, dtype):
    return ms.Tensor(values(name, shape), getattr(ms, dtype))


def net_of_layouts(ms, params):
    """A sum of products, each parameter laid out as its row says; in float32, for nothing folds bfloat16 here."""
    from mindspore import Parameter, nn, ops
    from mindspore.parallel.shard import Layout

    class Leaf(nn.Cell):
        def __init__(self, name, shape, dtype, mesh, axes):
            super().__init__()
            place = Layout(mesh, tuple("abcd"[: len(mesh)]))
            lay = place(*(("None" if a == "-" else a if len(a) == 1 else tuple(a)) for a in axes))
            self.weight = Parameter(tensor(ms, name, shape, dtype), name=name)
            self.cast = ops.Cast().shard((lay,))
            self.mul = ops.Mul().shard((lay, lay))
            self.sum = ops.ReduceSum().shard(((1,) * len(shape),))

        def construct(self, x):
            return self.sum(self.mul(x, self.cast(self.weight, ms.float32)))

    class Net(nn.Cell):
        def __init__(self):
            super().__init__(auto_prefix=False)
            self.leaves = nn.CellList([Leaf(*p) for p in params], auto_prefix=False)

        def construct(self, *xs):
            out = self.leaves[0](xs[0])
            for i in range(1, len(params)):
                out = out + self.leaves[i](xs[i])
            return out

    import numpy as np
    return Net(), [ms.Tensor(np.ones(p[1], np.float32)) for p in params]


def net_of_stages(ms, dims, cuts, stages):
    from mindspore import Parameter, nn, ops
    import numpy as np

    class Layer(nn.Cell):
        def __init__(self, i):
            super().__init__()
            rows, cols = cuts[i]
            self.weight = Parameter(tensor(ms, f"layer{i}.weight", (dims[i + 1], dims[i]), "float32"), name="weight")
            self.bias = Parameter(tensor(ms, f"layer{i}.bias", (dims[i + 1],), "float32"), name="bias")
            self.mul = ops.MatMul(transpose_b=True).shard(((1, cols), (rows, cols)))
            self.add = ops.Add().shard(((1, rows), (rows,)))
            self.pipeline_stage = i * stages // len(cuts)

        def construct(self, x):
            return self.add(self.mul(x, self.weight), self.bias)

    class Net(nn.Cell):
        def __init__(self):
            super().__init__()
            for i in range(len(cuts)):
                setattr(self, f"layer{i}", Layer(i))
            self.sum = ops.ReduceSum()

        def construct(self, x):
            x = self.layer1(self.layer0(x))
            x = self.layer2(x) if len(cuts) > 2 else x
            x = self.layer3(x) if len(cuts) > 3 else x
            return self.sum(x)

    return nn.PipelineCell(Net(), 4), [ms.Tensor(np.ones((16, dims[0]), np.float32))]


def raw(t):
    return bytes(t.get_bytes())


def save(ms, case, rank, at, train, full):
    from mindspore.train._utils import get_parameter_redundancy, remove_param_redundancy
    more = {"format": case.get("format", "ckpt")}
    if case.get("crc"):
        more["crc_check"] = True
    if case.get("append"):
        more["append_dict"] = dict(case["append"])
    if case.get("dedup"):
        layout = train.parameter_layout_dict
        mine = remove_param_redundancy(get_parameter_redundancy(layout)).get(rank) or ()
        more.update(remove_redundancy=True, choice_func=lambda n: n not in layout or n in mine)
    if case.get("choose"):
        more["choice_func"] = lambda n: case["choose"] in n
    name = case.get("file", "rank_{r}/net." + more["format"])
    for e in case.get("steps", (1,)):
        path = at / "in" / name.format(r=rank, e=e)
        path.parent.mkdir(parents=True, exist_ok=True)
        ms.save_checkpoint(train, str(path), integrated_save=False, **more)
        path.chmod(0o644)


def one_rank(case, rank, at, strategy, saves):
    ms = boot(rank, case["size"])
    from mindspore import nn
    from mindspore.common.api import _cell_graph_executor
    from mindspore.nn.wrap.cell_wrapper import _TrainGradAccuStepCell
    ms.context.set_auto_parallel_context(parallel_mode="semi_auto_parallel", device_num=case["size"], global_rank=rank,
        dataset_strategy="full_batch", strategy_ckpt_config={"save_file": str(strategy), "only_trainable_params": False},
        **case.get("context", {}))
    stages = case.get("stages", 1)
    net, ins = net_of_stages(ms, *case["pipe"], stages) if "pipe" in case else net_of_layouts(ms, case["params"])
    params = net.trainable_params()
    opt = {"momentum": lambda: nn.Momentum(params, 0.01, 0.9), "adam": lambda: nn.AdamWeightDecay(params, 0.001), None: lambda: None}[case["opt"]]()
    train = (_TrainGradAccuStepCell if stages > 1 else nn.TrainOneStepCell)(net, opt) if opt else net
    for p in train.get_parameters():
        if p.name.split(".")[0] in ("moments", "adam_m", "adam_v", "accu_grads"):
            p.set_data(tensor(ms, p.name, p.shape, str(p.dtype).lower()))
    full = {p.name: raw(p) for p in train.get_parameters()}
    train.set_train()
    # "export" ends the compiler before it looks for a device
    _cell_graph_executor.compile(train, *ins, phase="export")
    if not saves:
        return
    save(ms, case, rank, at, train, full)
    if rank == 0:
        (at / "full").mkdir()
        for name, data in full.items():
            if case.get("choose", "") in name:
                (at / "full" / name).write_bytes(data)


def in_child(fn, *args):
    pid = os.fork()
    if pid:
        return os.waitpid(pid, 0)[1]
    try:
        fn(*args)
    except BaseException:
        traceback.print_exc()
        os._exit(1)
    os._exit(0)


def make(at, case):
    import mindspore as ms  # before the forks: it takes ten seconds
    shutil.rmtree(at, ignore_errors=True)
    (at / "in").mkdir(parents=True)
    stages = case.get("stages", 1)
    per, json = case["size"] // stages, case.get("json")
    bad = 0
    for rank in range(case["size"]):
        first, stage = rank % per == 0, rank // per
        name = f"in/strategy/stage{stage}" if stages > 1 else "in/strategy"
        keep = first and not case.get("no_strategy")
        bad |= in_child(one_rank, case, rank, at, at / (name + ".ckpt" if keep and json != "only" else "away.ckpt"), True)
        if keep and json:
            bad |= in_child(one_rank, case, rank, at, at / (name + ".json"), False)
    (at / "away.ckpt").unlink(missing_ok=True)
    for f in at.rglob("*"):
        f.chmod(0o755 if f.is_dir() else 0o644)
    if bad:
        print(at.name, "FAILED", flush=True)
        return bad
    if case.get("unify"):
        ms.unified_safetensors(str(at / "in"), str(at / "in/strategy.ckpt"), str(at / "out"), max_process_num=1)
        shutil.rmtree(at / "in")
        (at / "out").rename(at / "in")
    if case.get("opts"):
        (at / "opts").write_text(case["opts"])
    sums = {f.name: hashlib.sha256(f.read_bytes()).hexdigest() for f in (at / "full").iterdir()}
    (at / "sums").write_text("".join(f"{h} {n}\n" for n, h in sorted(sums.items())))
    print(at.name, "ok", flush=True)
    return 0


def build_standin(at):
    import importlib.util
    lib = pathlib.Path(importlib.util.find_spec("mindspore").origin).parent / "lib"
    out = at / "libstandin.so"
    subprocess.run(["g++", "-shared", "-fPIC", "-O1", "-D_GLIBCXX_USE_CXX11_ABI=0", "-x", "c++", "-", "-o", out, f"-L{lib}", "-lmindspore_core",
        "-lmindspore_common", f"-Wl,-rpath,{lib}", "-Wl,--allow-shlib-undefined"], input=DEVICE.encode(), check=True)
    return str(out)


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    anew = sys.argv[1] == "examples"
    root = HERE if anew else pathlib.Path(sys.argv[1]).resolve()
    with tempfile.TemporaryDirectory() as tmp:
        os.environ["STANDIN"] = build_standin(pathlib.Path(tmp))
        os.chdir(tmp)  # MindSpore leaves files where it runs
        bad = 0
        for name in KEPT if anew else sys.argv[2:] or CASES:
            bad |= make(root / name, CASES[name])
            if anew:
                shutil.rmtree(root / name / "full")
    sys.exit(bool(bad))
