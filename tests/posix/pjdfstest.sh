# SPDX-License-Identifier: Apache-2.0
# pjdfstest in shards/ of a new checkpoint and on libfuse's passthrough_ll: what
# fails there may fail here, and what is refused on purpose.
#
#	make check-posix PJDFSTEST=DIR	its folder, with pjdfstest built in it
LIMIT=1800
. "$(dirname "$0")/../mount/lib/common.sh"
. "$(dirname "$0")/kit.sh"
[ -x "${PJDFSTEST-}/pjdfstest" ] || skip "PJDFSTEST=DIR: none is built there"
[ "$(id -u)" = 0 ] || skip "changes users, so it needs root"
find_passthrough || skip "no passthrough_ll to compare with"
PJDFSTEST=$(cd "$PJDFSTEST" && pwd)

# Kinds that are not taken are left out of the loops over kinds, so that what
# follows them is seen; so are links where the loop changes their owners.
mkdir "$WORK/pjd"
cp -r "$PJDFSTEST/tests" "$PJDFSTEST/pjdfstest" "$WORK/pjd"
cd "$WORK/pjd/tests" || exit 1
sed -i -E '/for type[0-9]* in /s/ fifo block char socket//' $(grep -rlE 'for type[0-9]* in' .)
sed -i -E '/for type[0-9]* in /s/ symlink//' \
	chown/00.t chown/07.t unlink/11.t rename/09.t rename/10.t

# Hard links, FIFOs, devices and sockets are EPERM, and these are about them.
meant='^(link|mkfifo|mknod)/|^(open/(06|17|24)|unlink/00|rename/(00|23)|rmdir/01)\.t '

# Of those: the call itself, the name that it would have made, how many names a
# file then has, and the times of either, which come without a word.
why="tried '(-[gUu] [^ ]+ )*(link|mkfifo|mknod|bind) .* got EPERM\$"
why="$why|, got ENOENT\$|[ ,]nlink(,uid,gid)?', expected .*, got |^[^ ]+ [0-9]+\$"

# In shards/ itself: below it, no call of ours takes the longest path that is tried.
run() { # DIR OUT: a line "FILE NUMBER WORDS" for each check that fails
	local t
	cd "$1" || exit 1
	for t in $(cd "$WORK/pjd/tests" && echo */*.t); do
		timeout 300 sh "$WORK/pjd/tests/$t" 2>/dev/null |
			sed -n "/# TO[D]O/d; s|^ok .*|ok|p; s|^not ok \([0-9]*\)\(.*\)|$t \1\2|p"
	done >"$2"
	cd "$WORK" || exit 1
}

mkdir "$WORK/src"
mount_ckpt "$WORK/src" rw,allow_other
mount_theirs
mkdir "$MNT/pjd"
run "$THEIRS" "$WORK/their" &
run "$MNT/pjd/shards" "$WORK/our"
wait
umount "$THEIRS"
umount_ckpt
for who in our their; do
	grep -vx ok "$WORK/$who" | cut -d' ' -f1,2 | sort >"$WORK/$who.failed"
	say "$who: $(wc -l <"$WORK/$who") checks, $(wc -l <"$WORK/$who.failed") fail"
done
[ "$(wc -l <"$WORK/our")" -gt 2500 ] || fail "few checks"
comm -23 "$WORK/our.failed" "$WORK/their.failed" >"$WORK/more"
say "$(grep -cE "$meant" "$WORK/more") of ours only, of kinds that are refused"
say "$(comm -13 "$WORK/our.failed" "$WORK/their.failed" | wc -l) of theirs only"
grep -vE "$meant" "$WORK/more" && fail "worse than passthrough_ll"
grep -wFf "$WORK/more" "$WORK/our" | grep -vE "$why" &&
	fail "in tests of kinds that are refused, but for another reason"
done_ok
