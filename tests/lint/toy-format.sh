# SPDX-License-Identifier: Apache-2.0
# A format is one folder of code, one of examples and a page: a toy of these, put
# into a copy of this tree in which no other file changes, is found by --formats,
# -o, --help, the manual, by looking, among rules, and passes the other lints.

top=$PWD toy=$PWD/tests/lint/toy-format status=0
work=$(mktemp -d) && trap 'rm -rf "$work"' EXIT
no() {
	echo "$*"
	status=1
}
b=${B#"$PWD"/}
case $b in /*) echo "expected a build folder of this tree"; exit 1 ;; esac

mkdir "$work/$b" && cp -a Makefile core fs mount-helpers docs "$work" &&
	cp -a "$b"/{core,fs,mount-helpers,docs,gen} "$b"/*.a "$work/$b" || exit 1
cd "$work" || exit 1
mkdir -p core/format/toy tests/formats/toy tests/lint
cp "$toy"/{fmt.c,toy.rules} core/format/toy
cp -r "$toy/plain" tests/formats/toy
cp "$toy/toy.md" docs/formats

# With the flags that the objects are of, so that few are made.
grep -q -e ' -Werror ' "$b/gen/flags" && werror=1
make -s WERROR=${werror-} "$b/unshard" "$b/man/unshard.1" \
	"$b/man/unshard-mount.1" >make.log 2>&1 ||
	{ tail -n 5 make.log; exit 1; }
cmp -s "$b/unshard" "$top/$b/unshard" && no "it was not built anew"

u() { "$b/unshard" "$@" 2>&1; }
in=tests/formats/toy/plain/in
u --formats | grep -q '^toy  *toys' || no "not in --formats"
u mount --help=all | grep -q '^  toy-name=NAME  *What the toy' || no "not in --help"
grep -q 'toys, a tensor' "$b/man/unshard.1" || no "not in the manual"
grep -q 'toy\\*-name' "$b/man/unshard-mount.1" || no "no option in the manual"
u ls "$in" | grep -q '^uint8  \[6\]  6  ok  weights$' || no "not found by looking"
u ls -o format=toy "$in/weights.toy" | grep -q weights || no "not by -o format="
u ls -o toy-name=x "$in" | grep -q ' x$' || no "its option is not read"
u cat "$in" weights | cmp -s - <(tail -c +5 "$in/weights.toy") ||
	no "other bytes"
u inspect -o toy-name=x "$top/tests/formats/safetensors/accelerate/in" |
	grep -q 'it is for toy' || no "its option is not known as unused"
mkdir -p runs/step-1 runs/step-2
cp "$in/weights.toy" runs/step-1
cp "$in/weights.toy" runs/step-2
u ls runs | grep -q 'step-2' || no "not in a directory of checkpoints"
u plan --reshard tp=2,rules=none "$in" | grep -q 'hf, megatron, toy' ||
	no "its rules are not found"
cp "$top/tests/lint/layers.rules" tests/lint && rm -rf runs make.log &&
	bash "$top/tests/lint/layers.sh" || no "layers.rules does not know it"
exit $status
