"""Several processes that train one model together, as torchrun starts them; one without it.

The number of workers does not change what an update is: it has trainer.accumulate batches, dealt
out in turn, and the gradients are added up. So one worker and many make the same updates, up to
rounding (and other dropout: see `Workers.seed`). Only worker 0 writes.
"""

import itertools
import json
import logging
import os
import re
import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from types import TracebackType
from typing import TYPE_CHECKING, Any, TypeVar

from nmt import config
from nmt.errors import Exit, UserError, exit_code

if TYPE_CHECKING:  # torch takes two seconds, and one worker alone needs none of it here
    import torch
    from torch import Tensor, nn

T = TypeVar("T")
VARIABLES = ("RANK", "WORLD_SIZE", "LOCAL_RANK")  # torchrun sets them
TIMEOUT = timedelta(minutes=30)  # without a sign from the others, who may be saving
LOST = re.compile("gloo|nccl|connection", re.IGNORECASE)  # such errors have no class of their own
FAILED = "nmt/failed"  # key of the store: who failed first, and why

log = logging.getLogger(__name__)


class Workers:
    """One worker alone: nothing to agree upon, nobody to wait for."""

    rank = 0
    size = 1

    def check(self, trainer: config.Training) -> None:
        """Raise UserError (exit 2) if an update has not a batch for each worker."""

    def device(self, name: str) -> "torch.device":
        """Return the device of trainer.device for this worker; raises what `pick` does."""
        from nmt.machine.device import pick

        return pick(name)

    def deal(self, items: Iterable[T]) -> Iterator[T]:
        """Yield this worker's part of what all go through in the same order."""
        return itertools.islice(items, self.rank, None, self.size)

    def seed(self, seed: int, step: int, number: int) -> None:
        """Make ready for batch `number` of this worker in an update.

        One worker's stream of random numbers runs on, and checkpoints keep where it is. Several
        start it anew for each batch of an update, so it is the same whoever gets the batch.
        """

    def largest(self, value: int) -> int:
        """Return the largest of the workers' values."""
        return value

    def total(self, value: float) -> float:
        """Return the sum of the workers' values, in float64."""
        return value

    def agree(self, tokens: int, signal: int) -> tuple[int, int]:
        """Return the sum of the workers' tokens, and the greatest of their signals."""
        return tokens, signal

    def exchanged(self, objective: "nn.Module") -> "nn.Module":
        """Return a module that gives the same, and whose gradients are exchanged on their way."""
        return objective

    @contextmanager
    def exchange(self, objective: "nn.Module", last: bool) -> Iterator[None]:
        """Go forward and backward through what `exchanged` gave.

        After the `last` batch of an update the gradients are the sums over all workers. What is
        not finite anywhere is then finite nowhere: all skip the update, or none.
        """
        yield

    def added(self, sums: "Tensor") -> "Tensor":
        """Return the sums over all workers."""
        return sums

    def tell(self, value: Any) -> None:
        """Worker 0: let the others `hear` a value that JSON can hold."""

    def hear(self) -> Any:
        """Other workers: wait for what worker 0 tells next, however long it takes to find out."""
        raise RuntimeError("worker 0 tells, it does not hear")

    def barrier(self) -> None:
        """Wait until all workers are here."""
        self.largest(0)


ALONE = Workers()


class Several(Workers):
    """One of several workers; leave it as a context manager, for only one may speak of an error.

    Small things (stop signals, counts) travel by gloo, on the CPU; gradients by gloo or NCCL,
    depending on where they are.
    """

    def __init__(self, rank: int, size: int, local: int) -> None:
        import torch
        import torch.distributed as dist

        # its functions keep the group that is there when it is imported, as torch itself may do
        # later: the group's threads would then outlive it, and can abort the end of the process
        import torch.distributed.nn
        from torch.distributed.rendezvous import rendezvous

        self.rank, self.size, self.local = rank, size, local
        self.messages = 0
        if sys.platform == "linux" and os.environ.get("LOCAL_WORLD_SIZE") == str(size):
            os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")  # all here: open no port to the net
        self.store, _, _ = next(rendezvous("env://", rank, size, timeout=TIMEOUT))
        both = torch.cuda.is_available() and dist.is_nccl_available()
        backend = "cpu:gloo,cuda:nccl" if both else "gloo"
        dist.init_process_group(
            backend, store=self.store, rank=rank, world_size=size, timeout=TIMEOUT
        )
        if rank:
            logging.getLogger("nmt").setLevel(logging.CRITICAL)  # worker 0 says it all

    def check(self, trainer: config.Training) -> None:
        """Raise UserError (exit 2) if an update has not a batch for each worker."""
        batches, tokens = trainer.accumulate, trainer.batch_tokens
        if batches < self.size:
            raise UserError(
                f"trainer.accumulate={batches}: an update needs a batch for each of "
                f"{self.size} workers; set trainer.accumulate={self.size} "
                f"(and trainer.batch_tokens={max(1, tokens * batches // self.size)} "
                "for updates as large as before)"
            )
        if batches % self.size:
            log.warning(
                "trainer.accumulate=%d: a multiple of %d would leave none of the workers idle",
                *(batches, self.size),
            )

    def device(self, name: str) -> "torch.device":
        """Return the CPU, or this worker's own GPU of its machine.

        Raises UserError: exit 2 for a GPU with a number, 71 if there are too few of them.
        """
        import torch

        from nmt.machine.device import pick

        device = pick(name)
        if device.type == "cpu":
            return device
        if device.index is not None:
            raise UserError(
                f"trainer.device={name}: each of {self.size} workers takes a GPU of its own; "
                "set trainer.device=cuda"
            )
        own = pick(f"cuda:{self.local}")
        torch.cuda.set_device(own)
        return own

    def seed(self, seed: int, step: int, number: int) -> None:
        """Start torch's random numbers anew: other ones for each batch, the same on any worker."""
        import numpy as np
        import torch

        place = self.rank + number * self.size  # of the batch in its update: see `deal`
        draw = np.random.SeedSequence([seed, step, place]).generate_state(1, np.uint64)
        torch.manual_seed(int(draw[0]))

    def largest(self, value: int) -> int:
        """Return the largest of the workers' values."""
        import torch

        largest = torch.tensor(value)
        self._reduce(largest, "MAX")
        return int(largest)

    def total(self, value: float) -> float:
        """Return the sum of the workers' values, in float64."""
        import torch

        total = torch.tensor(value, dtype=torch.float64)
        self._reduce(total, "SUM")
        return float(total)

    def agree(self, tokens: int, signal: int) -> tuple[int, int]:
        """Return the sum of the workers' tokens, and the greatest of their signals."""
        import torch
        import torch.distributed as dist

        told = [torch.empty(2, dtype=torch.int64) for _ in range(self.size)]
        with self._watched():  # by gloo, which notices a failed worker; NCCL would wait
            dist.all_gather(told, torch.tensor([tokens, signal]))
        counts, signals = torch.stack(told).T.tolist()
        return sum(counts), max(signals)

    def exchanged(self, objective: "nn.Module") -> "nn.Module":
        """Return it in torch's own engine, which adds gradients up while backward runs.

        A parameter that no worker has a gradient of keeps none, as with one worker.
        """
        import torch
        import torch.distributed as dist
        from torch.nn.parallel import DistributedDataParallel

        with self._watched():
            module = DistributedDataParallel(
                objective,
                find_unused_parameters=True,  # an encoding may leave some out in some batches
                gradient_as_bucket_view=True,
            )

        # torch compares the annotations with its own names
        def summed(
            _: None,
            bucket: dist.GradBucket,  # type: ignore[name-defined]
        ) -> torch.futures.Future[torch.Tensor]:
            """Sums, where torch would take means: the loss is per token of the whole update."""
            work = dist.all_reduce(bucket.buffer(), async_op=True)
            return work.get_future().then(lambda done: done.value()[0])

        module.register_comm_hook(None, summed)
        return module

    @contextmanager
    def exchange(self, objective: "nn.Module", last: bool) -> Iterator[None]:
        """Go forward and backward; the sums travel during the last batch's backward pass."""
        if last:
            with self._watched():
                yield
        else:
            with objective.no_sync():  # type: ignore[operator]
                yield

    def added(self, sums: "Tensor") -> "Tensor":
        """Return the sums over all workers."""
        self._reduce(sums, "SUM")
        return sums

    def _reduce(self, tensor: "Tensor", how: str) -> None:
        """Put the sum or maximum over workers into a tensor."""
        import torch.distributed as dist

        with self._watched():
            dist.all_reduce(tensor, getattr(dist.ReduceOp, how))

    @contextmanager
    def _watched(self) -> Iterator[None]:
        """UserError if one of the workers is gone meanwhile."""
        try:
            yield
        except RuntimeError as error:
            if not LOST.search(str(error)):
                raise
            raise self._failure() or UserError(
                "a worker is gone, without a word; the same command goes on from the last "
                f"checkpoint, if there is one ({str(error).partition(chr(10))[0]})",
                Exit.IO,
            ) from error

    def tell(self, value: Any) -> None:
        """Worker 0: let the others `hear` a value that JSON can hold."""
        self.store.set(self._next_key(), json.dumps(value))

    def hear(self) -> Any:
        """Other workers: wait for what worker 0 tells next, however long it takes to find out."""
        key = self._next_key()
        while not self.store.check([key]):
            if failure := self._failure():
                raise failure
            time.sleep(0.05)
        return json.loads(self.store.get(key))

    def _next_key(self) -> str:
        self.messages += 1
        return f"nmt/message/{self.messages}"

    def _failure(self) -> UserError | None:
        """What the first worker that failed left behind, if one did."""
        try:
            if not self.store.check([FAILED]):
                return None
            failed = json.loads(self.store.get(FAILED))
        except RuntimeError:  # the store has gone, too
            return None
        known = failed["code"] in set(Exit)
        return UserError(
            f"worker {failed['rank']}: {failed['message']}",
            Exit(failed["code"]) if known else Exit.IO,
        )

    def _first_to_fail(self, code: int, error: BaseException) -> bool:
        """Write down an error, unless another worker was faster."""
        message = str(error) if isinstance(error, UserError) else repr(error)
        own = json.dumps({"rank": self.rank, "code": code, "message": message})
        try:
            return bool(self.store.compare_set(FAILED, "", own) == own.encode())
        except RuntimeError:
            return True  # nobody else can be asked

    def __enter__(self) -> "Several":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        import torch.distributed as dist

        if error is None:
            dist.destroy_process_group()
            return
        # the end of this process closes the group; to destroy it, NCCL would wait for the others
        code = exit_code(error)
        if not self._first_to_fail(code, error):
            raise SystemExit(int(code)) from None  # in silence


@contextmanager
def joined() -> Iterator[Workers]:
    """Join the workers of torchrun, or be the only one, without a trace of torch.distributed."""
    numbers = [os.environ.get(name, "") for name in VARIABLES]
    if not all(map(str.isdecimal, numbers)) or numbers[1] == "1":
        yield ALONE
        return
    # torch would warn each worker that all parameters have a gradient, as `exchanged` allows not to
    os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")
    with Several(*map(int, numbers)) as workers:
        yield workers
