#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# A catalog of a million chunks, in tensors of a thousand.
exec "$BENCH_DIR/builder"
