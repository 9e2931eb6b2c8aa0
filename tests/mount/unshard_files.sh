# SPDX-License-Identifier: Apache-2.0
# MNT/.unshard/: JSON that parses, sizes that are right, counters that count.
. "$(dirname "$0")/lib/common.sh"
. "$(dirname "$0")/lib/split.sh"
requires python3

make_split "$WORK/ckpt" 4000 500 4
# Direct: the kernel would answer from its cache what was read before.
mount_ckpt "$WORK/ckpt" direct=on
meta=$MNT/.unshard
[ "$(ls "$meta" | tr '\n' ' ')" = "catalog.json map metrics problems problems.json stats " ] ||
	fail "$(ls "$meta")"
for f in catalog.json map problems problems.json stats; do
	[ "$(stat -c %s "$meta/$f")" = "$(wc -c <"$meta/$f")" ] || [ ! -s "$meta/$f" ] ||
		fail "size of $f"
	[ "$(stat -c %s "$meta/$f")" = "$(cat "$meta/$f" | wc -c)" ] ||
		fail "bytes of $f"
done

stat_of() { awk -v k="$1" '$1 == k { print $2 }' "$meta/stats"; }
before=$(stat_of bytes)
cat "$MNT/tensors/w" >/dev/null
[ $(($(stat_of bytes) - before)) = 2000000 ] ||
	fail "stats counts $(($(stat_of bytes) - before)) bytes"
[ "$(stat_of generation)" = 1 ] && [ "$(stat_of tensors)" = 2 ] ||
	fail "$(cat "$meta/stats")"
awk 'NF < 2 { exit 1 }' "$meta/stats" || fail "stats has a key without a value"
! grep -q error "$meta/problems.json" "$meta/problems" ||
	fail "$(cat "$meta/problems")"

python3 - "$meta/catalog.json" "$WORK/ckpt" "$WORK/whole" <<'END' || fail "catalog"
import json, sys

catalog = json.load(open(sys.argv[1]))
assert catalog["generation"] == 1 and "format" in catalog
tensors = {t["name"]: t for t in catalog["tensors"]}
assert set(tensors) == {"w", "cut.rows"}
w = tensors["w"]
assert (w["dtype"], w["shape"], w["nbytes"]) == ("uint8", [4000, 500], 2000000), w
whole = bytearray(2000000)
for s in w["sources"]:
    (r0, r1), (c0, c1) = s["box"]
    data = open(f"{sys.argv[2]}/{s['file']}", "rb").read()[s["offset"]:][:s["nbytes"]]
    for r in range(r0, r1):
        n = c1 - c0
        whole[r * 500 + c0 : r * 500 + c1] = data[(r - r0) * n : (r - r0 + 1) * n]
assert bytes(whole) == open(sys.argv[3] + ".w", "rb").read()
END

# A fault that comes while it is mounted is listed, and costs only its bytes.
third=$WORK/ckpt/shard-00003-model-00001-of-00001.safetensors
truncate -s 1000 "$third"
cat "$MNT/tensors/w" >/dev/null 2>"$WORK/err" && fail "a torn tensor reads well"
grep -q "Input/output error" "$WORK/err" || fail "$(cat "$WORK/err")"
head -c 12000 "$MNT/tensors/cut.rows" | cmp - <(head -c 12000 "$WORK/whole.rows") ||
	fail "untouched shards suffer"
python3 - "$meta/problems.json" <<'END' || fail "$(cat "$meta/problems.json")"
import json, sys

problems = json.load(open(sys.argv[1]))
assert any(p["severity"] == "error" and p.get("tensor") == "w" and
           "shard-00003" in p.get("file", "") for p in problems), problems
END
grep -q "shard-00003" "$meta/problems" || fail "problems: $(cat "$meta/problems")"
[ "$(stat -c %s "$meta/problems.json")" = "$(cat "$meta/problems.json" | wc -c)" ] ||
	fail "size of problems.json after it grew"
umount_ckpt
done_ok
