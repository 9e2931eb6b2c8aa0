# SPDX-License-Identifier: Apache-2.0
# The same of names in a step that is being written, and of steps: folders that
# others may change, sticky ones, access lists.
LIMIT=240
. "$(dirname "$0")/lib/common.sh"
. "$here/tests/mount/lib/others.sh"
others new
done_ok
