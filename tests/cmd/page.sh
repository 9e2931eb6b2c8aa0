#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# inspect --html: one page that fetches nothing and runs one script, whatever the
# names in the checkpoint are.  tests/browser/page.sh looks at it in a browser.
. "$(dirname "$0")/lib/common.sh"
requires "${PYTHON:=python3}"
cd "$WORK" || exit 1
CKPT=$TOP/tests/demo/checkpoint

check() { # PAGE CKPT: sound, and of that checkpoint
	"$UNSHARD" inspect --json "$2" >inspect.json 2>/dev/null
	"$PYTHON" - "$1" inspect.json "$2" <<'EOS' || fail "$1: not as it has to be"
import base64, hashlib, html.parser, json, re, sys
page = open(sys.argv[1], encoding="utf-8").read()
class P(html.parser.HTMLParser):
    scripts, tags, at = [], [], None
    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        if tag == "script":
            self.at = [dict(attrs), ""]
    def handle_data(self, data):
        if self.at:
            self.at[1] += data
    def handle_endtag(self, tag):
        if tag == "script":
            self.scripts.append(self.at)
            self.at = None
p = P()
p.feed(page)
assert [s[0].get("id") for s in p.scripts] == ["about", "catalog", "found", None]
data = {s[0]["id"]: json.loads(s[1]) for s in p.scripts[:3]}
assert data["about"]["path"] == sys.argv[3]
assert data["catalog"] == json.load(open(sys.argv[2]))
assert isinstance(data["found"], list)
for s in p.scripts[:3]: # nothing that could end it, or begin something
    assert not set("<>&") & set(s[1]), s
csp = [a["content"] for t, a in p.tags if a.get("http-equiv") == "Content-Security-Policy"]
digest = base64.b64encode(hashlib.sha256(p.scripts[3][1].encode()).digest()).decode()
assert csp == [f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{digest}'"], csp
for tag, attrs in p.tags:
    assert not [a for a in attrs if a.startswith("on") or a in ("src", "href", "srcset")], (tag, attrs)
    assert tag not in ("img", "link", "iframe", "object", "base", "form"), tag
assert not re.search(r"innerHTML|outerHTML|insertAdjacent|document\.write|eval|fetch\(", p.scripts[3][1])
EOS
}
expect 0 '' "$UNSHARD" inspect --html page.html "$CKPT"
[ ! -s "$WORK/out" ] || fail "words on standard output: $(head -n 2 "$WORK/out")"
check page.html "$CKPT"
expect 0 '' "$UNSHARD" inspect --html hf.html "$CKPT/hf"
check hf.html "$CKPT/hf"

# names that would be elements, end a script, or be a terminal's
"$PYTHON" "$TOP/tests/cmd/lib/safetensors.py" bad.safetensors \
	'</script><script>alert(1)</script>' F32 4 '<img src=x onerror=alert(2)>' F32 4 \
	'<!--' F32 4 '"]}' F32 4 $'\033[31m' F32 4 '${alert(3)}' F32 4 '&lt;' F32 4
expect 0 '' "$UNSHARD" inspect --html bad.html bad.safetensors
check bad.html bad.safetensors

# what is damaged is a page too, with its problems
cp -r "$CKPT" torn && chmod -R u+w torn && rm torn/__2_0.distcp
expect 1 'incomplete: ' "$UNSHARD" inspect --html torn.html torn
check torn.html torn
grep -q 'the file does not exist' torn.html || fail "no problems in the page"

# nothing is overwritten, and what cannot be described leaves no page
expect 2 'page.html: is there already' "$UNSHARD" inspect --html page.html "$CKPT"
expect 1 'none: No such file' "$UNSHARD" inspect --html none.html none
[ ! -e none.html ] || fail "a page of nothing"
expect 3 'no/page.html: No such file' "$UNSHARD" inspect --html no/page.html "$CKPT"
expect 2 'expected a checkpoint alone' "$UNSHARD" inspect --html x.html "$CKPT" a
expect 2 'expected a checkpoint alone' "$UNSHARD" inspect --json --html x.html "$CKPT"
done_ok
