#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Epilog= of slurm.conf: nothing of the job keeps the mount, so it need not be busy.
mnt=/run/unshard/$SLURM_JOB_ID
! mountpoint -q "$mnt" || unshard umount -l "$mnt" || exit 1
rmdir "$mnt" 2>/dev/null
exit 0
