# SPDX-License-Identifier: Apache-2.0
# "make release" twice, in two folders of a bare Debian 12 with nothing but its packages:
# the same bytes.  Lintian has nothing to say of the Debian packages, which come and go
# without a trace; the rpm is installed into an empty root, where the command runs; so
# does the OCI image, by crun; the wheel gives the command; and SHA256SUMS is right.
LIMIT=7200
. "$(dirname "$0")/lib/roots.sh"
DOWN=model.model.layers.0.mlp.down_proj.weight
WANT=$TOP/tests/demo/down_proj.expected

build() {
	bare build
	within build "dpkg --add-architecture arm64; apt-get -q update
		$INSTALL git make lintian \
			$(deps build man run check deb wheel rpm release arm64)
		ln -sf ../proc/self/mounts /etc/mtab"
	for where in one another/of-another-length; do
		mkdir -p "$WORK/build/root/$where"
		git clone -q "$TOP" "$WORK/build/root/$where/unshardfs"
	done # both now: a commit that comes meanwhile would be a difference
	for where in one another/of-another-length; do
		within build "cd $where/unshardfs; make -s release"
	done
	R=$WORK/build/root/one/unshardfs/build/release
	within build "cd one/unshardfs/build/release; sha256sum -c --quiet SHA256SUMS
		diff -r . /root/another/of-another-length/unshardfs/build/release
		lintian --allow-root -I --fail-on error,warning,info --tag-display-limit 0 \
			*.deb >/root/lintian || :
		cat /root/lintian; ! grep . /root/lintian"
	for kind in .tar.gz _x86_64.whl .x86_64.rpm _amd64.deb -x86_64 -aarch64 \
		-x86_64.spdx.json -aarch64.spdx.json oci-amd64.tar oci-arm64.tar; do
		ls "$R"/*$kind >/dev/null || fail "no *$kind"
	done
}

in_rpm() {
	local root=$WORK/rpm
	mkdir -p "$root/proc" "$root/dev" "$root/mnt"
	cp "$R"/*.x86_64.rpm "$WORK/build/root/p.rpm"
	mount --bind "$root" "$WORK/build/mnt"
	within build "rpm --root /mnt --initdb; rpm --root /mnt -i p.rpm
		rpm --root /mnt -V unshardfs; rpm --root /mnt -ql unshardfs >rpm-files"
	cp -r "$TOP/tests/demo/checkpoint" "$root/ckpt"
	chroot "$root" /usr/bin/unshard cat ckpt "$DOWN" | cmp - "$WANT" ||
		fail "rpm: other bytes"
	mount -t proc proc "$root/proc"
	: >"$root/dev/fuse"
	mount --bind /dev/fuse "$root/dev/fuse"
	chroot "$root" /usr/sbin/mount.unshardfs /ckpt /mnt || fail "rpm: mount: $?"
	cmp "$root/mnt/tensors/$DOWN" "$WANT" || fail "rpm: mount: other bytes"
	chroot "$root" /usr/bin/unshard umount /mnt || fail "rpm: umount: $?"
	within build "rpm --root /mnt -e unshardfs
		while read -r f; do
			[ -d /mnt\$f ] || [ ! -e /mnt\$f ] || { echo \$f; exit 1; }
		done <rpm-files"
}

in_image() {
	local bundle=$WORK/bundle
	mkdir "$WORK/oci"
	tar -C "$WORK/oci" -xf "$R"/*oci-amd64.tar
	cp -r "$WORK/oci" "$WORK/build/root/oci"
	within build "umoci unpack --image oci:\$(cd oci; sed -n 's/.*ref.name\":\"\\([^\"]*\\).*/\\1/p' index.json) bundle"
	mv "$WORK/build/root/bundle" "$bundle"
	[ "$(cd "$bundle/rootfs" && find . -type f)" = ./unshard ] ||
		fail "the image has other files"
	cp -r "$TOP/tests/demo/checkpoint" "$bundle/rootfs/ckpt"
	chroot "$bundle/rootfs" /unshard cat ckpt "$DOWN" | cmp - "$WANT" ||
		fail "image: other bytes"
	command -v crun >/dev/null || { say "crun is not there: left out"; return; }
	sed -i "s|\"terminal\": true|\"terminal\": false|
		s|\"--help\"|\"cat\", \"/ckpt\", \"$DOWN\"|" "$bundle/config.json"
	# crun knows no machine with control groups of both versions.
	umount -R /sys/fs/cgroup
	mount -t cgroup2 none /sys/fs/cgroup
	crun --cgroup-manager=disabled run -b "$bundle" "unshard-$$" | cmp - "$WANT" ||
		fail "image: crun: other bytes"
}

pip() {
	bare pip
	cp "$R"/*.whl "$WORK/pip/root"
	cp -r "$TOP/tests/demo" "$WORK/pip/root"
	within pip "$INSTALL python3 python3-venv
		python3 -m venv v; v/bin/pip -q install --no-index ./*.whl
		v/bin/unshard cat demo/checkpoint $DOWN | cmp - demo/down_proj.expected
		mkdir mnt; v/bin/unshard mount demo/checkpoint mnt
		cmp mnt/tensors/$DOWN demo/down_proj.expected; v/bin/unshard umount mnt"
}

base bookworm || skip "no root of Debian 12"
build
in_rpm
in_image
pip
done_ok
