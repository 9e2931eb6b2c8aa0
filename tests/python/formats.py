# SPDX-License-Identifier: Apache-2.0
"""Every example of every format: what `unshard ls` lists, by the same names; what it
refuses, by the same line; and the bytes that sums, where it is there, says."""
import concurrent.futures
import hashlib
import json
import subprocess

from kit import EXAMPLES, UNSHARD, case, options_of

import unshard


def listed(at, options):
    words = [n.replace("_", "-") + ("" if v is True else "=" + v) for n, v in options.items()]
    done = subprocess.run([UNSHARD, "ls", "--json", *(["-o", ",".join(words)] if words else []),
                           at], capture_output=True, text=True)
    try:
        said = json.loads(done.stdout or "null")
    except ValueError:
        said = None
    return said, done.stderr


def same(example):
    only = example / "only"
    at, options = example / "in", options_of(example)
    if only.exists():
        at = at / only.read_text().strip()
    want, why = listed(at, options)
    try:
        ck = unshard.open(at, **options)
    except unshard.Error as e:
        if want is None:
            return None if str(e) in why else f"{e}, not {why}"
        steps = unshard.steps(at, **options)
        named = all(s in json.dumps(want) for s in steps)
        return None if "tensors" not in want and steps and named else f"refused: {e}"
    with ck:
        have = [(t.name, t.dtype, list(t.shape), t.state)
                for t in ck.values()]
        said = [((t["tree"] + "/" if t.get("tree") else "") + t["name"], t["dtype"],
                          t["shape"], t["state"]) for t in want["tensors"]] \
            if want and "tensors" in want else None
        if have != said:
            return f"lists {have[:3]}, not {said and said[:3]}: {why}"
        sums = example / "sums"
        for line in sums.read_text().splitlines() if sums.exists() else ():
            digest, name = line.split(" ", 1)
            if hashlib.sha256(ck[name.strip()].tobytes()).hexdigest() != digest:
                return f"{name}: other bytes"
        for t in ck.values():
            if t.nbytes > 64 << 20:
                continue
            try:
                if len(t.tobytes()) != t.nbytes:
                    return f"{t.name}: short"
            except unshard.MissingBytes as e:
                if t.state == "ok" and not ck.problems():
                    return f"{t.name}: {e}"
    return None


def all_of(name):
    found = sorted(p.parent for p in (EXAMPLES / name).glob("*/in"))
    assert found
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        wrong = [(e.name, w) for e, w in zip(found, pool.map(same, found)) if w]
    assert not wrong, f"{len(wrong)} of {len(found)}: {wrong[:3]}"


for folder in sorted(p.name for p in EXAMPLES.iterdir() if p.is_dir()):
    case(all_of, folder, folder)
