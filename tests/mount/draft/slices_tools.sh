# SPDX-License-Identifier: Apache-2.0
# Slices brought by tools that write a file under another name and rename it,
# or that remove what they find and set owner and mode: rsync, install, tar, mv.
LIMIT=120
. "$(dirname "$0")/../lib/common.sh"
requires cmp cp install mv python3 tar

SRC=$WORK/src
D=$WORK/data
mkdir "$SRC" "$D"
if [ "${COMMON_PRIVATE-}" = 1 ]; then
	mount -t tmpfs -o size=100m tmpfs "$SRC" 2>/dev/null ||
		say "no tmpfs here: on the disk, which takes longer"
fi
here_is() { [ -d "$SRC/$1" ]; }

cat >"$WORK/layout.json" <<'J'
{"unshard_layout": 1,
 "mesh": {"axes": [{"name": "tp", "size": 2}]},
 "tensors": [
  {"name": "w", "dtype": "float32", "shape": [512, 250],
   "placement": {"tp": {"shard": 0}}},
  {"name": "norm", "dtype": "uint8", "shape": [6000]}],
 "write": {}}
J
for r in 0 1; do
	mkdir "$D/$r"
	noise 256000 $r >"$D/$r/w"
	noise 6000 7 >"$D/$r/norm"
	chmod 640 "$D/$r/w"
done
start() { mkdir "$MNT/$1" && cp "$WORK/layout.json" "$MNT/$1/unshard-layout.json" || fail "start $1"; }
whole() {
	wait_for 20 here_is "$1" || fail "$1 is not published: $(cat "$LOG" "$MNT/$1/.unshard/status")"
	cat "$D/0/w" "$D/1/w" | cmp - "$MNT/$1/tensors/w" || fail "$1: w"
	same "$MNT/$1/tensors/norm" "$D/0/norm"
	"$UNSHARD" verify "$SRC/$1" >"$WORK/out" 2>&1 ||
		fail "$1 is torn: $(cat "$WORK/out")"
	[ -z "$(ls -A "$SRC" | grep "staging-$1")" ] || fail "the stage stays"
}
mode_of() { stat -c '%a %u' "$1"; }
mount_ckpt "$SRC" rw,publish-after=1

# ---- rsync: a temporary name, owner and mode, a rename; then the folder's times
if command -v rsync >/dev/null; then
	for how in -a "-r --no-whole-file" "-a --preallocate" "-a --inplace" \
		"-a --partial-dir=.part"; do
		s=rsync_$(echo $how | tr -dc a-z)
		mkdir "$MNT/$s"
		rsync -a "$WORK/layout.json" "$MNT/$s/unshard-layout.json" ||
			fail "rsync of the layout: $(cat "$LOG")"
		exec 8<>"$MNT/$s/tensors/norm" # until all was looked at
		for r in 0 1; do
			rsync $how "$D/$r/" "$MNT/$s/ranks/$r/" ||
				fail "rsync $how: $(cat "$LOG")"
			[ "$(ls "$MNT/$s/ranks/$r" | xargs)" = "norm w" ] ||
				fail "rsync $how: $(ls -A "$MNT/$s/ranks/$r")"
		done
		[ "$how" != -a ] || [ "$(mode_of "$MNT/$s/ranks/1/w")" = \
			"$(mode_of "$D/1/w")" ] || fail "mode: $(mode_of "$MNT/$s/ranks/1/w")"
		exec 8>&-
		[ "$how" = -a ] || "$UNSHARD" publish "$MNT/$s" >/dev/null ||
			fail "publish $s"
		whole $s
	done
else
	say "no rsync here"
fi

# ---- others
start others
exec 8<>"$MNT/others/tensors/norm"
to=$MNT/others/ranks
install -m 600 "$D/0/w" "$to/0/w" || fail "install: $(cat "$LOG")"
[ "$(stat -c '%a %s' "$to/0/w")" = "600 256000" ] || fail "install: $(stat "$to/0/w")"
same "$to/0/w" "$D/0/w"
install "$D/0/w" "$to/0/w" || fail "install over one that is there"
cp "$D/1/w" "$WORK/w" && mv "$WORK/w" "$to/1/w" || fail "mv: $(cat "$LOG")"
[ ! -e "$WORK/w" ] || fail "mv leaves it"
(cd "$D/0" && tar -cf - norm) | tar -C "$to/0" -xpf - || fail "tar"
chmod 400 "$to/1/w" && [ "$(stat -c %a "$to/1/w")" = 400 ] || fail chmod
if [ "$(id -u)" = 0 ]; then
	chown 7:8 "$to/1/w" && [ "$(stat -c %u:%g "$to/1/w")" = 7:8 ] || fail chown
fi
exec 8>&-
whole others

# ---- by hand: from shards/, from another rank's folder, by names of all kinds
start hand
to=$MNT/hand/ranks
cp "$D/1/w" "$MNT/hand/shards/w" && mv "$MNT/hand/shards/w" "$to/1/w" ||
	fail "mv from shards/"
[ -z "$(ls -A "$MNT/hand/shards")" ] || fail "it is in shards/ still"
cat >"$WORK/hand.py" <<'P'
import errno, os, sys
data, to = sys.argv[1:]
w = open(f"{data}/0/w", "rb").read()
def refused(code, call, *args):
    try:
        call(*args)
    except OSError as e:
        assert e.errno == code, (call, args, e)
    else:
        sys.exit(f"{call} {args} was done")
# one that is open may get more bytes, which would be lost
f = open(f"{to}/1/w.tmp", "wb")
f.write(w)
f.flush()
refused(errno.EBUSY, os.rename, f.name, f"{to}/0/w")
f.close()
assert sorted(os.listdir(f"{to}/1")) == ["norm", "w", "w.tmp"]
refused(errno.EPERM, os.rename, f"{to}/1/w", f"{to}/1/w2")
refused(errno.EISDIR, os.rename, f.name, f"{to}/0")
refused(errno.ENOENT, os.rename, f"{to}/1/nothing", f"{to}/0/w")
refused(errno.EPERM, os.mkdir, f"{to}/1/folder")
refused(errno.EPERM, os.symlink, "w", f"{to}/1/link")
refused(errno.EPERM, open, f"{to}/../model.safetensors", "wb")
os.rename(f.name, f"{to}/0/.w")
os.rename(f"{to}/0/.w", f"{to}/0/w")
assert open(f"{to}/0/w", "rb").read() == w and not os.path.exists(f.name)
assert sorted(os.listdir(f"{to}/0")) == ["norm", "w"], os.listdir(f"{to}/0")
# of the wrong size: the slice stays, and what was written waits
for size in (0, 1, 5999, 6001):
    with open(f"{to}/0/x", "wb") as f:
        f.write(bytes(size))
    refused(errno.EINVAL, os.replace, f"{to}/0/x", f"{to}/0/norm")
    refused(errno.EIO, open(f"{to}/0/norm", "rb").read)
P
python3 "$WORK/hand.py" "$D" "$to" || fail "by hand: $(cat "$LOG")"
grep -q 'hand: x has 6001 bytes, and the slice norm has 6000: it stays' "$LOG" ||
	fail "no word of the size: $(cat "$LOG")"
cp "$D/0/norm" "$MNT/hand/tensors/norm" || fail norm

# ---- what no slice is called keeps it from being published, and is named
make_safetensors "$MNT/after/shards/model.safetensors"
wait_for 20 here_is after || fail "not published when quiet: $(cat "$LOG")"
here_is hand && fail "published with a file that is lost then"
expect 1 'not complete: ranks/0/x: no slice is called so' \
	"$UNSHARD" publish "$MNT/hand"
"$UNSHARD" status "$MNT" | grep -q 'ranks/0/x: no slice' ||
	fail "status: $("$UNSHARD" status "$MNT")"
umount_ckpt
mount_ckpt "$SRC" rw,publish-after=1
[ "$(stat -c %s "$to/0/x")" = 6001 ] || fail "another mount does not see it"
rm "$to/0/x" || fail "rm"
rm "$to/0/x" 2>/dev/null && fail "removed twice"
"$UNSHARD" publish "$MNT/hand" >/dev/null || fail "publish"
whole hand
start left
cp "$D/0/w" "$MNT/left/ranks/0/other" || fail other
rmdir "$MNT/left/ranks/0" 2>/dev/null && fail "rmdir of a rank with a file"
rmdir "$MNT/left" 2>/dev/null && fail "rmdir of a step with a file"
rm -r "$MNT/left" || fail "rm -r"
here_is .staging-left && fail "after rm -r it is there"
umount_ckpt

# ---- a disk that fails while the bytes become the slice's
UNSHARD_FAULT=write:2:1:28 mount_ckpt "$SRC" rw,publish-after=1
start full
to=$MNT/full/ranks
head -c 6000 /dev/zero | cp /dev/stdin "$to/0/norm.tmp" || fail "norm.tmp"
mv "$to/0/norm.tmp" "$to/0/norm" 2>/dev/null && fail "ENOSPC is not told"
expect 1 'were not written' "$UNSHARD" publish "$MNT/full"
head -c 1 "$to/0/norm" 2>/dev/null && fail "half of it is there"
cp "$D/0/norm" "$to/0/norm.tmp" && mv "$to/0/norm.tmp" "$to/0/norm" ||
	fail "again: $(cat "$LOG")"
cp "$D/0/w" "$to/0/" && cp "$D/1/w" "$to/1/" || fail w
whole full
umount_ckpt
UNSHARD_FAULT=sync:1:1:5 mount_ckpt "$SRC" rw,publish=manual
start lost
to=$MNT/lost/ranks
cp "$D/0/norm" "$to/0/norm.tmp" || fail "norm.tmp"
mv "$to/0/norm.tmp" "$to/0/norm" 2>/dev/null && fail "what was lost is a slice"
grep -q doomed "$MNT/lost/.unshard/status" || fail "not doomed"
umount_ckpt
done_ok
