# SPDX-License-Identifier: Apache-2.0
"""What can happen to the files of a checkpoint, each by a random generator."""
import json
import re
import zlib

import pieces


class Done:
    def __init__(self, files, what, text):
        self.files, self.what, self.text = files, what, text


def pick(rng, example):
    """A file that is not empty."""
    names = sorted(n for n, d in example.files.items() if d)
    return rng.choice(names) if names else None


def place(example, name, lo, hi):
    """What the bytes are part of, in a word."""
    data = example.files[name]
    if example.stored[name].touch(lo, hi):
        return "elements"
    parts = pieces.members(data)
    if any(a < hi and lo < b for a, b in pieces.pickles(name, data, parts)):
        return "pickle"
    if any(m.lo < hi and lo < m.hi for m in parts):
        return "member"
    if parts:
        return "zip"
    head = pieces.header(name, data)
    return "json" if head and head[0] < hi and lo < head[1] else "rest"


def changed(example, name, data, what, text):
    return Done({**example.files, name: bytes(data)}, what, f"{name}: {text}")


def aim(rng, example, name):
    """A byte, as often of what describes the elements as of what they are."""
    size = len(example.files[name])
    for _ in range(20):
        at = rng.randrange(size)
        if example.stored[name].touch(at, at + 1) == bool(rng.getrandbits(1)):
            break
    return at


# ---- bytes ----

def flip(rng, example):
    name = pick(rng, example)
    at = aim(rng, example, name)
    data = bytearray(example.files[name])
    data[at] ^= 1 << rng.randrange(8)
    return changed(example, name, data, f"flip {place(example, name, at, at + 1)}", f"bit of byte {at}")


def zero(rng, example):
    name = pick(rng, example)
    at = aim(rng, example, name)
    data = bytearray(example.files[name])
    end = min(len(data), at + rng.choice((4, 64, 512, 4096)))
    data[at:end] = bytes(end - at)
    return changed(example, name, data, f"zero {place(example, name, at, end)}", f"zeros from {at} to {end}")


def cut(rng, example):
    name = pick(rng, example)
    at = aim(rng, example, name)
    return changed(example, name, example.files[name][:at], "cut", f"cut at {at}")


def grow(rng, example):
    name = pick(rng, example)
    more = rng.choice((bytes(1), bytes(512), rng.randbytes(100), example.files[name]))
    return changed(example, name, example.files[name] + more, "grow", f"{len(more)} bytes more")


def insert(rng, example):
    name = pick(rng, example)
    at = aim(rng, example, name)
    n = rng.choice((1, 8, 64))
    data = example.files[name]
    if rng.getrandbits(1):
        return changed(example, name, data[:at] + data[at + n :], "remove", f"without {n} at {at}")
    return changed(example, name, data[:at] + rng.randbytes(n) + data[at:], "insert", f"{n} more at {at}")


# ---- what describes ----

def words_of(example, name):
    data = example.files[name]
    parts = pieces.members(data)
    ints, strings = [], []
    for lo, hi in pieces.pickles(name, data, parts):
        i, s = pieces.pickle_words(data, lo, hi)
        ints += i
        strings += s
    return parts, ints, strings


def pickle_field(rng, example):
    """An integer becomes another, two integers or strings change places."""
    name = pick(rng, example)
    parts, ints, strings = words_of(example, name)
    of = rng.choice([w for w in (ints, strings) if len(w) > 1] or [None])
    if not of:
        return None
    data = bytearray(example.files[name])
    a, n = rng.choice(of)
    word = "number" if of is ints else "string"
    if of is ints and rng.random() < 0.3:
        data[a] = (data[a] + rng.choice((1, 255, 8, 128))) % 256
        text, b = "another number", a
    else:
        alike = [b for b, m in of if m == n and data[b : b + m] != data[a : a + n]]
        if not alike:
            return None
        b = rng.choice(alike)
        data[a : a + n], data[b : b + n] = data[b : b + n], data[a : a + n]
        text = f"{word}s exchanged"
    for at in (a, b):
        pieces.mend_sums(data, at, at + n, parts)
    return changed(example, name, data, f"pickle {word}", f"{text} at {a} and {b}")


def json_paths(v, at=()):
    todo, out = [((), v)], []
    while todo:
        at, v = todo.pop()
        out.append(at)
        if isinstance(v, dict):
            todo += [((*at, k), w) for k, w in v.items()]
        elif isinstance(v, list):
            todo += [((*at, i), w) for i, w in enumerate(v)]
    return [p for p in out if p]


def json_get(v, path):
    for k in path:
        v = v[k]
    return v


def json_field(rng, example):
    """One value gone, another number, two values or keys exchanged."""
    name = rng.choice(sorted(n for n, d in example.files.items() if pieces.header(n, d)) or [None])
    if not name:
        return None
    data = example.files[name]
    lo, hi = pieces.header(name, data)
    try:
        doc = json.loads(data[lo:hi])
    except ValueError:
        return None
    paths = json_paths(doc)
    if not paths:
        return None
    p = rng.choice(paths)
    where, old = json_get(doc, p[:-1]), json_get(doc, p)
    how = rng.choice(("gone", "number", "exchanged"))
    if how == "gone":
        del where[p[-1]]
    elif how == "number":
        if type(old) is not int:
            return None
        where[p[-1]] = rng.choice((old + 1, old * 2, 0, -1, 2**63))
    else:
        alike = [q for q in paths if type(json_get(doc, q)) is type(old)
                 and json_get(doc, q) != old and not isinstance(old, (dict, list))]
        if not alike:
            return None
        q = rng.choice(alike)
        where[p[-1]] = json_get(doc, q)
        json_get(doc, q[:-1])[q[-1]] = old
    text = json.dumps(doc).encode()
    if lo:
        text = (len(text)).to_bytes(8, "little") + text
    return changed(example, name, text + data[hi:], f"json {how}", f"{'.'.join(map(str, p))} {how}")


# ---- files ----

def kin(example, name):
    """Other files whose names differ in their digits only."""
    form = re.sub(r"\d+", "#", name)
    return sorted(n for n in example.files if n != name and re.sub(r"\d+", "#", n) == form)


def exchange(rng, example):
    name = pick(rng, example)
    others = [n for n in kin(example, name) if example.files[n] != example.files[name]]
    if not others:
        return None
    b = rng.choice(others)
    files = {**example.files, name: example.files[b], b: example.files[name]}
    return Done(files, "exchange", f"{name} and {b} exchanged")


def copy(rng, example):
    """One rank's file is a copy of another's."""
    name = pick(rng, example)
    others = [n for n in kin(example, name) if example.files[n] != example.files[name]]
    if not others:
        return None
    b = rng.choice(others)
    return Done({**example.files, name: example.files[b]}, "copy", f"{name} is a copy of {b}")


def rename(rng, example):
    name = pick(rng, example)
    numbers = list(re.finditer(r"\d+", name))
    if not numbers:
        return None
    m = rng.choice(numbers)
    new = str(int(m[0]) + rng.choice((1, 7))).zfill(len(m[0]))
    to = name[: m.start()] + new + name[m.end() :]
    if to in example.files:
        return None
    files = dict(example.files)
    files[to] = files[name] if rng.getrandbits(1) else files.pop(name)
    what = "rename" if name not in files else "duplicate"
    return Done(files, what, f"{name} as {to}")


def delete(rng, example):
    name = rng.choice(sorted(example.files))
    files = dict(example.files)
    del files[name]
    return Done(files, "delete", f"no {name}")


def older(rng, example):
    """A file of an older save: the same layout, other elements, right checksums."""
    name = pick(rng, example)
    data = bytearray(example.files[name])
    v = example.stored[name].v
    if not v:
        return None
    parts = pieces.members(data)
    for lo, hi in v:
        for i in range(lo, min(hi, len(data)), 4):
            data[i] ^= 1
        pieces.mend_sums(data, lo, hi, parts)
    return changed(example, name, data, "older", "of an older save")


def foreign(rng, example, examples):
    """One file of several is that of another checkpoint of the format."""
    name = pick(rng, example)
    if len(example.files) == 1:
        return None
    of = [x for x in examples.values() if x.format == example.format
          and x.files.get(name, example.files[name]) != example.files[name]]
    if not of:
        return None
    salt = rng.random()  # and not a place in a list, which would move with each new example
    x = min(of, key=lambda x: zlib.crc32(f"{salt}:{x.path}".encode()))
    return changed(example, name, x.files[name], "foreign", f"that of {x.path}")


OPERATIONS = (flip, flip, flip, zero, cut, grow, insert, pickle_field, pickle_field, json_field,
              json_field, exchange, copy, rename, delete, older, foreign)


def mutate(rng, example, examples):
    """One of them; where it cannot be done to this checkpoint, another."""
    if not any(example.files.values()):
        return Done({**example.files, "file": b"x"}, "grow", "a file")
    while True:
        op = rng.choice(OPERATIONS)
        done = op(rng, example, examples) if op is foreign else op(rng, example)
        if done and done.files != example.files:
            return done
