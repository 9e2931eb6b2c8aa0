#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# venv.sh DIR [LIST MODULE] - a virtual environment with what LIST names, which
# is requirements.txt; it is whole where MODULE can be imported.  PYTHONS: names
# of Python, of which the first that exists is taken.
#
# Made once; made anew where the list has changed.  Where some packages cannot
# be had the others are still installed: tests skip what is missing.  Beside
# requirements.txt, those of requirements-sources.txt go into DIR/sources.
set -eu
dir=$1
here=$(cd "$(dirname "$0")" && pwd)
list=${2-$here/requirements.txt}
sources=
[ -n "${2-}" ] || sources=$here/requirements-sources.txt
stamp=$dir/made-from

[ -e "$stamp" ] && cat "$list" $sources | cmp -s - "$stamp" && exit 0
rm -rf "$dir"
for python in ${PYTHONS-python3} none; do
	"$python" -c 'import ensurepip' 2>/dev/null && break
done
[ "$python" != none ] || {
	echo "venv.sh: none of $PYTHONS" >&2
	exit 1
}
"$python" -m venv "$dir"
pip() {
	"$dir/bin/pip" --disable-pip-version-check -q install --no-deps "$@"
}
pip_all() { # LIST [WHERE...]
	all=$1
	shift
	pip "$@" -r "$all" || grep -v '^#' "$all" | while read -r one; do
		pip "$@" "$one" || echo "venv.sh: $one cannot be had" >&2
	done
}
pip_all "$list"
[ -z "$sources" ] || pip_all "$sources" --no-compile --target "$dir/sources"
if "$dir/bin/python" -c 'import importlib.util as u, sys
sys.exit(u.find_spec("torch") is None)' &&
	! "$dir/bin/python" -c 'import torch' 2>/dev/null; then
	"$dir/bin/python" "$here/without_cuda.py"
fi
if [ "${3-}" = oneflow ] && ! "$dir/bin/python" -c 'import oneflow' 2>/dev/null; then
	"$dir/bin/python" "$here/without_cuda.py" oneflow
fi
# Half an environment is tried again the next time.
"$dir/bin/python" -c "import ${3-numpy, safetensors, torch, transformers}" &&
	cat "$list" $sources >"$stamp"
