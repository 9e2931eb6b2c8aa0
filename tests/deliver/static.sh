# SPDX-License-Identifier: Apache-2.0
# The command as one file ("make static"), linked in a bare root of Debian 12 from
# Debian's own archives: it lists, explains, seals, checks, exports and mounts in a root
# with nothing but itself, /proc and /dev/fuse, and in those of Debian 11, 12 and 13.
# Cross-built for arm64 ("make static-arm64") it says of ten checkpoints, under
# qemu-user, what the other says, byte for byte.
LIMIT=5400
. "$(dirname "$0")/lib/roots.sh"
SUITES="bullseye bookworm trixie"
FORMATS="dcp/2.14-zstd dcp/2.14-dtypes dcp/2.15-flattened deepspeed/zero3-five-ranks
	colossalai/dist-bert colossalai/optim-two megatron/by-processes
	mindspore/2.10-row4 torch/protocol-5-zip hf/llama"

build() {
	bare build
	within build "$INSTALL git make binutils $(deps build)"
	git clone -q "$TOP" "$WORK/build/root/unshardfs"
	within build "cd unshardfs; make static
		! readelf -lW build/static/unshard | grep INTERP
		! readelf -dW build/static/unshard | grep NEEDED
		readelf -dW build/static/unshard | grep -w PIE"
	STATIC=$WORK/build/root/unshardfs/build/static/unshard
}

run_in() { # ROOT COMMAND...: the static command there, and its answer
	local root=$1
	shift
	say "${root##*/}: unshard $*"
	chroot "$root" /unshard "$@" || fail "${root##*/}: unshard $*: $?"
}

# serve ROOT: all it does, there, on a checkpoint whose sums are known.
serve() {
	local root=$1 sums=$TOP/tests/demo/expected.sha256
	mkdir -p "$root/mnt"
	cp "$STATIC" "$root/unshard"
	cp -r "$TOP/tests/demo/checkpoint" "$root/ckpt"
	run_in "$root" devices | grep -q '^cuda .*linked statically' || fail "devices"
	[ "$(run_in "$root" ls ckpt | wc -l)" = "$(wc -l <"$sums")" ] || fail "ls"
	run_in "$root" inspect ckpt | grep -q '^problems  none' || fail "inspect"
	run_in "$root" seal ckpt
	run_in "$root" verify ckpt
	run_in "$root" export ckpt/tensors out
	(cd "$root/out" && sha256sum -c --quiet) <"$sums" || fail "export: other bytes"
	run_in "$root" mount -o engine=uring ckpt mnt
	(cd "$root/mnt/tensors" && sha256sum -c --quiet) <"$sums" ||
		fail "mount: other bytes"
	grep -E '^(engine|sandbox) ' "$root/mnt/.unshard/stats" >&2
	grep -q '^engine *uring' "$root/mnt/.unshard/stats" || fail "no io_uring"
	grep -q '^sandbox .*landlock.*seccomp' "$root/mnt/.unshard/stats" ||
		fail "no sandbox"
	run_in "$root" umount mnt
	! mountpoint -q "$root/mnt" || fail "still mounted"
}

empty() {
	local root=$WORK/empty
	mkdir -p "$root/proc" "$root/dev"
	mount -t proc proc "$root/proc"
	: >"$root/dev/fuse"
	mount --bind /dev/fuse "$root/dev/fuse"
	serve "$root"
}

suites() {
	for suite in $SUITES; do
		base "$suite" || { say "Debian's $suite: skipped"; continue; }
		mkdir "$WORK/$suite"
		tar --numeric-owner -C "$WORK/$suite" -xf "$BASE/$suite.tar"
		mount -t proc proc "$WORK/$suite/proc"
		mount --rbind /dev "$WORK/$suite/dev"
		serve "$WORK/$suite"
	done
}

arm64() {
	within build "dpkg --add-architecture arm64; apt-get -q update
		$INSTALL qemu-user-static $(deps arm64)
		cd unshardfs; make static-arm64
		readelf -hW build-arm64/static/unshard | grep AArch64"
	cp "$TOP/tests/deliver/lib/says.sh" "$WORK/build/root"
	for e in $FORMATS; do
		within build "sh says.sh unshardfs/build/static/unshard \
				unshardfs/tests/formats/$e/in >native
			sh says.sh 'qemu-aarch64-static unshardfs/build-arm64/static/unshard' \
				unshardfs/tests/formats/$e/in >arm64
			[ \$(wc -l <native) -gt 20 ]; cmp native arm64"
	done
}

base bookworm || skip "no root of Debian 12"
build
empty
suites
arm64
done_ok
