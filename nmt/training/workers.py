"""Several processes that train one model together, as torchrun starts them; one without it.

The number of workers does not change what an update is: it has trainer.accumulate batches, dealt
out in turn, and the gradients are added up. So one worker and many make the same updates, up to
rounding (and other dropout: see `Workers.seed`). Only worker 0 writes.
"""

import itertools
import json
import logging
import os
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from types import TracebackType
from typing import TYPE_CHECKING, Any, TypeVar

from nmt import config
from nmt.errors import Exit, UserError, exit_code

if TYPE_CHECKING:  # torch takes two seconds, and one worker alone needs none of it here
    import torch
    from torch import Tensor

T = TypeVar("T")
VARIABLES = ("RANK", "WORLD_SIZE", "LOCAL_RANK")  # torchrun sets them
TIMEOUT = timedelta(minutes=30)  # without a sign from the others, who may be saving
BUCKET = 64 * 2**20  # bytes that travel at once: the copy on their way needs no more memory
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
        from nmt.device import pick

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

    def add_up(
        self, parameters: Sequence["Tensor"], sums: tuple["Tensor", "Tensor"]
    ) -> tuple["Tensor", "Tensor"]:
        """Give the parameters the sum of all workers' gradients, and return that of `sums`.

        What is not finite anywhere is then finite nowhere: all skip the update, or none.
        """
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

        from nmt.device import pick

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

    def add_up(
        self, parameters: Sequence["Tensor"], sums: tuple["Tensor", "Tensor"]
    ) -> tuple["Tensor", "Tensor"]:
        """Give the parameters the sum of all workers' gradients, and return that of `sums`.

        A parameter that no worker has a gradient of keeps none, as with one worker.
        """
        import torch

        there = torch.tensor([int(p.grad is not None) for p in parameters])
        self._reduce(there, "MAX")  # by gloo, which notices a failed worker; NCCL would wait
        known = [p for p, has in zip(parameters, there.tolist(), strict=True) if has]
        own = [torch.zeros_like(p) if p.grad is None else p.grad for p in known]
        *grads, loss, nll = self._added([*own, *sums])
        for parameter, grad in zip(known, grads, strict=True):
            parameter.grad = grad
        return loss, nll

    def _added(self, tensors: list["Tensor"]) -> list["Tensor"]:
        """The sums over workers, as views of one flat tensor for each bucket."""
        import torch

        added: list[Tensor] = []
        for bucket in buckets(tensors, BUCKET):
            flat = torch.cat([t.reshape(-1) for t in bucket])
            self._reduce(flat, "SUM")
            parts = flat.split([t.numel() for t in bucket])
            added += [part.view(t.shape) for part, t in zip(parts, bucket, strict=True)]
        return added

    def _reduce(self, tensor: "Tensor", how: str) -> None:
        """Put the sum or maximum over workers into a tensor; UserError if one of them is gone."""
        import torch.distributed as dist

        try:
            dist.all_reduce(tensor, getattr(dist.ReduceOp, how))
        except RuntimeError as error:  # gloo has no class of its own
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
    with Several(*map(int, numbers)) as workers:
        yield workers


def buckets(tensors: Sequence["Tensor"], limit: int) -> Iterator[list["Tensor"]]:
    """Cut a sequence where it exceeds so many bytes, or where the dtype changes."""
    bucket: list[Tensor] = []
    size = 0
    for tensor in tensors:
        size += tensor.nbytes
        if bucket and (size > limit or tensor.dtype != bucket[-1].dtype):
            yield bucket
            bucket, size = [], tensor.nbytes
        bucket.append(tensor)
    if bucket:
        yield bucket
