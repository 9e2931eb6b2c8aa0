# SPDX-License-Identifier: Apache-2.0
# The command was built with all the libraries of features.list, new enough,
# and with no others but the C library's.

status=0
no() {
	echo "$*"
	status=1
}
needed=$(readelf -d "$B/unshard" | sed -n 's/.*NEEDED.*\[\(.*\)\]/\1/p')
while read -r name least; do
	case $name in '' | '#'*) continue ;; esac
	pkg-config --atleast-version="$least" "$name" ||
		no "$name: $(pkg-config --modversion "$name"), not $least or newer"
	file=lib${name#lib}
	# -lNAME of the module: the file's name may differ from the module's.
	for l in $(pkg-config --libs-only-l "$name"); do
		case $l in -lpthread | -ldl | -lrt | -lm) continue ;; esac
		file=lib${l#-l}
	done
	echo "$needed" | grep -q "^$file\.so" || no "$name: not linked ($file)"
	known="$known|$file"
done <tests/lint/features.list
more=$(echo "$needed" | grep -Ev "^(libc|libm|ld-linux[^.]*|libgcc_s|libasan|libubsan|libpthread$known)\.so")
[ -z "$more" ] || no "linked, but not in features.list:" $more
[ "$(grep -v '^#' tests/lint/features.list | awk '{ print $1 }' | sort | xargs)" = \
	"$(echo $PKGS | tr ' ' '\n' | sort | xargs)" ] ||
	no "the Makefile's PKGS are not those of features.list"
exit $status
