# SPDX-License-Identifier: Apache-2.0
# The matrix of ../others.sh for the steps of a directory of checkpoints.
LIMIT=240
. "$(dirname "$0")/../lib/common.sh"
. "$here/tests/mount/lib/others.sh"
others steps steps-rw
done_ok
