# SPDX-License-Identifier: Apache-2.0
"""MindSpore's save_checkpoint by rank through MNT/step/shards, and edits.

It writes NAME.tmp, renames it and takes the right to write away, with a CRC of
the whole file at its end if asked.  Published with --ranks, for nothing in the
files says how many there are; then MindSpore loads each rank's file, and once
more after a tensor was edited through the mount.  Needs MindSpore:

    python3 -m venv V && V/bin/pip install mindspore==2.10.0
    V/bin/python tests/clients/writers_mindspore.py
"""
import os
import subprocess
import tempfile

import kit

kit.need("mindspore", "numpy")
import mindspore as ms  # noqa: E402
import numpy as np  # noqa: E402

A = np.random.RandomState(3).randn(8, 6).astype(np.float32)
B = np.arange(5, dtype=np.float16)


def save(where, rank, crc):
    os.makedirs(f"{where}/rank_{rank}")
    ms.save_checkpoint([{"name": f"a{rank}", "data": ms.Tensor(A + rank)},
                        {"name": f"b{rank}", "data": ms.Tensor(B)}],
                       f"{where}/rank_{rank}/net.ckpt", crc_check=crc)


def check(where, rank, crc, a=A, b=B):
    got = ms.load_checkpoint(f"{where}/rank_{rank}/net.ckpt", crc_check=crc)
    assert np.array_equal(got[f"a{rank}"].asnumpy(), a + rank), (where, rank)
    assert np.array_equal(got[f"b{rank}"].asnumpy(), b), (where, rank)


def ranks():
    with tempfile.TemporaryDirectory() as src:
        with kit.mounted(src, rw=True) as mnt:
            os.mkdir(mnt / "ms-1")
            for rank in range(2):
                save(mnt / "ms-1/shards", rank, True)
            p = subprocess.run([kit.UNSHARD, "publish", f"{src}/ms-1"],
                               capture_output=True, text=True)
            assert p.returncode == 1 and "strategy" in p.stderr, p
            p = subprocess.run(
                [kit.UNSHARD, "publish", "--ranks=2", f"{src}/ms-1"],
                capture_output=True, text=True)
            assert p.returncode == 0, p.stderr
            for where in mnt / "ms-1/shards", f"{src}/ms-1":
                for rank in range(2):
                    check(where, rank, True)


def edited(crc):
    """Elements through tensors/NAME; exactly those are others afterwards."""
    with tempfile.TemporaryDirectory() as src:
        ms.save_checkpoint([{"name": "a", "data": ms.Tensor(A)},
                            {"name": "b", "data": ms.Tensor(B)}],
                           f"{src}/net.ckpt", crc_check=crc)
        with kit.mounted(src, rw=True) as mnt:
            m = np.memmap(mnt / "tensors/a", np.float32, "r+", shape=(8, 6))
            m[2, 3:5] = [7.5, -2]
            m.flush()
            del m
            with open(mnt / "tensors/b", "r+b") as f:
                f.seek(4)
                f.write(np.float16(9).tobytes())
        kit.unmount_all()
        a, b = A.copy(), B.copy()
        a[2, 3:5] = [7.5, -2]
        b[2] = 9
        got = ms.load_checkpoint(f"{src}/net.ckpt", crc_check=crc)
        assert np.array_equal(got["a"].asnumpy(), a)
        assert np.array_equal(got["b"].asnumpy(), b)


kit.case(ranks, "save_checkpoint")
kit.case(edited, "edited", False)
kit.case(edited, "edited-crc", True)
