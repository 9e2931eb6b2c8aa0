# SPDX-License-Identifier: Apache-2.0
# Checkpoints that lie folders below their step: what is not finished there is
# noticed when it is, be it a file more or one that grows.
LIMIT=90
. "$(dirname "$0")/../lib/common.sh"

CKPT=$here/tests/demo/checkpoint
T=tensors/model.lm_head.weight
RUN=$WORK/run
mkdir "$RUN"
at() { echo "$RUN/step_$1/policy/weights"; }
for i in 1 2 3 4; do
	mkdir -p "$RUN/step_$i/policy"
	cp -r "$CKPT" "$(at $i)"
done
chmod -R u+w "$RUN"
rm "$(at 2)/.metadata" "$(at 3)/__1_0.distcp"
truncate -s 3000 "$(at 4)/__1_0.distcp"
mount_ckpt "$RUN"

latest() { [ "$(readlink "$MNT/latest")" = "$1" ]; }
said() { grep "step_$1" "$MNT/.unshard/problems"; }
# Nothing of a step changes but what is done to it below.
becomes() { # STEP
	wait_for 10 latest "step_$1" ||
		fail "latest is not step_$1: $(readlink "$MNT/latest"), $(said "$1")"
	same "$MNT/step_$1/$T" "$MNT/step_1/$T"
	wait_for 5 not said "$1" >/dev/null || fail "still said: $(said "$1")"
}
ls "$MNT"/step_*/tensors >/dev/null
latest step_1 || fail "latest is $(readlink "$MNT/latest")"
for i in 2 3 4; do
	wait_for 5 said $i >/dev/null || fail "step_$i is not said to be unfinished"
done
said 2 | grep -q 'did not finish' || fail "$(said 2)"
cp "$CKPT/.metadata" "$(at 2)/.new" && mv "$(at 2)/.new" "$(at 2)/.metadata"
becomes 2
cp "$CKPT/__1_0.distcp" "$(at 3)/.new" && mv "$(at 3)/.new" "$(at 3)/__1_0.distcp"
becomes 3
# No folder changes here.
cat "$CKPT/__1_0.distcp" >"$(at 4)/__1_0.distcp"
becomes 4
umount_ckpt

# Others at the places of these while the step slept, and nothing else changed:
# the kernel, which may know for a minute what was there, hears that it is gone.
two() { # FILE NAME1 NAME2: each of 4096 times its name
	local head i
	head="{\"$2\":{\"dtype\":\"U8\",\"shape\":[4096],\"data_offsets\":[0,4096]},"
	head+="\"$3\":{\"dtype\":\"U8\",\"shape\":[4096],\"data_offsets\":[4096,8192]}}"
	mkdir -p "$(dirname "$1")"
	{
		le64 ${#head}
		printf '%s' "$head"
		for i in "$2" "$3"; do head -c 4096 /dev/zero | tr '\0' "$i"; done
	} >"$1"
}
OTHERS=$WORK/others
W=policy/weights/model.safetensors
for i in $(seq 40); do two "$OTHERS/step_$i/$W" a b; done
wake() { # what sleeps then is step_1
	cat "$MNT/step_1/tensors/"* >/dev/null || fail "step_1"
	for i in $(seq 2 40); do
		ls "$MNT/step_$i/tensors" >/dev/null || fail "step_$i"
	done
}
is() { # FILE LETTER
	[ "$(tr -d "$2" <"$1" | wc -c) $(wc -c <"$1")" = "0 4096" ] ||
		fail "$1 is not $2: $(head -c 4 "$1")"
}
for o in direct=on direct=off; do
	two "$OTHERS/step_1/$W" a b
	UNSHARD_KEEP=60 mount_ckpt "$OTHERS" $o
	wake
	two "$OTHERS/new" b c && mv "$OTHERS/new" "$OTHERS/step_1/$W"
	cat "$MNT/step_1/tensors/a" >/dev/null 2>&1 && fail "a is $o: $(head -c 4 "$MNT/step_1/tensors/a")"
	is "$MNT/step_1/tensors/b" b
	is "$MNT/step_1/tensors/c" c
	# The same tensors, written in place.
	wake
	tr bc cb <"$OTHERS/step_1/$W" >"$WORK/swapped"
	tail -c 8192 "$WORK/swapped" | dd of="$OTHERS/step_1/$W" bs=1 \
		seek=$(($(stat -c %s "$WORK/swapped") - 8192)) conv=notrunc status=none
	is "$MNT/step_1/tensors/b" c
	is "$MNT/step_1/tensors/c" b
	umount_ckpt
done
done_ok
