#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Packs the Python package, and what was built for it, into a wheel, and checks that.

usage: wheel.py VERSION BUILT OUT    BUILT: libunshard.so, unshard-parser and unshard

The same files give the same wheel, bit by bit.  Checked, by auditwheel too where it is
installed: the programs need no library, the library none but the C library's, and no
symbol is newer than the tag's glibc.
"""
import base64
import hashlib
import os
import pathlib
import re
import shutil
import subprocess
import sys
import zipfile

HERE = pathlib.Path(__file__).resolve().parent
GLIBC = (2, 34)
TAG = f"py3-none-manylinux_{GLIBC[0]}_{GLIBC[1]}_x86_64"
MAY_NEED = {"libc.so.6", "libm.so.6", "libpthread.so.0", "libdl.so.2", "ld-linux-x86-64.so.2"}

METADATA = """\
Metadata-Version: 2.1
Name: unshardfs
Version: {version}
Summary: Tensors of sharded training checkpoints, of any framework, into memory
License: Apache-2.0
Requires-Python: >=3.9
Provides-Extra: numpy
Requires-Dist: numpy; extra == "numpy"
Requires-Dist: ml_dtypes; extra == "numpy"
Description-Content-Type: text/markdown

{readme}"""
WHEEL = f"Wheel-Version: 1.0\nGenerator: unshardfs\nRoot-Is-Purelib: false\nTag: {TAG}\n"
ENTRY_POINTS = "[vllm.general_plugins]\nunshard = unshard.vllm:register\n"


def contents(version, built):
    """(path in the wheel, bytes, mode)"""
    info, data = f"unshardfs-{version}.dist-info", f"unshardfs-{version}.data"
    for file in sorted((HERE / "unshard").iterdir()):
        if file.suffix == ".py" or file.name == "py.typed":
            yield f"unshard/{file.name}", file.read_bytes(), 0o644
    yield "unshard/libunshard.so", (built / "libunshard.so").read_bytes(), 0o755
    yield "unshard/unshard-parser", (built / "unshard-parser").read_bytes(), 0o755
    yield f"{data}/scripts/unshard", (built / "unshard").read_bytes(), 0o755
    readme = (HERE.parents[1] / "docs/python.md").read_text()
    yield f"{info}/METADATA", METADATA.format(version=version, readme=readme).encode(), 0o644
    yield f"{info}/WHEEL", WHEEL.encode(), 0o644
    yield f"{info}/entry_points.txt", ENTRY_POINTS.encode(), 0o644
    yield f"{info}/licenses/LICENSE", (HERE.parents[1] / "LICENSE").read_bytes(), 0o644


def pack(version, built, out):
    record, info = [], f"unshardfs-{version}.dist-info"
    path = out / f"unshardfs-{version}-{TAG}.whl"
    new = path.with_suffix(".new")
    with zipfile.ZipFile(new, "w", zipfile.ZIP_DEFLATED) as z:

        def put(name, data, mode):
            entry = zipfile.ZipInfo(name)  # of 1980, which is the same every time
            entry.compress_type = zipfile.ZIP_DEFLATED
            entry.external_attr = (0o100000 | mode) << 16
            z.writestr(entry, data)

        for name, data, mode in contents(version, built):
            digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=")
            record.append(f"{name},sha256={digest.decode()},{len(data)}\n")
            put(name, data, mode)
        put(f"{info}/RECORD", "".join(record + [f"{info}/RECORD,,\n"]).encode(), 0o644)
    os.replace(new, path)
    return path


def read_elf(*args):
    return subprocess.run(["readelf", "-W", *map(str, args)], check=True, text=True,
                          capture_output=True).stdout


def check(built):
    """Lines that say what would not run on a system of the tag."""
    for name in ("libunshard.so", "unshard-parser", "unshard"):
        file = built / name
        needed = set(re.findall(r"\(NEEDED\).*\[(.*)\]", read_elf("-d", file)))
        bad = needed - (MAY_NEED if name.endswith(".so") else set())
        if bad:
            yield f"{name}: needs {', '.join(sorted(bad))}"
        for version in sorted(set(re.findall(r"\bGLIBC_(\d+)\.(\d+)", read_elf("-V", file)))):
            if tuple(map(int, version)) > GLIBC:
                yield f"{name}: a symbol of glibc {'.'.join(version)}"
        if "TEXTREL" in read_elf("-d", file):
            yield f"{name}: relocations in its text"


def main():
    version, built, out = sys.argv[1], *map(pathlib.Path, sys.argv[2:])
    wrong = list(check(built))
    if wrong:
        sys.exit("\n".join("wheel.py: " + w for w in wrong))
    path = pack(version, built, out)
    said = ""
    if shutil.which("auditwheel"):
        show = subprocess.run(["auditwheel", "show", path], text=True, capture_output=True)
        tags = re.findall(r'"(manylinux_(\d+)_(\d+)_x86_64)"', show.stdout)
        if show.returncode or not any((int(a), int(b)) <= GLIBC for _, a, b in tags):
            sys.exit(f"wheel.py: auditwheel: {show.stdout}{show.stderr}")
        said = ", says auditwheel too"
    print(f"{path}: {path.stat().st_size / 1e6:.1f} MB, {TAG}{said}")


if __name__ == "__main__":
    main()
