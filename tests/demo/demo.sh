#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# demo.sh - mounts the checkpoint beside it and reads it with ordinary tools
#
# Every command is printed before it runs; the first that fails ends the demo
# with 1.  Nothing is left mounted.

cd "$(dirname "$0")/../.." || exit 2
. tests/report.sh
here=tests/demo
work=${B#"$TOP"/}/demo
name=model.model.layers.0.mlp.down_proj.weight
PYTHON=$(find_python)

if ! (: <>/dev/fuse) 2>/dev/null; then
	echo "demo: /dev/fuse cannot be opened here, and a mount needs it" >&2
	exit 1
fi
mkdir -p "$work/mnt" || exit 2
PATH=${B#"$TOP"/}:$PATH
finish() {
	status=$?
	if mountpoint -q "$work/mnt"; then
		unshard umount "$work/mnt" || umount -l "$work/mnt"
	fi
	[ $status = 0 ] || echo "demo: failed" >&2
}
trap finish EXIT

run() {
	echo
	echo "$ $*"
	eval "$*" || exit 1
}

echo "A tiny Llama that PyTorch saved from 4 ranks (2 FSDP x 2 tensor parallel):"
run ls -s --block-size=1 $here/checkpoint
run "unshard inspect $here/checkpoint $name"
run unshard mount $here/checkpoint $work/mnt
run "ls -l $work/mnt/tensors | cut -c 24-"
echo
echo "# A [18, 26] float32 tensor that lies in four shards, as one file:"
run sha256sum $work/mnt/tensors/$name
run grep down_proj $here/expected.sha256
run "cmp $work/mnt/tensors/$name $here/down_proj.expected && echo equal"
echo
echo "# All of them against what PyTorch gathered when it saved:"
run "(cd $work/mnt/tensors && sha256sum -c) <$here/expected.sha256"
run getfattr -d -m user.unshard $work/mnt/tensors/$name
run "$PYTHON - <<END
import numpy
t = numpy.memmap('$work/mnt/tensors/$name', '<f4', 'r', shape=(18, 26))
same = numpy.fromfile('$here/down_proj.expected', '<f4').reshape(18, 26)
print(t[:2, :4], 'equal:', numpy.array_equal(t, same))
assert numpy.array_equal(t, same)
END"
run cat $work/mnt/.unshard/problems
run unshard umount $work/mnt
echo
echo "demo: all bytes are as expected"
