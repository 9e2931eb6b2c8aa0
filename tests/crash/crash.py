# SPDX-License-Identifier: Apache-2.0
"""Every kind of fault in every kind of work, at operations that a seed chooses.

crash.py [-n RUNS | --all] [-s SEED] [-j JOBS] [--power RIG] [-w WORK] [-f FAULT]
crash.py -w WORK -f FAULT -a OPERATION -s SEED     one run again, as it was printed

A run makes a checkpoint, has a mount or a command work on it, lets one operation
fail or end its process, and looks at what is left by what a user would do then:
nothing may be torn, and nothing that was acknowledged may be lost.  With --all each
operation of each is taken once, the first 1,000 of them.

It knows commands, mounts and files, and nothing of how they do it.
"""
import argparse
import errno
import json
import mmap
import os
import random
import select
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter, defaultdict

import power
from works import WORKS, Bad

UNSHARD = os.environ["UNSHARD"]
AT_CALL = os.environ.get("AT_CALL", "build/crash/at_call.so")
FIRST = 1000  # operations that --all takes of each


class Page:
    """What at_call.c counts."""

    def __init__(self, path):
        with open(path, "wb") as f:
            f.write(bytes(4096))
        self.f = open(path, "r+b")
        self.m = mmap.mmap(self.f.fileno(), 4096)

    def counts(self):
        return struct.unpack_from("<3q", self.m)

    def fired(self):
        return struct.unpack_from("<q", self.m, 24)[0]

    def close(self):
        self.m.close()
        self.f.close()


# ---- processes ----

def alive(pid):
    try:
        with open(f"/proc/{pid}/stat") as f:
            return f.read().rsplit(")", 1)[1].split()[0] not in "ZX"
    except OSError:
        return False


def wait_for(what, seconds=30):
    end = time.monotonic() + seconds * int(os.environ.get("UNSHARD_SLOW", "1"))
    while not what():
        if time.monotonic() > end:
            return False
        time.sleep(0.005)
    return True


def kill(pid, sig=signal.SIGKILL):
    try:
        os.kill(pid, sig)
    except ProcessLookupError:
        pass


class Run:
    """One attempt in a folder of its own."""

    def __init__(self, top, work, seed, fault=None, at=0, tape=None):
        self.top, self.work, self.fault, self.at, self.tape = top, work, fault, at, tape
        self.rng = random.Random(seed)
        self.mnt = os.path.join(top, "mnt")
        self.src = os.path.join(top, "src")
        os.makedirs(self.mnt)
        self.events = []
        self.page = Page(os.path.join(top, "page"))
        self.log = os.path.join(top, "log")

    # -- commands --

    def env(self, faulty):
        env = {**os.environ, "UNSHARD_TEST_RUN": self.top}
        if faulty and self.fault:
            env.update(self.fault.env(self))
        return env

    def command(self, *args, faulty=False):
        """(exit code, output)"""
        p = subprocess.run([UNSHARD, *args], env=self.env(faulty), stdin=subprocess.DEVNULL,
                           capture_output=True, text=True, errors="replace", timeout=120)
        return p.returncode, p.stdout + p.stderr

    def mounted(self, mnt=None):
        with open("/proc/self/mountinfo") as f:
            return any(line.split()[4] == (mnt or self.mnt) for line in f)

    def mount(self, src, opts, faulty=False):
        return self.command("mount", src, self.mnt, "-o", f"log={self.log},{opts}" +
                            (",sandbox=off" if os.environ.get("SAN") else ""), faulty=faulty)

    def umount(self):
        """However the mount ended; nobody of it is left."""
        if self.mounted():
            code, out = self.command("umount", self.mnt)
            if code and self.mounted():
                raise Bad(f"umount: {out}")
        if not wait_for(lambda: not self.processes()):
            raise Bad(f"processes are left: {self.processes()}")
        for n in os.listdir(self.mnt):  # written when nothing was mounted any more
            shutil.rmtree(os.path.join(self.mnt, n))

    def processes(self, name=""):
        out = []
        mark = f"UNSHARD_TEST_RUN={self.top}".encode()
        for pid in filter(str.isdigit, os.listdir("/proc")):
            try:
                with open(f"/proc/{pid}/comm") as f:
                    comm = f.read().strip()
                if not comm.startswith("unshard" + name):
                    continue
                with open(f"/proc/{pid}/environ", "rb") as f:
                    if mark in f.read().split(b"\0") and alive(pid):
                        out.append(int(pid))
            except OSError:
                pass
        return out

    # -- the writer, a process of its own, and what it was told --

    def now(self):
        return os.stat(self.tape).st_size if self.tape else 0

    def write(self, program):
        """What the fault is aimed at."""
        self.events = self.apart(program, self.fault)

    def apart(self, program, fault=None):
        """Runs program(do); do(call, **what) is an operation, of which a list comes
        back.  In a process of its own: what this one had open, a process that another
        thread starts would have, too."""
        events = []
        r, w = os.pipe()
        pid = os.fork()
        if not pid:
            os.dup2(w, 3)
            os.closerange(4, 1 << 16)
            try:
                self.child(program, 3, fault)
            except BaseException as e:
                os.write(3, (json.dumps({"broken": repr(e)}) + "\n").encode())
            os._exit(0)
        os.close(w)
        text, end = b"", time.monotonic() + 60
        while select.select([r], [], [], max(0, end - time.monotonic()))[0]:
            more = os.read(r, 1 << 16)
            if not more:
                break
            text += more
        else:
            kill(pid)
            raise Bad("the writer hangs")
        os.close(r)
        os.waitpid(pid, 0)
        for line in text.decode().splitlines():
            e = json.loads(line)
            if "broken" in e:
                raise Bad(f"the writer: {e['broken']}")
            if "end" in e:
                events[e["nr"]].update(e)
            else:
                events.append(e)
        return events

    def child(self, program, w, fault):
        victims = fault.victims(self) if fault else []
        count = [0]

        def tell(**e):
            os.write(w, (json.dumps(e) + "\n").encode())

        def do(call, **what):
            nr = count[0] = count[0] + 1
            if fault and nr == self.at:
                for pid in victims:
                    kill(os.getpid() if pid == "writer" else pid)
            tell(**what, begun=self.now(), nr=nr - 1)
            try:
                call()
            except OSError as e:
                tell(nr=nr - 1, end=self.now(), error=str(e)[-300:] or "?")
                return False
            tell(nr=nr - 1, end=self.now(), error=None)
            return True

        program(do)


# ---- faults ----

class AtCall:
    """A call of a process of ours is its last one, or fails."""

    def __init__(self, name, cls, action):
        self.name, self.cls, self.action = name, cls, action

    def env(self, run):
        return {"LD_PRELOAD": os.path.abspath(AT_CALL),
                "CRASH_PAGE": os.path.join(run.top, "page"),
                "CRASH_AT": f"{run.work.process} {self.cls} {run.at} {self.action}"}

    engine = "plain"

    def fits(self, work):
        return not os.environ.get("SAN")

    def victims(self, run):
        return []

    def fired(self, run):
        return run.page.fired() > 0


class AtOperation:
    """Before an operation of the writer somebody is killed."""

    engine = "auto"

    def __init__(self, name, whom):
        self.name, self.whom = name, whom

    def env(self, run):
        return {}

    def fits(self, work):
        return work.mounts

    def victims(self, run):
        out = []
        for w in self.whom:
            out += ["writer"] if w == "writer" else run.processes("-" + w)
        return out

    def fired(self, run):
        return len(run.events) + ("writer" in self.whom) >= run.at


class AtPoint:
    """The fault points of the program itself; they see an io_uring too."""

    engine = "auto"

    def __init__(self, name, variable, text):
        self.name, self.variable, self.text = name, variable, text

    def env(self, run):
        return {self.variable: self.text.format(at=run.at)}

    def fits(self, work):
        return True

    def victims(self, run):
        return []

    def fired(self, run):
        return run.died or any(e.get("error") or "end" not in e for e in run.events)


LIE = AtCall("lie", "sync", "skip")  # from operation @at on nothing lasts
FAULTS = [
    AtCall("kill", "change", "kill"),
    AtCall("enospc", "room", errno.ENOSPC),
    AtCall("eio", "change", errno.EIO),
    AtCall("fsync", "sync", errno.EIO),
    AtOperation("kill-supervisor", ["super"]),
    AtOperation("kill-worker", ["worker"]),
    AtOperation("kill-both", ["super", "worker"]),
    AtOperation("kill-writer", ["writer"]),
    AtPoint("step-kill", "UNSHARD_PUBLISH_FAULT", "{at}"),
    AtPoint("step-enospc", "UNSHARD_PUBLISH_FAULT", "{at}:28"),
    AtPoint("uring-eio", "UNSHARD_FAULT", "write:{at}:1:5"),
    AtPoint("uring-fsync", "UNSHARD_FAULT", "sync:{at}:1:5"),
]


class Cells:
    """How many operations each fault of each work has, as far as that is known."""

    def __init__(self, works, faults):
        self.v = [(w, f) for w in works for f in faults if f.fits(w)]
        self.top = {c: 12 for c in self.key()}
        self.most = defaultdict(int)
        self.misses = Counter()  # of the first operation

    def key(self):
        return [(w.name, f.name) for w, f in self.v]

    def random(self, rng):
        """Without end, where any operation can be reached."""
        while any(self.misses[k] < 3 for k in self.key()):
            rng.shuffle(self.v)
            for w, f in self.v[:]:
                if self.misses[w.name, f.name] < 3:
                    yield w, f, rng.randint(1, self.top[w.name, f.name])

    def all(self):
        for w, f in self.v:
            at = 1
            while at <= FIRST and at <= self.top[w.name, f.name] and \
                    self.misses[w.name, f.name] < 3:
                yield w, f, at
                at += 1

    def learn(self, work, fault, at, fired):
        key = work.name, fault.name
        if fired:
            self.most[key] = max(self.most[key], at)
            self.top[key] = max(self.top[key], min(at + 8, FIRST))
        else:
            self.misses[key] += at == 1
            self.top[key] = max(1, min(self.top[key], max(self.most[key] + 2, at - 1)))


# ---- all of it ----

class Crash:
    def __init__(self, args, top):
        self.args, self.top = args, top
        self.lock = threading.Lock()
        self.count = Counter()
        self.bad = []
        self.nr = 0

    def one(self, work, fault, at, seed):
        with self.lock:
            self.nr += 1
            top = os.path.join(self.top, f"run-{self.nr}")
        os.mkdir(top)
        run = Run(top, work, seed, fault, at)
        what = f"{work.name} {fault.name} {at} (seed {seed})"
        try:
            work.make(run)
            work.play(run)
            run.umount()
            fired = fault.fired(run)
            work.check(run)
            verdict = "right"
        except Bad as e:
            fired, verdict = True, e.kind
            with self.lock:
                self.bad.append(f"{what}: {e.kind}: {e}")
        finally:
            for pid in run.processes():
                kill(pid)
            subprocess.run(["umount", "-l", run.mnt], stderr=subprocess.DEVNULL, check=False)
            run.page.close()
        if self.args.v:
            print(what, verdict, "" if fired else "(not reached)", flush=True)
        if verdict == "right" or not self.args.keep:
            shutil.rmtree(top, ignore_errors=True)
        with self.lock:
            self.count["runs"] += fired
            self.count["not reached"] += not fired
            self.count[verdict] += 1
            self.count[fault.name] += fired
        return fired

    def workers(self, cells, jobs, seed):
        jobs = iter(jobs)

        def loop():
            while True:
                with self.lock:
                    enough = len(self.bad) > 20 or not self.args.all and \
                        not self.args.a and self.count["runs"] >= self.args.n
                    job = None if enough else next(jobs, None)
                    nr = self.nr
                if not job:
                    return
                work, fault, at = job
                try:
                    fired = self.one(work, fault, at, seed if self.args.a else f"{seed}-{nr}")
                except Exception as e:  # of this program
                    with self.lock:
                        self.bad.append(f"{work.name} {fault.name} {at}: not done: {e!r}")
                    continue
                with self.lock:
                    cells.learn(work, fault, at, fired)

        threads = [threading.Thread(target=loop) for _ in range(self.args.j)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()


def main():
    p = argparse.ArgumentParser()
    p.add_argument("-n", type=int, default=2000)
    p.add_argument("--all", action="store_true")
    p.add_argument("-s", default=None)
    p.add_argument("-j", type=int, default=os.cpu_count())
    p.add_argument("--power", metavar="RIG", help="the program of blocklog.c")
    p.add_argument("-w", action="append", help="of these works only")
    p.add_argument("-f", action="append", help="of these faults only")
    p.add_argument("-a", type=int, help="at this operation")
    p.add_argument("--lie", action="store_true",
                   help="nothing is synced when the power goes, which must be found out")
    p.add_argument("--keep", action="store_true")
    p.add_argument("-v", action="store_true")
    args = p.parse_args()
    seed = args.s or str(random.SystemRandom().randrange(10**9))
    works = [w() for w in WORKS if not args.w or w.name in args.w]
    faults = [f for f in FAULTS if not args.f or f.name in args.f]
    print(f"seed {seed}", flush=True)
    with tempfile.TemporaryDirectory(prefix="crash-") as top:
        crash = Crash(args, top)
        if args.keep:
            crash.top = tempfile.mkdtemp(prefix="crash-kept-")
        cells = Cells(works, faults)
        rng = random.Random(seed)
        if args.a:
            jobs = ((w, f, args.a) for w, f in cells.v)
        else:
            jobs = cells.all() if args.all else cells.random(rng)
        if not args.lie:
            crash.workers(cells, jobs, seed)
        if args.power and (not args.f or "power" in args.f):
            power.cuts(crash, works, Run, args, seed, LIE if args.lie else None)
    c = crash.count
    print(f"{c['runs']} runs ({', '.join(f'{f.name} {c[f.name]}' for f in faults)}, power "
          f"{c['power']}), {c['not reached']} more that ended before the operation; "
          f"{c['torn']} torn, {c['lost']} with acknowledged bytes lost, {c['wrong']} else wrong")
    print("\n".join(crash.bad), end="\n" if crash.bad else "")
    return bool(crash.bad) or not c["runs"]


if __name__ == "__main__":
    sys.exit(main())
