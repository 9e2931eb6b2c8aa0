# SPDX-License-Identifier: Apache-2.0
# Faults in everything that writes (crash.py): some dozens of runs, and each call of a
# mount that replaces a tensor or publishes a step.  CRASH=N: so many by another seed
# each time, and power cuts; CRASH=all: each operation, the first 1,000 of them.
LIMIT=${CRASH:+7200}
LIMIT=${LIMIT:-150}
. "$(dirname "$0")/../mount/lib/common.sh"
requires python3

rig=
if [ "$(id -u)" = 0 ] && [ -n "${COMMON_PRIVATE-}" ] && losetup -f >/dev/null 2>&1 &&
	command -v mkfs.ext4 >/dev/null; then
	rig="--power ${HELPERS:-$here/build/helper}/blocklog"
else
	say "no loop device here, so the power does not go"
fi
export AT_CALL=${HELPERS:-$here/build/helper}/../crash/at_call.so
export TMPDIR=$WORK SAN=${SAN-}
crash() { python3 "$here/tests/crash/crash.py" "$@" || fail "crash.py $*"; }

# the rig itself: who says that all is on storage, and it is not, is found out
if [ -n "$rig" ] && [ -z "${SAN:-}" ]; then
	python3 "$here/tests/crash/crash.py" -n 400 -s 1 --lie $rig \
		-w edit -w publish-files -w seal >"$WORK/lie" 2>&1 &&
		fail "nothing is noticed without fsync: $(cat "$WORK/lie")"
	grep -q ': lost: ' "$WORK/lie" || fail "nothing is lost: $(cat "$WORK/lie")"
fi

case ${CRASH-} in
"")
	crash -n 40 -s 1 $rig
	if [ -z "${SAN:-}" ]; then
		crash --all -s 1 -w replace -w publish-files -f kill
	fi
	;;
all) crash --all $rig ;;
*) crash -n "$CRASH" ${SEED:+-s "$SEED"} $rig ;;
esac
done_ok
