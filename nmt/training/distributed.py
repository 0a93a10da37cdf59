"""Several processes (ranks) that train one model together, as torchrun starts them.

The number of ranks does not change what an update is: it has trainer.accumulate batches, sharded
over the ranks, and the mean gradient of all their tokens. So one process and many make the same
updates, up to rounding (and other dropout: see `World.seed`). Only rank 0 writes.
"""

import itertools
import logging
import os
import re
import signal
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from datetime import timedelta
from typing import TYPE_CHECKING, Any, TypeVar, cast

from nmt.config.settings import Training
from nmt.errors import Exit, UserError, is_out_of_memory
from nmt.system.resources import end_with_parent

if TYPE_CHECKING:  # torch takes two seconds, and a single process needs none of it here
    import torch
    import torch.distributed as dist
    from torch import Tensor, nn

T = TypeVar("T")
TORCHRUN_VARIABLES = ("RANK", "WORLD_SIZE", "LOCAL_RANK")  # torchrun sets them
TIMEOUT = timedelta(minutes=10)  # of sums, as all ranks compute
WAITING_TIMEOUT = timedelta(days=1)  # while rank 0 alone prepares a corpus or saves
LOST_RANK = re.compile("gloo|nccl|connection", re.IGNORECASE)  # in messages of RuntimeErrors
PRECISION_ADVICE = "choose float32 (where the run has begun, with another name=)"
SENTENCE_END = re.compile(r"\n|\. ")  # what ends the first sentence of an error

log = logging.getLogger(__name__)


class World:
    """The processes that train one model, and the rank of this one among them.

    A single process is rank 0 of a world of size 1: its collectives return what they are given.
    Sums travel by gloo from CPUs, by NCCL from GPUs. Where rank 0 alone works, a barrier or a
    broadcast follows, in a group of its own, so that sums notice soon that a machine is lost.
    """

    dist: Any  # torch.distributed, which a single process does not import
    waiting: "dist.ProcessGroup"  # for barriers and broadcasts

    def __init__(self, rank: int = 0, size: int = 1, local_rank: int = 0) -> None:
        self.rank, self.size, self.local_rank = rank, size, local_rank

    def check(self, trainer: Training) -> None:
        """Raise UserError (exit 2) if an update has not a batch for each rank."""
        if (batches := trainer.accumulate) < self.size:
            raise UserError(
                f"trainer.accumulate={batches}: an update needs a batch for each of {self.size} "
                f"ranks; start at most {batches} or, for a new run, set trainer.accumulate="
                f"{self.size} and lower trainer.batch_tokens"
            )

    def device(self, name: str) -> "torch.device":
        """Return the device of trainer.device; of several ranks, each has its own GPU."""
        from nmt.system.device import pick

        device = pick(name)
        if self.size == 1 or device.type == "cpu":
            return device
        return pick(f"cuda:{self.local_rank}")

    def number_format(self, options: Training, device: "torch.device") -> str:
        """Return trainer.precision, or float32 where that is faster on one of the ranks.

        `auto` is bfloat16 on a GPU that has units for it. Raises UserError (exit 2) for a format
        that a GPU has no units for, and for TF32 on a CPU.
        """
        import torch

        from nmt.system.device import device_name, has_low_precision
        from nmt.system.machine import this_machine

        precision, cuda = options.precision, device.type == "cuda"
        if precision == "float32" or (precision == "auto" and not cuda):
            return "float32"
        if precision == "tf32" and not cuda:
            raise UserError(f"trainer.precision=tf32: for GPUs only; on a CPU {PRECISION_ADVICE}")
        slow = not (has_low_precision(device) if cuda else this_machine().trains_in_bfloat16)
        if not self.all_reduce(torch.tensor(int(slow)), "MAX"):  # all ranks add to the same sums
            return "bfloat16" if precision == "auto" else precision
        if cuda and precision != "auto":
            name = device_name(device)
            raise UserError(
                f"trainer.precision={precision}: {name} has no units for it; {PRECISION_ADVICE}"
            )
        why = (
            "this GPU has no units for bfloat16" if cuda else "not faster than float32 on this CPU"
        )
        log.warning("trainer.precision=%s: %s: float32 is used", precision, why)
        return "float32"

    def shard(self, items: Iterable[T]) -> Iterator[T]:
        """Yield every size-th item, from this rank's first; all ranks have the same items."""
        return itertools.islice(items, self.rank, None, self.size)

    def seed(self, seed: int, step: int, position: Sequence[int]) -> None:
        """Seed torch for a batch; its position in the update: its number, and that of its part.

        A single process has one stream of random numbers, whose state checkpoints keep. Several
        seed each batch of an update, so that its dropout is the same on whichever rank it is.
        """
        if self.size == 1:
            return
        import numpy as np
        import torch

        draw = np.random.SeedSequence([seed, step, *position]).generate_state(1, np.uint64)
        torch.manual_seed(int(draw[0]))

    def all_reduce(self, tensor: "Tensor", op: str = "SUM") -> "Tensor":
        """Put the sum (or "MAX") over all ranks into a tensor, and return it."""
        if self.size > 1:
            self.dist.all_reduce(tensor, getattr(self.dist.ReduceOp, op))
        return tensor

    def broadcast(self, compute: Callable[[], T]) -> T:
        """Call a function on rank 0, however long it takes, and return its value on all ranks."""
        value = None if self.rank else compute()
        if self.size > 1:
            values = [value]
            self.dist.broadcast_object_list(values, group=self.waiting)
            (value,) = values
        return cast(T, value)

    def barrier(self) -> None:
        """Wait for all ranks, as long as one may take to save a checkpoint."""
        if self.size > 1:
            self.dist.barrier(self.waiting)

    def data_parallel(self, objective: "nn.Module") -> "nn.Module":
        """Wrap a module so that `backward` takes the mean of its gradients over all ranks."""
        if self.size == 1:
            return objective
        from torch.nn.parallel import DistributedDataParallel

        module = DistributedDataParallel(
            objective,
            find_unused_parameters=True,  # an encoding may leave some out in some batches
            gradient_as_bucket_view=True,
        )
        # no buffer changes in training; torch 2.13 warns of the argument of this name
        module.broadcast_buffers = False
        return module

    def gradients(self, objective: "nn.Module", last: bool) -> AbstractContextManager[None]:
        """Run a forward and backward pass of an objective wrapped by `data_parallel`.

        Gradients are averaged over the ranks during the backward pass of the `last` batch of an
        update. One that is not finite on a rank then is so on all: all skip the update, or none.
        """
        if self.size == 1 or last:
            return nullcontext()
        return cast(Any, objective).no_sync()

    def connect(self) -> None:
        """Join the other ranks, as the variables of torchrun say."""
        # torch would warn each rank that all parameters have a gradient, as `data_parallel` allows
        os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")
        import torch
        import torch.distributed as dist

        # its functions keep the group that is there when it is imported, as torch itself may do
        # later: the group's threads would then outlive it, and can abort the end of the process
        import torch.distributed.nn

        if sys.platform == "linux" and os.environ.get("LOCAL_WORLD_SIZE") == str(self.size):
            # one machine: open no port to the net
            os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
        self.dist = dist
        nccl = torch.cuda.is_available() and dist.is_nccl_available()
        dist.init_process_group(
            "cpu:gloo,cuda:nccl" if nccl else "gloo",
            rank=self.rank,
            world_size=self.size,
            timeout=TIMEOUT,
        )
        self.waiting = dist.new_group(backend="gloo", timeout=WAITING_TIMEOUT)


SINGLE = World()


def explain_lost_rank(error: BaseException) -> UserError | None:
    """The UserError (74) where another rank fails or is killed; None for any other error."""
    lost = isinstance(error, RuntimeError) and LOST_RANK.search(str(error))
    if not lost or is_out_of_memory(error):
        return None
    reason = str(error).rpartition("Last error:")[2].strip()  # where NCCL says what it is
    return UserError(
        "another rank failed, was killed or does not answer; the same command resumes "
        f"from the last checkpoint, if there is one ({SENTENCE_END.split(reason)[0]})",
        Exit.IO,
    )


@contextmanager
def connect_ranks() -> Iterator[World]:
    """Join the ranks of torchrun, if any; each reports its own error, and rank 0 all else."""
    if sys.platform == "linux" and "TORCHELASTIC_RUN_ID" in os.environ:
        end_with_parent(signal.SIGTERM)  # torchrun may be killed: a rank would train on without it
    numbers = [os.environ.get(name, "") for name in TORCHRUN_VARIABLES]
    if not all(map(str.isdecimal, numbers)) or numbers[1] == "1":
        yield SINGLE
        return
    world = World(*map(int, numbers))
    world.connect()
    if world.rank:
        logging.getLogger("nmt").setLevel(logging.CRITICAL)  # rank 0 reports for all
    try:
        yield world
    except BaseException as error:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)  # from torchrun, before the error is reported
        # the end of this process closes the group; to destroy it, NCCL would wait for other ranks
        if lost := explain_lost_rank(error):
            raise lost from error
        raise
    world.dist.destroy_process_group()
