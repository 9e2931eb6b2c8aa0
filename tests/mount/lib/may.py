# SPDX-License-Identifier: Apache-2.0
# may.py - what users may do through a mount, against what the files allow
#
#	may.py COMMAND WORK LOG-OPTIONS KIND...
#
# WORK is empty, and everybody can go there.  KIND: ro, rw, replace, steps, steps-rw (of a
# directory of checkpoints), overlay, new (a step being written).  For each setting of modes, owners,
# groups, access lists and folders, which are changed while it is mounted, each user
# tries each operation on each view, and on the files behind it.  Prints what
# differs, and a last line "N cells, N more, N less".
import errno
import json
import mmap
import os
import re
import shutil
import struct
import subprocess
import sys

here = os.path.dirname(os.path.abspath(__file__))
unshard, work, log_opts = sys.argv[1:4]
kinds = sys.argv[4:]
demo = os.path.join(here, "../../demo/checkpoint")

# uid, gid, other groups
USERS = {"root": (0, 0, []), "owner": (1001, 1001, []),
         "member": (1002, 1002, [2000]), "nobody": (65534, 65534, [])}
ACL = "system.posix_acl_access"
counts = {"cells": 0, "more": 0, "less": 0}


def acl(user, perm, mask=7, other=0, group=0):
    """An access list: the owner all, @user @perm."""
    none = 0xffffffff
    rows = [(1, 6, none), (2, perm, user), (4, group, none), (16, mask, none),
            (32, other, none)]
    return struct.pack("<I", 2) + b"".join(struct.pack("<HHI", *r) for r in rows)


# ---- a user: a process that does what it is told ----

def attempt(op, path, *more):
    if op in ("read", "write", "both", "map", "mapw"):
        flags = {"read": os.O_RDONLY, "write": os.O_WRONLY, "both": os.O_RDWR,
                 "map": os.O_RDONLY, "mapw": os.O_RDWR}[op]
        fd = os.open(path, flags)
        try:
            if op in ("read", "both"):
                first = os.pread(fd, 1, 0)
            if op == "both" and more:
                os.pwrite(fd, first, 0)
            if op in ("map", "mapw"):
                prot = mmap.PROT_READ | (mmap.PROT_WRITE if op == "mapw" else 0)
                m = mmap.mmap(fd, 1, mmap.MAP_SHARED, prot)
                m[0]
                m.close()
        finally:
            os.close(fd)
    elif op == "readanew":
        os.close(os.open(path, os.O_RDONLY | os.O_TRUNC))
    elif op == "anew":
        os.close(os.open(path, os.O_WRONLY | os.O_TRUNC))
    elif op == "cut":
        os.truncate(path, more[0])
    elif op == "list":
        os.listdir(path)
    elif op == "stat":
        os.stat(path)
    elif op == "attribute":
        os.getxattr(path, "user.unshard.dtype")
    elif op == "create":
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o644))
    elif op == "rename":
        os.rename(path, more[0])
    elif op == "mode":
        os.chmod(path, more[0])
    elif op == "link":
        os.symlink("f", path)
    else:
        {"unlink": os.unlink, "mkdir": os.mkdir, "rmdir": os.rmdir}[op](path)


def serve(ids, lines, out):
    os.setgroups(ids[2])
    os.setresgid(ids[1], ids[1], ids[1])
    os.setresuid(ids[0], ids[0], ids[0])
    for line in lines:
        said = []
        for job in json.loads(line):
            try:
                attempt(*job)
                said.append(0)
            except OSError as e:
                said.append(e.errno)
            except ValueError:  # a map of nothing
                said.append(0)
        out.write(json.dumps(said) + "\n")
        out.flush()


class User:
    def __init__(self, ids):
        to, answers = os.pipe(), os.pipe()
        if not os.fork():
            for u in users.values():
                u.to.close()
            os.close(to[1])
            os.close(answers[0])
            os.umask(0)
            serve(ids, os.fdopen(to[0]), os.fdopen(answers[1], "w"))
            os._exit(0)
        os.close(to[0])
        os.close(answers[1])
        self.to, self.answers = os.fdopen(to[1], "w"), os.fdopen(answers[0])

    def does(self, jobs):
        self.to.write(json.dumps(jobs) + "\n")
        self.to.flush()
        return json.loads(self.answers.readline())


users = {}


# ---- settings ----

def put(path, mode, uid=0, gid=0, rights=None):
    os.chown(path, uid, gid)
    os.chmod(path, mode)
    if rights:
        os.setxattr(path, ACL, rights)


def plain(ck):
    for folder in (work + "/above", work + "/above/runs", ck):
        put_clean(folder, 0o755)
    for name in os.listdir(ck):
        if not name.startswith(".unshard"):
            put_clean(ck + "/" + name, 0o644)


def put_clean(path, mode):
    try:
        os.removexattr(path, ACL)
    except OSError:
        pass
    put(path, mode)


def settings(ck):
    """Name, what is set, after all is 0644 and root's."""
    f = [ck + "/__%d_0.distcp" % i for i in range(4)]
    yield "all may read", []
    for mode in (0o600, 0o640, 0o666, 0o400, 0o604, 0o060, 0o000):
        yield "one %03o" % mode, [(f[3], mode)]
        yield "all %03o, of owner" % mode, [(x, mode, 1001, 1001) for x in f]
    for mode in (0o640, 0o660, 0o604):
        yield "all %03o, of group" % mode, [(x, mode, 1001, 2000) for x in f]
    for mode in (0o600, 0o640):
        yield "all but the newest %03o" % mode, [(x, mode) for x in f[:3]]
    index = ck + "/.metadata"
    yield "index 600", [(index, 0o600)]
    yield "index 640 of group", [(index, 0o640, 1001, 2000)]
    yield "index 000, all 666", [(index, 0)] + [(x, 0o666) for x in f]
    yield "index of owner alone", [(index, 0o400, 1001)] + \
        [(x, 0o600, 1001) for x in f]
    yield "newest of owner", [(f[3], 0o644, 1001)]
    yield "newest 666", [(f[3], 0o666)]
    yield "all of owner but one", [(x, 0o644, 1001) for x in f[:3]]
    yield "two owners", [(x, 0o640, 1001) for x in f[:2]] + \
        [(x, 0o604, 65534) for x in f[2:]]
    yield "one owner's, others'", [(f[0], 0o600, 1001), (f[1], 0o644, 65534)]
    yield "one owner's, all his group's", [(f[3], 0o600, 1001, 1001)] + \
        [(x, 0o644, 0, 1001) for x in f[:3]]
    yield "two groups", [(x, 0o640, 0, 2000) for x in f[:2]] + \
        [(x, 0o640, 0, 1002) for x in f[2:]]
    yield "an owner's, and two groups'", [(f[0], 0o600, 1002, 1001)] + \
        [(x, 0o640, 0, 2000) for x in f[1:3]] + [(f[3], 0o660, 1001, 1002)]
    yield "one group's", [(f[0], 0o640, 0, 2000), (f[1], 0o664, 0, 2000)]
    if can_list:
        yield "denied by list", [(f[1], 0o644, 0, 0, acl(65534, 0, 4, 4, 4))]
        yield "given by list", [(f[1], 0o640, 0, 0, acl(65534, 4, 4, 0, 4))]
        yield "given to write", \
            [(x, 0o600, 0, 0, acl(65534, 6, 6)) for x in f]
        yield "masked", [(f[1], 0o640, 0, 0, acl(65534, 6, 0, 0, 4))]
        yield "folder by list", [(ck, 0o755, 0, 0, acl(65534, 0, 5, 5, 5))]
        yield "above by list", [(work + "/above", 0o755, 0, 0,
                                 acl(1001, 0, 5, 5, 5))]
        yield "folder given by list", [(ck, 0o700, 0, 0, acl(65534, 5, 5))]
    for mode in (0o700, 0o711, 0o744, 0o750, 0o751, 0o1777):
        yield "folder %03o" % mode, [(ck, mode)]
        yield "folder %03o of owner" % mode, [(ck, mode, 1001, 2000)]
    for mode in (0o700, 0o711, 0o750):
        yield "above %03o" % mode, [(work + "/above", mode, 1001, 2000)]
        yield "runs %03o" % mode, [(work + "/above/runs", mode, 1001, 2000)]
    yield "above 700, of owner, files his", \
        [(work + "/above", 0o700, 1001)] + [(x, 0o600, 1001) for x in f]


# ---- cells ----

def note(kind, *what):
    counts[kind] += 1
    if counts[kind] <= 40:
        print(kind + ":", *what)


def no(code):
    return code in (errno.EACCES, errno.EROFS)


def compare(setting, who, op, path, through, without):
    counts["cells"] += 1
    if not no(through) and no(without):
        note("more", setting, who, op, path, through, without)
    elif no(through) and not no(without):
        note("less", setting, who, op, path, through, without)


def behind_of(ck):
    """Files of each tensor, by the command."""
    found = {}
    for t in tensors:
        said = subprocess.run([unshard, "inspect", ck, t], check=True,
                              capture_output=True, text=True).stdout
        found[t] = sorted(set(re.findall(r"__\d_0\.distcp", said)))
        assert found[t], said
    return found


def shown(top, ck, writes, nested):
    """What of a mount is of which files; and its folders."""
    every = sorted(x for x in os.listdir(ck) if x.endswith(".distcp"))
    files = {}
    for t, names in behind.items():
        files["tensors/" + t] = files["npy/" + t + ".npy"] = names
    for name in ("model.safetensors", "model.pt", "hf/model.safetensors",
                 ".unshard/catalog.json", ".unshard/problems", "dcp/.metadata",
                 "views/half/model.safetensors"):
        files[name] = every
    files["dcp/" + next(x for x in sorted(os.listdir(top + "/dcp"))
                        if x.endswith(".distcp"))] = every
    rank = sorted(os.listdir(top + "/reshard/pp=2"))[0]
    files["reshard/pp=2/" + rank] = every
    if nested:
        files["views/half/model.pt"] = every
    for name in every:
        files["shards/" + name] = [name]
    fixed = [n for n in files if writes and n.split("/")[0] in
             ("reshard", "views", ".unshard", "shards")]
    return {n: v for n, v in files.items() if os.path.exists(top + "/" + n)}, fixed


def jobs_of(top, ck, files, fixed, writes):
    """Pairs: what is tried, and what of the plain files that stands for."""
    pairs = []
    for name, names in files.items():
        path = top + "/" + name
        index = [] if name.startswith("shards") else [("read", ck + "/.metadata")]
        for op in ("read", "map"):
            asked = [("list", ck)] if ".unshard" in name else []
            pairs.append(((op, path),
                          asked + index + [(op, ck + "/" + n) for n in names]))
        if not name.startswith((".unshard", "shards", "model", "hf", "dcp", "resh",
                                "views")):
            pairs.append((("attribute", path),
                          index + [("read", ck + "/" + n) for n in names]))
        pairs.append((("stat", path), [("stat", ck + "/" + n) for n in names]))
        if not writes or name in fixed:
            continue
        for op in ("write", "both", "mapw"):
            more = (1,) if op == "both" else ()
            pairs.append(((op, path) + more,
                          index + [(op, ck + "/" + n) for n in names]))
        for op in ("cut", "anew"):
            pairs.append(((op, path, 0),
                          index + [("write", ck + "/" + n) for n in names]))
        pairs.append((("readanew", path),
                      index + [("both", ck + "/" + n) for n in names]))
    for folder in ("", "/tensors", "/shards", "/views/half"):
        search = [("stat", ck + "/__0_0.distcp")] if folder else []
        pairs.append((("list", top + folder), [("list", ck)] + search))
        if writes:
            pairs.append((("create", top + folder + "/new"), None))
            pairs.append((("mkdir", top + folder + "/new"), None))
    if writes:
        pairs.append((("unlink", top + "/tensors/" + tensors[0]), None))
        pairs.append((("rename", top + "/tensors/" + tensors[0],
                       top + "/tensors/x"), None))
    return pairs


def through_overlay(pairs, ck, log):
    """Bytes are read of both, and written to the overlay alone."""
    for job, files in pairs:
        if files is None or job[0] in ("list", "stat"):
            yield job, files
            continue
        reads = job[0] in ("read", "map", "both", "mapw", "attribute", "readanew")
        wants = [(f[0] if f[0] == "list" else "read", f[1])
                 for f in files] if reads else \
            [f for f in files if f[1].endswith("/.metadata")]
        if job[0] in ("write", "both", "mapw", "cut", "anew", "readanew"):
            wants += [("both" if reads else "write", log)]
            wants += [("stat", f[1]) for f in files]
        elif "/shards/" not in job[1] and "/.unshard/" not in job[1]:
            wants += [("read", log)]
        yield job, wants


def try_all(kind, setting, pairs):
    for who, user in users.items():
        got = user.does([p[0] for p in pairs])
        flat = [f for p in pairs for f in p[1] or []]
        said = iter(user.does(flat))
        for (job, files), code in zip(pairs, got):
            if files is None:
                counts["cells"] += 1
                if not code:
                    note("more", kind, setting, who, *job)
                continue
            each = [next(said) for _ in files]
            want = next((c for c in each if c), 0)
            compare(kind + ", " + setting, who, job[0], job[1], code, want)


# Of an overlay's log.
LOGS = ((0o644,), (0o666,), (0o600, 1001), (0o660, 0, 2000))


def mount(src, at, opts):
    subprocess.run([unshard, "mount", src, at, "-o",
                    "allow_other,views=" + work + "/views.json," + log_opts +
                    opts], check=True)


def umount(at):
    subprocess.run([unshard, "umount", at], check=True)


def views_of(kind, ck):
    """One mount, every setting."""
    runs, at, over = work + "/above/runs", work + "/mnt", work + "/over"
    opts = {"ro": "", "rw": ",rw", "replace": ",rw,replace", "steps": "", "steps-rw": ",rw", "overlay": ",overlay=" + over}[kind]
    writes = kind not in ("ro", "steps")
    top = at + "/step-1" if kind.startswith("steps") else at
    plain(ck)
    mount(runs if kind.startswith("steps") else ck, at, opts)
    files, fixed = shown(top, ck, writes, not writes)
    pairs = jobs_of(top, ck, files, fixed, writes)
    if kind == "overlay":
        pairs = list(through_overlay(pairs, ck, over + "/overlay.log"))
    for i, (setting, rows) in enumerate(settings(ck)):
        plain(ck)
        for row in rows:
            put(*row)
        if kind == "overlay":
            put(over + "/overlay.log", *LOGS[i % len(LOGS)])
        try_all(kind, setting, pairs)
    plain(ck)
    umount(at)


# ---- a new step: names ----

def folder_settings():
    for mode in (0o755, 0o775, 0o777, 0o1777, 0o700, 0o733, 0o1775, 0o2777):
        for uid, gid in ((0, 0), (1001, 2000), (65534, 0)):
            yield "%04o of %d:%d" % (mode, uid, gid), mode, uid, gid, None
    if can_list:
        yield "given by list", 0o755, 0, 0, acl(65534, 7, 7, 5, 5)
        yield "denied by list", 0o777, 0, 0, acl(65534, 5, 7, 7, 7)


NAMES = [("create", "new"), ("mkdir", "new"), ("link", "new"), ("unlink", "f"),
         ("rename", "f", "g"), ("rename", "f", "e"), ("rmdir", "d"),
         ("read", "f"), ("both", "f"), ("write", "f"), ("mapw", "f"),
         ("cut", "f", 0), ("mode", "f", 0o600), ("list", ""), ("stat", "f")]


LOOKS = ("read", "both", "write", "mapw", "list", "stat")


def fill(folder, file, how):
    shutil.rmtree(folder, ignore_errors=True)
    os.mkdir(folder)
    for name in ("f", "e"):
        with open(folder + "/" + name, "w") as out:
            out.write("bytes")
        put(folder + "/" + name, *file)
    os.mkdir(folder + "/d")
    put(folder, *how)


def where(folder, job):
    return [job[0]] + [folder + "/" + x if isinstance(x, str) else x
                       for x in job[1:]]


def new_step():
    src, at = work + "/new", work + "/mnt"
    os.mkdir(src)
    put(src, 0o755)
    mount(src, at, ",rw,publish=manual")
    os.mkdir(at + "/step-9")
    os.chmod(at + "/step-9", 0o755)
    below, twin = src + "/.staging-step-9/files/x", work + "/twin"
    for name, mode, uid, gid, rights in folder_settings():
        for file in ((0o644,), (0o666, 1001, 2000), (0o640, 65534, 2000)):
            changed = True
            for who, user in users.items():
                for job in NAMES:
                    for folder in (twin, below) if changed else ():
                        fill(folder, file, (mode, uid, gid, rights))
                    without = user.does([where(twin, job)])[0]
                    through = user.does([where(at + "/step-9/shards/x", job)])[0]
                    compare_names("new step, " + name, who, job, through, without,
                                  file)
                    changed = job[0] not in LOOKS and not (through and without)
    whose(twin, below, at + "/step-9/shards/x")
    tops(src, at)
    shutil.rmtree(below)
    umount(at)


def whose(twin, below, through):
    """What is made has the owner, group and mode of what is made in a plain folder."""
    for mode in (0o777, 0o2777):
        for who, user in users.items():
            for folder in (twin, below):
                fill(folder, (0o644,), (mode, 0, 2000, None))
            jobs = ("create", "new"), ("mkdir", "dir")
            for folder in (twin, through):
                user.does([where(folder, job) for job in jobs])
            for name in ("new", "dir"):
                counts["cells"] += 1
                plainly, made = (os.stat(x + "/" + name) for x in (twin, below))
                if any(getattr(plainly, k) != getattr(made, k)
                       for k in ("st_uid", "st_gid", "st_mode")):
                    note("more", "in %04o" % mode, who, name, plainly, made)


def compare_names(setting, who, job, through, without, file):
    """Any refusal counts here: a name that stays is EPERM in sticky folders."""
    counts["cells"] += 1
    if not through and without:
        note("more", setting, who, job, file, through, without)
    elif through and not without and "given by list" not in setting:
        note("less", setting, who, job, file, through, without)


def tops(src, at):
    """Steps are made, renamed and removed in SRC."""
    twin = work + "/twin"
    for mode in (0o755, 0o777, 0o1777, 0o775):
        for who, user in users.items():
            shutil.rmtree(twin, ignore_errors=True)
            os.mkdir(twin)
            for folder in (src, twin):
                put(folder, mode, 1001, 2000)
            os.mkdir(twin + "/old")
            os.mkdir(at + "/old")
            for job in (("mkdir", "new"), ("rename", "old", "other"),
                        ("rmdir", "old"), ("rmdir", "other")):
                compare_names("SRC %04o" % mode, who, job,
                              user.does([where(at, job)])[0],
                              user.does([where(twin, job)])[0], "")
            for name in ("old", "new", "other"):
                if os.path.isdir(at + "/" + name):
                    os.rmdir(at + "/" + name)
    put(src, 0o755)


# ---- the whole of it ----

os.umask(0o022)
for folder in ("/above", "/above/runs", "/over", "/mnt"):
    os.mkdir(work + folder)
ck = work + "/above/runs/step-1"
shutil.copytree(demo, ck)
for i in range(4):
    os.utime(ck + "/__%d_0.distcp" % i, (1000 + i, 1000 + i))
with open(work + "/views.json", "w") as f:
    f.write('{"views": {"half": {"dtype": "float16"}}}')
try:
    put(work + "/mnt", 0o755, 0, 0, acl(65534, 5, 5, 5, 5))
    can_list = True
    os.removexattr(work + "/mnt", ACL)
except OSError:
    can_list = False
    print("access lists are not known here")
for name, ids in USERS.items():
    users[name] = User(ids)
tensors = ["model.model.layers.0.mlp.down_proj.weight", "model.lm_head.weight",
           "model.model.layers.0.input_layernorm.weight"]
behind = behind_of(ck)
for kind in kinds:
    if kind == "new":
        new_step()
    else:
        views_of(kind, ck)
print("%(cells)d cells, %(more)d more, %(less)d less" % counts)
sys.exit(counts["more"] > 0 or counts["less"] > 0)
