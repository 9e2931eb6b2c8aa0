# SPDX-License-Identifier: Apache-2.0
"""Damages the checkpoints of tests/formats, and looks at what becomes of them.

mutate.py [-n N] [-s SEED] [-j JOBS] [EXAMPLE:NUMBER...]

Of each there has to be a line that refuses it, a problem, or the same tensors.  A
process that dies or hangs is a failure, and so is another answer without a word,
"silent", whose kind is not in silent.list; each kind there has a mutation that shows
it, which has to be silent as ever.  EXAMPLE:NUMBER does one mutation and shows all.
"""
import argparse
import os
import random
import shutil
import subprocess
import sys
import tempfile
import threading
import zlib
from collections import Counter

import operations
import pieces

TOP = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
FORMATS = os.path.join(TOP, "tests", "formats")
LIST = os.path.join(TOP, "tests", "mutations", "silent.list")


class Answers:
    """The program that opens checkpoints and says what they hold."""

    def __init__(self, folder, *args):
        self.folder = folder
        self.p = subprocess.Popen([os.environ.get("ANSWER", f"{TOP}/build/mutations/answer"), *args],
                                  stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                                  errors="surrogateescape")

    def ask(self, files, example):
        where = os.path.join(self.folder, "in")
        shutil.rmtree(where, ignore_errors=True)
        for name, data in files.items():
            path = os.path.join(where, name)
            os.makedirs(os.path.dirname(path), exist_ok=True)
            with open(path, "wb") as f:
                f.write(data)
            os.utime(path, (1700000000, 1700000000))
        os.makedirs(where, exist_ok=True)
        path = os.path.join(where, example.only) if example.only else where
        print(path + ("\t" + example.opts if example.opts else ""), file=self.p.stdin, flush=True)
        a = Answer()
        for line in self.p.stdout:
            word, _, rest = line.rstrip("\n").partition("\t")
            if word == "end":
                a.end = rest
                return a
            a.take(word, rest.replace(where, "in"))
        a.end = "the program that answers died"
        return a


class Answer:
    def __init__(self):
        self.refused, self.end = None, None
        self.tensors, self.problems, self.sums, self.stored = {}, set(), set(), []

    def take(self, word, rest):
        if word == "refused":
            self.refused = rest
        elif word == "tensor":
            dtype, shape, digest, name = rest.split("\t", 3)
            self.tensors[name] = (dtype, shape, digest)
        elif word == "problem":
            self.problems.add(rest)
        elif word == "sum":
            self.sums.add(rest)
        elif word == "stored":
            name, lo, hi = rest.rsplit("\t", 2)
            self.stored.append((name, int(lo), int(hi)))


def difference(was, now):
    """In a word, the worst; or None."""
    lost, new = was.tensors.keys() - now.tensors.keys(), now.tensors.keys() - was.tensors.keys()
    if lost and new:
        return "name"
    if lost or new:
        return "lost" if lost else "new"
    changed = [k for k in was.tensors if was.tensors[k] != now.tensors[k]]
    if any(was.tensors[k][:2] != now.tensors[k][:2] for k in changed):
        return "shape"
    return "bytes" if changed else None


def kind_of(example, what, differs):
    """Which of the few reasons why nobody can know it may be: what was changed
    (elements, what describes them, whole files), and what came out other."""
    op, _, where = what.partition(" ")
    if op == "older":
        to = "older"
    elif where == "elements" or (op in ("insert", "remove") and differs == "bytes"):
        to = "elements"
    elif op in ("exchange", "copy", "foreign", "delete", "rename", "duplicate"):
        to = "files"
    else:
        to = "index"
    return f"{example.format} {to} {'names' if differs in ('lost', 'new', 'name') else differs}"


class Example:
    def __init__(self, path):
        self.path = path
        self.format = path.split("/")[0]
        top = os.path.join(FORMATS, path)
        self.opts, self.only = (self.line(top, n) for n in ("opts", "only"))
        self.files = {}
        for folder, _, names in os.walk(os.path.join(top, "in")):
            for n in names:
                p = os.path.join(folder, n)
                with open(p, "rb") as f:
                    self.files[os.path.relpath(p, os.path.join(top, "in"))] = f.read()
        self.was = None

    @staticmethod
    def line(top, name):
        try:
            with open(os.path.join(top, name)) as f:
                return f.readline().rstrip("\n")
        except FileNotFoundError:
            return None

    def learn(self, answers):
        if not self.was:
            self.was = answers.ask(self.files, self)
            self.stored = {n: pieces.Ranges([(lo, hi) for f, lo, hi in self.was.stored if f == n])
                           for n in self.files}


class Run:
    def __init__(self, args, folder):
        self.args, self.folder = args, folder
        self.lock = threading.Lock()
        self.count, self.silent, self.bad = Counter(), {}, []
        names = sorted(f"{f}/{c}" for f in os.listdir(FORMATS)
                       if os.path.isdir(os.path.join(FORMATS, f))
                       for c in os.listdir(os.path.join(FORMATS, f))
                       if os.path.isdir(os.path.join(FORMATS, f, c, "in")))
        self.examples = {n: Example(n) for n in names}

    def one(self, answers, example, number):
        """(verdict, kind, what was done, before, after)"""
        rng = random.Random(f"{example.path}:{number}")
        example.learn(answers)
        done = operations.mutate(rng, example, self.examples)
        now = answers.ask(done.files, example)
        if now.end != "ok":
            return now.end, None, done, now
        if now.refused:
            return "refused", None, done, now
        if example.was.refused or any(not p.startswith("note: ") for p in example.was.problems):
            return "damaged before", None, done, now  # so what it should be nobody knows
        differs = difference(example.was, now)
        if not differs:
            return "same", None, done, now
        if now.problems - example.was.problems:
            return "said", None, done, now
        if now.sums - example.was.sums:
            return "sums", None, done, now
        return "silent", kind_of(example, done.what, differs), done, now

    def worker(self, k, todo):
        folder = os.path.join(self.folder, str(k))
        os.makedirs(folder, exist_ok=True)
        answers = Answers(folder, "stored")
        while True:
            with self.lock:
                job = next(todo, None)
            if job is None:
                break
            name, number = job
            try:
                verdict, kind, done, _ = self.one(answers, self.examples[name], number)
            except Exception as e:  # of this program, which must not pass for it
                verdict, kind, done = f"not done: {e!r}", None, None
            with self.lock:
                self.take(f"{name}:{number}", verdict, kind, done)
        answers.p.stdin.close()
        answers.p.wait()

    def take(self, witness, verdict, kind, done):
        self.count[verdict] += 1
        if verdict == "silent":
            self.silent.setdefault(kind, []).append((witness, done.text))
        elif verdict not in ("refused", "damaged before", "same", "said", "sums"):
            self.bad.append(f"{witness}: {verdict}: {done and done.text}")

    def run(self, jobs):
        todo = iter(jobs)
        threads = [threading.Thread(target=self.worker, args=(k, todo))
                   for k in range(self.args.j)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()


def read_list():
    """{kind: witness}; a line "KIND: WITNESS", after a paragraph that says why."""
    kinds = {}
    with open(LIST) as f:
        for line in f:
            if line.strip() and not line.startswith("#"):
                kind, _, witness = line.strip().partition(": ")
                kinds[kind] = witness
    return kinds


def chosen(names, number):
    """An example by a number; one that is added takes its share, and no more moves."""
    return min(names, key=lambda n: zlib.crc32(f"{number}:{n}:{number}".encode())), number


def show(run, what):
    name, _, number = what.rpartition(":")
    answers = Answers(run.folder, "stored")
    example = run.examples[name]
    verdict, kind, done, now = run.one(answers, example, int(number))
    print(f"{what}: {done.text}\n{verdict} {kind or ''}")
    for n, data in done.files.items():
        if example.files.get(n) != data:
            print(f"changed: {n}")
    for k in sorted(example.was.tensors.keys() | now.tensors.keys()):
        if example.was.tensors.get(k) != now.tensors.get(k):
            print(f"{k}: {example.was.tensors.get(k)} -> {now.tensors.get(k)}")
    for what, of in (("problem", lambda a: a.problems), ("sum", lambda a: a.sums)):
        for p in sorted(of(now) - of(example.was)):
            print(f"{what}: {p}")
    print(now.refused or now.end)


def main():
    p = argparse.ArgumentParser()
    p.add_argument("-n", type=int, default=1000)
    p.add_argument("-s", type=int, default=None)
    p.add_argument("-j", type=int, default=os.cpu_count())
    p.add_argument("one", nargs="*")
    args = p.parse_args()
    seed = args.s if args.s is not None else random.SystemRandom().randrange(10**9)
    shm = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    with tempfile.TemporaryDirectory(prefix="unshard-mutations-", dir=shm) as folder:
        run = Run(args, folder)
        if args.one:
            for what in args.one:
                show(run, what)
            return 0
        known = read_list()
        rng = random.Random(seed)
        names = sorted(run.examples)
        run.run([(n, int(i)) for n, _, i in (w.rpartition(":") for w in known.values())])
        gone = [k for k in known if k not in run.silent]
        run.run(chosen(names, rng.randrange(10**9)) for _ in range(args.n))
    print(f"seed {seed}: " + ", ".join(f"{n} {v}" for v, n in sorted(run.count.items())) +
          f"; {len(run.silent)} silent kinds of {len(known)}")
    for kind, where in sorted(run.silent.items()):
        if kind not in known:
            print(f"silent, and not in silent.list: {kind}: {where[0][0]} ({where[0][1]}; {len(where)} times)")
    for kind in gone:
        print(f"no longer silent, but in silent.list: {kind}: {known[kind]}")
    print("\n".join(run.bad), end="\n" if run.bad else "")
    done = sum(run.count.values())
    if done != args.n + len(known):
        print(f"{done} mutations were done, not {args.n + len(known)}")
        return 1
    return bool(run.bad or gone or run.silent.keys() - known.keys())


if __name__ == "__main__":
    sys.exit(main())
