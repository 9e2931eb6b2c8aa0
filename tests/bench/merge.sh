# SPDX-License-Identifier: Apache-2.0
# A checkpoint of 1 GiB, of four ranks, as one file: by PyTorch's own converter, by a
# mount and by unshard export.  The README's table is of these figures.  Then DeepSpeed's
# and MindSpore's own merges, where they are there (mergers.txt).
torch=${CLIENTS_VENV:+$CLIENTS_VENV/bin/python}
torch=${torch:-${PYTHON:-python3}}
"$torch" -c 'import torch.distributed.tensor' 2>/dev/null || {
	echo "needs PyTorch"
	exit 77
}
rmdir "$TMP/mnt"
"$torch" "$TOP/tests/bench/merge.py" "$TMP" "$UNSHARD"
rm -rf "${TMP:?}"/*
others() { # WHOSE PYTHON
	"$2" -c "import $1" 2>/dev/null || { echo "no $1 to compare with"; return 0; }
	mkdir "$TMP/$1"
	GLOG_v=3 "$2" -W ignore "$TOP/tests/bench/merge_others.py" "$TMP/$1" "$UNSHARD" "$1" 2>/dev/null
	rm -rf "${TMP:?}/$1"
}
PYTHONPATH=${MERGERS-} others deepspeed "$torch"
others mindspore "${MINDSPORE_VENV:+$MINDSPORE_VENV/bin/}python3"
