# SPDX-License-Identifier: Apache-2.0
# docs/recipes.md, each transcript in a root of Debian 12 with the real programs; what
# stands in manifests and units is right by the tools that judge them.
LIMIT=2400
. "$(dirname "$0")/lib/roots.sh"
LIBS="libfuse3-3 liburing2 libxxhash0 libjansson4 libzstd1 libseccomp2 libdeflate0"
TOOLS="fuse3 procps python3 iproute2 openssh-server sshfs rclone systemd prometheus"
TOOLS="$TOOLS glusterfs-server glusterfs-client munge slurmctld slurmd slurm-client"
TOOLS="$TOOLS nfs-ganesha nfs-ganesha-vfs libnfs-utils bsdutils"
UNIT=packaging/systemd/system/unshardfs@.service

base bookworm || skip "no Debian 12"
command -v "${UNSHARD:=$TOP/build/unshard}" >/dev/null || fail "no command at $UNSHARD"
ROOT=$WORK/recipes

world() {
	bare recipes
	printf '#!/bin/sh\nexit 101\n' >"$ROOT/usr/sbin/policy-rc.d"
	chmod +x "$ROOT/usr/sbin/policy-rc.d"
	within recipes "$INSTALL $LIBS $TOOLS"
	cp "$UNSHARD" "$ROOT/usr/bin/unshard"
	within recipes "unshard --version"
	mkdir -p "$ROOT/data/runs" "$ROOT/data/new" "$ROOT/srv/runs" "$ROOT/etc/unshardfs" \
		"$ROOT/t/tests/mount/lib" "$ROOT/t/docs"
	mkdir -p "$ROOT/mnt/remote" "$ROOT/mnt/ckpt" "$ROOT/mnt/runs"
	cp -r "$TOP/tests/demo/checkpoint" "$ROOT/data/runs/step-1000"
	cp -r "$TOP/tests/demo/checkpoint" "$ROOT/data/saved"
	cp "$TOP/tests/demo/expected.sha256" "$ROOT/data/"
	cp "$TOP/tests/mount/lib/transcript.py" "$ROOT/t/tests/mount/lib/"
	cp "$TOP/docs/recipes.md" "$ROOT/t/docs/"
	sed 's|@BIN@|/usr/bin|' "$TOP/$UNIT" >"$ROOT/etc/systemd/system/unshardfs@.service"
	printf 'CKPT=/data/runs\nMNT=/srv/runs\nOPTIONS=allow_other,log-format=json\n' \
		>"$ROOT/etc/unshardfs/runs.conf"
}

# A machine of its own, as far as a recipe can tell: processes, network, mounts.
machine='
	R=$1; shift
	mount --bind "$R" "$R"
	mount -t proc proc "$R/proc"
	mount --rbind /dev "$R/dev"
	for d in run tmp; do mount -t tmpfs tmpfs "$R/$d"; done
	ip link set lo up
	ip addr add 10.0.0.1/32 dev lo
	hostname node1
	exec chroot "$R" env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LC_ALL=C.UTF-8 \
		bash -c "cd /root; $1
			python3 /t/tests/mount/lib/transcript.py /t/docs/recipes.md --section \"$2\""'

recipe() { # SECTION [COMMANDS that make what it begins with]
	say "recipe: $1"
	# In a file: a pipe would wait for daemons.
	timeout -k 5 120 unshare --kill-child -m -p -f -n -u -i --propagation private \
		bash -c "$machine" machine "$ROOT" "${2-:}" "$1" \
		>"$WORK/said" 2>&1 </dev/null || {
		tail -n 20 "$WORK/said" "$ROOT"/var/log/ganesha.log "$ROOT"/var/log/slurm/* >&2
		fail "recipe: $1"
	}
	tail -n 1 "$WORK/said" >&2
}

world
: >"$ROOT/etc/hosts"
echo "10.0.0.1 node1" >>"$ROOT/etc/hosts"

recipe Prometheus
sshd='mkdir -p /run/sshd ~/.ssh; ssh-keygen -A >/dev/null
	[ -e ~/.ssh/id_ed25519 ] || ssh-keygen -q -t ed25519 -N "" -f ~/.ssh/id_ed25519
	cp ~/.ssh/id_ed25519.pub ~/.ssh/authorized_keys
	/usr/sbin/sshd
	ssh-keyscan -H node1 >~/.ssh/known_hosts 2>/dev/null'
recipe sshfs "$sshd"
recipe rclone "$sshd
	rclone config create node1 sftp host=node1 user=root key_file=/root/.ssh/id_ed25519 >/dev/null"
recipe GlusterFS '
	until_well() { for k in $(seq 50); do "$@" >/dev/null 2>&1 && return; sleep 0.2; done; "$@"; }
	mkdir -p /bricks/a /bricks/b /run/gluster
	glusterd
	until_well gluster --mode=script volume list
	gluster --mode=script volume create runs replica 2 node1:/bricks/a node1:/bricks/b force
	gluster volume start runs
	until_well sh -c "gluster volume status runs | grep -c \" Y \" | grep -qx [34]"'

cat >"$ROOT/root/wait-for-nfs" <<-'END'
	for k in $(seq 100); do nfs-ls "$1" >/dev/null 2>&1 && exit; sleep 0.2; done; exit 1
END
cat >"$ROOT/root/wait-for-end" <<-'END'
	for k in $(seq 100); do pidof "$1" >/dev/null || exit 0; sleep 0.2; done; exit 1
END
sed -n '/^    \$ cat .etc.ganesha/,/^    \$ unshard/s/^    //p' "$TOP/docs/recipes.md" |
	grep -v '^\$' >"$ROOT/etc/ganesha/ganesha.conf"
recipe "A mount exported by NFS-Ganesha" 'mkdir -p /run/ganesha /var/lib/nfs/ganesha /run/rpcbind; rpcbind'

cp "$TOP"/packaging/slurm/*.sbatch "$ROOT/root/"
cp "$TOP"/packaging/slurm/*log.sh "$ROOT/etc/slurm/"
chmod +x "$ROOT"/etc/slurm/*.sh
printf 'CgroupPlugin=cgroup/v1\nCgroupAutomount=no\n' >"$ROOT/etc/slurm/cgroup.conf"
cat >"$ROOT/etc/slurm/slurm.conf" <<-'END'
	ClusterName=demo
	SlurmctldHost=node1
	SlurmUser=root
	AuthType=auth/munge
	ProctrackType=proctrack/linuxproc
	TaskPlugin=task/none
	SelectType=select/cons_tres
	SelectTypeParameters=CR_Core
	StateSaveLocation=/var/lib/slurm/slurmctld
	SlurmdSpoolDir=/var/spool/slurmd
	SlurmctldLogFile=/var/log/slurm/slurmctld.log
	SlurmdLogFile=/var/log/slurm/slurmd.log
	JobAcctGatherType=jobacct_gather/none
	Prolog=/etc/slurm/prolog.sh
	PrologFlags=Alloc
	Epilog=/etc/slurm/epilog.sh
	NodeName=node1 CPUs=4 RealMemory=1000 State=UNKNOWN
	PartitionName=all Nodes=node1 Default=YES MaxTime=INFINITE State=UP
	SlurmdParameters=config_overrides
END
recipe Slurm 'mkdir -p /run/munge /var/log/slurm /var/lib/slurm/slurmctld /var/spool/slurmd
	chown munge /run/munge /var/log/munge /etc/munge /var/lib/munge; chmod 755 /run/munge
	head -c 1024 /dev/urandom >/etc/munge/munge.key
	chown munge /etc/munge/munge.key; chmod 400 /etc/munge/munge.key
	setpriv --reuid=munge --regid=munge --clear-groups munged
	slurmctld; slurmd
	for k in $(seq 100); do sinfo -h | grep -q idle && break; sleep 0.2; done'

# ---- systemd itself, as process 1 of a control group of its own
within recipes "systemd-analyze security --offline=yes \
	/etc/systemd/system/unshardfs@.service | tail -n 1" >"$WORK/score"
cat "$WORK/score" >&2
awk '/Overall/ { well = $(NF - 2) < 4 } END { exit !well }' "$WORK/score" ||
	fail "the unit: $(cat "$WORK/score")"
boot='
	R=$1
	mount --bind "$R" "$R"; mount -t proc proc "$R/proc"; mount -t sysfs sysfs "$R/sys"
	mount -t cgroup2 none "$R/sys/fs/cgroup"
	for d in run tmp dev; do mount -t tmpfs tmpfs "$R/$d"; done
	for d in null zero full random urandom tty fuse; do
		touch "$R/dev/$d"; mount --bind "/dev/$d" "$R/dev/$d"
	done
	mkdir "$R/dev/pts" "$R/dev/shm"; mount -t devpts devpts "$R/dev/pts"
	mount --make-rshared /
	exec chroot "$R" env -i container=other PATH=/usr/sbin:/usr/bin:/sbin:/bin \
		/lib/systemd/systemd --unit=basic.target'
inside() { # COMMAND...
	nsenter -t "$first" -m -p -C -i -u -n -r -w \
		env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin LC_ALL=C.UTF-8 "$@"
}
is_up() {
	first=$(pgrep -P "$(pgrep -n -f 'propagation private bash -c .*systemd')" -x systemd) &&
		inside systemctl is-system-running 2>/dev/null | grep -qE 'running|degraded'
}
group=
for at in /sys/fs/cgroup/unified /sys/fs/cgroup; do
	[ -n "$group" ] || [ ! -e $at/cgroup.procs ] || group=$at/unshard-deliver.$$
done
if [ -z "$group" ] || ! mkdir "$group"; then
	say "recipe systemd: not run, for there is no cgroup2 to be had"
else
	say "recipe: systemd"
	sh -c 'echo $$ >"$0/cgroup.procs" && exec "$@"' "$group" \
		timeout -k 5 120 unshare --kill-child -m -p -f -C -i -u -n --propagation private \
		bash -c "$boot" boot "$ROOT" >"$WORK/booted" 2>&1 </dev/null &
	booted=$!
	for k in $(seq 100); do is_up && break; sleep 0.3; done
	is_up || { cat "$WORK/booted" >&2; fail "systemd does not start"; }
	inside env -C /root python3 /t/tests/mount/lib/transcript.py /t/docs/recipes.md --section systemd \
		>&2 || fail "recipe: systemd"
	kill -9 "$first"
	wait "$booted" || :
	find "$group" -depth -type d -exec rmdir {} + || :
fi

# ---- manifests, by the schema of the API
python3 -m venv "$WORK/venv" && "$WORK/venv/bin/pip" -q install kubernetes-validate ||
	fail "no kubernetes-validate"
for file in "$TOP"/packaging/kubernetes/*.yaml; do
	"$WORK/venv/bin/kubernetes-validate" -k 1.32 --strict "$file" >&2 || fail "$file"
done
done_ok
