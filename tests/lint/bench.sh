# SPDX-License-Identifier: Apache-2.0
# What tests/run-bench makes of figures, by two toy scripts: figures of turns, which the
# shell and Python print alike.

command -v python3 >/dev/null || { echo "needs Python"; exit 77; }
work=$(mktemp -d) && trap 'rm -rf "$work"' EXIT
status=0
mkdir "$work/toys"
cat >"$work/toys/shell.sh" <<'END'
. "$TOP/tests/bench/lib/measure.sh"
printf '%s\n' 1.000 3.000 2.000 >above
printf '%s\n' 2.000 2.000 4.000 >below
echo 5.000 >once
measured turns s above "<=2"
measured once s once
compared ratio above below
compared missed above below ">=1.5"
compared uneven above once "<=1"
tell told 3.000 MiB
tell worst 3.000 MiB "" $(spread above)
END
cat >"$work/toys/python.sh" <<'END'
exec python3 -B - <<'PY'
import os, sys

sys.path.insert(0, os.environ["TOP"] + "/tests/bench/lib")
from measure import compared, measured, spread, tell

above, below, once = [1, 3, 2], [2, 2, 4], [5]
measured("turns", "s", above, "<=2")
measured("once", "s", once)
compared("ratio", above, below)
compared("missed", above, below, ">=1.5")
compared("uneven", above, once, "<=1")
tell("told", 3, "MiB")
tell("worst", 3, "MiB", spread=spread(above))
PY
END
B=$work/build RESULTS=$work/counted BENCHES=$work/toys BENCH='' BENCH_TMP=$work \
	bash tests/run-bench >"$work/out" 2>&1

{
	echo '| script | figure | value | spread | unit | limit |'
	echo '|---|---|---|---|---|---|'
	for script in python shell; do
		sed "s/^/| $script | /" <<-END
			turns | 2.000 | 1.000 to 3.000 | s | <=2 |
			once | 5.000 |  | s |  |
			ratio | 1.000 | 0.500 to 1.500 | ratio |  |
			missed | 1.000 | 0.500 to 1.500 | ratio | >=1.5 |
			uneven | 0.400 |  | ratio | <=1 |
			told | 3.000 |  | MiB |  |
			worst | 3.000 | 1.000 to 3.000 | MiB |  |
		END
	done
} | diff "$work/build/bench/results.md" - || status=1
grep ^fail "$work/counted" | diff - <(
	for script in python shell; do
		echo "fail bench/$script/missed 1.000 ratio, not >=1.5"
	done
) || status=1
python3 - "$work/build/bench" <<'END' || status=1
import json, sys, xml.dom.minidom

told = json.load(open(sys.argv[1] + "/results.json"))["results"]
assert len(told) == 14, told
assert told[3] == {"bench": "python", "name": "missed", "value": 1, "unit": "ratio",
                   "limit": ">=1.5", "low": 0.5, "high": 1.5}, told[3]
assert "low" not in told[4], told[4]
picture = xml.dom.minidom.parse(sys.argv[1] + "/results.svg")
texts = [t.firstChild.data for t in picture.getElementsByTagName("text")]
for text, times in ("python", 1), ("shell", 1), ("missed", 2), ("0.500 to 1.500", 4), ("spread", 1):
    assert texts.count(text) == times, (text, texts)
END
exit $status
