# SPDX-License-Identifier: Apache-2.0
# Examples of formats are small: each is read some 400 times by the tests (cut,
# flipped, without memory), and all of them lie in every release.  A case has at
# most 128 KiB but for those below, all together 8 MiB (a fifth of it packed).

case_kib=128 all_kib=8192
find tests/formats -type f -printf '%s %p\n' | awk \
	-v case_max=$((case_kib * 1024)) -v all_max=$((all_kib * 1024)) '
BEGIN {
	# one tensor of each dtype, with strides of every kind
	most["tests/formats/dcp/2.14-dtypes"] = 384 * 1024
	# a real optimizer over four ranks, the shape that most people have
	most["tests/formats/dcp/2.14-fsdp2-adamw"] = 192 * 1024
	# two by two ranks that share every kind of layer
	most["tests/formats/deepspeed/autotp"] = 136 * 1024
}
{
	all += $1
	if (split($2, part, "/") < 5) next
	size[part[1] "/" part[2] "/" part[3] "/" part[4]] += $1
}
END {
	for (c in size) {
		max = (c in most) ? most[c] : case_max
		if (size[c] <= max) continue
		printf "%s: %d bytes, not %d\n", c, size[c], max
		bad = 1
	}
	for (c in most) if (!(c in size)) {
		printf "%s: is no case any more\n", c
		bad = 1
	}
	if (all > all_max) {
		printf "tests/formats: %d bytes, not %d\n", all, all_max
		bad = 1
	}
	exit bad
}'
