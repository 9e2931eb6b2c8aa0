# SPDX-License-Identifier: Apache-2.0
# Other users (-o allow-other): no more than the files allow, and no less.
LIMIT=240
. "$(dirname "$0")/lib/common.sh"
. "$here/tests/mount/lib/others.sh"
others ro replace overlay
done_ok
