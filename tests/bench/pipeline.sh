#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Storage of 200 MB/s and a device of 1,250, and the other way round; eight devices
# of 50 MB/s at once.  At real-time priority where that is allowed: what is measured
# is who waits for whom, not who else is at work here.
rt=
chrt -f 5 true 2>/dev/null && rt="chrt -f 5"
exec $rt "$BENCH_DIR/pipeline" 256
