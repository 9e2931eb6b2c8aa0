# SPDX-License-Identifier: Apache-2.0
"""What files of checkpoints are made of, as far as a mutation wants to know it:
zip members with their checksums, pickles, headers of safetensors files, JSON.

Nothing here fails on what it does not understand; there is just nothing to change.
"""
import bisect
import pickletools
import re
import struct
import zlib

INTS = {"BININT1": 1, "BININT2": 2, "BININT": 4, "LONG1": None}
STRINGS = {"SHORT_BINUNICODE": 1, "BINUNICODE": 4, "SHORT_BINSTRING": 1}


class Member:
    """A stored member of a zip: where its bytes are, and where their CRC-32 stands."""

    def __init__(self, name, lo, hi, sums):
        self.name, self.lo, self.hi, self.sums = name, lo, hi, sums


def members(data):
    """Of all zips in it, for DCP writes one after the other into a file."""
    out = []
    for m in re.finditer(b"PK\x05\x06", data):
        end = m.start()
        if end + 22 > len(data):
            continue
        size, off = struct.unpack_from("<II", data, end + 12)
        if data[end - 20 : end - 16] == b"PK\x06\x07" and data[end - 76 : end - 72] == b"PK\x06\x06":
            end -= 76
            size, off = struct.unpack_from("<QQ", data, end + 40)
        base = end - size - off
        at = end - size
        while 0 <= base <= at and data[at : at + 4] == b"PK\x01\x02":
            crc, packed, _, nlen, xlen, clen = struct.unpack_from("<IIIHHH", data, at + 16)
            head = base + struct.unpack_from("<I", data, at + 42)[0]
            if data[head : head + 4] != b"PK\x03\x04":
                break
            n, x = struct.unpack_from("<HH", data, head + 26)
            lo = head + 30 + n + x
            sums = [at + 16]
            if struct.unpack_from("<I", data, head + 14)[0] == crc:
                sums.append(head + 14)
            if data[lo + packed : lo + packed + 4] == b"PK\x07\x08":
                sums.append(lo + packed + 4)
            out.append(Member(data[at + 46 : at + 46 + nlen], lo, lo + packed, sums))
            at += 46 + nlen + xlen + clen
    return sorted(out, key=lambda m: m.lo)


def mend_sums(data, lo, hi, parts):
    """The CRC-32 of each member that has bytes of [lo, hi)."""
    for m in parts:
        if m.lo < hi and lo < m.hi:
            for at in m.sums:
                struct.pack_into("<I", data, at, zlib.crc32(data[m.lo : m.hi]))


def pickles(name, data, parts):
    """[lo, hi) of each."""
    out = [(m.lo, m.hi) for m in parts if m.name.endswith(b".pkl")]
    if not out and data[:1] == b"\x80":
        out.append((0, len(data)))
    return out


def pickle_words(data, lo, hi):
    """(ints, strings): their values' (at, size), as they stand in the file."""
    ints, strings = [], []
    try:
        for op, arg, pos in pickletools.genops(bytes(data[lo:hi])):
            at = lo + pos + 1
            if op.name in INTS:
                size = INTS[op.name]
                ints.append((at, size) if size else (at + 1, data[at]))
            elif op.name in STRINGS:
                head = STRINGS[op.name]
                strings.append((at + head, len(arg.encode("utf-8", "surrogatepass"))))
    except Exception:  # the rest of a pickle that is none
        pass
    return [i for i in ints if i[1]], [s for s in strings if s[1]]


def header(name, data):
    """[lo, hi) of the JSON of a safetensors file, or of a file that is JSON; or None."""
    if name.endswith(".json"):
        return 0, len(data)
    if name.endswith(".safetensors") and len(data) > 8:
        n = struct.unpack_from("<Q", data, 0)[0]
        if n <= len(data) - 8 and data[8:9] == b"{":
            return 8, 8 + n
    return None


class Ranges:
    """Which bytes are elements of tensors."""

    def __init__(self, pairs):
        self.v = []
        for lo, hi in sorted(pairs):
            if self.v and lo <= self.v[-1][1]:
                self.v[-1][1] = max(hi, self.v[-1][1])
            else:
                self.v.append([lo, hi])

    def touch(self, lo, hi):
        i = bisect.bisect_right(self.v, [lo, float("inf")])
        return any(a < hi and lo < b for a, b in self.v[max(0, i - 1) : i + 1])
