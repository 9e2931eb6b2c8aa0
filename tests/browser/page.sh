#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# The page of inspect --html in a real browser: it draws, it finds, and no name in a
# checkpoint becomes an element or runs.
LIMIT=300
. "$(dirname "$0")/../cmd/lib/common.sh"
for browser in chromium chromium-browser google-chrome ''; do
	[ -z "$browser" ] || ! command -v "$browser" >/dev/null || break
done
[ -n "$browser" ] || skip "needs chromium"
cd "$WORK" || exit 1
CKPT=$TOP/tests/demo/checkpoint

dom() { # FILE[#WORDS]: the document after its script ran, to dom.html
	local no_sandbox=
	[ "$(id -u)" != 0 ] || no_sandbox=--no-sandbox
	timeout 120 "$browser" --headless --disable-gpu --disable-dev-shm-usage $no_sandbox \
		--user-data-dir="$WORK/profile" --virtual-time-budget=5000 \
		--dump-dom "file://$WORK/$1" >dom.html 2>browser.err ||
		fail "$browser: $(tail -n 3 browser.err)"
	grep -q '<body data-shown="1">' dom.html || fail "$1: its script did not end"
}

expect 0 '' "$UNSHARD" inspect --html page.html "$CKPT"
dom page.html
grep -q '<h3>model.model.layers.0.mlp.down_proj.weight</h3>' dom.html || fail "no drawing"
[ "$(grep -o '<rect' dom.html | wc -l)" = 4 ] || fail "expected four boxes"
grep -q '12 of 12' dom.html || fail "the list"
dom 'page.html#Q_PROJ'
grep -q '>1 of 12<' dom.html || fail "nothing is found: $(grep -o 'id="count">[^<]*' dom.html)"

bad=('</script><script>document.title="ran"</script>' '<img src=x onerror="document.title=1">'
	'<svg onload="document.title=2">' '"]}' '${document.title=3}')
args=()
for name in "${bad[@]}"; do args+=("$name" F32 4); done
"${PYTHON:-python3}" "$TOP/tests/cmd/lib/safetensors.py" bad.safetensors "${args[@]}"
expect 0 '' "$UNSHARD" inspect --html bad.html bad.safetensors
dom bad.html
grep -q '<title>unshard inspect</title>' dom.html || fail "a name ran"
! grep -qE '<img|<svg onload' dom.html || fail "a name is an element"
grep -qF '&lt;img src=x onerror="document.title=1"&gt;' dom.html || fail "the name is not shown"
done_ok
