#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# deps.sh GROUP... - see that what the groups of deps.list need is there, and
# install what is not with apt (as root, or through sudo).  Where neither is
# possible, say what is missing, and fail if it is needed.

here=$(cd "$(dirname "$0")" && pwd)

with_python() {
	for p in "$PYTHON" python3 /usr/bin/python3; do
		[ -n "$p" ] && "$p" -c "import $1" 2>/dev/null && return 0
	done
	return 1
}

is_there() {
	case $1 in
	cmd:*) command -v "${1#cmd:}" >/dev/null || [ -x "/sbin/${1#cmd:}" ] ;;
	pc:*) pkg-config --exists "${1#pc:}" 2>/dev/null ;;
	hdr:*) [ -e "/usr/include/${1#hdr:}" ] ;;
	file:*) [ -e "${1#file:}" ] ;;
	py:*) with_python "${1#py:}" ;;
	*) echo "deps.list: what is $1?" >&2; exit 2 ;;
	esac
}

add() {
	eval "case \" \$$1 \" in *' $2 '*) ;; *) $1=\"\$$1 $2\" ;; esac"
}

# Sets $needed and $wanted: the packages of what is not there.
look() {
	needed= wanted=
	for group; do
		while read -r g how package _; do
			case $g in
			"$group") is_there "$how" || add needed "$package" ;;
			"+$group") is_there "$how" || add wanted "$package" ;;
			esac
		done <"$here/deps.list"
	done
}

as_root() {
	if [ "$(id -u)" = 0 ]; then
		"$@"
	elif [ -t 0 ]; then
		sudo "$@"
	else
		sudo -n "$@"
	fi
}

can_install() {
	command -v apt-get >/dev/null || return 1
	[ "$(id -u)" = 0 ] || command -v sudo >/dev/null
}

# The package lists may be missing, or older than the mirror: then once more.
install() {
	echo "installing:$*"
	ls /var/lib/apt/lists/*_Packages* >/dev/null 2>&1 ||
		as_root apt-get -q update
	set -- env DEBIAN_FRONTEND=noninteractive apt-get -q -y \
		-o DPkg::Lock::Timeout=300 -o Dpkg::Use-Pty=0 \
		install --no-install-recommends $*
	as_root "$@" || { as_root apt-get -q update && as_root "$@"; }
}

# The one thing that is no package: see deps.list.
link_mtab() {
	case " $wanted " in *" mtab "*) ;; *) return ;; esac
	as_root ln -s ../proc/self/mounts /etc/mtab && look "$@"
}

look "$@"
[ -n "$needed$wanted" ] || exit 0
can_install && link_mtab "$@"
if [ -n "$needed$wanted" ] && can_install; then
	install " $needed $wanted" || echo "apt-get could not install them" >&2
	look "$@"
fi
[ -z "$wanted" ] || echo "not there, done without (Debian's names):$wanted"
[ -n "$needed" ] || exit 0
echo "missing (Debian's names):$needed" >&2
echo "as root: apt-get update && apt-get install$needed" >&2
exit 1
