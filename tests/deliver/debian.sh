# SPDX-License-Identifier: Apache-2.0
# In bare roots of Debian 12, as debootstrap makes them: what is committed, cloned,
# builds and runs by the README's commands and nothing else; its packages install,
# serve a program that is built from the manual, and leave nothing when they are
# purged; its wheel loads checkpoints where no compiler is and no library.
#
# DELIVER_CHECK=1: all of "make check" too, in the root of the clone.
LIMIT=5400
. "$(dirname "$0")/lib/roots.sh"
EXAMPLES="tests/demo tests/formats/mindspore/2.10-row4 tests/formats/deepspeed/zero3-five-ranks"
DOWN=model.model.layers.0.mlp.down_proj.weight

# The README's own commands on "a fresh Debian 12 with git and make".
clone() {
	local said
	said=$(sed -n "/fresh Debian 12 with git and make:/,/^[A-Z]/s/^    \(make [a-z]*\) .*/\1/p" \
		"$TOP/README.md" | tr '\n' ,)
	[ "$said" = "make demo,make check," ] || fail "the README says: $said"
	bare clone
	within clone "$INSTALL git make"
	git clone -q "$TOP" "$WORK/clone/root/unshardfs"
	within clone "cd unshardfs; make demo"
	if [ -n "${DELIVER_CHECK-}" ]; then
		within clone "cd unshardfs; make check"
	else
		within clone "cd unshardfs; make deps; make -j2
			make check-unit UNIT_ARGS='--filter cursor/*'"
	fi
}

packages() {
	within clone "cd unshardfs; DEB_BUILD_OPTIONS=nocheck make deb"
	bare packages
	cp "$WORK"/clone/root/unshardfs/build/deb/*.deb "$WORK/packages/root"
	cp -r "$TOP/tests/demo" "$WORK/packages/root"
	awk '/^```/ { if (n++) exit; next } n' "$TOP/docs/man/unshard.3.scd" \
		>"$WORK/packages/root/file.c"
	grep -q 'int main' "$WORK/packages/root/file.c" || fail "no program in unshard(3)"
	rm "$WORK"/packages/root/*-dbgsym_*
	within packages "$INSTALL ./*.deb gcc libc6-dev pkg-config
		cc file.c \$(pkg-config --cflags --libs unshard)
		./a.out demo/checkpoint $DOWN | cmp - demo/down_proj.expected
		cc -o static file.c \$(pkg-config --cflags unshard) -Wl,-Bstatic -lunshard \
			-Wl,-Bdynamic \$(pkg-config --libs --static unshard)
		./static demo/checkpoint $DOWN | cmp - demo/down_proj.expected
		mkdir mnt; unshard mount demo/checkpoint mnt
		cmp mnt/tensors/$DOWN demo/down_proj.expected
		unshard umount mnt; mount -t unshardfs /root/demo/checkpoint mnt
		(cd mnt/tensors; sha256sum -c --quiet) <demo/expected.sha256; umount mnt
		dpkg -L unshardfs libunshard0.1 libunshard-dev | grep -x '/..*[^.]' >files
		apt-get -q -y purge unshardfs libunshard0.1 libunshard-dev
		while read -r f; do
			[ -d \$f ] && dpkg -S \$f >/dev/null || [ ! -e \$f ] || echo \$f
		done <files >left
		find / -xdev -name '*unshard*' ! -path '/root/*' >>left
		dpkg -l | grep unshard >>left || :
		! grep . left"
}

wheel() {
	within clone "cd unshardfs; make wheel"
	bare wheel
	cp "$WORK"/clone/root/unshardfs/build/wheel/*.whl "$WORK/wheel/root"
	for example in $EXAMPLES; do
		cp -r "$TOP/$example" "$WORK/wheel/root/"
	done
	cat >"$WORK/wheel/root/load.py" <<-'PY'
		import hashlib, sys, unshard
		for path, sums in zip(sys.argv[1::2], sys.argv[2::2]):
		    want = dict(reversed(line.split()) for line in open(sums))
		    with unshard.open(path) as ck:
		        got = {n: hashlib.sha256(t.tobytes()).hexdigest() for n, t in ck.items()}
		        assert want and want.items() <= got.items(), (path, got, want)
		        print(path, len(got), "tensors")
	PY
	within wheel "$INSTALL python3 python3-venv
		for c in cc gcc clang; do if command -v \$c; then exit 1; fi; done
		if dpkg -l | grep '^ii[^:]*-dev'; then exit 1; fi
		python3 -m venv v; v/bin/pip -q install --no-index ./*.whl
		v/bin/python load.py demo/checkpoint demo/expected.sha256 \
			2.10-row4/in 2.10-row4/sums zero3-five-ranks/in zero3-five-ranks/sums
		v/bin/unshard verify --help >/dev/null
		v/bin/unshard cat demo/checkpoint $DOWN | cmp - demo/down_proj.expected
		v/bin/pip -q uninstall -y unshardfs
		! find v -name '*unshard*' | grep ."
}

base bookworm || skip "no root of Debian 12"
clone
packages
wheel
done_ok
