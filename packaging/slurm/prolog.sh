#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Prolog= of slurm.conf (with PrologFlags=Alloc): each job finds the checkpoints at
# /run/unshard/JOBID, and each user what the files allow him.  A prolog that fails
# drains the node, so a mount that cannot be made is a line in the log, no more.
RUNS=/data/runs
mnt=/run/unshard/$SLURM_JOB_ID
mkdir -p "$mnt" && unshard mount -o allow_other "$RUNS" "$mnt" 2>&1 |
	logger -t unshard-prolog
exit 0
