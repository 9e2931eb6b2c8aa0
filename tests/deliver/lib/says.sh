# SPDX-License-Identifier: Apache-2.0
# says.sh COMMAND CKPT - what it says of a copy of it, and the sums of what it exports;
# how fast it was is left out.
set -eu
rm -rf ck out
cp -r "$2" ck
run() {
	local sub=$1
	shift
	$command "$sub" -o engine=plain "$@" >said 2>&1 || { cat said >&2; exit 1; }
	sed -E 's/, [0-9.]+ (s|[KMG]i?B\/s)\b//g' said
}
command=$1
run ls ck
run ls --json ck
run inspect ck
run inspect --json ck
run seal ck
run verify ck
run export ck/tensors out
cd out
find . -type f | sort | while read -r f; do sha256sum "$f"; done
