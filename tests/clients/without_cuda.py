# SPDX-License-Identifier: Apache-2.0
"""without_cuda.py [PACKAGE] - lets a torch, or PACKAGE, that was built for CUDA be
imported where there is none.

Its libraries name libraries that are not installed, so the loader refuses
them.  Beside them are put empty ones of those names, with the symbols and the
symbol versions that are asked for; nothing here ever calls one.
"""
import importlib.util
import pathlib
import re
import subprocess
import sys
import tempfile


def output(*words):
    return subprocess.run(words, capture_output=True, text=True).stdout


def needed(path):
    return set(re.findall(r"\(NEEDED\).*\[(.+)\]", output("readelf", "-dW", path)))


def wanted_versions(path):
    """version -> library, as the library's needs say."""
    owner, library = {}, None
    for line in output("readelf", "-VW", path).splitlines():
        if m := re.search(r"\bFile: (\S+)", line):
            library = m[1]
        elif library and (m := re.search(r"\bName: (\S+) +Flags:", line)):
            owner[m[1]] = library
    return owner


def dynamic_symbols(path):
    """(name, version or "", defined here)"""
    for line in output("nm", "-D", "--with-symbol-versions", path).splitlines():
        kind, symbol = line.split()[-2:]
        name, _, version = symbol.partition("@")
        yield name, version.lstrip("@"), kind.upper() != "U" and kind not in "wv"


def write(path, versions, unversioned):
    names = sorted(set().union(unversioned, *versions.values()))
    code = "".join(f"void *{n}(void) {{ return 0; }}\n" for n in names)
    script = "".join(
        f"{v} {{ global: {' '.join(f'{n};' for n in sorted(ns))} }};\n"
        for v, ns in versions.items()
    )
    with tempfile.TemporaryDirectory() as tmp:
        source, exports = pathlib.Path(tmp, "none.c"), pathlib.Path(tmp, "none.map")
        source.write_text(code or "extern int none;\nint none;\n")
        exports.write_text(script)
        command = ["cc", "-shared", "-fPIC", "-w", "-fno-builtin"]
        command += [f"-Wl,-soname,{path.name}", "-o", path, source]
        if versions:
            command.append(f"-Wl,--version-script={exports}")
        subprocess.run(command, check=True)


def main(package="torch"):
    at = pathlib.Path(importlib.util.find_spec(package).origin).parent
    # auditwheel puts them beside the package
    libs = at.with_name(f"{package}.libs")
    libs = libs if libs.is_dir() else at / "lib"
    own = sorted([*libs.glob("*.so*"), *at.glob("*.so")])
    there = {p.name for p in own}
    there |= set(re.findall(r"^\s+(\S+) \(", output("ldconfig", "-p"), re.M))
    absent = set().union(*map(needed, own)) - there
    versions = {library: {} for library in absent}
    defined, loose = set(), set()
    for path in own:
        owner = wanted_versions(path)
        lacks = needed(path) & absent
        for library in set(owner.values()) & absent:
            for version in (v for v, l in owner.items() if l == library):
                versions[library].setdefault(version, set())
        for name, version, here in dynamic_symbols(path):
            if here:
                defined.add(name)
            elif owner.get(version) in absent:
                versions[owner[version]][version].add(name)
            elif not version and lacks and re.match("cu|nv|nccl", name):
                loose.add(name)
    for library in sorted(absent):
        write(libs / library, versions[library], loose - defined)


main(*sys.argv[1:])
