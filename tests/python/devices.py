# SPDX-License-Identifier: Apache-2.0
"""Memory of devices: the simulated one, and CUDA on a driver that tests/fakes stands in
for, against the same tensors on the host."""
import ctypes
import gc
import os
import pathlib
import tempfile

from kit import DATA, EXAMPLES, case, need, python, refused

need("numpy")
import numpy as np
import unshard
from unshard import _memory

LLAMA = DATA / "llama-fsdp2/in"
DTYPES = EXAMPLES / "dcp/2.14-dtypes/in"
MATRIX = "model.lm_head.weight"
FAKE = os.path.join(os.environ["B"], "fakes/libcuda.so.1")


def same(ck, tensors, dtype=None):
    assert set(tensors) == set(ck)
    for name, t in tensors.items():
        want = ck[name].numpy(dtype) if dtype else ck[name].numpy()
        assert t.shape == ck[name].shape and t.numpy().tobytes() == want.tobytes(), name


def loads():
    with unshard.open(LLAMA) as ck:
        same(ck, ck.load(device="simulated:late=50"))
        same(ck, ck.load(device="simulated:late=50", dtype="bfloat16"), "bfloat16")
        same(ck, ck.load(device="host", framework="dlpack"))
        same(ck, dict(ck.stream(device="simulated:late=50", window="4K")))
        part = ck.load(device="simulated:late=50", mesh="dim0=2", rank=1)
        for name, t in ck.load(framework="numpy", mesh="dim0=2", rank=1).items():
            assert part[name].numpy().tobytes() == t.tobytes()
        with tempfile.TemporaryDirectory() as folder:
            mesh = pathlib.Path(folder, "sbp.json")
            mesh.write_text('{"world_size": 2, "rules": [{"key": "*", "placement": '
                            '{"ranks": [0, 1]}, "sbp": "partial_sum"}]}')
            part = ck.load(device="simulated:late=50", mesh=mesh, rank=1)
            assert set(part) == set(ck)
            for name, t in part.items():
                assert t.shape == ck[name].shape and not any(t.tobytes()), name
    with unshard.open(DTYPES) as ck:
        for t in ck.values():
            if t.itemsize:
                assert t.on_device("simulated:late=20").tobytes() == t.tobytes(), t


def one():
    with unshard.open(LLAMA) as ck:
        t = ck[MATRIX]
        on = t[3:9, 2:5].on_device("simulated:late=50", "float16")
        assert repr(on).startswith("<unshard.DeviceTensor float16 [6, 3] on simulated")
        assert (on.numpy() == t[3:9, 2:5].numpy("float16")).all()
        assert t[6:12, 2:5].read_into(on) == on.nbytes
        assert (on.numpy() == t[6:12, 2:5].numpy("float16")).all()
        refused(ValueError, lambda: t[::2].on_device("simulated"), "steps")
        refused(ValueError, lambda: t.read_into(on), "does not go into")


def dlpack():
    """The capsule says whose memory it is, holds it, and lets it go."""
    with unshard.open(LLAMA) as ck:
        name = f"simulated:3,memory={ck[MATRIX].nbytes}"
        t = ck[MATRIX].on_device(name)
        assert t.__dlpack_device__() == (12, 3)
        for version in (None, (1, 0)):
            capsule = t.__dlpack__(max_version=version, stream=-1)
            inside = _memory._inside(capsule).tensor
            assert (inside.device, inside.device_id, inside.data) == (12, 3, t.address)
            assert [inside.shape[i] for i in range(inside.ndim)] == list(t.shape)
        refused(BufferError, lambda: t.__dlpack__(dl_device=(2, 0)), "its device")
        del t, inside
        gc.collect()
        refused(MemoryError, lambda: ck[MATRIX].on_device(name), "are used")
        del capsule
        gc.collect()
        assert ck[MATRIX].on_device(name).nbytes == ck[MATRIX].nbytes
    left = ck_gone = unshard.open(LLAMA)[MATRIX].on_device("simulated")
    gc.collect()
    assert left.numpy().shape == ck_gone.shape  # its device stays without the checkpoint


def full():
    """Before the first byte is read."""
    with unshard.open(LLAMA) as ck:
        seen = []
        refused(MemoryError, lambda: ck.load(device="simulated:memory=8K",
                                             progress=lambda *a: seen.append(a)),
                "no memory for float32 [149, 18]")
        assert not seen


def failing():
    with unshard.open(LLAMA) as ck:
        for op in ("copy", "event", "wait"):
            e = refused(unshard.DeviceError, lambda: ck.load(
                device=f"simulated:late=0,fail={op}:1:99:121"), f"of {op} fails")
            assert e.errno == 121 and isinstance(e, OSError)
        refused(unshard.DeviceError, lambda: ck.load(device="abacus", framework="dlpack"),
                "expected cuda")
        refused(ValueError, lambda: ck.load(device="simulated", framework="numpy"), "dlpack")
        refused(ValueError, lambda: ck.load(device="cuda", framework="numpy"), "host only")
        refused(ValueError, lambda: ck.load(framework="numpy", stream=1), "only CUDA's")
        refused(ValueError, lambda: ck.load(device="simulated", stream=1), "only CUDA's")


def forked():
    with unshard.open(LLAMA) as ck:
        t = ck[MATRIX].on_device("simulated")
        pid = os.fork()
        if not pid:
            try:
                t.numpy()
            except unshard.Forked:
                del t
                os._exit(0)
            os._exit(1)
        assert os.waitpid(pid, 0)[1] == 0


def cuda():
    """By the package's own calls, in a process that has such a driver."""
    code = """if True:
        import ctypes, sys, unshard
        ctypes.CDLL(sys.argv[1])
        assert "cuda" in unshard.caps()["devices"]
        ck = unshard.open(sys.argv[2])
        on = ck.load(device="cuda:1", framework="dlpack")
        for name, t in on.items():
            assert t.__dlpack_device__() == (2, 1)
            assert t.numpy().tobytes() == ck[name].tobytes(), name
        class Stream:
            ptr = None
        driver, ctx, s = ctypes.CDLL(sys.argv[1]), ctypes.c_void_p(), ctypes.c_void_p()
        assert not driver.cuDevicePrimaryCtxRetain(ctypes.byref(ctx), 1)
        assert not driver.cuCtxPushCurrent_v2(ctx)
        assert not driver.cuStreamCreate(ctypes.byref(s), 1)
        Stream.ptr = s.value
        for stream in (Stream, s.value):
            on = ck.load(device="cuda:1", framework="dlpack", stream=stream)
            for name, t in on.items():
                assert t.numpy().tobytes() == ck[name].tobytes(), name
        driver.cuStreamDestroy_v2(s)
        t = ck[sys.argv[3]]
        assert t.__dlpack__(dl_device=(2, 0), max_version=(1, 0))
        try:
            ck.load(device="cuda:7", framework="dlpack")
        except unshard.DeviceError as e:
            assert "there are 2 CUDA devices here" in str(e), e
        print("whole")
    """
    status, out, err = python(code, FAKE, LLAMA, MATRIX, FAKE_CUDA="count=2,device=late=20")
    assert (status, out.strip()) == (0, "whole"), err


def no_cuda():
    try:
        ctypes.CDLL("libcuda.so.1")
        return "there is a driver here"
    except OSError:
        pass
    assert "libcuda.so.1" in unshard.caps()["cuda"]
    with unshard.open(LLAMA) as ck:
        refused(unshard.DeviceError, lambda: ck[MATRIX].on_device("cuda"), "libcuda.so.1")
        try:
            import torch
        except ImportError:
            return
        if not torch.cuda.is_available():
            refused(unshard.DeviceError, lambda: ck.load(device="cuda"), "libcuda.so.1")
            refused(unshard.DeviceError, lambda: ck[MATRIX].torch(device="cuda:0"), "libcuda")
        assert ck[MATRIX].torch(device="cpu").device.type == "cpu"
        assert ck[MATRIX].torch(device="meta").device.type == "meta"


for test in (loads, one, dlpack, full, failing, forked, cuda, no_cuda):
    case(test)
