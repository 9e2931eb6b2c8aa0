# SPDX-License-Identifier: Apache-2.0
"""docs/views.md: each command and each line of Python prints what stands below it."""
import os
import pathlib
import sys
import tempfile

from kit import HERE, UNSHARD, case, need

need("numpy", "torch", "safetensors", "transformers")
sys.path.insert(0, str(HERE.parent / "mount/lib"))
import transcript


def manual(page):
    with tempfile.TemporaryDirectory() as tmp:
        os.mkdir(f"{tmp}/bin")
        os.symlink(pathlib.Path(UNSHARD).resolve(), f"{tmp}/bin/unshard")
        os.environ["PATH"] = f"{tmp}/bin:{os.environ['PATH']}"
        os.mkdir(f"{tmp}/work")
        os.chdir(f"{tmp}/work")
        ran, faults = transcript.check(page, True)
        os.chdir("/")
        assert ran > 20, ran
        assert not faults, "\n".join(faults)


case(manual, "views", HERE.parents[1] / "docs/views.md")
