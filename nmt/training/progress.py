"""What a run tells while it goes: metrics.jsonl, log lines, a bar on a terminal, TensorBoard."""

import json
import logging
import math
import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO

from tqdm import tqdm
from tqdm.contrib.logging import logging_redirect_tqdm

from nmt import atomic

METRICS, BOARD = "metrics.jsonl", "tb"  # in a run directory
GIGA = 1e9  # bytes in a GB

log = logging.getLogger(__name__)


class Meter:
    """Sums over the updates since the last report."""

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        """Start anew."""
        self.loss = self.nll = self.seconds = 0.0
        self.tokens = 0
        self.norm = 0.0

    def add(self, loss: float, nll: float, tokens: int, norm: float, seconds: float) -> None:
        """Add an update's sums over tokens, its gradient norm before clipping, its duration."""
        self.loss += loss
        self.nll += nll
        self.tokens += tokens
        self.seconds += seconds
        self.norm = norm

    def state(self) -> dict[str, float]:
        """Return what `restore` needs: a checkpoint may come between two reports."""
        return dict(vars(self))

    def restore(self, state: dict[str, float]) -> None:
        """Continue where `state` was taken."""
        vars(self).update(state)

    def report(self) -> dict[str, float]:
        """Return means per token, the speed, and the last gradient norm."""
        return {
            "loss": self.loss / self.tokens,
            "perplexity": math.exp(min(self.nll / self.tokens, 700)),
            "tokens_per_second": self.tokens / self.seconds if self.seconds else 0.0,
            "grad_norm": self.norm,
        }


class MetricsLog:
    """Writes one line of metrics.jsonl per report, and shows it where somebody looks.

    On resuming at `step`, lines of later steps are cut off, so that none appears twice.
    """

    def __init__(self, run: Path, step: int, last: int, tensorboard: bool) -> None:
        self.run, self.step, self.last = run, step, last
        self.tensorboard = tensorboard
        self.fields: dict[str, str] = {}

    def __enter__(self) -> "MetricsLog":
        truncate(self.run / METRICS, self.step)
        with ExitStack() as stack:
            self.metrics: BinaryIO = stack.enter_context((self.run / METRICS).open("ab"))
            self.bar = stack.enter_context(
                tqdm(total=self.last, initial=self.step, unit="update", disable=None, leave=False)
            )  # disable=None: no bar where stderr is no terminal
            if not self.bar.disable:
                stack.enter_context(logging_redirect_tqdm())
            self.board = stack.enter_context(_board(self.run, self.step, self.tensorboard))
            self._open = stack.pop_all()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        self._open.close()

    def tick(self) -> None:
        """Move the bar on by one update."""
        self.bar.update()

    def train(self, line: dict[str, Any]) -> None:
        """Report on the updates since the last report."""
        self._write({"kind": "train", **line})
        self._show(
            loss=f"{line['loss']:.3f}",
            lr=f"{line['lr']:.3g}",
            tok_s=f"{line['tokens_per_second']:.0f}",
            GB=f"{line['memory_bytes'] / GIGA:.1f}",
        )
        if self.bar.disable:
            log.info(
                "step %d/%d, epoch %d: loss %.4f, %.0f tokens/s, %.1f GB, lr %.3g",
                *(line["step"], self.last, line["epoch"], line["loss"]),
                *(line["tokens_per_second"], line["memory_bytes"] / GIGA, line["lr"]),
            )

    def dev(self, line: dict[str, Any]) -> None:
        """Report on a checkpoint; the line is on the disk before the checkpoint is."""
        self._write({"kind": "dev", **line})
        os.fsync(self.metrics.fileno())
        self._show(dev_ppl=f"{line['perplexity']:.4g}")
        log.info(
            "step %d/%d, epoch %d: dev perplexity %.4f",
            *(line["step"], self.last, line["epoch"], line["perplexity"]),
        )

    def skipped(self, line: dict[str, Any]) -> None:
        """Report on an update that was not made, with the lines of the batch in the data."""
        self._write({"kind": "skipped", **line})
        shown = ", ".join(map(str, line["lines"][:10]))
        more = f" and {len(line['lines']) - 10} more" if len(line["lines"]) > 10 else ""
        log.warning(
            "step %d: loss or gradient is not finite; update skipped (lr %.3g, lines %s%s)",
            *(line["step"], line["lr"], shown, more),
        )

    def _show(self, **fields: str) -> None:
        self.fields.update(fields)
        self.bar.set_postfix(self.fields)

    def _write(self, line: dict[str, Any]) -> None:
        self.metrics.write(json.dumps(line, allow_nan=False).encode() + b"\n")
        self.metrics.flush()
        if self.board is not None:
            for key, value in line.items():
                if key not in ("kind", "step", "lines") and isinstance(value, (int, float)):
                    self.board.add_scalar(f"{line['kind']}/{key}", value, line["step"])


class Silence(MetricsLog):
    """The progress of the other workers: the first one tells it."""

    def __enter__(self) -> "Silence":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        """Do nothing."""

    def tick(self) -> None:
        """Do nothing."""

    def train(self, line: dict[str, Any]) -> None:
        """Do nothing."""

    def dev(self, line: dict[str, Any]) -> None:
        """Do nothing."""

    def skipped(self, line: dict[str, Any]) -> None:
        """Do nothing."""


def truncate(path: Path, step: int) -> None:
    """Cut off lines of later steps, and a last line that a kill left unfinished."""
    if not path.exists():
        return
    lines = path.read_bytes().split(b"\n")[:-1]  # after the last newline: nothing, or a torn line
    kept = [line for line in lines if json.loads(line)["step"] <= step]
    data = b"".join(line + b"\n" for line in kept)
    if data != path.read_bytes():
        atomic.replace(path, data)


@contextmanager
def _board(run: Path, step: int, enabled: bool) -> Iterator[Any]:
    """Yield a TensorBoard writer, or None where it is not wanted or not installed."""
    if not enabled:
        yield None
        return
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError:
        log.info("TensorBoard is not installed (pip install tensorboard); metrics.jsonl has it all")
        yield None
        return
    with SummaryWriter(str(run / BOARD), purge_step=step + 1) as board:
        yield board
