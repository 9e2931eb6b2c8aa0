# SPDX-License-Identifier: Apache-2.0
"""npy/ by np.load, as arrays and as maps, and tensors/ by np.fromfile."""
from kit import case, checkpoints, example, expected, need, sha256

need("numpy")
import numpy as np

NUMPY = {"float32": np.float32, "int64": np.int64, "float64": np.float64}


def arrays(path):
    with example(path) as at:
        for name, (dtype, shape, digest) in expected(path).items():
            for mode in None, "r":
                got = np.load(at / "npy" / f"{name}.npy", mmap_mode=mode)
                assert got.shape == tuple(shape), (name, got.shape)
                assert sha256(np.ascontiguousarray(got).tobytes()) == digest, name
                if dtype in NUMPY:
                    assert got.dtype == NUMPY[dtype], (name, got.dtype)
                elif dtype == "bfloat16":
                    assert got.dtype == np.dtype("V2"), (name, got.dtype)
            raw = np.fromfile(at / "tensors" / name, np.uint8)
            assert sha256(raw.tobytes()) == digest, name


def slices(path):
    with example(path) as at:
        for name, (_, shape, _) in expected(path).items():
            if len(shape) < 2:
                continue
            lazy = np.load(at / "npy" / f"{name}.npy", mmap_mode="r")
            whole = np.load(at / "npy" / f"{name}.npy")
            cut = (slice(1, -1), slice(None, None, 3))
            assert np.array_equal(lazy[cut], whole[cut]), name
            assert lazy[-1].tobytes() == whole[-1].tobytes(), name


for path in checkpoints():
    case(arrays, f"load/{path.name}", path)
case(slices, "slices", checkpoints()[0])
