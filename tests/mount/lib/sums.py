# SPDX-License-Identifier: Apache-2.0
"""sums.py DIR: every checksum that a file in DIR keeps is right.

Zips alone and in a row (.distcp), and MindSpore's trailer; says how many.
With -v, which are wrong instead of an error.
"""
import io
import os
import sys
import zipfile
import zlib


def zips(data):
    """A zip for each end record; each begins where the one before ended."""
    at, begin = 0, 0
    while (at := data.find(b"PK\5\6", at)) >= 0:
        end = at + 22 + int.from_bytes(data[at + 20 : at + 22], "little")
        try:
            z = zipfile.ZipFile(io.BytesIO(data[begin:end]))
        except zipfile.BadZipFile:
            at += 4  # bytes of a tensor
            continue
        yield z
        at = begin = end


def check(path):
    data = open(path, "rb").read()
    n = 0
    if data[:4] == b"PK\3\4":
        for z in zips(data):
            bad = z.testzip()
            if bad:
                raise ValueError(f"{path}: {bad}")
            for i in z.infolist():
                n += 1
                # what follows the bytes agrees with the directory
                if i.flag_bits & 8:
                    tail = z.fp.getvalue()
                    mark = b"PK\7\x08" + i.CRC.to_bytes(4, "little")
                    if mark not in tail:
                        raise ValueError(f"{path}: descriptor of {i.filename}")
    elif data[-17:-4] == b"crc_num" + bytes(6):
        n += 1
        if zlib.crc32(data[:-17]) != int.from_bytes(data[-4:], "big"):
            raise ValueError(f"{path}: trailer")
    return n


verbose = sys.argv[1] == "-v"
total = 0
for top, _, files in os.walk(sys.argv[-1]):
    for f in sorted(files):
        try:
            total += check(os.path.join(top, f))
        except (ValueError, zipfile.BadZipFile) as e:
            if not verbose:
                sys.exit(str(e))
            print(e)
if not total:
    sys.exit(f"{sys.argv[-1]}: no sum at all")
