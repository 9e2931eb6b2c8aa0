# SPDX-License-Identifier: Apache-2.0
# A checkpoint of 1 GiB, of four ranks, as one file: by PyTorch's own converter, by a
# mount and by unshard export.  The README's table is of these figures.
torch=${CLIENTS_VENV:+$CLIENTS_VENV/bin/python}
torch=${torch:-${PYTHON:-python3}}
"$torch" -c 'import torch.distributed.tensor' 2>/dev/null || {
	echo "needs PyTorch"
	exit 77
}
rmdir "$TMP/mnt"
"$torch" "$TOP/tests/bench/merge.py" "$TMP" "$UNSHARD"
