# SPDX-License-Identifier: Apache-2.0
"""docs/python.md and the README's Python: what follows >>> is run, and prints what it says."""
import contextlib
import doctest
import io
import os
import re
import shutil
import tempfile
import warnings

from kit import DATA, TOP, case, need

need("numpy", "torch", "transformers", "safetensors")
import transformers

warnings.filterwarnings("ignore")
transformers.logging.set_verbosity_error()
transformers.utils.logging.disable_progress_bar()
LLAMA = DATA / "llama-fsdp2"


@contextlib.contextmanager
def a_run():
    """A folder with what the pages call runs/, runs-broken/ and config/."""
    with tempfile.TemporaryDirectory() as tmp:
        for step in ("runs/step-200", "runs/step-300", "runs-broken/step-300"):
            shutil.copytree(LLAMA / "in", f"{tmp}/{step}")
        os.truncate(f"{tmp}/runs-broken/step-300/__3_0.distcp", 20000)
        shutil.copytree(LLAMA / "config", f"{tmp}/config")
        back = os.getcwd()
        os.chdir(tmp)
        try:
            yield
        finally:
            os.chdir(back)


def page(name, least, begin="", end=None):
    text = (TOP / name).read_text()
    text = text[text.index(begin) : text.index(end) if end else None]
    # An empty line ends what an example prints.
    text = re.sub(r"^    ", "", text, flags=re.M)
    with a_run():
        test = doctest.DocTestParser().get_doctest(text, {}, name, name, 0)
        assert len(test.examples) >= least, len(test.examples)
        said = io.StringIO()
        done = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS).run(test, out=said.write)
        assert not done.failed, said.getvalue()


case(page, "python.md", "docs/python.md", 40)
case(page, "README.md", "README.md", 4, "In a Python process", "## Use")
