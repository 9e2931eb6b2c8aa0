# SPDX-License-Identifier: Apache-2.0
"""metrics.py [NAME{LABELS}]... <TEXT: checks Prometheus' text format, and prints the values."""
import re
import sys

LABEL = r'[a-zA-Z_]\w*="(?:[^"\\\n]|\\[\\"n])*"'
SAMPLE = re.compile(rf"([a-zA-Z_:][\w:]*)(?:\{{({LABEL}(?:,{LABEL})*)\}})? (\S+)")
values, types, seen, last = {}, {}, set(), None
text = sys.stdin.read()
assert text.endswith("\n"), "the last line has no end"
for line in text.splitlines():
    if line.startswith("# HELP "):
        name, words = line[7:].split(" ", 1)
        assert name not in seen and words, f"twice, or no words: {line}"
        last = name
        seen.add(name)
    elif line.startswith("# TYPE "):
        name, kind = line[7:].split(" ")
        assert name == last and name not in types, line
        assert kind in ("counter", "gauge", "histogram"), line
        assert (kind == "counter") == name.endswith("_total"), line
        types[name] = kind
    else:
        m = SAMPLE.fullmatch(line)
        assert m, f"no sample: {line}"
        name, labels, value = m.groups()
        base = re.sub("_(bucket|sum|count)$", "", name) if types[last] == "histogram" else name
        assert base == last, f"{line}: among those of {last}"
        key = f"{name}{{{labels}}}"
        assert key not in values, f"twice: {key}"
        values[key] = float(value)
        assert values[key] >= 0, line

for key in [k for k in values if "_bucket{" in k and 'le="+Inf"' in k]:
    rest = key.split("{", 1)[1].replace(',le="+Inf"', "")
    name = key.split("_bucket", 1)[0]
    buckets = [(float(k.rsplit('le="', 1)[1][:-2]), v) for k, v in values.items()
               if k.startswith(name + "_bucket{" + rest[:-1] + ",le=")]
    assert buckets == sorted(buckets) and len(buckets) > 5, buckets
    assert [n for _, n in buckets] == sorted(n for _, n in buckets), buckets
    assert buckets[-1][1] == values[f"{name}_count{{{rest}"], key
    assert f"{name}_sum{{{rest}" in values, key
for key in sys.argv[1:]:
    print("%d" % values[key] if key in values else "none")
