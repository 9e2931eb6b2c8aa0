#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# ls and inspect as people type them: natural order, patterns, folds that stand for
# exactly their names, sizes, sums, colours on a terminal
. "$(dirname "$0")/lib/common.sh"
requires "${PYTHON:=python3}" tar
cd "$WORK" || exit 1

make() { # FILE, and on standard input NAME DTYPE SHAPE lines
	"$PYTHON" -c '
import json, struct, sys
size = {"F32": 4, "BF16": 2}
header, at = {}, 0
for line in sys.stdin:
    name, dtype, shape = line.split()
    shape = [int(n) for n in shape.split(",")]
    n = size[dtype]
    for d in shape: n *= d
    header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [at, at + n]}
    at += n
text = json.dumps(header).encode()
with open(sys.argv[1], "wb") as f:
    f.write(struct.pack("<Q", len(text)) + text + bytes(at))' "$1"
}
{
	for i in {0..11}; do
		echo "model.layers.$i.norm.weight BF16 8"
		echo "model.layers.$i.attn.weight F32 4,8"
		for e in {0..3}; do
			[ $i -lt 2 ] || echo "model.layers.$i.experts.$e.w1 BF16 64,16"
		done
	done
	echo 'model.layers.5.odd BF16 1'
	echo 'model.layers.007.x BF16 1'
	echo 'head F32 16,16'
	echo 'a[1]b F32 2'
} | make m.safetensors

# --- natural order
"$UNSHARD" ls m.safetensors >out
[ "$(grep -o 'layers.*norm' out | xargs)" = \
	"$(for i in {0..11}; do echo -n "layers.$i.norm "; done | sed 's/ $//')" ] ||
	fail "order: $(grep norm out)"
! grep -q tensors out || fail "a total in a pipe: $(tail -n 1 out)"

# --- patterns
expect 0 '' "$UNSHARD" ls m.safetensors '*.attn.*' head
[ "$(wc -l <"$WORK/out")" = 13 ] || fail "$(cat "$WORK/out")"
expect 0 '' "$UNSHARD" ls m.safetensors 'model.layers.?.norm*'
[ "$(wc -l <"$WORK/out")" = 10 ] || fail "$(cat "$WORK/out")"
expect 0 '' "$UNSHARD" ls m.safetensors 'a[1]b'
[ "$(wc -l <"$WORK/out")" = 1 ] || fail "a name with brackets: $(cat "$WORK/out")"
expect 0 '' "$UNSHARD" ls --json m.safetensors '*.1[01].norm*'
"$PYTHON" -c 'import json
t = json.load(open("out"))["tensors"]
assert sorted(x["name"] for x in t) == ["model.layers.10.norm.weight",
                                        "model.layers.11.norm.weight"], t' ||
	fail "JSON of a pattern"
expect 2 'nothing.*: no tensor or object has such a name' \
	"$UNSHARD" ls m.safetensors 'nothing*'
expect 0 '' "$UNSHARD" inspect m.safetensors '*.[0-2].attn*'
[ "$(grep -c '^model.layers.[012].attn.weight$' "$WORK/out")" = 3 ] ||
	fail "$(cat "$WORK/out")"
expect 0 '' "$UNSHARD" inspect --json m.safetensors '*.[0-2].attn*'
"$PYTHON" -c 'import json
t = json.load(open("out"))["tensors"]
assert [x["name"].split(".")[2] for x in t] == ["0", "1", "2"] and t[0]["sources"], t' ||
	fail "JSON of inspect: $(head -c 500 out)"
expect 2 'no tensor or object has such a name' "$UNSHARD" inspect m.safetensors 'x*'

# --- folds
"$UNSHARD" ls --fold m.safetensors >out
for want in 'bfloat16 .* model.layers.{2..11}.experts.{0..3}.w1  ×40' \
	'float32 .* model.layers.{0..11}.attn.weight  ×12' \
	'bfloat16 .* model.layers.5.odd' 'bfloat16 .* model.layers.007.x' \
	'float32 .* head'; do
	grep -q "^$want\$" out || fail "no $want in: $(cat out)"
done
[ "$(wc -l <out)" = 7 ] || fail "$(cat out)"
# whatever the names are, a fold is exactly those that it says
"$PYTHON" - >names <<'EOS'
import random
random.seed(20)
names = set()
for _ in range(600):
    a, b, c = (random.randrange(n) for n in (7, 5, 3))
    names.add(random.choice([f"l.{a}.e{b}.w{c}", f"l.{a}.x", f"{a}{b}", f"l.0{a}.z", f"p{a * 3:03}.x", f"q{a:02}.{b:03}",
                             f"l.{a}.{b}.{10 ** c}", f"n{a}.99999999{b}{c}{a}"]))
for n in sorted(names, key=lambda _: random.random()):
    print(n, random.choice(["F32", "F32", "BF16"]), "2")
EOS
make r.safetensors <names
"$UNSHARD" ls --fold r.safetensors >folded
"$PYTHON" - <<'EOS' || fail "folds: $(cat folded)"
import itertools, re
names = {line.split()[0]: line.split()[1] for line in open("names")}
found, folds = {}, 0
for line in open("folded"):
    dtype, _, _, _, text, *times = line.split()
    parts = re.split(r"\{(\d+)\.\.(\d+)\}", text)
    ranges = [[str(n).zfill(len(a) if a[0] == "0" else 1)
               for n in range(int(a), int(b) + 1)]
              for a, b in zip(parts[1::3], parts[2::3])]
    nr = 0
    for numbers in itertools.product(*ranges):
        name = parts[0] + "".join(f"{n}{p}" for n, p in zip(numbers, parts[3::3]))
        assert name not in found, name
        found[name] = {"float32": "F32", "bfloat16": "BF16"}[dtype]
        nr += 1
    assert times == ([f"×{nr}"] if nr > 1 else []), line
    folds += nr > 1
assert found == names
assert folds > 10, folds
EOS

# --- a thousand ranks are a few lines, in the pieces and in the problems
{
	echo 'w F32 1024,4'
	for i in {0..30}; do echo "layers.$i.v F32 2048"; done
} | make w.safetensors
mkdir ranks
"$UNSHARD" export w.safetensors/reshard/dim0=1024 - | tar -x -C ranks || fail "ranks"
expect 0 '' "$UNSHARD" inspect ranks w
grep -q '^  \[0:1, 0:4\] to \[1023:1024, 0:4\]  rank-{00000..01023}.safetensors, 16 bytes each, 1024 of them$' \
	"$WORK/out" || fail "$(tail -n 3 "$WORK/out")"
[ "$(wc -l <"$WORK/out")" -lt 10 ] || fail "$(wc -l <"$WORK/out") lines"
expect 0 '' "$UNSHARD" inspect --all ranks w
[ "$(grep -c ' offset ' "$WORK/out")" = 1024 ] || fail "--all is not all"
# and their files too, as a few lines
expect 0 '' "$UNSHARD" inspect ranks
grep -q '^  *rank-{00000..01023}.safetensors  *2.4 KiB  *32 pieces each, 1024 files$' \
	"$WORK/out" || fail "$(cat "$WORK/out")"
[ "$(wc -l <"$WORK/out")" -le 12 ] || fail "many lines: $(cat "$WORK/out")"
for i in {100..139} 700; do truncate -s -40 ranks/rank-00$i.safetensors; done
expect 1 'incomplete: ' "$UNSHARD" inspect ranks
sed -n '/^problems/,$p' "$WORK/out" >problems
[ "$(wc -l <problems)" = 3 ] || fail "$(wc -l <problems) lines of problems: $(cat problems)"
grep -q 'error: files rank-{00100..00139}.safetensors, 40 of them: 5 tensors each, the first is layers' \
	problems || fail "$(cat problems)"
grep -q 'error: file rank-00700.safetensors: 5 tensors, the first is layers' problems ||
	fail "$(cat problems)"
expect 1 'incomplete: ' "$UNSHARD" inspect -a ranks
[ "$(grep -c '^  error: tensor' "$WORK/out")" = 205 ] || fail "-a is not all"

# --- ranks whose files are called alike have the names of their folders
expect 0 '' "$UNSHARD" inspect "$TOP/tests/formats/megatron/experts-tp2-pp2-ep2/in" \
	decoder.layers.0.mlp.experts.linear_fc1.weight0
grep -q '| mp_rank_01_000_000 |$' "$WORK/out" || fail "$(cat "$WORK/out")"

# --- sizes and sums; -h is help, as everywhere
for how in -h -lh -H --human; do
	"$UNSHARD" ls $how -t m.safetensors head >out
	grep -q '^float32  \[16, 16\]  1.0 KiB  ok  head$' out || fail "$how: $(cat out)"
	grep -qx '1 tensor, 1.0 KiB' out || fail "$how: $(cat out)"
done
mkdir -p run/step-1 run/step-2
cp m.safetensors run/step-1/model.safetensors
cp m.safetensors run/step-2/model.safetensors
expect 0 '' "$UNSHARD" ls -lh run
grep -q '^complete  *68  *82.7 KiB  step-2 ' "$WORK/out" || fail "$(cat "$WORK/out")"
# -h is help where there are no sizes, and --help everywhere
expect 0 '' "$UNSHARD" inspect -h
grep -q '^usage: ' "$WORK/out" || fail "-h is no help"
expect 0 '' "$UNSHARD" ls --help
grep -q '^  -h, --human ' "$WORK/out" && grep -q '^      --help ' "$WORK/out" ||
	fail "ls --help: $(cat "$WORK/out")"

# --- on a terminal: colours and a sum; none where NO_COLOR says so
tty() { # VARIABLE... -- ARGUMENTS
	"$PYTHON" - "$@" <<'EOS'
import os, pty, sys
cut = sys.argv.index("--")
env = dict(os.environ, TERM="xterm", **dict(v.split("=") for v in sys.argv[1:cut]))
pid, fd = pty.fork()
if not pid:
    os.execve(os.environ["UNSHARD"], ["unshard"] + sys.argv[cut + 1:], env)
out = b""
while True:
    try:
        got = os.read(fd, 65536)
    except OSError:
        break
    if not got:
        break
    out += got
os.waitpid(pid, 0)
sys.stdout.write(out.decode().replace("\r", ""))
EOS
}
tty -- ls m.safetensors >out
grep -q $'\033\\[32mok\033\\[0m  head$' out || fail "no colour: $(cat -v out | tail -n 3)"
grep -q '^[0-9]* tensors, ' out || fail "no sum: $(tail -n 1 out)"
for v in NO_COLOR=1 TERM=dumb; do
	tty $v -- ls m.safetensors >out
	! grep -q $'\033' out || fail "$v: colours"
done
done_ok
