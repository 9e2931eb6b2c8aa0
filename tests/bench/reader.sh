#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
exec "$BENCH_DIR/reader"
