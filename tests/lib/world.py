# SPDX-License-Identifier: Apache-2.0
"""The processes of one gloo world, for every test that needs several ranks.

They are forked, so what torch imports is imported once; they meet in a file, so no
port has to stay free until somebody listens on it.

And they end by os._exit(), as all forked processes of multiprocessing do, when the
function has returned, its threads were joined and its output is written.  Through
Python's finalization a rank must not go: a thread of gloo's may still hold a tensor of
the last collective, waits for Python's lock to let go of it, and is ended there by
force, inside of a destructor: "terminate called without an active exception".
destroy_process_group() does not join that thread while a mesh holds the group.
"""
import contextlib
import os
import tempfile

import torch
import torch.distributed as dist
from torch.distributed.checkpoint.api import CheckpointException

# The test as its ranks: their sums are compared bit for bit, and the order of a sum is
# that of the threads.  Nor does a fork find threads that it would have to leave behind.
torch.set_num_threads(1)


def _rank(nr, world, store, function, args):
    os.environ.update(RANK=str(nr), LOCAL_RANK=str(nr), WORLD_SIZE=str(world),
                      LOCAL_WORLD_SIZE=str(world))
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=nr,
                            world_size=world)
    try:
        function(nr, *args)
    except CheckpointException as e:  # no Exception, and so not told by torch
        raise RuntimeError(str(e)) from e
    dist.barrier()
    dist.destroy_process_group()


@contextlib.contextmanager
def started(world, function, *args):
    """Processes that call function(rank, *args) and meet again at its end: torch's
    context of them, with .processes and .join()."""
    with tempfile.TemporaryDirectory() as tmp:
        ranks = torch.multiprocessing.start_processes(
            _rank, (world, os.path.join(tmp, "store"), function, args), world,
            join=False, start_method="fork")
        try:
            yield ranks
        finally:
            for process in ranks.processes:
                process.kill()
                process.join()


def run(world, function, *args):
    """The same, to their end; raises what one of them raised."""
    with started(world, function, *args) as ranks:
        while not ranks.join():
            pass
