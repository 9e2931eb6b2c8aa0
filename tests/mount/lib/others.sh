# SPDX-License-Identifier: Apache-2.0
# others KIND...: the matrix of may.py, see there
[ "$(id -u)" = 0 ] || skip "needs root"
requires "${PYTHON:=python3}" setpriv

others() {
	mkdir -m 755 "$WORK/may"
	as_user ls "$WORK/may" >/dev/null 2>&1 || skip "$WORK is not open to others"
	UNSHARD_KEEP=0 "$PYTHON" "$here/tests/mount/lib/may.py" "$UNSHARD" \
		"$WORK/may" "log=$LOG$SAN_OPTS" "$@" >"$WORK/cells" ||
		fail "$(tail -n 20 "$WORK/cells")"
	say "$(tail -n 1 "$WORK/cells")"
}
