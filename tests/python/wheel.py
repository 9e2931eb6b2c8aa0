# SPDX-License-Identifier: Apache-2.0
"""The wheel, installed where there is nothing else: no compiler, no NumPy, no torch."""
import hashlib
import os
import pathlib
import subprocess
import sys
import tempfile

from kit import DATA, EXAMPLES, case, result

WHEELS = sorted(pathlib.Path(os.environ.get("WHEELS", "build/wheel")).glob("*.whl"))
READS = """
import hashlib, json, sys, unshard
out = []
for path in sys.argv[1:]:
    ck = unshard.open(path)
    out.append(hashlib.sha256(b"".join(t.tobytes() for t in ck.values())).hexdigest())
print(json.dumps([out, [m for m in ("numpy", "torch") if m in sys.modules], unshard.__file__]))
"""


def installed(tmp):
    venv = os.path.join(tmp, "venv")
    subprocess.run([sys.executable, "-m", "venv", venv], check=True)
    subprocess.run([venv + "/bin/pip", "-q", "--disable-pip-version-check", "install",
                    "--no-index", WHEELS[-1]], check=True)
    return venv


def bare():
    import json

    import unshard

    paths = [str(p) for p in (DATA / "llama-fsdp2/in", EXAMPLES / "mindspore/2.10-grid/in",
                              EXAMPLES / "deepspeed/zero3-five-ranks/in")]
    want = [hashlib.sha256(b"".join(t.tobytes() for t in unshard.open(p).values())).hexdigest()
            for p in paths]
    with tempfile.TemporaryDirectory() as tmp:
        venv = installed(tmp)
        env = {"PATH": venv + "/bin", "HOME": tmp}
        run = subprocess.run([venv + "/bin/python", "-c", READS, *paths], env=env, cwd=tmp,
                             text=True, capture_output=True)
        assert run.returncode == 0, run.stderr
        got, loaded, where = json.loads(run.stdout)
        assert got == want and not loaded and where.startswith(venv), (got, loaded, where)
        ls = subprocess.run([venv + "/bin/unshard", "ls", paths[0]], env=env, cwd=tmp,
                            text=True, capture_output=True)
        assert ls.returncode == 0 and ls.stdout.count("\n") == len(unshard.open(paths[0])), ls


if WHEELS:
    case(bare)
else:
    result("skip", "bare", "no wheel was built")
