# SPDX-License-Identifier: Apache-2.0
# What others do to a name between two calls of the worker, who may more than who
# asks: nothing but the file that was asked for is opened, changed or given away.
. "$(dirname "$0")/../lib/common.sh"
requires setpriv "${PYTHON:=python3}"
[ "$(id -u)" = 0 ] || skip "needs root"
[ -z "${SAN:-}" ] || skip "nothing can be preloaded before the sanitizers"
export UNSHARD_KEEP=0

SRC=$WORK/src
mkdir -m 755 "$SRC"
chmod 755 "$MNT"
as_user ls "$SRC" >/dev/null 2>&1 || skip "$WORK is not open to others"
LD_PRELOAD=${HELPERS:-$here/build/helper}/../crash/meanwhile.so \
	"$UNSHARD" mount "$SRC" "$MNT" -o "log=$LOG,rw,allow_other,engine=plain" ||
	fail mount
mkdir "$MNT/s" || fail mkdir
P=$MNT/s/shards
F=$SRC/.staging-s/files
chmod 755 "$MNT/s"
mkdir "$P/open" "$P/sticky" && chmod 777 "$P/open" && chmod 1777 "$P/sticky" ||
	fail folders

# try FLAGS NAME: how user 65534 opens it, "ERRNO", or "SIZE TEXT"
try() {
	"$PYTHON" - "$1" "$P/$2" <<'Q'
import errno, os, sys
os.setgroups([]), os.setgid(65534), os.setuid(65534)
flags = 0
for f in sys.argv[1].split("|"): flags |= getattr(os, f)
try: fd = os.open(sys.argv[2], flags, 0o644)
except OSError as e: print(errno.errorcode[e.errno])
else: print(os.fstat(fd).st_size, os.pread(fd, 100, 0).decode().strip())
Q
}
# gives WANT FLAGS NAME
gives() {
	local got
	got=$(try "$2" "$3")
	[ "$got" = "$1" ] || fail "$3, $2: $got, expected $1"
	[ -s "$F/$3" ] || [ "${1%% *}" = 0 ] || fail "$3, $2: it is empty"
	rm -f "$F/$3"
}

# ---- a file that is there after all is opened as any: by who may, O_TRUNC and all
for d in open sticky; do
	gives EACCES 'O_RDWR|O_CREAT' $d/made-1
	gives EACCES 'O_RDONLY|O_CREAT' $d/made-2
	gives EACCES 'O_WRONLY|O_CREAT|O_TRUNC' $d/made-3
	gives EEXIST 'O_RDWR|O_CREAT|O_EXCL' $d/made-4
	gives '22 what was there before' 'O_RDWR|O_CREAT' $d/his-1
	gives '0 ' 'O_RDWR|O_CREAT|O_TRUNC' $d/his-2
	gives EEXIST 'O_RDWR|O_CREAT|O_EXCL' $d/his-3
	gives '0 ' 'O_RDWR|O_CREAT' $d/new
done
gives '0 ' 'O_RDONLY|O_CREAT|O_TRUNC' open/his-4

# ---- what is changed is the file that was meant, and not what has its name by then
as_his() {
	"$PYTHON" - "$@" <<'Q'
import errno, os, sys
os.setgroups([]), os.setgid(65534), os.setuid(65534)
try: exec(sys.argv[1], {"os": os, "P": sys.argv[2]})
except OSError as e: print(errno.errorcode[e.errno])
else: print("ok")
Q
}
# swapped WHAT CODE: root's file, which has taken the name, is as it was
swapped() {
	local got
	echo secret >"$F/open/victim-$1" && chmod 644 "$F/open/victim-$1" &&
		touch -d @1000000000 "$F/open/victim-$1"
	got=$(as_his "$2" "$P/open/swap-$1")
	[ -d "$F/open/done-$1" ] || fail "$1: nothing was swapped: $got"
	[ "$(cat "$F/open/swap-$1")" = secret ] || fail "$1: root's file was changed"
	[ "$(stat -c %Y "$F/open/swap-$1")" = 1000000000 ] ||
		fail "$1: root's file was touched"
	[ "$got" != ok ] || fail "$1: said to be done"
}
echo mine >"$F/open/swap-size" && ln -s x "$F/open/swap-times" &&
	chown -h 65534 "$F/open"/swap-* || fail "his files"
swapped size 'os.truncate(P, 0)'
[ "$(cat "$F/open/victim-size")" = mine ] || fail "what was not meant any more"
swapped times 'os.utime(P, follow_symlinks=False)'
# what was made and is open is not what has its name
echo secret >"$F/open/victim-new" && chmod 644 "$F/open/victim-new"
as_his 'fd = os.open(P, os.O_RDWR | os.O_CREAT, 0o600)
assert os.fstat(fd).st_uid == 65534, os.fstat(fd)
os.write(fd, b"mine!!!!")' "$P/open/swap-new" >"$WORK/out"
[ "$(cat "$WORK/out")" = ok ] && [ -d "$F/open/done-new" ] ||
	fail "swapped when it was made: $(cat "$WORK/out")"
[ "$(cat "$F/open/swap-new" "$P/open/swap-new")" = "$(printf 'secret\nsecret')" ] &&
	[ "$(cat "$P/open/victim-new")" = 'mine!!!!' ] || fail "one is taken for the other"
mkdir -m 700 "$F/open/victim-dir" || fail "root's folder"
as_his 'os.mkdir(P, 0o755)' "$P/open/swap-dir" >/dev/null
[ -d "$F/open/done-dir" ] || fail "no folder was swapped"
[ "$(stat -c '%a %u' "$F/open/swap-dir")" = '700 0' ] ||
	fail "root's folder is $(stat -c '%a %u' "$F/open/swap-dir")"
# as it is when nobody comes between
echo mine >"$F/open/f" && ln -s x "$F/open/l" && chown -h 65534 "$F/open"/[fl]
[ "$(as_his 'os.truncate(P, 0)' "$P/open/f")" = ok ] && [ ! -s "$F/open/f" ] ||
	fail "no truncate"
[ "$(as_his 'os.utime(P, (1, 1), follow_symlinks=False)' "$P/open/l")" = ok ] &&
	[ "$(stat -c %Y "$F/open/l")" = 1 ] || fail "no utime of a link"
[ "$(as_his 'os.mkdir(P, 0o751)' "$P/open/d")" = ok ] &&
	[ "$(stat -c '%a %u %g' "$F/open/d")" = '751 65534 65534' ] || fail "no mkdir"
grep -v '^$' "$LOG" 2>/dev/null | grep -qv published && fail "log: $(cat "$LOG")"
done_ok
