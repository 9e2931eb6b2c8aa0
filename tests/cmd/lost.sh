#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# No file of an example can be lost, or emptied, without a word: an exit code
# that is not 0, or the same tensors as before.
LIMIT=240
. "$(dirname "$0")/lib/common.sh"
requires cp truncate

# What can be lost unseen, "FORMAT/CASE FILE": nothing else speaks of it, and no
# tensor that is shown after it is wrong.
allowed() {
	case $1 in
	# the user's own word on files that are whole by themselves
	layout/*' unshard-layout.json') ;;
	# an index: what it joined is shown as so many checkpoints
	*.index.json | *.index.ema.v2.json) [[ $1 != *-meta-dist-* ]] ;;
	# the model: what lay beside it is still shown, as so many checkpoints
	*/trainer-deepspeed' model.safetensors' | */accelerate' model.safetensors') ;;
	# beside the tensors, by themselves
	mindspore/*' hyper_param.safetensors') ;;
	deepspeed/*' zero/optimizer_state.pt') ;;
	hf/adapter-and-base*) ;;
	# shards that say nothing of each other; there is a warning
	hf/sharded-beside*) ;;
	# numbers without a total and without an index; there is a warning
	hf/no-index-numbered*) ;;
	*) return 1 ;;
	esac
}

look() { # HOW FILE: what is said of $C now
	"$UNSHARD" ls "$C" >"$WORK/ls" 2>"$WORK/ls.err"
	rc=$?
	nr=$((nr + 1))
	((rc <= 1)) || fail "$EXAMPLE: $1 $2: exit code $rc: $(cat "$WORK/ls.err")"
	((rc == 1)) && return
	"$UNSHARD" diff "$IN" "$C" >"$WORK/diff" 2>&1 && return
	allowed "$EXAMPLE $2" && return
	bad=$((bad + 1))
	echo "$EXAMPLE: $1 $2: not a word; $(tail -n 1 "$WORK/diff")"
}

nr=0 bad=0
C=$WORK/c
for IN in "$TOP"/tests/formats/*/*/in; do
	EXAMPLE=${IN#"$TOP"/tests/formats/} EXAMPLE=${EXAMPLE%/in}
	# what is damaged already, or needs an option, is not of this test
	"$UNSHARD" diff "$IN" "$IN" >/dev/null 2>&1 || continue
	"$UNSHARD" ls "$IN" >/dev/null 2>&1 || continue
	rm -rf "$C"
	cp -r "$IN" "$C" && chmod -R u+w "$C"
	while read -r -d '' f; do
		mv "$C/$f" "$WORK/aside"
		look without "$f"
		: >"$C/$f"
		look "emptied" "$f"
		mv "$WORK/aside" "$C/$f"
	done < <(cd "$C" && find . -type f -size +0 -printf '%P\0')
done
((bad == 0)) || fail "$bad of $nr losses were not noticed"
((nr > 300)) || fail "only $nr losses were tried"
done_ok
