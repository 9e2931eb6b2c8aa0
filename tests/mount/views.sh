# SPDX-License-Identifier: Apache-2.0
# npy/, model.safetensors, model.pt and hf/, and ordinary tools over all of it.
LIMIT=120
. "$(dirname "$0")/lib/common.sh"
requires "${PYTHON:=python3}" cmp find du tar cp diff

CKPT=$here/tests/demo/checkpoint
mkdir "$WORK/config"
echo '{"architectures": []}' >"$WORK/config/config.json"
touch -d @1000000000 "$WORK/config/config.json"
chmod 640 "$WORK/config/config.json"
echo '{}' >"$WORK/config/tokenizer.json"
echo no >"$WORK/config/notes.txt"
echo weights >"$WORK/config/model.safetensors"
mount_ckpt "$CKPT" "config=$WORK/config"
[ "$(ls "$MNT" | tr '\n' ' ')" = \
	"dcp hf model.ckpt model.pt model.safetensors npy reshard shards tensors " ] ||
	fail "other entries: $(ls "$MNT")"
[ "$(ls "$MNT/hf" | tr '\n' ' ')" = \
	"config.json model.safetensors tokenizer.json " ] ||
	fail "other files in hf/: $(ls "$MNT/hf")"
same "$MNT/hf/config.json" "$WORK/config/config.json"
[ "$(stat -c %Y:%a "$MNT/hf/config.json")" = 1000000000:440 ] ||
	fail "time and mode: $(stat -c %Y:%a "$MNT/hf/config.json")"

# Every tensor through every view, by Python's own modules alone.
cat >"$WORK/views.py" <<'PY'
import ast, io, json, pathlib, pickle, pickletools, struct, sys, zipfile

mnt = pathlib.Path(sys.argv[1])
raw = {p.name: p.read_bytes() for p in (mnt / "tensors").iterdir()}


def safetensors(path):
    data = path.read_bytes()
    assert path.stat().st_size == len(data)
    n = struct.unpack("<Q", data[:8])[0]
    head = json.loads(data[8 : 8 + n])
    assert head.pop("__metadata__")["format"] == "pt"
    end = 0
    for name, t in head.items():
        begin, to = t["data_offsets"]
        assert begin == end, name
        end = to
        yield name, data[8 + n + begin : 8 + n + to]
    assert 8 + n + end == len(data)


got = dict(safetensors(mnt / "model.safetensors"))
assert got == raw, set(got) ^ set(raw)


def varint(data, at):
    value = shift = 0
    while True:
        value |= (data[at] & 127) << shift
        at, shift = at + 1, shift + 7
        if data[at - 1] < 128:
            return value, at


def fields(data):
    at = 0
    while at < len(data):
        key, at = varint(data, at)
        value, at = varint(data, at)
        if key & 7 == 2:
            value, at = data[at : at + value], at + value
        yield key >> 3, value


got = {}
for _, record in fields((mnt / "model.ckpt").read_bytes()):
    record = dict(fields(record))
    got[record[1].decode()] = dict(fields(record[2]))[3]
assert got == raw, set(got) ^ set(raw)
hf = dict(safetensors(mnt / "hf/model.safetensors"))
want = {n.removeprefix("model."): b for n, b in raw.items() if n.startswith("model.")}
assert hf == want, set(hf) ^ set(want)

for name, data in raw.items():
    npy = (mnt / "npy" / (name + ".npy")).read_bytes()
    n = 10 + struct.unpack("<H", npy[8:10])[0]
    d = ast.literal_eval(npy[10:n].decode())
    assert not d["fortran_order"] and npy[n:] == data, name


class Storage:
    pass


class Reader(pickle.Unpickler):
    def persistent_load(self, pid):
        return zf.read("archive/data/" + pid[2])

    def find_class(self, module, name):
        if (module, name) == ("collections", "OrderedDict"):
            return dict
        if name.startswith("_rebuild"):
            return lambda storage, *rest: storage
        return Storage


# zeros stand for the CRCs that are not known: Python would refuse them
zipfile.ZipExtFile._update_crc = lambda self, data: None
with zipfile.ZipFile(mnt / "model.pt") as zf:
    assert zf.namelist()[0] == "archive/data.pkl"
    assert zf.read("archive/byteorder") == b"little"
    for info in zf.infolist():
        assert info.compress_type == zipfile.ZIP_STORED
    pickletools.dis(zf.read("archive/data.pkl"), io.StringIO())
    tree = Reader(io.BytesIO(zf.read("archive/data.pkl"))).load()


def flat(v, path=""):
    if isinstance(v, bytes):
        yield path, v
    else:
        for k, below in v.items() if isinstance(v, dict) else enumerate(v):
            yield from flat(below, f"{path}.{k}" if path else str(k))


assert dict(flat(tree)) == raw
PY
"$PYTHON" "$WORK/views.py" "$MNT" || fail "a view differs"

# Ordinary tools over everything.
find "$MNT" -type f -exec cat {} + >/dev/null || fail find
ls -lR "$MNT" >"$WORK/ls" || fail "ls -lR"
du -s "$MNT" >/dev/null || fail du
mkdir "$WORK/cp" "$WORK/tar"
cp -r "$MNT/." "$WORK/cp" || fail "cp -r"
tar -C "$MNT" -cf - . | tar -C "$WORK/tar" -xf - || fail tar
for d in cp tar; do
	diff -rq -x .unshard "$MNT" "$WORK/$d" || fail "$d gave other files"
done
if command -v rsync >/dev/null; then
	rsync -a "$MNT/" "$WORK/rsync" || fail rsync
	diff -rq -x .unshard "$MNT" "$WORK/rsync" || fail "rsync: other files"
fi
(cd "$MNT" && find . -type f ! -path './.unshard/*' -print0 | sort -z |
	xargs -0 sha256sum) >"$WORK/sums" || fail sha256sum
(cd "$WORK/cp" && sha256sum --quiet -c "$WORK/sums") || fail "sums"
# Any range: blocks that lie across the header and several tensors.
for bs in 1 7 4096 99991; do
	dd if="$MNT/model.safetensors" bs=$bs skip=3 count=40 2>/dev/null |
		cmp - <(dd if="$WORK/cp/model.safetensors" bs=$bs skip=3 \
			count=40 2>/dev/null) || fail "dd bs=$bs"
done
chmod -R u+w "$WORK/cp" "$WORK/tar" "$WORK/rsync" 2>/dev/null
umount_ckpt

# Small files by option, and an index that names them.
mount_ckpt "$CKPT" hf-shard-size=8K
"$PYTHON" - "$MNT/hf" <<-'PY' || fail "index"
	import json, pathlib, struct, sys
	hf = pathlib.Path(sys.argv[1])
	index = json.loads((hf / "model.safetensors.index.json").read_text())
	total = 0
	for file in set(index["weight_map"].values()):
	    data = (hf / file).read_bytes()
	    n = struct.unpack("<Q", data[:8])[0]
	    names = set(json.loads(data[8 : 8 + n])) - {"__metadata__"}
	    want = {k for k, v in index["weight_map"].items() if v == file}
	    assert names == want, file
	    total += len(data) - 8 - n
	assert total == index["metadata"]["total_size"]
	files = {p.name for p in hf.glob("*.safetensors")}
	assert files == set(index["weight_map"].values()) and len(files) > 2
PY
umount_ckpt
# of one file too, where the source has one: some loaders look into it first
mkdir "$WORK/indexed"
"$PYTHON" - "$WORK/indexed" <<-'PY' || fail "a file with an index"
	import json, pathlib, struct, sys
	to = pathlib.Path(sys.argv[1])
	head = json.dumps({"w": {"dtype": "U8", "shape": [3], "data_offsets": [0, 3]}}).encode()
	(to / "model-00001-of-00001.safetensors").write_bytes(struct.pack("<Q", len(head)) + head + b"abc")
	(to / "model.safetensors.index.json").write_text(json.dumps(
	    {"metadata": {"total_size": 3}, "weight_map": {"w": "model-00001-of-00001.safetensors"}}))
PY
mount_ckpt "$WORK/indexed"
[ "$(ls "$MNT/hf" | xargs)" = "model.safetensors model.safetensors.index.json" ] ||
	fail "hf/ has $(ls "$MNT/hf" | xargs)"
"$PYTHON" - "$MNT/hf" <<-'PY' || fail "the index of one file"
	import json, sys
	index = json.load(open(sys.argv[1] + "/model.safetensors.index.json"))
	want = {"metadata": {"total_size": 3}, "weight_map": {"w": "model.safetensors"}}
	assert index == want, index
PY
umount_ckpt
mount_ckpt "$CKPT"
[ ! -e "$MNT/hf/model.safetensors.index.json" ] || fail "an index that nobody had"
umount_ckpt
mount_ckpt "$CKPT" strip-prefix=model.model.
"$PYTHON" - "$MNT/hf/model.safetensors" <<-'PY' || fail "strip-prefix"
	import json, struct, sys
	data = open(sys.argv[1], "rb").read()
	n = struct.unpack("<Q", data[:8])[0]
	names = set(json.loads(data[8 : 8 + n]))
	assert "embed_tokens.weight" in names and "model.lm_head.weight" in names
PY
umount_ckpt

# An option that changes nothing is said, where people look.
mkdir "$WORK/bare"
mount_ckpt "$CKPT" "strip-prefix=transformer.,config=$WORK/bare"
grep -q 'note: hf: -o strip-prefix=transformer\.: no tensor.s name begins' \
	"$MNT/.unshard/problems" || fail "$(cat "$MNT/.unshard/problems")"
grep -q 'note: hf: -o config=.*/bare: no config.json, tok' "$MNT/.unshard/problems" ||
	fail "$(cat "$MNT/.unshard/problems")"
umount_ckpt
expect 0 '' "$UNSHARD" inspect -o strip-prefix=transformer. "$CKPT"
grep -q 'taken off their names: nothing: none begins with "transformer\."' \
	"$WORK/out" || fail "$(cat "$WORK/out")"
expect 2 'config=.*/\.metadata: expected a directory, found a file' \
	"$UNSHARD" mount -o config="$CKPT/.metadata" "$CKPT" "$MNT"
expect 2 'config=.*/none: no such directory' \
	"$UNSHARD" mount -o config="$WORK/none" "$CKPT" "$MNT"

# Whatever loaders look for by name; never weights, nor what is a folder.
cp -r "$CKPT" "$WORK/own" && chmod -R u+w "$WORK/own"
for f in config.json adapter_config.json video_preprocessor_config.json tekken.json \
	modeling_x.py configuration_x.py tokenization_x.py layers.py qwen.tiktoken \
	chat_template.jinja added_tokens.json training_args.bin trainer.log .hidden.py; do
	echo "of $f" >"$WORK/own/$f"
done
mkdir "$WORK/own/vocab.txt" "$WORK/own/additional_chat_templates" "$WORK/other"
echo other >"$WORK/other/config.json"
echo "of layers.py" >"$WORK/other/layers.py"
mount_ckpt "$WORK/own:$WORK/other"
want="adapter_config.json added_tokens.json chat_template.jinja config.json"
want="$want configuration_x.py layers.py model.safetensors modeling_x.py"
want="$want qwen.tiktoken tekken.json tokenization_x.py video_preprocessor_config.json"
[ "$(echo $(LC_ALL=C ls "$MNT/hf"))" = "$want" ] || fail "$(ls "$MNT/hf")"
[ "$(cat "$MNT/hf/config.json")" = "of config.json" ] || fail "whose config.json?"
grep -q '^note: hf: config.json is shown as .*/own has it; .*/other has another$' \
	"$MNT/.unshard/problems" || fail "$(cat "$MNT/.unshard/problems")"
grep -q '^note: hf: the folder additional_chat_templates/ is left out' \
	"$MNT/.unshard/problems" || fail "$(cat "$MNT/.unshard/problems")"
grep -q 'layers.py' "$MNT/.unshard/problems" && fail "alike, and said to differ"
umount_ckpt

# What a view cannot hold is said, and is in the others.
"$PYTHON" - "$WORK/odd.safetensors" <<-'PY'
	import json, struct, sys
	head = {"_orig_mod.w": [0, 4], "w": [4, 8], "x": [8, 12]}
	text = json.dumps({n: {"dtype": "F32", "shape": [1], "data_offsets": o}
	                   for n, o in head.items()}).encode()
	open(sys.argv[1], "wb").write(struct.pack("<Q", len(text)) + text + b"abcdefghijkl")
PY
mount_ckpt "$WORK/odd.safetensors"
[ "$(ls "$MNT/tensors" | wc -l)" = 3 ] || fail "tensors"
"$PYTHON" - "$MNT" <<-'PY' || fail "$(cat "$MNT/.unshard/problems.json")"
	import json, sys
	found = json.load(open(sys.argv[1] + "/.unshard/problems.json"))
	said = {p["tensor"]: p["reason"] for p in found if p.get("view") == "hf"}
	assert said.keys() == {"_orig_mod.w", "w"}, said
	assert said["w"].startswith("_orig_mod.w would have the same name"), said
PY
umount_ckpt
done_ok
