# SPDX-License-Identifier: Apache-2.0
"""front.py WHEELS PACKAGE==VERSION FOLDER - of NCCL's wheel, nccl.h and the names of the
functions that libnccl.so.2 gives.

Where the wheel lies in WHEELS it is read; else pip, by the same code as for the option
fast-deps, fetches the ranges of it that are asked for, 4 MB.  The library's list of its
sections is behind what is fetched, so its table of symbols is found by what it is: entries
of 24 bytes of functions that are defined, strong or weak, whose names, for all of them, lie as far behind
one place.  A name may be the end of another one: ncclSend of pncclSend.
"""
import contextlib
import glob
import pathlib
import struct
import sys
import zipfile

FRONT = 256 << 10  # of the library; the names end within 32
KNOWN = [b"ncclGetVersion", b"ncclGetUniqueId", b"ncclCommAbort", b"ncclSend", b"ncclRecv",
         b"ncclGroupStart", b"ncclGroupEnd", b"ncclAllReduce"]


@contextlib.contextmanager
def fetched(name, version):
    from pip._internal.commands import create_command
    from pip._internal.network.lazy_wheel import LazyZipOverHTTP
    from pip._vendor.packaging.specifiers import SpecifierSet

    download = create_command("download")
    options, _words = download.parse_args(["--only-binary", ":all:", "-qq", name])
    with download.main_context():
        session = download.get_default_session(options)
        finder = download._build_package_finder(options, session)
        found = finder.find_best_candidate(name, SpecifierSet(f"=={version}")).best_candidate
        if found is None:
            sys.exit(f"{name} {version}: there is no such wheel")
        at = found.link.url_without_fragment
        print(at)
        with LazyZipOverHTTP(at, session, chunk_size=1 << 20) as file:
            yield file


@contextlib.contextmanager
def wheel(folder, wanted):
    name, version = wanted.split("==")
    here = glob.glob(f"{folder}/{name.replace('-', '_')}-{version}-*.whl")
    with open(here[0], "rb") if here else fetched(name, version) as file:
        yield zipfile.ZipFile(file)


def member(of, name):
    found, = [n for n in of.namelist() if n.endswith("/" + name)]
    return of.open(found)


def functions(front):
    """Names of functions that are defined, of all its tables' entries that fit."""
    starts, last = {}, len(front) - 24
    for at in range(0, last, 8):
        name, info, other, section, value = struct.unpack_from("<IBBHQ", front, at)
        if info in (0x12, 0x22) and not other and 0 < section < 0xff00 and value:
            starts.setdefault(name, at)
    places = [front.find(name + b"\0") for name in KNOWN]
    if min(places) < 0:
        sys.exit("its names are not where they are looked for")
    tables = set.intersection(*({place - name for name in starts} for place in places))
    table, = (t for t in tables if not front[t])  # it begins with no name
    for name in starts:
        end = front.find(b"\0", table + name)
        text = front[table + name:end]
        if text.isascii() and text.decode().isidentifier():
            yield text.decode()


folder = pathlib.Path(sys.argv[3])
with wheel(*sys.argv[1:3]) as whole:
    (folder / "nccl.h").write_bytes(member(whole, "nccl.h").read())
    with member(whole, "libnccl.so.2") as library:
        names = sorted(functions(library.read(FRONT)))
(folder / "symbols").write_text("".join(f"{name}\n" for name in names))
